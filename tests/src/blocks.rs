//! Models on blocks: a graph for each layer, whose destinations are the first sources.

use crate::Scale;
use crate::input::{Random, matrix, read};
use crate::task::{CLASSES, FEATURES, weights};
use half::f16;
use halfgnn::backend::Backend;
use halfgnn::graph::{Block, Csr, Graph};
use halfgnn::nn::{
    Aggregate, Appnp, ConvolutionConfig, Degrees, Gat, Gcn, Gcnii, Gin, Mode, Model, ModelConfig,
    Network, Norm, Propagation, Statistics,
};
use halfgnn::tensor::Element;
use halfgnn::train::{Objective, TrainConfig, Trainer};

const VERTICES: usize = 200;

/// The vertices whose logits are wanted.
const WANTED: [u32; 6] = [41, 3, 0, 189, 17, 160];

/// Blocks that have all that `wanted` hear of within `layers` layers, and the vertices that are the first one's sources.
fn cut(graph: &Graph, wanted: &[u32], layers: usize) -> (Vec<(Block, Vec<u32>)>, Vec<u32>) {
    let mut sources = wanted.to_vec();
    let mut blocks = Vec::new();
    for _ in 0..layers {
        let destinations = sources.clone();
        let (mut rows, mut columns) = (Vec::new(), Vec::new());
        for (row, &vertex) in destinations.iter().enumerate() {
            for &neighbour in graph.csr().row(vertex as usize) {
                let known = sources.iter().position(|&source| source == neighbour);
                let column = known.unwrap_or_else(|| {
                    sources.push(neighbour);
                    sources.len() - 1
                });
                rows.push(row as u32);
                columns.push(column as u32);
            }
        }
        let shape = (destinations.len(), sources.len());
        let csr = Csr::rectangular_from_edges(shape, &rows, &columns).expect("ids are in range");
        blocks.push((
            Block::new(csr).expect("destinations are sources"),
            destinations,
        ));
    }
    blocks.reverse();
    (blocks, sources)
}

fn gather<T: Copy>(values: &[T], ids: &[u32]) -> Vec<T> {
    ids.iter().map(|&id| values[id as usize]).collect()
}

struct Case {
    graph: Graph,
    features: Vec<f32>,
    labels: Vec<u32>,
}

impl Case {
    fn new() -> Self {
        // Vertex 3 hears from many, the others from one or two, some from nobody.
        let mut rows = Random(400).below(VERTICES as u32, 260);
        rows.extend([3; 30]);
        let columns = Random(403).below(VERTICES as u32, rows.len());
        Self {
            graph: Graph::from_edges(VERTICES, &rows, &columns).expect("ids are in range"),
            features: Random(401).uniform::<f16>(VERTICES * FEATURES),
            labels: Random(402).below(CLASSES as u32, VERTICES),
        }
    }

    /// The wanted vertices' labels are to be learnt, on the whole graph.
    fn whole<B: Backend, E: Element>(&self, backend: &B, norm: Norm) -> Objective<B, E> {
        let graph = Propagation::new(backend, &self.graph, norm).expect("room");
        let features = matrix(backend, (VERTICES, FEATURES), &self.features);
        let splits = [&WANTED[..], &[], &[]];
        Objective::new(backend, graph, features, &self.labels, CLASSES, splits).expect("a task")
    }

    /// The same on a block for each layer.
    fn blocks<B: Backend, E: Element>(
        &self,
        backend: &B,
        norm: Norm,
        layers: usize,
    ) -> Objective<B, E> {
        let (blocks, sources) = cut(&self.graph, &WANTED, layers);
        let [rows, columns] = [self.graph.in_degrees(), self.graph.out_degrees()];
        let mut ids: Vec<&[u32]> = vec![&sources];
        ids.extend(blocks.iter().map(|(_, destinations)| &destinations[..]));
        let graphs = blocks.iter().zip(ids.windows(2)).map(|((block, _), ends)| {
            assert!(ends[0].len() > ends[1].len(), "there is something to cut");
            let degrees = Degrees::OfGraph {
                rows: &gather(&rows, ends[1]),
                columns: &gather(&columns, ends[0]),
            };
            Propagation::of_block(backend, block, norm, degrees).expect("room")
        });
        let features: Vec<f32> = sources
            .iter()
            .flat_map(|&id| &self.features[id as usize * FEATURES..][..FEATURES])
            .copied()
            .collect();
        let features = matrix(backend, (sources.len(), FEATURES), &features);
        let labels = gather(&self.labels, &WANTED);
        let all: Vec<u32> = (0..WANTED.len() as u32).collect();
        let splits = [&all[..], &[], &[]];
        Objective::on_blocks(
            backend,
            graphs.collect(),
            features,
            &labels,
            CLASSES,
            splits,
        )
        .expect("a task")
    }
}

/// A model, and how many graphs it wants.
fn of(convolution: impl Into<ConvolutionConfig>, hidden: usize) -> (ModelConfig, usize) {
    let config = ModelConfig {
        hidden,
        layers: 2,
        dropout: 0.0,
        ..ModelConfig::of(convolution.into(), FEATURES, CLASSES)
    };
    (config, 2)
}

fn gin(aggregate: Aggregate, learn_epsilon: bool, hidden: usize) -> (ModelConfig, usize) {
    let gin = Gin {
        aggregate,
        lambda: 0.5,
        epsilon: -0.5,
        learn_epsilon,
        statistics: Statistics::Running,
    };
    of(gin, hidden)
}

/// Models without normalisation, which sees all vertices at once. Layers that narrow and that widen, and residual ones.
fn models() -> Vec<(ModelConfig, usize)> {
    let residual = |(config, graphs): (ModelConfig, usize)| {
        let config = ModelConfig {
            residual: true,
            layers: 3,
            ..config
        };
        (config, graphs + 1)
    };
    let deep = |(config, graphs): (ModelConfig, usize)| {
        (
            ModelConfig {
                layers: 3,
                ..config
            },
            graphs + 1,
        )
    };
    let gat = |heads| Gat {
        heads,
        ..Gat::default()
    };
    let appnp = Appnp {
        steps: 2,
        alpha: 0.2,
        ..Appnp::default()
    };
    let gcn = |norm| Gcn { norm };
    vec![
        of(gcn(Norm::Both), 8),
        residual(of(gcn(Norm::Left), 24)),
        of(halfgnn::nn::Sage, 8),
        residual(of(halfgnn::nn::Sage, 24)),
        deep(of(halfgnn::nn::Sage, 16)),
        of(gat(1), 7),
        residual(of(gat(2), 16)),
        of(appnp, 12),
        of(Gcnii::default(), 12),
    ]
}

/// Logits of the wanted vertices, and the gradient of every parameter.
fn pass<B: Backend, E: Element>(
    backend: &B,
    objective: &Objective<B, E>,
    config: &ModelConfig,
    wanted: &[u32],
) -> (Vec<f32>, Vec<(String, Vec<f32>)>) {
    let model = Network::new(backend, config, 5).expect("room");
    let train = TrainConfig::new(E::PRECISION);
    let mut trainer = Trainer::new(backend, objective, model, train).expect("room");
    // The second time what is lent has any content.
    trainer.gradients().expect("a pass");
    trainer.gradients().expect("a pass");
    let logits = read(backend, trainer.model().logits());
    let logits = wanted
        .iter()
        .flat_map(|&row| &logits[row as usize * CLASSES..][..CLASSES])
        .copied()
        .collect();
    let gradients = trainer.model().parameters().into_iter().map(|parameter| {
        let gradient = read(backend, parameter.gradient());
        (parameter.name().to_owned(), gradient)
    });
    (logits, gradients.collect())
}

#[track_caller]
fn assert_close(what: &str, actual: &[f32], expected: &[f32], tolerance: f32) {
    assert_eq!(actual.len(), expected.len(), "{what}");
    let largest = expected
        .iter()
        .fold(0.0_f32, |most, value| most.max(value.abs()));
    assert!(largest > 0.0, "{what} is nothing");
    for (index, (a, b)) in actual.iter().zip(expected).enumerate() {
        assert!(
            (a - b).abs() <= tolerance * largest,
            "{what}, {index}: {a} for {b}"
        );
    }
}

/// Blocks of whole neighbourhoods give the logits of the whole graph, and the gradients.
pub fn whole_neighbourhoods_are_the_graph<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, tolerance: f32) {
        let case = Case::new();
        for (config, graphs) in models() {
            let norm = config.norm();
            let whole = case.whole::<B, E>(backend, norm);
            let blocks = case.blocks::<B, E>(backend, norm, graphs);
            let (expected, expected_gradients) = pass(backend, &whole, &config, &WANTED);
            let rows: Vec<u32> = (0..WANTED.len() as u32).collect();
            let (actual, gradients) = pass(backend, &blocks, &config, &rows);
            let name = format!("{} of {}", config.convolution, config.hidden);
            assert_close(&name, &actual, &expected, tolerance);
            for ((parameter, actual), (_, expected)) in gradients.iter().zip(&expected_gradients) {
                // Scores of attention that are close to one another have small gradients.
                let name = format!("{name}: {parameter}");
                assert_close(&name, actual, expected, 20.0 * tolerance);
            }
        }
    }
    check::<B, f32>(backend, 1e-5);
    check::<B, f16>(backend, 4e-3);
}

/// A model with normalisation evaluates by its running statistics as on the whole graph.
pub fn running_statistics_evaluate_blocks<B: Backend>(backend: &B, _: Scale) {
    let case = Case::new();
    for aggregate in [Aggregate::Mean, Aggregate::Sum] {
        let (config, graphs) = gin(aggregate, true, 12);
        let whole = case.whole::<B, f32>(backend, config.norm());
        let blocks = case.blocks::<B, f32>(backend, config.norm(), graphs);
        let model = Network::new(backend, &config, 5).expect("room");
        let train = TrainConfig::new(f32::PRECISION);
        let mut trainer = Trainer::new(backend, &whole, model, train).expect("room");
        for _ in 0..3 {
            trainer.step().expect("a step");
        }
        let mut model = trainer.into_model();
        let mut logits = |objective: &Objective<B, f32>| {
            let inputs = objective.inputs(backend);
            model.forward(inputs, Mode::Evaluate).expect("a pass");
            read(backend, model.logits())
        };
        let (actual, all) = (logits(&blocks), logits(&whole));
        let expected: Vec<f32> = WANTED
            .iter()
            .flat_map(|&row| &all[row as usize * CLASSES..][..CLASSES])
            .copied()
            .collect();
        assert_close("logits", &actual, &expected, 1e-5);
    }
}

/// The gradient of every parameter is that by which the loss changes, of models whose statistics are the block's own as well.
pub fn gradients_are_differences_of_the_loss<B: Backend>(backend: &B, _: Scale) {
    let case = Case::new();
    let mut all = models();
    for aggregate in [Aggregate::Mean, Aggregate::Sum] {
        all.extend([gin(aggregate, false, 8), gin(aggregate, true, 24)]);
    }
    for (config, graphs) in all {
        let objective = case.blocks::<B, f32>(backend, config.norm(), graphs);
        let model = Network::new(backend, &config, 5).expect("room");
        let train = TrainConfig::new(f32::PRECISION);
        let mut trainer = Trainer::new(backend, &objective, model, train).expect("room");
        // A bias of zero is where a ReLU of a vertex that hears from nobody has no derivative.
        for parameter in trainer.model_mut().parameters_mut() {
            if parameter.name().ends_with("bias") {
                let values = Random(405).uniform::<f32>(parameter.shape().1);
                parameter.write(backend, &values).expect("its length");
            }
        }
        trainer.gradients().expect("a pass");
        let start = weights(backend, trainer.model());
        let gradients: Vec<Vec<f32>> = trainer
            .model()
            .parameters()
            .iter()
            .map(|parameter| parameter.gradient().to_f32(backend).expect("there"))
            .collect();
        for parameter in 0..start.len() {
            let name = trainer.model().parameters()[parameter].name().to_owned();
            // Along the gradient, where differences are largest.
            let gradient = &gradients[parameter];
            let length = gradient.iter().map(|g| g * g).sum::<f32>().sqrt();
            assert!(length > 0.0, "{name} has a gradient");
            let by = 5e-4;
            let losses = [by, -by].map(|by| {
                let moved: Vec<f32> = start[parameter]
                    .iter()
                    .zip(gradient)
                    .map(|(weight, g)| weight + by * g / length)
                    .collect();
                let write = |trainer: &mut Trainer<B, f32, Network<B, f32>>, values: &[f32]| {
                    let parameters = &mut trainer.model_mut().parameters_mut();
                    let written = parameters[parameter].write(backend, values);
                    written.expect("its length");
                };
                write(&mut trainer, &moved);
                trainer.gradients().expect("a pass");
                let loss = f64::from(trainer.loss().expect("a loss"));
                write(&mut trainer, &start[parameter]);
                loss
            });
            let difference = (losses[0] - losses[1]) / f64::from(2.0 * by);
            let off = (difference - f64::from(length)).abs();
            assert!(
                off < 0.03 * f64::from(length) + 2e-4,
                "{} of {}: {name}: {length} for {difference}",
                config.convolution,
                config.hidden
            );
        }
    }
}

/// Batches of other sizes train one model; a step of a batch is that of a trainer of its own, which may record it.
pub fn batches_are_trained_on<B: Backend>(backend: &B, scale: Scale) {
    let case = Case::new();
    let (config, graphs) = of(halfgnn::nn::Sage, 16);
    let whole = case.whole::<B, f16>(backend, config.norm());
    let blocks = case.blocks::<B, f16>(backend, config.norm(), graphs);
    let train = TrainConfig::new(f16::PRECISION);
    let trainer = |objective| {
        let model = Network::new(backend, &config, 5).expect("room");
        Trainer::new(backend, objective, model, train).expect("room")
    };
    let mut alternating = trainer(&whole);
    let mut losses = Vec::new();
    for _ in 0..scale.pick(6, 20) {
        alternating.step_on(&blocks).expect("a step");
        losses.push(alternating.loss().expect("a loss"));
        alternating.step_on(&whole).expect("a step");
        alternating.evaluate().expect("an accuracy");
    }
    assert!(!alternating.is_recorded());
    assert!(losses[losses.len() - 1] < 0.5 * losses[0], "{losses:?}");

    let (mut batches, mut fixed) = (trainer(&whole), trainer(&blocks));
    for _ in 0..3 {
        batches.step_on(&blocks).expect("a step");
        fixed.step().expect("a step");
    }
    assert_eq!(
        weights(backend, batches.model()),
        weights(backend, fixed.model())
    );
}

/// Steps whose gradients leave half leave nothing in matrices that are lent again, of which a block's rows are a part.
pub fn overflows_leave_nothing_behind<B: Backend>(backend: &B, _: Scale) {
    let case = Case::new();
    for (config, graphs) in models() {
        let objective = case.blocks::<B, f16>(backend, config.norm(), graphs);
        let model = Network::new(backend, &config, 5).expect("room");
        let mut train = TrainConfig::new(f16::PRECISION);
        train.scaling.initial = 2_f32.powi(26);
        train.scaling.maximum = train.scaling.initial;
        let mut trainer = Trainer::new(backend, &objective, model, train).expect("room");
        for _ in 0..16 {
            trainer.step().expect("a step");
        }
        let state = trainer.optimizer().expect("a state");
        let taken = (state.skipped > 4, state.steps > 0);
        assert_eq!(taken, (true, true), "{}: {state:?}", config.convolution);
    }
}

/// Graphs that do not follow one another, or are too few, are refused by name.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let case = Case::new();
    let (config, graphs) = of(halfgnn::nn::Sage, 16);
    let mut model = Network::<B, f32>::new(backend, &config, 5).expect("room");
    let (blocks, sources) = cut(&case.graph, &WANTED, graphs);
    let norm = config.norm();
    let graphs: Vec<Propagation<B>> = blocks
        .iter()
        .map(|(block, _)| {
            Propagation::of_block(backend, block, norm, Degrees::OfBlock).expect("room")
        })
        .collect();
    let features = matrix(
        backend,
        (sources.len(), FEATURES),
        &vec![1.0; sources.len() * FEATURES],
    );
    let mut forward = |graphs: &[Propagation<B>]| {
        let inputs = halfgnn::nn::Inputs {
            backend,
            graphs,
            features: &features,
            of_types: &[],
            dropped: false,
        };
        let passed = model.forward(inputs, Mode::Evaluate);
        passed.map_err(|error| error.to_string())
    };
    forward(&graphs).expect("they follow one another");
    let refused = forward(&graphs[..1]).expect_err("one that is not every layer's");
    assert!(
        refused.contains("one graph for all 2 layers leads from its vertices to themselves"),
        "{refused}"
    );
    let refused = forward(&[]).expect_err("none");
    assert!(
        refused.contains("2 layers that aggregate, and there are 0 graphs"),
        "{refused}"
    );
    let (block, _) = &blocks[0];
    let degrees = Degrees::OfGraph {
        rows: &[1],
        columns: &[],
    };
    let refused = Propagation::of_block(backend, block, norm, degrees).expect_err("too few");
    assert!(
        refused.to_string().contains("degrees of destinations"),
        "{refused}"
    );
}
