//! Batches: which vertices a step trains on, and the part of the graph that these aggregate.
//!
//! ```text
//!  vertices to train on ─ Loader ─► seeds of a batch ─ Sampler ─► a block a layer, and the vertices of their inputs
//! ```
//!
//! A [`Loader`] shuffles vertices by a seed and the epoch, and cuts them into batches. A [`Sampler`] samples the
//! neighbours of a batch on the device. A [`SubgraphSampler`] chooses vertices together, which are trained on and
//! aggregate each other. All are functions of a seed and of counts, so batches are the same on every device and in any
//! order. [`Batches`](crate::train::Batches) passes them to a trainer; here they are for use on their own.

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
    /// The graph of each layer that aggregates neighbours, in the order in which they are computed. The sources of the
    /// first are [`inputs`](Batch::inputs), and the destinations of the last are the seeds, in their order.
    pub blocks: Vec<Block<B>>,
    /// Which vertices of the graph the sources of the first block are, the seeds before all others.
    pub inputs: Array<B, u32>,
}

impl<B: Backend> Batch<B> {
    /// The rows of `features`, which has one for each vertex of the graph, of the inputs.
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

/// Samples the neighbours that a batch aggregates.
pub trait Sampler<B: Backend>: fmt::Debug + Send + Sync {
    /// The batch of `seeds`, which are different vertices, by number `step` of `seed`.
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

    /// Begins to sample the batch that is [requested](Sampler::sample) next, where that is done in parallel to the
    /// device. Errors are reported by that request. Other samplers do nothing.
    fn begin(&mut self, _seeds: &[u32], _seed: u64, _step: u32) {}

    /// Blocks of a batch.
    fn layers(&self) -> usize;

    /// Vertices of the graph.
    fn vertices(&self) -> usize;

    /// A sampler of the same batches into the same memory each time, and its blocks, of which the first has these
    /// sources. Each layer, that of the seeds first, has the given capacities. `None`, the default, for a sampler that
    /// has none.
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

/// A sampler into the same blocks each time, and those.
pub type FixedBlocks<B> = (FixedSampler<B>, Vec<Block<B>>);
