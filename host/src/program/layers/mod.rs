//! Layers as formulas, a file each: what they compute and nothing else.
//!
//! Bias, activation and dropout around a layer are the network's, as they are for [`nn`](crate::nn).

mod appnp;
mod arma;
pub(super) mod binary;
mod cg;
mod cheb;
mod clustergcn;
mod dense;
mod edge;
mod gat;
mod gatedgraph;
mod gatv2;
mod gcn;
mod gcnii;
mod generalized;
mod gin;
mod gine;
mod graphconv;
mod hetero;
mod hgt;
mod kind;
mod leconv;
mod lg;
mod mixhop;
mod pna;
mod resgated;
mod rgcn;
mod sage;
mod setting;
mod sg;
mod ssg;
mod tag;
mod transformer;
mod types;

pub use appnp::Appnp;
pub use arma::{Arma, ArmaLayer};
pub use cg::{Cg, CgLayer};
pub use cheb::{Cheb, ChebLayer};
pub use clustergcn::{ClusterGcn, ClusterGcnLayer};
pub use dense::Dense;
pub use edge::{Edge, EdgeConvLayer};
pub use gat::Gat;
pub use gatedgraph::{GatedGraph, GatedGraphLayer};
pub use gatv2::GatV2;
pub use gcn::Gcn;
pub use gcnii::Gcnii;
pub use generalized::{Gen, GenLayer};
pub use gin::Gin;
pub use gine::{Gine, GineLayer};
pub use graphconv::{GraphConv, GraphConvLayer};
pub use hetero::{EdgeLayer, Hetero, HeteroLayer};
pub use hgt::{Hgt, HgtLayer};
pub use kind::{Divisor, LayerKind, Layout, Names, ParameterNames};
pub use leconv::{Le, LeLayer};
pub use lg::LgLayer;
pub use mixhop::{MixHop, MixHopLayer};
pub use pna::{Pna, PnaLayer};
pub use resgated::{ResGated, ResGatedLayer};
pub use rgcn::{Decomposition, Rgcn, RgcnLayer};
pub use sage::Sage;
pub use setting::{LayerSetting, Reads};
pub use sg::{Sg, SgLayer};
pub use ssg::{Ssg, SsgLayer};
pub use tag::{Tag, TagLayer};
pub use transformer::{Transformer, TransformerLayer};
pub use types::{DenseOfTypes, OfOneType, OfTypes, Relation, TypeReads, TypedLayer};

use super::{Builder, Value};
use std::fmt;

/// Every layer, a line each.
pub const ALL: [LayerKind; 28] = [
    gcn::KIND,
    sage::KIND,
    gin::KIND,
    gat::KIND,
    gatv2::KIND,
    appnp::KIND,
    gcnii::KIND,
    rgcn::KIND,
    hetero::KIND,
    hgt::KIND,
    graphconv::KIND,
    sg::KIND,
    ssg::KIND,
    tag::KIND,
    cheb::KIND,
    arma::KIND,
    mixhop::KIND,
    clustergcn::KIND,
    leconv::KIND,
    gatedgraph::KIND,
    transformer::KIND,
    gine::KIND,
    resgated::KIND,
    cg::KIND,
    edge::KIND,
    generalized::KIND,
    pna::KIND,
    lg::KIND,
];

/// Why there is no policy of sums for layers that are formulas alone.
const IN_FLOAT: Result<(), &str> = Err("the sums of a model of formulas are always in float");

/// Why edges have no weights for a layer that reads their features.
const WEIGHTS_ARE_FEATURES: Result<(), &str> =
    Err("this model reads no features of edges, and a weight counts as one");

/// The most sums over neighbours of a layer: some bound keeps a mistyped number from a program of endless length.
const MOST_HOPS: usize = 1000;

/// That a number of hops, steps or terms is from `least` to [`MOST_HOPS`].
///
/// # Errors
/// What is wrong.
fn check_hops(count: usize, least: usize) -> Result<(), String> {
    match (least..=MOST_HOPS).contains(&count) {
        true => Ok(()),
        false => Err(format!(
            "{count} hops, steps or terms of a layer; there can be {least} to {MOST_HOPS}"
        )),
    }
}

/// More features of an edge than this are taken for a mistake.
const MOST_EDGE_FEATURES: usize = 65_536;

/// That edges have a number of features that a layer can have weights for.
///
/// # Errors
/// What is wrong.
pub(crate) fn check_edge_features(columns: usize) -> Result<(), String> {
    match columns <= MOST_EDGE_FEATURES {
        true => Ok(()),
        false => Err(format!(
            "{columns} features of each edge; there can be {MOST_EDGE_FEATURES} at most"
        )),
    }
}

/// What an [`Architecture`](crate::nn::Architecture) with a field `edge_features` says of them, whose layers read a row for each edge.
macro_rules! reads_edge_rows {
    () => {
        fn edge_features(&self) -> usize {
            self.edge_features
        }

        fn reads_edge_rows(&self) -> bool {
            true
        }

        fn read_edge_features(&mut self, columns: usize) -> bool {
            self.edge_features = columns;
            true
        }
    };
}
use reads_edge_rows;

/// Whether a number of an option is 0, which checkpoints leave out.
pub(crate) fn is_zero(number: &usize) -> bool {
    *number == 0
}

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
