//! Operands that fit one another, by their type.
//!
//! A backend launches kernels that read and write wherever their parameters say. So its operators take [`Checked`]
//! operands alone, and the only way to one is the operands' own check: no call in safe code can reach past it.
//!
//! ```compile_fail
//! # use halfgnn_ops::backend::cpu::Cpu;
//! # use halfgnn_ops::ops::{Checked, ColumnSumsOperands};
//! fn unchecked<'a>(operands: ColumnSumsOperands<'a, Cpu, f32>) -> Checked<ColumnSumsOperands<'a, Cpu, f32>> {
//!     Checked(operands) // its field is private
//! }
//! ```
//!
//! ```compile_fail
//! # use halfgnn_ops::backend::cpu::Cpu;
//! # use halfgnn_ops::ops::{ColumnSumsOperands, ElementwiseOperators};
//! fn unchecked(operands: ColumnSumsOperands<'_, Cpu, f32>) {
//!     Cpu::new().column_sums(operands); // not checked
//! }
//! ```
//!
//! This is what both are meant to be like:
//!
//! ```
//! # use halfgnn_ops::Error;
//! # use halfgnn_ops::backend::cpu::Cpu;
//! # use halfgnn_ops::ops::{Checked, ColumnSumsOperands, ElementwiseOperators};
//! fn checked(operands: ColumnSumsOperands<'_, Cpu, f32>) -> Result<(), Error> {
//!     let operands: Checked<ColumnSumsOperands<'_, Cpu, f32>> = Checked::new(operands)?;
//!     Cpu::new().column_sums(operands)
//! }
//! ```

use crate::error::Error;

/// All operands of an operator, which can check that they fit one another.
///
/// An operator of one's own implements it for a struct of its operands, and its kernels' launches take that
/// [`Checked`].
pub trait Operator {
    /// What errors call the operator.
    const NAME: &'static str;

    /// Whether the operands fit: shapes, lengths and policies. Whether they lie on the backend's device is compared
    /// where it takes their addresses.
    ///
    /// # Errors
    /// [`Error::Shape`] with the operand and both figures, [`Error::Unsupported`] with what is not supported.
    fn check(&self) -> Result<(), Error>;
}

/// Operands whose [`Operator::check`] found nothing.
#[derive(Debug)]
pub struct Checked<O>(O);

impl<O: Operator> Checked<O> {
    /// Checks `operands`.
    ///
    /// # Errors
    /// Those of [`Operator::check`].
    pub fn new(operands: O) -> Result<Self, Error> {
        operands.check()?;
        Ok(Self(operands))
    }

    /// The operands, to be run.
    pub fn into_inner(self) -> O {
        self.0
    }
}
