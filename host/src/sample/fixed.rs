//! Batches that lie in the same memory each time.

use super::Batch;
use crate::backend::{Adjacency, Backend, Block, MemoryKind};
use crate::error::Error;
use crate::ops::{Draw, LayerDraw, LayerRoom, LayerSizes, LayerSources, NeighborPolicy, Places};
use crate::tensor::Array;
use halfgnn_contract::sampling::NO_VERTEX;
use std::sync::Arc;

/// Draws batches of at most so many seeds into the same blocks each time, by the same launches, so that they can be
/// [recorded](crate::backend::Storage::record): of each the same edges as [`NeighborSampler`](super::NeighborSampler) draws, in the same
/// order, and behind them and behind the vertices of each layer room that is empty. A batch that has no room is told of
/// ([`FixedSampler::fits`]) and drawn by the other.
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
    /// Room for batches of `seeds` that `seed` draws, with a policy and the edges and vertices that it may have for each layer, that of
    /// the seeds first; and the blocks that they are, in the order of [`Batch::blocks`], of which the first has these sources.
    ///
    /// # Errors
    /// Those of [`Places::new`] and [`LayerRoom::new`], and [`Error::Unsupported`] for [`LayerSources::All`] of a single layer, whose destinations
    /// are the seeds.
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
        let (mut rooms, mut blocks) = (Vec::new(), Vec::new());
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
            let (room, block) = LayerRoom::new(backend, &graph, policy, (sizes, sources))?;
            destinations += sizes.met;
            rooms.push((room, policy));
            blocks.push(block);
        }
        blocks.reverse();
        let made = Self {
            places: Places::new(backend, graph.rows())?,
            graph,
            totals: words(2 * rooms.len())?,
            layers: rooms,
            seed,
            seeds: words(seeds)?,
            step: words(1)?,
        };
        Ok((made, blocks))
    }

    /// The blocks of one more batch, in the order of [`Batch::blocks`]: one is drawn while what was drawn before is learnt from.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn blocks(&self, backend: &B) -> Result<Vec<Block<B>>, Error> {
        let layers = self.layers.iter().rev();
        layers
            .map(|(room, policy)| room.block(backend, &self.graph, *policy))
            .collect()
    }

    /// Says of which seeds the next batch is, all different, and which step's.
    ///
    /// # Errors
    /// [`Error::Shape`] where there is no room for as many, and those of the device.
    pub fn begin(&mut self, backend: &B, seeds: &[u32], step: u32) -> Result<(), Error> {
        let room = self.seeds.len();
        Error::expect("FixedSampler", "seeds", room, seeds.len().max(room))?;
        let mut padded = seeds.to_vec();
        padded.resize(room, NO_VERTEX);
        self.seeds.write(backend, &padded)?;
        self.step.write(backend, &[step])?;
        // Here, since nothing can be cleared in a recording.
        self.places.begin_at(backend, &self.seeds)
    }

    /// Draws it into `blocks`, which were made with this, behind a [`FixedSampler::begin`]. Nothing is waited for.
    ///
    /// # Errors
    /// Those of [`LayerRoom::draw`].
    pub fn draw<'a>(
        &mut self,
        backend: &B,
        blocks: impl DoubleEndedIterator<Item = &'a mut Block<B>>,
    ) -> Result<(), Error> {
        let mut blocks: Vec<_> = blocks.rev().collect();
        // What hears in the first layer is drawn to where that has it.
        self.swap_own(&mut blocks)?;
        let done = self.draw_layers(backend, &mut blocks);
        self.swap_own(&mut blocks)?;
        done
    }

    /// Has the sources of the layer before the last lie in the list of the last one's block, where that has one, and the other way round.
    fn swap_own(&mut self, blocks: &mut [&mut Block<B>]) -> Result<(), Error> {
        match (&mut self.layers[..], blocks.last_mut()) {
            ([.., (before, _), _], Some(last)) => before.swap_with_own(last),
            _ => Ok(()),
        }
    }

    /// Draws it into blocks of which that of the seeds is the first.
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
        for ((number, (room, policy)), block) in layers.iter_mut().enumerate().zip(blocks) {
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
            room.draw(backend, places, how, block)?;
            destinations = room.sources();
        }
        Ok(())
    }

    /// Whether all of the batch had room: two numbers a layer are read from the device.
    ///
    /// # Errors
    /// Those of the device.
    pub fn fits(&self, backend: &B) -> Result<bool, Error> {
        let totals = self.totals.to_vec(backend)?;
        let mut layers = totals.chunks_exact(2).zip(&self.layers);
        Ok(layers.all(|(told, (room, _))| {
            let LayerSizes { edges, met, .. } = room.sizes();
            told[0] as usize <= edges && told[1] as usize <= met
        }))
    }

    /// Has the next draws write [`FixedSampler::inputs`] to `inputs` instead, of as many numbers, and gives back where they came before: so
    /// that those of one batch stay while the next is drawn.
    ///
    /// # Errors
    /// [`Error::Shape`] where they are not as many.
    pub fn swap_inputs(&mut self, inputs: &mut Array<B, u32>) -> Result<(), Error> {
        match self.layers.last_mut() {
            Some((room, _)) => room.swap_sources(inputs),
            None => Ok(()),
        }
    }

    /// Which vertices of the graph the sources of the first block are, and numbers that are none where it has room for more. Nothing where they
    /// are [all](LayerSources::All).
    pub fn inputs(&self) -> &Array<B, u32> {
        self.layers
            .last()
            .map_or(&self.seeds, |(room, _)| room.sources())
    }
}

/// A room for batches of which those that were looked at have from `fewest` to `most`: as much more than the most as they differ by, twice,
/// and a 32nd at least. Whatever has a row of its own is computed for rooms that are empty as well.
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
