//! Sums of messages (`halfgnn::ops::message_sums`) in the caller's memory.

use super::OnElements;
use crate::memory::{Lend, RawAdjacency, RawArray, RawMatrix};
use crate::place::{Place, perform, precision};
use halfgnn::Error;
use halfgnn::backend::Storage;
use halfgnn::ops::{
    EdgeOrder, MessageAct, MessageBackwardOperands, MessageGradients, MessageTerms, Messages,
    message_sums, message_sums_backward,
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
        let named = |number: usize| {
            let act = MessageAct::ALL.get(number).copied();
            act.ok_or_else(|| PyValueError::new_err(format!("there is no activation {number}")))
        };
        Ok([named(self.acts[0])?, named(self.acts[1])?])
    }
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
unsafe fn matrices<B: Lend, E: Element>(
    backend: &B,
    of: Six<RawMatrix>,
) -> Result<Six<Matrix<B, E>>, Error> {
    let mut found = [const { None }; 6];
    for (found, of) in found.iter_mut().zip(of) {
        // SAFETY: what this function asks of its caller.
        *found = of.map(|of| unsafe { backend.matrix(of) }).transpose()?;
    }
    Ok(found)
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
                matrices::<B, E>(backend, of.gradients)?,
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
        for (gradient, raw) in gradients.iter().zip(of.gradients) {
            if let (Some(gradient), Some(raw)) = (gradient, raw) {
                // SAFETY: as above.
                unsafe { backend.give_matrix(gradient, raw)? };
            }
        }
        Ok(())
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
