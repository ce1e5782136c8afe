//! SDDMM: a number for each edge, made of what its two ends have.
//!
//! Numbers of edges lie in planes, one a head, each [`edge_plane`] long, edges in the order of the adjacency. What lies
//! between the last edge and the end of a plane is zero.

use super::{Accumulate, Storage};
use crate::error::Error;
use crate::ops::{Checked, CombineEdgesOperands, SddmmOperands};
use crate::tensor::{Array, Element};
use serde::{Deserialize, Serialize};

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

/// Distance of two planes of numbers of edges, and the length of one: the next multiple of 8, so that each starts at a
/// 16-byte boundary. An array for `heads` heads is `heads · edge_plane(edges)` long.
pub fn edge_plane(edges: usize) -> usize {
    halfgnn_contract::attention::edge_plane_stride(edges as u64) as usize
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

/// What a lane loads at once in half precision (HalfGNN §4.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HalfLoad {
    /// Two halves, 4 bytes.
    Half2,
    /// Four halves, 8 bytes.
    Half4,
    /// Eight halves, 16 bytes.
    #[default]
    Half8,
}
