//! Batch normalisation, and weighted sums of two matrices.

use super::Storage;
use crate::error::Error;
use crate::ops::{
    BatchStatisticsOperands, Checked, CombineOperands, DotOperands, NormalizeBackwardOperands,
    NormalizeOperands, RunningStatisticsOperands,
};
use crate::tensor::{Array, Element, Matrix};

/// Operators of normalised layers. Statistics are float in every precision: row 0 of a `statistics` matrix is the mean
/// of each column, row 1 the reciprocal of its deviation; row 0 of a `running` matrix is the running mean, row 1 the
/// running variance.
pub trait NormalizeOperators: Storage {
    /// `y = x_factor · (1 + epsilon) · x_scale · x + y_factor · y`, the scale by rows, rounded once.
    ///
    /// # Errors
    /// Those of the device.
    fn combine<E: Element>(
        &self,
        operands: Checked<CombineOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The statistics of the columns of `x`, which has a row at least, and the running statistics carried on.
    ///
    /// # Errors
    /// Those of the device.
    fn batch_statistics<E: Element>(
        &self,
        operands: Checked<BatchStatisticsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The statistics that the running ones stand for.
    ///
    /// # Errors
    /// Those of the device.
    fn running_statistics(
        &self,
        operands: Checked<RunningStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error>;

    /// `y = relu(weight · (x − mean) / deviation + bias)`, the ReLU where `op` has it.
    ///
    /// # Errors
    /// Those of the device.
    fn normalize<E: Element>(
        &self,
        operands: Checked<NormalizeOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of [`NormalizeOperators::normalize`] with the statistics of `x` itself, in place: `d` holds dL/dy and
    /// becomes dL/dx, each row times its factor in `gradients`.
    ///
    /// # Errors
    /// Those of the device.
    fn normalize_backward<E: Element>(
        &self,
        operands: Checked<NormalizeBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// `factor` times the sum of the products of all elements, in float and in a fixed order, as a matrix of one element.
    ///
    /// # Errors
    /// Those of the device.
    fn dot<E: Element>(&self, operands: Checked<DotOperands<'_, Self, E>>) -> Result<(), Error>;
}

/// Factors of a weighted sum of two matrices.
#[derive(Debug)]
pub struct Combine<'a, B: Storage> {
    /// Factor of `x`.
    pub x_factor: f32,
    /// Another factor of `x`, less 1: a matrix of one element; 0 where absent.
    pub epsilon: Option<&'a Matrix<B, f32>>,
    /// Factor of each row of `x`; 1 where absent.
    pub x_scale: Option<&'a Array<B, f32>>,
    /// Factor of `y`; where it is 0, `y` is written and not read.
    pub y_factor: f32,
}

impl<B: Storage> Combine<'_, B> {
    /// `x + y`.
    pub const fn sum() -> Self {
        Self {
            x_factor: 1.0,
            epsilon: None,
            x_scale: None,
            y_factor: 1.0,
        }
    }

    /// `x`.
    pub const fn copy() -> Self {
        Self {
            y_factor: 0.0,
            ..Self::sum()
        }
    }
}

/// How a batch normalisation takes its statistics.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchNorm {
    /// Added to a variance before its root is taken.
    pub epsilon: f32,
    /// Weight of a batch in the running statistics.
    pub momentum: f32,
}

impl Default for BatchNorm {
    /// Those of PyTorch's `BatchNorm1d`.
    fn default() -> Self {
        Self {
            epsilon: 1e-5,
            momentum: 0.1,
        }
    }
}

/// A batch normalisation whose statistics are known.
#[derive(Debug)]
pub struct Normalization<'a, B: Storage> {
    /// Mean and reciprocal deviation of each column: 2 × N.
    pub statistics: &'a Matrix<B, f32>,
    /// Scale of each column: 1 × N.
    pub weight: &'a Matrix<B, f32>,
    /// Shift of each column: 1 × N.
    pub bias: &'a Matrix<B, f32>,
    /// Whether negative results become zero.
    pub relu: bool,
}

/// The gradients of a batch normalisation: where those of its parameters go, and what that of its input is multiplied by
/// before it is rounded.
#[derive(Debug)]
pub struct NormalizationGradients<'a, B: Storage> {
    /// Of the scales: 1 × N.
    pub weight: &'a mut Matrix<B, f32>,
    /// Of the shifts: 1 × N.
    pub bias: &'a mut Matrix<B, f32>,
    /// Factor of the input's.
    pub scale: f32,
    /// Another of each of its rows; 1 where absent.
    pub row_scale: Option<&'a Array<B, f32>>,
}
