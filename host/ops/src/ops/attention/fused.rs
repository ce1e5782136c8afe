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
//! neighbours', whose weights are computed on the way, `+` marking weights of positive sums only:
//!
//! ```text
//! P[i]  = Σ_j α⁺ k h[j]        p[i] = Σ_j α⁺
//! G[j]  = Σ_i α k g[i]         Q[j] = Σ_i α⁺ k g[i]         t[j] = Σ_i leaky' α D[i]
//! dl[i] = (1 − s) · (g[i] · P[i] − D[i] p[i])
//! dr[j] = h[j] · (s G[j] + (1 − s) Q[j]) − t[j]
//! dh    = G + dl a_lᵀ + dr a_rᵀ        da_l = Σ_i dl[i] h[i]        da_r = Σ_j dr[j] h[j]
//! ```
//!
//! `y` and `P` are sums of the same rows, and so are `G` and `Q`: the edges are walked once forward and once backward
//! ([`attention_pair`]), each time with two sums, and the walk backward brings `t` along. So `P` is kept between the passes,
//! and the backward pass never comes to the rows.

use super::{AttentionOperators, attention_statistics};
use crate::backend::{Adjacency, MemoryKind, Storage};
use crate::error::Error;
use crate::ops::check::{expect_heads, expect_shape};
use crate::ops::{
    AttentionPair, AttentionScores, Dropout, EdgeAttention, EdgeWeights, HeadDots, HeadOperators,
    SoftmaxGradient, Spmm, SpmmOperators, SpmmPolicy, attention_pair, head_dots, head_outer,
    head_scores, head_sums, spmm,
};
use crate::tensor::{Array, Element, Matrix};

const NAME: &str = "attention";

/// Attention of one layer: what its forward pass leaves for its backward pass, five floats a vertex and head.
///
/// Weights, their softmax and all sums are float in both precisions; features, outputs and their gradients are elements,
/// rounded once each. Scores of any size are safe: `exp` is taken of nothing positive.
#[derive(Debug)]
pub struct Attention<B: Storage> {
    vertices: usize,
    heads: usize,
    slope: f32,
    policy: SpmmPolicy,
    /// `l`
    destination: Array<B, f32>,
    /// `r`
    source: Array<B, f32>,
    /// `m` and `1/z`.
    statistics: Array<B, [f32; 2]>,
    /// `p`
    positive_share: Array<B, f32>,
}

/// Operands of [`Attention::forward`].
#[derive(Debug)]
pub struct AttentionForward<'a, B: Storage, E: Element> {
    /// Features, vertices × heads.
    pub h: &'a Matrix<B, E>,
    /// Row 0 is the attention vector of destinations, row 1 that of sources, each as wide as `h`.
    pub vectors: &'a Matrix<B, E>,
    /// Dropout of the weights.
    pub dropout: Option<Dropout<'a, B>>,
    /// Becomes the output, of the shape of `h`.
    pub y: &'a mut Matrix<B, E>,
    /// Becomes `P`, of the shape of `h`, which the backward pass wants; absent where none follows.
    pub positive: Option<&'a mut Matrix<B, E>>,
}

/// Operands of [`Attention::backward`]. Matrices but the vectors and their gradient have the shape of `h`.
#[derive(Debug)]
pub struct AttentionBackward<'a, B: Storage, E: Element> {
    /// Features that the forward pass took.
    pub h: &'a Matrix<B, E>,
    /// Attention vectors that it took.
    pub vectors: &'a Matrix<B, E>,
    /// Its output, before anything was added to it.
    pub y: &'a Matrix<B, E>,
    /// What it left in [`AttentionForward::positive`].
    pub positive: &'a Matrix<B, E>,
    /// Gradient of its output.
    pub dy: &'a Matrix<B, E>,
    /// Its dropout, at the same step.
    pub dropout: Option<Dropout<'a, B>>,
    /// A matrix and arrays of a float a vertex and head, of any content; they are overwritten.
    pub lent: (&'a mut Matrix<B, E>, [&'a mut Array<B, f32>; 3]),
    /// Becomes the gradient of `h`.
    pub dh: &'a mut Matrix<B, E>,
    /// Becomes the gradient of `vectors`.
    pub d_vectors: &'a mut Matrix<B, f32>,
}

impl<B: AttentionOperators + HeadOperators + SpmmOperators> Attention<B> {
    /// Attention over graphs of `vertices` vertices, with `heads` heads and this slope of the LeakyReLU below zero (0.2
    /// in GAT).
    ///
    /// # Errors
    /// [`Error::Unsupported`] for no heads, [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, vertices: usize, heads: usize, slope: f32) -> Result<Self, Error> {
        expect_heads(NAME, heads)?;
        let len = heads.saturating_mul(vertices);
        let numbers = || Array::zeros(backend, len, MemoryKind::Activations);
        Ok(Self {
            vertices,
            heads,
            slope,
            policy: SpmmPolicy::default(),
            destination: numbers()?,
            source: numbers()?,
            statistics: Array::zeros(backend, len, MemoryKind::Activations)?,
            positive_share: numbers()?,
        })
    }

    /// The same with another policy of its SpMMs.
    #[must_use]
    pub fn with_policy(self, policy: SpmmPolicy) -> Self {
        Self { policy, ..self }
    }

    /// `y[i] = Σ_j α(i,j) k(i,j) h[j]` over the edges of row `i`, head by head, with the factors `k` of dropout. A row
    /// without edges becomes zero.
    ///
    /// # Errors
    /// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns are not so many heads.
    pub fn forward<E: Element>(
        &mut self,
        backend: &B,
        a: &Adjacency<B>,
        of: AttentionForward<'_, B, E>,
    ) -> Result<(), Error> {
        let AttentionForward {
            h,
            vectors,
            dropout,
            y,
            positive,
        } = of;
        self.expect_square(a)?;
        let heads = self.heads;
        let (destination, source) = (&mut self.destination, &mut self.source);
        head_scores(backend, heads, h, vectors, destination, source)?;
        let scores = AttentionScores {
            heads,
            destination: &self.destination,
            source: &self.source,
            slope: self.slope,
        };
        let share = Some(&mut self.positive_share);
        attention_statistics(backend, a, &scores, &mut self.statistics, share)?;
        let weights = &self.weights(false, dropout);
        let policy = self.policy;
        match positive {
            Some(positive) => {
                let pair = AttentionPair {
                    weights,
                    policy,
                    all: y,
                    positive,
                    through: None,
                };
                attention_pair(backend, a, pair, h)
            }
            None => {
                let op = Spmm {
                    weights: EdgeWeights::Attention(weights),
                    policy,
                    ..Spmm::default()
                };
                spmm(backend, a, &op, h, y)
            }
        }
    }

    /// The gradients of the features and of the attention vectors; see the module's page. `transposed` is the transposed
    /// adjacency of that of the forward pass.
    ///
    /// # Errors
    /// As [`Attention::forward`].
    pub fn backward<E: Element>(
        &self,
        backend: &B,
        transposed: &Adjacency<B>,
        of: AttentionBackward<'_, B, E>,
    ) -> Result<(), Error> {
        let AttentionBackward {
            h,
            vectors,
            y,
            positive,
            dy,
            dropout,
            lent: (lent, [inner, dl, through]),
            dh,
            d_vectors,
        } = of;
        self.expect_square(transposed)?;
        for matrix in [y, positive, dy, lent, dh] {
            expect_shape(
                NAME,
                ["rows of an operand", "columns of an operand"],
                h.shape(),
                matrix,
            )?;
        }
        let (heads, slope, rest) = (self.heads, self.slope, 1.0 - self.slope);
        head_dots(backend, &dots(heads, dy, (1.0, y)), inner)?;
        let op = HeadDots {
            u: Some((-rest, &*inner)),
            v: Some(&self.positive_share),
            ..dots(heads, dy, (rest, positive))
        };
        head_dots(backend, &op, dl)?;

        let pair = AttentionPair {
            weights: &self.weights(true, dropout),
            policy: self.policy,
            all: &mut *dh,
            positive: &mut *lent,
            through: Some(SoftmaxGradient {
                values: &*inner,
                sums: &mut *through,
            }),
        };
        attention_pair(backend, transposed, pair, dy)?;
        let op = HeadDots {
            c: Some((rest, &*lent)),
            u: Some((-1.0, &*through)),
            ..dots(heads, h, (slope, dh))
        };
        // `D` was for `t` and `dl`.
        let dr = inner;
        head_dots(backend, &op, dr)?;

        head_outer(backend, heads, dl, dr, vectors, dh)?;
        head_sums(backend, heads, h, dl, dr, d_vectors)
    }

    /// Refuses an adjacency that is not one of the graphs that this is for.
    fn expect_square(&self, a: &Adjacency<B>) -> Result<(), Error> {
        Error::expect(NAME, "rows of the adjacency", self.vertices, a.rows())?;
        Error::expect(NAME, "columns of the adjacency", self.vertices, a.columns())
    }

    /// The weights of the edges in one of the two orders.
    fn weights<'a>(
        &'a self,
        transposed: bool,
        dropout: Option<Dropout<'a, B>>,
    ) -> EdgeAttention<'a, B> {
        EdgeAttention {
            heads: self.heads,
            destination: &self.destination,
            source: &self.source,
            statistics: &self.statistics,
            slope: self.slope,
            transposed,
            dropout,
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
