//! Batches that lie in the same memory each time.

use super::Batch;
use crate::backend::{Adjacency, Backend, Block, MemoryKind};
use crate::error::Error;
use crate::ops::{Draw, LayerDraw, LayerRoom, LayerSizes, LayerSources, NeighborPolicy, Places};
use crate::tensor::Array;
use halfgnn_contract::sampling::NO_VERTEX;
use std::sync::Arc;

/// Samples batches of up to a fixed number of seeds into the same blocks each time, by the same launches, so that they
/// can be [recorded](crate::backend::Storage::record). A batch has the same edges as one of
/// [`NeighborSampler`](super::NeighborSampler), in the same order. After them, and after the vertices of each layer,
/// there is padding. [`FixedSampler::fits`] says whether a batch fit; if not, the other sampler must sample it.
#[derive(Debug)]
pub struct FixedSampler<B: Backend> {
    graph: Arc<Adjacency<B>>,
    places: Places<B>,
    /// That of the seeds first.
    layers: Vec<(LayerRoom<B>, NeighborPolicy)>,
    seed: u64,
    seeds: Array<B, u32>,
    step: Array<B, u32>,
    totals: Array<B, u32>,
}

impl<B: Backend> FixedSampler<B> {
    /// A sampler of batches of `seeds` vertices by `seed`, and its blocks in the order of [`Batch::blocks`]. Each
    /// layer, that of the seeds first, has a policy and capacities for edges and vertices. `inputs` are the sources of
    /// the first block.
    ///
    /// # Errors
    /// Those of [`Places::new`] and [`LayerRoom::new`], and [`Error::Unsupported`] for [`LayerSources::All`] of a
    /// single layer, whose destinations are the seeds.
    pub fn new(
        backend: &B,
        graph: Arc<Adjacency<B>>,
        (seeds, seed): (usize, u64),
        (layers, inputs): (&[(NeighborPolicy, LayerSizes)], LayerSources),
    ) -> Result<(Self, Vec<Block<B>>), Error> {
        if inputs == LayerSources::All && layers.len() < 2 {
            return Err(Error::Unsupported {
                operator: "FixedSampler",
                reason: "a batch of one layer has sources of its own; ask for those that it meets"
                    .into(),
            });
        }
        let words = |len| Array::zeros(backend, len, MemoryKind::Graph);
        let (mut made, mut blocks) = (Vec::new(), Vec::new());
        let mut destinations = seeds;
        for (number, &(policy, sizes)) in layers.iter().enumerate() {
            let sizes = LayerSizes {
                destinations,
                ..sizes
            };
            let sources = match number + 1 == layers.len() {
                true => inputs,
                false => LayerSources::Met,
            };
            let (layer, block) = LayerRoom::new(backend, &graph, policy, (sizes, sources))?;
            destinations += sizes.met;
            made.push((layer, policy));
            blocks.push(block);
        }
        blocks.reverse();
        let made = Self {
            places: Places::new(backend, graph.rows())?,
            graph,
            totals: words(2 * made.len())?,
            layers: made,
            seed,
            seeds: words(seeds)?,
            step: words(1)?,
        };
        Ok((made, blocks))
    }

    /// The blocks of one more batch, in the order of [`Batch::blocks`]: one batch is sampled while the previous one is
    /// trained on.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn blocks(&self, backend: &B) -> Result<Vec<Block<B>>, Error> {
        let layers = self.layers.iter().rev();
        layers
            .map(|(layer, policy)| layer.block(backend, &self.graph, *policy))
            .collect()
    }

    /// Sets the seeds of the next batch, all different, and its step.
    ///
    /// # Errors
    /// [`Error::Shape`] where there are more seeds than the sampler has space for, and those of the device.
    pub fn begin(&mut self, backend: &B, seeds: &[u32], step: u32) -> Result<(), Error> {
        let capacity = self.seeds.len();
        Error::expect("FixedSampler", "seeds", capacity, seeds.len().max(capacity))?;
        let mut padded = seeds.to_vec();
        padded.resize(capacity, NO_VERTEX);
        self.seeds.write(backend, &padded)?;
        self.step.write(backend, &[step])?;
        // Here, since nothing can be cleared in a recording.
        self.places.begin_at(backend, &self.seeds)
    }

    /// Samples the batch into `blocks`, which this sampler made, after [`FixedSampler::begin`]. Does not synchronize.
    ///
    /// # Errors
    /// Those of [`LayerRoom::draw`].
    pub fn draw<'a>(
        &mut self,
        backend: &B,
        blocks: impl DoubleEndedIterator<Item = &'a mut Block<B>>,
    ) -> Result<(), Error> {
        let mut blocks: Vec<_> = blocks.rev().collect();
        // The destinations of the first layer are sampled directly into the list of its block.
        self.swap_own(&mut blocks)?;
        let done = self.draw_layers(backend, &mut blocks);
        self.swap_own(&mut blocks)?;
        done
    }

    /// Swaps the source list of the layer before the last with the list in the last layer's block, where that has one.
    fn swap_own(&mut self, blocks: &mut [&mut Block<B>]) -> Result<(), Error> {
        match (&mut self.layers[..], blocks.last_mut()) {
            ([.., (before, _), _], Some(last)) => before.swap_with_own(last),
            _ => Ok(()),
        }
    }

    /// Samples the batch into blocks of which that of the seeds is the first.
    fn draw_layers(&mut self, backend: &B, blocks: &mut [&mut Block<B>]) -> Result<(), Error> {
        let Self {
            graph,
            places,
            layers,
            seeds,
            step,
            totals,
            seed,
        } = self;
        let mut destinations = &*seeds;
        for ((number, (layer, policy)), block) in layers.iter_mut().enumerate().zip(blocks) {
            let draw = Draw {
                seed: *seed,
                step: 0,
                layer: number as u32,
            };
            let how = LayerDraw {
                graph,
                policy: *policy,
                draw,
                steps: step,
                destinations,
                totals,
                at: 2 * number,
            };
            layer.draw(backend, places, how, block)?;
            destinations = layer.sources();
        }
        Ok(())
    }

    /// Whether all of the batch fit: reads two numbers a layer from the device.
    ///
    /// # Errors
    /// Those of the device.
    pub fn fits(&self, backend: &B) -> Result<bool, Error> {
        let totals = self.totals.to_vec(backend)?;
        let mut layers = totals.chunks_exact(2).zip(&self.layers);
        Ok(layers.all(|(counts, (layer, _))| {
            let LayerSizes { edges, met, .. } = layer.sizes();
            counts[0] as usize <= edges && counts[1] as usize <= met
        }))
    }

    /// Makes later samples write [`FixedSampler::inputs`] to `inputs`, of the same length, and swaps in the old array.
    /// The inputs of one batch thus stay while the next is sampled.
    ///
    /// # Errors
    /// [`Error::Shape`] where they are not as many.
    pub fn swap_inputs(&mut self, inputs: &mut Array<B, u32>) -> Result<(), Error> {
        match self.layers.last_mut() {
            Some((layer, _)) => layer.swap_sources(inputs),
            None => Ok(()),
        }
    }

    /// Which vertices of the graph the sources of the first block are, padded with [`NO_VERTEX`]. Nothing where they
    /// are [all](LayerSources::All).
    pub fn inputs(&self) -> &Array<B, u32> {
        self.layers
            .last()
            .map_or(&self.seeds, |(layer, _)| layer.sources())
    }
}

/// The capacity for batches whose observed sizes are from `fewest` to `most`: the largest, plus twice the spread, and
/// at least 1/32 more. Padding is computed on as well, so the capacity should not be much larger.
pub(crate) fn room_beyond(fewest: usize, most: usize) -> usize {
    let more = (2 * (most - fewest)).max(most / 32);
    (most + more + 64).next_multiple_of(64)
}

/// What the layers of a batch have, that of the seeds first.
pub(crate) fn sizes<B: Backend>(batch: &Batch<B>) -> Vec<LayerSizes> {
    let of = |block: &Block<B>| LayerSizes {
        destinations: block.destinations(),
        edges: block.forward().edges(),
        met: block.sources() - block.destinations(),
    };
    batch.blocks.iter().rev().map(of).collect()
}
