//! Layers as formulas, a file each: what they compute and nothing else.
//!
//! Bias, activation and dropout around a layer are the network's, as they are for [`nn`](crate::nn).

mod appnp;
mod gat;
mod gatv2;
mod gcn;
mod gcnii;
mod gin;
mod kind;
mod rgcn;
mod sage;

pub use appnp::Appnp;
pub use gat::Gat;
pub use gatv2::GatV2;
pub use gcn::Gcn;
pub use gcnii::Gcnii;
pub use gin::Gin;
pub use kind::{LayerKind, Names, ParameterNames};
pub use rgcn::{Decomposition, Relation, Rgcn};
pub use sage::Sage;

use super::{Builder, Value};
use std::fmt;

/// Every layer, a line each.
pub const ALL: [LayerKind; 8] = [
    gcn::KIND,
    sage::KIND,
    gin::KIND,
    gat::KIND,
    gatv2::KIND,
    appnp::KIND,
    gcnii::KIND,
    rgcn::KIND,
];

/// A layer from one value to another. Anyone can write one:
///
/// ```
/// use halfgnn::program::{Builder, Edges, Value, layers::Layer};
///
/// /// GraphConv of PyG: `H · W₁ + A · H · W₂`.
/// #[derive(Debug)]
/// struct GraphConv {
///     edges: Edges,
///     outputs: usize,
/// }
///
/// impl Layer for GraphConv {
///     fn build(&self, g: &mut Builder, x: Value) -> Value {
///         let shape = (g.columns(x), self.outputs);
///         let (itself, neighbours) = (g.weight("lin_root.weight", shape), g.weight("lin_rel.weight", shape));
///         let (own, sum) = (g.own_rows(self.edges, x), g.aggregate(self.edges, x));
///         let (own, sum) = (g.matmul(own, itself), g.matmul(sum, neighbours));
///         g.add(sum, own)
///     }
/// }
/// ```
pub trait Layer: fmt::Debug {
    /// Writes the formula down: a row for each source to a row for each destination.
    fn build(&self, g: &mut Builder, x: Value) -> Value;
}
