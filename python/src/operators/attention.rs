//! GAT's attention without an array of edges (`halfgnn::ops::Attention`), with all that it keeps in memory of the
//! caller's, and with destinations that need not be the first sources.

use super::{EXPONENTIAL, OnElements, dropout, random, shape};
use crate::memory::{Lend, RawAdjacency, RawArray, RawMatrix};
use crate::place::{Place, Shape, perform, precision};
use halfgnn::Error;
use halfgnn::backend::Storage;
use halfgnn::ops::{
    self, AttentionPair, AttentionScores, Combine, EdgeAttention, EdgeWeights, HeadDots,
    HeadDotsOuterOperands, HeadDotsPairOperands, RandomState, SoftmaxGradient, Spmm, SpmmPolicy,
};
use halfgnn::tensor::{Array, Element, Matrix, Precision};
use pyo3::prelude::*;

const NAME: &str = "gat_attention";

/// What both passes are given.
#[derive(Clone, Copy, FromPyObject)]
pub struct Layer {
    pub heads: usize,
    pub slope: f32,
    /// Of the weights, in [0, 1).
    pub dropout: f32,
    /// A word on the device that the mask is sampled from.
    pub seed: Option<RawArray>,
    /// Features of the sources.
    pub h: RawMatrix,
    /// Of the destinations, where they are not those of the sources.
    pub h_destination: Option<RawMatrix>,
    /// Row 0 the vectors of destinations, row 1 those of sources.
    pub vectors: RawMatrix,
    /// [`Saved::floats`], kept from the forward to the backward pass.
    pub saved: RawArray,
    /// [`scratch`] floats of any content.
    pub scratch: RawArray,
}

/// What the backward pass needs of the forward one in addition to its results, planes of floats, each at a multiple of
/// 16 bytes.
struct Saved {
    /// Scores.
    destination: RawArray,
    source: RawArray,
    /// Two floats a destination and head.
    statistics: RawArray,
    share: RawArray,
}

impl Saved {
    fn lengths(heads: usize, destinations: usize, sources: usize) -> [usize; 4] {
        let (destinations, sources) = (heads * destinations, heads * sources);
        [destinations, sources, 2 * destinations, destinations]
    }

    fn of(layer: &Layer, destinations: usize) -> Result<Self, Error> {
        let lengths = Self::lengths(layer.heads, destinations, layer.h.1);
        let [destination, source, statistics, share] = parts(layer.saved, lengths)?;
        let statistics = RawArray(statistics.0, statistics.1 / 2);
        Ok(Self {
            destination,
            source,
            statistics,
            share,
        })
    }
}

/// Floats that [`Layer::saved`] has.
pub fn saved(heads: usize, destinations: usize, sources: usize) -> usize {
    room(&Saved::lengths(heads, destinations, sources))
}

/// Floats that [`Layer::scratch`] has in the forward pass, where destinations have features of their own, and twice as
/// many in the backward pass.
pub fn scratch(heads: usize, destinations: usize, sources: usize) -> usize {
    room(&[heads * destinations, heads * sources])
}

/// Floats of arrays that each begin at a multiple of 16 bytes.
fn room(lengths: &[usize]) -> usize {
    lengths.iter().map(|len| len.next_multiple_of(4)).sum()
}

/// Parts of an array of floats, each at a multiple of 16 bytes.
fn parts<const N: usize>(memory: RawArray, lengths: [usize; N]) -> Result<[RawArray; N], Error> {
    if room(&lengths) > memory.1 {
        return Err(refused("too little memory"));
    }
    let mut at = 0;
    Ok(lengths.map(|len| {
        let part = RawArray(memory.0 + (size_of::<f32>() * at) as u64, len);
        at += len.next_multiple_of(4);
        part
    }))
}

/// What [`Layer`] names, borrowed.
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
    unsafe fn lent<B: Lend, E: Element>(
        &self,
        backend: &B,
        saved: &Saved,
    ) -> Result<Lent<B, E>, Error> {
        // SAFETY: what this method asks of its caller.
        unsafe {
            Ok(Lent {
                h: backend.matrix(self.h)?,
                h_destination: self.h_destination.map(|h| backend.matrix(h)).transpose()?,
                vectors: backend.matrix(self.vectors)?,
                destination: backend.array(saved.destination)?,
                source: backend.array(saved.source)?,
                statistics: backend.array(saved.statistics)?,
                share: backend.array(saved.share)?,
                random: random(backend, NAME, (self.dropout, self.seed))?,
            })
        }
    }

    /// Parts of the scratch memory.
    ///
    /// # Safety
    /// As of [`Lend`].
    unsafe fn scratch<B: Lend, const N: usize>(
        &self,
        backend: &B,
        lengths: [usize; N],
    ) -> Result<[Array<B, f32>; N], Error> {
        // SAFETY: what this method asks of its caller, of parts of it.
        let lent = parts(self.scratch, lengths)?.map(|part| unsafe { backend.array(part) });
        let lent: Result<Vec<_>, Error> = lent.into_iter().collect();
        lent?
            .try_into()
            .map_err(|_| refused("another number of parts"))
    }

    /// All that a workspace depends on.
    fn numbers(&self) -> [usize; 9] {
        let ([sources, width, apart], [_, _, vectors]) = (self.h.numbers(), self.vectors.numbers());
        // No features of their own are other than features of no destinations.
        let [destinations, _, apart_too] = self.h_destination.map_or([0; 3], |of| of.numbers());
        let own = usize::from(self.h_destination.is_some());
        let dropout = usize::from(self.dropout > 0.0);
        [
            self.heads,
            sources,
            width,
            apart,
            vectors,
            own,
            destinations,
            apart_too,
            dropout,
        ]
    }

    /// Products of numbers that a pass over a number of edges and rows takes, about.
    fn products(&self, a: &RawAdjacency) -> usize {
        let rows = a.1.saturating_add(a.4);
        let of_edges = (2 * self.h.2).saturating_add(EXPONENTIAL * self.heads);
        let edges = a.2.saturating_mul(of_edges);
        rows.saturating_mul(2 * self.h.2).saturating_add(edges)
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
            sums: None,
        }
    }
}

fn refused(reason: &str) -> Error {
    Error::Unsupported {
        operator: NAME,
        reason: reason.into(),
    }
}

pub struct Forward {
    pub precision: Precision,
    pub a: RawAdjacency,
    pub layer: Layer,
    pub y: RawMatrix,
    pub positive: Option<RawMatrix>,
}

impl OnElements for Forward {
    fn precision(&self) -> Precision {
        self.precision
    }

    fn shape(&self) -> Option<Shape> {
        let keeps = usize::from(self.positive.is_some());
        let (a, layer) = (self.a.numbers(), self.layer.numbers());
        let parts: [&[usize]; 4] = [&a, &layer, &self.y.numbers(), &[keeps]];
        Some(shape("gat_forward", self.precision, &parts))
    }

    fn products(&self) -> usize {
        self.layer.products(&self.a)
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        let (layer, heads) = (&self.layer, self.layer.heads);
        let saved = Saved::of(layer, self.y.1)?;
        // SAFETY: what this method asks of its caller, here and below.
        let (a, mut lent, mut y) = unsafe {
            (
                backend.adjacency(&self.a)?,
                layer.lent::<B, E>(backend, &saved)?,
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
                // Scores of destinations as sources, and of sources as destinations, are not read.
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
            None,
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
            backend.give_array(&lent.destination, saved.destination)?;
            backend.give_array(&lent.source, saved.source)?;
            backend.give_array(&lent.statistics, saved.statistics)?;
            backend.give_array(&lent.share, saved.share)
        }
    }
}

/// `y[i] = Σ_j α(i,j) k(i,j) h[j]`, and what the backward pass needs of it: scores, statistics, shares, and the sums
/// over the edges whose sum of scores is positive.
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
    pub y: RawMatrix,
    pub positive: RawMatrix,
    pub dy: RawMatrix,
    pub dh: RawMatrix,
    pub dh_destination: Option<RawMatrix>,
    /// Of the shape of `h`, of any content.
    pub lent: RawMatrix,
    /// Floats, two rows.
    pub d_vectors: RawMatrix,
    /// The same, of any content; of destinations that are apart.
    pub d_vectors_part: Option<RawMatrix>,
}

pub struct Backward {
    pub precision: Precision,
    /// The transposed adjacency.
    pub transposed: RawAdjacency,
    pub layer: Layer,
    pub gradients: Gradients,
}

impl OnElements for Backward {
    fn precision(&self) -> Precision {
        self.precision
    }

    fn shape(&self) -> Option<Shape> {
        let of = &self.gradients;
        let strides = [of.y.3, of.positive.3, of.dy.3, of.dh.3, of.lent.3];
        let (a, layer) = (self.transposed.numbers(), self.layer.numbers());
        let parts: [&[usize]; 3] = [&a, &layer, &strides];
        Some(shape("gat_backward", self.precision, &parts))
    }

    fn products(&self) -> usize {
        // Two sums over edges, and four passes over rows.
        self.layer.products(&self.transposed).saturating_mul(2)
    }

    unsafe fn run<B: Lend, E: Element>(&self, backend: &B) -> Result<(), Error> {
        let (layer, of, heads) = (&self.layer, &self.gradients, self.layer.heads);
        let saved = Saved::of(layer, of.dy.1)?;
        // SAFETY: what this method asks of its caller, here and below.
        let (transposed, lent) = unsafe {
            (
                backend.adjacency(&self.transposed)?,
                layer.lent::<B, E>(backend, &saved)?,
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
        let of_destinations = HeadDotsPairOperands {
            heads,
            a: &dy,
            d: &y,
            b: (rest, &positive),
            v: (-rest, &lent.share),
            u: &mut inner,
            y: &mut dl,
        };
        ops::head_dots_pair(backend, of_destinations)?;
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
        let (of_positive, of_softmax) = ((rest, &part), (-1.0, &softmax_gradient));
        match (&lent.h_destination, of.dh_destination, of.d_vectors_part) {
            (None, ..) => {
                let of_sources = HeadDotsOuterOperands {
                    heads,
                    a: &lent.h,
                    b: (layer.slope, &mut dh),
                    c: of_positive,
                    u: of_softmax,
                    destinations: lent.h.rows(),
                    destination: &dl,
                    vectors: &lent.vectors,
                    y: &mut dr,
                    sums: &mut d_vectors,
                };
                ops::head_dots_outer(backend, of_sources)?;
            }
            (Some(h), Some(dh_destination), Some(d_vectors_part)) => {
                // SAFETY: as above.
                let (mut to, mut sums) = unsafe {
                    (
                        backend.matrix::<E>(dh_destination)?,
                        backend.matrix::<f32>(d_vectors_part)?,
                    )
                };
                let op = HeadDots {
                    c: Some(of_positive),
                    u: Some(of_softmax),
                    ..HeadDots::new(heads, &lent.h, (layer.slope, &dh))
                };
                ops::head_dots(backend, &op, &mut dr)?;
                // Neither is the other: the memory of the inner sums and of the softmax's gradient is free again.
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
