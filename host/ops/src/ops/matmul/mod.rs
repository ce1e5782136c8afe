//! Dense products of matrices, and what follows them element by element.

mod check;
mod cpu;
mod gpu;
pub(crate) mod sparse;

use super::{Checked, Coding, Dropout, Normalization, QuantizedMatrix};
use crate::backend::Storage;
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use std::ops::Range;

/// Dense product of two matrices in one of three forms, with an epilogue; see [`Form`] and [`Epilogue`].
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit one another.
pub fn matmul<B: MatmulOperators, E: Element, O: Element>(
    backend: &B,
    form: Form,
    a: &Matrix<B, E>,
    b: &Matrix<B, E>,
    epilogue: &Epilogue<'_, B>,
    c: &mut Matrix<B, O>,
) -> Result<(), Error> {
    matmul_fused(backend, form, a, b, epilogue, MatmulFusion::default(), c)
}

/// [`matmul`] to some rows of `c`, whose others stay as they are; of [`Form::NN`] and [`Form::NT`] it is of as many of
/// the first rows of `a`, which may have more.
///
/// # Errors
/// Those of [`matmul`]; [`Error::Shape`] where `c` has no such rows.
pub fn matmul_to_rows<B: MatmulOperators, E: Element, O: Element>(
    backend: &B,
    form: Form,
    a: &Matrix<B, E>,
    b: &Matrix<B, E>,
    epilogue: &Epilogue<'_, B>,
    to: (Range<usize>, &mut Matrix<B, O>),
) -> Result<(), Error> {
    let fusion = MatmulFusion {
        first_rows: (form != Form::TN).then_some(to.0.len()),
        ..MatmulFusion::default()
    };
    matmul_fused_to_rows(backend, form, [a, b], epilogue, fusion, to)
}

/// [`matmul_fused`] to some rows of `c`, whose others stay as they are.
///
/// # Errors
/// Those of [`matmul_fused`]; [`Error::Shape`] where `c` has no such rows.
pub fn matmul_fused_to_rows<B: MatmulOperators, E: Element, O: Element>(
    backend: &B,
    form: Form,
    [a, b]: [&Matrix<B, E>; 2],
    epilogue: &Epilogue<'_, B>,
    fusion: MatmulFusion<'_, B, O>,
    (rows, c): (Range<usize>, &mut Matrix<B, O>),
) -> Result<(), Error> {
    let there = c.rows().max(rows.end);
    Error::expect("matmul", "rows of c", there, c.rows())?;
    c.with_rows(rows, |c| {
        matmul_fused(backend, form, a, b, epilogue, fusion, c)
    })
}

/// [`matmul`], and what a layer's backward pass has of the same product with it: see [`MatmulFusion`].
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit one another or `a` has fewer rows than [`MatmulFusion::first_rows`],
/// [`Error::Unsupported`] for a normalised operand, a second pair or a sum of another product than [`MatmulFusion`]
/// says.
pub fn matmul_fused<B: MatmulOperators, E: Element, O: Element>(
    backend: &B,
    form: Form,
    a: &Matrix<B, E>,
    b: &Matrix<B, E>,
    epilogue: &Epilogue<'_, B>,
    fusion: MatmulFusion<'_, B, O>,
    c: &mut Matrix<B, O>,
) -> Result<(), Error> {
    let operands = MatmulOperands {
        form,
        a,
        b,
        epilogue,
        fusion,
        c,
    };
    backend.matmul(Checked::new(operands)?)
}

/// `c = alpha · aᵀ · b` of a matrix of int8 values, in float: the gradient of a linear map's weights, of what it was
/// given in 8 bits. No number of a code has a copy in memory. Of the first rows of `a`, where it has more than `b`.
/// `column_sums` is as of [`MatmulFusion`].
///
/// The products are those of whole numbers, and a column's scale is multiplied once with their sum.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit one another, [`Error::Unsupported`] for quantized values of another
/// format and for floats.
pub fn quantized_matmul<B: MatmulOperators, E: Element>(
    backend: &B,
    a: &QuantizedMatrix<B>,
    b: &Matrix<B, E>,
    alpha: f32,
    column_sums: Option<&mut Matrix<B, f32>>,
    c: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    backend.quantized_matmul(Checked::new(QuantizedMatmulOperands {
        a,
        b,
        alpha,
        column_sums,
        c,
    })?)
}

/// Which operand of a product is transposed. Sizes are those of the product: `c` is M × N, the sum runs over K.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `a` is M × K, `b` is K × N: the forward product of a linear layer.
    NN,
    /// `a` is M × K, `b` is N × K: the gradient of its input.
    NT,
    /// `a` is K × M, `b` is K × N: the gradient of its weights.
    TN,
}

/// What becomes of the sums of a matrix product before they are rounded: `relu(alpha · row_scale[m] · sum + bias[n])`.
#[derive(Debug)]
pub struct Epilogue<'a, B: Storage> {
    /// Factor of everything.
    pub alpha: f32,
    /// Factor of each row of the result.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// Added to each row: 1 × N.
    pub bias: Option<&'a Matrix<B, f32>>,
    /// Whether negative results become zero.
    pub relu: bool,
}

impl<B: Storage> Default for Epilogue<'_, B> {
    /// The sums as they are.
    fn default() -> Self {
        Self {
            alpha: 1.0,
            row_scale: None,
            bias: None,
            relu: false,
        }
    }
}

/// What a product does in addition to `c = epilogue(a · b)`, so that it takes no pass of its own over `a`, `b` or `c`.
#[derive(Debug)]
pub struct MatmulFusion<'a, B: Storage, O: Element> {
    /// The product is not of `a` but of what [`normalize`](crate::ops::normalize()) would make of it: its columns are
    /// the features. Of [`Form::NN`] with a result of the type of `a`, and of [`Form::TN`] with one in float.
    pub normalization: Option<&'a Normalization<'a, B>>,
    /// Two more operands, whose product is added before anything is rounded: `a · b + a₂ · b₂`, of [`Form::NN`] with a
    /// result of the type of `a`, which is not normalised. `a₂` may have more rows than `c`, which are not read.
    pub second_pair: Option<[&'a Matrix<B, O>; 2]>,
    /// How many of the first rows of `a` the product is of, where it has more of them: rows of `c` of [`Form::NN`] and
    /// [`Form::NT`], and of [`Form::TN`] the rows that `b` has. The bits are those of a copy.
    pub first_rows: Option<usize>,
    /// The output of a ReLU, of the shape of `c` or with more rows, which are not read: where it holds no positive
    /// number `c` becomes zero. So `c` is the gradient of what the ReLU was given.
    pub positive: Option<&'a Matrix<B, O>>,
    /// The same in int8 values that keep what is [positive](crate::ops::quantize_positive), in its place: of
    /// [`Form::NT`], in half or bfloat16.
    pub positive_codes: Option<&'a QuantizedMatrix<B>>,
    /// Whether the product is added to what stands in `c`, after it was rounded as if it were not: of [`Form::NT`],
    /// without quantized values.
    pub sum: bool,
    /// Becomes the sums of the columns of `b`, in float and in a fixed order: 1 × columns of `b`. With [`Form::TN`],
    /// where `b` is the gradient of a layer's output, those are the gradient of its bias.
    pub column_sums: Option<&'a mut Matrix<B, f32>>,
    /// What is dropped of `c`, as [`activate`](crate::ops::activate) drops it of a matrix, of what is rounded. A GPU
    /// does so where it writes a product of two pairs in 16 bits whose sums it does not split, else in a pass.
    pub dropout: Option<Dropout<'a, B>>,
    /// 8-bit values of `c`, made where it is written.
    pub coding: Option<Coding<'a, B>>,
}

impl<B: Storage, O: Element> Default for MatmulFusion<'_, B, O> {
    /// Nothing.
    fn default() -> Self {
        Self {
            normalization: None,
            second_pair: None,
            first_rows: None,
            positive: None,
            positive_codes: None,
            sum: false,
            column_sums: None,
            dropout: None,
            coding: None,
        }
    }
}

/// Operands of a [matrix product](matmul_fused).
#[derive(Debug)]
pub struct MatmulOperands<'a, B: Storage, E: Element, O: Element> {
    /// Which operand is transposed.
    pub form: Form,
    /// The first operand.
    pub a: &'a Matrix<B, E>,
    /// The second operand.
    pub b: &'a Matrix<B, E>,
    /// What becomes of the sums.
    pub epilogue: &'a Epilogue<'a, B>,
    /// What is computed in addition to the product.
    pub fusion: MatmulFusion<'a, B, O>,
    /// Becomes the product.
    pub c: &'a mut Matrix<B, O>,
}

impl<B: Storage, E: Element, O: Element> MatmulOperands<'_, B, E, O> {
    /// Rows of `a` that the product is of.
    pub(crate) fn rows_of_a(&self) -> usize {
        self.fusion.first_rows.unwrap_or(self.a.rows())
    }
}

/// Operands of [`quantized_matmul`].
#[derive(Debug)]
pub struct QuantizedMatmulOperands<'a, B: Storage, E: Element> {
    /// Quantized values; transposed in the product.
    pub a: &'a QuantizedMatrix<B>,
    /// The second operand.
    pub b: &'a Matrix<B, E>,
    /// Factor of everything.
    pub alpha: f32,
    /// Becomes the sums of the columns of `b`.
    pub column_sums: Option<&'a mut Matrix<B, f32>>,
    /// Becomes the product.
    pub c: &'a mut Matrix<B, f32>,
}

/// Products of matrices.
pub trait MatmulOperators: Storage {
    /// `c = epilogue(a · b)` in one of three forms, accumulated in float and rounded once, and what is wanted with it.
    ///
    /// # Errors
    /// Those of the device.
    fn matmul<E: Element, O: Element>(
        &self,
        operands: Checked<MatmulOperands<'_, Self, E, O>>,
    ) -> Result<(), Error>;

    /// The product of quantized values: see [`quantized_matmul`].
    ///
    /// # Errors
    /// Those of the device.
    fn quantized_matmul<E: Element>(
        &self,
        operands: Checked<QuantizedMatmulOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
