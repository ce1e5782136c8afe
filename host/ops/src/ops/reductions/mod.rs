//! Maxima, minima, softmax sums and deviations of messages over the edges of each row, column by column, with their
//! gradients.
//!
//! A message is `m(e) = f(a(e))`, rounded to the matrices' format. `a(e)` adds up to three rows: of the destination,
//! the source and the edge. Nothing is stored for an edge, and no atomic operation is used.
//!
//! | | `y[i]` | `M[i]` | `share[i]` |
//! |---|---|---|---|
//! | maximum | `max m(e)` | | one over the edges that have it |
//! | softmax | `Σ exp(m(e) − M[i]) m(e) / Z[i]` | `max m(e)` | `1 / Z[i]` with `Z[i] = Σ exp(m(e) − M[i])` |
//! | deviation | `√(Σ m(e)² / n − M[i]²)` of `n` edges | `Σ m(e) / n` | `1 / (n y[i])` |
//!
//! The gradient reads `d[i] = dy[i] · share[i]`. Edges that have the maximum get equal parts of it, as torch's `amax`
//! has it. The gradient of a source's row is a sum over the transposed adjacency.

mod check;
mod cpu;
mod gpu;

use super::{Checked, EdgeOrder, MessageAct, MessageTerms};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::tensor::{Element, Matrix};

/// What is made of the messages of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MessageReduction {
    /// The largest, NaN where there is one.
    Max,
    /// The smallest, NaN where there is one.
    Min,
    /// Their mean, weighted by their exponentials: GENConv's softmax (Li et al. 2020).
    Softmax,
    /// Their standard deviation, in float; 0 where the variance is at most 10⁻⁵, as PyG has it.
    Deviation,
}

impl MessageReduction {
    /// Whether the gradient reads the result. That of a deviation reads the means in its place.
    pub fn reads_result(self) -> bool {
        self != Self::Deviation
    }

    /// Whether the gradient reads [`ReductionResults::kept`].
    pub fn reads_kept(self) -> bool {
        matches!(self, Self::Softmax | Self::Deviation)
    }
}

/// What is reduced.
#[derive(Debug)]
pub struct ReducedMessages<'a, B: Storage, E: Element> {
    /// `a`: at least one matrix. All have the same columns.
    pub rows: MessageTerms<'a, B, E>,
    /// `f`.
    pub act: MessageAct,
    /// The rows of edges; by default they are in the order of the adjacency's edges.
    pub order: Option<&'a EdgeOrder<B>>,
    /// What is made of the messages.
    pub reduction: MessageReduction,
}

impl<B: Storage, E: Element> Clone for ReducedMessages<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage, E: Element> Copy for ReducedMessages<'_, B, E> {}

/// The matrices that a reduction writes, a row for each destination. Rows without edges become zero in all of them.
#[derive(Debug)]
pub struct ReductionResults<'a, B: Storage, E: Element> {
    /// The result.
    pub y: &'a mut Matrix<B, E>,
    /// What the gradient of the result is multiplied by before [`reduce_messages_backward`] reads it.
    pub share: Option<&'a mut Matrix<B, E>>,
    /// `M`, the largest message or the mean, which the gradients of a softmax and of a deviation read.
    pub kept: Option<&'a mut Matrix<B, E>>,
}

/// Reduces the messages of the edges of each row. Sums are float, and each result is rounded once.
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit the graph or another, [`Error::Unsupported`] where there is no
/// matrix or there are more than 2³² − 673 edges.
pub fn reduce_messages<B: ReductionOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: ReducedMessages<'_, B, E>,
    results: ReductionResults<'_, B, E>,
) -> Result<(), Error> {
    backend.reduce_messages(Checked::new(ReductionOperands { a, op, results })?)
}

/// Operands of [`reduce_messages`].
#[derive(Debug)]
pub struct ReductionOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// The inputs.
    pub op: ReducedMessages<'a, B, E>,
    /// The outputs.
    pub results: ReductionResults<'a, B, E>,
}

/// The gradients of [`reduce_messages`] that are asked for, in float, each rounded once.
///
/// # Errors
/// As [`reduce_messages`], and [`Error::Unsupported`] where the gradient of rows is asked for that are not there, or
/// what the gradient reads of the forward pass is missing.
pub fn reduce_messages_backward<B: ReductionOperators, E: Element>(
    backend: &B,
    operands: ReductionBackwardOperands<'_, B, E>,
) -> Result<(), Error> {
    backend.reduce_messages_backward(Checked::new(operands)?)
}

/// Operands of [`reduce_messages_backward`].
#[derive(Debug)]
pub struct ReductionBackwardOperands<'a, B: Storage, E: Element> {
    /// The graph of the forward pass.
    pub a: &'a Adjacency<B>,
    /// The same transposed, and the row of each of its edges in the matrix of edges.
    pub transposed: (&'a Adjacency<B>, Option<&'a EdgeOrder<B>>),
    /// The inputs of the forward pass.
    pub op: ReducedMessages<'a, B, E>,
    /// The gradient of the result times the share.
    pub d: &'a Matrix<B, E>,
    /// The result of the forward pass, where the gradient [reads](MessageReduction::reads_result) it.
    pub y: Option<&'a Matrix<B, E>>,
    /// What the forward pass kept, where the gradient [reads](MessageReduction::reads_kept) that.
    pub kept: Option<&'a Matrix<B, E>>,
    /// Becomes the gradients.
    pub gradients: super::MessageGradients<'a, B, E>,
}

/// Reductions of messages.
pub trait ReductionOperators: Storage {
    /// The results.
    ///
    /// # Errors
    /// Those of the device.
    fn reduce_messages<E: Element>(
        &self,
        operands: Checked<ReductionOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradients.
    ///
    /// # Errors
    /// Those of the device.
    fn reduce_messages_backward<E: Element>(
        &self,
        operands: Checked<ReductionBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
