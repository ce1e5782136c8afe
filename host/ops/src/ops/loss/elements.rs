//! Losses of single elements, of multi-label tasks and regression, and counts of labels.

use super::LossOperators;
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::{Checked, OptimizerState};
use crate::tensor::{Array, Element, Matrix};

/// What an element costs that should be another; `x` is what the model gives, `y` the target.
#[derive(Debug)]
#[non_exhaustive]
pub enum ElementLoss<'a, B: Storage> {
    /// `(1 - y) · x + (1 + (w - 1) · y) · ln(1 + e⁻ˣ)` with the column's `w`, 1 where there are none: binary
    /// cross-entropy of the sigmoid of `x`.
    BinaryCrossEntropy {
        /// What the term of targets of 1 counts, by column.
        positive_weights: Option<&'a Array<B, f32>>,
    },
    /// `(x - y)²`.
    SquaredError,
    /// `|x - y|`; its slope is 0 where they are equal.
    AbsoluteError,
}

impl<B: Storage> Clone for ElementLoss<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage> Copy for ElementLoss<'_, B> {}

/// Mean loss of the elements of the rows that are selected, and its gradient times the loss scale.
///
/// `targets` has the shape of `logits`. A row is selected where its word in `rows` is not
/// [`NO_TARGET`](super::NO_TARGET); `count` are. What is not selected gets a zero gradient. `loss` is one float, not
/// scaled.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where there are no columns or no row is
/// selected.
#[allow(clippy::too_many_arguments)] // those of a cross-entropy, and which loss
pub fn element_loss<B: LossOperators, E: Element>(
    backend: &B,
    kind: ElementLoss<'_, B>,
    logits: &Matrix<B, E>,
    targets: &Matrix<B, f32>,
    rows: &Array<B, u32>,
    count: usize,
    state: &OptimizerState<B>,
    gradient: &mut Matrix<B, E>,
    loss: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = ElementLossOperands {
        kind,
        logits,
        targets,
        rows,
        row_weights: None,
        divisor: count as f32 * logits.columns() as f32,
        state,
        gradient,
        loss,
    };
    backend.element_loss(Checked::new(operands)?)
}

/// [`element_loss`] of all that [`ElementLossOperands`] say, such as weights of rows.
///
/// # Errors
/// Those of [`element_loss`], and [`Error::Shape`] where there is not a weight for each row.
pub fn element_loss_of<B: LossOperators, E: Element>(
    backend: &B,
    operands: ElementLossOperands<'_, B, E>,
) -> Result<(), Error> {
    backend.element_loss(Checked::new(operands)?)
}

/// Operands of [`element_loss`].
#[derive(Debug)]
pub struct ElementLossOperands<'a, B: Storage, E: Element> {
    /// Which loss.
    pub kind: ElementLoss<'a, B>,
    /// What the model gives, a row a vertex.
    pub logits: &'a Matrix<B, E>,
    /// What it should give.
    pub targets: &'a Matrix<B, f32>,
    /// Which rows are selected.
    pub rows: &'a Array<B, u32>,
    /// A factor of each row; 1 where there are none.
    pub row_weights: Option<&'a Array<B, f32>>,
    /// Elements that are selected, by which the sum of the losses is divided.
    pub divisor: f32,
    /// Holds the loss scale.
    pub state: &'a OptimizerState<B>,
    /// Becomes the gradient.
    pub gradient: &'a mut Matrix<B, E>,
    /// Becomes the loss.
    pub loss: &'a mut Array<B, f32>,
}

/// [`count_classes`](super::count_classes) where a row has any number of labels: one is predicted where its logit is
/// above 0, and the row has it where its target is above a half.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where there are no columns.
pub fn count_labels<B: LossOperators, E: Element>(
    backend: &B,
    logits: &Matrix<B, E>,
    targets: &Matrix<B, f32>,
    splits: &Array<B, u32>,
    counts: &mut Array<B, u32>,
) -> Result<(), Error> {
    let operands = CountLabelsOperands {
        logits,
        targets,
        splits,
        counts,
    };
    backend.count_labels(Checked::new(operands)?)
}

/// Operands of [`count_labels`].
#[derive(Debug)]
pub struct CountLabelsOperands<'a, B: Storage, E: Element> {
    /// The logits, a row a vertex.
    pub logits: &'a Matrix<B, E>,
    /// Which labels each row has.
    pub targets: &'a Matrix<B, f32>,
    /// A split a row, or none.
    pub splits: &'a Array<B, u32>,
    /// Become the counts.
    pub counts: &'a mut Array<B, u32>,
}
