//! Losses, their gradients, and what is right and wrong.
//!
//! | loss | torch's | targets | divided by |
//! |---|---|---|---|
//! | [`cross_entropy`] | `CrossEntropyLoss` | a class a row | rows with a target |
//! | [`weighted_cross_entropy`] | `CrossEntropyLoss(weight=…)` | a class a row | the sum of their weights |
//! | [`ElementLoss::BinaryCrossEntropy`] | `BCEWithLogitsLoss(pos_weight=…)` | 0 to 1 an element | elements |
//! | [`ElementLoss::SquaredError`] | `MSELoss` | a number an element | elements |
//! | [`ElementLoss::AbsoluteError`] | `L1Loss` | a number an element | elements |

mod check;
mod cpu;
mod elements;
mod gpu;

pub use elements::{
    CountLabelsOperands, ElementLoss, ElementLossOperands, count_labels, element_loss,
    element_loss_of,
};

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
        weights: None,
        row_weights: None,
        divisor: count as f32,
        state,
        gradient,
        loss,
    };
    backend.cross_entropy(Checked::new(operands)?)
}

/// [`cross_entropy`] whose rows count as much as `weights` says of their class: the sum of the weighted losses, divided
/// by `total`, the sum of the weights of the rows that have a target.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where there are no classes or `total` is not
/// positive.
#[allow(clippy::too_many_arguments)] // those of the loss without weights, and the weights
pub fn weighted_cross_entropy<B: LossOperators, E: Element>(
    backend: &B,
    logits: &Matrix<B, E>,
    targets: &Array<B, u32>,
    weights: &Array<B, f32>,
    total: f32,
    state: &OptimizerState<B>,
    gradient: &mut Matrix<B, E>,
    loss: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = CrossEntropyOperands {
        logits,
        targets,
        weights: Some(weights),
        row_weights: None,
        divisor: total,
        state,
        gradient,
        loss,
    };
    backend.cross_entropy(Checked::new(operands)?)
}

/// [`cross_entropy`] of all that [`CrossEntropyOperands`] say, such as weights of rows.
///
/// # Errors
/// Those of [`weighted_cross_entropy`], and [`Error::Shape`] where there is not a weight for each row.
pub fn cross_entropy_of<B: LossOperators, E: Element>(
    backend: &B,
    operands: CrossEntropyOperands<'_, B, E>,
) -> Result<(), Error> {
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
    /// A factor of the rows of each class; 1 where there are none.
    pub weights: Option<&'a Array<B, f32>>,
    /// A factor of each row; 1 where there are none.
    pub row_weights: Option<&'a Array<B, f32>>,
    /// What the sum of the losses is divided by: the rows that have a class, or the sum of their weights.
    pub divisor: f32,
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

/// Of each split and class, how many rows have the class predicted rightly, predicted wrongly, and are of it without
/// the prediction.
///
/// `splits` holds 0, 1 or 2 for each row, or [`NO_TARGET`]. `counts` has `3 · classes · 3` words: of each split, of
/// each class, true positives, false positives and false negatives. What is predicted of a row is the first class of
/// its largest logit, and nothing where there is a NaN.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where there are no classes.
pub fn count_classes<B: LossOperators, E: Element>(
    backend: &B,
    logits: &Matrix<B, E>,
    labels: &Array<B, u32>,
    splits: &Array<B, u32>,
    counts: &mut Array<B, u32>,
) -> Result<(), Error> {
    let operands = CountClassesOperands {
        logits,
        labels,
        splits,
        counts,
    };
    backend.count_classes(Checked::new(operands)?)
}

/// Operands of [`count_classes`].
#[derive(Debug)]
pub struct CountClassesOperands<'a, B: Storage, E: Element> {
    /// The logits, a row a vertex.
    pub logits: &'a Matrix<B, E>,
    /// A class a row.
    pub labels: &'a Array<B, u32>,
    /// A split a row, or none.
    pub splits: &'a Array<B, u32>,
    /// Become the counts.
    pub counts: &'a mut Array<B, u32>,
}

/// Words of the counts of one split and column: true positives, false positives, false negatives.
pub const OUTCOMES: usize = halfgnn_contract::loss::OUTCOMES as usize;

/// What is computed from logits.
pub trait LossOperators: Storage {
    /// Log-softmax and cross-entropy over the rows whose target is not [`NO_TARGET`], times their weights and divided
    /// by `divisor`, and its gradient times the loss scale of `state`. Rows without a target get a zero gradient.
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

    /// A loss of each element of the rows whose word is not [`NO_TARGET`], divided by `divisor`, and its gradient times
    /// the loss scale of `state`. Other rows get a zero gradient.
    ///
    /// # Errors
    /// Those of the device.
    fn element_loss<E: Element>(
        &self,
        operands: Checked<ElementLossOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Right and wrong answers by split and class: see [`count_classes`].
    ///
    /// # Errors
    /// Those of the device.
    fn count_classes<E: Element>(
        &self,
        operands: Checked<CountClassesOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Right and wrong answers by split and label: see [`count_labels`].
    ///
    /// # Errors
    /// Those of the device.
    fn count_labels<E: Element>(
        &self,
        operands: Checked<CountLabelsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
