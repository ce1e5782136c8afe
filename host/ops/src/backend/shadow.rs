//! Shadow operators (HalfGNN §4.4): functions of the rows of a matrix that take and give its own precision.

use super::Storage;
use crate::error::Error;
use crate::ops::{Checked, ShadowOperands};
use crate::tensor::Element;

/// A shadow operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shadow {
    /// The exponential of each element.
    Exp,
    /// Softmax of each row.
    Softmax,
    /// The logarithm of the softmax of each row.
    LogSoftmax,
    /// The sum of each row, a matrix of one column.
    Sum,
    /// The mean of each row, a matrix of one column.
    Mean,
}

/// Operators in the precision of their operand.
pub trait ShadowOperators: Storage {
    /// `y` = a function of the rows of `x`, each element widened in registers, computed with in float and rounded once.
    ///
    /// # Errors
    /// Those of the device.
    fn shadow<E: Element>(
        &self,
        operands: Checked<ShadowOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
