//! Products and sums by the types of their operands, under the names of BitGNN's paper (§3.1.2).

use super::{
    BitMatrix, BitsOperators, Bmm, ColumnFactors, binarize, bmm, bmm_signs, bspmm, bspmm_factored,
    bspmm_factored_signs, bspmm_signs,
};
use crate::backend::{Adjacency, MemoryKind, Storage};
use crate::error::Error;
use crate::ops::{EdgeWeights, Spmm, SpmmOperators, spmm};
use crate::tensor::{Array, Element, Matrix};
use std::fmt;

/// Whether each of three operands is of bits (B) or of elements (F): activation, second factor, result. The second
/// factor of a product is its weights, that of a sum over neighbours the matrix of the edges: ones, or with factors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct BitVariant {
    /// Of activations.
    pub activation: bool,
    /// Of the second factor.
    pub second: bool,
    /// Of the result.
    pub result: bool,
}

impl BitVariant {
    /// All eight, FFF first.
    pub const ALL: [Self; 8] = {
        let mut all = [Self::of(0); 8];
        let mut number = 0;
        while number < all.len() {
            all[number] = Self::of(number);
            number += 1;
        }
        all
    };

    const fn of(number: usize) -> Self {
        Self {
            activation: number & 4 != 0,
            second: number & 2 != 0,
            result: number & 1 != 0,
        }
    }

    /// The paper's three letters.
    pub const fn name(self) -> &'static str {
        const NAMES: [&str; 8] = ["FFF", "FFB", "FBF", "FBB", "BFF", "BFB", "BBF", "BBB"];
        NAMES[(self.activation as usize) << 2 | (self.second as usize) << 1 | self.result as usize]
    }
}

impl fmt::Display for BitVariant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// An operand of bits, or of elements.
#[derive(Debug)]
pub enum SignOperand<'a, B: Storage, E: Element> {
    /// Bits.
    Bits(&'a BitMatrix<B>),
    /// Elements, and where their signs lie where those are taken: memory that is kept from call to call.
    Elements(&'a Matrix<B, E>, &'a mut Option<BitMatrix<B>>),
}

impl<'a, B: BitsOperators, E: Element> SignOperand<'a, B, E> {
    fn bits(self, backend: &B) -> Result<&'a BitMatrix<B>, Error> {
        let (elements, room) = match self {
            Self::Bits(bits) => return Ok(bits),
            Self::Elements(elements, room) => (elements, room),
        };
        let bits = match room.take() {
            Some(bits) if bits.shape() == elements.shape() => bits,
            _ => {
                let (rows, columns) = elements.shape();
                BitMatrix::zeros(backend, rows, columns, MemoryKind::Activations)?
            }
        };
        let bits = room.insert(bits);
        binarize(backend, elements, bits)?;
        Ok(bits)
    }
}

/// A result as bits, or as elements.
#[derive(Debug)]
pub enum BitOutput<'a, B: Storage, E: Element> {
    /// Signs.
    Bits(&'a mut BitMatrix<B>),
    /// Elements.
    Elements(&'a mut Matrix<B, E>),
}

/// A product of signs, whatever types its operands have: the seven variants of BitGNN's BMM. Of an operand of elements
/// the signs are taken first, [as bits](binarize); a result of bits has the [signs](bmm_signs) of what [`bmm`]
/// computes. `op` has the factors that Bi-GCN takes from magnitudes, and a bias.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where all are of elements: FFF, which is
/// [`matmul`](crate::ops::matmul).
pub fn bmm_of<B: BitsOperators, E: Element>(
    backend: &B,
    a: SignOperand<'_, B, E>,
    b: SignOperand<'_, B, E>,
    op: &Bmm<'_, B>,
    y: BitOutput<'_, B, E>,
) -> Result<(), Error> {
    if let (SignOperand::Elements(..), SignOperand::Elements(..), BitOutput::Elements(_)) =
        (&a, &b, &y)
    {
        return Err(Error::Unsupported {
            operator: "bmm",
            reason: "of elements alone a product is no product of bits; take matmul".into(),
        });
    }
    let (a, b) = (a.bits(backend)?, b.bits(backend)?);
    match y {
        BitOutput::Bits(y) => bmm_signs(backend, a, b, op, y),
        BitOutput::Elements(y) => bmm(backend, a, b, op, y),
    }
}

/// A sum over neighbours, whatever types its operands have: the eight variants of BitGNN's BSpMM.
///
/// | activation | edges | result | is |
/// |---|---|---|---|
/// | elements | any | elements | FFF, FBF: [`spmm`], with a weight a column or with ones |
/// | elements | any | bits | FFB, FBB: the signs of that |
/// | bits | factors | any | BFF, BFB: [`bspmm_factored`], [`bspmm_factored_signs`] |
/// | bits | ones | any | BBF, BBB: [`bspmm`], [`bspmm_signs`] |
///
/// `edges` has the factors of columns, of elements as they are and of bits in 8 bits, and `row_scale` a factor a row,
/// which is positive and which have no part in signs. `sums` is where elements are added up whose signs are wanted:
/// memory that is kept from call to call.
///
/// # Errors
/// Those of these operators.
pub fn bspmm_of<B: BitsOperators + SpmmOperators, E: Element>(
    backend: &B,
    (a, x): (&Adjacency<B>, SumOperand<'_, B, E>),
    row_scale: Option<&Array<B, f32>>,
    y: BitOutput<'_, B, E>,
    sums: &mut Option<Matrix<B, E>>,
) -> Result<(), Error> {
    let (x, weights) = match x {
        SumOperand::Bits(x, None) => {
            return match y {
                BitOutput::Bits(y) => bspmm_signs(backend, a, x, y),
                BitOutput::Elements(y) => bspmm(backend, a, x, row_scale, 1.0, y),
            };
        }
        SumOperand::Bits(x, Some(factors)) => {
            let edges = (a, factors);
            return match y {
                BitOutput::Bits(y) => bspmm_factored_signs(backend, edges, x, y),
                BitOutput::Elements(y) => bspmm_factored(backend, edges, x, row_scale, 1.0, y),
            };
        }
        SumOperand::Elements(x, None) => (x, EdgeWeights::Ones),
        SumOperand::Elements(x, Some(factors)) => (x, EdgeWeights::Columns(factors)),
    };
    let op = Spmm {
        weights,
        row_scale,
        ..Spmm::default()
    };
    match y {
        BitOutput::Elements(y) => spmm(backend, a, &op, x, y),
        BitOutput::Bits(y) => {
            let (rows, columns) = y.shape();
            let there = match sums.take() {
                Some(there) if there.shape() == (rows, columns) => there,
                _ => Matrix::zeros(backend, rows, columns, MemoryKind::Activations)?,
            };
            let there = sums.insert(there);
            spmm(backend, a, &op, x, there)?;
            binarize(backend, there, y)
        }
    }
}

/// What is summed up over neighbours, and the factors of the columns of the graph.
#[derive(Debug)]
pub enum SumOperand<'a, B: Storage, E: Element> {
    /// Bits, with factors in 8 bits.
    Bits(&'a BitMatrix<B>, Option<&'a ColumnFactors<B>>),
    /// Elements, with factors in float.
    Elements(&'a Matrix<B, E>, Option<&'a Array<B, f32>>),
}
