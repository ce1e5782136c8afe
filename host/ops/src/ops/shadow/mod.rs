//! Shadow operators (HalfGNN §4.4): half in, half executed and half out; float in, float executed and float out.
//!
//! Frameworks under mixed precision turn their operands of these functions into floats, in memory, and back afterwards.
//! Here an element is widened in a register, computed with, and rounded once, and a row is added up in float: nothing
//! but elements of the operand's own precision is read or written. What can go wrong is then only that the result
//! itself does not fit; here is for which operands it is proved to fit.
//!
//! | operator | safe in half | why | at the edge |
//! |---|---|---|---|
//! | [`exp`] | `x ≤ 11.0859375` | `e^x ≤ 65,504 + 16` | the next half, 11.09375, gives infinity; below -17.34 gives 0 |
//! | [`exp`] of `x − max` | every finite `x` | the argument is not positive | 0 where `x` is 17.34 below the largest |
//! | [`softmax`] | every finite row | exponentials are of `x − max`, their sum is in float | a share below 2⁻²⁵ becomes 0 |
//! | [`log_softmax`] | `max − min + ln C ≤ 65,504`, such as `\|x\| ≤ 32,736` for up to 3·10¹³ columns | the result is from 0 to that, negated | -∞ where it is past 65,520 |
//! | [`cross_entropy`] | every finite row; a gradient that the loss scale keeps below 65,504 | the loss is a float, the gradient within `±scale / count` | an overflow skips the step and halves the scale |
//! | [`sum`] | `\|Σ x\| < 65,520` | terms are added up in float | infinity past it |
//! | [`mean`] | every finite row | it lies between the smallest and the largest element | |
//!
//! In float the same holds with float's range: `exp` up to 88.72, sums, and those that means are made of, below
//! 3.4·10³⁸.

mod cpu;
mod gpu;

pub use super::cross_entropy;

use super::check::expect_shape;
use super::{Checked, Operator};
use crate::backend::Storage;
use crate::error::Error;
use crate::tensor::{Element, Matrix};

/// `y = exp(x)`, element by element. In half finite up to `x` = 11.0859375, in float up to 88.72.
///
/// # Errors
/// [`Error::Shape`] where `y` has not the shape of `x`.
pub fn exp<B: ShadowOperators, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    of_rows(backend, Shadow::Exp, x, y)
}

/// Softmax of each row. Safe for every finite row; a NaN or +∞ makes NaN of its row.
///
/// # Errors
/// [`Error::Shape`] where `y` has not the shape of `x`.
pub fn softmax<B: ShadowOperators, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    of_rows(backend, Shadow::Softmax, x, y)
}

/// The logarithm of the softmax of each row. In half finite where `max − min + ln C ≤ 65,504`.
///
/// # Errors
/// [`Error::Shape`] where `y` has not the shape of `x`.
pub fn log_softmax<B: ShadowOperators, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    of_rows(backend, Shadow::LogSoftmax, x, y)
}

/// The sum of each row, a matrix of one column, added up in float. In half finite where the sum is below 65,520 in
/// size.
///
/// # Errors
/// [`Error::Shape`] where `y` is not the rows of `x` × 1.
pub fn sum<B: ShadowOperators, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    of_rows(backend, Shadow::Sum, x, y)
}

/// The mean of each row, a matrix of one column, added up in float. Safe for every finite row of halves, and of floats
/// whose sum is finite.
///
/// # Errors
/// [`Error::Shape`] where `y` is not the rows of `x` × 1, [`Error::Unsupported`] where `x` has no columns.
pub fn mean<B: ShadowOperators, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    of_rows(backend, Shadow::Mean, x, y)
}

fn of_rows<B: ShadowOperators, E: Element>(
    backend: &B,
    op: Shadow,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = ShadowOperands { op, x, y };
    backend.shadow(Checked::new(operands)?)
}

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

/// Operands of a shadow operator.
#[derive(Debug)]
pub struct ShadowOperands<'a, B: Storage, E: Element> {
    /// Which one.
    pub op: Shadow,
    /// The input.
    pub x: &'a Matrix<B, E>,
    /// Becomes the output.
    pub y: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for ShadowOperands<'_, B, E> {
    const NAME: &'static str = "shadow";

    fn check(&self) -> Result<(), Error> {
        let ShadowOperands { op, x, y } = self;
        let operator = match op {
            Shadow::Exp => "shadow::exp",
            Shadow::Softmax => "shadow::softmax",
            Shadow::LogSoftmax => "shadow::log_softmax",
            Shadow::Sum => "shadow::sum",
            Shadow::Mean => "shadow::mean",
        };
        let columns = match op {
            Shadow::Sum | Shadow::Mean => 1,
            _ => x.columns(),
        };
        let operands = ["rows of y", "columns of y"];
        expect_shape(operator, operands, (x.rows(), columns), y)?;
        if x.columns() == 0 {
            return Err(Error::Unsupported {
                operator,
                reason: "the operand has no columns".into(),
            });
        }
        Ok(())
    }
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
