//! Sums of messages that are computed of the rows of both ends of an edge and of the edge's own, as one operator
//! with its gradient.
//!
//! With `a(e)` and `b(e)` sums of up to three rows each, of the destination `i`, the source `j` and the edge `e`,
//! column by column:
//!
//! ```text
//! y[i]  = s[i] · Σ_e f(a(e)) · g(b(e))     with the factors s in float
//! da(e) = s[i] · dy[i] · f′(a(e)) · g(b(e))
//! db(e) = s[i] · dy[i] · f(a(e)) · g′(b(e))
//! ```
//!
//! The gradient of a row of a destination or a source is the sum over its edges, that of an edge's row is the value
//! itself. The gradient computes the messages again: nothing is stored for an edge but its own rows.
//!
//! | layer | `a`, `f` | `b`, `g` |
//! |---|---|---|
//! | GINE (Hu et al., ICLR 2020) | `x[j] + e`, ReLU | – |
//! | ResGatedGraphConv (Bresson and Laurent 2017) | `k[i] + q[j]`, sigmoid | `v[j]`, identity |
//! | CGConv (Xie and Grossman 2018) | rows of both ends and of the edge, sigmoid | likewise, softplus |

mod check;
pub(super) mod cpu;
pub(super) mod gpu;

pub(super) use check::{check_gradients, check_rows, expect_order};

use super::Checked;
use crate::backend::{Adjacency, MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};

pub use halfgnn_contract::messages::Act as MessageAct;

/// The rows that are added up for an edge. Those that are missing are zero.
#[derive(Debug)]
pub struct MessageTerms<'a, B: Storage, E: Element> {
    /// A row for each destination.
    pub destination: Option<&'a Matrix<B, E>>,
    /// A row for each source.
    pub source: Option<&'a Matrix<B, E>>,
    /// A row for each edge.
    pub edge: Option<&'a Matrix<B, E>>,
}

impl<'a, B: Storage, E: Element> MessageTerms<'a, B, E> {
    /// No rows.
    pub const NONE: Self = Self {
        destination: None,
        source: None,
        edge: None,
    };

    pub(super) fn each(&self) -> [Option<&'a Matrix<B, E>>; 3] {
        [self.destination, self.source, self.edge]
    }
}

impl<B: Storage, E: Element> Clone for MessageTerms<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage, E: Element> Copy for MessageTerms<'_, B, E> {}

/// The row that each edge of an adjacency has in matrices of edges, each row once.
#[derive(Debug)]
pub struct EdgeOrder<B: Storage>(Array<B, u32>);

impl<B: Storage> EdgeOrder<B> {
    /// The order in which edge `k` has row `rows[k]`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a row is named twice or does not exist, and those of the memory.
    pub fn new(backend: &B, rows: &[u32]) -> Result<Self, Error> {
        let mut is_named = vec![false; rows.len()];
        for &row in rows {
            match is_named.get_mut(row as usize) {
                Some(named) if !*named => *named = true,
                named => {
                    let how = if named.is_some() {
                        "named twice"
                    } else {
                        "not there"
                    };
                    return Err(Error::Unsupported {
                        operator: "EdgeOrder",
                        reason: format!("row {row} of {} rows of edges is {how}", rows.len()),
                    });
                }
            }
        }
        Array::from_slice(backend, rows, MemoryKind::Graph).map(Self)
    }

    /// As much memory, on a backend that only counts it: each edge has row 0.
    ///
    /// # Errors
    /// Those of the memory.
    pub fn counted(backend: &B, edges: usize) -> Result<Self, Error> {
        Array::zeros(backend, edges, MemoryKind::Graph).map(Self)
    }

    /// An order that was made and checked elsewhere.
    ///
    /// # Safety
    /// Each number below the length is there once.
    pub const unsafe fn from_array(rows: Array<B, u32>) -> Self {
        Self(rows)
    }

    pub(crate) const fn rows(&self) -> &Array<B, u32> {
        &self.0
    }
}

/// What a message is. All matrices have the same columns.
#[derive(Debug)]
pub struct Messages<'a, B: Storage, E: Element> {
    /// `a`: at least one matrix.
    pub gate: MessageTerms<'a, B, E>,
    /// `b`. With no matrix, a message is `f(a)` alone.
    pub value: MessageTerms<'a, B, E>,
    /// `f` and `g`.
    pub acts: [MessageAct; 2],
    /// The rows of edges; by default they are in the order of the adjacency's edges.
    pub order: Option<&'a EdgeOrder<B>>,
    /// `s`: a factor of each destination; 1 by default.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// What is multiplied with all of them, in float.
    pub factor: f32,
}

impl<B: Storage, E: Element> Clone for Messages<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage, E: Element> Copy for Messages<'_, B, E> {}

/// `y[i] = s[i] · Σ_e f(a(e)) · g(b(e))`: sums of messages. They are float, and `y` is rounded once. A row without
/// edges becomes zero.
///
/// # Errors
/// [`Error::Shape`] where an operand does not fit the graph or another, [`Error::Unsupported`] where there is no
/// matrix or there are more than 2³² − 673 edges.
pub fn message_sums<B: MessageOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    op: Messages<'_, B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    backend.message_sums(Checked::new(MessageOperands { a, op, y })?)
}

/// Operands of [`message_sums`].
#[derive(Debug)]
pub struct MessageOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// The inputs.
    pub op: Messages<'a, B, E>,
    /// Becomes the sums, a row for each destination.
    pub y: &'a mut Matrix<B, E>,
}

/// The gradients of [`message_sums`] that are asked for, in float, each rounded once.
///
/// # Errors
/// As [`message_sums`], and [`Error::Unsupported`] where the gradient of rows is asked for that are not there.
pub fn message_sums_backward<B: MessageOperators, E: Element>(
    backend: &B,
    operands: MessageBackwardOperands<'_, B, E>,
) -> Result<(), Error> {
    backend.message_sums_backward(Checked::new(operands)?)
}

/// Gradients by the matrices of [`MessageTerms`], those that are wanted.
#[derive(Debug)]
pub struct MessageGradients<'a, B: Storage, E: Element> {
    /// Of rows of destinations.
    pub destination: Option<&'a mut Matrix<B, E>>,
    /// Of rows of sources.
    pub source: Option<&'a mut Matrix<B, E>>,
    /// Of rows of edges.
    pub edge: Option<&'a mut Matrix<B, E>>,
}

impl<B: Storage, E: Element> MessageGradients<'_, B, E> {
    fn each(&self) -> [Option<&Matrix<B, E>>; 3] {
        [
            self.destination.as_deref(),
            self.source.as_deref(),
            self.edge.as_deref(),
        ]
    }
}

/// Operands of [`message_sums_backward`].
#[derive(Debug)]
pub struct MessageBackwardOperands<'a, B: Storage, E: Element> {
    /// The graph of the forward pass.
    pub a: &'a Adjacency<B>,
    /// The same transposed, and the row of each of its edges in the matrices of edges.
    pub transposed: (&'a Adjacency<B>, Option<&'a EdgeOrder<B>>),
    /// The inputs of the forward pass.
    pub op: Messages<'a, B, E>,
    /// The gradient of the output.
    pub dy: &'a Matrix<B, E>,
    /// Becomes the gradients by [`Messages::gate`].
    pub gate: MessageGradients<'a, B, E>,
    /// Becomes the gradients by [`Messages::value`].
    pub value: MessageGradients<'a, B, E>,
}

/// Operators of sums of messages.
pub trait MessageOperators: Storage {
    /// The sums.
    ///
    /// # Errors
    /// Those of the device.
    fn message_sums<E: Element>(
        &self,
        operands: Checked<MessageOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradients.
    ///
    /// # Errors
    /// Those of the device.
    fn message_sums_backward<E: Element>(
        &self,
        operands: Checked<MessageBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
