//! Activations of 8 bits of several ranks: each has scales of its own, the forward pass keeps its bits, and all leave out a step in which
//! one of them stored what overflowed.

use super::messages::apart;
use super::{Case, alone, by_devices, by_host, keep_all_edges, links_threads, of_ranks, step};
use crate::Scale;
use crate::input::bits;
use crate::task::{self, CLASSES, FEATURES, VERTICES};
use crate::training::{deep, models_of_store};
use half::{bf16, f16};
use halfgnn::backend::Backend;
use halfgnn::distributed::{Gather, Partition};
use halfgnn::graph::Graph;
use halfgnn::nn::{EdgeData, GraphConv, Model, ModelConfig, Network, Store, Transformer};
use halfgnn::ops::CodeFormat;
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::{Snapshot, TrainConfig, Trainer};
use std::collections::BTreeMap;

/// Models whose activations are stored, as ranks train them; the last two are formulas alone.
fn stored() -> Vec<(&'static str, ModelConfig)> {
    let of_formulas = [
        (
            "graphconv",
            ModelConfig::of(GraphConv::default(), FEATURES, CLASSES),
        ),
        (
            "transformer",
            ModelConfig::of(Transformer::default(), FEATURES, CLASSES),
        ),
    ];
    let of_formulas = of_formulas.map(|(name, model)| {
        let store = Some(Store::EightBit);
        let model = deep(model);
        (name, ModelConfig { store, ..model })
    });
    let mut all = models_of_store();
    all.extend(of_formulas);
    all.iter_mut().for_each(|(_, model)| keep_all_edges(model));
    all
}

/// How far gradients may be from those of activations as they are, of their norm. What a batch normalisation leaves is small next to what
/// it normalizes, which has 8 bits.
fn allowed<E: Element>(name: &str) -> f64 {
    match (name, E::PRECISION) {
        ("gin", _) => 0.25,
        (_, Precision::BFloat16) => 0.1,
        _ => 0.03,
    }
}

/// The loss of an epoch, and what a checkpoint keeps behind it.
struct Epoch {
    loss: f32,
    kept: Snapshot,
}

fn epochs<B: Backend, E: Element>(
    trainer: &mut Trainer<B, E, Network<B, E>>,
    count: usize,
    from: Option<&Snapshot>,
) -> Vec<Epoch> {
    if let Some(from) = from {
        trainer.restore(from).expect("the same model");
    }
    let epoch = |_| {
        let report = trainer.next_epoch().expect("an epoch").expect("one more");
        Epoch {
            loss: report.loss,
            kept: trainer.snapshot().expect("no failure"),
        }
    };
    (0..count).map(epoch).collect()
}

fn assert_stored_steps<B: Backend, E: Element>(
    backend: &B,
    graph: &Graph,
    (name, model): (&str, &ModelConfig),
    (partition, gather): (&Partition, Gather),
) {
    let case = Case {
        graph,
        edges: EdgeData::default(),
    };
    let mut config = TrainConfig::new(E::PRECISION);
    config.scaling.initial = config.scaling.initial.min(256.0);
    let ranks = partition.ranks();
    let what = format!("{name} in {}, {ranks} ranks, {gather:?}", E::PRECISION);
    let mut one = alone::<B, E>(backend, &case, model, config);
    let expected = [(); 2].map(|()| step(backend, &mut one, None));
    let of = (partition, gather, config, &[][..]);
    let graph = (graph, case.edges);
    let steps = |trainer: &mut Trainer<B, E, Network<B, E>>| {
        expected
            .each_ref()
            .map(|expected| step(backend, trainer, Some(&expected.state)))
    };
    let all = of_ranks::<B, E, _>(by_host(backend), graph, model, of, steps);
    let as_it_is = &ModelConfig {
        store: None,
        ..model.clone()
    };
    let plain = of_ranks::<B, E, _>(by_host(backend), graph, as_it_is, of, steps);
    for ((expected, stored), plain) in expected.iter().zip(&all[0]).zip(&plain[0]) {
        assert_eq!(
            stored.loss, plain.loss,
            "{what}: a forward pass is of elements"
        );
        let loss = f64::from((stored.loss - expected.loss).abs() / expected.loss);
        let off = apart(&plain.gradients, &stored.gradients);
        assert!(off > 0.0, "{what}: nothing is stored");
        let bound = allowed::<E>(name);
        assert!(off <= bound, "{what}: {off} apart from what is not stored");
        let off = apart(&expected.gradients, &stored.gradients);
        assert!(off <= 2.0 * bound, "{what}: {off} apart from one rank");
        assert!(loss <= 0.02, "{what}: losses {loss} apart");
    }
    let words = |steps: &[super::Step; 2]| -> Vec<u32> {
        let of = |step: &super::Step| {
            let all = [&step.gradients, &step.weights, &step.buffers].map(|it| it.concat());
            [bits(&all.concat()), vec![step.loss.to_bits()]].concat()
        };
        steps.iter().flat_map(of).collect()
    };
    for (rank, of_rank) in all.iter().enumerate() {
        assert!(words(of_rank) == words(&all[0]), "{what}: rank {rank}");
    }
    if links_threads(backend) {
        let record = false;
        let of = (partition, gather, TrainConfig { record, ..config }, &[][..]);
        let linked = of_ranks::<B, E, _>(by_devices(|_| backend.clone()), graph, model, of, steps);
        for (rank, of_rank) in linked.iter().enumerate() {
            assert!(
                words(of_rank) == words(&all[0]),
                "{what}: rank {rank}, linked"
            );
        }
    }
}

/// Epochs of ranks are nearly those of one, and a run that goes on from what the first kept has the same bits.
fn assert_stored_epochs<B: Backend, E: Element>(
    backend: &B,
    graph: &Graph,
    (name, model): (&str, &ModelConfig),
    partition: &Partition,
) {
    let what = format!("{name} in {}, {} ranks", E::PRECISION, partition.ranks());
    let case = Case {
        graph,
        edges: EdgeData::default(),
    };
    let mut config = TrainConfig::new(E::PRECISION);
    config.scaling.initial = config.scaling.initial.min(256.0);
    let (of, graph) = (
        (partition, Gather::Halo, config, &[][..]),
        (graph, case.edges),
    );
    let one = epochs(&mut alone::<B, E>(backend, &case, model, config), 6, None);
    let train = |from: Option<&Snapshot>, count| {
        let work = |trainer: &mut Trainer<B, E, Network<B, E>>| epochs(trainer, count, from);
        of_ranks::<B, E, _>(by_host(backend), graph, model, of, work)
    };
    let whole = train(None, 6);
    for (epoch, (one, of_first)) in one.iter().zip(&whole[0]).enumerate() {
        let off = (one.loss - of_first.loss).abs() / one.loss;
        assert!(
            off < 0.04,
            "{what}, epoch {epoch}: {} and {}",
            one.loss,
            of_first.loss
        );
    }
    assert!(
        whole[0][5].loss < whole[0][0].loss,
        "{what}: nothing is learnt"
    );
    let gone_on = train(Some(&whole[0][2].kept), 3);
    for (rank, (whole, gone_on)) in whole.iter().zip(&gone_on).enumerate() {
        for (expected, found) in whole[3..].iter().zip(gone_on) {
            assert_eq!(expected.loss, found.loss, "{what}: rank {rank} goes on");
            assert!(
                expected.kept.tensors == found.kept.tensors,
                "{what}: rank {rank}"
            );
        }
    }
}

/// Ranks that store activations in 8 bits learn nearly what one rank does that stores them, forward to the bit what they learn without;
/// all ranks and what moves the rows have the same bits. Also of messages of 8 bits, and where a rank has nothing.
pub fn stored_steps_are_those_of_one<B: Backend>(backend: &B, scale: Scale) {
    let directed = task::graph();
    let mutual = directed.to_undirected().expect("a graph");
    // Rank 1 has nothing; rank 0 has one vertex.
    let uneven = |vertex: u32| if vertex == 7 { 0 } else { 2 + vertex % 2 };
    let uneven = Partition::from_parts((0..VERTICES as u32).map(uneven).collect(), 4);
    let uneven = uneven.expect("parts");
    let three = Partition::by_degree(&directed, 3).expect("ranks");
    for (name, model) in stored() {
        if scale == Scale::Small && !matches!(name, "gcn" | "gin" | "graphconv") {
            continue;
        }
        let of = (&three, Gather::Halo);
        assert_stored_steps::<B, f16>(backend, &directed, (name, &model), of);
        if scale == Scale::Full {
            assert_stored_steps::<B, bf16>(backend, &directed, (name, &model), of);
            let of = (&uneven, Gather::Whole);
            assert_stored_steps::<B, f16>(backend, &directed, (name, &model), of);
            assert_stored_epochs::<B, f16>(backend, &directed, (name, &model), &three);
            assert_stored_epochs::<B, bf16>(backend, &directed, (name, &model), &three);
        }
        let messages = Some(CodeFormat::Int8);
        let coded = ModelConfig { messages, ..model };
        if matches!(name, "gcn" | "sage") && scale == Scale::Full {
            let of = (&three, Gather::Halo);
            assert_stored_epochs::<B, f16>(backend, &mutual, (name, &coded), of.0);
        }
    }
}

/// A rank stores what overflowed, and no gradient shows it: no loss reads its vertices, and no other rank aggregates them.
/// All ranks skip the step, and take the next one.
pub fn overflows_of_stored_are_of_all_ranks<B: Backend>(backend: &B, _: Scale) {
    const LEARNT: u32 = 50;
    let whole = task::graph();
    let ends = whole.rows().iter().zip(whole.cols());
    let is_learnt = |vertex: u32| vertex < LEARNT;
    let within = ends.filter(|(row, column)| is_learnt(**row) == is_learnt(**column));
    let (rows, columns): (Vec<u32>, Vec<u32>) = within.unzip();
    let graph = Graph::from_edges(VERTICES, &rows, &columns).expect("a graph");
    let parts = (0..VERTICES as u32).map(|vertex| u32::from(!is_learnt(vertex)));
    let partition = Partition::from_parts(parts.collect(), 2).expect("parts");
    let model = ModelConfig {
        hidden: 16,
        layers: 2,
        dropout: 0.0,
        store: Some(Store::EightBit),
        ..ModelConfig::gcn(FEATURES, CLASSES)
    };
    let mut config = TrainConfig::new(Precision::Half);
    config.scaling.initial = 256.0;
    let of = (&partition, Gather::Halo, config, &[][..]);
    let graph = (&graph, EdgeData::default());
    let all = of_ranks::<B, f16, _>(by_host(backend), graph, &model, of, |trainer| {
        trainer.evaluate().expect("an evaluation");
        let overflows = trainer.model().logits().rows() != LEARNT as usize;
        let before = overflows.then(|| overflow_first_bias(backend, trainer));
        trainer.gradients().expect("half a step");
        let gradients = trainer.model().parameters().into_iter();
        let mut gradients =
            gradients.flat_map(|it| it.gradient().to_f32(backend).expect("no failure"));
        assert!(gradients.all(f32::is_finite), "gradients show nothing");
        trainer.update().expect("half a step");
        let skipped = trainer.optimizer().expect("no failure").skipped;
        if let Some(before) = before {
            write_first_bias(backend, trainer, &before);
        }
        trainer.step().expect("a step");
        let after = trainer.optimizer().expect("no failure").skipped;
        (skipped, after, task::weights(backend, trainer.model()))
    });
    for (skipped, after, weights) in &all {
        assert_eq!([*skipped, *after], [1, 1]);
        assert!(weights == &all[0].2);
    }
}

/// Has the first hidden column overflow in half at every vertex of this rank; the bias as it was.
pub(crate) fn overflow_first_bias<B: Backend>(
    backend: &B,
    trainer: &mut Trainer<B, f16, Network<B, f16>>,
) -> Vec<f32> {
    let by_name: BTreeMap<_, _> = trainer
        .model()
        .parameters()
        .into_iter()
        .map(|it| (it.name(), it.master()))
        .collect();
    let before = by_name["layers.0.bias"]
        .to_f32(backend)
        .expect("no failure");
    let mut large = before.clone();
    large[0] = 1e6;
    write_first_bias(backend, trainer, &large);
    before
}

pub(crate) fn write_first_bias<B: Backend>(
    backend: &B,
    trainer: &mut Trainer<B, f16, Network<B, f16>>,
    values: &[f32],
) {
    let parameters = trainer.model_mut().parameters_mut().into_iter();
    let mut bias = parameters.filter(|it| it.name() == "layers.0.bias");
    let bias = bias.next().expect("a bias");
    bias.write(backend, values).expect("as many");
}
