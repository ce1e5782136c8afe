//! Attention without an array of edges but that of their biases, where they have some, and, for the length of a forward
//! pass, of the sums of their scores.
//!
//! # Gradient
//! With `g = dL/dy`, dropout factors `k` and `D[i] = g[i] · y[i]`, which is the sum `Σ_j α k (g[i] · h[j])` that a
//! softmax's gradient needs (FlashAttention, Dao et al., 2022, §3.1), the gradient of the sum of scores of an edge is
//!
//! ```text
//! ds(i,j) = leaky'(i,j) · α(i,j) · (k(i,j) · g[i] · h[j] − D[i])
//! ```
//!
//! It is never needed edge by edge, only its sums over rows and over columns. Let `leaky' = s + (1 − s) · [l + r > 0]`;
//! the terms with `s` alone add up to zero in a row. What is left are products of a vertex's features with sums of its
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
//! ([`attention_pair`]), each time with two sums, and the walk backward brings `t` along. So `P` is kept between the
//! passes, and the backward pass never comes to the rows.
//!
//! With a bias an edge, which is a third part of the sum of scores, `ds` is the gradient of the bias as well: there it
//! is wanted edge by edge, and made of an SDDMM, `g[i] · h[j]` ([`edge_bias_gradient`]).

use super::{
    AttentionOperators, EdgeBiasGradientOperands, attention_statistics, edge_bias_gradient,
};
use crate::backend::{Adjacency, MemoryKind, Storage};
use crate::error::Error;
use crate::ops::check::{expect_heads, expect_shape};
use crate::ops::{
    AttentionPair, AttentionScores, Checked, Dropout, EdgeAttention, EdgeWeights,
    HeadDotsOuterOperands, HeadDotsPairOperands, HeadOperators, HeadScoresOperands,
    QuantizedMatrix, Sddmm, SddmmOperators, SoftmaxGradient, Spmm, SpmmOperators, SpmmPolicy,
    attention_pair, head_dots_outer, head_dots_pair, quantized_attention_pair, quantized_spmm,
    sddmm, spmm,
};
use crate::tensor::{Array, Element, Matrix};

const NAME: &str = "attention";

/// Attention of one layer: what its forward pass leaves for its backward pass, five floats a vertex and head.
///
/// An adjacency may have fewer rows than columns, as a [`Block`](crate::backend::Block)'s has: its destinations are its
/// first sources.
///
/// Weights, their softmax and all sums are float in every precision; features, outputs and their gradients are
/// elements, rounded once each. Scores of any size are safe: `exp` is taken of nothing positive.
#[derive(Debug)]
pub struct Attention<B: Storage> {
    destinations: usize,
    sources: usize,
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
    /// Features, a row a source. The first rows are those of the destinations.
    pub h: &'a Matrix<B, E>,
    /// Their 8-bit values, without factors, where those are added up in their place. Scores are those of the
    /// features.
    pub codes: Option<&'a QuantizedMatrix<B>>,
    /// Row 0 is the attention vector of destinations, row 1 that of sources, each as wide as `h`.
    pub vectors: &'a Matrix<B, E>,
    /// Dropout of the weights.
    pub dropout: Option<Dropout<'a, B>>,
    /// Becomes the output, as wide as `h`, a row a destination.
    pub y: &'a mut Matrix<B, E>,
    /// Becomes `P`, of the shape of `y`, which the backward pass needs; absent where none follows.
    pub positive: Option<&'a mut Matrix<B, E>>,
    /// A number for each edge and head that is added to the sum of its scores, in the order of the adjacency: see
    /// [`AttentionScores::biases`].
    pub biases: Option<&'a Array<B, f32>>,
    /// Memory for the sum of scores of each edge and head, planes of edges of any content, where the device [keeps
    /// them](AttentionOperators::keeps_sums_of_scores). Nothing is left there without a
    /// [positive](AttentionForward::positive) sum.
    pub sums: Option<&'a mut Array<B, f32>>,
}

/// Biases of a forward pass, as its backward pass needs them.
#[derive(Debug)]
pub struct EdgeBiases<'a, B: Storage, E: Element> {
    /// The adjacency of the forward pass.
    pub a: &'a Adjacency<B>,
    /// The biases in its order, as they were.
    pub forward: &'a Array<B, f32>,
    /// The same in the order of the transposed adjacency.
    pub backward: &'a Array<B, f32>,
    /// Planes of edges of any content.
    pub lent: &'a mut Array<B, E>,
    /// Becomes the gradient of the biases, in the order of `a`: planes of edges.
    pub d: &'a mut Array<B, f32>,
}

/// Operands of [`Attention::backward`]. Matrices but the vectors and their gradient are as wide as `h`.
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
    /// Its 8-bit values, without factors, where those are added up in its place.
    pub codes: Option<&'a QuantizedMatrix<B>>,
    /// Its dropout, at the same step.
    pub dropout: Option<Dropout<'a, B>>,
    /// A matrix of the shape of `h`, and arrays of a float a head and vertex: two of the destinations and two of the
    /// sources. Their content is overwritten.
    pub lent: (&'a mut Matrix<B, E>, [&'a mut Array<B, f32>; 4]),
    /// Becomes the gradient of `h`, of its shape.
    pub dh: &'a mut Matrix<B, E>,
    /// Becomes the gradient of `vectors`.
    pub d_vectors: &'a mut Matrix<B, f32>,
    /// Its biases, if it had any.
    pub biases: Option<EdgeBiases<'a, B, E>>,
}

impl<B: AttentionOperators + HeadOperators + SddmmOperators + SpmmOperators> Attention<B> {
    /// Attention over graphs of `vertices` vertices, with `heads` heads and this slope of the LeakyReLU below zero (0.2
    /// in GAT).
    ///
    /// # Errors
    /// [`Error::Unsupported`] for no heads, [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, vertices: usize, heads: usize, slope: f32) -> Result<Self, Error> {
        Self::between(backend, (vertices, vertices), heads, slope)
    }

    /// [`Attention::new`] for adjacencies of the given number of rows and columns: destinations, which are the first of
    /// the sources.
    ///
    /// # Errors
    /// Those of [`Attention::new`], and [`Error::Unsupported`] for more destinations than sources.
    pub fn between(
        backend: &B,
        (destinations, sources): (usize, usize),
        heads: usize,
        slope: f32,
    ) -> Result<Self, Error> {
        expect_heads(NAME, heads)?;
        if destinations > sources {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: format!(
                    "{destinations} destinations and {sources} sources; destinations are the first sources"
                ),
            });
        }
        let kind = MemoryKind::Activations;
        let numbers = |vertices| Array::zeros(backend, heads.saturating_mul(vertices), kind);
        let len = heads.saturating_mul(destinations);
        Ok(Self {
            destinations,
            sources,
            heads,
            slope,
            policy: SpmmPolicy::default(),
            destination: numbers(destinations)?,
            source: numbers(sources)?,
            statistics: Array::zeros(backend, len, kind)?,
            positive_share: numbers(destinations)?,
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
    /// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns do not divide into the
    /// heads.
    pub fn forward<E: Element>(
        &mut self,
        backend: &B,
        a: &Adjacency<B>,
        of: AttentionForward<'_, B, E>,
    ) -> Result<(), Error> {
        let AttentionForward {
            h,
            codes,
            vectors,
            dropout,
            y,
            positive,
            biases,
            sums,
        } = of;
        let mut sums = sums.filter(|_| positive.is_some());
        self.expect_shape(a, (self.destinations, self.sources))?;
        let heads = self.heads;
        let of_ends = HeadScoresOperands {
            heads,
            destinations: self.destinations,
            x: h,
            vectors,
            destination: &mut self.destination,
            source: &mut self.source,
        };
        backend.head_scores(Checked::new(of_ends)?)?;
        let scores = AttentionScores {
            heads,
            destination: &self.destination,
            source: &self.source,
            slope: self.slope,
            biases,
        };
        let share = Some(&mut self.positive_share);
        let statistics = &mut self.statistics;
        attention_statistics(backend, a, &scores, statistics, share, sums.as_deref_mut())?;
        let weights = &EdgeAttention {
            sums: sums.as_deref(),
            ..self.weights(false, dropout, biases)
        };
        let policy = self.policy;
        match positive {
            Some(positive) => {
                let pair = AttentionPair {
                    weights,
                    policy,
                    all: y,
                    positive,
                    softmax_gradient: None,
                };
                match codes {
                    Some(codes) => quantized_attention_pair(backend, a, pair, codes),
                    None => attention_pair(backend, a, pair, h),
                }
            }
            None => {
                let op = Spmm {
                    weights: EdgeWeights::Attention(weights),
                    policy,
                    ..Spmm::default()
                };
                match codes {
                    Some(codes) => quantized_spmm(backend, a, &op, codes, y),
                    None => spmm(backend, a, &op, h, y),
                }
            }
        }
    }

    /// The gradients of the features and of the attention vectors; see the module's page. `transposed` is the
    /// transposed adjacency of that of the forward pass.
    ///
    /// # Errors
    /// As [`Attention::forward`].
    pub fn backward<E: Element>(
        &mut self,
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
            codes,
            dropout,
            lent: (lent, [inner, dl, softmax_gradient, dr]),
            dh,
            d_vectors,
            biases,
        } = of;
        self.expect_shape(transposed, (self.sources, self.destinations))?;
        let what = ["rows of an operand", "columns of an operand"];
        for matrix in [y, positive, dy] {
            let shape = (self.destinations, h.columns());
            expect_shape(NAME, what, shape, matrix)?;
        }
        for matrix in [&*lent, &*dh] {
            expect_shape(NAME, what, h.shape(), matrix)?;
        }
        let (heads, slope, rest) = (self.heads, self.slope, 1.0 - self.slope);
        let of_destinations = HeadDotsPairOperands {
            heads,
            a: dy,
            d: y,
            b: (rest, positive),
            v: (-rest, &self.positive_share),
            u: inner,
            y: dl,
        };
        head_dots_pair(backend, of_destinations)?;

        let mut against = None;
        if let Some(of) = biases {
            against = Some(of.backward);
            self.expect_shape(of.a, (self.destinations, self.sources))?;
            let op = Sddmm {
                heads,
                ..Sddmm::default()
            };
            sddmm(backend, of.a, &op, dy, h, of.lent)?;
            let operands = EdgeBiasGradientOperands {
                a: of.a,
                weights: &self.weights(false, dropout, Some(of.forward)),
                x: of.lent,
                inner,
                d: of.d,
            };
            edge_bias_gradient(backend, operands)?;
        }
        let pair = AttentionPair {
            weights: &self.weights(true, dropout, against),
            policy: self.policy,
            all: &mut *dh,
            positive: &mut *lent,
            softmax_gradient: Some(SoftmaxGradient {
                values: &*inner,
                sums: &mut *softmax_gradient,
            }),
        };
        match codes {
            Some(codes) => quantized_attention_pair(backend, transposed, pair, codes)?,
            None => attention_pair(backend, transposed, pair, dy)?,
        }
        let of_sources = HeadDotsOuterOperands {
            heads,
            a: h,
            b: (slope, dh),
            c: (rest, &*lent),
            u: (-1.0, &*softmax_gradient),
            destinations: self.destinations,
            destination: dl,
            vectors,
            y: dr,
            sums: d_vectors,
        };
        head_dots_outer(backend, of_sources)
    }

    /// Refuses an adjacency that is not one of the graphs that this is for.
    fn expect_shape(&self, a: &Adjacency<B>, (rows, columns): (usize, usize)) -> Result<(), Error> {
        Error::expect(NAME, "rows of the adjacency", rows, a.rows())?;
        Error::expect(NAME, "columns of the adjacency", columns, a.columns())
    }

    /// The weights of the edges in one of the two orders.
    fn weights<'a>(
        &'a self,
        transposed: bool,
        dropout: Option<Dropout<'a, B>>,
        biases: Option<&'a Array<B, f32>>,
    ) -> EdgeAttention<'a, B> {
        EdgeAttention {
            heads: self.heads,
            destination: &self.destination,
            source: &self.source,
            statistics: &self.statistics,
            slope: self.slope,
            transposed,
            dropout,
            biases,
            sums: None,
        }
    }
}
