//! Networks of formulas of several ranks: the bits of the network of layers of as many, and what ranks exchange.

use super::network::shaped;
use super::setup::{graph, numbers};
use half::f16;
use halfgnn::backend::MemoryKind;
use halfgnn::backend::cpu::Cpu;
use halfgnn::data::Targets;
use halfgnn::distributed::{Gather, Group, Partition, Shard, in_process};
use halfgnn::nn::{EdgeData, Gat as GatConfig, Model, ModelConfig, Network, Norm};
use halfgnn::program::layers::{Gcn, Layer, Sage};
use halfgnn::program::passes::{Exchange, Pass};
use halfgnn::program::{Builder, Edges, Value};
use halfgnn::tensor::{Element, Matrix, Precision};
use halfgnn::train::{Goal, Loss, Objective, TrainConfig, Trainer};
use std::time::Duration;

const FEATURES: usize = 12;
const CLASSES: usize = 3;
const SEED: u64 = 4;
const STEPS: usize = 3;

type New<E> = fn(&Cpu, &ModelConfig) -> Network<Cpu, E>;

/// Losses and weights of a few steps of each rank.
fn of_ranks<E: Element>(model: &ModelConfig, ranks: usize, new: New<E>) -> Vec<Vec<Vec<f32>>> {
    let graph = graph();
    let prepared = &model
        .prepare_edges(&graph, EdgeData::default())
        .expect("edges");
    let partition = &Partition::by_degree(&prepared.graph, ranks).expect("enough vertices");
    let all = in_process(ranks, "test", Duration::from_secs(60), &[]);
    std::thread::scope(|scope| {
        let threads: Vec<_> = all
            .into_iter()
            .enumerate()
            .map(|(rank, communicator)| {
                scope.spawn(move || {
                    let (backend, group) = (Cpu::new(), Group::new(communicator));
                    let shard = Shard::gathering(&prepared.graph, partition, rank, Gather::Halo);
                    let shard = shard.expect("a shard");
                    rank_of::<E>(&backend, model, prepared, (&shard, &group), new)
                })
            })
            .collect();
        let threads = threads.into_iter();
        threads
            .map(|thread| thread.join().expect("a rank"))
            .collect()
    })
}

fn rank_of<E: Element>(
    backend: &Cpu,
    model: &ModelConfig,
    prepared: &halfgnn::nn::PreparedGraph<'_>,
    (shard, group): (&Shard, &Group),
    new: New<E>,
) -> Vec<Vec<f32>> {
    let of = (shard, group);
    let edges = prepared.propagation_of_shard::<Cpu, E>(backend, model, of);
    let network = new(backend, model);
    let vertices = shard.part.vertices();
    let values = numbers(5, graph().vertices() * FEATURES);
    let rows = vertices.iter().map(|&vertex| vertex as usize * FEATURES);
    let rows: Vec<f32> = rows
        .flat_map(|row| values[row..row + FEATURES].to_vec())
        .collect();
    let kind = MemoryKind::Features;
    let rows = Matrix::from_f32(backend, vertices.len(), FEATURES, &rows, kind).expect("memory");
    let labels = (0..graph().vertices() as u32).map(|vertex| vertex * 7 % CLASSES as u32);
    let targets = Targets::from(labels.collect::<Vec<u32>>());
    let splits: [Vec<u32>; 3] = [(0..13).collect(), (13..18).collect(), (18..23).collect()];
    let goal = Goal {
        targets: &targets,
        outputs: CLASSES,
        loss: &Loss::of(&targets),
        splits: splits.each_ref().map(Vec::as_slice),
    };
    let task = Objective::of_shard(backend, edges.expect("memory"), rows, &goal, shard);
    let config = TrainConfig::new(E::PRECISION);
    let mut trainer = Trainer::new(backend, &task.expect("a task"), network, config).expect("fits");
    let mut trace = Vec::new();
    for _ in 0..STEPS {
        trainer.step().expect("a step");
        trainer.evaluate().expect("an evaluation");
        trace.push(vec![trainer.loss().expect("a loss")]);
    }
    let mut parameters = trainer.model().parameters();
    parameters.sort_by(|one, other| one.name().cmp(other.name()));
    for parameter in parameters {
        trace.push(parameter.master().to_f32(backend).expect("values"));
    }
    trace
}

fn models() -> Vec<(&'static str, ModelConfig)> {
    let small = |config| shaped(config, 3, 8, 0.4);
    let gat = GatConfig {
        heads: 2,
        ..GatConfig::default()
    };
    let residual = ModelConfig {
        residual: true,
        ..small(ModelConfig::sage(FEATURES, CLASSES))
    };
    vec![
        ("gcn", small(ModelConfig::gcn(FEATURES, CLASSES))),
        ("sage", small(ModelConfig::sage(FEATURES, CLASSES))),
        ("residual sage", residual),
        ("gat", small(ModelConfig::of(gat, FEATURES, CLASSES))),
    ]
}

/// Sums of gradients are rounded at other places: once where the network of layers rounds twice.
fn assert_near(what: &str, expected: &[Vec<f32>], found: &[Vec<f32>], share: f32) {
    assert_eq!(expected.len(), found.len(), "{what}");
    for (number, (expected, found)) in expected.iter().zip(found).enumerate() {
        assert_eq!(expected.len(), found.len(), "{what}");
        let largest = expected.iter().fold(0.0_f32, |most, it| most.max(it.abs()));
        assert!(largest > 0.0, "{what}: {number}");
        for (expected, found) in expected.iter().zip(found) {
            let off = (expected - found).abs();
            assert!(
                off <= share * largest,
                "{what}: {number}: {expected} and {found}"
            );
        }
    }
}

fn trains<E: Element>(share: f32) {
    let layers: New<E> = |backend, model| Network::new(backend, model, SEED).expect("a model");
    let formulas: New<E> =
        |backend, model| Network::of_formulas(backend, model, SEED).expect("a model");
    for (name, model) in models() {
        for ranks in [2, 3] {
            let what = format!("{name} of {ranks} ranks in {}", E::PRECISION);
            let expected = of_ranks(&model, ranks, layers);
            let found = of_ranks(&model, ranks, formulas);
            for rank in &found {
                assert_eq!(rank, &found[0], "{what}: ranks have the same weights");
            }
            // In half Adam makes whole steps of gradients that are all rounding: losses are near, and weights need not be.
            let compared = match E::PRECISION {
                Precision::Float => expected[0].len(),
                _ => STEPS,
            };
            let near = [&expected[0][..compared], &found[0][..compared]];
            assert_near(&what, near[0], near[1], share);
        }
    }
}

#[test]
fn ranks_train_a_network_of_formulas_as_the_network_of_layers_in_float() {
    trains::<f32>(1e-4);
}

#[test]
fn ranks_train_a_network_of_formulas_as_the_network_of_layers_in_half() {
    trains::<f16>(0.01);
}

fn exchanged(inputs: usize, layer: impl Fn(&mut Builder, Edges, Value) -> Value) -> String {
    let mut g = Builder::new(Precision::Half);
    let (sources, own) = (g.vertices("vertices", 9), g.vertices("own", 5));
    let edges = g.edges_of_rank("part", sources, own, Norm::Both);
    let x = g.input("x", own, inputs);
    let all = g.extend(edges, x);
    let y = layer(&mut g, edges, all);
    let mut program = g.finish(y).expect("operands fit");
    Exchange.run(&mut program).expect("a forward list");
    program.check().expect("a program");
    program.listing()
}

#[test]
fn a_product_that_is_narrower_is_exchanged_in_the_place_of_rows() {
    let gcn = |g: &mut Builder, edges, x| Gcn { edges, outputs: 4 }.build(g, x);
    let products = "%5 = matmul x weight\n%3 = extend part %5\n%4 = aggregate part %3\n";
    assert_eq!(exchanged(8, gcn), products);
    let rows = "%1 = extend part x\n%3 = matmul %1 weight\n%4 = aggregate part %3\n";
    assert_eq!(exchanged(4, gcn), rows);
}

#[test]
fn own_rows_of_extended_rows_are_those_that_were_extended() {
    let listing = exchanged(4, |g, edges, x| Sage { edges, outputs: 4 }.build(g, x));
    assert!(!listing.contains("own_rows"), "{listing}");
    assert!(listing.contains("matmul x self.weight"), "{listing}");
}
