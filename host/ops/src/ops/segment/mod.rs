//! Segment reductions: a number a row from the values of its edges.

pub(crate) mod cpu;
pub(crate) mod gpu;

use super::check::{expect_edges, expect_heads, expect_vertices};
use super::{Checked, Operator};
use crate::backend::{Adjacency, MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element};

/// A number a row from the values of its edges: their sum, added up in float in a fixed order, or their maximum.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit the graph, [`Error::Unsupported`] for a maximum of anything but plain
/// values, for no heads or too many.
pub fn segment_reduce<B: SegmentOperators, E: Element>(
    backend: &B,
    a: &Adjacency<B>,
    heads: usize,
    reduction: SegmentReduction,
    values: &EdgeValues<'_, B, E>,
    result: &mut Array<B, f32>,
) -> Result<(), Error> {
    let operands = SegmentReduceOperands {
        a,
        heads,
        reduction,
        values,
        result,
    };
    backend.segment_reduce(Checked::new(operands)?)
}

/// What a segment reduction makes of the values of a row's edges.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SegmentReduction {
    /// The sum, in float; 0 of a row without edges.
    Sum,
    /// The largest, NaN if there is one; −∞ of a row without edges.
    Max,
}

/// The values that a segment reduction reduces: planes of edges.
#[derive(Debug)]
pub enum EdgeValues<'a, B: Storage, E: Element> {
    /// A value an edge.
    Plane(&'a Array<B, E>),
    /// The product of two, not rounded.
    Product(&'a Array<B, E>, &'a Array<B, E>),
    /// The value of another edge, that which the map names: values of one edge order, reduced in the other.
    Gathered(&'a Array<B, E>, &'a EdgeMap<B>),
}

/// For each edge the number of another: that of the same edge in the transposed order, for one
/// ([`Graph::edge_map`](crate::graph::Graph::edge_map)). Every number is an edge's, which is checked where a map is
/// made, since kernels read where it says.
#[derive(Debug)]
pub struct EdgeMap<B: Storage> {
    edges: Array<B, u32>,
}

impl<B: Storage> EdgeMap<B> {
    /// The map that takes edge `k` to edge `edges[k]`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a number that is no edge's, [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, edges: &[u32]) -> Result<Self, Error> {
        if let Some(at) = edges.iter().position(|&edge| edge as usize >= edges.len()) {
            return Err(Error::Unsupported {
                operator: "EdgeMap::new",
                reason: format!(
                    "entry {at} is {}, and there are {} edges",
                    edges[at],
                    edges.len()
                ),
            });
        }
        Ok(Self {
            edges: Array::from_slice(backend, edges, MemoryKind::Graph)?,
        })
    }

    /// The map of a permutation, such as an order that a sort has made of as many numbers.
    pub(crate) fn of_permutation(edges: Array<B, u32>) -> Self {
        Self { edges }
    }

    /// The numbers, after all work on the backend is done.
    ///
    /// # Errors
    /// [`Error::Driver`] with the failure of an earlier operator, if one failed.
    pub fn to_vec(&self, backend: &B) -> Result<Vec<u32>, Error> {
        self.edges.to_vec(backend)
    }

    /// The numbers, as they lie on the backend.
    pub fn into_array(self) -> Array<B, u32> {
        self.edges
    }

    /// Number of edges.
    pub fn len(&self) -> usize {
        self.edges.len()
    }

    /// Whether there is no edge.
    pub fn is_empty(&self) -> bool {
        self.edges.is_empty()
    }

    /// The numbers.
    pub(crate) fn edges(&self) -> &Array<B, u32> {
        &self.edges
    }
}

/// Operands of [`segment_reduce`].
#[derive(Debug)]
pub struct SegmentReduceOperands<'a, B: Storage, E: Element> {
    /// The graph.
    pub a: &'a Adjacency<B>,
    /// Number of heads.
    pub heads: usize,
    /// What is made of the values of a row.
    pub reduction: SegmentReduction,
    /// The values of the edges.
    pub values: &'a EdgeValues<'a, B, E>,
    /// Becomes a number a row and head.
    pub result: &'a mut Array<B, f32>,
}

impl<B: Storage, E: Element> Operator for SegmentReduceOperands<'_, B, E> {
    const NAME: &'static str = "segment_reduce";

    fn check(&self) -> Result<(), Error> {
        let (a, heads) = (self.a, self.heads);
        expect_heads(Self::NAME, heads)?;
        expect_vertices(Self::NAME, "result", heads, a.rows(), self.result)?;
        match self.values {
            EdgeValues::Plane(plane) => expect_edges(Self::NAME, "edge values", heads, a, plane)?,
            EdgeValues::Product(plane, factors) => {
                expect_edges(Self::NAME, "edge values", heads, a, plane)?;
                expect_edges(Self::NAME, "edge factors", heads, a, factors)?;
            }
            EdgeValues::Gathered(plane, map) => {
                expect_edges(Self::NAME, "edge values", heads, a, plane)?;
                Error::expect(Self::NAME, "edge map", a.edges(), map.len())?;
            }
        }
        if self.reduction == SegmentReduction::Max && !matches!(self.values, EdgeValues::Plane(_)) {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "maxima are of plain values only, not of products or gathered ones".into(),
            });
        }
        Ok(())
    }
}

/// Segment reductions.
pub trait SegmentOperators: Storage {
    /// Reduces the values of the edges of each row.
    ///
    /// # Errors
    /// Those of the device.
    fn segment_reduce<E: Element>(
        &self,
        operands: Checked<SegmentReduceOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
