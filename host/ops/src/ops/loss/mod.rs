//! The loss, its gradient, and how many rows are right.

mod check;
mod cpu;
mod gpu;

use super::{Checked, OptimizerState};
use crate::backend::Storage;
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};

/// Mean cross-entropy of the log-softmax of the rows that have a target, and its gradient times the loss scale.
///
/// `targets` holds a class or [`NO_TARGET`] for each row; `count` of them are classes, all
/// below the columns of `logits`. `loss` is one float, not scaled.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where there are no classes or no row has a
/// target.
pub fn cross_entropy<B: LossOperators, E: Element>(
    backend: &B,
    logits: &Matrix<B, E>,
    targets: &Array<B, u32>,
    count: usize,
    state: &OptimizerState<B>,
    gradient: &mut Matrix<B, E>,
    loss: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = CrossEntropyOperands {
        logits,
        targets,
        count,
        state,
        gradient,
        loss,
    };
    backend.cross_entropy(Checked::new(operands)?)
}

/// In a target or split array: this row is not selected.
pub const NO_TARGET: u32 = u32::MAX;

/// Operands of [`cross_entropy`].
#[derive(Debug)]
pub struct CrossEntropyOperands<'a, B: Storage, E: Element> {
    /// The logits, a row a vertex.
    pub logits: &'a Matrix<B, E>,
    /// A class a row, or none.
    pub targets: &'a Array<B, u32>,
    /// Rows that have a class.
    pub count: usize,
    /// Holds the loss scale.
    pub state: &'a OptimizerState<B>,
    /// Becomes the gradient of the logits.
    pub gradient: &'a mut Matrix<B, E>,
    /// Becomes the loss.
    pub loss: &'a mut Array<B, f32>,
}

/// How many rows of each of three splits have their largest logit at their label.
///
/// `splits` holds 0, 1, 2 or [`NO_TARGET`] for each row; `correct` is three counts.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where there are no classes.
pub fn count_correct<B: LossOperators, E: Element>(
    backend: &B,
    logits: &Matrix<B, E>,
    labels: &Array<B, u32>,
    splits: &Array<B, u32>,
    correct: &mut Array<B, u32>,
) -> Result<(), Error> {
    let operands = CountCorrectOperands {
        logits,
        labels,
        splits,
        correct,
    };
    backend.count_correct(Checked::new(operands)?)
}

/// Operands of [`count_correct`].
#[derive(Debug)]
pub struct CountCorrectOperands<'a, B: Storage, E: Element> {
    /// The logits, a row a vertex.
    pub logits: &'a Matrix<B, E>,
    /// A class a row.
    pub labels: &'a Array<B, u32>,
    /// A split a row, or none.
    pub splits: &'a Array<B, u32>,
    /// Become the three counts.
    pub correct: &'a mut Array<B, u32>,
}

/// What is computed from logits.
pub trait LossOperators: Storage {
    /// Log-softmax and cross-entropy over the rows whose target is not [`NO_TARGET`], averaged over `count` of them,
    /// and its gradient times the loss scale of `state`. Rows without a target get a zero gradient.
    ///
    /// # Errors
    /// Those of the device.
    fn cross_entropy<E: Element>(
        &self,
        operands: Checked<CrossEntropyOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// How many rows of each split have their largest logit at their label. `splits` holds 0, 1 or 2 for each row, or
    /// [`NO_TARGET`]; ties go to the lowest class, and a row with a NaN is never right.
    ///
    /// # Errors
    /// Those of the device.
    fn count_correct<E: Element>(
        &self,
        operands: Checked<CountCorrectOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
