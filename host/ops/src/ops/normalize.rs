//! Batch normalisation, and weighted sums of two matrices.

use super::{Checked, Operator, expect_len, expect_shape};
use crate::backend::{Backend, BatchNorm, Combine, Normalization, NormalizationGradients, Storage};
use crate::error::Error;
use crate::tensor::{Element, Matrix};

/// `y[i] = x_factor · (1 + epsilon) · x_scale[i] · x[i] + y_factor · y[i]`, computed in float and rounded once.
///
/// # Errors
/// [`Error::Shape`] where `x` and `y` differ in shape, `epsilon` is not 1 × 1, or there is not a factor for each row.
pub fn combine<B: Backend, E: Element>(
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

/// [`combine`] of the first `rows` rows of both matrices, of which either may have more: those are neither read nor written.
/// In a [block](crate::graph::Block) they are the rows of the destinations.
///
/// # Errors
/// [`Error::Shape`] where a matrix has fewer rows or they differ in columns, `epsilon` is not 1 × 1, or there is not a factor
/// for each row.
pub fn combine_rows<B: Backend, E: Element>(
    backend: &B,
    rows: usize,
    op: &Combine<'_, B>,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = CombineOperands { rows, op, x, y };
    backend.combine(Checked::new(operands)?)
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

impl<B: Storage, E: Element> Operator for CombineOperands<'_, B, E> {
    const NAME: &'static str = "combine";

    fn check(&self) -> Result<(), Error> {
        let CombineOperands { rows, op, x, y } = self;
        for (operand, matrix) in [("rows of x", *x), ("rows of y", &**y)] {
            Error::expect(Self::NAME, operand, *rows, matrix.rows().min(*rows))?;
        }
        Error::expect(Self::NAME, "columns of y", x.columns(), y.columns())?;
        if let Some(epsilon) = op.epsilon {
            let what = ["rows of epsilon", "columns of epsilon"];
            expect_shape(Self::NAME, what, (1, 1), epsilon)?;
        }
        expect_len(Self::NAME, "row factors", *rows, op.x_scale)?;
        Ok(())
    }
}

/// Mean and deviation of each column of `x`, in float, for [`normalize`]; and the running mean and variance carried on,
/// unless the new ones are not finite. Both are matrices of two rows.
///
/// # Errors
/// [`Error::Shape`] where the statistics do not fit, [`Error::Unsupported`] where `x` has no rows, and so no mean.
pub fn batch_statistics<B: Backend, E: Element>(
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

impl<B: Storage, E: Element> Operator for BatchStatisticsOperands<'_, B, E> {
    const NAME: &'static str = "batch_statistics";

    fn check(&self) -> Result<(), Error> {
        let BatchStatisticsOperands {
            x,
            running,
            statistics,
            ..
        } = self;
        if x.rows() == 0 {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "a matrix without rows has no mean".into(),
            });
        }
        let running_what = [
            "rows of the running statistics",
            "columns of the running statistics",
        ];
        expect_shape(Self::NAME, running_what, (2, x.columns()), running)?;
        expect_shape(Self::NAME, STATISTICS, (2, x.columns()), statistics)?;
        Ok(())
    }
}

const STATISTICS: [&str; 2] = ["rows of the statistics", "columns of the statistics"];

/// The statistics for [`normalize`] that a running mean and variance stand for.
///
/// # Errors
/// [`Error::Shape`] where one of them has not two rows, or they differ in columns.
pub fn running_statistics<B: Backend>(
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

impl<B: Storage> Operator for RunningStatisticsOperands<'_, B> {
    const NAME: &'static str = "running_statistics";

    fn check(&self) -> Result<(), Error> {
        let RunningStatisticsOperands {
            running,
            statistics,
            ..
        } = self;
        Error::expect(
            Self::NAME,
            "rows of the running statistics",
            2,
            running.rows(),
        )?;
        expect_shape(Self::NAME, STATISTICS, running.shape(), statistics)?;
        Ok(())
    }
}

/// Checks that a normalisation is of `columns` columns.
pub(super) fn check<B: Storage>(
    operator: &'static str,
    op: &Normalization<'_, B>,
    columns: usize,
) -> Result<(), Error> {
    expect_shape(operator, STATISTICS, (2, columns), op.statistics)?;
    let weight = ["rows of the scales", "columns of the scales"];
    expect_shape(operator, weight, (1, columns), op.weight)?;
    let bias = ["rows of the shifts", "columns of the shifts"];
    expect_shape(operator, bias, (1, columns), op.bias)
}

/// Batch normalisation (Ioffe and Szegedy, ICML 2015): `y = relu(weight · (x − mean) / deviation + bias)`, the ReLU where
/// `op` has it; computed in float and rounded once.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn normalize<B: Backend, E: Element>(
    backend: &B,
    op: &Normalization<'_, B>,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = NormalizeOperands { op, x, y };
    backend.normalize(Checked::new(operands)?)
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

impl<B: Storage, E: Element> Operator for NormalizeOperands<'_, B, E> {
    const NAME: &'static str = "normalize";

    fn check(&self) -> Result<(), Error> {
        let NormalizeOperands { op, x, y } = self;
        expect_shape(Self::NAME, ["rows of y", "columns of y"], x.shape(), y)?;
        check(Self::NAME, op, x.columns())?;
        Ok(())
    }
}

/// The gradient of [`normalize`] with the statistics of `x` itself, in place: `d` holds dL/dy and becomes dL/dx, times
/// [`NormalizationGradients::scale`] and each row's factor. The sums that it takes are the gradients of scales and shifts.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn normalize_backward<B: Backend, E: Element>(
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

impl<B: Storage, E: Element> Operator for NormalizeBackwardOperands<'_, B, E> {
    const NAME: &'static str = "normalize_backward";

    fn check(&self) -> Result<(), Error> {
        let NormalizeBackwardOperands {
            op,
            x,
            d,
            gradients,
        } = self;
        expect_shape(Self::NAME, ["rows of d", "columns of d"], x.shape(), d)?;
        check(Self::NAME, op, x.columns())?;
        let row = (1, x.columns());
        let weight = [
            "rows of the scales' gradient",
            "columns of the scales' gradient",
        ];
        expect_shape(Self::NAME, weight, row, gradients.weight)?;
        let bias = [
            "rows of the shifts' gradient",
            "columns of the shifts' gradient",
        ];
        expect_shape(Self::NAME, bias, row, gradients.bias)?;
        expect_len(Self::NAME, "row factors", x.rows(), gradients.row_scale)?;
        Ok(())
    }
}

/// `factor · Σ x[i, j] · y[i, j]` over all elements, in float and in a fixed order: the gradient of a factor.
///
/// # Errors
/// [`Error::Shape`] where `x` and `y` differ in shape or the result is not 1 × 1.
pub fn dot<B: Backend, E: Element>(
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

impl<B: Storage, E: Element> Operator for DotOperands<'_, B, E> {
    const NAME: &'static str = "dot";

    fn check(&self) -> Result<(), Error> {
        let DotOperands { x, y, result, .. } = self;
        expect_shape(Self::NAME, ["rows of y", "columns of y"], x.shape(), y)?;
        expect_shape(
            Self::NAME,
            ["rows of the result", "columns of the result"],
            (1, 1),
            result,
        )?;
        Ok(())
    }
}
