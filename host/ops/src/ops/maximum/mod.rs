//! Maxima: of two matrices, and of the rows of each group; and their gradients.
//!
//! A gradient goes to the first of what is as large as the maximum, as `torch.max` and torch_scatter have it.

mod check;
mod cpu;
mod gpu;

use super::{Checked, RowGroups};
use crate::backend::Storage;
use crate::error::Error;
use crate::tensor::{Element, Matrix};

/// `y` becomes the larger of `x` and `y`, element by element; NaN where either is one.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn maximum<B: MaximumOperators, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    backend.maximum(Checked::new(MaximumOperands { x, y })?)
}

/// Operands of [`maximum()`].
#[derive(Debug)]
pub struct MaximumOperands<'a, B: Storage, E: Element> {
    /// One of the matrices.
    pub x: &'a Matrix<B, E>,
    /// The other; becomes the larger.
    pub y: &'a mut Matrix<B, E>,
}

/// The gradient of one of several matrices that a maximum is of, which come one after the other: where `x` is as large
/// as the maximum `y`, `dx` becomes `d`, and `d`, which the first is given as dL/dy, becomes zero for those after it;
/// elsewhere `dx` becomes zero.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn maximum_backward<B: MaximumOperators, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    y: &Matrix<B, E>,
    d: &mut Matrix<B, E>,
    dx: &mut Matrix<B, E>,
) -> Result<(), Error> {
    backend.maximum_backward(Checked::new(MaximumBackwardOperands { x, y, d, dx })?)
}

/// Operands of [`maximum_backward`].
#[derive(Debug)]
pub struct MaximumBackwardOperands<'a, B: Storage, E: Element> {
    /// One of the matrices.
    pub x: &'a Matrix<B, E>,
    /// The maximum.
    pub y: &'a Matrix<B, E>,
    /// What is left of its gradient.
    pub d: &'a mut Matrix<B, E>,
    /// Becomes the gradient of `x`.
    pub dx: &'a mut Matrix<B, E>,
}

/// `y[g] = max x[i]` over the rows `i` of each group `g`, column by column: NaN where one is, zeros of a group without
/// rows. A thread has the rows of a group one after the other, so that this is for many groups of few.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn group_maximum<B: MaximumOperators, E: Element>(
    backend: &B,
    groups: &RowGroups<B>,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    backend.group_maximum(Checked::new(GroupMaximumOperands { groups, x, y })?)
}

/// Operands of [`group_maximum`].
#[derive(Debug)]
pub struct GroupMaximumOperands<'a, B: Storage, E: Element> {
    /// Which rows are of one group.
    pub groups: &'a RowGroups<B>,
    /// The rows.
    pub x: &'a Matrix<B, E>,
    /// A row a group.
    pub y: &'a mut Matrix<B, E>,
}

/// The gradient of [`group_maximum`]: `dx` becomes `dy` of its group where `x` is the first that is as large as `y`,
/// else zero.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn group_maximum_backward<B: MaximumOperators, E: Element>(
    backend: &B,
    groups: &RowGroups<B>,
    (x, y): (&Matrix<B, E>, &Matrix<B, E>),
    dy: &Matrix<B, E>,
    dx: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = GroupMaximumBackwardOperands {
        groups,
        x,
        y,
        dy,
        dx,
    };
    backend.group_maximum_backward(Checked::new(operands)?)
}

/// Operands of [`group_maximum_backward`].
#[derive(Debug)]
pub struct GroupMaximumBackwardOperands<'a, B: Storage, E: Element> {
    /// Which rows are of one group.
    pub groups: &'a RowGroups<B>,
    /// The rows.
    pub x: &'a Matrix<B, E>,
    /// The largest of each group.
    pub y: &'a Matrix<B, E>,
    /// The gradient of it.
    pub dy: &'a Matrix<B, E>,
    /// Becomes the gradient of the rows.
    pub dx: &'a mut Matrix<B, E>,
}

/// Maxima.
pub trait MaximumOperators: Storage {
    /// `y = max(x, y)`.
    ///
    /// # Errors
    /// Those of the device.
    fn maximum<E: Element>(
        &self,
        operands: Checked<MaximumOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of one of those that a maximum is of.
    ///
    /// # Errors
    /// Those of the device.
    fn maximum_backward<E: Element>(
        &self,
        operands: Checked<MaximumBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The largest of the rows of each group.
    ///
    /// # Errors
    /// Those of the device.
    fn group_maximum<E: Element>(
        &self,
        operands: Checked<GroupMaximumOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of [`MaximumOperators::group_maximum`].
    ///
    /// # Errors
    /// Those of the device.
    fn group_maximum_backward<E: Element>(
        &self,
        operands: Checked<GroupMaximumBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
