//! What is sampled at random in addition to dropout: pairs of vertices, which a link predictor learns to distinguish
//! from edges, and neighbours, which a batch aggregates; and what makes a batch of them.

mod cpu;
mod gpu;
mod layer;
mod neighbors;
mod places;
mod row_cache;
mod rows;

pub use layer::{LayerDraw, LayerRoom, LayerSizes, LayerSources};
pub use neighbors::{
    Draw, Fanout, FirstEdgesOperands, NeighborPolicy, SampleNeighborsOperands, Total, first_edges,
    sample_neighbors,
};
pub use places::{
    MarkVerticesOperands, PlaceMarkedOperands, PlaceVerticesOperands, Places, RelabelOperands,
};
pub use row_cache::RowCache;
pub use rows::{TakeCodesOperands, TakeRowsOperands, take_cached_rows, take_codes, take_rows};

use super::{Checked, Operator};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element};

/// Samples as many pairs of two different vertices as memory is free for, all as likely: pair `i` is (`firsts[i]`,
/// `seconds[i]`).
///
/// A pair is a function of `seed`, `step` and its place alone, on every device. One that `edges` has as an edge (row,
/// column) is sampled again, up to 16 times; after that it is taken as it is, so that a graph of nearly all pairs costs
/// no more than that. Pairs may be sampled twice.
///
/// # Errors
/// [`Error::Shape`] where there is not memory for as many seconds as firsts or `edges` is not square with a row a
/// vertex, [`Error::Unsupported`] where there are fewer than two vertices.
#[allow(clippy::too_many_arguments)] // two outputs, what numbers are sampled from, and what is refused
pub fn sample_pairs<B: SamplingOperators>(
    backend: &B,
    vertices: usize,
    edges: Option<&Adjacency<B>>,
    seed: u64,
    step: u32,
    firsts: &mut Array<B, u32>,
    seconds: &mut Array<B, u32>,
) -> Result<(), Error> {
    let operands = SamplePairsOperands {
        vertices,
        edges,
        seed,
        step,
        firsts,
        seconds,
    };
    backend.sample_pairs(Checked::new(operands)?)
}

/// Operands of [`sample_pairs`].
#[derive(Debug)]
pub struct SamplePairsOperands<'a, B: Storage> {
    /// Vertices to draw from.
    pub vertices: usize,
    /// The graph whose edges are not sampled.
    pub edges: Option<&'a Adjacency<B>>,
    /// Of the random numbers.
    pub seed: u64,
    /// Which step's pairs.
    pub step: u32,
    /// Become the first vertices.
    pub firsts: &'a mut Array<B, u32>,
    /// Become the second ones.
    pub seconds: &'a mut Array<B, u32>,
}

/// Tags the random numbers of pairs.
const STREAM: u32 = 0x6c69_6e6b;
/// Tags those of neighbours.
const NEIGHBORS: u32 = 0x6e65_6967;

impl<B: Storage> Operator for SamplePairsOperands<'_, B> {
    const NAME: &'static str = "sample_pairs";

    fn check(&self) -> Result<(), Error> {
        let (firsts, vertices) = (self.firsts.len(), self.vertices);
        Error::expect(Self::NAME, "second vertices", firsts, self.seconds.len())?;
        if let Some(edges) = self.edges {
            Error::expect(Self::NAME, "rows of the graph", vertices, edges.rows())?;
            let columns = edges.columns();
            Error::expect(Self::NAME, "columns of the graph", vertices, columns)?;
        }
        if vertices >= 2 && u32::try_from(vertices).is_ok() {
            return Ok(());
        }
        Err(Error::Unsupported {
            operator: Self::NAME,
            reason: format!("pairs are drawn of 2 to 2^32 - 1 vertices, and there are {vertices}"),
        })
    }
}

/// What is sampled at random in addition to dropout, and what a batch is made of.
pub trait SamplingOperators: Storage {
    /// Pairs of vertices: see [`sample_pairs`].
    ///
    /// # Errors
    /// Those of the device.
    fn sample_pairs(&self, operands: Checked<SamplePairsOperands<'_, Self>>) -> Result<(), Error>;

    /// Where the neighbours of each vertex begin: see [`first_edges`].
    ///
    /// # Errors
    /// Those of the device.
    fn first_edges(&self, operands: Checked<FirstEdgesOperands<'_, Self>>) -> Result<(), Error>;

    /// Neighbours: see [`sample_neighbors`].
    ///
    /// # Errors
    /// Those of the device.
    fn sample_neighbors(
        &self,
        operands: Checked<SampleNeighborsOperands<'_, Self>>,
    ) -> Result<(), Error>;

    /// Makes vertices known, which are all different; numbers that are no vertices are passed over.
    ///
    /// # Errors
    /// Those of the device.
    fn place_vertices(
        &self,
        operands: Checked<PlaceVerticesOperands<'_, Self>>,
    ) -> Result<(), Error>;

    /// Marks the vertices that are not known.
    ///
    /// # Errors
    /// Those of the device.
    fn mark_vertices(&self, operands: Checked<MarkVerticesOperands<'_, Self>>)
    -> Result<(), Error>;

    /// Counts those that are marked before each word, and all of them.
    ///
    /// # Errors
    /// Those of the device.
    fn rank_marked(&self, places: &mut Places<Self>) -> Result<(), Error>;

    /// Makes those that are marked known, with the places behind the destinations.
    ///
    /// # Errors
    /// Those of the device.
    fn place_marked(&self, operands: Checked<PlaceMarkedOperands<'_, Self>>) -> Result<(), Error>;

    /// Makes places of vertices that are known.
    ///
    /// # Errors
    /// Those of the device.
    fn relabel(&self, operands: Checked<RelabelOperands<'_, Self>>) -> Result<(), Error>;

    /// Rows of a matrix: see [`take_rows`] and [`take_cached_rows`].
    ///
    /// # Errors
    /// Those of the device.
    fn take_rows<E: Element>(
        &self,
        operands: Checked<TakeRowsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Rows of quantized values: see [`take_codes`].
    ///
    /// # Errors
    /// Those of the device.
    fn take_codes(&self, operands: Checked<TakeCodesOperands<'_, Self>>) -> Result<(), Error>;
}
