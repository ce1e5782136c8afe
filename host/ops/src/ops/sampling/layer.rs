//! Layers of batches that lie in the same memory each time, so that drawing one is the same launches each time.
//!
//! What is drawn of a layer differs in size from batch to batch, and only the device knows. So there is room for more: behind the
//! last vertex of a list, and the last edge, stands [`NO_VERTEX`](halfgnn_contract::sampling::NO_VERTEX), of which nothing is drawn, which nobody hears and whose features are
//! zeros. The vertices that a layer meets come behind the *room* of its destinations, so that places are known beforehand. Sizes are told
//! beside, for a host to see whether all had room.

use super::{
    Draw, NeighborPolicy, PlaceMarkedOperands, Places, RelabelOperands, SampleNeighborsOperands,
    SamplingOperators, Total, count_neighbors,
};
use crate::backend::{Adjacency, Block, MemoryKind, Storage};
use crate::error::Error;
use crate::ops::{Checked, ConstructOperators, SortOperators, exclusive_sum};
use crate::tensor::Array;

/// How much a layer has, or has room for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSizes {
    /// Vertices that hear.
    pub destinations: usize,
    /// Edges.
    pub edges: usize,
    /// Vertices that are heard and do not hear.
    pub met: usize,
}

/// What drawing a layer takes beside its [`Block`], and the list of its sources.
#[derive(Debug)]
pub struct LayerRoom<B: Storage> {
    sizes: LayerSizes,
    counts: Array<B, u32>,
    firsts: Array<B, u32>,
    sources: Array<B, u32>,
}

/// How a layer is drawn.
#[derive(Debug)]
pub struct LayerDraw<'a, B: Storage> {
    /// Of which graph.
    pub graph: &'a Adjacency<B>,
    /// How many, and how.
    pub policy: NeighborPolicy,
    /// Of which random numbers.
    pub draw: Draw,
    /// A number on the device that is added to the draw's step.
    pub steps: &'a Array<B, u32>,
    /// The vertices that hear; [`NO_VERTEX`](halfgnn_contract::sampling::NO_VERTEX) is none.
    pub destinations: &'a Array<B, u32>,
    /// Where the number of edges and, behind it, that of the vertices that were met are told.
    pub totals: &'a mut Array<B, u32>,
    /// The first of the two.
    pub at: usize,
}

impl<B: SamplingOperators + ConstructOperators + SortOperators> LayerRoom<B> {
    /// Room for a layer of a graph, and the block that it is to be.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(
        backend: &B,
        graph: &Adjacency<B>,
        policy: NeighborPolicy,
        sizes: LayerSizes,
    ) -> Result<(Self, Block<B>), Error> {
        let words = |len| Array::uninit(backend, len, MemoryKind::Graph);
        let LayerSizes {
            destinations, met, ..
        } = sizes;
        let room = Self {
            sizes,
            counts: words(destinations + 1)?,
            firsts: words(destinations + 1)?,
            sources: words(destinations + met)?,
        };
        let block = room.block(backend, graph, policy)?;
        Ok((room, block))
    }

    /// One more block of the same layer, so that one is drawn while another is learnt from.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn block(
        &self,
        backend: &B,
        graph: &Adjacency<B>,
        policy: NeighborPolicy,
    ) -> Result<Block<B>, Error> {
        let LayerSizes {
            destinations,
            edges,
            met,
        } = self.sizes;
        let shape = (destinations, destinations + met);
        let longest = policy.longest_row(graph.longest_row());
        let mut forward = Adjacency::to_be_drawn(backend, shape, edges, longest)?;
        // Of a vertex whose edges have no room nothing is written.
        let (rows, neighbors) = forward.edges_mut();
        rows.clear(backend)?;
        neighbors.clear(backend)?;
        Ok(Block::of_forward(forward))
    }

    /// What there is room for.
    pub fn sizes(&self) -> LayerSizes {
        self.sizes
    }

    /// Which vertices the sources are: the destinations, and behind the room for those the vertices that were met, by their numbers.
    pub fn sources(&self) -> &Array<B, u32> {
        &self.sources
    }

    /// Has the list of the sources lie in `sources` from now on, of as many numbers, and gives back where it lay.
    ///
    /// # Panics
    /// Where they are not as many.
    pub fn swap_sources(&mut self, sources: &mut Array<B, u32>) {
        assert_eq!(self.sources.len(), sources.len(), "a list of other sources");
        std::mem::swap(&mut self.sources, sources);
    }

    /// Draws the layer into `block`, which was made with this, and its transpose as well once somebody has
    /// [asked](Block::backward) for that. Nothing is waited for, and nothing is allocated, but where a transpose is counted, the first time, and more workspace for
    /// that, once.
    ///
    /// # Errors
    /// [`Error::Shape`] where there are more destinations or fewer than there is room for.
    pub fn draw(
        &mut self,
        backend: &B,
        places: &mut Places<B>,
        how: LayerDraw<'_, B>,
        block: &mut Block<B>,
    ) -> Result<(), Error> {
        let LayerDraw {
            graph,
            policy,
            draw,
            steps,
            destinations,
            totals,
            at,
        } = how;
        count_neighbors(backend, graph, policy, destinations, &mut self.counts)?;
        exclusive_sum(backend, &self.counts, &mut self.firsts)?;
        let (forward, mut backward) = block.parts_mut();
        let (offsets, [rows, neighbors]) = forward.rows_mut();
        backend.sample_neighbors(Checked::new(SampleNeighborsOperands {
            graph,
            policy,
            draw,
            vertices: destinations,
            firsts: &self.firsts,
            steps: Some(steps),
            total: Some(Total { words: totals, at }),
            rows,
            neighbors: &mut *neighbors,
            row_offsets: Some(offsets),
            marks: Some(&mut *places),
        })?)?;
        backend.rank_marked(places)?;
        backend.place_marked(Checked::new(PlaceMarkedOperands {
            places,
            destinations,
            sources: &mut self.sources,
            total: Some(Total {
                words: totals,
                at: at + 1,
            }),
        })?)?;
        backend.relabel(Checked::new(RelabelOperands {
            places,
            vertices: neighbors,
            counted: match &mut backward {
                Some(backward) => Some(backward.group_room(backend)?),
                None => None,
            },
        })?)?;
        backward.map_or(Ok(()), |backward| forward.transpose_into(backend, backward))
    }
}
