//! Batch normalisation, and weighted sums of two matrices.

pub(crate) mod check;
pub(crate) mod cpu;
pub(crate) mod gpu;

use super::{Checked, Coding};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::expect_shape;
use crate::tensor::{Array, Element, Matrix};

/// `y[i] = x_factor · (1 + epsilon) · x_scale[i] · x[i] + y_factor · y[i]`, computed in float and rounded once.
///
/// # Errors
/// [`Error::Shape`] where `x` and `y` differ in shape, `epsilon` is not 1 × 1, or there is not a factor for each row.
pub fn combine<B: NormalizeOperators, E: Element>(
    backend: &B,
    op: &Combine<'_, B>,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    expect_shape(
        CombineOperands::<B, E>::NAME,
        ["rows of y", "columns of y"],
        x.shape(),
        y,
    )?;
    combine_rows(backend, x.rows(), op, x, y)
}

/// [`combine`] of the first `rows` rows of both matrices, of which either may have more: those are neither read nor
/// written. In a [block](crate::graph::Block) they are the rows of the destinations.
///
/// # Errors
/// [`Error::Shape`] where a matrix has fewer rows or they differ in columns, `epsilon` is not 1 × 1, or there is not a
/// factor for each row.
pub fn combine_rows<B: NormalizeOperators, E: Element>(
    backend: &B,
    rows: usize,
    op: &Combine<'_, B>,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = CombineOperands { rows, op, x, y };
    backend.combine(Checked::new(operands)?)
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

/// Operands of [`combine_rows`].
#[derive(Debug)]
pub struct CombineOperands<'a, B: Storage, E: Element> {
    /// How many rows, from the first on.
    pub rows: usize,
    /// The factors.
    pub op: &'a Combine<'a, B>,
    /// The first matrix.
    pub x: &'a Matrix<B, E>,
    /// The second, which becomes the sum.
    pub y: &'a mut Matrix<B, E>,
}

/// Mean and deviation of each column of `x`, in float, for [`normalize`]; and the running mean and variance carried on,
/// unless the new ones are not finite. Both are matrices of two rows.
///
/// # Errors
/// [`Error::Shape`] where the statistics do not fit, [`Error::Unsupported`] where `x` has no rows, and so no mean.
pub fn batch_statistics<B: NormalizeOperators, E: Element>(
    backend: &B,
    op: &BatchNorm,
    x: &Matrix<B, E>,
    running: &mut Matrix<B, f32>,
    statistics: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    let operands = BatchStatisticsOperands {
        op,
        x,
        running,
        statistics,
    };
    backend.batch_statistics(Checked::new(operands)?)
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

/// Operands of [`batch_statistics`].
#[derive(Debug)]
pub struct BatchStatisticsOperands<'a, B: Storage, E: Element> {
    /// How they are taken.
    pub op: &'a BatchNorm,
    /// What they are taken of.
    pub x: &'a Matrix<B, E>,
    /// The running mean and variance, carried on.
    pub running: &'a mut Matrix<B, f32>,
    /// Become mean and reciprocal deviation.
    pub statistics: &'a mut Matrix<B, f32>,
}

/// The statistics for [`normalize`] that a running mean and variance stand for.
///
/// # Errors
/// [`Error::Shape`] where one of them has not two rows, or they differ in columns.
pub fn running_statistics<B: NormalizeOperators>(
    backend: &B,
    op: &BatchNorm,
    running: &Matrix<B, f32>,
    statistics: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    let operands = RunningStatisticsOperands {
        op,
        running,
        statistics,
    };
    backend.running_statistics(Checked::new(operands)?)
}

/// Operands of [`running_statistics`].
#[derive(Debug)]
pub struct RunningStatisticsOperands<'a, B: Storage> {
    /// How they are taken.
    pub op: &'a BatchNorm,
    /// The running mean and variance.
    pub running: &'a Matrix<B, f32>,
    /// Become mean and reciprocal deviation.
    pub statistics: &'a mut Matrix<B, f32>,
}

/// The statistics for [`normalize`] of a batch whose rows lie in parts, from what [`batch_statistics`] says of each:
/// put together in double and in the order of the parts (Chan, Golub and LeVeque, The American Statistician 37, 1983),
/// and the running ones carried on by them as by a whole batch.
///
/// # Errors
/// [`Error::Shape`] where there are not two rows of moments and two of deviations for each part, or the statistics do
/// not fit.
pub fn merge_statistics<B: NormalizeOperators>(
    backend: &B,
    op: &BatchNorm,
    parts: StatisticsOfParts<'_, B>,
    running: Option<&mut Matrix<B, f32>>,
    statistics: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    let operands = MergeStatisticsOperands {
        op,
        parts,
        running,
        statistics,
    };
    backend.merge_statistics(Checked::new(operands)?)
}

/// What is known of each part of a batch: rows of matrices with as many columns, one part behind the other.
#[derive(Debug)]
pub struct StatisticsOfParts<'a, B: Storage> {
    /// Rows of each; what stands of a part without any is not looked at.
    pub counts: &'a Array<B, u32>,
    /// Mean and unbiased variance: running statistics that were carried on with momentum 1.
    pub moments: &'a Array<B, f32>,
    /// Mean and reciprocal deviation; where they are not finite, those of the batch are not.
    pub deviations: &'a Array<B, f32>,
}

/// Operands of [`merge_statistics`].
#[derive(Debug)]
pub struct MergeStatisticsOperands<'a, B: Storage> {
    /// How they are taken.
    pub op: &'a BatchNorm,
    /// What is put together.
    pub parts: StatisticsOfParts<'a, B>,
    /// The running mean and variance, if they are carried on.
    pub running: Option<&'a mut Matrix<B, f32>>,
    /// Become mean and reciprocal deviation.
    pub statistics: &'a mut Matrix<B, f32>,
}

/// Batch normalisation (Ioffe and Szegedy, ICML 2015): `y = relu(weight · (x − mean) / deviation + bias)`, the ReLU
/// where `op` has it; computed in float and rounded once.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn normalize<B: NormalizeOperators, E: Element>(
    backend: &B,
    op: &Normalization<'_, B>,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = NormalizeOperands { op, x, y };
    backend.normalize(Checked::new(operands)?)
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

/// Operands of [`normalize`].
#[derive(Debug)]
pub struct NormalizeOperands<'a, B: Storage, E: Element> {
    /// Statistics, scales and shifts.
    pub op: &'a Normalization<'a, B>,
    /// The input.
    pub x: &'a Matrix<B, E>,
    /// Becomes the output.
    pub y: &'a mut Matrix<B, E>,
}

/// The gradient of [`normalize`] with the statistics of `x` itself, in place: `d` holds dL/dy and becomes dL/dx, times
/// [`NormalizationGradients::scale`] and each row's factor. The sums that it takes are the gradients of scales and
/// shifts.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn normalize_backward<B: NormalizeOperators, E: Element>(
    backend: &B,
    op: &Normalization<'_, B>,
    x: &Matrix<B, E>,
    d: &mut Matrix<B, E>,
    gradients: NormalizationGradients<'_, B>,
) -> Result<(), Error> {
    let operands = NormalizeBackwardOperands {
        op,
        x,
        d,
        gradients,
    };
    backend.normalize_backward(Checked::new(operands)?)
}

/// The first half of [`normalize_backward`]: only the gradients of scales and shifts, which are sums over the rows of
/// `x`. Of rows that are a part of a batch they are terms, to be added up before [`normalize_backward_of`] has them.
///
/// # Errors
/// Those of [`normalize_backward`].
pub fn normalization_sums<B: NormalizeOperators, E: Element>(
    backend: &B,
    op: &Normalization<'_, B>,
    x: &Matrix<B, E>,
    d: &mut Matrix<B, E>,
    gradients: NormalizationGradients<'_, B>,
) -> Result<(), Error> {
    let operands = NormalizeBackwardOperands {
        op,
        x,
        d,
        gradients,
    };
    backend.normalization_sums(Checked::new(operands)?)
}

/// The second half of [`normalize_backward`]: `d` becomes dL/dx by the sums that `gradients` hold, which are read.
/// Their means are taken over the rows of `x`: sums over a batch that `x` is a part of are multiplied before by its
/// share of the rows.
///
/// # Errors
/// Those of [`normalize_backward`].
pub fn normalize_backward_of<B: NormalizeOperators, E: Element>(
    backend: &B,
    op: &Normalization<'_, B>,
    x: &Matrix<B, E>,
    d: &mut Matrix<B, E>,
    gradients: NormalizationGradients<'_, B>,
) -> Result<(), Error> {
    let operands = NormalizeBackwardOperands {
        op,
        x,
        d,
        gradients,
    };
    backend.normalize_backward_of(Checked::new(operands)?)
}

/// The gradients of a batch normalisation: where those of its parameters go, and what that of its input is multiplied
/// by before it is rounded.
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
    /// 8-bit values of the input's, made where it is written: by all but [`normalization_sums`], which does not come to
    /// it.
    pub coding: Option<Coding<'a, B>>,
}

/// Operands of [`normalize_backward`].
#[derive(Debug)]
pub struct NormalizeBackwardOperands<'a, B: Storage, E: Element> {
    /// Statistics, scales and shifts.
    pub op: &'a Normalization<'a, B>,
    /// The input of the forward pass.
    pub x: &'a Matrix<B, E>,
    /// The gradient, in place.
    pub d: &'a mut Matrix<B, E>,
    /// Where those of scales and shifts go.
    pub gradients: NormalizationGradients<'a, B>,
}

/// `factor · Σ x[i, j] · y[i, j]` over all elements, in float and in a fixed order: the gradient of a factor.
///
/// # Errors
/// [`Error::Shape`] where `x` and `y` differ in shape or the result is not 1 × 1.
pub fn dot<B: NormalizeOperators, E: Element>(
    backend: &B,
    factor: f32,
    x: &Matrix<B, E>,
    y: &Matrix<B, E>,
    result: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    let operands = DotOperands {
        factor,
        x,
        y,
        result,
    };
    backend.dot(Checked::new(operands)?)
}

/// Operands of [`dot`].
#[derive(Debug)]
pub struct DotOperands<'a, B: Storage, E: Element> {
    /// Factor of the sum.
    pub factor: f32,
    /// The first matrix.
    pub x: &'a Matrix<B, E>,
    /// The second.
    pub y: &'a Matrix<B, E>,
    /// Becomes the sum, 1 × 1.
    pub result: &'a mut Matrix<B, f32>,
}

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

    /// The statistics of a batch from those of its parts.
    ///
    /// # Errors
    /// Those of the device.
    fn merge_statistics(
        &self,
        operands: Checked<MergeStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error>;

    /// `y = relu(weight · (x − mean) / deviation + bias)`, the ReLU where `op` has it.
    ///
    /// # Errors
    /// Those of the device.
    fn normalize<E: Element>(
        &self,
        operands: Checked<NormalizeOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of [`NormalizeOperators::normalize`] with the statistics of `x` itself, in place: `d` holds dL/dy
    /// and becomes dL/dx, each row times its factor in `gradients`.
    ///
    /// # Errors
    /// Those of the device.
    fn normalize_backward<E: Element>(
        &self,
        operands: Checked<NormalizeBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradients of scales and shifts alone.
    ///
    /// # Errors
    /// Those of the device.
    fn normalization_sums<E: Element>(
        &self,
        operands: Checked<NormalizeBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of the input from those of scales and shifts.
    ///
    /// # Errors
    /// Those of the device.
    fn normalize_backward_of<E: Element>(
        &self,
        operands: Checked<NormalizeBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// `factor` times the sum of the products of all elements, in float and in a fixed order, as a matrix of one
    /// element.
    ///
    /// # Errors
    /// Those of the device.
    fn dot<E: Element>(&self, operands: Checked<DotOperands<'_, Self, E>>) -> Result<(), Error>;
}
