//! SDDMM (HalfGNN §4.2): a number for each edge, made of what its two ends have.

mod check;
pub(crate) mod cpu;
mod gpu;

use super::{Accumulate, Checked, HalfLoad};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};

/// Sampled dense times dense (HalfGNN §4.2): `e[h][k] = scale · Σ_f u[row_k, f] · v[col_k, f]` for each edge `k` and
/// head `h`, `f` over the columns of the head.
///
/// `u` is rows × (heads · D) and `v` columns × (heads · D), for any D; of a square graph they may be one matrix; with
/// more than one head, D fills whole 16-byte vectors (8 halves, 4 floats). `e` has a plane for each head,
/// [`edge_plane`](super::edge_plane) apart. In half precision and with the default policy sums are in float and rounded
/// once, so nothing overflows but a result that half cannot hold.
///
/// The gradients are SpMMs over the same graph, with the gradient `d` of `e` as edge weights: `du = scale · A_d v`, and
/// `dv = scale · A_dᵀ u` in the transposed edge order.
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit the graph or the other, [`Error::Unsupported`] where the columns
/// cannot be divided into heads or no kernel has the policy.
pub fn sddmm<B: SddmmOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: &Sddmm,
    u: &Matrix<B, E>,
    v: &Matrix<B, E>,
    e: &mut Array<B, E>,
) -> Result<(), Error> {
    let operands = SddmmOperands { a, op, u, v, e };
    backend.sddmm(Checked::new(operands)?)
}

/// A dot product of row and column for each edge.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sddmm {
    /// Heads into which the columns of `u` and `v` are divided: one dot product an edge and head.
    pub heads: usize,
    /// Factor of every product, applied in float.
    pub scale: f32,
    /// How it computes.
    pub policy: SddmmPolicy,
}

impl Default for Sddmm {
    /// The plain dot product of whole rows.
    fn default() -> Self {
        Self {
            heads: 1,
            scale: 1.0,
            policy: SddmmPolicy::default(),
        }
    }
}

/// How an SDDMM computes. Float precision has one way, and the CPU only what it accumulates in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct SddmmPolicy {
    /// What the products of a lane are added up in; lanes are added up in float, and the sum is rounded once.
    pub accumulate: Accumulate,
    /// How the sums of lanes become the sum of an edge.
    pub reduction: Reduction,
    /// What a lane loads at once.
    pub load: HalfLoad,
    /// Threads, as CTAs for each multiprocessor: fewer take more edges each. By the size of the graph where absent.
    pub ctas_per_multiprocessor: Option<u32>,
    /// Threads by HP-SDDMM's inequality instead (Fan, Wang, Chu 2023, §III-B): the most of 128, 256 and 512 edges a
    /// warp with which there still are enough full waves of CTAs. Its smaller candidates are less than a tile of the
    /// kernels.
    pub hybrid: bool,
    /// Whether the features of rows are read anew for every four edges, instead of kept while a row lasts: for
    /// comparison.
    pub read_anew: bool,
}

/// How the partial sums of lanes become the sum of an edge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reduction {
    /// On tensor cores where there is a kernel for it: half8 loads, sums in float. Else by shuffles.
    #[default]
    TensorCores,
    /// By shuffles (HalfGNN §4.2).
    Shuffles,
}

/// Operands of an [SDDMM](sddmm).
#[derive(Debug)]
pub struct SddmmOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// What is computed, and how.
    pub op: &'a Sddmm,
    /// Features of the rows.
    pub u: &'a Matrix<B, E>,
    /// Features of the columns.
    pub v: &'a Matrix<B, E>,
    /// Becomes the numbers of the edges.
    pub e: &'a mut Array<B, E>,
}

/// SDDMM without a dot product: for each edge and head the sum, difference, product or quotient of two numbers, or a
/// copy of one, each of them of the edge's row, of its column, or its own. Computed in float and rounded once.
///
/// Planes of rows are `heads · rows` floats, those of columns `heads · columns`, planes of edges `heads ·`
/// [`edge_plane`](super::edge_plane) elements.
///
/// # Errors
/// [`Error::Shape`] where an operand or `e` does not fit the graph and the heads, [`Error::Unsupported`] for no head or
/// too many.
pub fn combine_edges<B: SddmmOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    heads: usize,
    op: &EdgeCombine<'_, B, E>,
    e: &mut Array<B, E>,
) -> Result<(), Error> {
    let operands = CombineEdgesOperands { a, heads, op, e };
    backend.combine_edges(Checked::new(operands)?)
}

/// What becomes of the operands of an edge: SDDMM's variants without a dot product.
#[derive(Debug)]
pub enum EdgeCombine<'a, B: Storage, E: Element> {
    /// The operand itself.
    Copy(EdgeOperand<'a, B, E>),
    /// Their sum.
    Add(EdgeOperand<'a, B, E>, EdgeOperand<'a, B, E>),
    /// The first less the second.
    Subtract(EdgeOperand<'a, B, E>, EdgeOperand<'a, B, E>),
    /// Their product.
    Multiply(EdgeOperand<'a, B, E>, EdgeOperand<'a, B, E>),
    /// The first by the second: by IEEE's rules, an infinity or a NaN where that is zero.
    Divide(EdgeOperand<'a, B, E>, EdgeOperand<'a, B, E>),
}

impl<'a, B: Storage, E: Element> EdgeCombine<'a, B, E> {
    /// The operands.
    pub fn operands(&self) -> (&EdgeOperand<'a, B, E>, Option<&EdgeOperand<'a, B, E>>) {
        match self {
            EdgeCombine::Copy(x) => (x, None),
            EdgeCombine::Add(x, y)
            | EdgeCombine::Subtract(x, y)
            | EdgeCombine::Multiply(x, y)
            | EdgeCombine::Divide(x, y) => (x, Some(y)),
        }
    }
}

/// An operand of [`EdgeCombine`]: a number for each edge and head.
#[derive(Debug)]
pub enum EdgeOperand<'a, B: Storage, E: Element> {
    /// That of the edge's row: planes of vertices, one a head.
    Row(&'a Array<B, f32>),
    /// That of the edge's column: planes of vertices, one a head.
    Column(&'a Array<B, f32>),
    /// The edge's own: planes of edges.
    Edge(&'a Array<B, E>),
}

/// Operands of [`combine_edges`].
#[derive(Debug)]
pub struct CombineEdgesOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// Number of heads.
    pub heads: usize,
    /// The operator and its operands.
    pub op: &'a EdgeCombine<'a, B, E>,
    /// Becomes the numbers of the edges.
    pub e: &'a mut Array<B, E>,
}

/// Operators that write a number for each edge.
pub trait SddmmOperators: Storage {
    /// `e[h][k] = scale · Σ_f u[row_k, f] · v[col_k, f]`, `f` over the columns of head `h`.
    ///
    /// # Errors
    /// Those of the device.
    fn sddmm<E: Element>(&self, operands: Checked<SddmmOperands<'_, Self, E>>)
    -> Result<(), Error>;

    /// A number for each edge and head from two numbers of its ends or its own, computed in float and rounded once.
    ///
    /// # Errors
    /// Those of the device.
    fn combine_edges<E: Element>(
        &self,
        operands: Checked<CombineEdgesOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
