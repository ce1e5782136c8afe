//! A small task to train on: a directed graph with a hub whose row crosses CTAs, random features and labels.

use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::graph::Graph;
use halfgnn::nn::{Aggregate, Gat, Gin, ModelConfig, Network, Norm, Propagation, Statistics};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Objective, TrainConfig, Trainer};
use halfgnn_contract::rng;

/// Vertices.
pub const VERTICES: usize = 90;
const EDGES: u64 = 1100;
/// Edges of the hub's row, about.
pub const LONGEST_ROW: usize = 560;
/// Features of a vertex.
pub const FEATURES: usize = 19;
/// Classes.
pub const CLASSES: usize = 5;

fn draw(index: u64, stream: u32) -> u32 {
    rng::uniform_u32(rng::key(7, stream), index)
}

/// The graph; every second edge ends in the hub.
pub fn graph() -> Graph {
    let row = |k: u64| {
        if k.is_multiple_of(2) {
            3
        } else {
            draw(k, 0) % VERTICES as u32
        }
    };
    let rows: Vec<u32> = (0..EDGES).map(row).collect();
    let columns: Vec<u32> = (0..EDGES).map(|k| draw(k, 1) % VERTICES as u32).collect();
    Graph::from_edges(VERTICES, &rows, &columns).expect("ids are in range")
}

/// A weight for each edge of the graph, in its order.
pub fn edge_weights() -> Vec<f32> {
    let edges = 0..graph().edges() as u64;
    edges.map(|k| 3.0 * rng::unit_f32(draw(k, 5))).collect()
}

/// The task on a backend, its graph with the degree norm `norm`.
pub fn objective<B: Backend, E: Element>(backend: &B, norm: Norm) -> Objective<B, E> {
    let none = (None, 0, false);
    objective_on(backend, norm, none)
}

/// So many features of each edge of the graph, column by column.
pub fn edge_features(columns: usize) -> Vec<Vec<f32>> {
    let edges = graph().edges() as u64;
    let value = |k: u64| 4.0 * rng::unit_f32(draw(k, 6)) - 2.0;
    let column = |of: u64| (of * edges..(of + 1) * edges).map(value).collect();
    (0..columns as u64).map(column).collect()
}

/// The features of all vertices, row by row.
pub fn features() -> Vec<f32> {
    let value = |k: usize| 2.0 * rng::unit_f32(draw(k as u64, 2)) - 1.0;
    (0..VERTICES * FEATURES).map(value).collect()
}

/// The class of each vertex.
pub fn labels() -> Vec<u32> {
    let class = |k: u64| draw(k, 3) % CLASSES as u32;
    (0..VERTICES as u64).map(class).collect()
}

/// The vertices to train on, to validate and to test.
pub fn splits() -> [Vec<u32>; 3] {
    [0..50, 50..70, 70..VERTICES as u32].map(Iterator::collect)
}

/// The same on edges that may have weights, or so many features each.
pub fn objective_on<B: Backend, E: Element>(
    backend: &B,
    norm: Norm,
    of_edges: (Option<&[f32]>, usize, bool),
) -> Objective<B, E> {
    objective_in(backend, norm, of_edges, MemoryKind::Features)
}

/// The same with its features in memory of `kind`.
pub fn objective_in<B: Backend, E: Element>(
    backend: &B,
    norm: Norm,
    (weights, columns, as_rows): (Option<&[f32]>, usize, bool),
    kind: MemoryKind,
) -> Objective<B, E> {
    let (features, labels, splits) = (features(), labels(), splits());
    let features = Matrix::from_f32(backend, VERTICES, FEATURES, &features, kind).expect("room");
    let propagation = Propagation::of_graph::<E>(backend, &graph(), weights, norm);
    let mut propagation = propagation.expect("room");
    if columns > 0 {
        let features = edge_features(columns);
        let with = match as_rows {
            false => propagation.with_edge_features(backend, &graph(), &features),
            true => propagation.with_edge_rows::<E>(backend, &graph(), &features),
        };
        propagation = with.expect("room");
    }
    let splits = splits.each_ref().map(Vec::as_slice);
    Objective::new(backend, propagation, features, &labels, CLASSES, splits).expect("a whole task")
}

/// A GCN of two layers.
pub fn model() -> ModelConfig {
    ModelConfig {
        hidden: 24,
        layers: 2,
        dropout: 0.5,
        ..ModelConfig::gcn(FEATURES, CLASSES)
    }
}

/// A model of every kind, with everything that draws random numbers or keeps statistics.
pub fn models() -> Vec<ModelConfig> {
    let shape = |config: ModelConfig| ModelConfig {
        hidden: 16,
        layers: 2,
        ..config
    };
    let gat = Gat {
        heads: 2,
        slope: 0.2,
        attention_dropout: 0.3,
        ..Gat::default()
    }
    .into();
    let gin = Gin {
        aggregate: Aggregate::Mean,
        lambda: 0.1,
        epsilon: 0.5,
        learn_epsilon: true,
        statistics: Statistics::Running,
    }
    .into();
    let kind = |convolution, config| ModelConfig {
        convolution,
        ..shape(config)
    };
    vec![
        shape(ModelConfig::gcn(FEATURES, CLASSES)),
        shape(ModelConfig::sage(FEATURES, CLASSES)),
        shape(ModelConfig::gin(FEATURES, CLASSES)),
        ModelConfig {
            recompute: true,
            ..kind(gin, ModelConfig::gin(FEATURES, CLASSES))
        },
        kind(gat, ModelConfig::gat(FEATURES, CLASSES)),
    ]
}

/// A trainer of `model` before its first step.
pub fn trainer<B: Backend, E: Element>(
    backend: &B,
    objective: &Objective<B, E>,
    model: ModelConfig,
    train: TrainConfig,
) -> Trainer<B, E, Network<B, E>> {
    let model = Network::new(backend, &model, train.seed).expect("room");
    Trainer::new(backend, objective, model, train).expect("room")
}

/// The master weights of a model.
pub fn weights<B: Backend, E: Element>(
    backend: &B,
    model: &impl halfgnn::nn::Model<B, E>,
) -> Vec<Vec<f32>> {
    let read = |parameter: &halfgnn::nn::Parameter<B, E>| parameter.master().to_f32(backend);
    let parameters = model.parameters();
    parameters
        .into_iter()
        .map(|parameter| read(parameter).expect("no failure before"))
        .collect()
}
