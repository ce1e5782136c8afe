//! The operator in a formula: a leaky ReLU behind `halfgnn`'s graph convolution, in a network that its trainer trains.

use crate::leaky_relu::{Backward, Forward, LeakyReluOperators};
use halfgnn::Error;
use halfgnn::graph::Graph;
use halfgnn::nn::{
    HiddenActivation, ModelConfig, Network, Norm, OtherLayers, OwnLayers, Propagation,
};
use halfgnn::ops::{self, Checked, Combine};
use halfgnn::program::layers::{Gcn, Layer, Reads};
use halfgnn::program::{Builder, OwnCall, OwnOperands, OwnOperator, Shape, Value};
use halfgnn::tensor::{Matrix, Precision};
use halfgnn::train::{Objective, TrainConfig, Trainer};
use std::sync::Arc;

/// `y = x > 0 ? x : slope · x`
#[derive(Debug)]
struct LeakyRelu<B: LeakyReluOperators> {
    kernels: Arc<B::Kernels>,
}

impl<B: LeakyReluOperators> OwnOperator for LeakyRelu<B> {
    fn name(&self) -> &str {
        "leaky_relu"
    }

    fn shape(&self, operands: &[Shape]) -> Result<Shape, String> {
        match operands {
            [x] => Ok(*x),
            others => Err(format!(
                "one operand is expected, and there are {}",
                others.len()
            )),
        }
    }

    fn gradient(&self, _number: usize) -> Option<Arc<dyn OwnOperator>> {
        let kernels = Arc::clone(&self.kernels);
        Some(Arc::new(LeakyReluGradient::<B> { kernels }))
    }

    fn run(&self, call: OwnCall<'_>) -> Result<(), Error> {
        let OwnOperands {
            backend,
            operands,
            result: y,
        } = call.on::<B, f32>()?;
        ops::combine(backend, &Combine::copy(), operands[0], y)?;
        let slope = crate::SLOPE;
        backend.leaky_relu(&self.kernels, Checked::new(Forward { slope, y })?)
    }
}

/// Its gradient, of the operand, the result and the gradient of the result.
#[derive(Debug)]
struct LeakyReluGradient<B: LeakyReluOperators> {
    kernels: Arc<B::Kernels>,
}

impl<B: LeakyReluOperators> OwnOperator for LeakyReluGradient<B> {
    fn name(&self) -> &str {
        "leaky_relu_gradient"
    }

    fn shape(&self, operands: &[Shape]) -> Result<Shape, String> {
        match operands {
            [x, _, _] => Ok(*x),
            others => Err(format!(
                "three operands are expected, and there are {}",
                others.len()
            )),
        }
    }

    fn gradient(&self, _number: usize) -> Option<Arc<dyn OwnOperator>> {
        None
    }

    fn run(&self, call: OwnCall<'_>) -> Result<(), Error> {
        let OwnOperands {
            backend,
            operands,
            result: d,
        } = call.on::<B, f32>()?;
        ops::combine(backend, &Combine::copy(), operands[2], d)?;
        let (slope, y) = (crate::SLOPE, operands[1]);
        backend.leaky_relu_backward(&self.kernels, Checked::new(Backward { slope, y, d })?)
    }
}

/// A graph convolution, and the operator behind all but the last.
#[derive(Debug)]
struct Leaky {
    convolution: Gcn,
    activation: Option<Arc<dyn OwnOperator>>,
}

impl Layer for Leaky {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let y = self.convolution.build(g, x);
        match &self.activation {
            Some(activation) => g.own(activation, &[y]),
            None => y,
        }
    }
}

#[derive(Debug)]
struct Layers(Arc<dyn OwnOperator>);

impl Layers {
    fn new<B: LeakyReluOperators>(backend: &B) -> Result<Self, Error> {
        let kernels = Arc::new(backend.kernels()?);
        Ok(Self(Arc::new(LeakyRelu::<B> { kernels })))
    }
}

impl OwnLayers for Layers {
    fn layer(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        Box::new(Leaky {
            convolution: Gcn {
                edges: reads.edges,
                outputs: model.layer(number).1,
            },
            activation: (!model.is_last(number)).then(|| Arc::clone(&self.0)),
        })
    }

    fn norm(&self) -> Norm {
        Norm::Both
    }
}

const HIDDEN: usize = 9;
/// Classes of the vertices.
pub const CLASSES: usize = 3;
const STEPS: usize = 25;

/// Trains a network on three fifths of the vertices of `graph`; the loss of each step.
pub fn train<B: LeakyReluOperators>(
    backend: &B,
    graph: &Graph,
    features: Matrix<B, f32>,
    labels: &[u32],
) -> Result<Vec<f32>, Error> {
    let (vertices, inputs) = features.shape();
    let (train, rest): (Vec<u32>, Vec<u32>) = (0..vertices as u32).partition(|v| v % 5 < 3);
    let graph = Propagation::new(backend, graph, Norm::Both)?;
    let splits = [&train[..], &rest[..], &[]];
    let objective = Objective::new(backend, graph, features, labels, CLASSES, splits)?;

    let layers = OtherLayers::new("leaky", Arc::new(Layers::new(backend)?));
    let config = ModelConfig {
        layers: 2,
        hidden: HIDDEN,
        dropout: 0.2,
        activation: HiddenActivation::None,
        ..ModelConfig::of(layers, inputs, CLASSES)
    };
    let model = Network::new(backend, &config, 4)?;
    let mut config = TrainConfig::new(Precision::Float);
    config.optimizer = config.optimizer.with_learning_rate(0.05);
    let mut trainer = Trainer::new(backend, &objective, model, config)?;
    // A step is recorded after the first, the launches of these kernels among those of the crate's.
    let mut losses = Vec::with_capacity(STEPS);
    for _ in 0..STEPS {
        trainer.step()?;
        losses.push(trainer.loss()?);
    }
    let (first, last) = (losses[0], losses[STEPS - 1]);
    println!(
        "{}: the network's loss {first:.3}, after {STEPS} steps {last:.3}{}",
        backend.name(),
        if trainer.is_recorded() {
            ", replayed"
        } else {
            ""
        }
    );
    assert!(last < 0.7 * first, "the loss falls: {losses:?}");
    Ok(losses)
}
