//! Matrices of bits: made of numbers by their sign, summed up over neighbours, and multiplied (BitGNN, Chen et al.
//! 2023).

pub mod blocks;
pub(super) mod cpu;
mod factors;
mod gpu;
mod integers;
mod matrix;
mod variants;

pub use factors::ColumnFactors;
pub use integers::{BspmmIntegersOperands, IntegerMatrix, bspmm_factored_integers, bspmm_integers};
pub use matrix::BitMatrix;
pub use variants::{BitOutput, BitVariant, SignOperand, SumOperand, bmm_of, bspmm_of};

use super::check::{expect_len, expect_shape};
use super::normalize::check::expect_normalization;
use super::{Checked, Normalization, Operator, Schedule};
use crate::backend::{Adjacency, RowShare, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use halfgnn_contract::bits::MOST_FACTORED_EDGES;

/// A bit for each element: +1 where it is zero or more, −1 where it is less or NaN (BitGNN §2.2).
///
/// # Errors
/// [`Error::Shape`] where `x` and `y` differ in shape.
pub fn binarize<B: BitsOperators, E: Element>(
    backend: &B,
    x: &Matrix<B, E>,
    y: &mut BitMatrix<B>,
) -> Result<(), Error> {
    let normalization = None;
    backend.binarize(Checked::new(BinarizeOperands {
        x,
        normalization,
        y,
    })?)
}

/// The bits of what [`normalize`](super::normalize) makes of `x`, rounded to an element as it is there, without a
/// matrix for it.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] for a normalisation with a ReLU, which leaves
/// one sign.
pub fn binarize_normalized<B: BitsOperators, E: Element>(
    backend: &B,
    normalization: &Normalization<'_, B>,
    x: &Matrix<B, E>,
    y: &mut BitMatrix<B>,
) -> Result<(), Error> {
    let normalization = Some(normalization);
    backend.binarize(Checked::new(BinarizeOperands {
        x,
        normalization,
        y,
    })?)
}

/// `y = scale · R · A · x`, the sums of ±1 over neighbours, times a factor a row: BitGNN's BSpMM.BBF (§3.1.2). Sums are
/// exact integers; each element is rounded once. Rows without neighbours are zero.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn bspmm<B: BitsOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    x: &BitMatrix<B>,
    row_scale: Option<&Array<B, f32>>,
    scale: f32,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    bspmm_rows(backend, (a, RowShare::ALL), x, row_scale, scale, y)
}

/// A share of the rows of what [`bspmm`] makes, to the same bits: these are the first rows of `y`, whose others stay as
/// they are; of [`RowShare::ALL`] `y` has no others. `row_scale` is of all rows.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit; [`Error::Driver`] where operators are recorded, and no share of this
/// graph was asked for before.
pub fn bspmm_rows<B: BitsOperators, E: Element>(
    backend: &B,
    (a, share): (&Adjacency<B>, RowShare),
    x: &BitMatrix<B>,
    row_scale: Option<&Array<B, f32>>,
    scale: f32,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = BspmmOperands {
        a,
        share,
        factors: None,
        x,
        row_scale,
        scale,
        schedule: Schedule::Auto,
        y,
    };
    backend.bspmm(Checked::new(operands)?)
}

/// `y = scale · R · A · C · x`, where `C` is a factor a column of the graph in 8 bits: BitGNN's BSpMM.BFF, on a matrix
/// of edges that is a product of ones and factors (§3.1.2). Sums of quantized values are exact integers; the factor of
/// a row is rounded once in float, a sum times it once, and each element once. Rows without neighbours are zero.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] for a row of so large a number of edges that
/// a sum might not fit 32 bits.
pub fn bspmm_factored<B: BitsOperators, E: Element>(
    backend: &B,
    (a, factors): (&Adjacency<B>, &ColumnFactors<B>),
    x: &BitMatrix<B>,
    row_scale: Option<&Array<B, f32>>,
    scale: f32,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = BspmmOperands {
        a,
        share: RowShare::ALL,
        factors: Some(factors),
        x,
        row_scale,
        scale,
        schedule: Schedule::Auto,
        y,
    };
    backend.bspmm(Checked::new(operands)?)
}

/// `y = sign(A · C · x)`, +1 where a sum is zero or more: BitGNN's BSpMM.BFB. `C` is as [`bspmm_factored`] has it.
///
/// # Errors
/// Those of [`bspmm_factored`].
pub fn bspmm_factored_signs<B: BitsOperators>(
    backend: &B,
    (a, factors): (&Adjacency<B>, &ColumnFactors<B>),
    x: &BitMatrix<B>,
    y: &mut BitMatrix<B>,
) -> Result<(), Error> {
    let operands = BspmmSignsOperands {
        a,
        factors: Some(factors),
        x,
        schedule: Schedule::Auto,
        y,
    };
    backend.bspmm_signs(Checked::new(operands)?)
}

/// `y = sign(A · x)`, +1 where a sum is zero or more, as it is of no neighbours: BitGNN's BSpMM.BBB. A factor of rows
/// or of all that is positive changes nothing here, which is why it has none.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn bspmm_signs<B: BitsOperators>(
    backend: &B,
    a: &Adjacency<B>,
    x: &BitMatrix<B>,
    y: &mut BitMatrix<B>,
) -> Result<(), Error> {
    let operands = BspmmSignsOperands {
        a,
        factors: None,
        x,
        schedule: Schedule::Auto,
        y,
    };
    backend.bspmm_signs(Checked::new(operands)?)
}

/// `y = scale · R · a · bᵀ · C + bias` of rows of ±1: BitGNN's BMM.BBF (§3.1.1), on tensor cores. `a` is M × K, `b` N ×
/// K: a row of it is a column of the second factor, as a linear layer of PyTorch keeps its weights. Products are exact
/// integers; a factor, the other and the sum are rounded once each in float, and the element once.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn bmm<B: BitsOperators, E: Element>(
    backend: &B,
    a: &BitMatrix<B>,
    b: &BitMatrix<B>,
    op: &Bmm<'_, B>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = BmmOperands { a, b, op };
    let addition = None;
    backend.bmm(Checked::new(BmmElements {
        operands,
        addition,
        y,
    })?)
}

/// The signs of what [`bmm`] computes, +1 where that is zero or more: BitGNN's BMM.BBB, with the threshold of a batch
/// normalisation as the bias.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn bmm_signs<B: BitsOperators>(
    backend: &B,
    a: &BitMatrix<B>,
    b: &BitMatrix<B>,
    op: &Bmm<'_, B>,
    y: &mut BitMatrix<B>,
) -> Result<(), Error> {
    let operands = BmmOperands { a, b, op };
    backend.bmm_signs(Checked::new(BmmSigns { operands, y })?)
}

/// What is done with a product of bits.
#[derive(Debug)]
pub struct Bmm<'a, B: Storage> {
    /// A factor of all.
    pub scale: f32,
    /// A factor a row of the product.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// A factor a column of the product.
    pub column_scale: Option<&'a Array<B, f32>>,
    /// Added to each row.
    pub bias: Option<&'a Array<B, f32>>,
}

impl<B: Storage> Default for Bmm<'_, B> {
    /// The product as it is.
    fn default() -> Self {
        Self {
            scale: 1.0,
            row_scale: None,
            column_scale: None,
            bias: None,
        }
    }
}

/// What [`bmm`], [`bmm_signs`] and the [blocks] multiply.
#[derive(Debug)]
pub struct BmmOperands<'a, B: Storage> {
    /// M × K.
    pub a: &'a BitMatrix<B>,
    /// N × K.
    pub b: &'a BitMatrix<B>,
    /// What is done with the product.
    pub op: &'a Bmm<'a, B>,
}

impl<B: Storage> BmmOperands<'_, B> {
    /// Rows and columns of the product.
    fn check(&self, name: &'static str) -> Result<(usize, usize), Error> {
        let (a, b, op) = (self.a, self.b, self.op);
        Error::expect(name, "columns of b", a.columns(), b.columns())?;
        expect_len(name, "row scale", a.rows(), op.row_scale)?;
        expect_len(name, "column scale", b.rows(), op.column_scale)?;
        expect_len(name, "bias", b.rows(), op.bias)?;
        Ok((a.rows(), b.rows()))
    }
}

/// Operands of [`bmm`] and of [`blocks::mm_add`].
#[derive(Debug)]
pub struct BmmElements<'a, B: Storage, E: Element> {
    /// What is multiplied.
    pub operands: BmmOperands<'a, B>,
    /// What of the product is added to `y`; where absent `y` becomes the product.
    pub addition: Option<blocks::Addition>,
    /// Becomes the product, or the sum.
    pub y: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for BmmElements<'_, B, E> {
    const NAME: &'static str = "bmm";

    fn check(&self) -> Result<(), Error> {
        let shape = self.operands.check(Self::NAME)?;
        expect_shape(Self::NAME, ["rows of y", "columns of y"], shape, self.y)
    }
}

/// Operands of [`bmm_signs`].
#[derive(Debug)]
pub struct BmmSigns<'a, B: Storage> {
    /// What is read.
    pub operands: BmmOperands<'a, B>,
    /// Becomes the signs of the product.
    pub y: &'a mut BitMatrix<B>,
}

impl<B: Storage> Operator for BmmSigns<'_, B> {
    const NAME: &'static str = "bmm_signs";

    fn check(&self) -> Result<(), Error> {
        let (rows, columns) = self.operands.check(Self::NAME)?;
        Error::expect(Self::NAME, "rows of y", rows, self.y.rows())?;
        Error::expect(Self::NAME, "columns of y", columns, self.y.columns())
    }
}

/// Operands of [`binarize`] and [`binarize_normalized`].
#[derive(Debug)]
pub struct BinarizeOperands<'a, B: Storage, E: Element> {
    /// Numbers.
    pub x: &'a Matrix<B, E>,
    /// What is made of them first.
    pub normalization: Option<&'a Normalization<'a, B>>,
    /// Becomes their signs.
    pub y: &'a mut BitMatrix<B>,
}

impl<B: Storage, E: Element> Operator for BinarizeOperands<'_, B, E> {
    const NAME: &'static str = "binarize";

    fn check(&self) -> Result<(), Error> {
        let operands = ["rows of x", "columns of x"];
        expect_shape(Self::NAME, operands, self.y.shape(), self.x)?;
        let Some(op) = self.normalization else {
            return Ok(());
        };
        if op.relu {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "behind a ReLU all signs are +1; leave it out".into(),
            });
        }
        expect_normalization(Self::NAME, op, self.x.columns())
    }
}

/// Operands of [`bspmm`] and [`bspmm_factored`], which leave the schedule to the backend.
#[derive(Debug)]
pub struct BspmmOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// Which of its rows are summed up.
    pub share: RowShare,
    /// A factor a column of the graph; ones where absent.
    pub factors: Option<&'a ColumnFactors<B>>,
    /// A row a column of the graph.
    pub x: &'a BitMatrix<B>,
    /// A factor a row of the graph.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// A factor of all.
    pub scale: f32,
    /// How a GPU distributes the edges: the sums are the same.
    pub schedule: Schedule,
    /// Becomes the sums.
    pub y: &'a mut Matrix<B, E>,
}

impl<B: Storage, E: Element> Operator for BspmmOperands<'_, B, E> {
    const NAME: &'static str = "bspmm";

    fn check(&self) -> Result<(), Error> {
        let graph = (self.a.rows(), self.a.columns());
        check_factors(Self::NAME, self.a, self.factors)?;
        check_schedule(Self::NAME, self.schedule, self.factors.is_some())?;
        if self.share != RowShare::ALL && self.schedule == Schedule::Vertex {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "some rows alone are summed up by edges; take Schedule::Edge, or all rows"
                    .into(),
            });
        }
        let rows = self.share.rows(graph.0).len();
        let shape = (
            match self.share {
                RowShare::ALL => rows,
                _ => rows.max(self.y.rows()),
            },
            self.x.columns(),
        );
        Error::expect(Self::NAME, "rows of x", graph.1, self.x.rows())?;
        expect_shape(Self::NAME, ["rows of y", "columns of y"], shape, self.y)?;
        expect_len(Self::NAME, "row scale", graph.0, self.row_scale)
    }
}

/// Operands of [`bspmm_signs`] and [`bspmm_factored_signs`], which leave the schedule to the backend.
#[derive(Debug)]
pub struct BspmmSignsOperands<'a, B: Storage> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// A factor a column of the graph; ones where absent.
    pub factors: Option<&'a ColumnFactors<B>>,
    /// A row a column of the graph.
    pub x: &'a BitMatrix<B>,
    /// How a GPU distributes the edges: the sums are the same.
    pub schedule: Schedule,
    /// Becomes the signs of the sums.
    pub y: &'a mut BitMatrix<B>,
}

impl<B: Storage> Operator for BspmmSignsOperands<'_, B> {
    const NAME: &'static str = "bspmm_signs";

    fn check(&self) -> Result<(), Error> {
        let graph = (self.a.rows(), self.a.columns());
        check_factors(Self::NAME, self.a, self.factors)?;
        check_schedule(Self::NAME, self.schedule, self.factors.is_some())?;
        check_shapes(Self::NAME, graph, self.x, self.y.shape())
    }
}

/// That factors are those of the columns of a graph, and that no sum of that many is too large.
fn check_factors<B: Storage>(
    name: &'static str,
    a: &Adjacency<B>,
    factors: Option<&ColumnFactors<B>>,
) -> Result<(), Error> {
    let Some(factors) = factors else {
        return Ok(());
    };
    Error::expect(name, "factors of columns", a.columns(), factors.len())?;
    if a.longest_row() > MOST_FACTORED_EDGES {
        return Err(Error::Unsupported {
            operator: name,
            reason: format!(
                "a row has {} edges, and with factors of 8 bits sums of at most {MOST_FACTORED_EDGES} fit 32 bits",
                a.longest_row()
            ),
        });
    }
    Ok(())
}

/// That there are kernels that distribute edges so.
fn check_schedule(name: &'static str, schedule: Schedule, has_factors: bool) -> Result<(), Error> {
    let reason = match (schedule, has_factors) {
        (Schedule::Auto | Schedule::Edge, _) | (Schedule::Vertex, false) => return Ok(()),
        (Schedule::Vertex, true) => {
            "with factors of columns bits are summed up by edges; take Schedule::Edge"
        }
        (Schedule::Hybrid | Schedule::RowIds | Schedule::RowIdsInTurn, _) => {
            "bits are summed up by edges or by vertices; take Schedule::Edge or Schedule::Vertex"
        }
    };
    Err(Error::Unsupported {
        operator: name,
        reason: reason.into(),
    })
}

/// That sums of the rows of `x` over the neighbours in a graph of these numbers of rows and columns fit `y`.
pub(super) fn check_sums<B: Storage, E: Element>(
    name: &'static str,
    (rows, columns): (usize, usize),
    x: &BitMatrix<B>,
    row_scale: Option<&Array<B, f32>>,
    y: &Matrix<B, E>,
) -> Result<(), Error> {
    Error::expect(name, "rows of x", columns, x.rows())?;
    expect_shape(name, ["rows of y", "columns of y"], (rows, x.columns()), y)?;
    expect_len(name, "row scale", rows, row_scale)
}

/// The same of an output without factors: signs, or integers.
pub(super) fn check_shapes<B: Storage>(
    name: &'static str,
    (rows, columns): (usize, usize),
    x: &BitMatrix<B>,
    y: (usize, usize),
) -> Result<(), Error> {
    Error::expect(name, "rows of x", columns, x.rows())?;
    Error::expect(name, "rows of y", rows, y.0)?;
    Error::expect(name, "columns of y", x.columns(), y.1)
}

/// What is done with bits.
pub trait BitsOperators: Storage {
    /// A bit for each element.
    ///
    /// # Errors
    /// Those of the device.
    fn binarize<E: Element>(
        &self,
        operands: Checked<BinarizeOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Sums over neighbours.
    ///
    /// # Errors
    /// Those of the device.
    fn bspmm<E: Element>(&self, operands: Checked<BspmmOperands<'_, Self, E>>)
    -> Result<(), Error>;

    /// Signs of sums over neighbours.
    ///
    /// # Errors
    /// Those of the device.
    fn bspmm_signs(&self, operands: Checked<BspmmSignsOperands<'_, Self>>) -> Result<(), Error>;

    /// Sums over neighbours, as integers.
    ///
    /// # Errors
    /// Those of the device.
    fn bspmm_integers(
        &self,
        operands: Checked<BspmmIntegersOperands<'_, Self>>,
    ) -> Result<(), Error>;

    /// Products of bits, as elements.
    ///
    /// # Errors
    /// Those of the device.
    fn bmm<E: Element>(&self, operands: Checked<BmmElements<'_, Self, E>>) -> Result<(), Error>;

    /// Signs of products of bits.
    ///
    /// # Errors
    /// Those of the device.
    fn bmm_signs(&self, operands: Checked<BmmSigns<'_, Self>>) -> Result<(), Error>;
}
