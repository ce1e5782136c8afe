//! Features that are normalized over all vertices.

use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::ops::{self, BatchNorm, BitMatrix, Normalization};
use crate::tensor::{Element, Matrix};

/// A batch normalization of features over all vertices, without scale and shift, in training and in evaluation.
#[derive(Debug)]
pub(in crate::program) struct Standardized<B: Backend> {
    statistics: Matrix<B, f32>,
    /// Those of all vertices, once they are known: a batch in training has others.
    of_all: Option<Matrix<B, f32>>,
    /// Written and never read: no statistics are carried on.
    running: Matrix<B, f32>,
    ones: Matrix<B, f32>,
    zeros: Matrix<B, f32>,
}

impl<B: Backend> Standardized<B> {
    pub(super) fn new(backend: &B, columns: usize) -> Result<Self, Error> {
        let matrix = |rows| Matrix::zeros(backend, rows, columns, MemoryKind::Weights);
        let mut ones = matrix(1)?;
        ones.write_with(backend, || vec![1.0; columns])?;
        Ok(Self {
            statistics: matrix(2)?,
            of_all: None,
            running: matrix(2)?,
            ones,
            zeros: matrix(1)?,
        })
    }

    /// Has training normalize by the statistics of `x`, the features of all vertices, from now on.
    pub(in crate::program) fn see<E: Element>(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let of_all = match self.of_all.take() {
            Some(there) => there,
            None => Matrix::zeros(backend, 2, x.columns(), MemoryKind::Weights)?,
        };
        statistics(backend, x, &mut self.running, self.of_all.insert(of_all))
    }

    /// Normalizes `x` to `y`: in training by the statistics of all vertices where those are [known](Standardized::see), else by those of `x`.
    pub(super) fn normalize<E: Element>(
        &mut self,
        backend: &B,
        (x, evaluates): (&Matrix<B, E>, bool),
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let op = match &self.of_all {
            Some(of_all) if !evaluates => self.normalization_by(of_all),
            _ => self.normalization(backend, x)?,
        };
        ops::normalize(backend, &op, x, y)
    }

    /// The signs of `x` normalized by its own statistics, bit for bit those of [`Standardized::normalize`].
    pub(in crate::program) fn signs<E: Element>(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
        y: &mut BitMatrix<B>,
    ) -> Result<(), Error> {
        ops::binarize_normalized(backend, &self.normalization(backend, x)?, x, y)
    }

    fn normalization<E: Element>(
        &mut self,
        backend: &B,
        x: &Matrix<B, E>,
    ) -> Result<Normalization<'_, B>, Error> {
        statistics(backend, x, &mut self.running, &mut self.statistics)?;
        Ok(self.normalization_by(&self.statistics))
    }

    fn normalization_by<'a>(&'a self, statistics: &'a Matrix<B, f32>) -> Normalization<'a, B> {
        Normalization {
            statistics,
            weight: &self.ones,
            bias: &self.zeros,
            relu: false,
        }
    }
}

/// Means of columns, and what they are divided by.
fn statistics<B: Backend, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    running: &mut Matrix<B, f32>,
    statistics: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    let op = BatchNorm {
        momentum: 0.0,
        ..BatchNorm::default()
    };
    ops::batch_statistics(backend, &op, x, running, statistics)
}
