//! The graph isomorphism layer (Xu et al., ICLR 2019), with the aggregation of HalfGNN (§4.3.1, eq. 4).

use super::{Layer, LayerKind, ParameterNames};
use crate::nn;
use crate::program::{BatchNorm, Builder, Edges, Value};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<nn::Gin>(&[
    ParameterNames::same("epsilon", &["eps"], &["eps"]),
    ParameterNames::linear("mlp.0.weight", &["nn.0.weight"], &["apply_func.0.weight"]),
    ParameterNames::same("norm.weight", &["nn.1.weight"], &["apply_func.1.weight"]),
    ParameterNames::same("norm.bias", &["nn.1.bias"], &["apply_func.1.bias"]),
    ParameterNames::same(
        "norm.running",
        &["nn.1.running_mean", "nn.1.running_var"],
        &["apply_func.1.running_mean", "apply_func.1.running_var"],
    ),
    ParameterNames::linear("mlp.1.weight", &["nn.3.weight"], &["apply_func.3.weight"]),
    ParameterNames::same("bias", &["nn.3.bias"], &["apply_func.3.bias"]),
]);

/// `relu(norm(S · W₁)) · W₂` with `S = (1 + ε) · H + λ · aggregate(H)`: the mean of neighbours where the edges have the norm `right`,
/// their sum where they have none.
#[derive(Clone, Debug)]
pub struct Gin {
    /// The adjacency.
    pub edges: Edges,
    /// Columns between the two linear maps.
    pub hidden: usize,
    /// Columns of the output.
    pub outputs: usize,
    /// Its options. Sums over many neighbours are stored times a power of two, by the largest degree of the adjacency, which the
    /// normalisation takes out again.
    pub options: nn::Gin,
}

impl Layer for Gin {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let nn::Gin {
            lambda, epsilon, ..
        } = self.options;
        let scale = self.options.scale(g.largest_degree(self.edges));
        let learnt = self.options.learn_epsilon;
        let learnt = learnt.then(|| g.scalar("epsilon", epsilon));
        let own = match learnt {
            Some(_) => scale,
            None => scale * (1.0 + epsilon),
        };
        let sum = g.aggregate_with_own(self.edges, x, (lambda * scale, own), learnt);
        let norm = BatchNorm {
            scale,
            relu: true,
            evaluate_with: self.options.statistics,
        };
        mlp(g, sum, norm, [self.hidden, self.outputs])
    }
}

/// `relu(norm(S · W₁)) · W₂`, of the given columns in between and at the end.
pub(super) fn mlp(g: &mut Builder, sum: Value, norm: BatchNorm, columns: [usize; 2]) -> Value {
    let between = g.linear("mlp.0", columns[0], sum);
    let between = g.batch_norm("norm", between, norm);
    g.linear("mlp.1", columns[1], between)
}
