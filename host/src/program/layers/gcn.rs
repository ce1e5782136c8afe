//! The graph convolution of Kipf and Welling (ICLR 2017).

use super::{Layer, LayerKind, Names, ParameterNames};
use crate::nn;
use crate::program::{Builder, Edges, Value};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<nn::Gcn>(&[
    ParameterNames::of(
        "weight",
        Names::linear(&["lin.weight"]),
        Names::same(&["weight"]),
    ),
    ParameterNames::same("bias", &["bias"], &["bias"]),
]);

/// `R · A · C · H · W`, with the degree norm of the edges.
#[derive(Clone, Copy, Debug)]
pub struct Gcn {
    /// The adjacency, with self-loops.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
}

impl Layer for Gcn {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let weight = g.weight("weight", (g.columns(x), self.outputs));
        let product = g.matmul(x, weight);
        g.aggregate(self.edges, product)
    }
}
