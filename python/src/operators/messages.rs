//! Sums and other reductions of messages (`message_sums`, `reduce_messages` of `halfgnn::ops`) in the caller's memory.

use super::OnElements;
use crate::memory::{Lend, RawAdjacency, RawArray, RawMatrix};
use crate::place::{Place, perform, precision};
use halfgnn::Error;
use halfgnn::backend::Storage;
use halfgnn::ops::{
    EdgeOrder, MessageAct, MessageBackwardOperands, MessageGradients, MessageReduction,
    MessageTerms, Messages, ReducedMessages, ReductionBackwardOperands, ReductionResults,
    message_sums, message_sums_backward, reduce_messages, reduce_messages_backward,
};
use halfgnn::tensor::{Array, Element, Matrix, Precision};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// Matrices of destinations, sources and edges, of the first and of the second sum.
type Six<T> = [Option<T>; 6];

/// The inputs of both passes.
#[derive(Clone, Copy, FromPyObject)]
pub struct Messaging {
    terms: Six<RawMatrix>,
    acts: [usize; 2],
    /// The row of each edge in matrices of edges.
    order: Option<RawArray>,
    /// A factor of each destination.
    scale: Option<RawArray>,
}

impl Messaging {
    fn acts(&self) -> PyResult<[MessageAct; 2]> {
        Ok([act(self.acts[0])?, act(self.acts[1])?])
    }
}

fn act(number: usize) -> PyResult<MessageAct> {
    let act = MessageAct::ALL.get(number).copied();
    act.ok_or_else(|| PyValueError::new_err(format!("there is no activation {number}")))
}

/// What [`Messaging`] names, borrowed.
struct Borrowed<B: Storage, E: Element> {
    terms: Six<Matrix<B, E>>,
    order: Option<EdgeOrder<B>>,
    scale: Option<Array<B, f32>>,
}

impl<B: Lend, E: Element> Borrowed<B, E> {
    /// # Safety
    /// As of [`Lend`]; the order names each row of edges once.
    unsafe fn new(backend: &B, of: &Messaging) -> Result<Self, Error> {
        // SAFETY: what this function asks of its caller.
        unsafe {
            Ok(Self {
                terms: matrices(backend, of.terms)?,
                order: order(backend, of.order)?,
                scale: of.scale.map(|of| backend.array(of)).transpose()?,
            })
        }
    }

    fn operator(&self, acts: [MessageAct; 2]) -> Messages<'_, B, E> {
        let [a0, a1, a2, b0, b1, b2] = self.terms.each_ref().map(Option::as_ref);
        Messages {
            gate: MessageTerms {
                destination: a0,
                source: a1,
                edge: a2,
            },
            value: MessageTerms {
                destination: b0,
                source: b1,
                edge: b2,
            },
            acts,
            order: self.order.as_ref(),
            row_scale: self.scale.as_ref(),
            factor: 1.0,
        }
    }
}

/// # Safety
/// As of [`Borrowed::new`].
unsafe fn order<B: Lend>(backend: &B, of: Option<RawArray>) -> Result<Option<EdgeOrder<B>>, Error> {
    // SAFETY: what this function asks of its caller.
    let checked = |of| unsafe { Ok(EdgeOrder::from_array(backend.array(of)?)) };
    of.map(checked).transpose()
}

/// # Safety
/// As of [`Lend`].
unsafe fn matrices<B: Lend, E: Element, const N: usize>(
    backend: &B,
    of: [Option<RawMatrix>; N],
) -> Result<[Option<Matrix<B, E>>; N], Error> {
    let mut found = [const { None }; N];
    for (found, of) in found.iter_mut().zip(of) {
        // SAFETY: what this function asks of its caller.
        *found = of.map(|of| unsafe { backend.matrix(of) }).transpose()?;
    }
    Ok(found)
}

/// Gives back the matrices that were borrowed to be written.
///
/// # Safety
/// As of [`Lend`]; `raw` is what the matrices were borrowed of.
unsafe fn give<B: Lend, E: Element, const N: usize>(
    backend: &B,
    matrices: &[Option<Matrix<B, E>>; N],
    raw: [Option<RawMatrix>; N],
) -> Result<(), Error> {
    for (matrix, raw) in matrices.iter().zip(raw) {
        if let (Some(matrix), Some(raw)) = (matrix, raw) {
            // SAFETY: what this function asks of its caller.
            unsafe { backend.give_matrix(matrix, raw)? };
        }
    }
    Ok(())
}

struct Forward {
    precision: Precision,
    a: RawAdjacency,
    inputs: Messaging,
    acts: [MessageAct; 2],
    y: RawMatrix,
}

impl OnElements for Forward {
    fn precision(&self) -> Precision {
        self.precision
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        // SAFETY: what this method asks of its caller; Python's orders are those of graphs.
        let (a, borrowed, mut y) = unsafe {
            (
                backend.adjacency(&self.a)?,
                Borrowed::<B, E>::new(backend, &self.inputs)?,
                backend.matrix::<E>(self.y)?,
            )
        };
        message_sums(backend, &a, borrowed.operator(self.acts), &mut y)?;
        // SAFETY: as above.
        unsafe { backend.give_matrix(&y, self.y) }
    }
}

/// `y[i] = s[i] Σ_e f(a(e)) g(b(e))`.
#[pyfunction]
pub fn messages_forward(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    inputs: Messaging,
    y: RawMatrix,
) -> PyResult<()> {
    let call = Forward {
        precision: precision(format)?,
        a,
        inputs,
        acts: inputs.acts()?,
        y,
    };
    perform(py, place, allocate, &call)
}

/// What the backward pass reads besides, and writes.
#[derive(Clone, Copy, FromPyObject)]
pub struct MessageOutputs {
    dy: RawMatrix,
    /// Of those that are wanted.
    gradients: Six<RawMatrix>,
    /// The row of each edge of the transposed graph in matrices of edges.
    back: Option<RawArray>,
}

struct Backward {
    precision: Precision,
    a: RawAdjacency,
    transposed: RawAdjacency,
    inputs: Messaging,
    acts: [MessageAct; 2],
    outputs: MessageOutputs,
}

impl OnElements for Backward {
    fn precision(&self) -> Precision {
        self.precision
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        let of = &self.outputs;
        // SAFETY: as of the forward pass.
        let (a, transposed, borrowed, back) = unsafe {
            (
                backend.adjacency(&self.a)?,
                backend.adjacency(&self.transposed)?,
                Borrowed::<B, E>::new(backend, &self.inputs)?,
                order(backend, of.back)?,
            )
        };
        // SAFETY: as above.
        let (dy, mut gradients) = unsafe {
            (
                backend.matrix::<E>(of.dy)?,
                matrices::<B, E, 6>(backend, of.gradients)?,
            )
        };
        let [a0, a1, a2, b0, b1, b2] = gradients.each_mut().map(Option::as_mut);
        let operands = MessageBackwardOperands {
            a: &a,
            transposed: (&transposed, back.as_ref()),
            op: borrowed.operator(self.acts),
            dy: &dy,
            gate: MessageGradients {
                destination: a0,
                source: a1,
                edge: a2,
            },
            value: MessageGradients {
                destination: b0,
                source: b1,
                edge: b2,
            },
        };
        message_sums_backward(backend, operands)?;
        // SAFETY: as above.
        unsafe { give(backend, &gradients, of.gradients) }
    }
}

/// The gradients of [`messages_forward`]'s output.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "operands, as Python has them")]
pub fn messages_backward(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    transposed: RawAdjacency,
    inputs: Messaging,
    outputs: MessageOutputs,
) -> PyResult<()> {
    let call = Backward {
        precision: precision(format)?,
        a,
        transposed,
        inputs,
        acts: inputs.acts()?,
        outputs,
    };
    perform(py, place, allocate, &call)
}

/// The inputs of both passes of a reduction.
#[derive(Clone, Copy, FromPyObject)]
pub struct Reducing {
    /// Matrices of destinations, sources and edges.
    terms: [Option<RawMatrix>; 3],
    act: usize,
    /// Of [`REDUCTIONS`].
    reduction: usize,
    /// The row of each edge in the matrix of edges.
    order: Option<RawArray>,
}

/// The reductions, as Python numbers them.
const REDUCTIONS: [MessageReduction; 4] = [
    MessageReduction::Max,
    MessageReduction::Min,
    MessageReduction::Softmax,
    MessageReduction::Deviation,
];

impl Reducing {
    fn kind(&self) -> PyResult<(MessageAct, MessageReduction)> {
        let reduction = REDUCTIONS.get(self.reduction).copied();
        let missing = || PyValueError::new_err(format!("there is no reduction {}", self.reduction));
        Ok((act(self.act)?, reduction.ok_or_else(missing)?))
    }
}

/// What [`Reducing`] names, borrowed.
struct BorrowedRows<B: Storage, E: Element> {
    terms: [Option<Matrix<B, E>>; 3],
    order: Option<EdgeOrder<B>>,
}

impl<B: Lend, E: Element> BorrowedRows<B, E> {
    /// # Safety
    /// As of [`Borrowed::new`].
    unsafe fn new(backend: &B, of: &Reducing) -> Result<Self, Error> {
        // SAFETY: what this function asks of its caller.
        unsafe {
            Ok(Self {
                terms: matrices(backend, of.terms)?,
                order: order(backend, of.order)?,
            })
        }
    }

    fn operator(
        &self,
        (act, reduction): (MessageAct, MessageReduction),
    ) -> ReducedMessages<'_, B, E> {
        let [destination, source, edge] = self.terms.each_ref().map(Option::as_ref);
        ReducedMessages {
            rows: MessageTerms {
                destination,
                source,
                edge,
            },
            act,
            order: self.order.as_ref(),
            reduction,
        }
    }
}

struct Reduce {
    precision: Precision,
    a: RawAdjacency,
    inputs: Reducing,
    kind: (MessageAct, MessageReduction),
    /// The result, the share, and what is kept.
    outputs: [Option<RawMatrix>; 3],
}

impl OnElements for Reduce {
    fn precision(&self) -> Precision {
        self.precision
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        // SAFETY: what this method asks of its caller; Python's orders are those of graphs.
        let (a, borrowed, mut outputs) = unsafe {
            (
                backend.adjacency(&self.a)?,
                BorrowedRows::<B, E>::new(backend, &self.inputs)?,
                matrices::<B, E, 3>(backend, self.outputs)?,
            )
        };
        let [Some(y), share, kept] = outputs.each_mut().map(Option::as_mut) else {
            return Err(Error::Unsupported {
                operator: "reduce_messages",
                reason: "there is no result".into(),
            });
        };
        let results = ReductionResults { y, share, kept };
        reduce_messages(backend, &a, borrowed.operator(self.kind), results)?;
        // SAFETY: as above.
        unsafe { give(backend, &outputs, self.outputs) }
    }
}

/// The reduction of the messages of each row.
#[pyfunction]
pub fn reduce_forward(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    inputs: Reducing,
    outputs: [Option<RawMatrix>; 3],
) -> PyResult<()> {
    let call = Reduce {
        precision: precision(format)?,
        a,
        inputs,
        kind: inputs.kind()?,
        outputs,
    };
    perform(py, place, allocate, &call)
}

/// What the backward pass reads besides, and writes.
#[derive(Clone, Copy, FromPyObject)]
pub struct ReduceOutputs {
    /// The gradient of the result times the share.
    d: RawMatrix,
    /// The result, and what was kept.
    made: [Option<RawMatrix>; 2],
    /// Of those that are wanted.
    gradients: [Option<RawMatrix>; 3],
    /// The row of each edge of the transposed graph in the matrix of edges.
    back: Option<RawArray>,
}

struct ReduceBackward {
    precision: Precision,
    a: RawAdjacency,
    transposed: RawAdjacency,
    inputs: Reducing,
    kind: (MessageAct, MessageReduction),
    outputs: ReduceOutputs,
}

impl OnElements for ReduceBackward {
    fn precision(&self) -> Precision {
        self.precision
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        let of = &self.outputs;
        // SAFETY: as of the forward pass.
        let (a, transposed, borrowed, back) = unsafe {
            (
                backend.adjacency(&self.a)?,
                backend.adjacency(&self.transposed)?,
                BorrowedRows::<B, E>::new(backend, &self.inputs)?,
                order(backend, of.back)?,
            )
        };
        // SAFETY: as above.
        let (d, [y, kept], mut gradients) = unsafe {
            (
                backend.matrix::<E>(of.d)?,
                matrices::<B, E, 2>(backend, of.made)?,
                matrices::<B, E, 3>(backend, of.gradients)?,
            )
        };
        let [destination, source, edge] = gradients.each_mut().map(Option::as_mut);
        let operands = ReductionBackwardOperands {
            a: &a,
            transposed: (&transposed, back.as_ref()),
            op: borrowed.operator(self.kind),
            d: &d,
            y: y.as_ref(),
            kept: kept.as_ref(),
            gradients: MessageGradients {
                destination,
                source,
                edge,
            },
        };
        reduce_messages_backward(backend, operands)?;
        // SAFETY: as above.
        unsafe { give(backend, &gradients, of.gradients) }
    }
}

/// The gradients of [`reduce_forward`]'s result.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "operands, as Python has them")]
pub fn reduce_backward(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    transposed: RawAdjacency,
    inputs: Reducing,
    outputs: ReduceOutputs,
) -> PyResult<()> {
    let call = ReduceBackward {
        precision: precision(format)?,
        a,
        transposed,
        inputs,
        kind: inputs.kind()?,
        outputs,
    };
    perform(py, place, allocate, &call)
}
