//! Matrices of 8-bit values: made of numbers, with a scale a column that follows what was seen before, and the numbers
//! again.

mod cpu;
mod gpu;
mod matrix;

pub use halfgnn_contract::quantize::CodeFormat;
pub use matrix::{ColumnScales, QuantizedMatrix, Unrepresented};

use super::check::{expect_len, expect_shape};
use super::{Checked, Operator, RandomState};
use crate::backend::Storage;
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};

/// `y = R · x` in quantized values, each element over the scale of its column and rounded. `y` keeps its scales; what
/// is larger than they allow becomes the largest, and is [counted](ColumnScales::unrepresented), as NaNs are, which
/// become zero. The largest magnitude of each column is kept for [`update_scales`].
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn quantize<B: QuantizeOperators, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    row_scale: Option<&Array<B, f32>>,
    rounding: Rounding<'_, B>,
    y: &mut QuantizedMatrix<B>,
) -> Result<(), Error> {
    backend.quantize(Checked::new(QuantizeOperands {
        x,
        row_scale,
        rounding,
        keeps_positive: false,
        y,
    })?)
}

/// [`quantize`] to the nearest, but that what is positive stays so: what is less than the scale of its column becomes
/// that. So where a ReLU has let something through follows from the quantized values of its output, and no element is
/// further from its value than a scale.
///
/// # Errors
/// Those of [`quantize`].
pub fn quantize_positive<B: QuantizeOperators, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    y: &mut QuantizedMatrix<B>,
) -> Result<(), Error> {
    backend.quantize(Checked::new(QuantizeOperands {
        x,
        row_scale: None,
        rounding: Rounding::Nearest,
        keeps_positive: true,
        y,
    })?)
}

/// `y = x`: each 8-bit value times the scale of its column, rounded once. `x` has the scales that its quantized values
/// were made with.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn dequantize<B: QuantizeOperators, E: Element>(
    backend: &B,
    x: &QuantizedMatrix<B>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    backend.dequantize(Checked::new(DequantizeOperands { x, y })?)
}

/// New scales for the matrix that is quantized next: each column has the range of `margin` times the largest magnitude
/// that it had in calls of [`quantize`] since the scales were last updated. A column of zeros, or with an infinity or a
/// NaN, keeps its scale. The quantized values of a matrix are those of the scales before and no numbers any more.
///
/// Called once before each [`quantize`] it is delayed scaling, as in Transformer Engine: scales of the step before, and
/// no pass over the matrix to find them.
///
/// # Errors
/// [`Error::Unsupported`] where `margin` is no positive number.
pub fn update_scales<B: QuantizeOperators>(
    backend: &B,
    margin: f32,
    scales: &mut ColumnScales<B>,
) -> Result<(), Error> {
    backend.update_scales(Checked::new(UpdateScalesOperands { margin, scales })?)
}

/// To which of the two quantized values about it a number is rounded.
#[derive(Debug)]
pub enum Rounding<'a, B: Storage> {
    /// The nearer, or of two as near the even one.
    Nearest,
    /// Either, by chance, so that the expectation is the number: gradients stay unbiased. What is sampled is a function
    /// of seed, stream, step, the row's number and the column.
    Stochastic {
        /// Distinguishes the matrices of one model.
        stream: u32,
        /// Seed and step.
        random: &'a RandomState<B>,
        /// The number of each row: of a part of a matrix those in the whole, so that it is rounded as the whole is. Its
        /// place where absent.
        numbers: Option<&'a Array<B, u32>>,
    },
}

impl<B: Storage> Clone for Rounding<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage> Copy for Rounding<'_, B> {}

impl<B: Storage> Rounding<'_, B> {
    /// Refuses numbers that are not those of the rows.
    fn check(&self, operator: &'static str, rows: usize) -> Result<(), Error> {
        match self {
            Rounding::Stochastic { numbers, .. } => {
                expect_len(operator, "numbers of rows", rows, *numbers)
            }
            Rounding::Nearest => Ok(()),
        }
    }
}

/// Quantized values that an operator makes of its result where it writes it: those that [`quantize`] would make of it,
/// bit for bit. Where no kernel does both, they are made in a pass of their own.
#[derive(Debug)]
pub struct Coding<'a, B: Storage> {
    /// A factor of each row; 1 where absent.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// How they are rounded.
    pub rounding: Rounding<'a, B>,
    /// Becomes the quantized values. As of [`quantize`].
    pub codes: &'a mut QuantizedMatrix<B>,
    /// Whether the result itself is not read, so that it may stay unwritten.
    pub alone: bool,
}

impl<B: Storage> Coding<'_, B> {
    /// Refuses quantized values that do not fit a result.
    pub(crate) fn check<E: Element>(
        &self,
        operator: &'static str,
        result: &Matrix<B, E>,
    ) -> Result<(), Error> {
        let what = ["rows of the codes", "columns of the codes"];
        for ((what, expected), found) in what
            .into_iter()
            .zip([result.rows(), result.columns()])
            .zip([self.codes.rows(), self.codes.columns()])
        {
            Error::expect(operator, what, expected, found)?;
        }
        self.rounding.check(operator, result.rows())?;
        expect_len(
            operator,
            "row factors of the codes",
            result.rows(),
            self.row_scale,
        )
    }
}

impl<B: QuantizeOperators> Coding<'_, B> {
    /// Makes them of the whole result.
    pub(crate) fn of<E: Element>(self, backend: &B, result: &Matrix<B, E>) -> Result<(), Error> {
        quantize(backend, result, self.row_scale, self.rounding, self.codes)
    }
}

/// Operands of [`quantize`].
#[derive(Debug)]
pub struct QuantizeOperands<'a, B: Storage, E: Element> {
    /// Numbers.
    pub x: &'a Matrix<B, E>,
    /// A factor of each row; 1 where absent.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// How they are rounded.
    pub rounding: Rounding<'a, B>,
    /// Whether what is positive stays so: see [`quantize_positive`].
    pub keeps_positive: bool,
    /// Becomes their quantized values.
    pub y: &'a mut QuantizedMatrix<B>,
}

impl<B: Storage, E: Element> Operator for QuantizeOperands<'_, B, E> {
    const NAME: &'static str = "quantize";

    fn check(&self) -> Result<(), Error> {
        let operands = ["rows of x", "columns of x"];
        expect_shape(Self::NAME, operands, self.y.shape(), self.x)?;
        self.rounding.check(Self::NAME, self.x.rows())?;
        expect_len(Self::NAME, "row scale", self.x.rows(), self.row_scale)
    }
}

/// Operands of [`dequantize`].
#[derive(Debug)]
pub struct DequantizeOperands<'a, B: Storage, E: Element> {
    /// Quantized values.
    pub x: &'a QuantizedMatrix<B>,
    /// Becomes their numbers.
    pub y: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for DequantizeOperands<'_, B, E> {
    const NAME: &'static str = "dequantize";

    fn check(&self) -> Result<(), Error> {
        let operands = ["rows of y", "columns of y"];
        expect_shape(Self::NAME, operands, self.x.shape(), self.y)
    }
}

/// Operands of [`update_scales`].
#[derive(Debug)]
pub struct UpdateScalesOperands<'a, B: Storage> {
    /// How many times the largest magnitude is to be in range.
    pub margin: f32,
    /// Become the next ones.
    pub scales: &'a mut ColumnScales<B>,
}

impl<B: Storage> Operator for UpdateScalesOperands<'_, B> {
    const NAME: &'static str = "update_scales";

    fn check(&self) -> Result<(), Error> {
        if self.margin > 0.0 && self.margin.is_finite() {
            return Ok(());
        }
        Err(Error::Unsupported {
            operator: Self::NAME,
            reason: format!(
                "room for {} times the largest magnitude; take a positive number, such as 1.5",
                self.margin
            ),
        })
    }
}

/// What makes quantized values.
pub trait QuantizeOperators: Storage {
    /// Quantized values of numbers.
    ///
    /// # Errors
    /// Those of the device.
    fn quantize<E: Element>(
        &self,
        operands: Checked<QuantizeOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Numbers of quantized values.
    ///
    /// # Errors
    /// Those of the device.
    fn dequantize<E: Element>(
        &self,
        operands: Checked<DequantizeOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Scales from the largest magnitudes.
    ///
    /// # Errors
    /// Those of the device.
    fn update_scales(&self, operands: Checked<UpdateScalesOperands<'_, Self>>)
    -> Result<(), Error>;
}
