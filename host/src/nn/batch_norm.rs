//! Batch normalisation as a part of a layer.

use super::config::Statistics;
use super::convolution::{Context, Place};
use super::{Mode, Parameter};
use crate::backend::{Backend, BatchNorm, MemoryKind, Normalization, NormalizationGradients};
use crate::error::Error;
use crate::ops;
use crate::tensor::{Array, Element, Matrix};

/// Batch normalisation and a ReLU (Ioffe and Szegedy, ICML 2015). In training the statistics are those of all vertices,
/// in evaluation as well or the running ones; both are float.
#[derive(Debug)]
pub(super) struct NormalizedRelu<B: Backend, E: Element> {
    weight: Parameter<B, E>,
    bias: Parameter<B, E>,
    statistics: Matrix<B, f32>,
    running: Matrix<B, f32>,
    evaluate_with: Statistics,
}

/// Names of the running statistics.
const RUNNING: &str = "norm.running";

impl<B: Backend, E: Element> NormalizedRelu<B, E> {
    /// Scales of 1, shifts of 0, a running mean of 0 and a running variance of 1.
    pub(super) fn new(
        backend: &B,
        place: Place,
        columns: usize,
        evaluate_with: Statistics,
    ) -> Result<Self, Error> {
        let mut weight = Parameter::bias(backend, place.name("norm.weight"), columns)?;
        weight.write(backend, &vec![1.0; columns])?;
        let running = [vec![0.0; columns], vec![1.0; columns]].concat();
        Ok(Self {
            weight,
            bias: Parameter::bias(backend, place.name("norm.bias"), columns)?,
            statistics: Matrix::zeros(backend, 2, columns, MemoryKind::Activations)?,
            running: Matrix::from_f32(backend, 2, columns, &running, MemoryKind::Weights)?,
            evaluate_with,
        })
    }

    /// The normalisation with the last statistics.
    pub(super) fn op(&self) -> Normalization<'_, B> {
        Normalization {
            statistics: &self.statistics,
            weight: self.weight.master(),
            bias: self.bias.master(),
            relu: true,
        }
    }

    /// Takes the statistics of `x`, which is `scale` times what it stands for: [`NormalizedRelu::op`] then makes the same of it,
    /// whatever the scale. It has no pass of its own: the products that want to see its output normalise what they read.
    pub(super) fn forward(
        &mut self,
        at: &Context<'_, B, E>,
        scale: f32,
        x: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let op = BatchNorm {
            epsilon: BatchNorm::default().epsilon * scale * scale,
            ..BatchNorm::default()
        };
        let (statistics, running) = (&mut self.statistics, &mut self.running);
        match (at.mode, self.evaluate_with) {
            (Mode::Train { .. }, _) => {
                ops::batch_statistics(at.backend, &op, x, running, statistics)
            }
            (Mode::Evaluate, Statistics::Batch) => {
                // Evaluation leaves the running ones as they are.
                let op = BatchNorm {
                    momentum: 0.0,
                    ..op
                };
                ops::batch_statistics(at.backend, &op, x, running, statistics)
            }
            (Mode::Evaluate, Statistics::Running) => {
                ops::running_statistics(at.backend, &op, running, statistics)
            }
        }
    }

    /// `d`, the gradient of the output, becomes that of `x`, each row times its factor.
    pub(super) fn backward(
        &mut self,
        at: &Context<'_, B, E>,
        x: &Matrix<B, E>,
        d: &mut Matrix<B, E>,
        (scale, row_scale): (f32, Option<&Array<B, f32>>),
    ) -> Result<(), Error> {
        let (weight, d_weight) = self.weight.master_and_gradient();
        let (bias, d_bias) = self.bias.master_and_gradient();
        let op = Normalization {
            statistics: &self.statistics,
            weight,
            bias,
            relu: true,
        };
        let gradients = NormalizationGradients {
            weight: d_weight,
            bias: d_bias,
            scale,
            row_scale,
        };
        ops::normalize_backward(at.backend, &op, x, d, gradients)
    }

    pub(super) fn parameters(&self) -> [&Parameter<B, E>; 2] {
        [&self.weight, &self.bias]
    }

    pub(super) fn parameters_mut(&mut self) -> [&mut Parameter<B, E>; 2] {
        [&mut self.weight, &mut self.bias]
    }

    pub(super) fn buffers(&self) -> Vec<(&'static str, &Matrix<B, f32>)> {
        vec![(RUNNING, &self.running)]
    }

    pub(super) fn buffers_mut(&mut self) -> Vec<(&'static str, &mut Matrix<B, f32>)> {
        vec![(RUNNING, &mut self.running)]
    }
}
