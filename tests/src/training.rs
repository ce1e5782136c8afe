//! Training steps on any backend, to compare what they make of the same weights.

use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::graph::Graph;
use halfgnn::nn::{Gcn, GcnConfig, Model, Norm, Propagation};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Objective, TrainConfig, Trainer};
use halfgnn_contract::rng;
use std::ops::ControlFlow;

const VERTICES: usize = 90;
const EDGES: u64 = 1100;
const FEATURES: usize = 19;
const CLASSES: usize = 5;

/// The parameters of a GCN after `epochs` training steps on a directed graph with a hub whose row crosses CTAs.
pub fn parameters_after<B: Backend, E: Element>(backend: &B, epochs: u32) -> Vec<Vec<f32>> {
    let draw = |index: u64, stream: u32| rng::uniform_u32(rng::key(7, stream), index);
    // Every second edge ends in the hub.
    let row = |k: u64| {
        if k.is_multiple_of(2) {
            3
        } else {
            draw(k, 0) % VERTICES as u32
        }
    };
    let rows: Vec<u32> = (0..EDGES).map(row).collect();
    let columns: Vec<u32> = (0..EDGES).map(|k| draw(k, 1) % VERTICES as u32).collect();
    let graph = Graph::from_edges(VERTICES, &rows, &columns).expect("ids are in range");
    let value = |k: usize| 2.0 * rng::unit_f32(draw(k as u64, 2)) - 1.0;
    let features: Vec<f32> = (0..VERTICES * FEATURES).map(value).collect();
    let labels: Vec<u32> = (0..VERTICES as u64)
        .map(|k| draw(k, 3) % CLASSES as u32)
        .collect();
    let ids: Vec<u32> = (0..VERTICES as u32).collect();

    let kind = MemoryKind::Features;
    let features =
        Matrix::<B, E>::from_f32(backend, VERTICES, FEATURES, &features, kind).expect("room");
    let propagation = Propagation::new(backend, &graph, Norm::Both).expect("room");
    let splits = [&ids[..50], &ids[50..70], &ids[70..]];
    let objective = Objective::new(backend, propagation, features, &labels, CLASSES, splits)
        .expect("a whole task");
    let config = GcnConfig {
        hidden: 24,
        layers: 2,
        dropout: 0.5,
        ..GcnConfig::new(FEATURES, CLASSES)
    };
    let train = TrainConfig {
        epochs,
        ..TrainConfig::new(E::PRECISION)
    };
    let model = Gcn::new(backend, objective.vertices(), config, train.seed).expect("room");
    let mut trainer = Trainer::new(backend, &objective, model, train).expect("room");
    trainer
        .run(|_| ControlFlow::Continue(()))
        .expect("the run ends");
    let parameters = trainer.model().parameters();
    parameters
        .iter()
        .map(|parameter| {
            parameter
                .master()
                .to_f32(backend)
                .expect("no failure before")
        })
        .collect()
}

/// Asserts that two backends' parameters agree: a step of Adam is at most the learning rate a weight, and rounding may
/// turn the sign of a gradient that is nearly zero, so almost all weights are close and none is far.
pub fn assert_agree(expected: &[Vec<f32>], actual: &[Vec<f32>], close: f32, far: f32) {
    assert_eq!(expected.len(), actual.len());
    for (index, (expected, actual)) in expected.iter().zip(actual).enumerate() {
        assert_eq!(expected.len(), actual.len());
        let distances = expected.iter().zip(actual).map(|(a, b)| (a - b).abs());
        let apart = distances
            .clone()
            .filter(|distance| *distance > close)
            .count();
        let farthest = distances.fold(0.0, f32::max);
        assert!(
            apart * 50 <= expected.len() && farthest <= far,
            "parameter {index}: {apart} of {} weights are more than {close} apart, one is {farthest}",
            expected.len()
        );
    }
}
