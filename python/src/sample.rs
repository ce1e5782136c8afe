//! Batches of vertices and their in-neighbours, sampled on the device that they are for.

use crate::construct::{Adjacency, Parts};
use crate::errors::exception;
use crate::memory::{Lend, RawArray, write};
use crate::place::{CPU, Place};
use crate::threads;
use halfgnn::Error;
use halfgnn::backend::Backend;
use halfgnn::backend::cpu::Cpu;
#[cfg(feature = "cuda")]
use halfgnn::backend::gpu::Gpu;
#[cfg(feature = "cuda")]
use halfgnn::driver::cuda::Cuda;
use halfgnn::graph::Graph;
use halfgnn::sample::{
    EdgesIn, Loader, Sampling, SamplingPolicy, Seeds, SubgraphSampler, Subgraphs,
};
use halfgnn::tensor::Array;
use pyo3::exceptions::{PyIndexError, PyValueError};
use pyo3::prelude::*;
use std::sync::{Mutex, PoisonError};

/// Vertices, until they are copied to where Python needs them.
#[pyclass(frozen)]
pub struct Vertices(On<Array<Cpu, u32>, CardVertices>);

#[cfg(feature = "cuda")]
type CardVertices = Array<Gpu<Cuda>, u32>;
#[cfg(not(feature = "cuda"))]
type CardVertices = std::convert::Infallible;

/// Of the host, or of a GPU.
enum On<H, C> {
    Host(H),
    #[cfg_attr(
        not(feature = "cuda"),
        expect(dead_code, reason = "there is no GPU without CUDA")
    )]
    Card(u32, C),
}

#[pymethods]
impl Vertices {
    fn __len__(&self) -> usize {
        match &self.0 {
            On::Host(array) => array.len(),
            #[cfg(feature = "cuda")]
            On::Card(_, array) => array.len(),
            #[cfg(not(feature = "cuda"))]
            On::Card(_, never) => match *never {},
        }
    }

    /// Copies them to memory of the same device, and waits for it.
    fn copy_to(&self, address: u64) -> PyResult<()> {
        let to = RawArray(address, self.__len__());
        match &self.0 {
            // SAFETY: Python gives an array of this length and type, on the host.
            On::Host(array) => unsafe { write(&array.values_on_host(), to) },
            #[cfg(feature = "cuda")]
            On::Card(ordinal, array) => crate::construct::on_card(*ordinal, |card| {
                Ok(vec![(card.address_of_array(array)?, 4, to)])
            })?,
            #[cfg(not(feature = "cuda"))]
            On::Card(_, never) => match *never {},
        }
        .map_err(exception)
    }
}

/// How batches are made, as Python says it.
pub fn sampling_of(policy: &str, batch: Option<u32>, coverage: Option<u32>) -> PyResult<Sampling> {
    let policy: SamplingPolicy = policy.parse().map_err(PyValueError::new_err::<String>)?;
    for (name, number, is_useless) in [
        ("batch_size", batch, policy.is_counted()),
        ("coverage", coverage, !policy.is_counted()),
    ] {
        match number {
            Some(_) if is_useless => return Err(useless(name, &policy)),
            Some(0) => return Err(PyValueError::new_err(format!("{name} 0; take 1 at least"))),
            _ => {}
        }
    }
    Ok(Sampling::of(policy, batch, coverage))
}

fn useless(name: &str, policy: &SamplingPolicy) -> PyErr {
    PyValueError::new_err(format!("{name}: {policy} has no use for it; leave it out"))
}

/// What draws.
enum Source<B: Backend> {
    Neighbors(Box<dyn halfgnn::sample::Sampler<B>>),
    /// Whole clusters of vertices.
    Clusters(SubgraphSampler<B>),
    /// Subgraphs of vertices that are chosen by chance.
    Subgraphs(SubgraphSampler<B>),
}

/// The graphs of a batch, the first one first, and the vertices that it begins with.
type Drawn<B> = (Vec<Parts<B>>, Array<B, u32>);

/// How batches are made.
struct Plan {
    graph: Graph,
    vertices: Vec<u32>,
    sampling: Sampling,
    seed: u64,
    shuffle: bool,
    whole_only: bool,
}

impl Plan {
    fn loader(&self, of: Vec<u32>) -> Result<Loader, Error> {
        let mut loader = Loader::new(of, self.sampling.batch as usize, self.seed)?;
        if !self.shuffle {
            loader = loader.in_order();
        }
        if self.whole_only {
            loader = loader.whole_only();
        }
        Ok(loader)
    }
}

impl<B: Lend> Source<B> {
    fn new(backend: &B, plan: &Plan) -> Result<(Self, Loader, Option<Norms>), Error> {
        let Plan {
            graph, vertices, ..
        } = plan;
        let policy = &plan.sampling.policy;
        let Some(how) = policy.subgraphs() else {
            let sampler = policy.sampler(backend, (graph, EdgesIn::Device), false)?;
            return Ok((
                Self::Neighbors(sampler),
                plan.loader(vertices.clone())?,
                None,
            ));
        };
        let mut sampler = SubgraphSampler::new(backend, graph, vertices, how)?;
        if let Subgraphs::Clusters(_) = how {
            let all = (0..sampler.clusters().len() as u32).collect();
            return Ok((Self::Clusters(sampler), plan.loader(all)?, None));
        }
        let coverage = sampler.coverage(backend, plan.seed, plan.sampling.coverage)?;
        let loader = coverage.loader(vertices, plan.seed)?;
        let of_edges = coverage.edge_factors(backend, sampler.graph())?;
        let norms = (of_edges.to_vec(backend)?, coverage.vertex_weights());
        Ok((Self::Subgraphs(sampler), loader, Some(norms)))
    }

    fn draw(&mut self, backend: &B, seeds: &Seeds, seed: u64) -> Result<Drawn<B>, Error> {
        let subgraph = match self {
            Self::Neighbors(sampler) => {
                let batch = sampler.sample(backend, &seeds.vertices, seed, seeds.step)?;
                let graphs = batch.blocks.into_iter();
                let graphs = graphs.map(|block| Parts::new(backend, block.into_forward(), None));
                return Ok((graphs.collect::<Result<_, _>>()?, batch.inputs));
            }
            Self::Clusters(sampler) => sampler.of_clusters(backend, &seeds.vertices)?,
            Self::Subgraphs(sampler) => sampler.draw(backend, seed, seeds.step)?,
        };
        let graph = Parts::new(backend, subgraph.block.into_forward(), Some(subgraph.edges))?;
        Ok((vec![graph], subgraph.vertices))
    }
}

/// Of each edge and each vertex what makes sums and losses of subgraphs those of the graph.
type Norms = (Vec<f32>, Vec<f32>);

/// Draws batches: the same of the same seed, on every device and in whatever order they are asked for.
#[pyclass(frozen)]
pub struct Sampler {
    source: On<Mutex<Source<Cpu>>, CardSource>,
    loader: Loader,
    /// The seeds of the epoch that was asked for last.
    order: Mutex<Option<(u32, Vec<Seeds>)>>,
    norms: Option<Norms>,
    layers: Option<usize>,
}

#[cfg(feature = "cuda")]
type CardSource = Mutex<Source<Gpu<Cuda>>>;
#[cfg(not(feature = "cuda"))]
type CardSource = std::convert::Infallible;

#[pymethods]
impl Sampler {
    /// Of a graph's row offsets and columns, on the host; `policy` as the program has it.
    #[new]
    #[expect(clippy::too_many_arguments, reason = "options, as Python has them")]
    fn new(
        py: Python<'_>,
        place: Place,
        offsets: RawArray,
        columns: RawArray,
        vertices: RawArray,
        policy: &str,
        size: (Option<u32>, Option<u32>),
        order: (Option<bool>, bool),
        seed: u64,
    ) -> PyResult<Self> {
        let ((batch, coverage), (shuffle, whole_only)) = (size, order);
        let sampling = sampling_of(policy, batch, coverage)?;
        if sampling.policy.is_counted() {
            for (name, is_given) in [("shuffle", shuffle.is_some()), ("drop_last", whole_only)] {
                if is_given {
                    return Err(useless(name, &sampling.policy));
                }
            }
        }
        // SAFETY: Python's arrays, of these types, which it keeps until this returns; so below.
        let (offsets, columns) = unsafe { (offsets.read::<u64>(), columns.read::<u32>()) };
        let graph = Graph::from_offsets(offsets.to_vec(), columns.to_vec())
            .map_err(|error| exception(error.into()))?;
        let plan = Plan {
            graph,
            // SAFETY: as above.
            vertices: unsafe { vertices.read::<u32>() }.to_vec(),
            sampling,
            seed,
            shuffle: shuffle.unwrap_or(true),
            whole_only,
        };
        let (source, loader, norms) = match place {
            // The emulator's arrays lie on the host.
            Place::Cpu | Place::Emulator => {
                let made = py
                    .detach(|| threads::install(|| Source::new(&*CPU, &plan)))?
                    .map_err(exception)?;
                (On::Host(Mutex::new(made.0)), made.1, made.2)
            }
            #[cfg(feature = "cuda")]
            Place::Cuda(ordinal, _) => {
                let card = crate::card::open(ordinal).map_err(exception)?;
                let made = py
                    .detach(|| threads::around(|| Source::new(&card.own, &plan)))?
                    .map_err(exception)?;
                (On::Card(ordinal, Mutex::new(made.0)), made.1, made.2)
            }
            #[cfg(not(feature = "cuda"))]
            Place::Cuda(ordinal, _) => return Err(crate::place::without_cuda(ordinal)),
        };
        Ok(Self {
            source,
            loader,
            order: Mutex::default(),
            norms,
            layers: plan.sampling.policy.layers(),
        })
    }

    /// Batches of an epoch.
    fn __len__(&self) -> usize {
        self.loader.batches()
    }

    /// Graphs of a batch where it has one for each layer; none where it has one for all.
    fn layers(&self) -> Option<usize> {
        self.layers
    }

    /// The graphs of batch `number` of `epoch`, the first one first, and the vertices that it begins with.
    fn sample(
        &self,
        py: Python<'_>,
        epoch: u32,
        number: usize,
    ) -> PyResult<(Vec<Adjacency>, Vertices)> {
        let seeds = self.seeds(epoch, number)?;
        let seed = self.loader.seed();
        match &self.source {
            On::Host(source) => {
                let draw = || {
                    let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
                    let source = &mut *source;
                    threads::install(|| source.draw(&CPU, &seeds, seed))
                };
                let (graphs, inputs) = py.detach(draw)?.map_err(exception)?;
                let graphs = graphs.into_iter().map(Adjacency::on_host).collect();
                Ok((graphs, Vertices(On::Host(inputs))))
            }
            #[cfg(feature = "cuda")]
            On::Card(ordinal, source) => {
                let card = crate::card::open(*ordinal).map_err(exception)?;
                let draw = || {
                    let mut source = source.lock().unwrap_or_else(PoisonError::into_inner);
                    source.draw(&card.own, &seeds, seed)
                };
                let (graphs, inputs) = py.detach(|| threads::around(draw))?.map_err(exception)?;
                let graphs = graphs.into_iter();
                let graphs = graphs.map(|parts| Adjacency::on_card(*ordinal, parts));
                Ok((graphs.collect(), Vertices(On::Card(*ordinal, inputs))))
            }
            #[cfg(not(feature = "cuda"))]
            On::Card(_, never) => match *never {},
        }
    }

    /// Whether sums and losses of a batch are those of the graph by factors of its edges and vertices.
    fn has_norms(&self) -> bool {
        self.norms.is_some()
    }

    /// Copies those of all edges and vertices of the graph to arrays of the host.
    fn copy_norms(&self, edges: RawArray, vertices: RawArray) -> PyResult<()> {
        let Some((of_edges, of_vertices)) = &self.norms else {
            return Ok(());
        };
        // SAFETY: Python gives arrays of floats of these lengths, on the host.
        unsafe { write(of_edges, edges).and_then(|()| write(of_vertices, vertices)) }
            .map_err(exception)
    }
}

impl Sampler {
    fn seeds(&self, epoch: u32, number: usize) -> PyResult<Seeds> {
        let mut order = self.order.lock().unwrap_or_else(PoisonError::into_inner);
        *order = order.take().filter(|(of, _)| *of == epoch);
        let (_, seeds) = order.get_or_insert_with(|| (epoch, self.loader.epoch(epoch).collect()));
        let found = seeds.get(number).cloned();
        found.ok_or_else(|| {
            let has = seeds.len();
            PyIndexError::new_err(format!("batch {number} of an epoch that has {has}"))
        })
    }
}
