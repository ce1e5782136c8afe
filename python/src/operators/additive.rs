//! Additive attention, GATv2's (`halfgnn::ops::AdditiveAttention`), with all that it keeps and computes in in memory of
//! the caller's.

use super::{OnElements, dropout, random};
use crate::memory::{Lend, RawAdjacency, RawArray, RawMatrix};
use crate::place::{Place, perform, precision};
use halfgnn::Error;
use halfgnn::backend::Storage;
use halfgnn::ops::{
    AdditiveAttention, AdditiveBackward, AdditiveFeatures, AdditiveRoom, RandomState,
};
use halfgnn::tensor::{Array, Element, Matrix, Precision};
use pyo3::prelude::*;

/// What both passes are given.
#[derive(Clone, Copy, FromPyObject)]
pub struct Layer {
    heads: usize,
    slope: f32,
    /// Of the weights, in [0, 1).
    dropout: f32,
    /// A word on the device that the mask is sampled from.
    seed: Option<RawArray>,
    /// Features of the sources: what is aggregated.
    sources: RawMatrix,
    /// Of the destinations, where they are not those of the sources.
    destinations: Option<RawMatrix>,
    /// One row, as wide.
    vector: RawMatrix,
    /// Two floats a destination and head: kept from the forward to the backward pass.
    statistics: RawArray,
    /// Floats: a destination and head each, and a source and head.
    zeros: (RawArray, RawArray),
    /// Planes of edges, floats of any content.
    scores: RawArray,
}

/// What [`Layer`] names, borrowed.
struct Lent<B: Storage, E: Element> {
    attention: AdditiveAttention<B>,
    sources: Matrix<B, E>,
    destinations: Option<Matrix<B, E>>,
    vector: Matrix<B, E>,
    scores: Array<B, f32>,
    random: Option<RandomState<B>>,
}

impl Layer {
    /// Where the pairs of floats lie.
    fn pairs(&self) -> RawArray {
        RawArray(self.statistics.0, self.statistics.1 / 2)
    }

    /// # Safety
    /// As of [`Lend`].
    unsafe fn lent<B: Lend, E: Element>(&self, backend: &B) -> Result<Lent<B, E>, Error> {
        // SAFETY: what this method asks of its caller.
        unsafe {
            let zeros = [backend.array(self.zeros.0)?, backend.array(self.zeros.1)?];
            let statistics = backend.array(self.pairs())?;
            let seed = (self.dropout, self.seed);
            Ok(Lent {
                attention: AdditiveAttention::in_memory(self.heads, self.slope, statistics, zeros)?,
                sources: backend.matrix(self.sources)?,
                destinations: self.destinations.map(|of| backend.matrix(of)).transpose()?,
                vector: backend.matrix(self.vector)?,
                scores: backend.array(self.scores)?,
                random: random(backend, "gatv2_attention", seed)?,
            })
        }
    }
}

impl<B: Lend, E: Element> Lent<B, E> {
    /// The attention and memory for its scores, in addition to what it reads.
    fn parts(
        &mut self,
        probability: f32,
    ) -> (
        &mut AdditiveAttention<B>,
        &mut Array<B, f32>,
        AdditiveFeatures<'_, B, E>,
    ) {
        let features = AdditiveFeatures {
            destinations: self.destinations.as_ref().unwrap_or(&self.sources),
            sources: &self.sources,
            vector: &self.vector,
            dropout: dropout(probability, self.random.as_ref()),
        };
        (&mut self.attention, &mut self.scores, features)
    }
}

struct Forward {
    precision: Precision,
    a: RawAdjacency,
    layer: Layer,
    y: RawMatrix,
}

impl OnElements for Forward {
    fn precision(&self) -> Precision {
        self.precision
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        let layer = &self.layer;
        // SAFETY: what this method asks of its caller.
        let (a, mut lent, mut y) = unsafe {
            (
                backend.adjacency(&self.a)?,
                layer.lent::<B, E>(backend)?,
                backend.matrix::<E>(self.y)?,
            )
        };
        let (attention, scores, features) = lent.parts(layer.dropout);
        attention.forward(backend, &a, features, scores, &mut y)?;
        // SAFETY: as above.
        unsafe {
            backend.give_matrix(&y, self.y)?;
            backend.give_array(lent.attention.statistics(), layer.pairs())
        }
    }
}

/// `y[i] = Σ_j α(i,j) k(i,j) v[j]`, `α(i, ·)` the softmax of `Σ a · LeakyReLU(u[i] + v[j])`, and the statistics of the
/// softmax.
#[pyfunction]
pub fn gatv2_forward(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    layer: Layer,
    y: RawMatrix,
) -> PyResult<()> {
    let call = Forward {
        precision: precision(format)?,
        a,
        layer,
        y,
    };
    perform(py, place, allocate, &call)
}

/// Gradients, and what they are made of and in.
#[derive(Clone, Copy, FromPyObject)]
pub struct Gradients {
    y: RawMatrix,
    dy: RawMatrix,
    d_destinations: RawMatrix,
    d_sources: RawMatrix,
    /// Floats, one row.
    d_vector: RawMatrix,
    /// Of any content: a float a destination and head; planes of floats, and of elements; and matrices of the shapes of
    /// the features of destinations and of sources.
    inner: RawArray,
    d: RawArray,
    products: RawArray,
    of_destinations: RawMatrix,
    of_sources: RawMatrix,
}

struct Backward {
    precision: Precision,
    a: RawAdjacency,
    transposed: RawAdjacency,
    layer: Layer,
    gradients: Gradients,
}

impl OnElements for Backward {
    fn precision(&self) -> Precision {
        self.precision
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        let (layer, of) = (&self.layer, &self.gradients);
        // SAFETY: what this method asks of its caller, here and below.
        let (a, transposed, mut lent) = unsafe {
            (
                backend.adjacency(&self.a)?,
                backend.adjacency(&self.transposed)?,
                layer.lent::<B, E>(backend)?,
            )
        };
        // SAFETY: as above.
        let (
            [y, dy],
            [
                mut d_destinations,
                mut d_sources,
                mut destinations,
                mut sources,
            ],
        ) = unsafe {
            (
                [backend.matrix::<E>(of.y)?, backend.matrix(of.dy)?],
                [
                    backend.matrix::<E>(of.d_destinations)?,
                    backend.matrix(of.d_sources)?,
                    backend.matrix(of.of_destinations)?,
                    backend.matrix(of.of_sources)?,
                ],
            )
        };
        // SAFETY: as above.
        let (mut d_vector, mut inner, mut d, mut products) = unsafe {
            (
                backend.matrix::<f32>(of.d_vector)?,
                backend.array::<f32>(of.inner)?,
                backend.array::<f32>(of.d)?,
                backend.array::<E>(of.products)?,
            )
        };
        let (attention, scores, features) = lent.parts(layer.dropout);
        let backward = AdditiveBackward {
            y: &y,
            dy: &dy,
            lent: AdditiveRoom {
                inner: &mut inner,
                edges: [scores, &mut d],
                products: &mut products,
                destinations: &mut destinations,
                sources: &mut sources,
            },
            d_destinations: &mut d_destinations,
            d_sources: &mut d_sources,
            d_vector: &mut d_vector,
        };
        attention.backward(backend, [&a, &transposed], features, backward)?;
        // SAFETY: as above.
        unsafe {
            backend.give_matrix(&d_destinations, of.d_destinations)?;
            backend.give_matrix(&d_sources, of.d_sources)?;
            backend.give_matrix(&d_vector, of.d_vector)
        }
    }
}

/// The gradients of [`gatv2_forward`]'s output for the features of both ends and the vector.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "operands, as Python has them")]
pub fn gatv2_backward(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    transposed: RawAdjacency,
    layer: Layer,
    gradients: Gradients,
) -> PyResult<()> {
    let call = Backward {
        precision: precision(format)?,
        a,
        transposed,
        layer,
        gradients,
    };
    perform(py, place, allocate, &call)
}
