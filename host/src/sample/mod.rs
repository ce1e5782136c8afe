//! Batches: which vertices a step learns from, and which part of the graph they hear from.
//!
//! ```text
//!  vertices to learn from ─ Loader ─► seeds of a batch ─ Sampler ─► a block a layer, and the vertices whose features go in
//! ```
//!
//! A [`Loader`] puts vertices in an order that a seed and the epoch decide, and cuts it into batches; a [`Sampler`] draws on the
//! device what a batch hears from. A [`SubgraphSampler`] chooses vertices together, which then learn and are heard. All are functions of a seed and of counts, so the same batches come on every device, in
//! whatever order they are asked for. [`Batches`](crate::train::Batches) gives them to a trainer; here they are for anybody.

mod fixed;
mod host_neighbor;
mod loader;
mod neighbor;
mod policy;
mod subgraph;
mod types;

pub use crate::ops::{Draw, Fanout, InducedSubgraph, LayerSizes, LayerSources};
pub use fixed::FixedSampler;
pub(crate) use fixed::{room_beyond, sizes};
pub use host_neighbor::HostNeighborSampler;
pub use loader::{Loader, Seeds};
pub use neighbor::NeighborSampler;
pub use policy::{EdgesIn, Sampling, SamplingPolicy, TypeFanouts};
pub use subgraph::{Coverage, SubgraphSampler, Subgraphs};
pub use types::{FanoutsByType, SampledEdges, TypeSample, TypeSampler};

use crate::backend::{Backend, Block, MemoryKind};
use crate::error::Error;
use crate::ops;
use crate::tensor::{Array, Element, Matrix};
use std::fmt;

/// What a step computes on.
#[derive(Debug)]
pub struct Batch<B: Backend> {
    /// The graph of each layer that hears from neighbours, the one that is computed first first: its sources are
    /// [`inputs`](Batch::inputs), and the destinations of the last are the seeds, in their order.
    pub blocks: Vec<Block<B>>,
    /// Which vertices of the graph the sources of the first block are, the seeds before all others.
    pub inputs: Array<B, u32>,
}

impl<B: Backend> Batch<B> {
    /// The rows of `features`, which has one for each vertex of the graph, that go in.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn features<E: Element>(
        &self,
        backend: &B,
        features: &Matrix<B, E>,
    ) -> Result<Matrix<B, E>, Error> {
        let (rows, columns) = (self.inputs.len(), features.columns());
        let mut taken = Matrix::uninit(backend, rows, columns, MemoryKind::Features)?;
        ops::take_rows(backend, features, &self.inputs, &mut taken)?;
        Ok(taken)
    }
}

/// Draws what a batch hears from.
pub trait Sampler<B: Backend>: fmt::Debug + Send + Sync {
    /// The batch of `seeds`, which are different vertices, that number `step` of `seed` draws.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a seed is no vertex or stands there twice, and those of the device.
    fn sample(
        &mut self,
        backend: &B,
        seeds: &[u32],
        seed: u64,
        step: u32,
    ) -> Result<Batch<B>, Error>;

    /// Begins to draw a batch that is [asked for](Sampler::sample) next, where that is done beside the device; what goes wrong is told then. Others do
    /// nothing.
    fn begin(&mut self, _seeds: &[u32], _seed: u64, _step: u32) {}

    /// Blocks of a batch.
    fn layers(&self) -> usize;

    /// Vertices of the graph.
    fn vertices(&self) -> usize;

    /// The same batches in the same memory each time, of as many seeds and with as much room as is said, that of the seeds' layer first;
    /// and their blocks, of which the first has these sources. `None` of a sampler that has no such batches, as is the case of all that do not say so.
    ///
    /// # Errors
    /// Those of [`FixedSampler::new`].
    fn fixed(
        &self,
        _backend: &B,
        _seeds: (usize, u64),
        (_room, _inputs): (&[LayerSizes], LayerSources),
    ) -> Result<Option<FixedBlocks<B>>, Error> {
        Ok(None)
    }
}

/// A sampler that draws into the same blocks each time, and those.
pub type FixedBlocks<B> = (FixedSampler<B>, Vec<Block<B>>);
