//! Batch normalisation, and weighted sums of two matrices.

use super::{expect_len, expect_shape};
use crate::backend::{Backend, BatchNorm, Combine, Normalization, NormalizationGradients};
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
    const NAME: &str = "combine";
    expect_shape(NAME, ["rows of y", "columns of y"], x.shape(), y)?;
    if let Some(epsilon) = op.epsilon {
        let what = ["rows of epsilon", "columns of epsilon"];
        expect_shape(NAME, what, (1, 1), epsilon)?;
    }
    expect_len(NAME, "row factors", x.rows(), op.x_scale)?;
    backend.combine(op, x, y)
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
    const NAME: &str = "batch_statistics";
    if x.rows() == 0 {
        return Err(Error::Unsupported {
            operator: NAME,
            reason: "a matrix without rows has no mean".into(),
        });
    }
    let running_what = [
        "rows of the running statistics",
        "columns of the running statistics",
    ];
    expect_shape(NAME, running_what, (2, x.columns()), running)?;
    expect_shape(NAME, STATISTICS, (2, x.columns()), statistics)?;
    backend.batch_statistics(op, x, running, statistics)
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
    const NAME: &str = "running_statistics";
    Error::expect(NAME, "rows of the running statistics", 2, running.rows())?;
    expect_shape(NAME, STATISTICS, running.shape(), statistics)?;
    backend.running_statistics(op, running, statistics)
}

/// Checks that a normalisation is of `columns` columns.
pub(super) fn check<B: Backend>(
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
    const NAME: &str = "normalize";
    expect_shape(NAME, ["rows of y", "columns of y"], x.shape(), y)?;
    check(NAME, op, x.columns())?;
    backend.normalize(op, x, y)
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
    const NAME: &str = "normalize_backward";
    expect_shape(NAME, ["rows of d", "columns of d"], x.shape(), d)?;
    check(NAME, op, x.columns())?;
    let row = (1, x.columns());
    let weight = [
        "rows of the scales' gradient",
        "columns of the scales' gradient",
    ];
    expect_shape(NAME, weight, row, gradients.weight)?;
    let bias = [
        "rows of the shifts' gradient",
        "columns of the shifts' gradient",
    ];
    expect_shape(NAME, bias, row, gradients.bias)?;
    expect_len(NAME, "row factors", x.rows(), gradients.row_scale)?;
    backend.normalize_backward(op, x, d, gradients)
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
    const NAME: &str = "dot";
    expect_shape(NAME, ["rows of y", "columns of y"], x.shape(), y)?;
    expect_shape(
        NAME,
        ["rows of the result", "columns of the result"],
        (1, 1),
        result,
    )?;
    backend.dot(factor, x, y, result)
}
