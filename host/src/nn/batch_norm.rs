//! Batch normalisation as a part of a layer.

use super::{Context, Mode, Parameter};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{self, BatchNorm, Normalization, NormalizationGradients};
use crate::tensor::{Array, Element, Matrix};
use serde::{Deserialize, Serialize};

/// The statistics that a batch normalisation evaluates with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistics {
    /// Those of all vertices, without dropout: where training and evaluation see one graph, there is nothing to
    /// remember. Dropout changes the variance that running statistics are of.
    #[default]
    Batch,
    /// The running ones of training, as PyTorch has them.
    Running,
}

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
        columns: usize,
        evaluate_with: Statistics,
    ) -> Result<Self, Error> {
        let mut weight = Parameter::bias(backend, "norm.weight".into(), columns)?;
        weight.write_with(backend, || vec![1.0; columns])?;
        let mut running = Matrix::zeros(backend, 2, columns, MemoryKind::Weights)?;
        running.write_with(backend, || {
            [vec![0.0; columns], vec![1.0; columns]].concat()
        })?;
        Ok(Self {
            weight,
            bias: Parameter::bias(backend, "norm.bias".into(), columns)?,
            statistics: Matrix::zeros(backend, 2, columns, MemoryKind::Activations)?,
            running,
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
