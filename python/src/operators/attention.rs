//! GAT's attention without an array of edges (`halfgnn::ops::Attention`), with all that it keeps in memory of the caller's, and
//! with destinations that need not be the first sources.

use super::{OnElements, dropout, random};
use crate::memory::{Lend, RawAdjacency, RawArray, RawMatrix};
use crate::place::{Place, perform, precision};
use halfgnn::Error;
use halfgnn::backend::Storage;
use halfgnn::ops::{
    self, AttentionPair, AttentionScores, Combine, EdgeAttention, EdgeWeights, HeadDots,
    RandomState, SoftmaxGradient, Spmm, SpmmPolicy,
};
use halfgnn::tensor::{Array, Element, Matrix, Precision};
use pyo3::prelude::*;

const NAME: &str = "gat_attention";

/// What both passes are given.
#[derive(Clone, Copy, FromPyObject)]
pub struct Layer {
    heads: usize,
    slope: f32,
    /// Of the weights, in [0, 1).
    dropout: f32,
    /// A word on the device that the mask is drawn from.
    seed: Option<RawArray>,
    /// Features of the sources.
    h: RawMatrix,
    /// Of the destinations, where they are not those of the sources.
    h_destination: Option<RawMatrix>,
    /// Row 0 the vectors of destinations, row 1 those of sources.
    vectors: RawMatrix,
    /// Scores, planes of floats: kept from the forward to the backward pass.
    destination: RawArray,
    source: RawArray,
    /// Two floats a destination and head.
    statistics: RawArray,
    share: RawArray,
    /// Floats of any content.
    scratch: RawArray,
}

/// What [`Layer`] names, lent.
struct Lent<B: Storage, E: Element> {
    h: Matrix<B, E>,
    h_destination: Option<Matrix<B, E>>,
    vectors: Matrix<B, E>,
    destination: Array<B, f32>,
    source: Array<B, f32>,
    statistics: Array<B, [f32; 2]>,
    share: Array<B, f32>,
    random: Option<RandomState<B>>,
}

impl Layer {
    /// # Safety
    /// As of [`Lend`].
    unsafe fn lent<B: Lend, E: Element>(&self, backend: &B) -> Result<Lent<B, E>, Error> {
        // SAFETY: what this method asks of its caller.
        unsafe {
            Ok(Lent {
                h: backend.matrix(self.h)?,
                h_destination: self.h_destination.map(|h| backend.matrix(h)).transpose()?,
                vectors: backend.matrix(self.vectors)?,
                destination: backend.array(self.destination)?,
                source: backend.array(self.source)?,
                statistics: backend.array(RawArray(self.statistics.0, self.statistics.1 / 2))?,
                share: backend.array(self.share)?,
                random: random(backend, NAME, (self.dropout, self.seed))?,
            })
        }
    }

    /// Parts of the scratch memory of so many floats, each at a multiple of 16 bytes.
    ///
    /// # Safety
    /// As of [`Lend`].
    unsafe fn scratch<B: Lend, const N: usize>(
        &self,
        backend: &B,
        lengths: [usize; N],
    ) -> Result<[Array<B, f32>; N], Error> {
        let mut at = 0;
        let mut parts = Vec::with_capacity(N);
        for len in lengths {
            let end = at + len.next_multiple_of(4);
            if end > self.scratch.1 {
                return Err(refused("too little scratch memory"));
            }
            let part = RawArray(self.scratch.0 + (size_of::<f32>() * at) as u64, len);
            // SAFETY: what this method asks of its caller, of a part of it.
            parts.push(unsafe { backend.array(part) }?);
            at = end;
        }
        parts
            .try_into()
            .map_err(|_| refused("another number of parts"))
    }

    fn weights<'a, B: Lend, E: Element>(
        &self,
        lent: &'a Lent<B, E>,
        transposed: bool,
    ) -> EdgeAttention<'a, B> {
        EdgeAttention {
            heads: self.heads,
            destination: &lent.destination,
            source: &lent.source,
            statistics: &lent.statistics,
            slope: self.slope,
            transposed,
            dropout: dropout(self.dropout, lent.random.as_ref()),
            biases: None,
        }
    }
}

fn refused(reason: &str) -> Error {
    Error::Unsupported {
        operator: NAME,
        reason: reason.into(),
    }
}

struct Forward {
    precision: Precision,
    a: RawAdjacency,
    layer: Layer,
    y: RawMatrix,
    positive: Option<RawMatrix>,
}

impl OnElements for Forward {
    fn precision(&self) -> Precision {
        self.precision
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        let (layer, heads) = (&self.layer, self.layer.heads);
        // SAFETY: what this method asks of its caller, here and below.
        let (a, mut lent, mut y) = unsafe {
            (
                backend.adjacency(&self.a)?,
                layer.lent::<B, E>(backend)?,
                backend.matrix::<E>(self.y)?,
            )
        };
        // SAFETY: as above.
        let mut positive: Option<Matrix<B, E>> = unsafe {
            self.positive
                .map(|positive| backend.matrix(positive))
                .transpose()?
        };
        let Lent {
            h,
            h_destination,
            vectors,
            destination,
            source,
            ..
        } = &mut lent;
        match h_destination {
            None => ops::head_scores(backend, heads, h, vectors, destination, source)?,
            Some(of) => {
                // Scores of destinations as sources, and of sources as destinations, are read by nobody.
                let unread = [heads * of.rows(), heads * h.rows()];
                let [mut as_source, mut as_destination] =
                    // SAFETY: as above.
                    unsafe { layer.scratch(backend, unread) }?;
                ops::head_scores(backend, heads, of, vectors, destination, &mut as_source)?;
                ops::head_scores(backend, heads, h, vectors, &mut as_destination, source)?;
            }
        }
        let scores = AttentionScores {
            heads,
            destination: &lent.destination,
            source: &lent.source,
            slope: layer.slope,
            biases: None,
        };
        ops::attention_statistics(
            backend,
            &a,
            &scores,
            &mut lent.statistics,
            Some(&mut lent.share),
        )?;
        let weights = &layer.weights(&lent, false);
        match &mut positive {
            Some(positive) => {
                let pair = AttentionPair {
                    weights,
                    policy: SpmmPolicy::default(),
                    all: &mut y,
                    positive,
                    softmax_gradient: None,
                };
                ops::attention_pair(backend, &a, pair, &lent.h)?;
            }
            None => {
                let op = Spmm {
                    weights: EdgeWeights::Attention(weights),
                    ..Spmm::default()
                };
                ops::spmm(backend, &a, &op, &lent.h, &mut y)?;
            }
        }
        // SAFETY: as above.
        unsafe {
            backend.give_matrix(&y, self.y)?;
            if let (Some(positive), Some(of)) = (&positive, self.positive) {
                backend.give_matrix(positive, of)?;
            }
            backend.give_array(&lent.destination, layer.destination)?;
            backend.give_array(&lent.source, layer.source)?;
            let statistics = RawArray(layer.statistics.0, layer.statistics.1 / 2);
            backend.give_array(&lent.statistics, statistics)?;
            backend.give_array(&lent.share, layer.share)
        }
    }
}

/// `y[i] = Σ_j α(i,j) k(i,j) h[j]`, and what the backward pass wants of it: scores, statistics, shares, and the sums over the edges
/// whose sum of scores is positive.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "operands, as Python has them")]
pub fn gat_forward(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    a: RawAdjacency,
    layer: Layer,
    y: RawMatrix,
    positive: Option<RawMatrix>,
) -> PyResult<()> {
    let call = Forward {
        precision: precision(format)?,
        a,
        layer,
        y,
        positive,
    };
    perform(py, place, allocate, &call)
}

/// Gradients, and what they are made of.
#[derive(Clone, Copy, FromPyObject)]
pub struct Gradients {
    y: RawMatrix,
    positive: RawMatrix,
    dy: RawMatrix,
    dh: RawMatrix,
    dh_destination: Option<RawMatrix>,
    /// Of the shape of `h`, of any content.
    lent: RawMatrix,
    /// Floats, two rows.
    d_vectors: RawMatrix,
    /// The same, of any content; of destinations that are apart.
    d_vectors_part: Option<RawMatrix>,
}

struct Backward {
    precision: Precision,
    /// The transposed adjacency.
    transposed: RawAdjacency,
    layer: Layer,
    gradients: Gradients,
}

impl OnElements for Backward {
    fn precision(&self) -> Precision {
        self.precision
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        let (layer, of, heads) = (&self.layer, &self.gradients, self.layer.heads);
        // SAFETY: what this method asks of its caller, here and below.
        let (transposed, lent) = unsafe {
            (
                backend.adjacency(&self.transposed)?,
                layer.lent::<B, E>(backend)?,
            )
        };
        // SAFETY: as above.
        let (y, positive, dy) = unsafe {
            (
                backend.matrix::<E>(of.y)?,
                backend.matrix::<E>(of.positive)?,
                backend.matrix::<E>(of.dy)?,
            )
        };
        // SAFETY: as above.
        let (mut dh, mut part, mut d_vectors) = unsafe {
            (
                backend.matrix::<E>(of.dh)?,
                backend.matrix::<E>(of.lent)?,
                backend.matrix::<f32>(of.d_vectors)?,
            )
        };
        let (destinations, sources) = (heads * dy.rows(), heads * lent.h.rows());
        let [mut inner, mut dl, mut softmax_gradient, mut dr] =
            // SAFETY: as above.
            unsafe { layer.scratch(backend, [destinations, destinations, sources, sources]) }?;
        let rest = 1.0 - layer.slope;
        ops::head_dots(backend, &dots(heads, &dy, (1.0, &y)), &mut inner)?;
        let op = HeadDots {
            u: Some((-rest, &inner)),
            v: Some(&lent.share),
            ..dots(heads, &dy, (rest, &positive))
        };
        ops::head_dots(backend, &op, &mut dl)?;
        let pair = AttentionPair {
            weights: &layer.weights(&lent, true),
            policy: SpmmPolicy::default(),
            all: &mut dh,
            positive: &mut part,
            softmax_gradient: Some(SoftmaxGradient {
                values: &inner,
                sums: &mut softmax_gradient,
            }),
        };
        ops::attention_pair(backend, &transposed, pair, &dy)?;
        let op = HeadDots {
            c: Some((rest, &part)),
            u: Some((-1.0, &softmax_gradient)),
            ..dots(heads, &lent.h, (layer.slope, &dh))
        };
        ops::head_dots(backend, &op, &mut dr)?;
        match (&lent.h_destination, of.dh_destination, of.d_vectors_part) {
            (None, ..) => {
                ops::head_outer(backend, heads, &dl, &dr, &lent.vectors, &mut dh)?;
                ops::head_sums(backend, heads, &lent.h, &dl, &dr, &mut d_vectors)?;
            }
            (Some(h), Some(dh_destination), Some(d_vectors_part)) => {
                // SAFETY: as above.
                let (mut to, mut sums) = unsafe {
                    (
                        backend.matrix::<E>(dh_destination)?,
                        backend.matrix::<f32>(d_vectors_part)?,
                    )
                };
                // Neither is the other: the room of the inner sums and of the softmax's gradient is free again.
                let (no_source, no_destination) = (&mut inner, &mut softmax_gradient);
                no_source.clear(backend)?;
                no_destination.clear(backend)?;
                to.clear(backend)?;
                ops::head_outer(backend, heads, &dl, no_source, &lent.vectors, &mut to)?;
                ops::head_outer(backend, heads, no_destination, &dr, &lent.vectors, &mut dh)?;
                ops::head_sums(backend, heads, h, &dl, no_source, &mut sums)?;
                ops::head_sums(backend, heads, &lent.h, no_destination, &dr, &mut d_vectors)?;
                ops::combine(backend, &Combine::sum(), &sums, &mut d_vectors)?;
                // SAFETY: as above.
                unsafe { backend.give_matrix(&to, dh_destination) }?;
            }
            _ => return Err(refused("no room for the gradient of destinations")),
        }
        // SAFETY: as above.
        unsafe {
            backend.give_matrix(&dh, of.dh)?;
            backend.give_matrix(&d_vectors, of.d_vectors)
        }
    }
}

/// Dots of two matrices.
fn dots<'a, B: Storage, E: Element>(
    heads: usize,
    a: &'a Matrix<B, E>,
    b: (f32, &'a Matrix<B, E>),
) -> HeadDots<'a, B, E> {
    HeadDots {
        heads,
        a,
        b,
        c: None,
        u: None,
        v: None,
    }
}

/// The gradients of [`gat_forward`]'s output for the features and the vectors.
#[pyfunction]
pub fn gat_backward(
    py: Python<'_>,
    place: Place,
    allocate: &Bound<'_, PyAny>,
    format: u8,
    transposed: RawAdjacency,
    layer: Layer,
    gradients: Gradients,
) -> PyResult<()> {
    let call = Backward {
        precision: precision(format)?,
        transposed,
        layer,
        gradients,
    };
    perform(py, place, allocate, &call)
}
