//! The convolution of LightGCN (He et al., SIGIR 2020).

use super::{Layer, LayerKind};
use crate::program::{Builder, Edges, Value};

/// Its names. It has no parameters, so that a network of it alone is no model of the command line.
pub(super) const KIND: LayerKind = LayerKind {
    name: "lg",
    title: "Convolution of LightGCN (He et al.)",
    options: Vec::new,
    parameters: &[],
};

/// `Â · H`, with the degree norm of the edges: PyG's `LGConv`.
#[derive(Clone, Copy, Debug)]
pub struct LgLayer {
    /// The adjacency, without self-loops. Its norm is `both`, or none with PyG's `normalize=False`.
    pub edges: Edges,
}

impl Layer for LgLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        g.aggregate(self.edges, x)
    }
}
