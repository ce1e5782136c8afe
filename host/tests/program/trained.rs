//! Networks in training: their losses, logits and weights.

use super::setup::{graph, numbers};
use half::f16;
use halfgnn::backend::cpu::Cpu;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::nn::{Model, ModelConfig, Network, Propagation};
use halfgnn::sample::{Fanout, Loader, NeighborSampler, Sampler};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Objective, TrainConfig, Trainer};

const SEED: u64 = 4;
const FEATURES: usize = 12;
const CLASSES: usize = 3;

fn labels() -> Vec<u32> {
    let vertices = 0..graph().vertices() as u32;
    vertices.map(|vertex| vertex * 7 % CLASSES as u32).collect()
}

fn features<B: Backend, E: Element>(backend: &B) -> Matrix<B, E> {
    let (rows, kind) = (graph().vertices(), MemoryKind::Features);
    let values = numbers(5, rows * FEATURES);
    Matrix::from_f32(backend, rows, FEATURES, &values, kind).expect("memory")
}

pub fn objective<B: Backend, E: Element>(backend: &B, config: &ModelConfig) -> Objective<B, E> {
    let (whole, labels) = (graph(), labels());
    let prepared = config.prepare(&whole).expect("memory");
    let edges = Propagation::new(backend, &prepared, config.norm()).expect("memory");
    let splits: [Vec<u32>; 3] = [(0..13).collect(), (13..18).collect(), (18..23).collect()];
    let splits = splits.each_ref().map(Vec::as_slice);
    Objective::new(backend, edges, features(backend), &labels, CLASSES, splits).expect("a task")
}

/// Losses, logits of evaluations, and weights at the end by name.
pub type Trace = Vec<(String, Vec<f32>)>;

fn weights<B: Backend, E: Element>(backend: &B, model: &impl Model<B, E>) -> Trace {
    let masters = model.parameters().into_iter();
    let masters = masters.map(|it| (it.name().to_owned(), it.master()));
    let mut all: Vec<_> = masters.chain(model.buffers()).collect();
    all.sort_by(|(one, _), (other, _)| one.cmp(other));
    let all = all.into_iter();
    all.map(|(name, matrix)| (name, matrix.to_f32(backend).expect("values")))
        .collect()
}

/// Adds the loss of the last step.
fn add_loss<B: Backend, E: Element, M: Model<B, E>>(
    trace: &mut Trace,
    trainer: &mut Trainer<B, E, M>,
) {
    let loss = trainer.loss().expect("a loss");
    trace.push((format!("loss {}", trace.len()), vec![loss]));
}

/// A few steps with an evaluation behind each.
pub fn whole<B: Backend, E: Element>(
    backend: &B,
    config: &ModelConfig,
    model: impl Model<B, E>,
) -> Trace {
    let train = TrainConfig::new(E::PRECISION);
    let task = objective::<B, E>(backend, config);
    let mut trainer = Trainer::new(backend, &task, model, train).expect("a model of the task");
    let mut trace = Vec::new();
    for _ in 0..4 {
        trainer.step().expect("a step");
        add_loss(&mut trace, &mut trainer);
        trainer.evaluate().expect("an evaluation");
        let logits = trainer.model().logits().to_f32(backend).expect("logits");
        trace.push(("logits".to_owned(), logits));
    }
    trace.extend(weights(backend, trainer.model()));
    trace
}

/// Layers that aggregate.
fn hops(config: &ModelConfig) -> usize {
    let network = Network::<_, f16>::new(&Cpu::new(), config, SEED);
    network.expect("a model").hops()
}

/// Steps on sampled blocks, and an evaluation of the whole graph between them.
pub fn sampled<B: Backend, E: Element>(
    backend: &B,
    config: &ModelConfig,
    model: impl Model<B, E>,
) -> Trace {
    let (whole, labels, all) = (graph(), labels(), features::<B, E>(backend));
    let prepared = config.prepare(&whole).expect("memory");
    let fanouts = vec![Fanout::of(3).expect("a fanout"); hops(config)];
    let mut sampler = NeighborSampler::new(backend, prepared.csr(), fanouts).expect("a graph");
    let loader = Loader::new((0..13).collect(), 5, SEED).expect("seeds");
    let train = TrainConfig::new(E::PRECISION);
    let task = objective::<B, E>(backend, config);
    let mut trainer = Trainer::new(backend, &task, model, train).expect("a model of the task");
    let mut trace = Vec::new();
    for seeds in (0..2).flat_map(|epoch| loader.epoch(epoch)) {
        let (vertices, step) = (&seeds.vertices, seeds.step);
        let batch = sampler
            .sample(backend, vertices, SEED, step)
            .expect("a batch");
        let of_batch = batch.features(backend, &all).expect("features");
        let blocks = batch.blocks.into_iter();
        let graphs = blocks.map(|block| Propagation::of_sampled(backend, block, config.norm()));
        let graphs = graphs.collect::<Result<_, _>>().expect("memory");
        let own: Vec<u32> = vertices
            .iter()
            .map(|&vertex| labels[vertex as usize])
            .collect();
        let rows: Vec<u32> = (0..own.len() as u32).collect();
        let splits = [&rows[..], &[], &[]];
        let batch = Objective::on_blocks(backend, graphs, of_batch, &own, CLASSES, splits);
        trainer.step_on(&batch.expect("a task")).expect("a step");
        add_loss(&mut trace, &mut trainer);
        trainer.evaluate().expect("an evaluation");
    }
    trace.extend(weights(backend, trainer.model()));
    trace
}
