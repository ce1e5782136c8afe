//! Batch normalisation as a part of a layer.

use super::{Context, Halo, Mode, Parameter, Pool};
use crate::backend::{Backend, Floats, MemoryKind};
use crate::error::Error;
use crate::ops::{
    self, BatchNorm, Coding, Normalization, NormalizationGradients, StatisticsOfParts,
};
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
    own: OwnRoom<B, E>,
}

/// Room for what a rank has of the statistics, and for what it hears of others; kept, so that a step that is recorded allocates nothing.
#[derive(Debug)]
struct OwnRoom<B: Backend, E: Element> {
    pool: Pool<B, E>,
    moments: Option<Matrix<B, f32>>,
    rows: Vec<Matrix<B, f32>>,
}

impl<B: Backend, E: Element> OwnRoom<B, E> {
    /// Room for two rows of numbers that are finite.
    fn moments(&mut self, backend: &B, columns: usize) -> Result<Matrix<B, f32>, Error> {
        match self.moments.take() {
            Some(room) => Ok(room),
            None => Matrix::zeros(backend, 2, columns, MemoryKind::Activations),
        }
    }

    /// Room for a row of any content.
    fn row(&mut self, backend: &B, columns: usize) -> Result<Matrix<B, f32>, Error> {
        match self.rows.pop() {
            Some(row) => Ok(row),
            None => Matrix::zeros(backend, 1, columns, MemoryKind::Activations),
        }
    }
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
            own: OwnRoom {
                pool: Pool::new(),
                moments: None,
                rows: Vec::new(),
            },
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
        let mut moments = self.own.moments(backend, x.columns())?;
        if x.rows() > 0 {
            // Carried on with this weight, they are those of the rows alone.
            let alone = BatchNorm {
                momentum: 1.0,
                ..*op
            };
            let statistics = &mut self.statistics;
            ops::batch_statistics(backend, &alone, x, &mut moments, statistics)?;
        }
        let own = [
            Floats::Matrix(&mut moments),
            Floats::Matrix(&mut self.statistics),
        ];
        let what = format!("layers.{} moments", at.layer);
        let (group, pool) = (halo.group(), &mut self.own.pool);
        let all = group.gather_floats(backend, &what, pool, &own)?;
        self.own.moments = Some(moments);
        let parts = StatisticsOfParts {
            counts: halo.counts_there(),
            moments: &all[0],
            deviations: &all[1],
        };
        let running = match at.mode {
            Mode::Train { .. } => Some(&mut self.running),
            Mode::Evaluate => None,
        };
        ops::merge_statistics(backend, op, parts, running, &mut self.statistics)?;
        all.into_iter()
            .for_each(|all| self.own.pool.give_numbers(all));
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
        let own = [Floats::Matrix(d_weight), Floats::Matrix(d_bias)];
        let what = format!("layers.{} means", at.layer);
        let (group, pool) = (halo.group(), &mut self.own.pool);
        let all = group.gather_floats(backend, &what, pool, &own)?;
        // The operator divides by the rows that it sees.
        let share = halo.share();
        let mut sums = [(); 2].map(|()| None);
        for (sum, all) in sums.iter_mut().zip(&all) {
            let mut room = self.own.row(backend, x.columns())?;
            let parts = (all, group.ranks());
            ops::sum_parts(backend, share, parts, Floats::Matrix(&mut room))?;
            *sum = Some(room);
        }
        all.into_iter()
            .for_each(|all| self.own.pool.give_numbers(all));
        let [Some(mut of_weight), Some(mut of_bias)] = sums else {
            return Ok(());
        };
        if x.rows() > 0 {
            let gradients = NormalizationGradients {
                weight: &mut of_weight,
                bias: &mut of_bias,
                scale,
                row_scale,
                coding,
            };
            ops::normalize_backward_of(backend, &op, x, d, gradients)?;
        }
        self.own.rows.extend([of_weight, of_bias]);
        Ok(())
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
