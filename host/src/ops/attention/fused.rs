//! Attention without an array of edges.
//!
//! # Gradient
//! With `g = dL/dy`, dropout factors `k` and `D[i] = g[i] · y[i]`, which is the sum `Σ_j α k (g[i] · h[j])` that a
//! softmax's gradient wants (FlashAttention, Dao et al., 2022, §3.1), the gradient of the sum of scores of an edge is
//!
//! ```text
//! ds(i,j) = leaky'(i,j) · α(i,j) · (k(i,j) · g[i] · h[j] − D[i])
//! ```
//!
//! It is never needed edge by edge, only its sums over rows and over columns. Let `leaky' = s + (1 − s) · [l + r > 0]`; the
//! terms with `s` alone add up to zero in a row. What is left are products of a vertex's features with sums of its
//! neighbours', each of them an SpMM whose weights are computed on the way, `+` marking weights of positive sums only:
//!
//! ```text
//! P[i]  = Σ_j α⁺ k h[j]        p[i] = Σ_j α⁺
//! G[j]  = Σ_i α k g[i]         Q[j] = Σ_i α⁺ k g[i]         t[j] = Σ_i leaky' α D[i]
//! dl[i] = (1 − s) · (g[i] · P[i] − D[i] p[i])
//! dr[j] = h[j] · (s G[j] + (1 − s) Q[j]) − t[j]
//! dh    = G + dl a_lᵀ + dr a_rᵀ        da_l = Σ_i dl[i] h[i]        da_r = Σ_j dr[j] h[j]
//! ```

use super::parts::{
    attention_gradient_sums, attention_statistics, head_dots, head_outer, head_scores, head_sums,
};
use crate::backend::{
    Adjacency, AttentionScores, Backend, Dropout, EdgeAttention, EdgeWeights, HeadDots, MemoryKind,
    Spmm,
};
use crate::error::Error;
use crate::ops::{expect_shape, spmm};
use crate::tensor::{Array, Element, Matrix};

const NAME: &str = "attention";

/// Attention of one layer: what its forward pass leaves for its backward pass, nine floats a vertex and head.
///
/// Weights, their softmax and all sums are float in both precisions; features, outputs and their gradients are elements,
/// rounded once each. Scores of any size are safe: `exp` is taken of nothing positive.
#[derive(Debug)]
pub struct Attention<B: Backend> {
    vertices: usize,
    weights: Weights<B>,
    /// `p`.
    positive_share: Array<B, f32>,
    /// `D`, then `dr`.
    inner: Array<B, f32>,
    /// `dl`.
    destination_gradient: Array<B, f32>,
    /// `t`.
    edge_sums: Array<B, f32>,
}

/// What the weights of the edges are computed from.
#[derive(Debug)]
struct Weights<B: Backend> {
    heads: usize,
    slope: f32,
    destination: Array<B, f32>,
    source: Array<B, f32>,
    statistics: Array<B, [f32; 2]>,
}

/// Operands of [`Attention::backward`].
#[derive(Debug)]
pub struct AttentionBackward<'a, B: Backend, E: Element> {
    /// Features that the forward pass took.
    pub h: &'a Matrix<B, E>,
    /// Attention vectors that it took.
    pub vectors: &'a Matrix<B, E>,
    /// Its output, before anything was added to it.
    pub y: &'a Matrix<B, E>,
    /// Gradient of its output.
    pub dy: &'a Matrix<B, E>,
    /// Its dropout, at the same step.
    pub dropout: Option<Dropout<'a, B>>,
    /// A matrix of the shape of `h` and any content; it is overwritten.
    pub lent: &'a mut Matrix<B, E>,
    /// Becomes the gradient of `h`.
    pub dh: &'a mut Matrix<B, E>,
    /// Becomes the gradient of `vectors`.
    pub d_vectors: &'a mut Matrix<B, f32>,
}

impl<B: Backend> Attention<B> {
    /// Attention over graphs of `vertices` vertices, with `heads` heads and this slope of the LeakyReLU below zero (0.2
    /// in GAT).
    ///
    /// # Errors
    /// [`Error::Unsupported`] for no heads, [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, vertices: usize, heads: usize, slope: f32) -> Result<Self, Error> {
        super::parts::expect_heads(NAME, heads)?;
        let len = heads.saturating_mul(vertices);
        let numbers = || Array::zeros(backend, len, MemoryKind::Activations);
        Ok(Self {
            vertices,
            weights: Weights {
                heads,
                slope,
                destination: numbers()?,
                source: numbers()?,
                statistics: Array::zeros(backend, len, MemoryKind::Activations)?,
            },
            positive_share: numbers()?,
            inner: numbers()?,
            destination_gradient: numbers()?,
            edge_sums: numbers()?,
        })
    }

    /// Bytes that [`Attention::new`] allocates.
    pub fn bytes(vertices: usize, heads: usize) -> u64 {
        const FLOATS: u64 = 9;
        (vertices as u64)
            .saturating_mul(heads as u64)
            .saturating_mul(FLOATS * size_of::<f32>() as u64)
    }

    /// `y[i] = Σ_j α(i,j) k(i,j) h[j]` over the edges of row `i`, head by head, with the factors `k` of dropout. Row 0 of
    /// `vectors` is the attention vector of destinations, row 1 that of sources, each as wide as `h`. A row without edges
    /// becomes zero.
    ///
    /// # Errors
    /// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns are not so many heads.
    pub fn forward<E: Element>(
        &mut self,
        backend: &B,
        a: &Adjacency<B>,
        h: &Matrix<B, E>,
        vectors: &Matrix<B, E>,
        dropout: Option<Dropout<'_, B>>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        Error::expect(NAME, "vertices of the graph", self.vertices, a.vertices())?;
        let Weights {
            heads,
            slope,
            destination,
            source,
            statistics,
        } = &mut self.weights;
        head_scores(backend, *heads, h, vectors, destination, source)?;
        let scores = AttentionScores {
            heads: *heads,
            destination,
            source,
            slope: *slope,
        };
        let share = Some(&mut self.positive_share);
        attention_statistics(backend, a, &scores, statistics, share)?;
        let weights = self.weights.of(Side::Forward, false, dropout);
        aggregate(backend, a, &weights, h, y)
    }

    /// The gradients of the features and of the attention vectors; see the module's page. `transposed` is the transposed
    /// adjacency of `a`.
    ///
    /// # Errors
    /// As [`Attention::forward`].
    pub fn backward<E: Element>(
        &mut self,
        backend: &B,
        a: &Adjacency<B>,
        transposed: &Adjacency<B>,
        of: AttentionBackward<'_, B, E>,
    ) -> Result<(), Error> {
        let AttentionBackward {
            h,
            vectors,
            y,
            dy,
            dropout,
            lent,
            dh,
            d_vectors,
        } = of;
        for a in [a, transposed] {
            Error::expect(NAME, "vertices of the graph", self.vertices, a.vertices())?;
        }
        for matrix in [y, dy, lent, dh] {
            expect_shape(
                NAME,
                ["rows of an operand", "columns of an operand"],
                h.shape(),
                matrix,
            )?;
        }
        let weights = &self.weights;
        let (heads, slope, rest) = (weights.heads, weights.slope, 1.0 - weights.slope);
        head_dots(backend, &dots(heads, dy, (1.0, y)), &mut self.inner)?;

        let positive = weights.of(Side::Forward, true, dropout);
        aggregate(backend, a, &positive, h, lent)?;
        let op = HeadDots {
            u: Some((-rest, &self.inner)),
            v: Some(&self.positive_share),
            ..dots(heads, dy, (rest, lent))
        };
        head_dots(backend, &op, &mut self.destination_gradient)?;

        let all = weights.of(Side::Transposed, false, dropout);
        let positive = weights.of(Side::Transposed, true, dropout);
        let sums = &mut self.edge_sums;
        attention_gradient_sums(backend, transposed, &all, &self.inner, sums)?;
        aggregate(backend, transposed, &all, dy, dh)?;
        aggregate(backend, transposed, &positive, dy, lent)?;
        let op = HeadDots {
            c: Some((rest, lent)),
            u: Some((-1.0, sums)),
            ..dots(heads, h, (slope, dh))
        };
        head_dots(backend, &op, &mut self.inner)?;

        let (dl, dr) = (&self.destination_gradient, &self.inner);
        head_outer(backend, heads, dl, dr, vectors, dh)?;
        head_sums(backend, heads, h, dl, dr, d_vectors)
    }
}

impl<B: Backend> Weights<B> {
    /// The weights of the edges in one order.
    fn of<'a>(
        &'a self,
        side: Side,
        positive_only: bool,
        dropout: Option<Dropout<'a, B>>,
    ) -> EdgeAttention<'a, B> {
        EdgeAttention {
            heads: self.heads,
            destination: &self.destination,
            source: &self.source,
            statistics: &self.statistics,
            slope: self.slope,
            transposed: side == Side::Transposed,
            positive_only,
            dropout,
        }
    }
}

/// `y` = the neighbours' rows times the weights.
fn aggregate<B: Backend, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    weights: &EdgeAttention<'_, B>,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let op = Spmm {
        weights: EdgeWeights::Attention(weights),
        ..Spmm::default()
    };
    spmm(backend, a, &op, x, y)
}

/// Dots of two matrices.
fn dots<'a, B: Backend, E: Element>(
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

/// Which order of the edges an adjacency has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Rows are destinations.
    Forward,
    /// Rows are sources.
    Transposed,
}
