//! A layer of additive attention: scores, their softmax, the weighted sum, and all gradients.
//!
//! Nothing as long as the edges is kept between the passes: the scores are computed again. Borrowed are a float or two
//! for each edge and head, never a row of features an edge.

use super::{
    Additive, AdditiveGradientOperands, AdditiveOperators, additive_gradient, additive_scores,
};
use crate::backend::{Adjacency, MemoryKind, Storage};
use crate::error::Error;
use crate::ops::check::{expect_heads, expect_shape};
use crate::ops::{
    AttentionOperators, AttentionScores, Combine, Dropout, EdgeAttention, EdgeBiasGradientOperands,
    EdgeWeights, ElementwiseOperators, HeadDots, HeadOperators, NormalizeOperators, Sddmm,
    SddmmOperators, Spmm, SpmmOperators, SpmmPolicy, attention_statistics, column_sums,
    combine_rows, edge_bias_gradient, head_dots, sddmm, spmm,
};
use crate::tensor::{Array, Element, Matrix};

const NAME: &str = "additive_attention";

/// Additive attention of one layer: what its forward pass leaves for its backward pass, two floats a destination and
/// head.
///
/// An adjacency may have fewer rows than columns, as a [`Block`](crate::backend::Block)'s has. Scores, weights and all
/// sums are float in every precision; features, outputs and their gradients are elements, rounded once each, but the
/// gradient of sources twice.
#[derive(Debug)]
pub struct AdditiveAttention<B: Storage> {
    heads: usize,
    slope: f32,
    policy: SpmmPolicy,
    /// The largest score of each row, and the reciprocal of the sum of exponentials.
    statistics: Array<B, [f32; 2]>,
    /// The scores that vertices have of their own: zeros, for destinations and for sources.
    none: [Array<B, f32>; 2],
}

/// What both passes of [`AdditiveAttention`] take.
#[derive(Debug)]
pub struct AdditiveFeatures<'a, B: Storage, E: Element> {
    /// Features of the destinations, a row each.
    pub destinations: &'a Matrix<B, E>,
    /// Features of the sources, of the same width: what is aggregated.
    pub sources: &'a Matrix<B, E>,
    /// The vector that scores are made by, 1 × that width.
    pub vector: &'a Matrix<B, E>,
    /// Dropout of the weights.
    pub dropout: Option<Dropout<'a, B>>,
}

impl<B: Storage, E: Element> Clone for AdditiveFeatures<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage, E: Element> Copy for AdditiveFeatures<'_, B, E> {}

/// Operands of [`AdditiveAttention::backward`], in addition to the features.
#[derive(Debug)]
pub struct AdditiveBackward<'a, B: Storage, E: Element> {
    /// Output of the forward pass, before anything was added to it.
    pub y: &'a Matrix<B, E>,
    /// Gradient of its output.
    pub dy: &'a Matrix<B, E>,
    /// Of any content: a float a head and destination, two planes of edges in float, and one of elements; a matrix of
    /// the shape of the destinations' features and one of that of the sources'.
    pub lent: AdditiveRoom<'a, B, E>,
    /// Becomes the gradient of the destinations' features.
    pub d_destinations: &'a mut Matrix<B, E>,
    /// Becomes the gradient of the sources' features.
    pub d_sources: &'a mut Matrix<B, E>,
    /// Becomes the gradient of the vector, 1 × its width.
    pub d_vector: &'a mut Matrix<B, f32>,
}

/// What [`AdditiveAttention::backward`] computes in.
#[derive(Debug)]
pub struct AdditiveRoom<'a, B: Storage, E: Element> {
    /// A float a head and destination.
    pub inner: &'a mut Array<B, f32>,
    /// Planes of edges: of the scores, and of their gradient.
    pub edges: [&'a mut Array<B, f32>; 2],
    /// Planes of edges, in elements.
    pub products: &'a mut Array<B, E>,
    /// Of the shape of the destinations' features.
    pub destinations: &'a mut Matrix<B, E>,
    /// Of the shape of the sources' features.
    pub sources: &'a mut Matrix<B, E>,
}

impl<
    B: AdditiveOperators
        + AttentionOperators
        + ElementwiseOperators
        + HeadOperators
        + NormalizeOperators
        + SddmmOperators
        + SpmmOperators,
> AdditiveAttention<B>
{
    /// Attention over adjacencies of the given number of rows and columns, destinations and sources, with `heads` heads
    /// and this slope of the LeakyReLU below zero (0.2 in GATv2).
    ///
    /// # Errors
    /// [`Error::Unsupported`] for no heads, [`Error::Driver`] where there is not enough memory.
    pub fn new(
        backend: &B,
        (destinations, sources): (usize, usize),
        heads: usize,
        slope: f32,
    ) -> Result<Self, Error> {
        expect_heads(NAME, heads)?;
        let kind = MemoryKind::Activations;
        let zeros = |vertices| Array::zeros(backend, heads.saturating_mul(vertices), kind);
        Ok(Self {
            heads,
            slope,
            policy: SpmmPolicy::default(),
            statistics: Array::zeros(backend, heads.saturating_mul(destinations), kind)?,
            none: [zeros(destinations)?, zeros(sources)?],
        })
    }

    /// The same in memory of the caller's: `statistics` has as many elements as there are destinations and heads, the
    /// zeros as many as destinations and heads, and as sources and heads.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for no heads.
    pub fn in_memory(
        heads: usize,
        slope: f32,
        statistics: Array<B, [f32; 2]>,
        zeros: [Array<B, f32>; 2],
    ) -> Result<Self, Error> {
        expect_heads(NAME, heads)?;
        Ok(Self {
            heads,
            slope,
            policy: SpmmPolicy::default(),
            statistics,
            none: zeros,
        })
    }

    /// What the last forward pass has left: of each destination and head the largest score and the reciprocal of the
    /// sum of exponentials.
    pub fn statistics(&self) -> &Array<B, [f32; 2]> {
        &self.statistics
    }

    /// The same with another policy of its SpMMs.
    #[must_use]
    pub fn with_policy(self, policy: SpmmPolicy) -> Self {
        Self { policy, ..self }
    }

    /// `y[i] = Σ_j α(i,j) k(i,j) v[j]` over the edges of row `i`, head by head, where `α(i, ·)` is the softmax of the
    /// scores of the row and `k` are the factors of dropout. A row without edges becomes zero. `scores` are planes of
    /// edges of any content.
    ///
    /// # Errors
    /// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where the columns do not divide into the
    /// heads.
    pub fn forward<E: Element>(
        &mut self,
        backend: &B,
        a: &Adjacency<B>,
        of: AdditiveFeatures<'_, B, E>,
        scores: &mut Array<B, f32>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        additive_scores(backend, a, self.additive(of), scores)?;
        let own = AttentionScores {
            heads: self.heads,
            destination: &self.none[0],
            source: &self.none[1],
            slope: 1.0,
            biases: Some(scores),
        };
        attention_statistics(backend, a, &own, &mut self.statistics, None, None)?;
        let weights = self.weights(false, of.dropout, scores);
        self.sum(backend, a, &weights, of.sources, y)
    }

    /// The gradients of the features and of the vector. `a` is the adjacency of the forward pass, `transposed` the same
    /// transposed.
    ///
    /// # Errors
    /// As [`AdditiveAttention::forward`].
    pub fn backward<E: Element>(
        &mut self,
        backend: &B,
        [a, transposed]: [&Adjacency<B>; 2],
        features: AdditiveFeatures<'_, B, E>,
        of: AdditiveBackward<'_, B, E>,
    ) -> Result<(), Error> {
        let AdditiveBackward {
            y,
            dy,
            lent,
            d_destinations,
            d_sources,
            d_vector,
        } = of;
        let AdditiveRoom {
            inner,
            edges: [scores, d],
            products,
            destinations,
            sources,
        } = lent;
        let what = ["rows of an operand", "columns of an operand"];
        for matrix in [y, dy] {
            expect_shape(NAME, what, features.destinations.shape(), matrix)?;
        }
        let heads = self.heads;
        head_dots(backend, &HeadDots::new(heads, dy, (1.0, y)), inner)?;
        let dot = Sddmm {
            heads,
            ..Sddmm::default()
        };

        let additive = self.additive(features);
        additive_scores(backend, a, additive, scores)?;
        sddmm(backend, a, &dot, dy, features.sources, products)?;
        let gradient = EdgeBiasGradientOperands {
            a,
            weights: &self.weights(false, features.dropout, scores),
            x: products,
            inner,
            d,
        };
        edge_bias_gradient(backend, gradient)?;
        let operands = AdditiveGradientOperands {
            a,
            op: additive,
            d,
            du: d_destinations,
            of_vector: Some(&mut *destinations),
        };
        additive_gradient(backend, operands)?;
        column_sums(backend, destinations, d_vector)?;

        // The same numbers in the other order, computed again: to bring them there would take a map of the edges.
        let additive = Additive {
            u: features.sources,
            v: features.destinations,
            ..additive
        };
        additive_scores(backend, transposed, additive, scores)?;
        sddmm(backend, transposed, &dot, features.sources, dy, products)?;
        let weights = self.weights(true, features.dropout, scores);
        let gradient = EdgeBiasGradientOperands {
            a: transposed,
            weights: &weights,
            x: products,
            inner,
            d,
        };
        edge_bias_gradient(backend, gradient)?;
        self.sum(backend, transposed, &weights, dy, d_sources)?;
        let operands = AdditiveGradientOperands {
            a: transposed,
            op: additive,
            d,
            du: sources,
            of_vector: None,
        };
        additive_gradient(backend, operands)?;
        combine_rows(
            backend,
            d_sources.rows(),
            &Combine::sum(),
            sources,
            d_sources,
        )
    }

    /// The weighted sum of rows of `x`.
    fn sum<E: Element>(
        &self,
        backend: &B,
        a: &Adjacency<B>,
        weights: &EdgeAttention<'_, B>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let op = Spmm {
            weights: EdgeWeights::Attention(weights),
            policy: self.policy,
            ..Spmm::default()
        };
        spmm(backend, a, &op, x, y)
    }

    fn additive<'a, E: Element>(&self, of: AdditiveFeatures<'a, B, E>) -> Additive<'a, B, E> {
        Additive {
            heads: self.heads,
            slope: self.slope,
            vector: of.vector,
            u: of.destinations,
            v: of.sources,
        }
    }

    /// The weights of edges of these scores in one of the two orders.
    fn weights<'a>(
        &'a self,
        transposed: bool,
        dropout: Option<Dropout<'a, B>>,
        scores: &'a Array<B, f32>,
    ) -> EdgeAttention<'a, B> {
        EdgeAttention {
            heads: self.heads,
            destination: &self.none[0],
            source: &self.none[1],
            statistics: &self.statistics,
            slope: 1.0,
            transposed,
            dropout,
            biases: Some(scores),
            sums: None,
        }
    }
}
