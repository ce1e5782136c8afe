//! Neighbour sampling by the threads of the host, for any device.

use super::{Batch, NeighborSampler, Sampler};
use crate::backend::cpu::Cpu;
use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::graph::parallel;
use crate::tensor::Array;
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

/// Samples what a [`NeighborSampler`] of the CPU samples, on the threads of the host, and copies each batch to the
/// device. It is for graphs whose edges do not fit in the device's memory. Its sampler may read the edges
/// [where they lie](crate::backend::Adjacency::shared), in memory or in a [file](crate::graph::Graph::to_disk). Nothing
/// of the graph is copied then, and the sampler takes 4 3/8 bytes of the host's memory a vertex. A batch that is
/// [begun](Sampler::begin) is sampled while the device computes.
///
/// ```
/// use halfgnn::backend::Adjacency;
/// use halfgnn::backend::cpu::Cpu;
/// use halfgnn::graph::Graph;
/// use halfgnn::sample::{Fanout, HostNeighborSampler, NeighborSampler, Sampler};
/// use std::sync::Arc;
///
/// let graph = Graph::from_edges(5, &[0, 0, 0, 1, 2, 3], &[1, 2, 3, 4, 4, 4])?;
/// let on_disk = graph.to_disk(&std::env::temp_dir())?;
/// let cpu = Cpu::new();
/// let lists = Arc::new(Adjacency::shared(&cpu, &on_disk));
/// let sampler = NeighborSampler::of(&cpu, lists, vec![Fanout::of(2)?, Fanout::All])?;
/// let batch = HostNeighborSampler::new(sampler).sample(&cpu, &[0], 7, 0)?;
/// assert_eq!(batch.inputs.len(), 5);
/// # Ok::<(), halfgnn::Error>(())
/// ```
#[derive(Debug)]
pub struct HostNeighborSampler {
    host: Arc<Host>,
    layers: usize,
    vertices: usize,
    begun: Option<Begun>,
}

/// Samples the batches.
#[derive(Debug)]
struct Host {
    cpu: Cpu,
    sampler: Mutex<NeighborSampler<Cpu>>,
}

/// Which batch.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Asked {
    seeds: Vec<u32>,
    seed: u64,
    step: u32,
}

impl Asked {
    fn new(seeds: &[u32], seed: u64, step: u32) -> Self {
        let seeds = seeds.to_vec();
        Self { seeds, seed, step }
    }
}

/// A batch that is being sampled. Dropping it waits for it.
#[derive(Debug)]
struct Begun {
    asked: Asked,
    thread: Option<JoinHandle<Result<Batch<Cpu>, Error>>>,
}

impl Drop for Begun {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

impl Host {
    fn draw(&self, asked: &Asked) -> Result<Batch<Cpu>, Error> {
        let mut sampler = self.sampler.lock().map_err(|_| Error::Unsupported {
            operator: "HostNeighborSampler",
            reason: "a draw before has panicked, and left marks; make another sampler".into(),
        })?;
        sampler.sample(&self.cpu, &asked.seeds, asked.seed, asked.step)
    }
}

impl Begun {
    /// The result, once it is there.
    fn finish(mut self) -> Result<Batch<Cpu>, Error> {
        let sampled = self.thread.take().map(JoinHandle::join);
        let sampled = sampled.unwrap_or_else(|| unreachable!("it is joined once"));
        sampled.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl HostNeighborSampler {
    /// Samples what `sampler` samples.
    pub fn new(sampler: NeighborSampler<Cpu>) -> Self {
        Self {
            layers: sampler.layers(),
            vertices: sampler.vertices(),
            host: Arc::new(Host {
                cpu: Cpu::new(),
                sampler: Mutex::new(sampler),
            }),
            begun: None,
        }
    }
}

impl<B: Backend> Sampler<B> for HostNeighborSampler {
    fn sample(
        &mut self,
        backend: &B,
        seeds: &[u32],
        seed: u64,
        step: u32,
    ) -> Result<Batch<B>, Error> {
        let asked = Asked::new(seeds, seed, step);
        let batch = match self.begun.take() {
            Some(begun) if begun.asked == asked => begun.finish(),
            other => {
                drop(other);
                self.host.draw(&asked)
            }
        }?;
        let blocks = batch.blocks.iter().map(|block| block.copied_to(backend));
        let inputs = batch.inputs.to_vec(&self.host.cpu)?;
        Ok(Batch {
            blocks: blocks.collect::<Result<_, _>>()?,
            inputs: Array::from_slice(backend, &inputs, MemoryKind::Graph)?,
        })
    }

    fn begin(&mut self, seeds: &[u32], seed: u64, step: u32) {
        let asked = Asked::new(seeds, seed, step);
        if self
            .begun
            .as_ref()
            .is_some_and(|begun| begun.asked == asked)
        {
            return;
        }
        if parallel::is_in_pool() {
            // The batch is sampled on the thread pool. If a thread of that pool waited for it, it could wait for
            // itself.
            return;
        }
        drop(self.begun.take());
        let (host, own) = (Arc::clone(&self.host), asked.clone());
        let thread = thread::Builder::new().name("neighbours".into());
        // Without a thread, the batch is sampled when it is requested.
        let thread = thread.spawn(move || host.draw(&own));
        self.begun = thread.ok().map(|thread| Begun {
            asked,
            thread: Some(thread),
        });
    }

    fn layers(&self) -> usize {
        self.layers
    }

    fn vertices(&self) -> usize {
        self.vertices
    }
}
