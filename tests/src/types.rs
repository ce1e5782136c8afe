//! Models over several types of vertices and edges: every backend trains them as the CPU does.

use crate::Scale;
use half::{bf16, f16};
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::{Dataset, EdgeType, Features, Splits, Types, UploadFeatures, VertexType};
use halfgnn::graph::Csr;
use halfgnn::nn::{
    ConvolutionConfig, Hetero, Hgt, Inputs, Mode, Model, ModelConfig, ModelTypes, Network, Norm,
    Rgcn, Store,
};
use halfgnn::program::layers::EdgeLayer;
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::{Footprint, Goal, Loss, Objective, TrainConfig, Trainer};
use halfgnn_contract::matmul::{Form, Operand, product};
use halfgnn_contract::{Format, rng};

const PAPERS: usize = 60;
const AUTHORS: usize = 35;
const VENUES: usize = 9;
pub(crate) const CLASSES: usize = 4;

fn draw(index: usize, stream: u32) -> u32 {
    rng::uniform_u32(rng::key(17, stream), index as u64)
}

/// `count` edges between `ends` vertices, with a hub.
fn edges(
    [source, destination]: [usize; 2],
    name: &str,
    ends: [usize; 2],
    count: usize,
) -> EdgeType {
    let stream = 10 + name.len() as u32;
    let row = |k: usize| match k % 4 {
        0 => 1,
        _ => draw(k, stream) % ends[1] as u32,
    };
    let rows: Vec<u32> = (0..count).map(row).collect();
    let columns: Vec<u32> = (0..count)
        .map(|k| draw(k, stream + 1) % ends[0] as u32)
        .collect();
    let edges = Csr::rectangular_from_edges((ends[1], ends[0]), &rows, &columns);
    EdgeType {
        source,
        name: name.into(),
        destination,
        edges: edges.expect("ids are in range"),
    }
}

fn features(rows: usize, columns: usize, stream: u32) -> Features {
    let values = (0..rows * columns).map(|at| 2.0 * rng::unit_f32(draw(at, stream)) - 1.0);
    Features::dense(columns, values.collect()).expect("finite numbers")
}

/// Papers and venues have features, of other widths, and authors have none. Some vertices have no edges of a type.
pub(crate) fn dataset() -> Dataset {
    let vertices = vec![
        VertexType::new("paper", PAPERS, Some(features(PAPERS, 7, 1))),
        VertexType::new("author", AUTHORS, None),
        VertexType::new("venue", VENUES, Some(features(VENUES, 5, 2))),
    ];
    let vertices: Result<Vec<_>, _> = vertices.into_iter().collect();
    let edges = vec![
        edges([1, 0], "writes", [AUTHORS, PAPERS], 150),
        edges([0, 0], "cites", [PAPERS, PAPERS], 90),
        edges([0, 2], "appears", [PAPERS, VENUES], 70),
        edges([2, 1], "invites", [VENUES, AUTHORS], 40),
    ];
    let types = Types::new(vertices.expect("a row each"), edges).expect("ends are types");
    let labels = (0..PAPERS).map(|paper| draw(paper, 3) % CLASSES as u32);
    let splits = Splits {
        train: (0..40).collect(),
        val: (40..50).collect(),
        test: (50..60).collect(),
    };
    Dataset::of_types(
        "types",
        types,
        "paper",
        labels.collect::<Vec<u32>>(),
        splits,
    )
    .expect("labels of papers")
}

fn model(dataset: &Dataset, convolution: impl Into<ConvolutionConfig>) -> ModelConfig {
    ModelConfig {
        hidden: 12,
        dropout: 0.3,
        types: ModelTypes::of(dataset),
        ..ModelConfig::of(convolution, dataset.feature_len(), CLASSES)
    }
}

pub(crate) fn models(dataset: &Dataset) -> Vec<ModelConfig> {
    let hetero = |layer, heads| model(dataset, Hetero { layer, heads });
    vec![
        model(dataset, Rgcn::default()),
        model(
            dataset,
            Rgcn {
                bases: 2,
                blocks: 0,
            },
        ),
        model(
            dataset,
            Rgcn {
                bases: 0,
                blocks: 3,
            },
        ),
        ModelConfig {
            residual: true,
            layers: 3,
            ..hetero(EdgeLayer::Sage, 1)
        },
        hetero(EdgeLayer::GraphConv, 1),
        hetero(EdgeLayer::GatV2, 2),
        hetero(EdgeLayer::Transformer, 2),
        // Heads of three columns, which have padding.
        model(dataset, Hgt { heads: 4 }),
    ]
}

/// Models whose activations are stored in 8 bits, which are of half and bfloat16.
fn stored(dataset: &Dataset) -> Vec<ModelConfig> {
    let deep = |model: ModelConfig| ModelConfig {
        layers: 4,
        store: Some(Store::EightBit),
        ..model
    };
    let sage = Hetero {
        layer: EdgeLayer::Sage,
        heads: 1,
    };
    vec![
        deep(model(dataset, Rgcn::default())),
        deep(model(dataset, sage)),
    ]
}

pub(crate) fn objective<B: Backend, E: Element>(
    backend: &B,
    (dataset, model): (&Dataset, &ModelConfig),
) -> Objective<B, E> {
    let goal = Goal {
        targets: &dataset.targets,
        outputs: CLASSES,
        loss: &Loss::of(&dataset.targets),
        splits: [&dataset.train, &dataset.val, &dataset.test],
    };
    Objective::of_types(backend, (dataset, model), &goal).expect("a task")
}

/// The losses of some steps, and the weights behind them.
fn steps<B: Backend, E: Element>(
    backend: &B,
    of: (&Dataset, &ModelConfig),
) -> (Vec<f32>, Vec<Vec<f32>>) {
    let network = Network::new(backend, of.1, 5).expect("a model");
    let config = TrainConfig::new(E::PRECISION);
    let objective = objective::<B, E>(backend, of);
    let mut trainer = Trainer::new(backend, &objective, network, config).expect("a task");
    let losses = (0..3).map(|_| {
        trainer.step().expect("a step");
        trainer.loss().expect("a loss")
    });
    let losses = losses.collect();
    let weights = trainer.model().parameters().into_iter();
    let weights = weights.map(|it| it.master().to_f32(backend).expect("weights"));
    (losses, weights.collect())
}

fn follow<B: Backend, E: Element>(backend: &B, off: f32) {
    let dataset = dataset();
    let mut models = models(&dataset);
    if E::PRECISION != Precision::Float {
        models.extend(stored(&dataset));
    }
    for model in models {
        let of = (&dataset, &model);
        let (found, weights) = steps::<B, E>(backend, of);
        let (expected, of_cpu) = steps::<Cpu, E>(&Cpu::new(), of);
        let what = format!("{} in {}", model.convolution, E::PRECISION);
        for (found, expected) in found.iter().zip(&expected) {
            let near = (found - expected).abs() <= off * expected.abs();
            assert!(near, "{what}: a loss of {found}, and {expected} on the CPU");
        }
        assert!(found[0] != found[2], "{what}: a step changes nothing");
        assert_eq!(weights.len(), of_cpu.len());
        for (found, expected) in weights.iter().flatten().zip(of_cpu.iter().flatten()) {
            // A step of Adam is as long for a small gradient as for a large one, and one near zero has either sign.
            let near = (found - expected).abs() <= 0.07;
            assert!(
                near,
                "{what}: a weight of {found}, and {expected} on the CPU"
            );
        }
        assert!(weights.iter().flatten().all(|it| it.is_finite()), "{what}");
    }
}

/// Steps of every model are those of the CPU, but for roundings.
pub fn steps_follow_the_cpu<B: Backend>(backend: &B, _: Scale) {
    follow::<B, f16>(backend, 6e-3);
    follow::<B, f32>(backend, 1e-4);
    let widens = product(Form::Nt, Operand::Plain, Format::BF16, Format::F32, 12);
    if widens.is_some() {
        return follow::<B, bf16>(backend, 5e-2);
    }
    let dataset = dataset();
    let model = model(&dataset, Rgcn::default());
    let refused = Network::<B, bf16>::new(backend, &model, 5).expect_err("no kernel");
    assert!(
        refused.to_string().contains("take half or float"),
        "{refused}"
    );
}

/// A row that is learnt has the gradient of what reads it: a loss moves as it says.
pub fn rows_that_are_learnt_have_gradients<B: Backend>(backend: &B, _: Scale) {
    let dataset = dataset();
    let model = ModelConfig {
        dropout: 0.0,
        ..model(&dataset, Rgcn::default())
    };
    let objective = objective::<B, f32>(backend, (&dataset, &model));
    let network = Network::new(backend, &model, 5).expect("a model");
    let config = TrainConfig::new(f32::PRECISION);
    let mut trainer = Trainer::new(backend, &objective, network, config).expect("a task");
    trainer.gradients().expect("a step");
    let scale = trainer.optimizer().expect("there").loss_scale;
    let number = |trainer: &Trainer<B, f32, Network<B, f32>>| {
        let names = trainer.model().parameters().into_iter();
        let mut names = names.map(|it| it.name().to_owned());
        names.position(|name| name == "input.author.embedding")
    };
    let number = number(&trainer).expect("authors have rows that are learnt");
    let at = |trainer: &Trainer<B, f32, Network<B, f32>>| {
        let parameter = trainer.model().parameters()[number];
        let gradient = parameter.gradient().to_f32(backend).expect("a gradient");
        (parameter.master().to_f32(backend).expect("rows"), gradient)
    };
    let (rows, gradient) = at(&trainer);
    assert_eq!(rows.len(), AUTHORS * model.hidden);
    let largest = gradient.iter().map(|it| it.abs());
    let (place, _) = largest
        .enumerate()
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .expect("rows");
    let mut moved = |by: f32| {
        let mut rows = rows.clone();
        rows[place] += by;
        let mut all = trainer.model_mut().parameters_mut();
        all[number].write(backend, &rows).expect("rows");
        drop(all);
        trainer.gradients().expect("a step");
        f64::from(trainer.loss().expect("a loss"))
    };
    const STEP: f32 = 0.02;
    let slope = (moved(STEP) - moved(-STEP)) / f64::from(2.0 * STEP);
    let found = f64::from(gradient[place] / scale);
    assert!(
        (slope - found).abs() <= 0.02 * found.abs(),
        "{slope} and {found}"
    );
}

/// The estimate of memory is what a run takes.
pub fn memory_is_estimated_to_the_byte<B: Backend>(_: &B, _: Scale) {
    let dataset = dataset();
    for model in [models(&dataset), stored(&dataset)].concat() {
        let backend = Cpu::new();
        let train = TrainConfig::new(f16::PRECISION);
        let of = (&model, &train);
        let estimated = Footprint::check_types::<f16>(&dataset, of, None, None).expect("a model");
        let objective = objective::<_, f16>(&backend, (&dataset, &model));
        let network = Network::new(&backend, &model, 5).expect("a model");
        let mut trainer = Trainer::new(&backend, &objective, network, train).expect("a task");
        trainer.step().expect("a step");
        trainer.evaluate().expect("an evaluation");
        let stored = trainer.model().watched().len();
        assert_eq!(stored > 0, model.store.is_some(), "{}", model.convolution);
        use halfgnn::backend::Storage;
        let taken: Footprint = backend.memory().into();
        assert_eq!(estimated, taken, "{}", model.convolution);
    }
}

/// Graphs and features of other types are refused, in a line that says which.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let dataset = dataset();
    let model = model(&dataset, Rgcn::default());
    let types = dataset.types.as_ref().expect("several");
    let own = model.types.as_ref().expect("several");
    let graphs = ModelTypes::graphs(backend, types, Norm::Right).expect("memory");
    let features: Matrix<B, f32> = dataset.upload_features(backend).expect("memory");
    let of_types = own.features(backend, &dataset).expect("memory");
    let wide = Matrix::zeros(backend, VENUES, 6, MemoryKind::Features).expect("memory");
    let short = Matrix::zeros(backend, PAPERS - 1, 7, MemoryKind::Features).expect("memory");
    let mut network = Network::<B, f32>::new(backend, &model, 1).expect("a model");
    let inputs = Inputs {
        backend,
        graphs: &graphs,
        features: &features,
        of_types: &of_types,
        dropped: false,
    };
    network.forward(inputs, Mode::Evaluate).expect("a pass");
    for (inputs, words) in [
        (
            Inputs {
                graphs: &graphs[1..],
                ..inputs
            },
            "graphs, one for each type of edges",
        ),
        (
            Inputs {
                of_types: &[],
                ..inputs
            },
            "other types with features",
        ),
        (
            Inputs {
                of_types: &[wide],
                ..inputs
            },
            "features of a type",
        ),
        (
            Inputs {
                features: &short,
                ..inputs
            },
            "rows of the features of a type",
        ),
    ] {
        let refused = network
            .forward(inputs, Mode::Evaluate)
            .expect_err("a misfit");
        assert!(refused.to_string().contains(words), "{words}: {refused}");
    }
    // An author less: whose rows are learnt is known.
    let mut fewer = own.clone();
    let author = fewer.vertices.iter_mut().find(|of| of.name == "author");
    author.expect("a type").vertices -= 1;
    let other = ModelConfig {
        types: Some(fewer),
        ..model.clone()
    };
    let mut network = Network::<B, f32>::new(backend, &other, 1).expect("a model");
    let refused = network
        .forward(inputs, Mode::Evaluate)
        .expect_err("a misfit");
    assert!(
        refused.to_string().contains("34 vertices of type author"),
        "{refused}"
    );
    for (refused, words) in [
        (
            ModelConfig {
                types: Some(own.clone()),
                ..ModelConfig::gcn(7, CLASSES)
            },
            "gcn reads vertices and edges of one type",
        ),
        (
            ModelConfig {
                recompute: true,
                messages: Some(halfgnn::ops::CodeFormat::Int8),
                ..model.clone()
            },
            "messages of 8 bits",
        ),
    ] {
        let refused = Network::<B, f32>::new(backend, &refused, 1).expect_err("no model");
        assert!(refused.to_string().contains(words), "{words}: {refused}");
    }
}
