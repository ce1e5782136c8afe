//! Edge softmax on arrays of edges, step by step.

use super::{AttentionOperators, EdgeStep, edge_step};
use crate::backend::Adjacency;
use crate::error::Error;
use crate::ops::{EdgeValues, SegmentOperators, SegmentReduction, segment_reduce};
use crate::tensor::{Array, Element};

/// Softmax of the numbers of the edges of each row, in place and head by head: `α = exp(x − max) / Σ exp(x − max)`
/// (HalfGNN §5).
///
/// `x` holds [`edge_values`](crate::ops::edge_values) elements, `rows` is memory for a float a head and vertex and
/// holds the sums of exponentials afterwards. Four passes over the edges: the row maximum, the shadow exponential,
/// whose argument is never positive, so that half cannot overflow, the row sum, added up in float, and the division.
/// Each pass reads and writes elements of the run's precision. In half a weight below 2⁻²⁴ becomes zero and one below
/// 2⁻¹⁴ is subnormal: a row of 65,536 equal edges has weights of 2⁻¹⁶, off by up to 2⁻²⁵.
/// [`Attention`](super::Attention) has float weights.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit the graph, [`Error::Unsupported`] for no heads or too many.
pub fn edge_softmax<B: AttentionOperators + SegmentOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    heads: usize,
    x: &mut Array<B, E>,
    rows: &mut Array<B, f32>,
) -> Result<(), Error> {
    let reduce = |reduction, x: &Array<B, E>, rows: &mut Array<B, f32>| {
        segment_reduce(backend, a, heads, reduction, &EdgeValues::Plane(x), rows)
    };
    reduce(SegmentReduction::Max, x, rows)?;
    edge_step(backend, a, heads, &EdgeStep::Exp { row: rows }, None, x)?;
    reduce(SegmentReduction::Sum, x, rows)?;
    edge_step(backend, a, heads, &EdgeStep::Divide { row: rows }, None, x)
}

/// The gradient of [`edge_softmax`] in place: `d` holds dL/dα and becomes dL/dx, `α · (d − Σ α d)` with the sum over
/// the row, added up in float. `rows` is memory for a float a head and vertex.
///
/// # Errors
/// As [`edge_softmax`].
pub fn edge_softmax_backward<B: AttentionOperators + SegmentOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    heads: usize,
    alpha: &Array<B, E>,
    d: &mut Array<B, E>,
    rows: &mut Array<B, f32>,
) -> Result<(), Error> {
    let products = EdgeValues::Product(alpha, d);
    segment_reduce(backend, a, heads, SegmentReduction::Sum, &products, rows)?;
    let step = EdgeStep::SoftmaxBackward {
        factor: alpha,
        row: rows,
    };
    edge_step(backend, a, heads, &step, None, d)
}
