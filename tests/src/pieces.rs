//! A graph in pieces: what a model gives of it layer by layer is what it gives of the whole.

use crate::Scale;
use crate::input::{bits, read};
use crate::reference::roundoff;
use crate::task::{self, CLASSES, FEATURES, VERTICES};
use crate::training::{deep, models, models_of_both_ends, others, roundings};
use half::f16;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::data::Targets;
use halfgnn::graph::Graph;
use halfgnn::nn::{
    ConvolutionConfig, EdgeData, Gat, Gin, HiddenNorm, Inputs, Mode, Model, ModelConfig, Network,
    Pieces, Readout, Statistics,
};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Goal, Loss, Objective, Split, TrainConfig, Trainer};

/// The model of a configuration that can be evaluated in pieces.
fn in_pieces(mut model: ModelConfig) -> ModelConfig {
    match &mut model.convolution {
        ConvolutionConfig::Gin(gin) => gin.statistics = Statistics::Running,
        ConvolutionConfig::Gine(gine) => gine.statistics = Statistics::Running,
        _ => {}
    }
    model
}

/// A task, and who has learnt a little of it.
type Learnt<B, E> = (Objective<B, E>, Trainer<B, E, Network<B, E>>);

/// A model that has learnt a little of the task.
fn learnt<B: Backend, E: Element>(
    backend: &B,
    (graph, edges): (&Graph, EdgeData<'_>),
    model: &ModelConfig,
) -> Learnt<B, E> {
    let prepared = model.prepare_edges(graph, edges).expect("edges");
    let graph = prepared.propagation::<B, E>(backend, model).expect("room");
    let objective = objective(backend, vec![graph]);
    let mut config = TrainConfig::new(E::PRECISION);
    config.scaling.initial = config.scaling.initial.min(256.0);
    let mut trainer = task::trainer(backend, &objective, model.clone(), config);
    // Biases and running statistics are none that were there in the beginning.
    trainer.step().expect("a step");
    trainer.step().expect("a step");
    (objective, trainer)
}

fn objective<B: Backend, E: Element>(
    backend: &B,
    graphs: Vec<halfgnn::nn::Propagation<B>>,
) -> Objective<B, E> {
    let (targets, splits) = (Targets::from(task::labels()), task::splits());
    let goal = Goal {
        targets: &targets,
        outputs: CLASSES,
        loss: &Loss::of(&targets),
        splits: splits.each_ref().map(Vec::as_slice),
    };
    Objective::of(backend, graphs, features(backend), &goal).expect("a task")
}

fn features<B: Backend, E: Element>(backend: &B) -> Matrix<B, E> {
    let kind = MemoryKind::HostFeatures;
    Matrix::from_f32(backend, VERTICES, FEATURES, &task::features(), kind).expect("room")
}

/// Logits and hidden activations of a pass in so many pieces are those of the whole, to the roundings of sums in another order; so are the
/// rows that alone are asked for, and the pass on the whole after it, to the bit. What layers give may lie on disk meanwhile, and nobody
/// sees that it does.
fn assert_pieces<B: Backend, E: Element>(
    backend: &B,
    of: (&Graph, EdgeData<'_>),
    (name, model): (&str, &ModelConfig),
    counts: &[usize],
) {
    let (objective, trainer) = learnt::<B, E>(backend, of, model);
    let mut network = trainer.into_model();
    let inputs: Inputs<'_, B, E> = objective.inputs(backend);
    // A hidden layer that nobody reads later, and one that is not stored by itself.
    let kept = match model.recompute {
        true => Vec::new(),
        false => vec![0],
    };
    let outputs = |network: &Network<B, E>| -> Vec<Vec<f32>> {
        let hidden = kept.iter().map(|&layer| {
            let output = network.activations(layer).expect("it is kept");
            read(backend, output)
        });
        let logits = [read(backend, network.logits())];
        hidden.chain(logits).collect()
    };
    network.keep_activations();
    network.forward(inputs, Mode::Evaluate).expect("a pass");
    let whole = outputs(&network);
    let prepared = model.prepare_edges(of.0, of.1).expect("edges");
    let allowed = 2.0 * roundings::<E>(model.layers) * roundoff::<E>();
    for &count in counts {
        let what = format!("{name} in {} in {count} pieces", E::PRECISION);
        let pieces = Pieces::<E>::new(&prepared, model, count).expect("pieces");
        assert_eq!(pieces.count(), count.min(VERTICES));
        let features = features(backend).into();
        let asked: Vec<u32> = vec![VERTICES as u32 - 1, 3, 40, 41, 7];
        for asked in [None, Some(asked)] {
            let mut rows: Vec<usize> = (0..VERTICES).collect();
            let mut pieces = pieces.clone();
            if let Some(asked) = asked {
                rows = vec![3, 7, 40, 41, VERTICES - 1];
                pieces = pieces.asked_for(asked);
            }
            let pass = network.forward_in_pieces(backend, &features, &pieces, &kept);
            pass.expect("a pass");
            let of_pieces = outputs(&network);
            let last = whole.len() - 1;
            for (number, (whole, of_pieces)) in whole.iter().zip(&of_pieces).enumerate() {
                let columns = whole.len() / VERTICES;
                let row = |&row: &usize| &whole[row * columns..][..columns];
                let whole: Vec<f32> = match number == last {
                    true => rows.iter().flat_map(row).copied().collect(),
                    false => whole.clone(),
                };
                assert_eq!(whole.len(), of_pieces.len(), "{what}");
                let largest = |values: &mut dyn Iterator<Item = f32>| {
                    f64::from(values.fold(0.0_f32, |most, value| most.max(value.abs())))
                };
                let size = largest(&mut whole.iter().copied());
                let off = largest(&mut whole.iter().zip(of_pieces).map(|(a, b)| a - b));
                assert!(
                    size > 0.0 && of_pieces.iter().all(|it| it.is_finite()),
                    "{what}"
                );
                assert!(
                    off <= allowed * size,
                    "{what}: output {number} of {} rows is {} roundings off, and {} are allowed",
                    rows.len(),
                    off / size / roundoff::<E>(),
                    allowed / roundoff::<E>()
                );
            }
            let on_disk = pieces.on_disk(&std::env::temp_dir());
            let pass = network.forward_in_pieces(backend, &features, &on_disk, &kept);
            pass.expect("a pass");
            let same = |(a, b): (&Vec<f32>, &Vec<f32>)| bits(a) == bits(b);
            assert!(
                outputs(&network).iter().zip(&of_pieces).all(same),
                "{what}, on disk"
            );
        }
        network.forward(inputs, Mode::Evaluate).expect("a pass");
        let again = outputs(&network);
        assert!(
            again.iter().zip(&whole).all(|(a, b)| bits(a) == bits(b)),
            "{what}"
        );
    }
}

/// Every model, weights and features of edges; pieces of a vertex each among them.
pub fn passes_are_those_of_the_whole<B: Backend>(backend: &B, scale: Scale) {
    let graph = task::graph();
    let plain = (&graph, EdgeData::default());
    let counts = scale.pick(&[3][..], &[1, 3, 8, VERTICES, VERTICES + 9]);
    let mut of_bits = 0;
    for (name, model) in models().into_iter().chain(others()) {
        let model = &in_pieces(model);
        if model.wants_all_vertices().is_some() {
            assert!(model.binary.is_some(), "{name}");
            of_bits += 1;
            continue;
        }
        assert_pieces::<B, f32>(backend, plain, (name, model), counts);
        if scale == Scale::Full {
            assert_pieces::<B, f16>(backend, plain, (name, model), counts);
        }
    }
    assert_eq!(of_bits, 0);
    let (weights, columns) = (task::edge_weights(), task::edge_features(2));
    let weighted = EdgeData {
        weights: Some(&weights),
        features: None,
    };
    let gcn = ("weights", &task::model());
    assert_pieces::<B, f16>(backend, (&graph, weighted), gcn, counts);
    let rows: Vec<f32> = (0..graph.edges())
        .flat_map(|edge| [columns[0][edge], columns[1][edge]])
        .collect();
    let featured = EdgeData {
        weights: None,
        features: Some((2, &rows)),
    };
    let gat = Gat {
        edge_features: 2,
        ..Gat::default()
    };
    let gat = deep(ModelConfig::of(gat, FEATURES, CLASSES));
    let gat = ("features of edges", &gat);
    assert_pieces::<B, f32>(backend, (&graph, featured), gat, counts);
    for (name, mut model) in models_of_both_ends() {
        assert!(model.read_edge_features(2), "{name}");
        let model = in_pieces(model);
        if model.wants_all_vertices().is_none() {
            let model = (name, &model);
            assert_pieces::<B, f32>(backend, (&graph, featured), model, counts);
        }
    }
}

/// A trainer that is evaluated in pieces has the scores of one that is not, and needs no graph for it.
pub fn trainers_are_evaluated<B: Backend>(backend: &B, _scale: Scale) {
    let graph = task::graph();
    let model = deep(ModelConfig::gcn(FEATURES, CLASSES));
    let of = (&graph, EdgeData::default());
    let (_, mut whole) = learnt::<B, f32>(backend, of, &model);
    let expected = whole.evaluate().expect("an evaluation").0;
    let prepared = model.prepare_edges(of.0, of.1).expect("edges");
    let pieces = Pieces::<f32>::new(&prepared, &model, 4).expect("pieces");
    let without = objective(backend, Vec::new());
    let config = TrainConfig::new(f32::PRECISION);
    let trainer = || {
        let network = Network::new(backend, &model, 9).expect("room");
        Trainer::new(backend, &without, network, config).expect("room")
    };
    let of_splits = pieces.clone().asked_for(task::splits().concat());
    let mut trainers = [
        pieces,
        of_splits.clone(),
        of_splits.on_disk(&std::env::temp_dir()),
    ]
    .map(|pieces| trainer().evaluated_in(pieces).expect("its vertices"));
    for trainer in &mut trainers {
        trainer
            .restore(&whole.snapshot().expect("no failure before"))
            .expect("the same model");
        for _ in 0..2 {
            let found = trainer.evaluate().expect("an evaluation").0;
            for split in Split::ALL {
                // A vertex of the smallest split whose two best classes are as good.
                let off = (found.of(split) - expected.of(split)).abs();
                assert!(off <= 100.0 / 20.0 + 1e-9, "{split}: {off}");
            }
        }
    }
    let [mut trainer, ..] = trainers;
    // It is evaluated without a graph, and has none to learn from.
    let told = trainer.step().expect_err("no graph").to_string();
    assert!(told.contains("there are 0 graphs"), "{told}");
}

/// What reads all vertices at once, and what is of another graph.
pub fn misfits_are_refused<B: Backend>(backend: &B, _scale: Scale) {
    let graph = task::graph();
    let gcn = || ModelConfig::gcn(FEATURES, CLASSES);
    let cut = |model: &ModelConfig, count| {
        let prepared = model.prepare_edges(&graph, EdgeData::default());
        Pieces::<f32>::new(&prepared.expect("edges"), model, count)
    };
    let gin = Gin {
        statistics: Statistics::Batch,
        ..Gin::default()
    };
    let normed = |hidden_norm| ModelConfig {
        hidden_norm,
        ..gcn()
    };
    let of_graphs = ModelConfig {
        readout: Some(Readout::Mean),
        ..gcn()
    };
    for (model, count, why) in [
        (gcn(), 0, "a graph has 1 piece at least"),
        (
            ModelConfig::of(gin, FEATURES, CLASSES),
            2,
            "unless it is trained with running statistics",
        ),
        (normed(HiddenNorm::Pair), 2, "a norm over whole graphs"),
        (normed(HiddenNorm::Graph), 2, "a norm over whole graphs"),
        (of_graphs, 2, "pools all of their vertices"),
    ] {
        let told = cut(&model, count).expect_err(why).to_string();
        assert!(told.contains(why) && !told.contains('\n'), "{told}");
        assert!(
            count == 0 || told.ends_with("; take the graph whole"),
            "{told}"
        );
    }
    let model = gcn();
    let pieces = cut(&model, 2).expect("pieces");
    let mut network = Network::<B, f32>::new(backend, &model, 0).expect("room");
    let kind = MemoryKind::Features;
    let fewer = Matrix::zeros(backend, VERTICES - 1, FEATURES, kind).expect("room");
    assert!(
        network
            .forward_in_pieces(backend, &fewer.into(), &pieces, &[])
            .is_err()
    );
    let asked = |vertex: usize| pieces.clone().asked_for(vec![vertex as u32]);
    let mut pass =
        |pieces| network.forward_in_pieces(backend, &features(backend).into(), &pieces, &[]);
    let told = pass(asked(VERTICES)).expect_err("no such row").to_string();
    assert!(
        told.contains("the row of vertex") && !told.contains('\n'),
        "{told}"
    );
    let gone = std::env::temp_dir().join("a folder that is gone");
    let told = pass(asked(0).on_disk(&gone))
        .expect_err("no folder")
        .to_string();
    assert!(
        told.contains("that is gone") && !told.contains('\n'),
        "{told}"
    );
    pass(pieces.clone()).expect("a pass");
    let without = objective::<B, f32>(backend, Vec::new());
    let config = TrainConfig::new(f32::PRECISION);
    let of_bad = Network::new(backend, &model, 9).expect("room");
    let trainer = Trainer::new(backend, &without, of_bad, config).expect("room");
    let told = trainer
        .evaluated_in(asked(0))
        .expect_err("not those of splits");
    assert!(
        told.to_string()
            .contains("is in a split, and its row is not asked for"),
        "{told}"
    );
    let told = network
        .activations(0)
        .expect_err("it is not kept")
        .to_string();
    assert!(told.contains("not kept of a pass in pieces"), "{told}");
}
