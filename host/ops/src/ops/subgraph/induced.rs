//! The part of a graph between some of its vertices.

use super::{SubgraphOperators, TakeEdgesOperands, WithinOperands};
use crate::backend::{Adjacency, Block, MemoryKind, Storage};
use crate::error::Error;
use crate::ops::{
    Checked, ConstructOperators, Places, SamplingOperators, SortOperators, exclusive_sum,
    take_words,
};
use crate::tensor::Array;

/// Vertices of a graph, and all edges of it between them.
#[derive(Debug)]
pub struct InducedSubgraph<B: Storage> {
    /// The edges; vertices have the numbers of their places in the list.
    pub block: Block<B>,
    /// Which vertices of the graph they are, by their numbers.
    pub vertices: Array<B, u32>,
    /// Which edge of the graph each of the block's is, in its order.
    pub edges: Array<B, u32>,
    /// Which edge of the block each of its transpose is.
    pub transposed: Array<B, u32>,
}

impl<B: SubgraphOperators + SamplingOperators + ConstructOperators + SortOperators> Places<B> {
    /// The subgraph that `vertices` induce, in which each counts once, however often it stands there. What was known
    /// before is forgotten.
    ///
    /// Sizes are read from the device, twice and for each of both adjacencies.
    ///
    /// # Errors
    /// [`Error::Shape`] where the graph has not a row and a column a vertex, [`Error::Unsupported`] for a graph of 2³²
    /// − 1 edges or more, [`Error::Driver`] where there is not enough memory.
    pub fn induced(
        &mut self,
        backend: &B,
        graph: &Adjacency<B>,
        vertices: &Array<B, u32>,
    ) -> Result<InducedSubgraph<B>, Error> {
        let made = |len| Array::uninit(backend, len, MemoryKind::Graph);
        let spare = |len| Array::uninit(backend, len, MemoryKind::Workspace);
        let vertices = self.distinct(backend, vertices)?;
        let count = vertices.len();
        let (mut counts, mut firsts) = (spare(count + 1)?, spare(count + 1)?);
        backend.count_within(Checked::new(WithinOperands {
            graph,
            places: self,
            vertices: &vertices,
            counts: &mut counts,
        })?)?;
        exclusive_sum(backend, &counts, &mut firsts)?;
        let last = Array::from_slice(backend, &[count as u32], MemoryKind::Workspace)?;
        let mut sum = spare(1)?;
        take_words(backend, &firsts, &last, &mut sum)?;
        let len = sum.to_vec(backend)?[0] as usize;
        let (mut rows, mut neighbors, mut edges) = (made(len)?, made(len)?, made(len)?);
        backend.take_within(Checked::new(TakeEdgesOperands {
            graph,
            places: self,
            vertices: &vertices,
            firsts: &firsts,
            rows: &mut rows,
            neighbors: &mut neighbors,
            edges: &mut edges,
        })?)?;
        let forward = Adjacency::of_sorted(backend, (count, count), rows, neighbors)?;
        let (backward, transposed) = forward.transposed(backend)?;
        Ok(InducedSubgraph {
            block: Block::of(forward, backward),
            vertices,
            edges,
            transposed: transposed.into_array(),
        })
    }
}
