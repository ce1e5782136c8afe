//! Sums of errors, of which the metrics of regression are made.

use super::MetricsOperators;
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Array, Element, Matrix};

/// Sums of a column and split: of absolute errors, and of squared ones.
pub const ERRORS: usize = halfgnn_contract::metrics::ERRORS as usize;

/// Of each column and split the sums of `|x - y|` and of `(x - y)²`, of predictions `x` and targets `y`, in double.
///
/// `splits` holds 0, 1 or 2 for each row, or [`NO_TARGET`](crate::ops::NO_TARGET). `sums` has `columns · 3 · 2`
/// numbers: of each column, of each split, that of absolute errors and that of squared ones. They are added up in one
/// order, that of the rows, so the bits are the same on every backend.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn sum_errors<B: MetricsOperators, E: Element>(
    backend: &B,
    predictions: &Matrix<B, E>,
    targets: &Matrix<B, f32>,
    splits: &Array<B, u32>,
    sums: &mut Array<B, f64>,
) -> Result<(), Error> {
    let operands = SumErrorsOperands {
        predictions,
        targets,
        splits,
        sums,
    };
    backend.sum_errors(Checked::new(operands)?)
}

/// Operands of [`sum_errors`].
#[derive(Debug)]
pub struct SumErrorsOperands<'a, B: Storage, E: Element> {
    /// What a model gives, a row a vertex.
    pub predictions: &'a Matrix<B, E>,
    /// What it should give.
    pub targets: &'a Matrix<B, f32>,
    /// A split a row, or none.
    pub splits: &'a Array<B, u32>,
    /// Become the sums.
    pub sums: &'a mut Array<B, f64>,
}
