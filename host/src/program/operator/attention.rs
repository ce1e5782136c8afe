//! Attention: sums over neighbours by weights that a softmax of scores gives.

use super::{Direction, Dropout};
use crate::ops::SpmmPolicy;
use crate::program::value::{Edges, Value};

/// The attention of GAT (Veličković et al., ICLR 2018): `y_i = Σ_j α(i,j) · h_j`, where `α(i, ·)` is the softmax of
/// `leaky(a_d · h_i + a_s · h_j + b(i,j))`. The second result, where it is for training, is the same sum over the edges of positive
/// scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Attention {
    /// The adjacency. Its destinations are its first sources.
    pub edges: Edges,
    /// Heads, whose columns are side by side.
    pub heads: usize,
    /// Slope of the scores below zero.
    pub slope: f32,
    /// What is summed, a row for each source.
    pub h: Value,
    /// Quantized values of `h`, which are summed in its place. Scores are those of `h`.
    pub codes: Option<Value>,
    /// The layer whose messages it sums.
    pub layer: u32,
    /// `a_d` and `a_s`, a row each.
    pub vectors: Value,
    /// `b`: a number for each edge and head.
    pub biases: Option<Value>,
    /// Dropout of the weights.
    pub drop: Option<Dropout>,
    /// How it sums.
    pub policy: SpmmPolicy,
    /// Whether it makes the second result, which the gradient reads.
    pub trains: bool,
    /// Whether it has space for the score of each edge, where the device reads it faster than it computes it again.
    pub keeps_scores: bool,
}

/// The gradient of [`Attention`]: of `h`, of the vectors and, where there are some, of the biases.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AttentionGradient {
    /// The forward pass.
    pub of: Attention,
    /// Its first result.
    pub y: Value,
    /// Its second result.
    pub positive: Value,
    /// The gradient of its first result.
    pub d: Value,
    /// Quantized values of that, which are summed in its place.
    pub codes: Option<Value>,
    /// Its biases in the order of the transposed adjacency.
    pub against: Option<Value>,
}

/// The attention of GATv2 (Brody, Alon and Yahav, ICLR 2022): `y_i = Σ_j α(i,j) · l_j`, where `α(i, ·)` is the softmax of
/// `a · leaky(r_i + l_j)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdditiveAttention {
    /// The adjacency.
    pub edges: Edges,
    /// Heads, whose columns are side by side.
    pub heads: usize,
    /// Slope below zero.
    pub slope: f32,
    /// `l`: a row for each source.
    pub sources: Value,
    /// `r`: a row for each destination.
    pub destinations: Value,
    /// `a`: one row.
    pub vector: Value,
    /// Dropout of the weights.
    pub drop: Option<Dropout>,
    /// How it sums.
    pub policy: SpmmPolicy,
}

/// The gradient of [`AdditiveAttention`]: of sources, of destinations and of the vector.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AdditiveGradient {
    /// The forward pass.
    pub of: AdditiveAttention,
    /// Its result.
    pub y: Value,
    /// The gradient of that.
    pub d: Value,
}

/// Attention by dot products (Vaswani et al., NeurIPS 2017): `y_i = Σ_j α(i,j) · v_j`, where `α(i, ·)` is the softmax of
/// `scale · q_i · k_j`. Several of queries, keys and values may be one value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DotAttention {
    /// The adjacency.
    pub edges: Edges,
    /// Heads, whose columns are side by side.
    pub heads: usize,
    /// Factor of the scores.
    pub scale: f32,
    /// `q`: a row for each destination.
    pub queries: Value,
    /// `k`: a row for each source.
    pub keys: Value,
    /// `v`: a row for each source.
    pub values: Value,
    /// Dropout of the weights.
    pub drop: Option<Dropout>,
}

/// The gradient of [`DotAttention`]: of queries, of keys and of values. The sums of its softmax are kept between the passes: two floats
/// for each destination and head.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DotAttentionGradient {
    /// The forward pass.
    pub of: DotAttention,
    /// Its result.
    pub y: Value,
    /// The gradient of that.
    pub d: Value,
}

/// Terms of the scores of edges: `a · (W · f)` of the features `f` of each edge, one for each head. The second result is zeros, which
/// kernels for two ends of an edge read.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EdgeTerms {
    /// The adjacency, whose edges have features.
    pub edges: Edges,
    /// In the order of its edges, or of the transposed adjacency.
    pub direction: Direction,
    /// Features of an edge.
    pub features: usize,
    /// Heads.
    pub heads: usize,
    /// `W`: features × columns of all heads, in float, with zero rows up to a whole vector.
    pub weight: Value,
    /// `a` in the first of two rows, in float. The second is zero.
    pub vector: Value,
}

impl Attention {
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        [&mut self.h, &mut self.vectors]
            .into_iter()
            .for_each(&mut *visit);
        let others = self.codes.iter_mut().chain(&mut self.biases);
        others.for_each(visit);
    }
}

impl AttentionGradient {
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        let own = [&mut self.d, &mut self.y, &mut self.positive];
        own.into_iter().for_each(&mut *visit);
        self.of.visit(visit);
        let others = self.codes.iter_mut().chain(&mut self.against);
        others.for_each(visit);
    }
}

impl AdditiveAttention {
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        let all = [&mut self.sources, &mut self.destinations, &mut self.vector];
        all.into_iter().for_each(visit);
    }
}

impl AdditiveGradient {
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        [&mut self.d, &mut self.y].into_iter().for_each(&mut *visit);
        self.of.visit(visit);
    }
}

impl DotAttention {
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        let all = [&mut self.queries, &mut self.keys, &mut self.values];
        all.into_iter().for_each(visit);
    }
}

impl DotAttentionGradient {
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        [&mut self.d, &mut self.y].into_iter().for_each(&mut *visit);
        self.of.visit(visit);
    }
}
