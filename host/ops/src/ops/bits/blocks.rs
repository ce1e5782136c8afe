//! BitGNN's blocks (§3.1.2, figure 2), the upper level of its two: what layers are made of. The lower level are the
//! operators, [`bmm`] and [`bspmm`] with their variants.
//!
//! | block | is | between its two parts |
//! |---|---|---|
//! | MM-SpMM, [`mm_spmm`] | a product of bits, then a sum of it over neighbours | a bit a number where signs are summed up, else an element |
//! | MM-ADD, [`mm_add`] | a product of bits, or its signs, added to what is there | nothing: one launch |
//!
//! A GCN's layer is an MM-SpMM. GraphSAGE's is an MM-SpMM of the neighbours and then an MM-ADD of the vertex itself.
//! What a factor of rows would multiply is not asked for where signs alone go on: a [`Bmm`](super::Bmm) without factors
//! is the product as it is.

use super::{
    BitMatrix, BitOutput, BitsOperators, BmmElements, BmmOperands, bmm, bmm_signs, bspmm,
    bspmm_signs,
};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::{Checked, Spmm, SpmmOperators, spmm};
use crate::tensor::{Array, Element, Matrix};

/// What lies between the product and the sum of [`mm_spmm`], M × N, and how it is summed up. It is overwritten.
#[derive(Debug)]
pub enum Between<'a, B: Storage, E: Element> {
    /// Signs of the product, which no element is made of: BMM.BBB, then BSpMM.BBF or BSpMM.BBB.
    Signs {
        /// Where they lie.
        room: &'a mut BitMatrix<B>,
        /// A factor a row of the graph, which is positive; a result of bits takes no notice of it.
        row_scale: Option<&'a Array<B, f32>>,
        /// A factor of all sums, which is positive; a result of bits takes no notice of it.
        scale: f32,
    },
    /// The product as elements: BMM.BBF, then BSpMM.FBF.
    Elements {
        /// Where they lie.
        room: &'a mut Matrix<B, E>,
        /// How they are summed up.
        op: &'a Spmm<'a, B, E>,
    },
}

/// `y = A · (a · bᵀ)`, or `A · sign(a · bᵀ)`, with what `product` and `between` have done with them: BitGNN's MM-SpMM.
/// `a` has a row a column of the graph, `y` a row a row of it. Signs go from the product to the sum as bits.
///
/// # Errors
/// Those of [`bmm`], [`bspmm`] and [`spmm`]; [`Error::Unsupported`] for a result of bits of sums of elements, whose
/// sums would need memory: that is [`bspmm_of`](super::bspmm_of).
pub fn mm_spmm<B: BitsOperators + SpmmOperators, E: Element>(
    backend: &B,
    product: BmmOperands<'_, B>,
    a: &Adjacency<B>,
    between: Between<'_, B, E>,
    y: BitOutput<'_, B, E>,
) -> Result<(), Error> {
    match (between, y) {
        (
            Between::Signs {
                room,
                row_scale,
                scale,
            },
            y,
        ) => {
            bmm_signs(backend, product.a, product.b, product.op, room)?;
            match y {
                BitOutput::Bits(y) => bspmm_signs(backend, a, room, y),
                BitOutput::Elements(y) => bspmm(backend, a, room, row_scale, scale, y),
            }
        }
        (Between::Elements { room, op }, BitOutput::Elements(y)) => {
            bmm(backend, product.a, product.b, product.op, room)?;
            spmm(backend, a, op, room, y)
        }
        (Between::Elements { .. }, BitOutput::Bits(_)) => Err(Error::Unsupported {
            operator: "mm_spmm",
            reason: "signs of sums of elements want room for the sums; take bmm and bspmm_of"
                .into(),
        }),
    }
}

/// What of a product of bits is added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Addition {
    /// The product, with its factors and its bias.
    Products,
    /// A share of +1 where that is zero or more, and of −1 elsewhere.
    Signs {
        /// The share.
        share: f32,
    },
}

/// `y += a · bᵀ`, or `y += share · sign(a · bᵀ)`, with what `product` has done with it: BitGNN's MM-ADD, in one launch.
/// A product is as [`bmm`] has it before it is rounded; the sum is rounded once in float, and the element once. `y` is
/// M × N.
///
/// # Errors
/// Those of [`bmm`].
pub fn mm_add<B: BitsOperators, E: Element>(
    backend: &B,
    product: BmmOperands<'_, B>,
    addition: Addition,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    backend.bmm(Checked::new(BmmElements {
        operands: product,
        addition: Some(addition),
        y,
    })?)
}
