//! Training steps on any backend, to compare what they make of the same weights.

use crate::task;
use halfgnn::backend::Backend;
use halfgnn::nn::{Aggregate, Gat, Gin, ModelConfig, Statistics};
use halfgnn::tensor::Element;
use halfgnn::train::TrainConfig;
use std::ops::ControlFlow;

/// Models of every kind, with dropout: their names, and their shapes.
pub fn models() -> Vec<(&'static str, ModelConfig)> {
    let of = |model: ModelConfig| ModelConfig {
        hidden: 24,
        layers: 3,
        residual: true,
        ..model
    };
    let heads = ModelConfig {
        hidden: 32,
        convolution: Gat {
            heads: 2,
            slope: 0.2,
            attention_dropout: 0.3,
        }
        .into(),
        ..of(ModelConfig::gat(task::FEATURES, task::CLASSES))
    };
    let gin = ModelConfig::gin(task::FEATURES, task::CLASSES);
    let sum = ModelConfig {
        convolution: Gin {
            aggregate: Aggregate::Sum,
            lambda: 1.0,
            epsilon: 0.0,
            learn_epsilon: true,
            statistics: Statistics::Batch,
        }
        .into(),
        ..gin.clone()
    };
    vec![
        ("gcn", task::model()),
        ("gat", of(ModelConfig::gat(task::FEATURES, task::CLASSES))),
        ("gat-heads", heads),
        ("gin", of(gin)),
        ("gin-sum", of(sum)),
        ("sage", of(ModelConfig::sage(task::FEATURES, task::CLASSES))),
    ]
}

/// The parameters of a model after `epochs` training steps.
pub fn parameters_after<B: Backend, E: Element>(
    backend: &B,
    model: &ModelConfig,
    epochs: u32,
) -> Vec<Vec<f32>> {
    let objective = task::objective::<B, E>(backend, model.norm());
    let train = TrainConfig {
        epochs,
        ..TrainConfig::new(E::PRECISION)
    };
    let mut trainer = task::trainer(backend, &objective, model.clone(), train);
    trainer
        .run(|_| ControlFlow::Continue(()))
        .expect("the run ends");
    task::weights(backend, trainer.model())
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
