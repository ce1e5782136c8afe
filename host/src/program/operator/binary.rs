//! Operators of networks of one bit.
//!
//! A formula has signs as elements, so that its gradients are those of any product. [`Binarize`](crate::program::passes::Binarize) packs
//! them to bits where kernels read those.

use crate::program::value::{Edges, Value};

/// `rows · columns · (a · bᵀ) + sum` of bits, or `sum + share · sign(a · bᵀ)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BinaryMatmul {
    /// Bits, a row for each row of the result.
    pub a: Value,
    /// Bits, a row for each column of the result.
    pub b: Value,
    /// A factor of each row.
    pub rows: Option<Value>,
    /// A factor of each column.
    pub columns: Option<Value>,
    /// What it is added to, in place where that is not read again.
    pub sum: Option<Value>,
    /// Adds the signs of the product times this factor, in place of the product.
    pub share: Option<f32>,
}

impl BinaryMatmul {
    /// Its operands in their order.
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        visit(&mut self.a);
        visit(&mut self.b);
        let others = [&mut self.rows, &mut self.columns, &mut self.sum];
        others.into_iter().flatten().for_each(visit);
    }
}

/// `factor · R · A · signs`, the sum of bits over the edges of each destination with the degree norm's factors of destinations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AggregateSigns {
    /// The adjacency, whose edges have no weights.
    pub edges: Edges,
    /// Bits, a row for each source.
    pub signs: Value,
    /// Factor of the sum.
    pub factor: f32,
    /// Whether the result is the signs of the sums, as bits.
    pub packed: bool,
}

/// `(R · A · signs) · weightᵀ + bias`, some rows after the other, so that the sums of all rows never lie in memory at once.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AggregateSignsMatmul {
    /// The adjacency, whose edges have no weights.
    pub edges: Edges,
    /// Bits, a row for each source.
    pub signs: Value,
    /// A row of elements for each column of the result.
    pub weight: Value,
    /// A float of one row.
    pub bias: Option<Value>,
}
