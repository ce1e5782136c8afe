//! The operator as a layer: a leaky ReLU between two of `halfgnn`'s graph convolutions, in a network that its trainer trains.

use crate::leaky_relu::{Backward, Forward, LeakyReluOperators};
use halfgnn::Error;
use halfgnn::graph::Graph;
use halfgnn::nn::{
    Context, GcnLayer, InputGradient, Layer, Network, Norm, Output, OutputGradient, Parameter,
    Place, Propagation, Stage,
};
use halfgnn::ops::{self, Checked, Combine, SpmmPolicy};
use halfgnn::tensor::{Matrix, Precision};
use halfgnn::train::{Objective, TrainConfig, Trainer};

/// `y = x > 0 ? x : slope · x`, of rows of `width`.
#[derive(Debug)]
struct LeakyRelu<B: LeakyReluOperators> {
    width: usize,
    slope: f32,
    kernels: B::Kernels,
}

impl<B: LeakyReluOperators> Layer<B, f32> for LeakyRelu<B> {
    fn widths(&self) -> (usize, usize) {
        (self.width, self.width)
    }

    /// It looks at each vertex alone.
    fn aggregates(&self) -> bool {
        false
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, f32>,
        x: &Matrix<B, f32>,
        y: &mut Output<'_, B, f32>,
    ) -> Result<(), Error> {
        let y = y.matrix();
        ops::combine(at.backend, &Combine::copy(), x, y)?;
        let operands = Forward {
            slope: self.slope,
            y,
        };
        at.backend
            .leaky_relu(&self.kernels, Checked::new(operands)?)
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, f32>,
        x: &Matrix<B, f32>,
        dy: &mut OutputGradient<'_, B, f32>,
        dx: &mut InputGradient<'_, B, f32>,
    ) -> Result<(), Error> {
        if !dx.is_wanted() {
            return Ok(());
        }
        let d = dx.matrix(at)?;
        ops::combine(at.backend, &Combine::copy(), dy.matrix(), d)?;
        let operands = Backward {
            slope: self.slope,
            // The kernel asks for signs alone, and those of input and output are the same.
            y: x,
            d,
        };
        at.backend
            .leaky_relu_backward(&self.kernels, Checked::new(operands)?)
    }

    fn parameters(&self) -> Vec<&Parameter<B, f32>> {
        Vec::new()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, f32>> {
        Vec::new()
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

    let convolution = |layer, widths| {
        let place = Place { layer, seed: 4 };
        GcnLayer::new(backend, place, widths, SpmmPolicy::DEFAULT)
    };
    let leaky_relu = LeakyRelu {
        width: HIDDEN,
        slope: crate::SLOPE,
        kernels: backend.kernels()?,
    };
    let stages = [
        Stage::new(convolution(0, (inputs, HIDDEN))?).bias(),
        Stage::new(leaky_relu),
        Stage::new(convolution(2, (HIDDEN, CLASSES))?)
            .bias()
            .dropout(0.2),
    ];
    let model = Network::from_layers(backend, stages)?;
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
