//! The graph attention layer whose attention is dynamic (Brody, Alon and Yahav, ICLR 2022).

use super::{Layer, LayerKind, ParameterNames};
use crate::nn;
use crate::program::{Builder, Edges, Scores, Value};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<nn::GatV2>(&[
    ParameterNames::linear("source.weight", &["lin_l.weight"], &[]),
    ParameterNames::same("source.bias", &["lin_l.bias"], &[]),
    ParameterNames::linear("destination.weight", &["lin_r.weight"], &[]),
    ParameterNames::same("destination.bias", &["lin_r.bias"], &[]),
    ParameterNames::same("attention", &["att"], &[]),
    ParameterNames::same("bias", &["bias"], &[]),
]);

/// `y_i = Σ_j α(i,j) · l_j` with `l = H · W_l + b_l`, `r = H · W_r + b_r` and `α(i, ·) = softmax(a · leaky(r_i + l_j))`, for several
/// heads, which are side by side or, in a last layer, averaged.
#[derive(Clone, Debug)]
pub struct GatV2 {
    /// The adjacency, with self-loops.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// Whether the output is the mean of the heads.
    pub averaged: bool,
    /// Its options.
    pub options: nn::GatV2,
}

impl Layer for GatV2 {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let heads = g.heads(self.options.heads, self.outputs, self.averaged);
        let sources = g.heads_map("source", heads, x);
        let vector = g.heads_vectors("attention", 1, heads);
        let destinations = match self.options.share_weights {
            true => g.own_rows(self.edges, sources),
            false => {
                let own = g.own_rows(self.edges, x);
                g.heads_map("destination", heads, own)
            }
        };
        let scores = Scores {
            slope: self.options.slope,
            dropout: self.options.attention_dropout,
            edge_features: 0,
        };
        let ends = [destinations, sources];
        let y = g.additive_attention(self.edges, ends, vector, heads, scores);
        g.join_heads(heads, y)
    }
}
