//! Layers of batches that lie in the same memory each time, so that drawing one is the same launches each time.
//!
//! What is sampled of a layer differs in size from batch to batch, and only the device knows. So there is memory for
//! more: behind the last vertex of a list, and the last edge, stands
//! [`NO_VERTEX`](halfgnn_contract::sampling::NO_VERTEX), of which nothing is sampled, which is not aggregated and whose
//! features are zeros. The vertices that a layer meets come behind the *capacity* of its destinations, so that places
//! are known beforehand. Sizes are reported as well, for a host to see whether all did fit.

use super::{
    Draw, NeighborPolicy, PlaceMarkedOperands, Places, RelabelOperands, SampleNeighborsOperands,
    SamplingOperators, Total, first_edges,
};
use crate::backend::{Adjacency, Block, MemoryKind, Storage};
use crate::error::Error;
use crate::ops::{Checked, ConstructOperators, SortOperators};
use crate::tensor::Array;

/// How much a layer has, or has memory for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerSizes {
    /// Vertices that aggregate.
    pub destinations: usize,
    /// Edges.
    pub edges: usize,
    /// Vertices that are sources and no destinations.
    pub met: usize,
}

/// What the sources of a sampled layer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LayerSources {
    /// The destinations, and behind the memory for those the vertices that were met.
    Met,
    /// All vertices of the graph, by their numbers: of a layer whose input has a row for each of them. Then nothing is
    /// placed, and which of them aggregate is a [list](Block::own) with the block. There is no transpose: such an input
    /// has no gradient.
    All,
}

/// What sampling a layer takes in addition to its [`Block`], and the list of its sources.
#[derive(Debug)]
pub struct LayerRoom<B: Storage> {
    sizes: LayerSizes,
    of: LayerSources,
    firsts: Array<B, u32>,
    sources: Array<B, u32>,
}

/// How a layer is sampled.
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
    /// The vertices that aggregate; [`NO_VERTEX`](halfgnn_contract::sampling::NO_VERTEX) is none.
    pub destinations: &'a Array<B, u32>,
    /// Where the number of edges and, behind it, that of the vertices that were met are reported.
    pub totals: &'a mut Array<B, u32>,
    /// The first of the two.
    pub at: usize,
}

impl<B: SamplingOperators + ConstructOperators + SortOperators> LayerRoom<B> {
    /// Memory for a layer of a graph, and the block that it is to be.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(
        backend: &B,
        graph: &Adjacency<B>,
        policy: NeighborPolicy,
        (sizes, of): (LayerSizes, LayerSources),
    ) -> Result<(Self, Block<B>), Error> {
        let words = |len| Array::uninit(backend, len, MemoryKind::Graph);
        let LayerSizes {
            destinations, met, ..
        } = sizes;
        let room = Self {
            sizes,
            of,
            firsts: words(destinations + 1)?,
            sources: words(match of {
                LayerSources::Met => destinations + met,
                LayerSources::All => 0,
            })?,
        };
        let block = room.block(backend, graph, policy)?;
        Ok((room, block))
    }

    /// One more block of the same layer, so that one is sampled while another is learnt from.
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
            ..
        } = self.sizes;
        let shape = (destinations, self.columns(graph));
        let longest = policy.longest_row(graph.longest_row());
        let mut forward = Adjacency::to_be_drawn(backend, shape, edges, longest)?;
        // Of a vertex whose edges do not fit nothing is written.
        let (rows, neighbors) = forward.edges_mut();
        rows.clear(backend)?;
        neighbors.clear(backend)?;
        let block = Block::of_forward(forward);
        match self.of {
            LayerSources::Met => Ok(block),
            LayerSources::All => {
                block.with_own(Array::zeros(backend, destinations, MemoryKind::Graph)?)
            }
        }
    }

    /// Sources of its blocks.
    fn columns(&self, graph: &Adjacency<B>) -> usize {
        match self.of {
            LayerSources::Met => self.sizes.destinations + self.sizes.met,
            LayerSources::All => graph.columns(),
        }
    }

    /// That a block is of this size: what is sampled to it is followed without looking.
    fn check(&self, graph: &Adjacency<B>, block: &Block<B>) -> Result<(), Error> {
        const NAME: &str = "LayerRoom";
        let LayerSizes {
            destinations,
            edges,
            ..
        } = self.sizes;
        let sources = self.columns(graph);
        Error::expect(
            NAME,
            "destinations of the block",
            destinations,
            block.destinations(),
        )?;
        Error::expect(NAME, "sources of the block", sources, block.sources())?;
        Error::expect(NAME, "edges of the block", edges, block.forward().edges())?;
        let lists = usize::from(self.of == LayerSources::All);
        let found = usize::from(block.own().is_some());
        Error::expect(NAME, "lists of destinations of the block", lists, found)
    }

    /// What there is memory for.
    pub fn sizes(&self) -> LayerSizes {
        self.sizes
    }

    /// Which vertices the sources are: the destinations, and behind the memory for those the vertices that were met, by
    /// their numbers. None of a layer whose sources are [all](LayerSources::All).
    pub fn sources(&self) -> &Array<B, u32> {
        &self.sources
    }

    /// Has the list of the sources lie in `sources` from now on, of as many numbers, and gives back where it lay.
    ///
    /// # Errors
    /// [`Error::Shape`] where they are not as many.
    pub fn swap_sources(&mut self, sources: &mut Array<B, u32>) -> Result<(), Error> {
        Error::expect("LayerRoom", "sources", self.sources.len(), sources.len())?;
        std::mem::swap(&mut self.sources, sources);
        Ok(())
    }

    /// The same with the [list](Block::own) of those that aggregate in the next layer, whose block that is; nothing
    /// where it has none.
    ///
    /// # Errors
    /// Those of [`LayerRoom::swap_sources`].
    pub fn swap_with_own(&mut self, next: &mut Block<B>) -> Result<(), Error> {
        match next.own_mut() {
            Some(own) => self.swap_sources(own),
            None => Ok(()),
        }
    }

    /// Samples the layer into `block`, which was made with this (but for its [list](Block::own), which is to be the
    /// destinations), and its transpose as well once it has been [asked](Block::backward) for that. Nothing is waited
    /// for, and nothing is allocated, but where a transpose is counted, the first time, and more workspace for that,
    /// once.
    ///
    /// # Errors
    /// [`Error::Shape`] where there are more destinations or fewer than memory is free for, or the block is of another
    /// size.
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
        self.check(graph, block)?;
        first_edges(backend, graph, policy, destinations, &mut self.firsts)?;
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
            marks: match self.of {
                LayerSources::Met => Some(&mut *places),
                LayerSources::All => None,
            },
        })?)?;
        if self.of == LayerSources::All {
            return Ok(());
        }
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
