//! The convolution with an initial residual and an identity map (Chen et al., ICML 2020).

use super::{Layer, LayerKind, ParameterNames};
use crate::nn;
use crate::program::{Builder, Edges, Value};

/// Its names.
pub(super) const KIND: LayerKind =
    LayerKind::of::<nn::Gcnii>(&[ParameterNames::same("weight", &["weight1"], &["weight1"])]);

/// `(1 − β) · S + β · S · W` with `S = (1 − α) · Â · H + α · H⁰`.
#[derive(Clone, Copy, Debug)]
pub struct Gcnii {
    /// The adjacency, with self-loops and the norm `both`.
    pub edges: Edges,
    /// `H⁰`, the output of the network's first linear map: a row for each destination.
    pub initial: Value,
    /// Share of the initial rows.
    pub alpha: f32,
    /// Share of the weights: `ln(λ / l + 1)` in layer `l`.
    pub beta: f32,
}

impl Layer for Gcnii {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let width = g.columns(x);
        let weight = g.weight("weight", (width, width));
        let sum = g.aggregate(self.edges, x);
        let mixed = g.combine(&[(1.0 - self.alpha, sum), (self.alpha, self.initial)]);
        let product = g.matmul(mixed, weight);
        g.combine(&[(self.beta, product), (1.0 - self.beta, mixed)])
    }
}
