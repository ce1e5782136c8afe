//! Additive attention (Bahdanau et al., ICLR 2015), as GATv2 has it (Brody et al., ICLR 2022, equation 7): the score of
//! an edge is `Σ_f a[f] · LeakyReLU(u[i, f] + v[j, f])`, for row `i`, column `j` and each head.
//!
//! A score is not a sum of two numbers of the ends, as GAT's is, so it is computed edge by edge: [`additive_scores`],
//! an SDDMM with something between. What is made of scores is not: as biases of an [`Attention`](super::EdgeAttention)
//! whose own scores are zero and whose slope is 1 they become weights inside the SpMM, with dropout, and their gradient
//! is [`edge_bias_gradient`](super::edge_bias_gradient).
//!
//! With the gradient `d` of the scores the others are
//!
//! ```text
//! du[i, f] = a[f] · Σ_j d(i,j) · leaky'(u[i, f] + v[j, f])
//! dv[j, f] = a[f] · Σ_i d(i,j) · leaky'(u[i, f] + v[j, f])        the same in the transposed order
//! da[f]    = Σ_i Σ_j d(i,j) · LeakyReLU(u[i, f] + v[j, f])
//! ```
//!
//! [`additive_gradient`] is an SpMM whose lanes keep the row's `u` and compute the derivative again. What the edges of
//! a row have of `da` is a second sum of the same walk; the sums of its columns are `da`.

mod attention;
mod check;
mod cpu;
mod gpu;

pub use attention::{AdditiveAttention, AdditiveBackward, AdditiveFeatures, AdditiveRoom};

use super::Checked;
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};

/// What the scores of edges are made of: `e[h][k] = Σ_f a[f] · LeakyReLU(u[row_k, f] + v[col_k, f])` of each edge `k`
/// and head `h`, `f` over the columns of the head.
///
/// `u` is rows × (heads · D) and `v` columns × (heads · D), `a` 1 × (heads · D), for any D; of a square graph `u` and
/// `v` may be one matrix. With more than one head, D fills whole 16-byte vectors (8 halves, 4 floats).
#[derive(Debug)]
pub struct Additive<'a, B: Storage, E: Element> {
    /// Heads, side by side.
    pub heads: usize,
    /// Slope of the LeakyReLU below zero.
    pub slope: f32,
    /// The vector `a`.
    pub vector: &'a Matrix<B, E>,
    /// Features of the rows.
    pub u: &'a Matrix<B, E>,
    /// Features of the columns.
    pub v: &'a Matrix<B, E>,
}

impl<B: Storage, E: Element> Clone for Additive<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage, E: Element> Copy for Additive<'_, B, E> {}

/// The scores of additive attention, in float whatever the elements: planes of edges, [`edge_plane`](super::edge_plane)
/// apart.
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit the graph or another, [`Error::Unsupported`] where the columns do not
/// divide into that number of heads, or there are none.
pub fn additive_scores<B: AdditiveOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: Additive<'_, B, E>,
    scores: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = AdditiveScoresOperands { a, op, scores };
    backend.additive_scores(Checked::new(operands)?)
}

/// Operands of [`additive_scores`].
#[derive(Debug)]
pub struct AdditiveScoresOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// What scores are made of.
    pub op: Additive<'a, B, E>,
    /// Become the scores.
    pub scores: &'a mut Array<B, f32>,
}

/// The gradient of [`additive_scores`] by `u`, from that of the scores, and what each row's edges have of that by the
/// vector. In float, each element rounded once. By `v` it is that by `u` on the transposed adjacency with `u` and `v`
/// changed over.
///
/// # Errors
/// As [`additive_scores`].
pub fn additive_gradient<B: AdditiveOperators, E: Element>(
    backend: &B,
    operands: AdditiveGradientOperands<'_, B, E>,
) -> Result<(), Error> {
    backend.additive_gradient(Checked::new(operands)?)
}

/// Operands of [`additive_gradient`].
#[derive(Debug)]
pub struct AdditiveGradientOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// What scores are made of.
    pub op: Additive<'a, B, E>,
    /// The gradient of the scores: planes of edges.
    pub d: &'a Array<B, f32>,
    /// Becomes the gradient of [`Additive::u`], of its shape.
    pub du: &'a mut Matrix<B, E>,
    /// Becomes `Σ_j d(i,j) · LeakyReLU(u[i] + v[j])`, of the same shape, where it is wanted: the sums of its columns
    /// are the gradient of [`Additive::vector`].
    pub of_vector: Option<&'a mut Matrix<B, E>>,
}

/// Operators of additive attention.
pub trait AdditiveOperators: Storage {
    /// The scores of the edges.
    ///
    /// # Errors
    /// Those of the device.
    fn additive_scores<E: Element>(
        &self,
        operands: Checked<AdditiveScoresOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of the scores by the features of the rows, and by the vector.
    ///
    /// # Errors
    /// Those of the device.
    fn additive_gradient<E: Element>(
        &self,
        operands: Checked<AdditiveGradientOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
