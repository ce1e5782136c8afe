//! The graph as a model sees it: edges on a backend, and degree norms.

use super::Halo;
use super::edge_features::EdgeFeatures;
use super::weights;
use crate::backend::{Adjacency, Backend, Block, DeviceGraph, MemoryKind};
use crate::distributed::{Group, Shard};
use crate::error::Error;
use crate::graph::{self, Graph, GraphCounts, Part};
use crate::ops::{self, DegreePower, EdgeNorms, InducedSubgraph, RowGroups};
use crate::tensor::{Array, Element, Precision};
use serde::{Deserialize, Serialize};
use std::any::Any;
use std::fmt;
use std::sync::{Arc, OnceLock};

const WEIGHTED: &str = "Propagation::weighted";

/// Degree norm of an aggregation (HalfGNN eq. 1): which powers of the degrees scale its input and output.
///
/// `D_in` counts the edges of a row, `D_out` those of a column. A degree of 0 counts as 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// `D_in^-1/2 · A · D_out^-1/2`, symmetric (Kipf and Welling, ICLR 2017).
    #[default]
    Both,
    /// `D_in^-1/2 · A · D_in^-1/2`: PyG's `gcn_norm`, which differs from [`Norm::Both`] on directed graphs. A source
    /// without in-neighbours has the factor 0, as there.
    In,
    /// `D_in^-1 · A`: the mean of the neighbours.
    Right,
    /// `A · D_out^-1`.
    Left,
    /// `A`: the sum.
    None,
}

impl Norm {
    /// The degrees of a graph's columns that are in it.
    pub(super) fn column_degrees(self, graph: &Graph) -> Vec<u32> {
        match self {
            Norm::Both | Norm::Left => graph.out_degrees(),
            Norm::In => graph.in_degrees(),
            Norm::Right | Norm::None => Vec::new(),
        }
    }
}

impl fmt::Display for Norm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Norm::Both => "both",
            Norm::In => "in",
            Norm::Right => "right",
            Norm::Left => "left",
            Norm::None => "none",
        })
    }
}

/// The degrees that the norm of a [block](graph::Block) is made from.
#[derive(Clone, Copy, Debug)]
pub enum Degrees<'a> {
    /// The block's own: of a sampled layer, whose means are of what was sampled.
    OfBlock,
    /// Those of the graph that the block was cut from.
    OfGraph {
        /// Edges of each destination's row.
        rows: &'a [u32],
        /// Edges of each source's column; with [`Norm::In`] of its row.
        columns: &'a [u32],
    },
}

/// A graph or a block on a backend with the factors of its degree norm: the matrix `R · A · C`. The diagonal `R` scales
/// a destination's sum, and the diagonal `C` scales a source's rows.
///
/// Rows are destinations, columns are sources. Of a graph both are its vertices; of a block the destinations are the
/// first sources.
#[derive(Debug)]
pub struct Propagation<B: Backend> {
    edges: Edges<B>,
    row_scale: Option<Arc<Array<B, f32>>>,
    column_scale: Option<Arc<Array<B, f32>>>,
    /// Whether the factors of rows make means.
    makes_means: bool,
    /// The divisors of those means, made on first use.
    row_divisor: OnceLock<Arc<Array<B, f32>>>,
    largest_degree: u32,
    weights: Option<Weights>,
    edge_features: Option<EdgeFeatures<B>>,
    halo: Option<Halo<B>>,
    members: Option<Members<B>>,
}

/// The first vertex of each graph, of an adjacency that pools them, and the same on the backend, made on first use.
#[derive(Debug)]
struct Members<B: Backend> {
    starts: Vec<u32>,
    groups: OnceLock<RowGroups<B>>,
}

/// Weights of edges with the degree norm in them, as [`EdgeFactors`] has them.
#[derive(Debug)]
struct Weights {
    /// Two `Arc<Array<B, E>>`, along the edges and against them, of the `E` of this precision.
    arrays: Box<dyn Any + Send + Sync>,
    precision: Precision,
    scale: f32,
}

/// A block alone does not have the degrees that a norm needs.
fn no_in_degrees(operator: &'static str) -> Error {
    Error::Unsupported {
        operator,
        reason: "the norm `in` needs the in-degrees of sources, and a block has those of destinations; give the degrees of the graph"
            .into(),
    }
}

/// Checks that `there` are as many as these numbers, from 0, require.
fn expect_all(
    operator: &'static str,
    operand: &'static str,
    numbers: &[u32],
    there: usize,
) -> Result<(), Error> {
    let wanted = numbers
        .iter()
        .max()
        .map_or(0, |&number| number as usize + 1);
    Error::expect(operator, operand, wanted.max(there), there)
}

/// The factor of each edge: `scale · values[k]` is `r[i] · w(i,j) · c[j]` of edge `k`, its weight with the factors of
/// the degree norm. [`Propagation::row_scale`] and [`Propagation::column_scale`] are then absent.
///
/// `scale` is a power of two that takes the largest factor to where half has most digits: those of a mean over a hub
/// would be subnormal.
#[derive(Debug)]
pub struct EdgeFactors<'a, B: Backend, E: Element> {
    /// In the order of [`Propagation::forward`].
    pub forward: &'a Array<B, E>,
    /// In that of [`Propagation::backward`].
    pub backward: &'a Array<B, E>,
    /// Factor of all of them.
    pub scale: f32,
}

/// The factor of each edge of a whole graph, from which [`Propagation::of_induced`] takes those of a part.
#[derive(Debug)]
pub struct GraphFactors<B: Backend, E: Element> {
    values: Array<B, E>,
    scale: f32,
    largest: u32,
}

/// The degrees of a whole graph, or the weights of its edges with the degree norm in them, on the host.
/// [`Propagation::of_part`] takes the factors of a part's edges from these.
#[derive(Clone, Debug)]
pub struct PartFactors<E: Element> {
    /// None where weights have it in them.
    norm: Norm,
    rows: Vec<u32>,
    /// As far as the norm takes degrees of columns.
    columns: Vec<u32>,
    weights: Option<(Vec<E>, f32)>,
    /// All parts scale alike by it.
    largest: u32,
}

impl<E: Element> PartFactors<E> {
    /// Those of `graph`, with weights as [`Propagation::weighted`] has them.
    ///
    /// # Errors
    /// Those of [`Propagation::weighted`].
    pub fn new(graph: &Graph, weights: Option<&[f32]>, norm: Norm) -> Result<Self, Error> {
        let rows = graph.in_degrees();
        let of_degrees = Self {
            norm,
            columns: norm.column_degrees(graph),
            weights: None,
            largest: rows.iter().copied().max().unwrap_or(0),
            rows,
        };
        let Some(weights) = weights else {
            return Ok(of_degrees);
        };
        Error::expect(WEIGHTED, "edge weights", graph.edges(), weights.len())?;
        let (factors, largest) = weights::factors(graph, weights, norm)?;
        Ok(Self {
            norm: Norm::None,
            columns: Vec::new(),
            weights: Some(weights::scaled::<E>(&factors)),
            largest,
            ..of_degrees
        })
    }
}

#[cfg(feature = "parts")]
impl<E: Element> PartFactors<E> {
    /// From degrees that are known of all vertices, or from the weights of a part's own edges with the norm in them;
    /// `largest` is that of the whole graph.
    pub(super) fn of_rank(
        norm: Norm,
        [rows, columns]: [Vec<u32>; 2],
        weights: Option<(Vec<E>, f32)>,
        largest: u32,
    ) -> Self {
        Self {
            norm: if weights.is_some() { Norm::None } else { norm },
            rows,
            columns,
            weights,
            largest,
        }
    }
}

impl<B: Backend, E: Element> GraphFactors<B, E> {
    /// The weights of the edges, 1 where there are none, with the factors of `norm` of the whole graph's degrees, times
    /// the norms of GraphSAINT. Those are [`Coverage`](crate::sample::Coverage::edge_norms)'s, without weights and
    /// degrees. They are made on the device.
    ///
    /// # Errors
    /// Those of [`Propagation::weighted`] and [`ops::edge_norms`].
    pub fn new(
        backend: &B,
        graph: &Graph,
        weights: Option<&[f32]>,
        norm: Norm,
        others: EdgeNorms<'_, B>,
    ) -> Result<Self, Error> {
        let edges = graph.edges();
        Error::expect(
            WEIGHTED,
            "edge weights",
            edges,
            weights.map_or(edges, <[f32]>::len),
        )?;
        let (sums, largest) = weights::sums(graph, weights, norm)?;
        let [rows, columns] = weights::sides([&sums[0], &sums[1]], norm)?;
        let side = |factors: &[f64]| Array::from_slice(backend, factors, MemoryKind::Workspace);
        let (rows, columns) = (side(&rows)?, side(&columns)?);
        let weights = weights
            .map(|weights| Array::from_slice(backend, weights, MemoryKind::Workspace))
            .transpose()?;
        let norms = EdgeNorms {
            weights: weights.as_ref(),
            sides: Some([&rows, &columns]),
            ..others
        };
        let scale = match E::PRECISION {
            Precision::Half => weights::scale_of::<E>(ops::largest_edge_norm(backend, norms)?),
            _ => 1.0,
        };
        let mut values = Array::uninit(backend, edges, MemoryKind::Graph)?;
        ops::edge_norms(backend, norms, scale, &mut values)?;
        Ok(Self {
            values,
            scale,
            largest,
        })
    }
}

#[derive(Debug)]
enum Edges<B: Backend> {
    Graph(DeviceGraph<B>),
    Block(Block<B>),
    /// Between vertices of two kinds: along the edges and against them.
    Pair([Adjacency<B>; 2]),
    /// Without the transpose, along which only gradients flow.
    Forward(Adjacency<B>),
}

impl<B: Backend> Propagation<B> {
    /// Copies `graph` and the factors of `norm` to the backend. Self-loops are the caller's to add.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, graph: &Graph, norm: Norm) -> Result<Self, Error> {
        let edges = Edges::Graph(DeviceGraph::new(backend, graph)?);
        let columns = norm.column_degrees(graph);
        Self::of_edges(backend, edges, [&graph.in_degrees(), &columns], norm)
    }

    /// [`Propagation::new`] with a weight for each edge, in the graph's order. Degrees are sums of weights
    /// (`gcn_norm` of PyG); the factor of a vertex whose weights add up to 0 is 0.
    ///
    /// # Errors
    /// [`Error::Shape`] where there is not a weight for each edge; [`Error::Unsupported`] where one is not finite, or
    /// where the norm takes the root of a negative sum; [`Error::Driver`] where there is not enough memory.
    pub fn weighted<E: Element>(
        backend: &B,
        graph: &Graph,
        weights: &[f32],
        norm: Norm,
    ) -> Result<Self, Error> {
        Error::expect(WEIGHTED, "edge weights", graph.edges(), weights.len())?;
        let (factors, largest) = weights::factors(graph, weights, norm)?;
        let of_edges = Self::of_edges(
            backend,
            Edges::Graph(DeviceGraph::new(backend, graph)?),
            [&[], &[]],
            Norm::None,
        )?;
        let (values, scale) = weights::scaled::<E>(&factors);
        let upload = |values: &[E]| Array::from_slice(backend, values, MemoryKind::Graph);
        let forward = Arc::new(upload(&values)?);
        let against: Vec<E> = graph
            .edge_map()
            .iter()
            .map(|&edge| values[edge as usize])
            .collect();
        let backward = match graph.is_symmetric() && against == values {
            true => Arc::clone(&forward),
            false => Arc::new(upload(&against)?),
        };
        Ok(Self {
            largest_degree: largest,
            weights: Some(Weights {
                arrays: Box::new([forward, backward]),
                precision: E::PRECISION,
                scale,
            }),
            ..of_edges
        })
    }

    /// [`Propagation::weighted`] where edges have weights, else [`Propagation::new`].
    ///
    /// # Errors
    /// Those of the two.
    pub fn of_graph<E: Element>(
        backend: &B,
        graph: &Graph,
        weights: Option<&[f32]>,
        norm: Norm,
    ) -> Result<Self, Error> {
        match weights {
            Some(weights) => Self::weighted::<E>(backend, graph, weights, norm),
            None => Self::new(backend, graph, norm),
        }
    }

    /// The same with columns of features of edges, each with a number for each edge of `graph`, in its order: for a
    /// layer that reads them, such as GAT's.
    ///
    /// # Errors
    /// [`Error::Shape`] where a column has not a number for each edge, [`Error::Driver`] where there is not enough
    /// memory.
    pub fn with_edge_features(
        self,
        backend: &B,
        graph: &Graph,
        columns: &[Vec<f32>],
    ) -> Result<Self, Error> {
        Ok(self.with(EdgeFeatures::new::<f32>(backend, graph, (columns, false))?))
    }

    /// With columns of features of edges that are kept as a row of elements for each edge: for layers whose messages
    /// are computed from them, such as GINE's.
    ///
    /// # Errors
    /// Those of [`Propagation::with_edge_features`].
    pub fn with_edge_rows<E: Element>(
        self,
        backend: &B,
        graph: &Graph,
        columns: &[Vec<f32>],
    ) -> Result<Self, Error> {
        Ok(self.with(EdgeFeatures::new::<E>(backend, graph, (columns, true))?))
    }

    /// The same with these features of edges.
    pub(super) fn with(self, features: EdgeFeatures<B>) -> Self {
        Self {
            edge_features: Some(features),
            ..self
        }
    }

    /// Features of edges, if there are some.
    pub fn edge_features(&self) -> Option<&EdgeFeatures<B>> {
        self.edge_features.as_ref()
    }

    /// The factor of each edge, of a [weighted](Propagation::weighted) graph.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the weights are kept in another precision.
    pub fn edge_factors<E: Element>(&self) -> Result<Option<EdgeFactors<'_, B, E>>, Error> {
        let Some(weights) = &self.weights else {
            return Ok(None);
        };
        match weights.arrays.downcast_ref::<[Arc<Array<B, E>>; 2]>() {
            Some([forward, backward]) => Ok(Some(EdgeFactors {
                forward,
                backward,
                scale: weights.scale,
            })),
            None => Err(Error::Unsupported {
                operator: WEIGHTED,
                reason: format!(
                    "the weights of the edges are kept in {}, and the model computes in {}; make the graph for the model's precision",
                    weights.precision,
                    E::PRECISION
                ),
            }),
        }
    }

    /// Copies edges between vertices of two kinds and the factors of `norm` to the backend: a row for each destination,
    /// a column for each source. Destinations are no sources, so a layer that reads their own rows cannot take such
    /// edges.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for [`Norm::In`], which needs in-degrees of sources, and [`Error::Driver`] where there is
    /// not enough memory.
    pub fn bipartite(backend: &B, edges: &graph::Csr, norm: Norm) -> Result<Self, Error> {
        if norm == Norm::In {
            return Err(Error::Unsupported {
                operator: "Propagation::bipartite",
                reason:
                    "the norm `in` needs in-degrees of sources, and these have none; take `both`"
                        .into(),
            });
        }
        let degrees = [edges.row_degrees(), edges.column_degrees()];
        let pair = Edges::Pair([
            Adjacency::new(backend, edges)?,
            Adjacency::new(backend, &edges.transposed())?,
        ]);
        Self::of_edges(backend, pair, [&degrees[0], &degrees[1]], norm)
    }

    /// Copies `block` and the factors of `norm` to the backend: the graph of one layer of a model.
    ///
    /// # Errors
    /// [`Error::Shape`] where there is not a degree for each destination and each source; [`Error::Unsupported`] for
    /// [`Norm::In`] of the block's own degrees, because sources have none; [`Error::Driver`] where there is not enough
    /// memory.
    pub fn of_block(
        backend: &B,
        block: &graph::Block,
        norm: Norm,
        degrees: Degrees<'_>,
    ) -> Result<Self, Error> {
        const NAME: &str = "Propagation::of_block";
        let csr = block.csr();
        let (own_rows, own_columns);
        let [rows, columns] = match degrees {
            Degrees::OfBlock if norm == Norm::In => return Err(no_in_degrees(NAME)),
            Degrees::OfBlock => {
                own_rows = csr.row_degrees();
                own_columns = csr.column_degrees();
                [&own_rows[..], &own_columns[..]]
            }
            Degrees::OfGraph { rows, columns } => [rows, columns],
        };
        let (destinations, sources) = (block.destinations(), block.sources());
        Error::expect(NAME, "degrees of destinations", destinations, rows.len())?;
        Error::expect(NAME, "degrees of sources", sources, columns.len())?;
        let edges = Edges::Block(Block::new(backend, block)?);
        Self::of_edges(backend, edges, [rows, columns], norm)
    }

    /// A block that was sampled on the device, with the factors of `norm` of its own degrees, as a sampled mean
    /// requires. The out-degree of a source counts the destinations in the block. Nothing of it is copied.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for [`Norm::In`], since sources have no in-degrees in a block; [`Error::Driver`] where
    /// there is not enough memory.
    pub fn of_sampled(backend: &B, block: Block<B>, norm: Norm) -> Result<Self, Error> {
        let factors = |a: &Adjacency<B>, power| {
            ops::degree_factors(backend, a, power).map(|factors| Some(Arc::new(factors)))
        };
        let rows = block.forward();
        // Such a block has no transpose.
        if block.own().is_some() && matches!(norm, Norm::Both | Norm::Left) {
            return Err(Error::Unsupported {
                operator: "Propagation::of_sampled",
                reason: "the out-degrees of sources are not known in a block whose sources are all vertices of a graph; take the norm `right`, or sample the block with the sources that it meets".into(),
            });
        }
        let (mut row_scale, mut column_scale) = (None, None);
        match norm {
            Norm::In => return Err(no_in_degrees("Propagation::of_sampled")),
            Norm::Both => {
                row_scale = factors(rows, DegreePower::InverseRoot)?;
                column_scale = factors(block.backward(backend)?, DegreePower::InverseRoot)?;
            }
            Norm::Right => row_scale = factors(rows, DegreePower::Inverse)?,
            Norm::Left => column_scale = factors(block.backward(backend)?, DegreePower::Inverse)?,
            Norm::None => {}
        }
        Ok(Self {
            largest_degree: rows.longest_row(),
            edges: Edges::Block(block),
            row_scale,
            column_scale,
            makes_means: norm == Norm::Right,
            row_divisor: OnceLock::new(),
            weights: None,
            edge_features: None,
            halo: None,
            members: None,
        })
    }

    /// Which sources the destinations are, where those are not the first: see [`Block::own`].
    pub fn own(&self) -> Option<&Array<B, u32>> {
        match &self.edges {
            Edges::Block(block) => block.own(),
            Edges::Graph(_) | Edges::Pair(_) | Edges::Forward(_) => None,
        }
    }

    /// The block, to be sampled again; [`Propagation::renew_factors`] follows.
    pub(crate) fn block_mut(&mut self) -> Option<&mut Block<B>> {
        match &mut self.edges {
            Edges::Block(block) => Some(block),
            Edges::Graph(_) | Edges::Pair(_) | Edges::Forward(_) => None,
        }
    }

    /// Recomputes the factors of `norm` for a block that was sampled again into the same memory: see
    /// [`Propagation::of_sampled`].
    pub(crate) fn renew_factors(&mut self, backend: &B, norm: Norm) -> Result<(), Error> {
        let Edges::Block(block) = &self.edges else {
            return Ok(());
        };
        let power = match norm {
            Norm::Both => DegreePower::InverseRoot,
            _ => DegreePower::Inverse,
        };
        let renew = |factors: Option<&mut Arc<Array<B, f32>>>, a: &Adjacency<B>, power| {
            let Some(factors) = factors else {
                return Ok(());
            };
            match Arc::get_mut(factors) {
                Some(factors) => ops::renew_degree_factors(backend, a, power, factors),
                None => {
                    // The old factors are still in use elsewhere.
                    *factors = Arc::new(ops::degree_factors(backend, a, power)?);
                    Ok(())
                }
            }
        };
        let (rows, divisor) = (block.forward(), self.row_divisor.get_mut());
        renew(self.row_scale.as_mut(), rows, power)?;
        renew(divisor, rows, DegreePower::Degree)?;
        if self.column_scale.is_some() {
            renew(self.column_scale.as_mut(), block.backward(backend)?, power)?;
        }
        Ok(())
    }

    /// The part of a graph between some of its vertices. Its edges have the factors of `factors` in place of a degree
    /// norm. Nothing of it is copied.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn of_induced<E: Element>(
        backend: &B,
        subgraph: InducedSubgraph<B>,
        factors: &GraphFactors<B, E>,
    ) -> Result<Self, Error> {
        let array = || Array::uninit(backend, subgraph.edges.len(), MemoryKind::Graph);
        let (mut forward, mut backward) = (array()?, array()?);
        ops::take_values(backend, &factors.values, &subgraph.edges, &mut forward)?;
        ops::take_values(backend, &forward, &subgraph.transposed, &mut backward)?;
        Ok(Self {
            largest_degree: factors.largest,
            edges: Edges::Block(subgraph.block),
            row_scale: None,
            column_scale: None,
            makes_means: false,
            row_divisor: OnceLock::new(),
            weights: Some(Weights {
                arrays: Box::new([Arc::new(forward), Arc::new(backward)]),
                precision: E::PRECISION,
                scale: factors.scale,
            }),
            edge_features: None,
            halo: None,
            members: None,
        })
    }

    /// A part of a graph, with what `factors` of the whole graph gives its edges. Every layer's graph is this one.
    ///
    /// # Errors
    /// [`Error::Shape`] where the part is of another graph, and [`Error::Driver`] where there is not enough memory.
    pub fn of_part<E: Element>(
        backend: &B,
        part: &Part,
        factors: &PartFactors<E>,
    ) -> Result<Self, Error> {
        let edges = Edges::Block(Block::new(backend, part.block())?);
        Self::of_part_edges(backend, edges, part, factors)
    }

    /// The same without what only gradients need: the transpose, and weights in its order.
    pub(super) fn of_part_forward<E: Element>(
        backend: &B,
        part: &Part,
        factors: &PartFactors<E>,
    ) -> Result<Self, Error> {
        let edges = Edges::Forward(Adjacency::new(backend, part.block().csr())?);
        Self::of_part_edges(backend, edges, part, factors)
    }

    /// With the factors of a part.
    fn of_part_edges<E: Element>(
        backend: &B,
        edges: Edges<B>,
        part: &Part,
        factors: &PartFactors<E>,
    ) -> Result<Self, Error> {
        const NAME: &str = "Propagation::of_part";
        let vertices = factors.rows.len();
        expect_all(NAME, "vertices of the graph", part.vertices(), vertices)?;
        let of = |degrees: &[u32], vertices: &[u32]| -> Vec<u32> {
            let degree = |&vertex: &u32| degrees.get(vertex as usize).copied().unwrap_or(0);
            vertices.iter().map(degree).collect()
        };
        let weights = match &factors.weights {
            None => None,
            Some((values, scale)) => {
                expect_all(NAME, "edges of the graph", part.edges(), values.len())?;
                let value = |&edge: &u32| values[edge as usize];
                let forward: Vec<E> = part.edges().iter().map(value).collect();
                let upload = |values: &[E]| {
                    Array::from_slice(backend, values, MemoryKind::Graph).map(Arc::new)
                };
                let along = upload(&forward)?;
                let against = match edges {
                    // There are no edges to which they would belong.
                    Edges::Forward(_) => Arc::clone(&along),
                    _ => {
                        let against = part.against().into_iter();
                        let values: Vec<E> = against.map(|edge| forward[edge as usize]).collect();
                        upload(&values)?
                    }
                };
                Some(Weights {
                    arrays: Box::new([along, against]),
                    precision: E::PRECISION,
                    scale: *scale,
                })
            }
        };
        let rows = of(&factors.rows, part.own());
        let columns = of(&factors.columns, part.vertices());
        Ok(Self {
            largest_degree: factors.largest,
            weights,
            ..Self::of_edges(backend, edges, [&rows, &columns], factors.norm)?
        })
    }

    /// What a rank of `group` has of a graph: [`Propagation::of_part`], and the exchanges.
    ///
    /// # Errors
    /// Those of [`Propagation::of_part`] and [`Halo::new`].
    pub fn of_shard<E: Element>(
        backend: &B,
        factors: &PartFactors<E>,
        (shard, group): (&Shard, &Group),
    ) -> Result<Self, Error> {
        Ok(Self {
            halo: Some(Halo::new(backend, shard, group)?),
            ..Self::of_part(backend, &shard.part, factors)?
        })
    }

    /// The exchanges around a layer, of a [shard](Propagation::of_shard).
    pub fn halo(&self) -> Option<&Halo<B>> {
        self.halo.as_ref()
    }

    /// With the factors that `norm` makes of the degrees of rows, and of columns where it has those.
    fn of_edges(
        backend: &B,
        edges: Edges<B>,
        [rows, columns]: [&[u32]; 2],
        norm: Norm,
    ) -> Result<Self, Error> {
        let upload = |degrees: &[u32], factor: fn(u32) -> f64| {
            let factors: Vec<f32> = degrees
                .iter()
                .map(|&degree| factor(degree) as f32)
                .collect();
            Array::from_slice(backend, &factors, MemoryKind::Graph).map(Arc::new)
        };
        let inverse: fn(u32) -> f64 = |degree| 1.0 / f64::from(degree.max(1));
        let inverse_root: fn(u32) -> f64 = match norm {
            // Of no edges PyG's is infinite, and then 0.
            Norm::In => |degree| match degree {
                0 => 0.0,
                degree => 1.0 / f64::from(degree).sqrt(),
            },
            _ => |degree| 1.0 / f64::from(degree.max(1)).sqrt(),
        };
        let (row_scale, column_scale) = match norm {
            Norm::Both | Norm::In => {
                let row_scale = upload(rows, inverse_root)?;
                let column_scale = if rows == columns {
                    Arc::clone(&row_scale)
                } else {
                    upload(columns, inverse_root)?
                };
                (Some(row_scale), Some(column_scale))
            }
            Norm::Right => (Some(upload(rows, inverse)?), None),
            Norm::Left => (None, Some(upload(columns, inverse)?)),
            Norm::None => (None, None),
        };
        let makes_means = norm == Norm::Right;
        let row_divisor = match makes_means {
            true => OnceLock::from(upload(rows, |degree| degree.max(1).into())?),
            false => OnceLock::new(),
        };
        Ok(Self {
            edges,
            row_scale,
            column_scale,
            makes_means,
            row_divisor,
            largest_degree: rows.iter().copied().max().unwrap_or(0),
            weights: None,
            edge_features: None,
            halo: None,
            members: None,
        })
    }

    /// The arrays of a graph of `counts` and of the factors of `norm`, with nothing in them: for a backend that only
    /// counts memory.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub(crate) fn counted<E: Element>(
        backend: &B,
        counts: &GraphCounts,
        norm: Norm,
    ) -> Result<Self, Error> {
        let norm = if counts.weighted { Norm::None } else { norm };
        let values =
            || Array::<B, E>::zeros(backend, counts.forward.edges, MemoryKind::Graph).map(Arc::new);
        let weights = match counts.weighted {
            // Whether weights are symmetric is not known.
            true => Some(Weights {
                arrays: Box::new([values()?, values()?]),
                precision: E::PRECISION,
                scale: 1.0,
            }),
            false => None,
        };
        let factors = |count: usize| {
            Array::zeros(backend, count, MemoryKind::Graph).map(|factors| Some(Arc::new(factors)))
        };
        let (of_rows, of_columns) = (counts.forward.rows, counts.forward.columns);
        let mut row_divisor = OnceLock::new();
        let (row_scale, column_scale) = match norm {
            Norm::Both | Norm::In => {
                let rows = factors(of_rows)?;
                let same = counts.balanced || norm == Norm::In && of_rows == of_columns;
                let columns = if same {
                    rows.clone()
                } else {
                    factors(of_columns)?
                };
                (rows, columns)
            }
            Norm::Right => {
                row_divisor = factors(of_rows)?.map_or_else(OnceLock::new, OnceLock::from);
                (factors(of_rows)?, None)
            }
            Norm::Left => (None, factors(of_columns)?),
            Norm::None => (None, None),
        };
        Ok(Self {
            edges: Edges::Graph(DeviceGraph::counted(backend, counts)?),
            row_scale,
            column_scale,
            makes_means: norm == Norm::Right,
            row_divisor,
            largest_degree: counts.forward.longest,
            weights,
            edge_features: match counts.edge_features {
                0 => None,
                _ => Some(EdgeFeatures::counted::<E>(backend, counts)?),
            },
            halo: None,
            members: None,
        })
    }

    /// The same for a rank's shard, with its exchanges; `counts` are [those](Shard::counts_of_block) of the shard's
    /// block.
    pub(crate) fn counted_shard<E: Element>(
        backend: &B,
        counts: &GraphCounts,
        norm: Norm,
        (shard, group): (&Shard, &Group),
    ) -> Result<Self, Error> {
        Ok(Self {
            halo: Some(Halo::new(backend, shard, group)?),
            ..Self::counted::<E>(backend, counts, norm)?
        })
    }

    /// Whether destinations are sources as well, and so have rows of their own in what is read.
    pub(crate) fn has_own_rows(&self) -> bool {
        !matches!(self.edges, Edges::Pair(_))
    }

    /// The adjacency: row `i` lists the in-neighbours of destination `i`.
    pub fn forward(&self) -> &Adjacency<B> {
        match &self.edges {
            Edges::Graph(graph) => graph.forward(),
            Edges::Block(block) => block.forward(),
            Edges::Pair([forward, _]) => forward,
            Edges::Forward(forward) => forward,
        }
    }

    /// The transposed adjacency, along which gradients flow.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a graph in [pieces](super::Pieces), which is only evaluated; those of
    /// [`Block::backward`].
    pub fn backward(&self, backend: &B) -> Result<&Adjacency<B>, Error> {
        match &self.edges {
            Edges::Graph(graph) => Ok(graph.backward()),
            Edges::Block(block) => block.backward(backend),
            Edges::Pair([_, backward]) => Ok(backward),
            Edges::Forward(_) => Err(Error::Unsupported {
                operator: "Propagation::backward",
                reason: "a piece of a graph is made to be evaluated, and has no edges against their direction; train on the whole graph, or on batches".into(),
            }),
        }
    }

    /// The factor of each destination's sum; none where [edges](Propagation::edge_factors) have it.
    pub fn row_scale(&self) -> Option<&Array<B, f32>> {
        self.row_scale.as_deref()
    }

    /// The factor of each source's row; none where [edges](Propagation::edge_factors) have it.
    pub fn column_scale(&self) -> Option<&Array<B, f32>> {
        self.column_scale.as_deref()
    }

    /// [`Propagation::column_scale`], or only that of the destinations, where ranks exchange
    /// [quantized values](Propagation::exchanges_codes) or products. In that case edges go both ways, so a vertex'
    /// factors as row and as column are equal.
    pub(crate) fn sent_scale(&self, of_destinations: bool) -> Option<&Array<B, f32>> {
        let sent = self.column_scale();
        match of_destinations {
            true => sent.and(self.row_scale()),
            false => sent,
        }
    }

    /// Whether ranks can exchange quantized inputs of aggregations in both directions. Edges must go both ways and have
    /// no factors of their own, and the factors of sources must be those of the own rows.
    pub(crate) fn exchanges_codes(&self) -> bool {
        let mutual = self.halo.as_ref().is_some_and(Halo::is_mutual);
        mutual && self.has_sent_scale() && self.weights.is_none()
    }

    /// Whether a rank has the source factors of its own rows separately from those of others: those of
    /// [`Propagation::sent_scale`].
    pub(super) fn has_sent_scale(&self) -> bool {
        let mutual = self.halo.as_ref().is_some_and(Halo::is_mutual);
        self.column_scale.is_none() || (mutual && self.row_scale.is_some())
    }

    /// The reciprocals of [`Propagation::row_scale`] where that makes means, with [`Norm::Right`]: the degrees. Those
    /// of a sampled block are made on first use.
    ///
    /// # Errors
    /// Those of the device.
    pub fn row_divisor(&self, backend: &B) -> Result<Option<&Array<B, f32>>, Error> {
        if !self.makes_means {
            return Ok(None);
        }
        if self.row_divisor.get().is_none() {
            let made = ops::degree_factors(backend, self.forward(), DegreePower::Degree)?;
            // Another thread's would be the same.
            let _ = self.row_divisor.set(Arc::new(made));
        }
        Ok(self.row_divisor.get().map(|divisor| &**divisor))
    }

    /// Whether edges have weights.
    pub(crate) fn is_weighted(&self) -> bool {
        self.weights.is_some()
    }

    /// The most edges that a row has.
    pub fn largest_degree(&self) -> u32 {
        self.largest_degree
    }

    /// With another number for the most edges of a row: that of a graph that this is a part of.
    pub(crate) fn with_largest_degree(self, largest_degree: u32) -> Self {
        Self {
            largest_degree,
            ..self
        }
    }

    /// The same as an adjacency that pools graphs, which start at these vertices.
    pub(super) fn of_members(self, starts: &[u32]) -> Self {
        Self {
            members: Some(Members {
                starts: starts.to_vec(),
                groups: OnceLock::new(),
            }),
            ..self
        }
    }

    /// The rows of each graph's vertices, of an adjacency that pools them; copied to the backend on first use.
    ///
    /// # Errors
    /// Those of [`RowGroups::new`].
    pub(crate) fn row_groups(&self, backend: &B) -> Result<Option<&RowGroups<B>>, Error> {
        let Some(members) = &self.members else {
            return Ok(None);
        };
        if members.groups.get().is_none() {
            // Another thread's would be the same.
            let _ = members
                .groups
                .set(RowGroups::new(backend, &members.starts)?);
        }
        Ok(members.groups.get())
    }

    /// The number of destinations: rows of a layer's output.
    pub fn destinations(&self) -> usize {
        self.forward().rows()
    }

    /// The number of sources: rows of a layer's input.
    pub fn sources(&self) -> usize {
        self.forward().columns()
    }
}
