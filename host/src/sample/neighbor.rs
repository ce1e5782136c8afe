//! The neighbours of the seeds, their neighbours, and so on.

use super::{Batch, Fanout, FixedBlocks, FixedSampler, LayerSizes, LayerSources, Sampler};
use crate::backend::{Adjacency, Backend, MemoryKind};
use crate::error::Error;
use crate::graph::Csr;
use crate::ops::{Draw, NeighborPolicy, Places};
use std::sync::Arc;

/// Samples for each vertex as many neighbours as the fanout of its layer says, as PyG's `NeighborLoader` does
/// (Hamilton, Ying and Leskovec, "Inductive representation learning on large graphs", NeurIPS 2017). The first fanout
/// is that of the seeds, the last that of the vertices whose neighbours are only inputs.
///
/// ```
/// use halfgnn::backend::cpu::Cpu;
/// use halfgnn::graph::Graph;
/// use halfgnn::sample::{Fanout, NeighborSampler, Sampler};
///
/// let backend = Cpu::new();
/// // Vertex 0 has the in-neighbours 1, 2 and 3, each of which has 4.
/// let graph = Graph::from_edges(5, &[0, 0, 0, 1, 2, 3], &[1, 2, 3, 4, 4, 4])?;
/// let fanouts = vec![Fanout::of(2)?, Fanout::All];
/// let mut sampler = NeighborSampler::new(&backend, graph.csr(), fanouts)?;
/// let batch = sampler.sample(&backend, &[0], 7, 0)?;
/// let [inner, outer] = &batch.blocks[..] else { unreachable!() };
/// assert_eq!((outer.destinations(), outer.sources()), (1, 3));
/// // Two neighbours of 0 were sampled, which read 4. Vertex 0, which every layer samples for anew, reads all three.
/// assert_eq!((inner.destinations(), inner.sources()), (3, 5));
/// assert_eq!(batch.inputs.len(), 5);
/// # Ok::<(), halfgnn::Error>(())
/// ```
#[derive(Debug)]
pub struct NeighborSampler<B: Backend> {
    graph: Arc<Adjacency<B>>,
    places: Places<B>,
    fanouts: Vec<Fanout>,
    replace: bool,
    self_loops: bool,
}

impl<B: Backend> NeighborSampler<B> {
    /// Of a graph that is copied to the backend, without replacement, with a fanout for each layer.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without a fanout, [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, graph: &Csr, fanouts: Vec<Fanout>) -> Result<Self, Error> {
        Self::new_in(backend, graph, fanouts, MemoryKind::Graph)
    }

    /// [`NeighborSampler::new`] with edges in memory of `kind`. With [`MemoryKind::HostGraph`] they are in the host's
    /// memory, from which a GPU reads those that it samples. The batches are the same.
    ///
    /// # Errors
    /// Those of [`NeighborSampler::new`].
    pub fn new_in(
        backend: &B,
        graph: &Csr,
        fanouts: Vec<Fanout>,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        let lists = Adjacency::lists(backend, graph, kind)?;
        Self::of(backend, Arc::new(lists), fanouts)
    }

    /// Of a graph on the backend.
    ///
    /// # Errors
    /// [`Error::Unsupported`] without a fanout; [`Error::Shape`] where the graph has different numbers of columns and
    /// rows; [`Error::Driver`] where there is not enough memory.
    pub fn of(backend: &B, graph: Arc<Adjacency<B>>, fanouts: Vec<Fanout>) -> Result<Self, Error> {
        const NAME: &str = "NeighborSampler";
        if fanouts.is_empty() {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: "no fanout; name one for each layer".into(),
            });
        }
        Error::expect(NAME, "columns of the graph", graph.rows(), graph.columns())?;
        Ok(Self {
            places: Places::new(backend, graph.rows())?,
            graph,
            fanouts,
            replace: false,
            self_loops: false,
        })
    }

    /// Samples with replacement: each vertex that has a neighbour gets as many as the fanout says.
    pub fn replacing(self, replace: bool) -> Self {
        Self { replace, ..self }
    }

    /// How a layer of a fanout is sampled.
    fn policy(&self, fanout: Fanout) -> NeighborPolicy {
        NeighborPolicy {
            fanout,
            replace: self.replace,
            self_loops: self.self_loops,
        }
    }

    /// Adds an edge from each destination to itself to the sampled ones: for models that require self-loops, and a
    /// graph that has none.
    pub fn with_self_loops(self, self_loops: bool) -> Self {
        Self { self_loops, ..self }
    }
}

impl<B: Backend> Sampler<B> for NeighborSampler<B> {
    fn sample(
        &mut self,
        backend: &B,
        seeds: &[u32],
        seed: u64,
        step: u32,
    ) -> Result<Batch<B>, Error> {
        let mut inputs = self.places.begin(backend, seeds)?;
        let mut blocks = Vec::with_capacity(self.fanouts.len());
        for (&fanout, layer) in self.fanouts.iter().zip(0..) {
            let how = (self.policy(fanout), Draw { seed, step, layer });
            let (block, sources) = self.places.hop(backend, &self.graph, how, &inputs)?;
            blocks.push(block);
            inputs = sources;
        }
        blocks.reverse();
        Ok(Batch { blocks, inputs })
    }

    fn layers(&self) -> usize {
        self.fanouts.len()
    }

    fn vertices(&self) -> usize {
        self.graph.rows()
    }

    fn fixed(
        &self,
        backend: &B,
        seeds: (usize, u64),
        (sizes, inputs): (&[LayerSizes], LayerSources),
    ) -> Result<Option<FixedBlocks<B>>, Error> {
        const NAME: &str = "NeighborSampler";
        Error::expect(NAME, "layers with sizes", self.fanouts.len(), sizes.len())?;
        let policies = self.fanouts.iter().map(|&fanout| self.policy(fanout));
        let layers: Vec<_> = policies.zip(sizes.iter().copied()).collect();
        let how = (&layers[..], inputs);
        FixedSampler::new(backend, Arc::clone(&self.graph), seeds, how).map(Some)
    }
}
