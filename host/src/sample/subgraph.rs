//! Vertices that are chosen together, and all edges between them.

use super::Loader;
use crate::backend::{Adjacency, Backend, MemoryKind};
use crate::distributed::Partition;
use crate::error::Error;
use crate::graph::Graph;
use crate::ops::{self, DRAWS, Draw, EdgeNorms, InducedSubgraph, Places};
use crate::tensor::Array;

const NAME: &str = "SubgraphSampler";

/// How the vertices of a subgraph are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Subgraphs {
    /// The sources of a number of edges, all edges equally likely: GraphSAINT's node sampler.
    Nodes(u32),
    /// The ends of a number of edges, each as likely as the sum of `1/degree` of its ends: GraphSAINT's edge sampler,
    /// as walks of one edge.
    Edges(u32),
    /// Random walks: GraphSAINT's random walk sampler.
    Walks {
        /// How many, each from one of the roots.
        roots: u32,
        /// Edges of each.
        length: u32,
    },
    /// A [multi-dimensional random walk](ops::frontier_walk).
    Frontier {
        /// Vertices of the frontier.
        frontier: u32,
        /// Vertices that it comes to, those of the frontier among them.
        budget: u32,
    },
    /// A number of clusters of the graph by Louvain's method; a batch has some of them (Chiang et al., "Cluster-GCN",
    /// KDD 2019).
    Clusters(u32),
}

/// Chooses vertices of a graph, and takes the edges between them. Equal seed and step give the same subgraph on every
/// device.
///
/// ```
/// use halfgnn::backend::cpu::Cpu;
/// use halfgnn::graph::Graph;
/// use halfgnn::sample::{SubgraphSampler, Subgraphs};
///
/// let backend = Cpu::new();
/// let ring: Vec<u32> = (0..100).collect();
/// let next: Vec<u32> = (0..100).map(|vertex| (vertex + 1) % 100).collect();
/// let graph = Graph::from_edges(100, &ring, &next)?;
/// // Four walks of two edges each, from any vertex.
/// let how = Subgraphs::Walks { roots: 4, length: 2 };
/// let mut sampler = SubgraphSampler::new(&backend, &graph, &ring, how)?;
/// let subgraph = sampler.draw(&backend, 7, 0)?;
/// assert!(subgraph.vertices.len() <= 12);
/// assert_eq!(subgraph.edges.len(), subgraph.block.forward().edges());
/// # Ok::<(), halfgnn::Error>(())
/// ```
#[derive(Debug)]
pub struct SubgraphSampler<B: Backend> {
    how: Subgraphs,
    /// Whose edges are taken.
    graph: Adjacency<B>,
    /// What is walked on, where that is another: without self-loops.
    walked: Option<Adjacency<B>>,
    places: Places<B>,
    roots: Array<B, u32>,
    clusters: Vec<Vec<u32>>,
}

/// How often vertices and edges came into a number of sampled subgraphs, from which the norms of GraphSAINT are made
/// (§3.2).
#[derive(Debug)]
pub struct Coverage<B: Backend> {
    /// The number of sampled subgraphs.
    pub subgraphs: u32,
    /// How many of them each vertex is in.
    pub vertices: Vec<u32>,
    /// The same, on the device.
    of_vertices: Array<B, u32>,
    /// How many each edge is in, in the order of the graph. They stay on the device, and take 4 bytes an edge there.
    pub edges: Array<B, u32>,
}

impl<B: Backend> Coverage<B> {
    /// The counts as operators take them to make factors of edges; `graph` is the [sampler's](SubgraphSampler::graph).
    pub fn edge_norms<'a>(&'a self, graph: &'a Adjacency<B>) -> EdgeNorms<'a, B> {
        EdgeNorms {
            graph,
            vertex_counts: &self.of_vertices,
            edge_counts: &self.edges,
            weights: None,
            sides: None,
        }
    }

    /// The factor of each edge that makes a vertex' sum in a subgraph as large in the mean as in the graph: how often
    /// its destination was sampled over how often the edge was. A count of 0 is taken as 1. The factors are made on the
    /// device and stay there.
    ///
    /// # Errors
    /// [`Error::Shape`] where the counts are those of another graph than the [sampler's](SubgraphSampler::graph), and
    /// those of the device.
    pub fn edge_factors(&self, backend: &B, graph: &Adjacency<B>) -> Result<Array<B, f32>, Error> {
        let mut factors = Array::uninit(backend, self.edges.len(), MemoryKind::Graph)?;
        ops::edge_norms(backend, self.edge_norms(graph), 1.0, &mut factors)?;
        Ok(factors)
    }

    /// The weight of each vertex that makes the loss over subgraphs that over all vertices, in the mean: the number of
    /// subgraphs over that of those that the vertex is in.
    pub fn vertex_weights(&self) -> Vec<f32> {
        let weight = |&count: &u32| f64::from(self.subgraphs) / f64::from(count.max(1));
        let weights = self.vertices.iter().map(weight);
        weights.map(|weight| weight as f32).collect()
    }

    /// How many of these vertices a subgraph has, in the mean.
    pub fn mean_of(&self, vertices: &[u32]) -> f64 {
        let count = |&vertex: &u32| f64::from(self.vertices[vertex as usize]);
        vertices.iter().map(count).sum::<f64>() / f64::from(self.subgraphs.max(1))
    }

    /// A loader of subgraphs. An epoch has as many as contain each of these vertices once, in the mean. The loader
    /// numbers the subgraphs.
    ///
    /// # Errors
    /// Those of [`Loader::new`].
    pub fn loader(&self, vertices: &[u32], seed: u64) -> Result<Loader, Error> {
        let mean = self.mean_of(vertices).max(1.0);
        let batches = (vertices.len() as f64 / mean).round().max(1.0) as u32;
        Ok(Loader::new((0..batches).collect(), 1, seed)?.in_order())
    }
}

impl<B: Backend> SubgraphSampler<B> {
    /// A sampler of `graph`, which is copied to the backend and has the self-loops that a model requires. A self-loop
    /// comes with its vertex, and no walk takes it. Walks begin at `roots`; clusters without a root are left out.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where nothing would be chosen or a root is no vertex; [`Error::Driver`] where there is
    /// not enough memory.
    pub fn new(backend: &B, graph: &Graph, roots: &[u32], how: Subgraphs) -> Result<Self, Error> {
        let refuse = |reason: String| {
            Err(Error::Unsupported {
                operator: NAME,
                reason,
            })
        };
        let vertices = graph.vertices();
        if let Some(root) = roots.iter().find(|&&root| root as usize >= vertices) {
            return refuse(format!("root {root} of {vertices} vertices"));
        }
        if roots.is_empty() {
            return refuse("no vertex to begin at; name one at least".into());
        }
        let chosen = match how {
            Subgraphs::Nodes(count) | Subgraphs::Edges(count) | Subgraphs::Clusters(count) => count,
            Subgraphs::Walks { roots, .. } => roots,
            Subgraphs::Frontier { frontier, .. } => frontier,
        };
        if chosen == 0 {
            return refuse("subgraphs of no vertices; choose 1 at least".into());
        }
        let clusters = match how {
            Subgraphs::Clusters(count) => clusters(graph, roots, count)?,
            _ => Vec::new(),
        };
        let walked = graph.without_self_loops()?;
        let walked = match walked.edges() == graph.edges() {
            true => None,
            false => Some(Adjacency::new(backend, walked.csr())?),
        };
        Ok(Self {
            how,
            graph: Adjacency::new(backend, graph.csr())?,
            walked,
            places: Places::new(backend, vertices)?,
            roots: Array::from_slice(backend, roots, MemoryKind::Graph)?,
            clusters,
        })
    }

    /// Vertices of the graph.
    pub fn vertices(&self) -> usize {
        self.graph.rows()
    }

    /// Whose edges are taken.
    pub fn graph(&self) -> &Adjacency<B> {
        &self.graph
    }

    /// The vertices of each cluster.
    pub fn clusters(&self) -> &[Vec<u32>] {
        &self.clusters
    }

    /// The subgraph of number `step` of `seed`; of clusters that of all of them.
    ///
    /// # Errors
    /// Those of the device, and [`Error::Unsupported`] for a frontier that is larger than its walk or than 32,768
    /// vertices, or for sources of edges where there is none.
    pub fn draw(&mut self, backend: &B, seed: u64, step: u32) -> Result<InducedSubgraph<B>, Error> {
        let mut vertices = self.buffer(backend)?;
        self.choose(backend, (seed, step), &mut vertices)?;
        self.induced(backend, &vertices)
    }

    /// A buffer for the vertices of a sample, with repetitions.
    fn buffer(&self, backend: &B) -> Result<Array<B, u32>, Error> {
        let len = match self.how {
            Subgraphs::Nodes(count) => count as usize,
            Subgraphs::Edges(count) => 2 * count as usize,
            Subgraphs::Walks { roots, length } => roots as usize * (length as usize + 1),
            Subgraphs::Frontier { budget, .. } => budget as usize,
            Subgraphs::Clusters(_) => self.clusters.iter().map(Vec::len).sum(),
        };
        Array::uninit(backend, len, MemoryKind::Workspace)
    }

    /// Writes the vertices of step `step` of `seed` to such a buffer.
    fn choose(
        &self,
        backend: &B,
        (seed, step): (u64, u32),
        vertices: &mut Array<B, u32>,
    ) -> Result<(), Error> {
        let draw = Draw {
            seed,
            step,
            layer: 0,
        };
        let roots = Some(&self.roots);
        let graph = self.walked.as_ref().unwrap_or(&self.graph);
        match self.how {
            Subgraphs::Nodes(_) => ops::random_walks(backend, graph, None, (0, draw), vertices),
            Subgraphs::Edges(_) => ops::random_walks(backend, graph, roots, (1, draw), vertices),
            Subgraphs::Walks { length, .. } => {
                ops::random_walks(backend, graph, roots, (length, draw), vertices)
            }
            Subgraphs::Frontier { frontier, .. } => {
                ops::frontier_walk(backend, graph, &self.roots, (frontier, draw), vertices)
            }
            Subgraphs::Clusters(_) => vertices.write(backend, &self.clusters.concat()),
        }
    }

    /// The subgraph of these clusters.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where one is none, and those of the device.
    pub fn of_clusters(
        &mut self,
        backend: &B,
        clusters: &[u32],
    ) -> Result<InducedSubgraph<B>, Error> {
        let mut vertices = Vec::new();
        for &cluster in clusters {
            let Some(more) = self.clusters.get(cluster as usize) else {
                return Err(Error::Unsupported {
                    operator: NAME,
                    reason: format!("cluster {cluster} of {}", self.clusters.len()),
                });
            };
            vertices.extend_from_slice(more);
        }
        let vertices = Array::from_slice(backend, &vertices, MemoryKind::Workspace)?;
        self.induced(backend, &vertices)
    }

    fn induced(
        &mut self,
        backend: &B,
        vertices: &Array<B, u32>,
    ) -> Result<InducedSubgraph<B>, Error> {
        self.places.induced(backend, &self.graph, vertices)
    }

    /// How often vertices and edges are sampled, counted on the device. The samples together have `times` the vertices
    /// of the graph (50 in PyG's `GraphSAINTSampler`). They differ from those of all batches of a run, because their
    /// steps count down from the last.
    ///
    /// This makes no subgraphs: 32 samples are a word of bits a vertex, and one pass over the edges counts for all of
    /// them.
    ///
    /// # Errors
    /// Those of [`SubgraphSampler::draw`].
    pub fn coverage(&mut self, backend: &B, seed: u64, times: u32) -> Result<Coverage<B>, Error> {
        let zeros = |len| Array::zeros(backend, len, MemoryKind::Workspace);
        let (mut of_vertices, mut of_edges) = (zeros(self.vertices())?, zeros(self.graph.edges())?);
        let (mut members, mut sizes) = (zeros(self.vertices())?, zeros(DRAWS as usize)?);
        let mut vertices = self.buffer(backend)?;
        let wanted = u64::from(times) * self.vertices() as u64;
        let (mut subgraphs, mut seen) = (0, 0);
        while seen < wanted || subgraphs == 0 {
            members.clear(backend)?;
            sizes.clear(backend)?;
            for draw in 0..DRAWS {
                self.choose(backend, (seed, u32::MAX - subgraphs - draw), &mut vertices)?;
                ops::mark_draw(backend, &mut members, &vertices, draw)?;
            }
            ops::size_draws(backend, &members, &mut sizes)?;
            let mut counted = 0;
            for (draw, size) in sizes.to_vec(backend)?.into_iter().enumerate() {
                if seen < wanted || subgraphs == 0 {
                    seen += u64::from(size);
                    subgraphs += 1;
                    counted |= 1 << draw;
                }
            }
            ops::tally_draws(
                backend,
                &self.graph,
                (&members, counted),
                &mut of_vertices,
                &mut of_edges,
            )?;
        }
        Ok(Coverage {
            subgraphs,
            vertices: of_vertices.to_vec(backend)?,
            of_vertices,
            edges: of_edges,
        })
    }
}

/// The vertices of `count` clusters, without clusters that have no root.
fn clusters(graph: &Graph, roots: &[u32], count: u32) -> Result<Vec<Vec<u32>>, Error> {
    let parts = Partition::louvain(graph, count as usize);
    let parts = parts.map_err(|error| Error::Unsupported {
        operator: NAME,
        reason: error.to_string(),
    })?;
    let mut clusters = vec![Vec::new(); count as usize];
    for (vertex, &part) in parts.owners().iter().enumerate() {
        clusters[part as usize].push(vertex as u32);
    }
    let mut rooted = vec![false; count as usize];
    for &root in roots {
        rooted[parts.owners()[root as usize] as usize] = true;
    }
    let mut rooted = rooted.into_iter();
    clusters.retain(|_| rooted.next().unwrap_or_default());
    Ok(clusters)
}
