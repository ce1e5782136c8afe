//! Messages of 8 bits of several ranks: the codes that one has of the same numbers, by the same scales and the same chance, and half as
//! many bytes to exchange.

use super::{
    Case, alone, by_devices, by_host, gathers_of, keep_all_edges, links_threads, of_ranks, step,
};
use crate::Scale;
use crate::input::bits;
use crate::task::{self, CLASSES, FEATURES, VERTICES};
use crate::training::{deep, models_of_messages_with_a_slight_bend, others};
use half::{bf16, f16};
use halfgnn::Error;
use halfgnn::backend::Backend;
use halfgnn::distributed::{Communicator, Gather, Group, InProcess, Partition, Place};
use halfgnn::graph::Graph;
use halfgnn::nn::{EdgeData, Model, ModelConfig, Network};
use halfgnn::ops::CodeFormat;
use halfgnn::tensor::{Element, Precision};
use halfgnn::train::{TrainConfig, Trainer};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Each kind of model with codes, as ranks train it.
fn coded() -> Vec<(&'static str, ModelConfig)> {
    let others = others().into_iter();
    let others = others.filter(|(name, _)| matches!(*name, "gcnii" | "appnp"));
    let others = others.map(|(name, model)| {
        let messages = Some(CodeFormat::Int8);
        (name, ModelConfig { messages, ..model })
    });
    let mut all = models_of_messages_with_a_slight_bend();
    all.extend(others);
    all.iter_mut().for_each(|(_, model)| keep_all_edges(model));
    all
}

/// What a step is compared by: gradients, and the scales that the next one has.
struct Told {
    gradients: Vec<Vec<f32>>,
    scales: Vec<(String, Vec<f32>)>,
    loss: f32,
}

fn told<B: Backend, E: Element>(
    backend: &B,
    trainer: &mut Trainer<B, E, Network<B, E>>,
    state: Option<&halfgnn::train::Snapshot>,
) -> (halfgnn::train::Snapshot, Told) {
    let done = step(backend, trainer, state);
    let scales = trainer.model().buffers();
    let scales = scales.iter().filter(|(name, _)| name.contains("messages"));
    let scales = scales.map(|(name, of)| (name.clone(), of.to_f32(backend).expect("no failure")));
    let told = Told {
        scales: scales.collect(),
        gradients: done.gradients,
        loss: done.loss,
    };
    (done.state, told)
}

/// How far apart two lists of gradients are, of the norm of the first.
pub(super) fn apart(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    let norm =
        |of: &mut dyn Iterator<Item = f32>| of.map(|it| f64::from(it).powi(2)).sum::<f64>().sqrt();
    let (a, b) = (a.concat(), b.concat());
    let mut off = a.iter().zip(&b).map(|(a, b)| a - b);
    norm(&mut off) / norm(&mut a.iter().copied())
}

/// How far gradients of ranks may be from those of one, of their norm: a sum in another order turns some roundings, and few of those turn a
/// code into the one beside it. A maximum or the side of a bend may turn with one, and a batch normalisation leaves little but the
/// differences. In half, of numbers that are drawn by another vertex a GCN's are some five times as far.
fn allowed<E: Element>(name: &str, format: CodeFormat) -> f64 {
    match (E::PRECISION, name) {
        (Precision::BFloat16, _) => 0.2,
        (_, "gin" | "gin-sum") => 0.12,
        // A rounding that moves a value to the next code moves it by a 16th.
        (_, "gat" | "gat-heads") if format == CodeFormat::E4m3 => 0.05,
        (_, "gat" | "gat-heads" | "gcn-max") => 0.025,
        _ => 0.0025,
    }
}

/// With it no model meets a column that hardly differs between vertices: divided by so small a deviation, roundings are what its batch
/// normalisation leaves, and ranks have others. With 0, gradients of a GIN that sums are 94 % of their norm apart, all of it in one column.
const SEED: u64 = 5;

fn assert_coded_steps<B: Backend, E: Element>(
    backend: &B,
    graph: &Graph,
    (name, model): (&str, &ModelConfig),
    partitions: &[Partition],
) {
    let format = model.messages.expect("codes");
    let case = Case {
        graph,
        edges: EdgeData::default(),
    };
    let mut config = TrainConfig::new(E::PRECISION);
    config.scaling.initial = config.scaling.initial.min(256.0);
    config.seed = SEED;
    let mut one = alone::<B, E>(backend, &case, model, config);
    let expected = [(); 3].map(|()| told(backend, &mut one, None));
    let gathered = partitions.iter().flat_map(|partition| {
        let gathers = gathers_of(name, partition.ranks()).iter();
        gathers.map(move |&gather| (partition, gather))
    });
    for (partition, gather) in gathered {
        let ranks = partition.ranks();
        let what = format!(
            "{name} with {format:?} in {}, {ranks} ranks, {gather:?}",
            E::PRECISION
        );
        let of = (partition, gather, config, &[][..]);
        let steps = |trainer: &mut Trainer<B, E, Network<B, E>>| {
            (expected.each_ref()).map(|(state, _)| told(backend, trainer, Some(state)).1)
        };
        let all = of_ranks::<B, E, _>(by_host(backend), (graph, case.edges), model, of, steps);
        for (at, ((_, one), of_first)) in expected.iter().zip(&all[0]).enumerate() {
            let off = apart(&one.gradients, &of_first.gradients);
            assert!(
                off <= allowed::<E>(name, format),
                "{what}, step {at}: {off} apart"
            );
            let off = f64::from((one.loss - of_first.loss).abs() / one.loss);
            assert!(
                off <= allowed::<E>(name, format),
                "{what}: losses {off} apart"
            );
            // Of features, which all have the same bits of, and products with the same weights.
            let first = |of: &Told| -> Vec<Vec<u32>> {
                let of_layer = |name: &str| {
                    name == "layers.0.messages.scales" || name == "layers.0.messages.largest"
                };
                let scales = of.scales.iter().filter(|(name, _)| of_layer(name));
                scales.map(|(_, values)| bits(values)).collect()
            };
            assert_eq!(first(one), first(of_first), "{what}, step {at}");
        }
        let words = |steps: &[Told]| -> Vec<u32> {
            let of = |step: &Told| {
                let scales = step.scales.iter().flat_map(|(_, values)| values.clone());
                let numbers = step.gradients.concat().into_iter().chain(scales);
                bits(&numbers.chain([step.loss]).collect::<Vec<_>>())
            };
            steps.iter().flat_map(of).collect()
        };
        for (rank, of_rank) in all.iter().enumerate() {
            assert!(words(of_rank) == words(&all[0]), "{what}: rank {rank}");
        }
        if links_threads(backend) {
            let record = false;
            let config = TrainConfig { record, ..config };
            let of = (partition, gather, config, &[][..]);
            let open = by_devices(|_| backend.clone());
            let linked = of_ranks::<B, E, _>(open, (graph, case.edges), model, of, steps);
            for (rank, of_rank) in linked.iter().enumerate() {
                assert!(
                    words(of_rank) == words(&all[0]),
                    "{what}: rank {rank}, linked"
                );
            }
        }
    }
}

/// Steps of ranks with codes are those of one, of graphs whose edges go both ways, where codes are exchanged, and of others.
pub fn coded_steps_are_those_of_one<B: Backend>(backend: &B, scale: Scale) {
    let directed = task::graph();
    let mutual = directed.to_undirected().expect("a graph");
    for graph in [&mutual, &directed] {
        let dealt = |ranks| Partition::by_degree(graph, ranks).expect("ranks");
        // Rank 1 has nothing; rank 0 has one vertex.
        let uneven = |vertex: u32| if vertex == 7 { 0 } else { 2 + vertex % 2 };
        let uneven = Partition::from_parts((0..VERTICES as u32).map(uneven).collect(), 4);
        let uneven = uneven.expect("parts");
        let all = [dealt(1), dealt(2), dealt(3), dealt(5), uneven];
        let partitions = scale.pick(&all[2..3], &all[..]);
        let is_int8 = |model: &ModelConfig| model.messages == Some(CodeFormat::Int8);
        let few = |name, model: &ModelConfig| match name {
            "gcn" => true,
            "sage" => !is_int8(model) && graph.is_symmetric(),
            "gin" => is_int8(model) && graph.is_symmetric(),
            "gat" => is_int8(model),
            _ => false,
        };
        let models = coded().into_iter();
        let models = models.filter(|(name, model)| scale == Scale::Full || few(*name, model));
        for (name, model) in models {
            assert_coded_steps::<B, f16>(backend, graph, (name, &model), partitions);
            if scale == Scale::Full {
                assert_coded_steps::<B, bf16>(backend, graph, (name, &model), partitions);
            }
        }
    }
}

/// A rank, and how many bytes it gave the others for what.
#[derive(Debug)]
struct Weighed {
    rank: InProcess,
    bytes: Arc<Mutex<HashMap<String, usize>>>,
}

impl Communicator for Weighed {
    fn rank(&self) -> usize {
        self.rank.rank()
    }

    fn ranks(&self) -> usize {
        self.rank.ranks()
    }

    fn exchange(
        &self,
        place: Place<'_>,
        sends: &[&[u8]],
        receives: &mut [&mut [u8]],
    ) -> Result<(), Error> {
        let bytes: usize = sends.iter().map(|sent| sent.len()).sum();
        let mut all = self.bytes.lock().expect("no panic");
        *all.entry(place.what.to_owned()).or_default() += bytes;
        drop(all);
        self.rank.exchange(place, sends, receives)
    }

    fn deadline(&self) -> Duration {
        self.rank.deadline()
    }

    fn failure(&self, place: Place<'_>) -> Option<String> {
        self.rank.failure(place)
    }

    fn missing(&self, place: Place<'_>) -> String {
        self.rank.missing(place)
    }

    fn abort(&self, reason: &str) {
        self.rank.abort(reason);
    }
}

/// The bytes that all ranks give one another in a step in half, by what for.
fn bytes_of_step<B: Backend>(
    backend: &B,
    graph: &Graph,
    (partition, gather): (&Partition, Gather),
    model: &ModelConfig,
) -> HashMap<String, usize> {
    let model = &ModelConfig {
        dropout: 0.0,
        ..model.clone()
    };
    let bytes = Arc::<Mutex<HashMap<String, usize>>>::default();
    let open = |rank| {
        let bytes = Arc::clone(&bytes);
        (backend.clone(), Group::new(Weighed { rank, bytes }))
    };
    let config = TrainConfig::new(Precision::Half);
    let of = (partition, gather, config, &[][..]);
    let edges = EdgeData::default();
    of_ranks::<B, f16, _>(open, (graph, edges), model, of, |trainer| {
        trainer.step().expect("a step");
    });
    let bytes = bytes.lock().expect("no panic");
    bytes.clone()
}

/// Where a layer sums up products no wider than its input, those are exchanged: the last layer's rows are half as wide here.
pub fn products_are_exchanged<B: Backend>(backend: &B, _: Scale) {
    let directed = task::graph();
    let mutual = directed.to_undirected().expect("a graph");
    for (graph, model, times) in [
        (
            &mutual,
            ModelConfig::gcn as fn(usize, usize) -> ModelConfig,
            2,
        ),
        (&mutual, ModelConfig::sage, 2),
        (&mutual, ModelConfig::gat, 2),
        (&directed, ModelConfig::gat, 2),
        (&directed, ModelConfig::gcn, 2),
    ] {
        let partition = Partition::by_degree(graph, 3).expect("ranks");
        let model = deep(model(FEATURES, CLASSES));
        let bytes = bytes_of_step(backend, graph, (&partition, Gather::Halo), &model);
        for way in ["forward", "backward"] {
            let [hidden, last] = [1, 2].map(|layer| bytes[&format!("layers.{layer} {way}")]);
            assert_eq!(hidden, times * last, "{way}, {:?}", model.convolution);
        }
    }
}

/// Of whole gathers each rank gives each other all its rows, and is given as many gradients: where one hears little of the others, many
/// times what it hears.
pub fn all_rows_are_exchanged<B: Backend>(backend: &B, _: Scale) {
    // Both ways, as codes are exchanged.
    let graph = task::graph().to_undirected().expect("a graph");
    let partition = Partition::by_degree(&graph, 3).expect("ranks");
    for (model, messages) in [
        (ModelConfig::gcn as fn(usize, usize) -> ModelConfig, None),
        (ModelConfig::gcn, Some(CodeFormat::Int8)),
        (ModelConfig::gin, None),
        (ModelConfig::gat, None),
    ] {
        let model = &ModelConfig {
            messages,
            ..deep(model(FEATURES, CLASSES))
        };
        let bytes_of = |gather| bytes_of_step(backend, &graph, (&partition, gather), model);
        let (halo, whole) = (bytes_of(Gather::Halo), bytes_of(Gather::Whole));
        let heard = partition.balance(&graph).expect("a balance").halo;
        let heard: usize = heard.iter().sum();
        for way in ["forward", "backward"] {
            let [halo, whole] = [&halo, &whole].map(|of| of[&format!("layers.1 {way}")]);
            assert!(halo > 0 && heard < 2 * VERTICES);
            assert_eq!(
                whole * heard,
                halo * 2 * VERTICES,
                "{way}, {:?}",
                model.convolution
            );
        }
    }
}

/// Rows that are exchanged in codes are half as many bytes, forward and backward; and what saturates is counted once, whoever has a copy.
pub fn codes_are_exchanged<B: Backend>(backend: &B, _: Scale) {
    let graph = task::graph().to_undirected().expect("a graph");
    let partition = Partition::by_degree(&graph, 3).expect("ranks");
    for model in [ModelConfig::gcn, ModelConfig::gin, ModelConfig::sage] {
        let bytes_of = |messages| {
            let model = ModelConfig {
                messages,
                ..deep(model(FEATURES, CLASSES))
            };
            let bytes = bytes_of_step(backend, &graph, (&partition, Gather::Halo), &model);
            ["forward", "backward"].map(|way| bytes[&format!("layers.1 {way}")])
        };
        let (plain, codes) = (bytes_of(None), bytes_of(Some(CodeFormat::Int8)));
        assert_eq!(codes.map(|bytes| 2 * bytes), plain);
    }
    let model = &ModelConfig {
        messages: Some(CodeFormat::Int8),
        dropout: 0.0,
        ..deep(ModelConfig::gcn(FEATURES, CLASSES))
    };
    let case = Case {
        graph: &graph,
        edges: EdgeData::default(),
    };
    let config = TrainConfig::new(Precision::Half);
    // Features that count a hundredfold from one step to the next.
    let saturate = |trainer: &mut Trainer<B, f16, Network<B, f16>>| {
        trainer.step().expect("a step");
        let mut weights = task::weights(backend, trainer.model());
        weights[0].iter_mut().for_each(|weight| *weight *= 100.0);
        let mut parameters = trainer.model_mut().parameters_mut();
        parameters[0].write(backend, &weights[0]).expect("as many");
        trainer.gradients().expect("half a step");
        let count = trainer.model().saturated_messages(backend);
        count.expect("no failure").expect("codes")
    };
    let one = saturate(&mut alone::<B, f16>(backend, &case, model, config));
    let of = (&partition, Gather::Halo, config, &[][..]);
    let all = of_ranks::<B, f16, _>(by_host(backend), (&graph, case.edges), model, of, saturate);
    let together: u64 = all.iter().sum();
    assert!(
        one > 100 && one.abs_diff(together) * 50 <= one,
        "{one} and {together}"
    );
}
