//! Attention by dot products (Vaswani et al., NeurIPS 2017) over the edges of a graph, as one operator with its gradient.
//!
//! With `s(i,j) = scale · q[i] · k[j]` for row `i` and column `j`, and `α(i,·)` the softmax of `s(i,·)` over the edges of the row,
//! `y[i] = Σ_j α(i,j) · d(i,j) · v[j]`, head by head; `d` are the factors of dropout. Nothing is stored for an edge: the gradient
//! computes the scores again.
//!
//! ```text
//! δ[i]   = dy[i] · y[i]
//! t(i,j) = α(i,j) · (d(i,j) · dy[i] · v[j] − δ[i]) · scale
//! dq[i]  = Σ_j t(i,j) · k[j]
//! dk[j]  = Σ_i t(i,j) · q[i]
//! dv[j]  = Σ_i α(i,j) · d(i,j) · dy[i]
//! ```

mod check;
mod cpu;
mod gpu;

use super::{Checked, Dropout};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};

/// The inputs of attention by dot products.
///
/// `q` is rows × (heads · D), `k` and `v` are columns × (heads · D). With more than one head, D fills whole 16-byte vectors (8
/// halves, 4 floats). A head has at most 64 vectors: 512 halves, 256 floats. Several may be one matrix.
#[derive(Debug)]
pub struct DotAttention<'a, B: Storage, E: Element> {
    /// Heads, next to each other in the columns.
    pub heads: usize,
    /// Factor of the scores; `1/√D` is usual. Finite.
    pub scale: f32,
    /// Queries, a row for each destination.
    pub q: &'a Matrix<B, E>,
    /// Keys, a row for each source.
    pub k: &'a Matrix<B, E>,
    /// Values, a row for each source.
    pub v: &'a Matrix<B, E>,
    /// Dropout of the weights.
    pub dropout: Option<Dropout<'a, B>>,
}

impl<B: Storage, E: Element> Clone for DotAttention<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage, E: Element> Copy for DotAttention<'_, B, E> {}

/// `y[i] = Σ_j α(i,j) · d(i,j) · v[j]`: attention by dot products. Scores, softmax and sums are float, and `y` is rounded once. A row
/// without edges becomes zero.
///
/// `statistics` becomes what the gradient reads: two floats for each row and head, heads of a row next to each other.
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit the graph or another, [`Error::Unsupported`] where the columns cannot be cut into
/// the heads, a head is too wide, there are more than 2³² − 673 edges, or the scale is not finite.
pub fn dot_attention<B: DotAttentionOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: DotAttention<'_, B, E>,
    y: &mut Matrix<B, E>,
    statistics: &mut Array<B, [f32; 2]>,
) -> Result<(), Error> {
    let operands = DotAttentionOperands {
        a,
        op,
        y,
        statistics,
    };
    backend.dot_attention(Checked::new(operands)?)
}

/// Operands of [`dot_attention`].
#[derive(Debug)]
pub struct DotAttentionOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// The inputs.
    pub op: DotAttention<'a, B, E>,
    /// Becomes the output, of the shape of [`DotAttention::q`].
    pub y: &'a mut Matrix<B, E>,
    /// Becomes a logarithm of `Σ exp(s)` of each row and head, to the base that the backend computes with, and a number of no meaning.
    pub statistics: &'a mut Array<B, [f32; 2]>,
}

/// The gradients of [`dot_attention`] by queries, keys and values, in float, each rounded once.
///
/// # Errors
/// As [`dot_attention`].
pub fn dot_attention_backward<B: DotAttentionOperators, E: Element>(
    backend: &B,
    operands: DotAttentionBackwardOperands<'_, B, E>,
) -> Result<(), Error> {
    backend.dot_attention_backward(Checked::new(operands)?)
}

/// Operands of [`dot_attention_backward`].
#[derive(Debug)]
pub struct DotAttentionBackwardOperands<'a, B: Storage, E: Element> {
    /// The graph of the forward pass.
    pub a: &'a Adjacency<B>,
    /// The same transposed.
    pub transposed: &'a Adjacency<B>,
    /// The inputs of the forward pass, its dropout with the same step.
    pub op: DotAttention<'a, B, E>,
    /// The output of the forward pass.
    pub y: &'a Matrix<B, E>,
    /// The gradient of the output.
    pub dy: &'a Matrix<B, E>,
    /// What the forward pass wrote. The second number of each pair becomes `δ`.
    pub statistics: &'a mut Array<B, [f32; 2]>,
    /// Becomes the gradient of [`DotAttention::q`].
    pub dq: &'a mut Matrix<B, E>,
    /// Becomes the gradient of [`DotAttention::k`].
    pub dk: &'a mut Matrix<B, E>,
    /// Becomes the gradient of [`DotAttention::v`].
    pub dv: &'a mut Matrix<B, E>,
}

/// Operators of attention by dot products.
pub trait DotAttentionOperators: Storage {
    /// The output.
    ///
    /// # Errors
    /// Those of the device.
    fn dot_attention<E: Element>(
        &self,
        operands: Checked<DotAttentionOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradients.
    ///
    /// # Errors
    /// Those of the device.
    fn dot_attention_backward<E: Element>(
        &self,
        operands: Checked<DotAttentionBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
