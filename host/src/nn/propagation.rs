//! The graph as a model sees it: edges on a backend, and degree norms.

use crate::backend::{Adjacency, Backend, Block, DeviceGraph, MemoryKind};
use crate::error::Error;
use crate::graph::{self, Csr, Graph, GraphCounts};
use crate::tensor::Array;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::{Arc, OnceLock};

/// Degree norm of an aggregation (HalfGNN eq. 1): which powers of the degrees scale its input and output.
///
/// `D_in` counts the edges of a row, `D_out` those of a column. A degree of 0 counts as 1: nothing is there to be scaled.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Norm {
    /// `D_in^-1/2 · A · D_out^-1/2`, symmetric (Kipf and Welling, ICLR 2017).
    #[default]
    Both,
    /// `D_in^-1 · A`: the mean of the neighbours.
    Right,
    /// `A · D_out^-1`.
    Left,
    /// `A`: the sum.
    None,
}

impl fmt::Display for Norm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Norm::Both => "both",
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
        /// Edges of each source's column.
        columns: &'a [u32],
    },
}

/// A graph or a block on a backend with the factors of its degree norm: the matrix `R · A · C` whose diagonal `R` scales what
/// a vertex has summed up and whose diagonal `C` scales what it sends.
///
/// Rows are destinations, columns are sources. Of a graph both are its vertices; of a block the destinations are the first
/// sources.
#[derive(Debug)]
pub struct Propagation<B: Backend> {
    edges: Edges<B>,
    row_scale: Option<Arc<Array<B, f32>>>,
    column_scale: Option<Arc<Array<B, f32>>>,
    row_divisor: Option<Arc<Array<B, f32>>>,
    largest_degree: u32,
}

#[derive(Debug)]
enum Edges<B: Backend> {
    Graph(DeviceGraph<B>),
    Block(Box<BlockEdges<B>>),
}

#[derive(Debug)]
struct BlockEdges<B: Backend> {
    block: Block<B>,
    host: Csr,
    /// See [`Propagation::square`].
    square: OnceLock<Block<B>>,
}

impl<B: Backend> Propagation<B> {
    /// Copies `graph` and the factors of `norm` to the backend. Self-loops are the caller's to add.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, graph: &Graph, norm: Norm) -> Result<Self, Error> {
        let edges = Edges::Graph(DeviceGraph::new(backend, graph)?);
        let degrees = [graph.in_degrees(), graph.out_degrees()];
        Self::of_edges(backend, edges, [&degrees[0], &degrees[1]], norm)
    }

    /// Copies `block` and the factors of `norm` to the backend: the graph of one layer of a model.
    ///
    /// # Errors
    /// [`Error::Shape`] where there is not a degree for each destination and each source, [`Error::Driver`] where there is not
    /// enough memory.
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
            Degrees::OfBlock => {
                own_rows = csr.row_degrees();
                let mut counts = vec![0; block.sources()];
                csr.cols()
                    .iter()
                    .for_each(|&column| counts[column as usize] += 1);
                own_columns = counts;
                [&own_rows[..], &own_columns[..]]
            }
            Degrees::OfGraph { rows, columns } => [rows, columns],
        };
        let (destinations, sources) = (block.destinations(), block.sources());
        Error::expect(NAME, "degrees of destinations", destinations, rows.len())?;
        Error::expect(NAME, "degrees of sources", sources, columns.len())?;
        let edges = BlockEdges {
            block: Block::new(backend, block)?,
            host: csr.clone(),
            square: OnceLock::new(),
        };
        let edges = Edges::Block(Box::new(edges));
        Self::of_edges(backend, edges, [rows, columns], norm)
    }

    /// With the factors that `norm` makes of the degrees of rows and of columns.
    fn of_edges(
        backend: &B,
        edges: Edges<B>,
        [rows, columns]: [&[u32]; 2],
        norm: Norm,
    ) -> Result<Self, Error> {
        let upload = |degrees: &[u32], factor: fn(f64) -> f64| {
            let factors: Vec<f32> = degrees
                .iter()
                .map(|&degree| factor(degree.max(1).into()) as f32)
                .collect();
            Array::from_slice(backend, &factors, MemoryKind::Graph).map(Arc::new)
        };
        let inverse: fn(f64) -> f64 = |degree| 1.0 / degree;
        let inverse_root: fn(f64) -> f64 = |degree| 1.0 / degree.sqrt();
        let (row_scale, column_scale) = match norm {
            Norm::Both => {
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
        let row_divisor = match norm {
            Norm::Right => Some(upload(rows, |degree| degree)?),
            Norm::Both | Norm::Left | Norm::None => None,
        };
        Ok(Self {
            edges,
            row_scale,
            column_scale,
            row_divisor,
            largest_degree: rows.iter().copied().max().unwrap_or(0),
        })
    }

    /// The arrays of a graph of `counts` and of the factors of `norm`, with nothing in them: for a backend that only counts
    /// memory.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub(crate) fn counted(backend: &B, counts: &GraphCounts, norm: Norm) -> Result<Self, Error> {
        let factors = || {
            Array::zeros(backend, counts.vertices(), MemoryKind::Graph)
                .map(|factors| Some(Arc::new(factors)))
        };
        let (row_scale, column_scale, row_divisor) = match norm {
            Norm::Both => {
                let rows = factors()?;
                let columns = if counts.balanced {
                    rows.clone()
                } else {
                    factors()?
                };
                (rows, columns, None)
            }
            Norm::Right => (factors()?, None, factors()?),
            Norm::Left => (None, factors()?, None),
            Norm::None => (None, None, None),
        };
        Ok(Self {
            edges: Edges::Graph(DeviceGraph::counted(backend, counts)?),
            row_scale,
            column_scale,
            row_divisor,
            largest_degree: counts.forward.longest,
        })
    }

    /// The adjacency: row `i` lists the sources that destination `i` hears from.
    pub fn forward(&self) -> &Adjacency<B> {
        match &self.edges {
            Edges::Graph(graph) => graph.forward(),
            Edges::Block(of) => of.block.forward(),
        }
    }

    /// The transposed adjacency, along which gradients flow.
    pub fn backward(&self) -> &Adjacency<B> {
        match &self.edges {
            Edges::Graph(graph) => graph.backward(),
            Edges::Block(of) => of.block.backward(),
        }
    }

    /// The adjacency and its transpose with a row for each source, for operators that know no other. What only is heard has a
    /// row without edges. Of a block they are made the first time, and kept.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory, or where operators are recorded: what a recorded step wants is made
    /// by a step before it.
    pub fn square(&self, backend: &B) -> Result<[&Adjacency<B>; 2], Error> {
        let (host, square) = match &self.edges {
            Edges::Graph(graph) => return Ok([graph.forward(), graph.backward()]),
            Edges::Block(of) => (&of.host, &of.square),
        };
        let square = match square.get() {
            Some(square) => square,
            None => {
                let mut offsets = host.offsets().to_vec();
                offsets.resize(self.sources() + 1, host.edges() as u64);
                let csr = Csr::from_offsets(offsets, host.cols().to_vec())?;
                let made = Block::new(backend, &graph::Block::new(csr)?)?;
                square.get_or_init(|| made)
            }
        };
        Ok([square.forward(), square.backward()])
    }

    /// Factor of what each destination has summed up.
    pub fn row_scale(&self) -> Option<&Array<B, f32>> {
        self.row_scale.as_deref()
    }

    /// Factor of what each source sends.
    pub fn column_scale(&self) -> Option<&Array<B, f32>> {
        self.column_scale.as_deref()
    }

    /// The reciprocals of [`Propagation::row_scale`] where that makes means, with [`Norm::Right`]: the degrees.
    pub fn row_divisor(&self) -> Option<&Array<B, f32>> {
        self.row_divisor.as_deref()
    }

    /// The most edges that a row has.
    pub fn largest_degree(&self) -> u32 {
        self.largest_degree
    }

    /// Number of vertices that hear: rows of a layer's output.
    pub fn destinations(&self) -> usize {
        self.forward().rows()
    }

    /// Number of vertices that are heard: rows of a layer's input.
    pub fn sources(&self) -> usize {
        self.forward().columns()
    }
}
