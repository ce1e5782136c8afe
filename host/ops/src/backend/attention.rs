//! Attention over the edges of a graph: softmax of scores, its weights and their gradients.
//!
//! Numbers of vertices lie in planes of floats, one a head: head `h`, vertex `v` at `h · vertices + v`. Numbers of edges
//! lie in planes of elements, [`edge_plane_stride`](halfgnn_contract::attention::edge_plane_stride) apart, in the order
//! of the adjacency. Features have their heads side by side, each as wide as the columns over the heads.

use super::MemoryKind;
use super::{Dropout, SpmmPolicy, Storage};
use crate::error::Error;

use crate::ops::{
    AttentionPairOperands, AttentionStatisticsOperands, Checked, EdgeStepOperands,
    HeadDotsOperands, HeadMeanBackwardOperands, HeadMeanOperands, HeadOuterOperands,
    HeadScoresOperands, HeadSumsOperands, SegmentReduceOperands,
};
use crate::tensor::{Array, Element, Matrix};

/// Weights of edges by attention: `α(i,j) = softmax_j(LeakyReLU(destination[i] + source[j]))`, computed where they are
/// used, so that no array of edges is stored. Scores and statistics are planes, one a head, of one float (two for the
/// statistics) a vertex: head `h`, vertex `v` at `h · vertices + v`.
#[derive(Debug)]
pub struct EdgeAttention<'a, B: Storage> {
    /// Number of heads.
    pub heads: usize,
    /// Score of each vertex as destination.
    pub destination: &'a Array<B, f32>,
    /// Score of each vertex as source.
    pub source: &'a Array<B, f32>,
    /// Maximum and reciprocal sum of exponentials of each vertex as destination.
    pub statistics: &'a Array<B, [f32; 2]>,
    /// Slope of the LeakyReLU below zero.
    pub slope: f32,
    /// Whether the adjacency is the transposed one: rows are sources, columns destinations.
    pub transposed: bool,
    /// Which weights are dropped, by the edge's end points; the others are divided by `1 − probability`.
    pub dropout: Option<Dropout<'a, B>>,
}

/// What the scores of edges are made of: `LeakyReLU(destination[i] + source[j])` for the edge from `j` to `i`.
#[derive(Debug)]
pub struct AttentionScores<'a, B: Storage> {
    /// Number of heads.
    pub heads: usize,
    /// Score of each vertex as destination.
    pub destination: &'a Array<B, f32>,
    /// Score of each vertex as source.
    pub source: &'a Array<B, f32>,
    /// Slope of the LeakyReLU below zero.
    pub slope: f32,
}

impl<B: Storage> Clone for AttentionScores<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage> Copy for AttentionScores<'_, B> {}

/// Two SpMMs in one walk over the edges, each of which gathers its row of `x` once: with the weights `α k` of all edges, and
/// with those of the edges whose sum of scores is positive, which is what the gradient of a LeakyReLU wants. `k` are the
/// factors of dropout.
#[derive(Debug)]
pub struct AttentionPair<'a, B: Storage, E: Element> {
    /// The weights.
    pub weights: &'a EdgeAttention<'a, B>,
    /// How it computes, as of an SpMM with these weights.
    pub policy: SpmmPolicy,
    /// Becomes the sum over all edges of each row.
    pub all: &'a mut Matrix<B, E>,
    /// Becomes the sum over those of positive sum of scores.
    pub positive: &'a mut Matrix<B, E>,
    /// A third sum, of a number an edge.
    pub through: Option<SoftmaxGradient<'a, B>>,
}

/// `sums[row] = Σ LeakyReLU'(score) · α · values[destination]` over the edges of each row, without dropout: what a softmax's
/// gradient takes off that of the scores, where `values` are its inner sums. Planes of floats, a number a vertex.
#[derive(Debug)]
pub struct SoftmaxGradient<'a, B: Storage> {
    /// Numbers of the vertices as destinations.
    pub values: &'a Array<B, f32>,
    /// Become the sums.
    pub sums: &'a mut Array<B, f32>,
}

/// What a segment reduction makes of the values of a row's edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentReduction {
    /// The sum, in float; 0 of a row without edges.
    Sum,
    /// The largest, NaN if there is one; −∞ of a row without edges.
    Max,
}

/// For each edge the number of another: that of the same edge in the transposed order, for one
/// ([`Graph::edge_map`](crate::graph::Graph::edge_map)). Every number is an edge's, which is checked where a map is made,
/// since kernels read where it says.
#[derive(Debug)]
pub struct EdgeMap<B: Storage> {
    edges: Array<B, u32>,
}

impl<B: Storage> EdgeMap<B> {
    /// The map that takes edge `k` to edge `edges[k]`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a number that is no edge's, [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, edges: &[u32]) -> Result<Self, Error> {
        if let Some(at) = edges.iter().position(|&edge| edge as usize >= edges.len()) {
            return Err(Error::Unsupported {
                operator: "EdgeMap::new",
                reason: format!(
                    "entry {at} is {}, and there are {} edges",
                    edges[at],
                    edges.len()
                ),
            });
        }
        Ok(Self {
            edges: Array::from_slice(backend, edges, MemoryKind::Graph)?,
        })
    }

    /// Number of edges.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether there is no edge.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// The numbers.
    pub(crate) fn edges(&self) -> &Array<B, u32> {
        &self.edges
    }
}

/// The values that a segment reduction reduces: planes of edges.
#[derive(Debug)]
pub enum EdgeValues<'a, B: Storage, E: Element> {
    /// A value a edge.
    Plane(&'a Array<B, E>),
    /// The product of two, not rounded.
    Product(&'a Array<B, E>, &'a Array<B, E>),
    /// The value of another edge, that which the map names: values of one edge order, reduced in the other.
    Gathered(&'a Array<B, E>, &'a EdgeMap<B>),
}

/// One step of an edge softmax or of its gradient, from planes of edges to planes of edges, each number computed in
/// float and rounded once. `x` absent means in place.
#[derive(Debug)]
pub enum EdgeStep<'a, B: Storage, E: Element> {
    /// The score of each edge.
    Scores(AttentionScores<'a, B>),
    /// Times the derivative of the score's LeakyReLU.
    ScoresBackward(AttentionScores<'a, B>),
    /// `exp(x − row)`
    Exp {
        /// A number a row.
        row: &'a Array<B, f32>,
    },
    /// `x / row`, 0 where `row` is.
    Divide {
        /// A number a row.
        row: &'a Array<B, f32>,
    },
    /// `factor · (x − row)`
    SoftmaxBackward {
        /// A number a edge.
        factor: &'a Array<B, E>,
        /// A number a row.
        row: &'a Array<B, f32>,
    },
    /// 0 where the edge is dropped, by its end points and its head; else divided by `1 − probability`.
    Dropout(Dropout<'a, B>),
}

/// `a · (beta · b + gamma · c) + delta · u · v`, of each head of each row.
#[derive(Debug)]
pub struct HeadDots<'a, B: Storage, E: Element> {
    /// Number of heads.
    pub heads: usize,
    /// Features.
    pub a: &'a Matrix<B, E>,
    /// Features, and their factor.
    pub b: (f32, &'a Matrix<B, E>),
    /// Features, and their factor.
    pub c: Option<(f32, &'a Matrix<B, E>)>,
    /// Numbers of vertices, and their factor.
    pub u: Option<(f32, &'a Array<B, f32>)>,
    /// Numbers of vertices that `u` is multiplied by.
    pub v: Option<&'a Array<B, f32>>,
}

/// Softmax over the edges of each row, and what attention does to features.
pub trait AttentionOperators: Storage {
    /// Of each row and head the largest score and the reciprocal of `Σ exp(score − largest)`; zeros for a row without
    /// edges. `positive_share` becomes the sum of the weights `α` of the edges whose `destination + source` is positive.
    ///
    /// # Errors
    /// Those of the device.
    fn attention_statistics(
        &self,
        operands: Checked<AttentionStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error>;

    /// Two SpMMs of `x` in one walk over the edges.
    ///
    /// # Errors
    /// Those of the device, and [`Error::Unsupported`] for a policy that no kernel is built for.
    fn attention_pair<E: Element>(
        &self,
        operands: Checked<AttentionPairOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Reduces the values of the edges of each row.
    ///
    /// # Errors
    /// Those of the device.
    fn segment_reduce<E: Element>(
        &self,
        operands: Checked<SegmentReduceOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// One step of an edge softmax.
    ///
    /// # Errors
    /// Those of the device.
    fn edge_map<E: Element>(
        &self,
        operands: Checked<EdgeStepOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The dots of each head of each row with its part of the two rows of `vectors`.
    ///
    /// # Errors
    /// Those of the device.
    fn head_scores<E: Element>(
        &self,
        operands: Checked<HeadScoresOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Dots of heads; see [`HeadDots`].
    ///
    /// # Errors
    /// Those of the device.
    fn head_dots<E: Element>(
        &self,
        operands: Checked<HeadDotsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Adds `destination · vectors[0] + source · vectors[1]` to each head of each row of `x`.
    ///
    /// # Errors
    /// Those of the device.
    fn head_outer<E: Element>(
        &self,
        operands: Checked<HeadOuterOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// `sums[0] = Σ destination · x` and `sums[1] = Σ source · x` over the rows, head by head, in float and in a fixed
    /// order.
    ///
    /// # Errors
    /// Those of the device.
    fn head_sums<E: Element>(
        &self,
        operands: Checked<HeadSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// `y` = the mean of the heads of `x`.
    ///
    /// # Errors
    /// Those of the device.
    fn head_mean<E: Element>(
        &self,
        operands: Checked<HeadMeanOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of [`AttentionOperators::head_mean`]: each head of `dx` becomes `dy` over the heads.
    ///
    /// # Errors
    /// Those of the device.
    fn head_mean_backward<E: Element>(
        &self,
        operands: Checked<HeadMeanBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
