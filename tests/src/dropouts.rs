//! The dropouts of a model draw independently of one another.
//!
//! On a graph of self-loops, with the identity for weights, what a layer makes of ones is their mask: the logits are the
//! product of all masks of the model, and what is left of it tells whether two masks are the same.

use crate::Scale;
use half::f16;
use halfgnn::backend::{Backend, MemoryKind};
use halfgnn::graph::Graph;
use halfgnn::nn::{Gat, Gcn, ModelConfig, Network, Norm, Propagation};
use halfgnn::tensor::{Element, Matrix};
use halfgnn::train::{Objective, TrainConfig, Trainer};

const VERTICES: usize = 1024;
const COLUMNS: usize = 8;

/// The logits of a step of a model of ones and identities.
fn logits<B: Backend, E: Element>(backend: &B, model: ModelConfig) -> Vec<f32> {
    let ids: Vec<u32> = (0..VERTICES as u32).collect();
    let graph = Graph::from_edges(VERTICES, &ids, &ids).expect("self-loops");
    let graph = Propagation::new(backend, &graph, Norm::None).expect("room");
    let ones = vec![1.0; VERTICES * COLUMNS];
    let ones = Matrix::from_f32(backend, VERTICES, COLUMNS, &ones, MemoryKind::Features);
    let labels = vec![0; VERTICES];
    let splits = [&ids[..1], &ids[1..2], &ids[2..3]];
    let objective = Objective::<B, E>::new(
        backend,
        graph,
        ones.expect("room"),
        &labels,
        COLUMNS,
        splits,
    )
    .expect("a whole task");
    let model = Network::new(backend, &model, 0).expect("room");
    let config = TrainConfig::new(E::PRECISION);
    let mut trainer = Trainer::new(backend, &objective, model, config).expect("room");
    for parameter in halfgnn::nn::Model::parameters_mut(trainer.model_mut()) {
        let (rows, columns) = parameter.shape();
        if parameter.name().ends_with(".weight") {
            let identity = |at: usize| f32::from(u8::from(at / columns == at % columns));
            let identity: Vec<f32> = (0..rows * columns).map(identity).collect();
            parameter.write(backend, &identity).expect("its length");
        }
    }
    trainer.gradients().expect("a step");
    let logits = halfgnn::nn::Model::logits(trainer.model());
    logits.to_f32(backend).expect("no failure before")
}

/// Asserts that of `all` places the fraction `kept` is not zero, within six standard deviations, and is `value` there.
#[track_caller]
fn assert_kept(values: impl Iterator<Item = f32>, kept: f64, value: f32) {
    let values: Vec<f32> = values.collect();
    let found = values.iter().filter(|&&value| value != 0.0).count() as f64;
    assert!(values.iter().all(|&other| other == 0.0 || other == value));
    let all = values.len() as f64;
    let spread = 6.0 * (all * kept * (1.0 - kept)).sqrt();
    assert!(
        (found - kept * all).abs() < spread,
        "{found} of {all} passed all masks, and not {}",
        kept * all
    );
}

/// Features, first and second layer: an element in eight passes three masks of a half each.
pub fn layers_draw_apart<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B) {
        let model = ModelConfig {
            hidden: COLUMNS,
            layers: 3,
            dropout: 0.5,
            residual: false,
            convolution: Gcn { norm: Norm::None }.into(),
            ..ModelConfig::gcn(COLUMNS, COLUMNS)
        };
        let logits = logits::<B, E>(backend, model);
        assert_kept(logits.into_iter(), 0.125, 8.0);
    }
    check::<B, f16>(backend);
    check::<B, f32>(backend);
}

/// A vertex hears from itself alone, through two layers whose attention drops every second edge.
pub fn attention_draws_apart<B: Backend>(backend: &B, _: Scale) {
    fn check<B: Backend, E: Element>(backend: &B) {
        let model = ModelConfig {
            hidden: COLUMNS,
            layers: 2,
            dropout: 0.0,
            residual: false,
            convolution: Gat {
                heads: 1,
                slope: 0.2,
                attention_dropout: 0.5,
                ..Gat::default()
            }
            .into(),
            ..ModelConfig::gat(COLUMNS, COLUMNS)
        };
        let logits = logits::<B, E>(backend, model);
        // A vertex has one edge, so its columns share a mask.
        let of_vertex = logits.chunks_exact(COLUMNS);
        assert!(of_vertex.clone().all(|row| row == [row[0]; COLUMNS]));
        assert_kept(of_vertex.map(|row| row[0]), 0.25, 4.0);
    }
    check::<B, f16>(backend);
    check::<B, f32>(backend);
}
