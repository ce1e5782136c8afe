//! Bias, ReLU and dropout, their gradient, and sums of columns.

pub(crate) mod check;
pub(crate) mod cpu;
pub(crate) mod gpu;

use super::{Checked, RandomState};
use crate::backend::{Floats, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};

/// `y = dropout(relu(x + bias))`, each part where `op` has it; in place where `x` is absent.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] for a probability outside [0, 1).
pub fn activate<B: ElementwiseOperators, E: Element>(
    backend: &B,
    op: &Activation<'_, B>,
    x: Option<&Matrix<B, E>>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = ActivateOperands {
        op,
        x,
        order: None,
        sum: false,
        y,
    };
    backend.activate(Checked::new(operands)?)
}

/// [`activate`] of rows that an order picks: row `i` of `y` is of row `order[i]` of `rows`, or of zeros where there is
/// no such row. It has the bits of [`take_rows`](crate::ops::take_rows) and [`activate`] behind it.
///
/// # Errors
/// Those of [`take_rows`](crate::ops::take_rows) and [`activate`].
pub fn activate_rows<B: ElementwiseOperators, E: Element>(
    backend: &B,
    op: &Activation<'_, B>,
    rows: &Matrix<B, E>,
    order: &Array<B, u32>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = ActivateOperands {
        op,
        x: Some(rows),
        order: Some(order),
        sum: false,
        y,
    };
    backend.activate(Checked::new(operands)?)
}

/// `y = dropout(relu(x + y + bias))`, each part where `op` has it: two matrices that are added up, rounded once. `x`
/// may have more rows than `y`, which are not read.
///
/// # Errors
/// Those of [`activate`].
pub fn activate_sum<B: ElementwiseOperators, E: Element>(
    backend: &B,
    op: &Activation<'_, B>,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = ActivateOperands {
        op,
        x: Some(x),
        order: None,
        sum: true,
        y,
    };
    backend.activate(Checked::new(operands)?)
}

/// The gradient of [`activate`] in place: `d` holds dL/dy and becomes dL/dx, each row times its factor of `row_scale`.
/// `y` is the output of the forward pass, wanted where `op` has a ReLU; it may have more rows, which are not read.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where `y` is wanted and absent.
pub fn activate_backward<B: ElementwiseOperators, E: Element>(
    backend: &B,
    op: &Activation<'_, B>,
    y: Option<&Matrix<B, E>>,
    row_scale: Option<&Array<B, f32>>,
    d: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = ActivateBackwardOperands {
        op,
        y,
        row_scale,
        d,
    };
    backend.activate_backward(Checked::new(operands)?)
}

/// Dropout in place of rows that have other numbers in a whole that they are a part of: row `i` of `y` loses what
/// [`activate`] drops of row `vertices[i]`. It is its own gradient.
///
/// # Errors
/// [`Error::Shape`] where there is not a number for each row, [`Error::Unsupported`] for a probability outside [0, 1).
pub fn drop_rows<B: ElementwiseOperators, E: Element>(
    backend: &B,
    dropout: Dropout<'_, B>,
    vertices: &Array<B, u32>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = DropRowsOperands {
        dropout,
        vertices,
        y,
    };
    backend.drop_rows(Checked::new(operands)?)
}

/// `y = x ⊙ by`: the product of two matrices element by element, computed in float and rounded once. In place where `x`
/// is absent.
///
/// # Errors
/// [`Error::Shape`] where the operands differ in shape, [`Error::Unsupported`] where rows of one do not
/// [follow](Matrix::is_contiguous) one another.
pub fn multiply<B: ElementwiseOperators, E: Element>(
    backend: &B,
    x: Option<&Matrix<B, E>>,
    by: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    backend.multiply(Checked::new(MultiplyOperands { x, by, y })?)
}

/// Bias, ReLU and dropout, in this order.
#[derive(Debug)]
pub struct Activation<'a, B: Storage> {
    /// Added to each row: 1 × N.
    pub bias: Option<&'a Matrix<B, f32>>,
    /// Whether negative elements become zero.
    pub relu: bool,
    /// Which elements are dropped; the others are divided by `1 − probability`.
    pub dropout: Option<Dropout<'a, B>>,
}

impl<B: Storage> Default for Activation<'_, B> {
    /// Elements as they are.
    fn default() -> Self {
        Self {
            bias: None,
            relu: false,
            dropout: None,
        }
    }
}

impl<B: Storage> Activation<'_, B> {
    /// The factor of the gradient where the output is positive, if it is zero everywhere else: behind a ReLU.
    pub fn gradient_factor(&self) -> Option<f32> {
        let kept = |dropout: Dropout<'_, B>| 1.0 / (1.0 - dropout.probability);
        self.relu.then(|| self.dropout.map_or(1.0, kept))
    }
}

/// Dropout: which elements are kept is a function of seed, stream, step and the element's place alone, so that every
/// backend keeps the same.
#[derive(Debug)]
pub struct Dropout<'a, B: Storage> {
    /// Probability of an element to be dropped, in [0, 1).
    pub probability: f32,
    /// Distinguishes the dropouts of one model.
    pub stream: u32,
    /// Seed and step: no two steps drop alike, and the forward and the backward pass of one do.
    pub random: &'a RandomState<B>,
}

impl<B: Storage> Clone for Dropout<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage> Copy for Dropout<'_, B> {}

/// Operands of [`activate`], [`activate_rows`] and [`activate_sum`].
#[derive(Debug)]
pub struct ActivateOperands<'a, B: Storage, E: Element> {
    /// What is done.
    pub op: &'a Activation<'a, B>,
    /// The input; in place where absent.
    pub x: Option<&'a Matrix<B, E>>,
    /// Which row of the input each of the output is of; that of the same number where absent.
    pub order: Option<&'a Array<B, u32>>,
    /// Whether what stands in `y` is added to the input, which is not in place then.
    pub sum: bool,
    /// Becomes the output.
    pub y: &'a mut Matrix<B, E>,
}

/// Operands of [`activate_backward`].
#[derive(Debug)]
pub struct ActivateBackwardOperands<'a, B: Storage, E: Element> {
    /// What was done.
    pub op: &'a Activation<'a, B>,
    /// The output of the forward pass.
    pub y: Option<&'a Matrix<B, E>>,
    /// Factors of the rows.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// The gradient, in place.
    pub d: &'a mut Matrix<B, E>,
}

/// Operands of [`multiply`].
#[derive(Debug)]
pub struct MultiplyOperands<'a, B: Storage, E: Element> {
    /// One factor; what stands in `y` where absent.
    pub x: Option<&'a Matrix<B, E>>,
    /// The other factor; may be `x`.
    pub by: &'a Matrix<B, E>,
    /// Becomes the product.
    pub y: &'a mut Matrix<B, E>,
}

/// Operands of [`drop_rows`].
#[derive(Debug)]
pub struct DropRowsOperands<'a, B: Storage, E: Element> {
    /// What is dropped.
    pub dropout: Dropout<'a, B>,
    /// The number of each row.
    pub vertices: &'a Array<B, u32>,
    /// The rows, in place.
    pub y: &'a mut Matrix<B, E>,
}

/// Sums of the columns of `x`, in float and in a fixed order: the gradient of a bias.
///
/// # Errors
/// [`Error::Shape`] where `sums` is not 1 × the columns of `x`.
pub fn column_sums<B: ElementwiseOperators, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    sums: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    let operands = ColumnSumsOperands { x, sums };
    backend.column_sums(Checked::new(operands)?)
}

/// Operands of [`column_sums`].
#[derive(Debug)]
pub struct ColumnSumsOperands<'a, B: Storage, E: Element> {
    /// What is added up.
    pub x: &'a Matrix<B, E>,
    /// Becomes the sums, 1 × N.
    pub sums: &'a mut Matrix<B, f32>,
}

/// Each float of `sums` becomes `factor` times the sum of that of each of `count` parts, which lie one behind the other
/// in `parts`: from zero on and in their order, so that it has the same bits on every device.
///
/// # Errors
/// [`Error::Shape`] where the parts are not that many times as long as the sums, [`Error::Unsupported`] where there is
/// something between the rows of the sums.
pub fn sum_parts<B: ElementwiseOperators>(
    backend: &B,
    factor: f32,
    (parts, count): (&Array<B, f32>, usize),
    sums: Floats<'_, B>,
) -> Result<(), Error> {
    let operands = SumPartsOperands {
        of: OfParts::Sum,
        factor,
        parts,
        count,
        sums,
    };
    backend.sum_parts(Checked::new(operands)?)
}

/// Each float of `largest` becomes the largest of that of each of `count` parts, none of which is negative: see
/// [`sum_parts`].
///
/// # Errors
/// Those of [`sum_parts`].
pub fn largest_of_parts<B: ElementwiseOperators>(
    backend: &B,
    (parts, count): (&Array<B, f32>, usize),
    largest: Floats<'_, B>,
) -> Result<(), Error> {
    let operands = SumPartsOperands {
        of: OfParts::Largest,
        factor: 1.0,
        parts,
        count,
        sums: largest,
    };
    backend.sum_parts(Checked::new(operands)?)
}

/// What is made of a float of each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OfParts {
    /// Their sum.
    Sum,
    /// The largest, or zero.
    Largest,
}

/// Operands of [`sum_parts`] and [`largest_of_parts`].
#[derive(Debug)]
pub struct SumPartsOperands<'a, B: Storage> {
    /// What of the parts.
    pub of: OfParts,
    /// Factor of it.
    pub factor: f32,
    /// What is put together, part behind part.
    pub parts: &'a Array<B, f32>,
    /// How many parts there are.
    pub count: usize,
    /// Become that.
    pub sums: Floats<'a, B>,
}

/// Operators on the elements of matrices.
pub trait ElementwiseOperators: Storage {
    /// `y = dropout(relu(x + bias))`, each part where `op` has it, element by element. `x` absent means in place.
    ///
    /// # Errors
    /// Those of the device.
    fn activate<E: Element>(
        &self,
        operands: Checked<ActivateOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of [`ElementwiseOperators::activate`] in place: `d` holds dL/dy and becomes dL/dx, times
    /// `row_scale` where it is given. `y` is the stored output, wanted where the activation has a ReLU.
    ///
    /// # Errors
    /// Those of the device.
    fn activate_backward<E: Element>(
        &self,
        operands: Checked<ActivateBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// `y = x ⊙ by`, rounded once; `x` absent means in place.
    ///
    /// # Errors
    /// Those of the device.
    fn multiply<E: Element>(
        &self,
        operands: Checked<MultiplyOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Dropout of rows in place, each with its number.
    ///
    /// # Errors
    /// Those of the device.
    fn drop_rows<E: Element>(
        &self,
        operands: Checked<DropRowsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// `sums[0, c] = Σ_r x[r, c]` in float, in a fixed order.
    ///
    /// # Errors
    /// Those of the device.
    fn column_sums<E: Element>(
        &self,
        operands: Checked<ColumnSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Sums of parts or the largest of them, float by float, from zero on and in the order of the parts.
    ///
    /// # Errors
    /// Those of the device.
    fn sum_parts(&self, operands: Checked<SumPartsOperands<'_, Self>>) -> Result<(), Error>;
}
