//! Neighbors over graphs of several types.

use super::Fanout;
use crate::backend::{Adjacency, Backend, Block, MemoryKind};
use crate::data::Types;
use crate::error::Error;
use crate::graph::Csr;
use crate::ops::{Draw, NeighborPolicy, Places};
use crate::tensor::Array;

const NAME: &str = "TypeSampler";

/// A list of fanouts for each type of edges, with one for each hop, none where no edge of the type is sampled.
pub type FanoutsByType = Vec<Vec<Option<Fanout>>>;

/// Samples neighbors over a graph of several types, as PyG's `NeighborLoader` does.
///
/// Each hop samples in-neighbors of the vertices that the hop before found, over every type of edges that leads to
/// them. A vertex is sampled for once. The result is one graph of all types, which every layer of a model reads.
///
/// ```
/// use halfgnn::backend::cpu::Cpu;
/// use halfgnn::data::{EdgeType, Types, VertexType};
/// use halfgnn::graph::Csr;
/// use halfgnn::sample::{Fanout, TypeSampler};
///
/// let paper = VertexType::new("paper", 3, None)?;
/// let author = VertexType::new("author", 2, None)?;
/// // Author 0 writes papers 0 and 1, author 1 writes paper 2.
/// let edges = Csr::rectangular_from_edges((3, 2), &[0, 1, 2], &[0, 0, 1])?;
/// let writes = EdgeType { source: 1, name: "writes".into(), destination: 0, edges };
/// let types = Types::new(vec![paper, author], vec![writes])?;
/// let backend = Cpu::new();
/// let fanouts = vec![vec![Some(Fanout::All)]];
/// let papers = 1;
/// let mut sampler = TypeSampler::new(&backend, &types, papers, fanouts)?;
/// let sample = sampler.sample(&backend, &[2, 0], 7, 0)?;
/// // Types are sorted by their names.
/// assert_eq!(sample.vertices, [vec![0, 1], vec![2, 0]]);
/// assert_eq!(sample.edges[0].csr()?.row(0), [1]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The same numbers sample the same neighbors on every backend.
#[derive(Debug)]
pub struct TypeSampler<B: Backend> {
    relations: Vec<Relation<B>>,
    /// Of each type of vertices.
    places: Vec<Places<B>>,
    seeds: usize,
    hops: usize,
    replace: bool,
}

/// A type of edges.
#[derive(Debug)]
struct Relation<B: Backend> {
    source: usize,
    destination: usize,
    edges: Adjacency<B>,
    /// Of each hop; none where it samples nothing.
    fanouts: Vec<Option<Fanout>>,
}

/// What was sampled.
#[derive(Clone, Debug, PartialEq)]
pub struct TypeSample {
    /// The vertices of each type, by their numbers in it. Those of the seeds' type begin with the seeds.
    pub vertices: Vec<Vec<u32>>,
    /// The sampled edges of each type: rows and columns are places in [`TypeSample::vertices`].
    pub edges: Vec<SampledEdges>,
}

/// Sampled edges of a type, in order of their rows.
#[derive(Clone, Debug, PartialEq)]
pub struct SampledEdges {
    shape: (usize, usize),
    rows: Vec<u32>,
    columns: Vec<u32>,
}

impl SampledEdges {
    /// Destinations and sources.
    pub fn shape(&self) -> (usize, usize) {
        self.shape
    }

    /// The destination of each edge.
    pub fn rows(&self) -> &[u32] {
        &self.rows
    }

    /// The source of each edge.
    pub fn columns(&self) -> &[u32] {
        &self.columns
    }

    /// The edges as a matrix on the host.
    ///
    /// # Errors
    /// [`Error::Graph`] where there is not enough memory.
    pub fn csr(&self) -> Result<Csr, Error> {
        let edges = Csr::rectangular_from_edges(self.shape, &self.rows, &self.columns)?;
        Ok(edges)
    }

    /// The edges on a backend.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn block<B: Backend>(&self, backend: &B) -> Result<Block<B>, Error> {
        Block::of_edges(backend, self.shape, &self.rows, &self.columns)
    }
}

/// What a hop sampled of a type of edges.
struct Hop<B: Backend> {
    relation: usize,
    /// How many vertices it sampled for.
    vertices: usize,
    /// The rows of edges within those vertices, and their neighbors.
    edges: Option<[Array<B, u32>; 2]>,
}

impl<B: Backend> TypeSampler<B> {
    /// A sampler of neighbors of vertices of the type `seeds`, without replacement. There is a list of fanouts for each
    /// type of edges, with one for each hop.
    ///
    /// # Errors
    /// [`Error::Shape`] where lists of fanouts are not as many as types of edges, or not of one length;
    /// [`Error::Unsupported`] without a fanout; [`Error::Driver`] where there is not enough memory.
    pub fn new(
        backend: &B,
        types: &Types,
        seeds: usize,
        fanouts: FanoutsByType,
    ) -> Result<Self, Error> {
        Self::new_in(backend, types, seeds, (fanouts, MemoryKind::Graph))
    }

    /// [`TypeSampler::new`] with edges in memory of `kind`: of [`MemoryKind::HostGraph`] they stay in the host's, which
    /// a GPU reads.
    ///
    /// # Errors
    /// Those of [`TypeSampler::new`].
    pub fn new_in(
        backend: &B,
        types: &Types,
        seeds: usize,
        (fanouts, kind): (FanoutsByType, MemoryKind),
    ) -> Result<Self, Error> {
        Error::expect(NAME, "lists of fanouts", types.edges().len(), fanouts.len())?;
        let hops = fanouts.first().map_or(0, Vec::len);
        if hops == 0 || seeds >= types.vertices().len() {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: format!(
                    "{hops} hops from vertices of type {seeds}, of {} types; name a fanout for each hop and one of the types",
                    types.vertices().len()
                ),
            });
        }
        let mut relations = Vec::with_capacity(fanouts.len());
        for (of, fanouts) in types.edges().iter().zip(fanouts) {
            Error::expect(NAME, "fanouts of a type of edges", hops, fanouts.len())?;
            relations.push(Relation {
                source: of.source,
                destination: of.destination,
                edges: Adjacency::lists(backend, &of.edges, kind)?,
                fanouts,
            });
        }
        let places = types.vertices().iter();
        let places = places.map(|of| Places::new(backend, of.vertices));
        Ok(Self {
            relations,
            places: places.collect::<Result<_, _>>()?,
            seeds,
            hops,
            replace: false,
        })
    }

    /// With replacement: of every vertex that has a neighbor as many are sampled as the fanout says.
    pub fn replacing(self, replace: bool) -> Self {
        Self { replace, ..self }
    }

    /// Samples for `seeds`, which are different vertices. `seed` and `step` decide what is sampled.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where a seed is no vertex or occurs twice, [`Error::Driver`] where there is not enough
    /// memory.
    pub fn sample(
        &mut self,
        backend: &B,
        seeds: &[u32],
        seed: u64,
        step: u32,
    ) -> Result<TypeSample, Error> {
        let mut known = Vec::with_capacity(self.places.len());
        for (of, places) in self.places.iter_mut().enumerate() {
            let first = if of == self.seeds { seeds } else { &[] };
            known.push(places.begin(backend, first)?);
        }
        let mut vertices: Vec<Vec<u32>> = vec![Vec::new(); known.len()];
        vertices[self.seeds] = seeds.to_vec();
        // Where the vertices begin that the hop before found.
        let mut found = vec![0; known.len()];
        let mut hops = Vec::new();
        for hop in 0..self.hops {
            let reached: Vec<usize> = vertices.iter().map(Vec::len).collect();
            for relation in 0..self.relations.len() {
                let layer = (hop * self.relations.len() + relation) as u32;
                let draw = Draw { seed, step, layer };
                let own = &self.relations[relation];
                let from = &vertices[own.destination][found[own.destination]..];
                hops.push(Hop {
                    relation,
                    vertices: from.len(),
                    edges: self.meet(backend, (relation, hop), draw, from)?,
                });
            }
            for (of, places) in self.places.iter_mut().enumerate() {
                known[of] = places.place_met(backend, &known[of])?;
                let all = known[of].to_vec(backend)?;
                vertices[of].extend_from_slice(&all[reached[of]..]);
            }
            found = reached;
        }
        let edges = self.edges(backend, &vertices, hops)?;
        Ok(TypeSample { vertices, edges })
    }

    /// Samples a hop of a type of edges; nothing where it has no fanout or there is no vertex to sample for.
    fn meet(
        &mut self,
        backend: &B,
        (relation, hop): (usize, usize),
        draw: Draw,
        from: &[u32],
    ) -> Result<Option<[Array<B, u32>; 2]>, Error> {
        let own = &self.relations[relation];
        let Some(fanout) = own.fanouts[hop].filter(|_| !from.is_empty()) else {
            return Ok(None);
        };
        let policy = NeighborPolicy {
            fanout,
            replace: self.replace,
            self_loops: false,
        };
        let destinations = Array::from_slice(backend, from, MemoryKind::Workspace)?;
        let places = &mut self.places[own.source];
        let met = places.meet(backend, &own.edges, (policy, draw), &destinations)?;
        Ok(Some(met))
    }

    /// The edges of each type. A hop samples for the vertices behind those of the hop before, so that rows are in
    /// order.
    fn edges(
        &self,
        backend: &B,
        vertices: &[Vec<u32>],
        hops: Vec<Hop<B>>,
    ) -> Result<Vec<SampledEdges>, Error> {
        let empty = |of: &Relation<B>| SampledEdges {
            shape: (vertices[of.destination].len(), vertices[of.source].len()),
            rows: Vec::new(),
            columns: Vec::new(),
        };
        let mut edges: Vec<SampledEdges> = self.relations.iter().map(empty).collect();
        let mut sampled_for = vec![0; edges.len()];
        for hop in hops {
            let (own, first) = (&mut edges[hop.relation], &mut sampled_for[hop.relation]);
            if let Some([rows, mut neighbors]) = hop.edges {
                let source = self.relations[hop.relation].source;
                self.places[source].relabel(backend, &mut neighbors)?;
                let rows = rows.to_vec(backend)?;
                own.rows.extend(rows.iter().map(|row| *first + row));
                own.columns.extend(neighbors.to_vec(backend)?);
            }
            *first += hop.vertices as u32;
        }
        Ok(edges)
    }
}
