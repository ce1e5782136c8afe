//! Vertices that walks come to, and the edges between them: what GraphSAINT (Zeng et al., "GraphSAINT: graph sampling
//! based inductive learning method", ICLR 2020) makes its batches of.

mod check;
mod cpu;
mod gpu;
mod induced;

pub use check::{
    EdgeNormOperands, FrontierWalkOperands, MarkDrawOperands, RandomWalkOperands,
    SizeDrawsOperands, TakeEdgesOperands, TallyDrawsOperands, WithinOperands,
};
pub use induced::InducedSubgraph;

use super::{Checked, Draw};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element};

/// Tags the keys of walks.
pub(super) const STREAM: u32 = 0x7375_6267;

/// Random walks, all of `length` edges: `vertices` becomes the vertices of one after the other, `length + 1` each.
///
/// A walk begins at one of `roots`, all as likely, or where there are none at the source of an edge, all edges as
/// likely, so that a vertex is as likely as it has out-edges. From there it goes from destinations to sources, all
/// neighbours as likely, and stays where there is none. Walk `i` of a draw is the same on every device.
///
/// # Errors
/// [`Error::Shape`] where the graph is not square or `vertices` holds no whole number of walks, [`Error::Unsupported`]
/// where there is nothing to begin at, or more than 2³² − 1 walks.
pub fn random_walks<B: SubgraphOperators>(
    backend: &B,
    graph: &Adjacency<B>,
    roots: Option<&Array<B, u32>>,
    (length, draw): (u32, Draw),
    vertices: &mut Array<B, u32>,
) -> Result<(), Error> {
    let operands = RandomWalkOperands {
        graph,
        roots,
        length,
        draw,
        vertices,
    };
    backend.random_walks(Checked::new(operands)?)
}

/// A multi-dimensional random walk (Ribeiro and Towsley, "Estimating and sampling graphs with multidimensional random
/// walks", IMC 2010; GraphSAINT's algorithm 4): `frontier` vertices are chosen of `roots`, all as likely; then one of
/// them at a time, as likely as it has neighbours, is replaced by one of those. `vertices` becomes all that were ever
/// in the frontier, the first ones first, some more than once. Where nothing of the frontier has a neighbour, the rest
/// are its first vertex.
///
/// # Errors
/// [`Error::Shape`] where the graph is not square, [`Error::Unsupported`] where there is no root, or for a frontier of
/// none, of more than 32,768, or of more than there are `vertices`.
pub fn frontier_walk<B: SubgraphOperators>(
    backend: &B,
    graph: &Adjacency<B>,
    roots: &Array<B, u32>,
    (frontier, draw): (u32, Draw),
    vertices: &mut Array<B, u32>,
) -> Result<(), Error> {
    let operands = FrontierWalkOperands {
        graph,
        roots,
        frontier,
        draw,
        vertices,
    };
    backend.frontier_walk(Checked::new(operands)?)
}

/// Draws that are counted together: a bit of a word each.
pub const DRAWS: u32 = halfgnn_contract::subgraph::DRAWS;

/// Notes that `vertices` are in one of [`DRAWS`] draws: sets bit `draw` of their words of `members`, of which there is
/// one a vertex. A vertex may be named more than once; one that has no word is passed over.
///
/// # Errors
/// [`Error::Unsupported`] where there is no such bit.
pub fn mark_draw<B: SubgraphOperators>(
    backend: &B,
    members: &mut Array<B, u32>,
    vertices: &Array<B, u32>,
    draw: u32,
) -> Result<(), Error> {
    backend.mark_draw(Checked::new(MarkDrawOperands {
        members,
        vertices,
        draw,
    })?)
}

/// Adds to each of `sizes`, one for each of [`DRAWS`], how many vertices its draw has.
///
/// # Errors
/// [`Error::Shape`] where there are others than [`DRAWS`] sizes.
pub fn size_draws<B: SubgraphOperators>(
    backend: &B,
    members: &Array<B, u32>,
    sizes: &mut Array<B, u32>,
) -> Result<(), Error> {
    backend.size_draws(Checked::new(SizeDrawsOperands { members, sizes })?)
}

/// Adds to the counts of each vertex of `graph`, and of each edge, in how many draws it is, of those whose bits are in
/// `draws`: an edge is in those that its row and its column are in, so that these are the edges of the
/// [subgraphs](super::Places::induced) of the draws.
///
/// # Errors
/// [`Error::Shape`] where the graph is not square, or has other numbers of vertices or edges.
pub fn tally_draws<B: SubgraphOperators>(
    backend: &B,
    graph: &Adjacency<B>,
    (members, draws): (&Array<B, u32>, u32),
    vertex_counts: &mut Array<B, u32>,
    edge_counts: &mut Array<B, u32>,
) -> Result<(), Error> {
    backend.tally_draws(Checked::new(TallyDrawsOperands {
        graph,
        members,
        draws,
        vertex_counts,
        edge_counts,
    })?)
}

/// What makes sums over the edges of subgraphs those of the graph, in the mean: of how often each was sampled, and the
/// factors of edges.
#[derive(Debug)]
pub struct EdgeNorms<'a, B: Storage> {
    /// Whose edges they are.
    pub graph: &'a Adjacency<B>,
    /// In how many draws each vertex is.
    pub vertex_counts: &'a Array<B, u32>,
    /// In how many each edge is.
    pub edge_counts: &'a Array<B, u32>,
    /// A weight for each edge; 1 where there are none.
    pub weights: Option<&'a Array<B, f32>>,
    /// A factor for each row and one for each column; 1 where there are none.
    pub sides: Option<[&'a Array<B, f64>; 2]>,
}

impl<B: Storage> Clone for EdgeNorms<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage> Copy for EdgeNorms<'_, B> {}

/// What each edge multiplies in GraphSAINT's batches (§3.2), over `scale`: its weight and the factors of its ends,
/// whose product is made in double precision and rounded to float, times how often its row was sampled over how often
/// it was itself, each 1 at least. `values`, one for each edge, become these, rounded to the nearest.
///
/// # Errors
/// [`Error::Shape`] where the graph is not square, or has other numbers of vertices or edges; [`Error::Unsupported`]
/// for a scale that is not a positive number.
pub fn edge_norms<B: SubgraphOperators, E: Element>(
    backend: &B,
    norms: EdgeNorms<'_, B>,
    scale: f32,
    values: &mut Array<B, E>,
) -> Result<(), Error> {
    backend.edge_norms(Checked::new(EdgeNormOperands {
        norms,
        scale,
        values,
    })?)
}

/// The largest magnitude of what edges multiply, before a scale; 0 where there is no edge. It waits for the device.
///
/// # Errors
/// Those of [`edge_norms`].
pub fn largest_edge_norm<B: SubgraphOperators>(
    backend: &B,
    norms: EdgeNorms<'_, B>,
) -> Result<f32, Error> {
    backend.largest_edge_norm(Checked::new(norms)?)
}

/// What batches of subgraphs are made of.
pub trait SubgraphOperators: Storage {
    /// Random walks: see [`random_walks`].
    ///
    /// # Errors
    /// Those of the device.
    fn random_walks(&self, operands: Checked<RandomWalkOperands<'_, Self>>) -> Result<(), Error>;

    /// The walk of a frontier: see [`frontier_walk`].
    ///
    /// # Errors
    /// Those of the device.
    fn frontier_walk(&self, operands: Checked<FrontierWalkOperands<'_, Self>>)
    -> Result<(), Error>;

    /// How many edges of each of some rows end in known vertices, and a 0 behind them.
    ///
    /// # Errors
    /// Those of the device.
    fn count_within(&self, operands: Checked<WithinOperands<'_, Self>>) -> Result<(), Error>;

    /// The edges that do, by places, and their numbers in the graph.
    ///
    /// # Errors
    /// Those of the device.
    fn take_within(&self, operands: Checked<TakeEdgesOperands<'_, Self>>) -> Result<(), Error>;

    /// The vertices of a draw: see [`mark_draw`].
    ///
    /// # Errors
    /// Those of the device.
    fn mark_draw(&self, operands: Checked<MarkDrawOperands<'_, Self>>) -> Result<(), Error>;

    /// Sizes of draws: see [`size_draws`].
    ///
    /// # Errors
    /// Those of the device.
    fn size_draws(&self, operands: Checked<SizeDrawsOperands<'_, Self>>) -> Result<(), Error>;

    /// Counts: see [`tally_draws`].
    ///
    /// # Errors
    /// Those of the device.
    fn tally_draws(&self, operands: Checked<TallyDrawsOperands<'_, Self>>) -> Result<(), Error>;

    /// What each edge multiplies: see [`edge_norms`].
    ///
    /// # Errors
    /// Those of the device.
    fn edge_norms<E: Element>(
        &self,
        operands: Checked<EdgeNormOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The largest of that: see [`largest_edge_norm`].
    ///
    /// # Errors
    /// Those of the device.
    fn largest_edge_norm(&self, norms: Checked<EdgeNorms<'_, Self>>) -> Result<f32, Error>;
}
