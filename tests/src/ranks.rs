//! One graph and several ranks: what they make of a step together is what one makes of it alone.

mod messages;
mod stored;

pub use messages::{
    all_rows_are_exchanged, coded_steps_are_those_of_one, codes_are_exchanged,
    products_are_exchanged,
};
pub(crate) use stored::{overflow_first_bias, write_first_bias};
pub use stored::{overflows_of_stored_are_of_all_ranks, stored_steps_are_those_of_one};

use crate::Scale;
use crate::input::{Random, bits, matrix, read};
use crate::reference::roundoff;
use crate::task::{self, CLASSES, FEATURES, VERTICES};
use crate::training::{deep, models, models_of_both_ends, others, roundings};
use half::{bf16, f16};
use halfgnn::backend::{Backend, Floats, MemoryKind};
use halfgnn::data::Targets;
use halfgnn::distributed::{
    Communicator, Fault, Gather, Group, InProcess, Partition, Shard, in_process,
};
use halfgnn::graph::Graph;
use halfgnn::nn::{
    ConvolutionConfig, EdgeData, Gat, GatV2, HiddenNorm, ModelConfig, Network, Store,
};
use halfgnn::ops::{self, CodeFormat, Dropout, Normalization, NormalizationGradients, RandomState};
use halfgnn::tensor::{Array, Element, Matrix, Precision};
use halfgnn::train::{Goal, Loss, Objective, Snapshot, TrainConfig, Trainer};
use std::time::Duration;

/// A graph, and what is known of its edges.
struct Case<'a> {
    graph: &'a Graph,
    edges: EdgeData<'a>,
}

/// What is told of the vertices of the task.
fn with_goal<T>(work: impl FnOnce(&Goal<'_>) -> T) -> T {
    let (targets, splits) = (Targets::from(task::labels()), task::splits());
    work(&Goal {
        targets: &targets,
        outputs: CLASSES,
        loss: &Loss::of(&targets),
        splits: splits.each_ref().map(Vec::as_slice),
    })
}

fn features<B: Backend, E: Element>(backend: &B, vertices: &[u32]) -> Matrix<B, E> {
    let all = task::features();
    let rows = vertices.iter().map(|&vertex| vertex as usize * FEATURES);
    let rows: Vec<f32> = rows
        .flat_map(|row| all[row..][..FEATURES].to_vec())
        .collect();
    let kind = MemoryKind::Features;
    Matrix::from_f32(backend, vertices.len(), FEATURES, &rows, kind).expect("room")
}

/// Trainer of one rank of all.
fn alone<B: Backend, E: Element>(
    backend: &B,
    case: &Case<'_>,
    model: &ModelConfig,
    config: TrainConfig,
) -> Trainer<B, E, Network<B, E>> {
    let prepared = model.prepare_edges(case.graph, case.edges).expect("edges");
    let graph = prepared.propagation::<B, E>(backend, model).expect("room");
    let all: Vec<u32> = (0..VERTICES as u32).collect();
    let objective = with_goal(|goal| {
        Objective::of(backend, vec![graph], features(backend, &all), goal).expect("a task")
    });
    task::trainer(backend, &objective, model.clone(), config)
}

/// A rank whose exchanges go through the host.
pub(crate) fn by_host<B: Backend>(backend: &B) -> impl Fn(InProcess) -> (B, Group) + Sync {
    |rank| (backend.clone(), Group::new(rank))
}

/// Whether threads that share a device can be linked: not on a card, of which NCCL wants one for each rank.
pub(crate) fn links_threads<B: Backend>(backend: &B) -> bool {
    backend.interconnect().is_err() && backend.link_id().is_ok()
}

/// A rank whose device moves memory to the others'; `own` gives a rank of this number its handle.
pub(crate) fn by_devices<B: Backend>(
    own: impl Fn(usize) -> B + Sync,
) -> impl Fn(InProcess) -> (B, Group) + Sync {
    move |rank| {
        let backend = own(rank.rank());
        let group = Group::new(rank).linked(&backend, "a link of threads");
        (backend, group.expect("a link"))
    }
}

/// What `work` makes of the trainer of each rank, in their order.
fn of_ranks<B: Backend, E: Element, T: Send>(
    open: impl Fn(InProcess) -> (B, Group) + Sync,
    (graph, edges): (&Graph, EdgeData<'_>),
    model: &ModelConfig,
    (partition, gather, config, faults): (&Partition, Gather, TrainConfig, &[Fault]),
    work: impl Fn(&mut Trainer<B, E, Network<B, E>>) -> T + Sync,
) -> Vec<T> {
    let prepared = &model.prepare_edges(graph, edges).expect("edges");
    let (work, open) = (&work, &open);
    std::thread::scope(|scope| {
        let ranks = in_process(partition.ranks(), "test", Duration::from_secs(120), faults);
        let threads: Vec<_> = ranks
            .into_iter()
            .enumerate()
            .map(|(rank, communicator)| {
                scope.spawn(move || {
                    let (backend, group) = open(communicator);
                    let backend = &backend;
                    let shard = Shard::gathering(&prepared.graph, partition, rank, gather);
                    let shard = shard.expect("a shard");
                    let of = (&shard, &group);
                    let graph = prepared
                        .propagation_of_shard::<B, E>(backend, model, of)
                        .expect("room");
                    let network = Network::new(backend, model, config.seed).expect("room");
                    let vertices = match network.first_aggregates() {
                        true => shard.part.vertices(),
                        false => shard.part.own(),
                    };
                    let rows = features(backend, vertices);
                    let objective = with_goal(|goal| {
                        Objective::of_shard(backend, graph, rows, goal, &shard).expect("a task")
                    });
                    let trainer = Trainer::new(backend, &objective, network, config);
                    work(&mut trainer.expect("room"))
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a rank"))
            .collect()
    })
}

/// A step, as far as it is to be compared.
#[derive(Clone)]
struct Step {
    state: Snapshot,
    loss: f32,
    gradients: Vec<Vec<f32>>,
    weights: Vec<Vec<f32>>,
    correct: [f64; 3],
    buffers: Vec<Vec<f32>>,
}

fn step<B: Backend, E: Element>(
    backend: &B,
    trainer: &mut Trainer<B, E, Network<B, E>>,
    state: Option<&Snapshot>,
) -> Step {
    use halfgnn::nn::Model;
    let state = match state {
        Some(state) => {
            trainer.restore(state).expect("the same model");
            state.clone()
        }
        None => trainer.snapshot().expect("no failure before"),
    };
    trainer.gradients().expect("half a step");
    let gradients = trainer.model().parameters();
    let gradients = gradients.iter().map(|it| it.gradient().to_f32(backend));
    let gradients = gradients.collect::<Result<_, _>>().expect("no failure");
    trainer.update().expect("half a step");
    let buffers = trainer.model().buffers();
    let buffers = buffers.iter().map(|(_, it)| it.to_f32(backend));
    let buffers = buffers.collect::<Result<_, _>>().expect("no failure");
    Step {
        state,
        loss: trainer.loss().expect("a loss"),
        gradients,
        buffers,
        weights: task::weights(backend, trainer.model()),
        correct: halfgnn::train::Split::ALL
            .map(|split| trainer.evaluate().expect("no failure").0.of(split)),
    }
}

/// What ranks are given of one another: both of some models on three ranks, and of all where a rank has nothing; else one, so that each is
/// seen of every model.
fn gathers_of(name: &str, ranks: usize) -> &'static [Gather] {
    const BOTH: [Gather; 2] = [Gather::Halo, Gather::Whole];
    match (name, ranks) {
        ("gcn" | "gat", 3) | (_, 4) => &BOTH,
        _ => &BOTH[(name.len() + ranks) % 2..][..1],
    }
}

/// Steps of all ranks of a partition are those of one, to the roundings that a sum in another order and the terms of a gradient
/// that are rounded on their way make; and ranks and runs have the same bits.
fn assert_steps<B: Backend, E: Element>(
    backend: &B,
    case: &Case<'_>,
    name: &str,
    model: &ModelConfig,
    partitions: &[Partition],
) {
    let mut config = TrainConfig::new(E::PRECISION);
    config.scaling.initial = config.scaling.initial.min(256.0);
    let mut one = alone::<B, E>(backend, case, model, config);
    let expected = [(); 2].map(|()| step(backend, &mut one, None));
    let gathered = partitions.iter().flat_map(|partition| {
        let gathers = gathers_of(name, partition.ranks()).iter();
        gathers.map(move |&gather| (partition, gather))
    });
    for (partition, gather) in gathered {
        let ranks = partition.ranks();
        let what = format!("{name} in {}, {ranks} ranks, {gather:?}", E::PRECISION);
        let of = (partition, gather, config, &[][..]);
        let graph = (case.graph, case.edges);
        let steps = |trainer: &mut Trainer<B, E, Network<B, E>>| {
            let of_state = |expected: &Step| step(backend, trainer, Some(&expected.state));
            expected.each_ref().map(of_state)
        };
        let all = of_ranks::<B, E, _>(by_host(backend), graph, model, of, steps);
        // Statistics of a batch that are a rounding off move every element, and turn the rounding of some of each column.
        let batch_norms = model.hidden_norm == HiddenNorm::Batch;
        let statistics = match batch_norms || name.starts_with("gin") {
            true => 3.0,
            false => 1.0,
        };
        let allowed = 2.0 * statistics * roundings::<E>(model.layers) * roundoff::<E>();
        for (expected, of_first) in expected.iter().zip(&all[0]) {
            let off = f64::from((expected.loss - of_first.loss).abs());
            assert!(
                off <= allowed * f64::from(expected.loss),
                "{what}: losses of {} and {}",
                expected.loss,
                of_first.loss
            );
            let pairs = expected.gradients.iter().zip(&of_first.gradients);
            let buffers = expected.buffers.iter().zip(&of_first.buffers);
            // A bias that a batch normalisation takes out again has a gradient of roundings: those of the others' terms.
            let values = expected.gradients.iter().flatten();
            let most = values.fold(0.0_f32, |most, value| most.max(value.abs()));
            let least = match batch_norms {
                true => 1e-3 * f64::from(most),
                false => 0.0,
            };
            for (parameter, (a, b)) in pairs.chain(buffers).enumerate() {
                let (off, size) = match E::PRECISION {
                    Precision::Float => {
                        let largest = |of: &mut dyn Iterator<Item = f32>| {
                            f64::from(of.fold(0.0_f32, |most, value| most.max(value.abs())))
                        };
                        let mut apart = a.iter().zip(b).map(|(a, b)| a - b);
                        (largest(&mut apart), largest(&mut a.iter().copied()))
                    }
                    // A rounding that turns may have a ReLU cut an element off: a term of a sum more or less. Float shows that the
                    // sums are the same ones, and here all together are near.
                    _ => {
                        let norm = |of: &mut dyn Iterator<Item = f32>| {
                            of.map(|it| f64::from(it) * f64::from(it))
                                .sum::<f64>()
                                .sqrt()
                        };
                        let mut apart = a.iter().zip(b).map(|(a, b)| a - b);
                        (norm(&mut apart), norm(&mut a.iter().copied()))
                    }
                };
                let size = size.max(least);
                assert!(
                    off <= allowed * size,
                    "{what}: parameter {parameter} is {off} off where it is {size}: {} roundings apart, and {} are allowed",
                    off / roundoff::<E>() / size,
                    allowed / roundoff::<E>()
                );
            }
            for (a, b) in expected.correct.iter().zip(of_first.correct) {
                // One vertex of the smallest split whose two best classes are as good.
                assert!(
                    (a - b).abs() <= 100.0 / 20.0 + 1e-9,
                    "{what}: {a} and {b} %"
                );
            }
        }
        let words = |steps: &[Step]| -> Vec<u32> {
            let of = |step: &Step| {
                let all = [&step.gradients, &step.weights, &step.buffers].map(|it| it.concat());
                [bits(&all.concat()), vec![step.loss.to_bits()]].concat()
            };
            steps.iter().flat_map(of).collect()
        };
        for rank in 1..ranks {
            assert!(words(&all[rank]) == words(&all[0]), "{what}: rank {rank}");
            for (a, b) in all[rank].iter().zip(&all[0]) {
                assert_eq!(a.correct, b.correct, "{what}: rank {rank}");
            }
        }
        // Another run, whose devices exchange; they share a stream here, in which a replay would wait for another's.
        if !links_threads(backend) {
            continue;
        }
        let record = false;
        let config = TrainConfig { record, ..config };
        let of = (partition, gather, config, &[][..]);
        let again = of_ranks::<B, E, _>(by_devices(|_| backend.clone()), graph, model, of, steps);
        for (rank, again) in again.iter().enumerate() {
            assert!(
                words(again) == words(&all[0]),
                "{what}: rank {rank}, linked"
            );
            for (a, b) in again.iter().zip(&all[0]) {
                assert_eq!(a.correct, b.correct, "{what}: rank {rank}, linked");
            }
        }
    }
}

/// Steps and evaluations of ranks whose devices exchange are those of ranks that exchange through the host, also where they are
/// `recorded` with their exchanges. `own` gives a rank a handle with a stream of its own.
pub fn assert_recorded<B: Backend>(
    backend: &B,
    own: impl Fn(usize) -> B + Sync,
    ranks: usize,
    recorded: bool,
) {
    let plain = [ModelConfig::gcn, ModelConfig::gin].map(|model| (model, None, None));
    let stored = [ModelConfig::gcn, ModelConfig::gin];
    let stored = stored.map(|model| (model, None, Some(Store::EightBit)));
    let quantized = [ModelConfig::gcn, ModelConfig::sage, ModelConfig::gat];
    let quantized = quantized.map(|model| (model, Some(CodeFormat::Int8), None));
    for (model, messages, store) in plain.into_iter().chain(stored).chain(quantized) {
        let mut model = deep(model(FEATURES, CLASSES));
        model.dropout = 0.5;
        model.messages = messages;
        model.store = store;
        assert_linked::<B, f16>(backend, &own, &model, (ranks, recorded));
    }
}

/// Every model trains to the same bits on ranks whose devices exchange as on ranks that exchange through the host, in every precision.
pub fn every_model_links<B: Backend>(backend: &B, own: impl Fn(usize) -> B + Sync, ranks: usize) {
    for (name, mut model) in models().into_iter().chain(models_of_both_ends()) {
        println!("{name}");
        keep_all_edges(&mut model);
        assert_linked::<B, f16>(backend, &own, &model, (ranks, true));
        assert_linked::<B, bf16>(backend, &own, &model, (ranks, true));
        assert_linked::<B, f32>(backend, &own, &model, (ranks, true));
    }
}

/// Epochs, weights and moments of ranks whose devices exchange are those of ranks that exchange through the host.
fn assert_linked<B: Backend, E: Element>(
    backend: &B,
    own: &(impl Fn(usize) -> B + Sync),
    model: &ModelConfig,
    (ranks, recorded): (usize, bool),
) {
    let graph = task::graph().to_undirected().expect("a graph");
    let graph = (&graph, EdgeData::default());
    let partition = Partition::by_degree(graph.0, ranks).expect("ranks");
    let config = TrainConfig::new(E::PRECISION);
    let of = (&partition, Gather::Halo, config, &[][..]);
    let steps = |trainer: &mut Trainer<B, E, Network<B, E>>| {
        let epoch = |_| {
            let report = trainer.next_epoch().expect("an epoch").expect("one more");
            let scores = halfgnn::train::Split::ALL.map(|split| report.score.of(split));
            (report.loss.to_bits(), scores.map(f64::to_bits))
        };
        let reports: Vec<_> = (0..4).map(epoch).collect();
        let kept = trainer.snapshot().expect("no failure").tensors;
        (reports, kept, trainer.is_recorded())
    };
    let through_host = of_ranks::<B, E, _>(by_host(backend), graph, model, of, steps);
    let linked = of_ranks::<B, E, _>(by_devices(own), graph, model, of, steps);
    for (rank, (reports, kept, is_recorded)) in linked.iter().enumerate() {
        assert_eq!(reports, &through_host[0].0, "rank {rank}");
        assert!(kept == &through_host[0].1, "rank {rank}");
        assert_eq!(*is_recorded, recorded, "rank {rank}");
    }
    assert!(through_host.iter().all(|(.., is_recorded)| !is_recorded));
    // Rows that are exchanged during computation are the same.
    let beside_computation = |rank: InProcess| {
        let (backend, group) = by_devices(own)(rank);
        (backend, group.overlapping(true))
    };
    let beside = of_ranks::<B, E, _>(beside_computation, graph, model, of, steps);
    assert!(beside == linked);
    let of = (&partition, Gather::Whole, config, &[][..]);
    let all = of_ranks::<B, E, _>(by_host(backend), graph, model, of, steps);
    let linked = of_ranks::<B, E, _>(by_devices(own), graph, model, of, steps);
    for ((reports, kept, _), (of_linked, linked_kept, is_recorded)) in all.iter().zip(&linked) {
        assert_eq!(reports, of_linked);
        assert!(kept == linked_kept);
        assert_eq!(*is_recorded, recorded);
    }
    let beside = of_ranks::<B, E, _>(beside_computation, graph, model, of, steps);
    assert!(beside == linked);
}

/// Sums of what ranks have, in their order and to the bit; and statistics of a batch from those of its parts.
pub fn parts_are_put_together<B: Backend>(backend: &B, scale: Scale) {
    for (count, len) in [(1, 4), (3, 1), (5, scale.pick(300, 70_000))] {
        let values = Random(5).uniform::<f32>(count * len);
        let parts = Array::from_slice(backend, &values, MemoryKind::Workspace).expect("room");
        let expected: Vec<f32> = (0..len)
            .map(|at| {
                0.3 * values[at..]
                    .iter()
                    .step_by(len)
                    .fold(0.0, |sum, it| sum + it)
            })
            .collect();
        let mut sums =
            Array::from_slice(backend, &vec![f32::NAN; len], MemoryKind::Workspace).expect("room");
        let of = Floats::Array(&mut sums);
        ops::sum_parts(backend, 0.3, (&parts, count), of).expect("legal");
        assert!(bits(&sums.to_vec(backend).expect("no failure")) == bits(&expected));
        if len % 4 == 0 {
            let mut matrix =
                Matrix::zeros(backend, 2, len / 2, MemoryKind::Workspace).expect("room");
            let sums = Floats::Matrix(&mut matrix);
            if sums.len() == len {
                ops::sum_parts(backend, 0.3, (&parts, count), sums).expect("legal");
                assert!(bits(&read(backend, &matrix)) == bits(&expected));
            }
        }
        let of = Floats::Array(&mut sums);
        assert!(ops::sum_parts(backend, 1.0, (&parts, count + 1), of).is_err());
        // Magnitudes, one of them of an overflow.
        let mut values: Vec<f32> = values.iter().map(|value| value.abs()).collect();
        values[0] = f32::INFINITY;
        let parts = Array::from_slice(backend, &values, MemoryKind::Workspace).expect("room");
        let largest = |at: usize| {
            values[at..]
                .iter()
                .step_by(len)
                .fold(0.0_f32, |a, b| a.max(*b))
        };
        let expected: Vec<f32> = (0..len).map(largest).collect();
        let of = Floats::Array(&mut sums);
        ops::largest_of_parts(backend, (&parts, count), of).expect("legal");
        assert!(bits(&sums.to_vec(backend).expect("no failure")) == bits(&expected));
        let of = Floats::Array(&mut sums);
        assert!(ops::largest_of_parts(backend, (&parts, count + 1), of).is_err());
    }
    // Far from zero and narrow: what a merge in float would lose.
    let columns = 7;
    let op = ops::BatchNorm::default();
    let rows_of = [1_usize, 0, scale.pick(40, 900), 33];
    let value =
        |row: usize, column: usize| 1000.0 + column as f32 + ((row * 37) % 64) as f32 / 64.0;
    let (mut moments, mut deviations, mut first) = (Vec::new(), Vec::new(), 0);
    for rows in rows_of {
        let room =
            || Matrix::<B, f32>::zeros(backend, 2, columns, MemoryKind::Workspace).expect("room");
        let (mut of_rows, mut statistics) = (room(), room());
        if rows > 0 {
            let values: Vec<f32> = (0..rows * columns)
                .map(|at| value(first + at / columns, at % columns))
                .collect();
            let x: Matrix<B, f32> = matrix(backend, (rows, columns), &values);
            let alone = ops::BatchNorm {
                momentum: 1.0,
                ..op
            };
            ops::batch_statistics(backend, &alone, &x, &mut of_rows, &mut statistics)
                .expect("legal");
        }
        moments.extend(of_rows.read_rows(backend, 0..2).expect("no failure"));
        deviations.extend(statistics.read_rows(backend, 0..2).expect("no failure"));
        first += rows;
    }
    let run = |deviations: &[f32]| {
        let upload = |values: &[f32]| {
            Array::from_slice(backend, values, MemoryKind::Workspace).expect("room")
        };
        let counts: Vec<u32> = rows_of.iter().map(|&rows| rows as u32).collect();
        let counts = Array::from_slice(backend, &counts, MemoryKind::Workspace).expect("room");
        let (moments, deviations) = (upload(&moments), upload(deviations));
        let of = || ops::StatisticsOfParts {
            counts: &counts,
            moments: &moments,
            deviations: &deviations,
        };
        let start: Vec<f32> = [vec![0.0; columns], vec![1.0; columns]].concat();
        let mut running: Matrix<B, f32> = matrix(backend, (2, columns), &start);
        let mut statistics: Matrix<B, f32> = matrix(backend, (2, columns), &start);
        ops::merge_statistics(backend, &op, of(), Some(&mut running), &mut statistics)
            .expect("legal");
        let alone = statistics.to_f32(backend).expect("no failure");
        ops::merge_statistics(backend, &op, of(), None, &mut statistics).expect("legal");
        assert!(bits(&statistics.to_f32(backend).expect("no failure")) == bits(&alone));
        (alone, running.to_f32(backend).expect("no failure"))
    };
    let (statistics, running) = run(&deviations);
    for column in 0..columns {
        let values = || (0..first).map(|row| f64::from(value(row, column)));
        let mean = values().sum::<f64>() / first as f64;
        let squares = values().map(|it| (it - mean) * (it - mean)).sum::<f64>();
        let (variance, unbiased) = (squares / first as f64, squares / (first - 1) as f64);
        let near = |of: f32, expected: f64, allowed: f64| {
            let off = (f64::from(of) - expected).abs() / expected;
            assert!(off < allowed, "column {column}: {of} for {expected}");
        };
        near(statistics[column], mean, 1e-7);
        let deviation = 1.0 / (variance + f64::from(op.epsilon)).sqrt();
        near(statistics[columns + column], deviation, 1e-4);
        near(running[column], 0.1 * mean, 1e-6);
        near(running[columns + column], 0.9 + 0.1 * unbiased, 1e-5);
    }
    // An overflow of one part is one of all, and leaves the running ones.
    deviations[2 * 2 * 8 + 3] = f32::INFINITY;
    let (spoilt, running) = run(&deviations);
    assert!(spoilt[3].is_nan() && spoilt[columns + 3].is_nan() && spoilt[2].is_finite());
    assert_eq!([running[3], running[columns + 3]], [0.0, 1.0]);
}

/// Edges that attention drops: ranks do not draw them alike, and refuse to.
fn keep_all_edges(model: &mut ModelConfig) {
    let (ConvolutionConfig::Gat(Gat {
        attention_dropout, ..
    })
    | ConvolutionConfig::GatV2(GatV2 {
        attention_dropout, ..
    })) = &mut model.convolution
    else {
        return;
    };
    *attention_dropout = 0.0;
}

/// A model that drops edges, whichever it is, has no shard.
pub fn dropped_edges_are_refused<B: Backend>(backend: &B, _scale: Scale) {
    let graph = task::graph();
    let partition = Partition::by_degree(&graph, 1).expect("ranks");
    let shard = Shard::new(&graph, &partition, 0).expect("a shard");
    let mut ranks = in_process(1, "test", Duration::from_secs(9), &[]);
    let group = Group::new(ranks.remove(0));
    let mut refusals = 0;
    for (name, mut model) in models() {
        let has_shard = |model: &ModelConfig| {
            let prepared = model
                .prepare_edges(&graph, EdgeData::default())
                .expect("edges");
            let shard = prepared.propagation_of_shard::<B, f32>(backend, model, (&shard, &group));
            shard.is_ok()
        };
        if !has_shard(&model) {
            refusals += 1;
            keep_all_edges(&mut model);
        }
        assert!(has_shard(&model), "{name}");
    }
    assert_eq!(refusals, 2, "a GAT and a GATv2");
}

/// Every model, with dropout; every way to deal a graph out, ranks without rows and vertices without edges among them.
pub fn steps_are_those_of_one<B: Backend>(backend: &B, scale: Scale) {
    let graph = task::graph();
    let case = &Case {
        graph: &graph,
        edges: EdgeData::default(),
    };
    let dealt = |ranks| Partition::by_degree(&graph, ranks).expect("ranks");
    let parts = |part: fn(u32) -> u32, ranks| {
        let parts = (0..VERTICES as u32).map(part).collect();
        Partition::from_parts(parts, ranks).expect("parts")
    };
    // Rank 1 has nothing; rank 0 has one vertex.
    let uneven = parts(|vertex| if vertex == 7 { 0 } else { 2 + vertex % 2 }, 4);
    let all = [dealt(1), dealt(2), dealt(3), dealt(5), uneven.clone()];
    let partitions = scale.pick(&all[2..3], &all[..]);
    for (name, mut model) in models() {
        keep_all_edges(&mut model);
        model.dropout = 0.5;
        assert_steps::<B, f16>(backend, case, name, &model, partitions);
        if scale == Scale::Full {
            assert_steps::<B, bf16>(backend, case, name, &model, partitions);
            assert_steps::<B, f32>(backend, case, name, &model, partitions);
        }
    }
    let others = others();
    // Those of kernels that the models above do not launch come first.
    for (name, model) in scale.pick(&others[..4], &others) {
        assert_steps::<B, f32>(
            backend,
            case,
            name,
            model,
            scale.pick(std::slice::from_ref(&uneven), partitions),
        );
    }
    // Numbers of edges: weights of a GCN, and a term of a GAT's scores.
    let (weights, columns) = (task::edge_weights(), task::edge_features(2));
    let rows: Vec<f32> = (0..graph.edges())
        .flat_map(|edge| [columns[0][edge], columns[1][edge]])
        .collect();
    let weighted = &Case {
        graph: &graph,
        edges: EdgeData {
            weights: Some(&weights),
            features: None,
        },
    };
    assert_steps::<B, f16>(backend, weighted, "weights", &task::model(), &all[2..3]);
    let featured = &Case {
        graph: &graph,
        edges: EdgeData {
            weights: None,
            features: Some((2, &rows)),
        },
    };
    let gat = Gat {
        edge_features: 2,
        ..Gat::default()
    };
    let gat = deep(ModelConfig::of(gat, FEATURES, CLASSES));
    assert_steps::<B, f32>(backend, featured, "features of edges", &gat, &all[2..3]);
    for (name, mut model) in models_of_both_ends() {
        assert!(model.read_edge_features(2), "{name}");
        assert_steps::<B, f32>(backend, featured, name, &model, &all[2..3]);
    }
}

/// Rows that are a part of a matrix lose what they lose in the whole.
pub fn rows_are_dropped_by_their_numbers<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, rows: usize, columns: usize) {
        let values = Random(3).uniform::<E>(rows * columns);
        let whole: Matrix<B, E> = matrix(backend, (rows, columns), &values);
        let random = RandomState::new(backend, 11, 4).expect("room");
        let dropout = Dropout {
            probability: 0.4,
            stream: 9,
            random: &random,
        };
        let order: Vec<u32> = (0..rows as u32).rev().filter(|row| row % 3 != 1).collect();
        let order = Array::from_slice(backend, &order, MemoryKind::Graph).expect("room");
        let room = || Matrix::zeros(backend, order.len(), columns, MemoryKind::Features);
        let (mut picked, mut expected) = (room().expect("room"), room().expect("room"));
        ops::take_rows(backend, &whole, &order, &mut picked).expect("legal");
        ops::drop_rows(backend, dropout, &order, &mut picked).expect("legal");
        let mut dropped =
            Matrix::zeros(backend, rows, columns, MemoryKind::Features).expect("room");
        let op = ops::Activation {
            bias: None,
            relu: false,
            dropout: Some(dropout),
        };
        ops::activate(backend, &op, Some(&whole), &mut dropped).expect("legal");
        ops::take_rows(backend, &dropped, &order, &mut expected).expect("legal");
        let words = |of: &Matrix<B, E>| bits(&read(backend, of));
        assert!(words(&picked) == words(&expected), "{rows} x {columns}");
        let none = room().expect("room").to_f32(backend).expect("zeros");
        assert!(
            rows < 3 || read(backend, &picked) != none,
            "{rows} x {columns}"
        );
    }
    for columns in scale.pick(&[1, 9, 41][..], &[1, 7, 9, 41, 602]) {
        for rows in [0, 1, scale.pick(37, 901)] {
            check::<B, f16>(backend, rows, *columns);
            check::<B, bf16>(backend, rows, *columns);
            check::<B, f32>(backend, rows, *columns);
        }
    }
}

/// The sums of a normalisation's gradient and what is made of them, one after the other.
pub fn halves_of_a_normalization_are_the_whole<B: Backend>(backend: &B, scale: Scale) {
    let (rows, columns) = (scale.pick(70, 900), 13);
    let upload = |rows: usize, seed: u32| -> Matrix<B, f32> {
        let values = Random(seed).uniform::<f32>(rows * columns);
        let positive: Vec<f32> = values.iter().map(|value| value + 1.5).collect();
        matrix(backend, (rows, columns), &positive)
    };
    let (statistics, weight, bias) = (upload(2, 0), upload(1, 1), upload(1, 2));
    let op = Normalization {
        statistics: &statistics,
        weight: &weight,
        bias: &bias,
        relu: true,
    };
    let half = |seed| -> Matrix<B, f16> {
        let values = Random(seed).uniform::<f16>(rows * columns);
        matrix(backend, (rows, columns), &values)
    };
    let x = half(7);
    let run = |halves: bool| {
        let mut d = half(8);
        let mut sums = [upload(1, 3), upload(1, 4)];
        let mut call = |of: usize| {
            let [weight, bias] = &mut sums;
            let gradients = NormalizationGradients {
                weight,
                bias,
                scale: 2.0,
                row_scale: None,
                coding: None,
            };
            let done = match of {
                0 => ops::normalize_backward(backend, &op, &x, &mut d, gradients),
                1 => ops::normalization_sums(backend, &op, &x, &mut d, gradients),
                _ => ops::normalize_backward_of(backend, &op, &x, &mut d, gradients),
            };
            done.expect("legal");
        };
        if halves {
            call(1);
            call(2);
        } else {
            call(0);
        }
        let sums = sums.map(|it| bits(&it.to_f32(backend).expect("sums")));
        (sums, bits(&read(backend, &d)))
    };
    assert!(run(true) == run(false));
}
