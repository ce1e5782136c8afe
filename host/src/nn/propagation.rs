//! The graph as a model sees it: edges on a backend, and degree norms.

use crate::backend::{Adjacency, Backend, DeviceGraph, MemoryKind};
use crate::error::Error;
use crate::graph::{Graph, GraphCounts};
use crate::tensor::Array;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::sync::Arc;

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

/// A graph on a backend with the factors of its degree norm: the matrix `R · A · C` whose diagonal `R` scales what a
/// vertex has summed up and whose diagonal `C` scales what it sends.
#[derive(Debug)]
pub struct Propagation<B: Backend> {
    graph: DeviceGraph<B>,
    row_scale: Option<Arc<Array<B, f32>>>,
    column_scale: Option<Arc<Array<B, f32>>>,
    row_divisor: Option<Arc<Array<B, f32>>>,
    largest_degree: u32,
}

impl<B: Backend> Propagation<B> {
    /// Copies `graph` and the factors of `norm` to the backend. Self-loops are the caller's to add.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, graph: &Graph, norm: Norm) -> Result<Self, Error> {
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
                let (rows, columns) = (graph.in_degrees(), graph.out_degrees());
                let row_scale = upload(&rows, inverse_root)?;
                let column_scale = if rows == columns {
                    Arc::clone(&row_scale)
                } else {
                    upload(&columns, inverse_root)?
                };
                (Some(row_scale), Some(column_scale))
            }
            Norm::Right => (Some(upload(&graph.in_degrees(), inverse)?), None),
            Norm::Left => (None, Some(upload(&graph.out_degrees(), inverse)?)),
            Norm::None => (None, None),
        };
        let row_divisor = match norm {
            Norm::Right => Some(upload(&graph.in_degrees(), |degree| degree)?),
            Norm::Both | Norm::Left | Norm::None => None,
        };
        Ok(Self {
            graph: DeviceGraph::new(backend, graph)?,
            row_scale,
            column_scale,
            row_divisor,
            largest_degree: graph.in_degrees().into_iter().max().unwrap_or(0),
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
            graph: DeviceGraph::counted(backend, counts)?,
            row_scale,
            column_scale,
            row_divisor,
            largest_degree: counts.forward.longest,
        })
    }

    /// The adjacency: row `i` lists the vertices that `i` hears from.
    pub fn forward(&self) -> &Adjacency<B> {
        self.graph.forward()
    }

    /// The transposed adjacency, along which gradients flow.
    pub fn backward(&self) -> &Adjacency<B> {
        self.graph.backward()
    }

    /// Factor of what each vertex has summed up.
    pub fn row_scale(&self) -> Option<&Array<B, f32>> {
        self.row_scale.as_deref()
    }

    /// Factor of what each vertex sends.
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

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        self.graph.vertices()
    }
}
