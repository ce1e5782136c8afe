//! Batch normalisation as a part of a layer.

use super::{Context, Halo, Mode, Parameter};
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{self, BatchNorm, Coding, Normalization, NormalizationGradients};
use crate::tensor::{Array, Element, Matrix};
use halfgnn_contract::normalize::carry_on;
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

/// Batch normalisation, with a ReLU where it is to have one (Ioffe and Szegedy, ICML 2015). In training the statistics are those of all vertices,
/// in evaluation as well or the running ones; both are float.
#[derive(Debug)]
pub(super) struct BatchNormalization<B: Backend, E: Element> {
    weight: Parameter<B, E>,
    bias: Parameter<B, E>,
    statistics: Matrix<B, f32>,
    running: Matrix<B, f32>,
    evaluate_with: Statistics,
    relu: bool,
}

impl<B: Backend, E: Element> BatchNormalization<B, E> {
    /// Scales of 1, shifts of 0, a running mean of 0 and a running variance of 1; the names are those of scales and shifts.
    pub(super) fn new(
        backend: &B,
        columns: usize,
        evaluate_with: Statistics,
        relu: bool,
        [scales, shifts]: [String; 2],
    ) -> Result<Self, Error> {
        let mut weight = Parameter::bias(backend, scales, columns)?;
        weight.write_with(backend, || vec![1.0; columns])?;
        let mut running = Matrix::zeros(backend, 2, columns, MemoryKind::Weights)?;
        running.write_with(backend, || {
            [vec![0.0; columns], vec![1.0; columns]].concat()
        })?;
        Ok(Self {
            weight,
            bias: Parameter::bias(backend, shifts, columns)?,
            statistics: Matrix::zeros(backend, 2, columns, MemoryKind::Activations)?,
            running,
            evaluate_with,
            relu,
        })
    }

    /// The normalisation with the last statistics.
    pub(super) fn op(&self) -> Normalization<'_, B> {
        Normalization {
            statistics: &self.statistics,
            weight: self.weight.master(),
            bias: self.bias.master(),
            relu: self.relu,
        }
    }

    /// Takes the statistics of `x`, which is `scale` times what it stands for: [`BatchNormalization::op`] then makes the same of it,
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
        if let Some(halo) = at.ranks {
            return self.forward_of_ranks(at, halo, &op, x);
        }
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

    /// `d`, the gradient of the output, becomes that of `x`, each row times its factor, and codes of that where they are wanted.
    pub(super) fn backward(
        &mut self,
        at: &Context<'_, B, E>,
        x: &Matrix<B, E>,
        d: &mut Matrix<B, E>,
        (scale, row_scale): (f32, Option<&Array<B, f32>>),
        coding: Option<Coding<'_, B>>,
    ) -> Result<(), Error> {
        if let Some(halo) = at.ranks {
            return self.backward_of_ranks(at, halo, x, d, (scale, row_scale), coding);
        }
        let (weight, d_weight) = self.weight.master_and_gradient();
        let (bias, d_bias) = self.bias.master_and_gradient();
        let op = Normalization {
            statistics: &self.statistics,
            weight,
            bias,
            relu: self.relu,
        };
        let gradients = NormalizationGradients {
            weight: d_weight,
            bias: d_bias,
            scale,
            row_scale,
            coding,
        };
        ops::normalize_backward(at.backend, &op, x, d, gradients)
    }

    /// [`BatchNormalization::forward`] of a rank, which has some rows of the batch: the moments of all ranks' rows are put together, in
    /// double and in the order of ranks (Chan, Golub and LeVeque, The American Statistician 37, 1983).
    fn forward_of_ranks(
        &mut self,
        at: &Context<'_, B, E>,
        halo: &Halo<B>,
        op: &BatchNorm,
        x: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let backend = at.backend;
        if let (Mode::Evaluate, Statistics::Running) = (at.mode, self.evaluate_with) {
            return ops::running_statistics(backend, op, &self.running, &mut self.statistics);
        }
        let columns = x.columns();
        let room = || Matrix::zeros(backend, 2, columns, MemoryKind::Workspace);
        let mut own = vec![0.0; 2 * columns];
        if x.rows() > 0 {
            let (mut moments, mut statistics) = (room()?, room()?);
            // Carried on with this weight, they are those of the rows alone.
            let alone = BatchNorm {
                momentum: 1.0,
                ..*op
            };
            ops::batch_statistics(backend, &alone, x, &mut moments, &mut statistics)?;
            own = moments.to_f32(backend)?;
            // Moments that are not finite are not carried on, and all ranks are to see them.
            let whole = statistics.to_f32(backend)?;
            for (column, mean) in whole[..columns].iter().enumerate() {
                if !(mean.is_finite() && whole[columns + column].is_finite()) {
                    own[column] = f32::NAN;
                }
            }
        }
        let what = format!("layers.{} moments", at.layer);
        let parts = halo.group().gather(&what, &own)?;
        let merged: Vec<[f64; 2]> = (0..columns)
            .map(|column| {
                let part = |rank: usize| parts[rank][column];
                let variance = |rank: usize| parts[rank][columns + column];
                merge(halo.counts(), part, variance)
            })
            .collect();
        let rows = |of: &dyn Fn([f64; 2]) -> [f32; 2]| -> Vec<f32> {
            let values: Vec<[f32; 2]> = merged.iter().map(|&moments| of(moments)).collect();
            [0, 1]
                .map(|row| values.iter().map(|it| it[row]).collect::<Vec<_>>())
                .concat()
        };
        let count: usize = halo.counts().iter().sum();
        let mut moments = room()?;
        moments.write_f32(backend, &rows(&|moments| moments.map(|it| it as f32)))?;
        ops::running_statistics(backend, op, &moments, &mut self.statistics)?;
        if let Mode::Train { .. } = at.mode {
            let before = self.running.to_f32(backend)?;
            let carried: Vec<[f32; 2]> = merged
                .iter()
                .enumerate()
                .map(|(column, &moments)| {
                    let before = [before[column], before[columns + column]];
                    let moments = moments.map(|it| it as f32);
                    carry_on(before, moments, count as f32, op.momentum)
                })
                .collect();
            let carried = [0, 1].map(|row| carried.iter().map(|it| it[row]).collect::<Vec<_>>());
            self.running.write_f32(backend, &carried.concat())?;
        }
        Ok(())
    }

    /// [`BatchNormalization::backward`] of a rank: the means are those over all ranks' rows, and the gradients of scales and shifts terms
    /// of sums, as every parameter's are.
    fn backward_of_ranks(
        &mut self,
        at: &Context<'_, B, E>,
        halo: &Halo<B>,
        x: &Matrix<B, E>,
        d: &mut Matrix<B, E>,
        (scale, row_scale): (f32, Option<&Array<B, f32>>),
        coding: Option<Coding<'_, B>>,
    ) -> Result<(), Error> {
        let backend = at.backend;
        let (weight, d_weight) = self.weight.master_and_gradient();
        let (bias, d_bias) = self.bias.master_and_gradient();
        let op = Normalization {
            statistics: &self.statistics,
            weight,
            bias,
            relu: self.relu,
        };
        if x.rows() > 0 {
            let gradients = NormalizationGradients {
                weight: d_weight,
                bias: d_bias,
                scale,
                row_scale,
                coding: None,
            };
            ops::normalization_sums(backend, &op, x, d, gradients)?;
        } else {
            d_weight.clear(backend)?;
            d_bias.clear(backend)?;
        }
        let own = [d_weight.to_f32(backend)?, d_bias.to_f32(backend)?].concat();
        let what = format!("layers.{} means", at.layer);
        let sums = halo.group().sum_numbers(&what, &own)?;
        if x.rows() == 0 {
            return Ok(());
        }
        // The operator divides by the rows that it sees.
        let all: usize = halo.counts().iter().sum();
        let share = (x.rows() as f64 / all as f64) as f32;
        let shares: Vec<f32> = sums.iter().map(|sum| sum * share).collect();
        let (of_weight, of_bias) = shares.split_at(x.columns());
        let room = |values: &[f32]| {
            Matrix::from_f32(backend, 1, x.columns(), values, MemoryKind::Workspace)
        };
        let gradients = NormalizationGradients {
            weight: &mut room(of_weight)?,
            bias: &mut room(of_bias)?,
            scale,
            row_scale,
            coding,
        };
        ops::normalize_backward_of(backend, &op, x, d, gradients)
    }

    pub(super) fn parameters(&self) -> [&Parameter<B, E>; 2] {
        [&self.weight, &self.bias]
    }

    pub(super) fn parameters_mut(&mut self) -> [&mut Parameter<B, E>; 2] {
        [&mut self.weight, &mut self.bias]
    }

    /// The running statistics, a mean and a variance of each column.
    pub(super) fn running(&self) -> &Matrix<B, f32> {
        &self.running
    }

    /// The same, to be read from a file.
    pub(super) fn running_mut(&mut self) -> &mut Matrix<B, f32> {
        &mut self.running
    }
}

/// Mean and variance (biased) of all rows from the mean and the unbiased variance of each rank's, of which there are `counts`.
fn merge(
    counts: &[usize],
    mean: impl Fn(usize) -> f32,
    variance: impl Fn(usize) -> f32,
) -> [f64; 2] {
    let all = counts.iter().sum::<usize>().max(1) as f64;
    let ranks = || (0..counts.len()).filter(|&rank| counts[rank] > 0);
    let total: f64 = ranks()
        .map(|rank| counts[rank] as f64 * f64::from(mean(rank)))
        .sum();
    let whole = total / all;
    let squares: f64 = ranks()
        .map(|rank| {
            let count = counts[rank] as f64;
            // Of a single row it is none.
            let biased = f64::from(variance(rank))
                * if count > 1.0 {
                    (count - 1.0) / count
                } else {
                    1.0
                };
            let apart = f64::from(mean(rank)) - whole;
            count * (biased + apart * apart)
        })
        .sum();
    [whole, squares / all]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_of_parts_are_those_of_the_whole() {
        // 5; 6, 7, 8; nothing; 1, 3.
        let means = [5.0, 7.0, 9.0, 2.0];
        let variances = [0.0, 1.0, 9.0, 2.0];
        let [mean, variance] = merge(&[1, 3, 0, 2], |rank| means[rank], |rank| variances[rank]);
        assert!((mean - 5.0).abs() < 1e-12, "{mean}");
        // numpy.var([5, 6, 7, 8, 1, 3])
        assert!((variance - 34.0 / 6.0).abs() < 1e-12, "{variance}");
        assert!(merge(&[1, 1], |_| f32::NAN, |_| 0.0)[0].is_nan());
    }
}
