//! Attention over the edges of a graph (GAT, Veličković et al., ICLR 2018, equations 1 to 6).
//!
//! Row `i` hears from column `j` over the edge `(i, j)` with the weight
//! `α(i,j) = softmax_j(LeakyReLU(l[i] + r[j]))`, where `l = h · a_l` and `r = h · a_r` are two scores of each vertex.
//!
//! - [`Attention`]: fused. No number of an edge is ever stored: every kernel computes the weights it needs from two scores
//!   and two statistics a vertex. Forward and backward.
//! - [`edge_softmax`] and its gradient: unfused, on arrays of edges in the run's precision, as HalfGNN has it. With
//!   [`sddmm`](super::sddmm) and [`spmm`](super::spmm) it makes the same layer.
//! - the rest: the parts that both are made of.
//!
//! # Layouts
//! - Numbers of vertices are arrays of `heads · vertices` floats, a plane a head.
//! - Numbers of edges are arrays of [`edge_values`] elements, a plane a head in the order of the adjacency.
//! - Features have their heads side by side, all of one width; with more than one head a width must fill whole 16-byte
//!   vectors (8 halves or 4 floats), so that every head starts at one.

mod edge_softmax;
mod fused;
mod parts;

pub use edge_softmax::{edge_softmax, edge_softmax_backward};
pub use fused::{Attention, AttentionBackward, AttentionForward};
pub use parts::{
    AttentionPairOperands, AttentionStatisticsOperands, EdgeStepOperands, HeadDotsOperands,
    HeadMeanBackwardOperands, HeadMeanOperands, HeadOuterOperands, HeadScoresOperands,
    HeadSumsOperands, SegmentReduceOperands, attention_pair, attention_statistics, edge_step,
    edge_values, head_dots, head_mean, head_mean_backward, head_outer, head_scores, head_sums,
    segment_reduce,
};
