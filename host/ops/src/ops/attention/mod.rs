//! Attention over the edges of a graph (GAT, Veličković et al., ICLR 2018, equations 1 to 6).
//!
//! Row `i` aggregates column `j` over the edge `(i, j)` with the weight
//! `α(i,j) = softmax_j(LeakyReLU(l[i] + r[j]))`, where `l = h · a_l` and `r = h · a_r` are two scores of each vertex.
//!
//! - [`Attention`]: fused. No number of an edge is ever stored: every kernel computes the weights it needs from two
//!   scores and two statistics a vertex. Forward and backward. Scores may have a bias an edge, made of features of
//!   edges, and that and its gradient are arrays of edges.
//! - [`edge_softmax`] and its gradient: unfused, on arrays of edges in the run's precision, as HalfGNN has it. With
//!   [`sddmm`](super::sddmm()) and [`spmm`](super::spmm()) it makes the same layer.
//! - the rest: the steps that both are made of. Others are in [`segment_reduce`](super::segment_reduce),
//!   [`attention_pair`](super::attention_pair) and the operators on heads, such as [`head_scores`](super::head_scores).

mod check;
mod cpu;
mod edge_softmax;
mod fused;
mod gpu;

pub use edge_softmax::{edge_softmax, edge_softmax_backward};
pub use fused::{Attention, AttentionBackward, AttentionForward, EdgeBiases};

use super::{AttentionScores, Checked, Dropout, EdgeAttention};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element};

/// Softmax statistics of the scores `LeakyReLU(destination[i] + source[j])` of the edges of each row `i`: the largest
/// score and the reciprocal of `Σ exp(score − largest)`, from which [`EdgeAttention`](super::EdgeAttention) has the
/// weight of every edge, and, in `positive_share`, the sum of the weights of the edges whose `destination + source` is
/// positive. One pass over the edges, in float; `exp` is taken of nothing positive, so scores of any size are safe.
/// Zeros for a row without edges.
///
/// `sums`, planes of edges, become `destination + source`, and the bias, of each edge: see
/// [`EdgeAttention::sums`](super::EdgeAttention::sums).
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit the graph, [`Error::Unsupported`] for no heads or too many.
pub fn attention_statistics<B: AttentionOperators>(
    backend: &B,
    a: &Adjacency<B>,
    scores: &AttentionScores<'_, B>,
    statistics: &mut Array<B, [f32; 2]>,
    positive_share: Option<&mut Array<B, f32>>,
    sums: Option<&mut Array<B, f32>>,
) -> Result<(), Error> {
    let operands = AttentionStatisticsOperands {
        a,
        scores,
        statistics,
        positive_share,
        sums,
    };
    backend.attention_statistics(Checked::new(operands)?)
}

/// Operands of [`attention_statistics`].
#[derive(Debug)]
pub struct AttentionStatisticsOperands<'a, B: Storage> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// Scores of its vertices.
    pub scores: &'a AttentionScores<'a, B>,
    /// Become the statistics.
    pub statistics: &'a mut Array<B, [f32; 2]>,
    /// Becomes the share of positive sums of scores.
    pub positive_share: Option<&'a mut Array<B, f32>>,
    /// Become the sums of scores: planes of edges.
    pub sums: Option<&'a mut Array<B, f32>>,
}

/// The gradient of [`biases`](AttentionScores::biases): `d[k] = LeakyReLU'(s) · α(i,j) · (k(i,j) · x[k] − inner[i])` of
/// the edge `k` from `j` to `i`, with the sum `s` of its scores and bias, and the factors `k(i,j)` of dropout; in
/// float.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit the graph, [`Error::Unsupported`] where there are no biases.
pub fn edge_bias_gradient<B: AttentionOperators, E: Element>(
    backend: &B,
    operands: EdgeBiasGradientOperands<'_, B, E>,
) -> Result<(), Error> {
    backend.edge_bias_gradient(Checked::new(operands)?)
}

/// Operands of [`edge_bias_gradient`].
#[derive(Debug)]
pub struct EdgeBiasGradientOperands<'a, B: Storage, E: Element> {
    /// The graph, whose rows are destinations, or sources where the weights say so.
    pub a: &'a Adjacency<B>,
    /// Weights that the forward pass had, with their biases in the order of the graph.
    pub weights: &'a EdgeAttention<'a, B>,
    /// The gradient of what each weight became by dropout: planes of edges.
    pub x: &'a Array<B, E>,
    /// `Σ_j α k x` of each destination.
    pub inner: &'a Array<B, f32>,
    /// Becomes the gradient: planes of edges, and zero between their ends and the next.
    pub d: &'a mut Array<B, f32>,
}

/// One step of an edge softmax or of its gradient; see [`EdgeStep`]. In place where `x` is absent.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit the graph, [`Error::Unsupported`] for no heads or too many, and for a
/// dropout probability outside [0, 1).
pub fn edge_step<B: AttentionOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    heads: usize,
    step: &EdgeStep<'_, B, E>,
    x: Option<&Array<B, E>>,
    y: &mut Array<B, E>,
) -> Result<(), Error> {
    let operands = EdgeStepOperands {
        a,
        heads,
        step,
        x,
        y,
    };
    backend.edge_map(Checked::new(operands)?)
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
        /// A number an edge.
        factor: &'a Array<B, E>,
        /// A number a row.
        row: &'a Array<B, f32>,
    },
    /// 0 where the edge is dropped, by its end points and its head; else divided by `1 − probability`.
    Dropout(Dropout<'a, B>),
}

/// Operands of [`edge_step`].
#[derive(Debug)]
pub struct EdgeStepOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// Number of heads.
    pub heads: usize,
    /// The step.
    pub step: &'a EdgeStep<'a, B, E>,
    /// The input; in place where absent.
    pub x: Option<&'a Array<B, E>>,
    /// Becomes the output.
    pub y: &'a mut Array<B, E>,
}

/// Softmax over the edges of each row.
pub trait AttentionOperators: Storage {
    /// Of each row and head the largest score and the reciprocal of `Σ exp(score − largest)`; zeros for a row without
    /// edges. `positive_share` becomes the sum of the weights `α` of the edges whose `destination + source` is
    /// positive.
    ///
    /// # Errors
    /// Those of the device.
    fn attention_statistics(
        &self,
        operands: Checked<AttentionStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error>;

    /// Whether sums over a number of edges, from a number of sources, are faster where [`attention_statistics`] has
    /// left them the [sums of scores](AttentionStatisticsOperands::sums), by more than the memory is worth.
    fn keeps_sums_of_scores(&self, sources: usize, edges: usize, heads: usize) -> bool;

    /// The gradient of biases of edges.
    ///
    /// # Errors
    /// Those of the device.
    fn edge_bias_gradient<E: Element>(
        &self,
        operands: Checked<EdgeBiasGradientOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// One step of an edge softmax.
    ///
    /// # Errors
    /// Those of the device.
    fn edge_map<E: Element>(
        &self,
        operands: Checked<EdgeStepOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
