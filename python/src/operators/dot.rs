//! Attention by dot products (`halfgnn::ops::dot_attention`), with all that it keeps in memory of the caller's.

use super::{OnElements, dropout, random};
use crate::memory::{Lend, RawAdjacency, RawArray, RawMatrix};
use crate::place::{Place, perform, precision};
use halfgnn::Error;
use halfgnn::backend::Storage;
use halfgnn::ops::{
    DotAttention, DotAttentionBackwardOperands, RandomState, dot_attention, dot_attention_backward,
};
use halfgnn::tensor::{Element, Matrix, Precision};
use pyo3::prelude::*;

/// The inputs of both passes.
#[derive(Clone, Copy, FromPyObject)]
pub struct Inputs {
    heads: usize,
    scale: f32,
    /// Of the weights, in [0, 1).
    dropout: f32,
    /// A word on the device that the mask is sampled from.
    seed: Option<RawArray>,
    q: RawMatrix,
    k: RawMatrix,
    v: RawMatrix,
    /// Two floats a destination and head: kept from the forward to the backward pass.
    statistics: RawArray,
}

/// What [`Inputs`] names, borrowed.
struct Lent<B: Storage, E: Element> {
    q: Matrix<B, E>,
    k: Matrix<B, E>,
    v: Matrix<B, E>,
    random: Option<RandomState<B>>,
}

impl Inputs {
    /// Where the pairs of floats lie.
    fn pairs(&self) -> RawArray {
        RawArray(self.statistics.0, self.statistics.1 / 2)
    }

    /// # Safety
    /// As of [`Lend`].
    unsafe fn lent<B: Lend, E: Element>(&self, backend: &B) -> Result<Lent<B, E>, Error> {
        // SAFETY: what this method asks of its caller.
        unsafe {
            Ok(Lent {
                q: backend.matrix(self.q)?,
                k: backend.matrix(self.k)?,
                v: backend.matrix(self.v)?,
                random: random(backend, "dot_attention", (self.dropout, self.seed))?,
            })
        }
    }

    fn operator<'a, B: Storage, E: Element>(&self, lent: &'a Lent<B, E>) -> DotAttention<'a, B, E> {
        DotAttention {
            heads: self.heads,
            scale: self.scale,
            q: &lent.q,
            k: &lent.k,
            v: &lent.v,
            dropout: dropout(self.dropout, lent.random.as_ref()),
        }
    }
}

struct Forward {
    precision: Precision,
    a: RawAdjacency,
    inputs: Inputs,
    y: RawMatrix,
}

impl OnElements for Forward {
    fn precision(&self) -> Precision {
        self.precision
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        let inputs = &self.inputs;
        // SAFETY: what this method asks of its caller.
        let (a, lent, mut y, mut statistics) = unsafe {
            (
                backend.adjacency(&self.a)?,
                inputs.lent::<B, E>(backend)?,
                backend.matrix::<E>(self.y)?,
                backend.array(inputs.pairs())?,
            )
        };
        dot_attention(backend, &a, inputs.operator(&lent), &mut y, &mut statistics)?;
        // SAFETY: as above.
        unsafe {
            backend.give_matrix(&y, self.y)?;
            backend.give_array(&statistics, inputs.pairs())
        }
    }
}

/// `y[i] = Σ_j α(i,j) d(i,j) v[j]`, `α(i, ·)` the softmax of `scale · q[i] · k[j]`, and the statistics of the softmax.
#[pyfunction]
pub fn dot_forward(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    inputs: Inputs,
    y: RawMatrix,
) -> PyResult<()> {
    let call = Forward {
        precision: precision(format)?,
        a,
        inputs,
        y,
    };
    perform(py, place, allocate, &call)
}

/// What the backward pass reads besides, and writes.
#[derive(Clone, Copy, FromPyObject)]
pub struct Gradients {
    y: RawMatrix,
    dy: RawMatrix,
    dq: RawMatrix,
    dk: RawMatrix,
    dv: RawMatrix,
}

struct Backward {
    precision: Precision,
    a: RawAdjacency,
    transposed: RawAdjacency,
    inputs: Inputs,
    gradients: Gradients,
}

impl OnElements for Backward {
    fn precision(&self) -> Precision {
        self.precision
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        let (inputs, of) = (&self.inputs, &self.gradients);
        // SAFETY: what this method asks of its caller, here and below.
        let (a, transposed, lent, mut statistics) = unsafe {
            (
                backend.adjacency(&self.a)?,
                backend.adjacency(&self.transposed)?,
                inputs.lent::<B, E>(backend)?,
                backend.array(inputs.pairs())?,
            )
        };
        // SAFETY: as above.
        let ([y, dy], [mut dq, mut dk, mut dv]) = unsafe {
            (
                [backend.matrix::<E>(of.y)?, backend.matrix(of.dy)?],
                [
                    backend.matrix::<E>(of.dq)?,
                    backend.matrix(of.dk)?,
                    backend.matrix(of.dv)?,
                ],
            )
        };
        let operands = DotAttentionBackwardOperands {
            a: &a,
            transposed: &transposed,
            op: inputs.operator(&lent),
            y: &y,
            dy: &dy,
            statistics: &mut statistics,
            dq: &mut dq,
            dk: &mut dk,
            dv: &mut dv,
        };
        dot_attention_backward(backend, operands)?;
        // SAFETY: as above.
        unsafe {
            backend.give_matrix(&dq, of.dq)?;
            backend.give_matrix(&dk, of.dk)?;
            backend.give_matrix(&dv, of.dv)
        }
    }
}

/// The gradients of [`dot_forward`]'s output for queries, keys and values.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "operands, as Python has them")]
pub fn dot_backward(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    transposed: RawAdjacency,
    inputs: Inputs,
    gradients: Gradients,
) -> PyResult<()> {
    let call = Backward {
        precision: precision(format)?,
        a,
        transposed,
        inputs,
        gradients,
    };
    perform(py, place, allocate, &call)
}
