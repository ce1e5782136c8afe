//! The graph attention layer (Veličković et al., ICLR 2018).

use super::{Layer, LayerKind, ParameterNames};
use crate::nn;
use crate::program::{Builder, Edges, Scores, Value};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<nn::Gat>(&[
    ParameterNames::linear("weight", &["lin.weight"], &["fc.weight"]),
    ParameterNames::same("attention", &["att_dst", "att_src"], &["attn_r", "attn_l"]),
    ParameterNames::linear("edge.weight", &["lin_edge.weight"], &[]),
    ParameterNames::same("edge.attention", &["att_edge"], &[]),
    ParameterNames::same("bias", &["bias"], &["bias"]),
]);

/// `y_i = Σ_j α(i,j) · h_j` with `h = H · W` and `α(i, ·) = softmax(leaky(a_d · h_i + a_s · h_j))`, for several heads, which are side by
/// side or, in a last layer, averaged. With features of edges a score has the term `a_e · (W_e · f(i,j))`, as PyG's
/// `GATConv(edge_dim=…)` has it.
#[derive(Clone, Debug)]
pub struct Gat {
    /// The adjacency, with self-loops.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// Whether the output is the mean of the heads.
    pub averaged: bool,
    /// Its options.
    pub options: nn::Gat,
}

impl Layer for Gat {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let heads = g.heads(self.options.heads, self.outputs, self.averaged);
        let weight = g.heads_weight("weight", g.columns(x), heads);
        let vectors = g.heads_vectors("attention", 2, heads);
        let h = g.matmul(x, weight);
        let scores = Scores {
            slope: self.options.slope,
            dropout: self.options.attention_dropout,
            edge_features: self.options.edge_features,
        };
        let y = g.attention(self.edges, (h, vectors), heads, scores);
        g.join_heads(heads, y)
    }
}
