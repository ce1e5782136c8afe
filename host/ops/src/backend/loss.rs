//! The loss, its gradient, and how many rows are right.

use super::Storage;
use crate::error::Error;
use crate::ops::{Checked, CountCorrectOperands, CrossEntropyOperands};
use crate::tensor::Element;

/// In a target or split array: this row is not selected.
pub const NO_TARGET: u32 = u32::MAX;

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
