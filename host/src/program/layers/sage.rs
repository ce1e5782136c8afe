//! GraphSAGE (Hamilton, Ying and Leskovec, NeurIPS 2017).

use super::{Layer, LayerKind, ParameterNames};
use crate::nn;
use crate::program::{Builder, Edges, Value};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<nn::Sage>(&[
    ParameterNames::linear("self.weight", &["lin_r.weight"], &["fc_self.weight"]),
    ParameterNames::linear("neighbours.weight", &["lin_l.weight"], &["fc_neigh.weight"]),
    ParameterNames::same("bias", &["lin_l.bias"], &["fc_self.bias"]),
]);

/// `A · H · W + H · W_self`: with the mean of the neighbours where the edges have the norm `right`.
#[derive(Clone, Copy, Debug)]
pub struct Sage {
    /// The adjacency.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
}

impl Layer for Sage {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let shape = (g.columns(x), self.outputs);
        let itself = g.weight("self.weight", shape);
        let neighbours = g.weight("neighbours.weight", shape);
        let product = g.matmul(x, neighbours);
        let sum = g.aggregate(self.edges, product);
        let own = g.own_rows(self.edges, x);
        let own = g.matmul(own, itself);
        g.add(sum, own)
    }
}
