//! Graphs as the kernels read them: coordinates in row order, row offsets, and the transpose.
//!
//! Row = destination, column = source: an SpMM computes y\[r\] = Σ x\[c\] over the columns c of row r, so the
//! row of a vertex lists its in-neighbors.
//!
//! ```text
//!   in-neighbors:  of vertex 0: 2;  of 1: 0 and 3;  of 2: none;  of 3: 1, twice
//!
//!            cols                       edge     0  1  2  3  4
//!          0 1 2 3                      rows   │ 0│ 1  1│ 3  3│     COO: for edge-parallel kernels
//!  rows 0  . . 1 .                      cols   │ 2│ 0  3│ 1  1│
//!       1  1 . . 1          ──►                 ▲  ▲    ▲▲     ▲
//!       2  . . . .                     offsets  0  1    33     5    CSR: for row-parallel kernels
//!       3  . 2 . .
//! ```
//! GNNOne calls this "COO arranged as CSR"; HalfGNN's kernels take their work from the edges, whatever the degrees, and
//! know where rows start by the row ids or by [`Starts`]. Edges are sorted by row, then by column; duplicates are legal
//! edges.
//!
//! - [`Csr`]: the arrays, checked when made and never changed; the rows are made at the first request.
//! - [`Graph`]: a [`Csr`], and what follows from it, made when first asked for: whether it is symmetric, its
//!   [`Transpose`], the map between the two edge orders.
//! - [`generate`]: graphs from a seed, the same on every machine.
//!
//! ```
//! use halfgnn_graph::Graph;
//!
//! let graph = Graph::from_edges(4, &[0, 1, 1, 3, 3], &[2, 0, 3, 1, 1])?;
//! assert_eq!(graph.offsets(), [0, 1, 3, 3, 5]);
//! assert_eq!(graph.in_degrees(), [1, 2, 0, 2]);
//! assert_eq!(graph.transposed().row(1), [3, 3]);
//! assert!(!graph.is_symmetric());
//! # Ok::<(), halfgnn_graph::GraphError>(())
//! ```

mod block;
mod columns;
mod coo;
mod counts;
mod csr;
mod degree;
mod edge_blocks;
mod edit;
mod error;
mod frdc;
pub mod generate;
pub mod index;
#[doc(hidden)] // for the workspace's other crates
pub mod parallel;
mod part;
pub mod reorder;
pub(crate) mod sort;
mod starts;
mod transpose;
mod undirected;
mod weights;

use std::path::Path;
use std::sync::{Arc, OnceLock};

pub use block::Block;
pub use columns::RowFile;
pub use coo::check_sorted_coo;
pub use counts::{GraphCounts, RowCounts};
pub use csr::{Csr, edge_order};
pub use degree::DegreeStats;
pub use edge_blocks::{Direction, EdgeBlocks};
pub use error::{GraphError, OffsetRule, TileRule};
pub use frdc::{Frdc, TileWalk};
pub use part::{Part, even_ranges};
pub use sort::rows_of;
pub use starts::Starts;
pub use transpose::Transpose;
pub use weights::AddedWeight;

/// A graph: an adjacency, and what follows from it.
///
/// Immutable; what follows is computed once, when it is first asked for, from any thread. A handle, whose clones are
/// the same graph.
#[derive(Debug, Clone)]
pub struct Graph(Arc<Known>);

/// What is known of a graph.
#[derive(Debug)]
struct Known {
    csr: Csr,
    symmetric: OnceLock<bool>,
    transpose: OnceLock<Transpose>,
    edge_map: OnceLock<Vec<u32>>,
}

/// What is known about a pattern's symmetry before anyone looks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Symmetry {
    Known(bool),
    Unknown,
}

impl Graph {
    /// The graph of an adjacency.
    ///
    /// # Errors
    /// [`GraphError::NotSquare`].
    pub fn new(csr: Csr) -> Result<Self, GraphError> {
        let (rows, columns) = csr.shape();
        if rows != columns {
            return Err(GraphError::NotSquare { rows, columns });
        }
        Ok(Self::with_symmetry(csr, Symmetry::Unknown))
    }

    /// From row offsets and columns, which may be unsorted within a row.
    ///
    /// # Errors
    /// Those of [`Csr::from_offsets`].
    pub fn from_offsets(offsets: Vec<u64>, cols: Vec<u32>) -> Result<Self, GraphError> {
        Csr::from_offsets(offsets, cols).and_then(Self::new)
    }

    /// From edges in any order: edge `k` leads from vertex `cols[k]` to vertex `rows[k]`.
    ///
    /// # Errors
    /// Those of [`Csr::from_edges`].
    pub fn from_edges(vertices: usize, rows: &[u32], cols: &[u32]) -> Result<Self, GraphError> {
        Csr::from_edges(vertices, rows, cols).and_then(Self::new)
    }

    pub(crate) fn with_symmetry(csr: Csr, symmetry: Symmetry) -> Self {
        let symmetric = match symmetry {
            Symmetry::Known(symmetric) => OnceLock::from(symmetric),
            Symmetry::Unknown => OnceLock::new(),
        };
        Self(Arc::new(Known {
            csr,
            symmetric,
            transpose: OnceLock::new(),
            edge_map: OnceLock::new(),
        }))
    }

    pub(crate) fn known_symmetry(&self) -> Symmetry {
        self.0
            .symmetric
            .get()
            .map_or(Symmetry::Unknown, |&symmetric| Symmetry::Known(symmetric))
    }

    /// The same whose edges are in a file in a folder: see [`Csr::to_disk`]. What is known of its symmetry stays known.
    ///
    /// # Errors
    /// [`GraphError::Disk`].
    pub fn to_disk(&self, folder: &Path) -> Result<Self, GraphError> {
        let stored = self.0.csr.to_disk(folder)?;
        Ok(Self::with_symmetry(stored, self.known_symmetry()))
    }

    /// The adjacency.
    pub fn csr(&self) -> &Csr {
        &self.0.csr
    }

    /// The number of vertices.
    pub fn vertices(&self) -> usize {
        self.0.csr.vertices()
    }

    /// The number of edges (`nnz`); an undirected edge counts twice.
    pub fn edges(&self) -> usize {
        self.0.csr.edges()
    }

    /// The row of each edge: see [`Csr::rows`].
    pub fn rows(&self) -> &[u32] {
        self.0.csr.rows()
    }

    /// The column of each edge: see [`Csr::cols`].
    pub fn cols(&self) -> &[u32] {
        self.0.csr.cols()
    }

    /// Where each row's edges start: see [`Csr::offsets`].
    pub fn offsets(&self) -> &[u64] {
        self.0.csr.offsets()
    }

    /// Whether the pattern equals its transpose, multiplicities included.
    pub fn is_symmetric(&self) -> bool {
        *self
            .0
            .symmetric
            .get_or_init(|| transpose::is_symmetric(&self.0.csr))
    }

    /// The transpose; of a symmetric graph only the fact that it is one.
    pub fn transpose(&self) -> &Transpose {
        self.0
            .transpose
            .get_or_init(|| Transpose::of(&self.0.csr, self.is_symmetric()))
    }

    /// That memory for the transpose is free, where one is to be made. [`Graph::transpose`] itself ends the process
    /// where there is none.
    ///
    /// # Errors
    /// [`GraphError::OutOfMemory`].
    pub fn check_room_for_transpose(&self) -> Result<(), GraphError> {
        if self.0.transpose.get().is_some() || self.is_symmetric() {
            return Ok(());
        }
        let bytes = sort::sort_room(self.vertices() as u64, self.edges() as u64);
        error::check_room("edges of the transpose", bytes)
    }

    /// The adjacency of the transpose; a symmetric graph's own.
    pub fn transposed(&self) -> &Csr {
        match self.transpose() {
            Transpose::Symmetric => &self.0.csr,
            Transpose::Explicit(csr) => csr,
        }
    }

    /// The map between the two edge orders: entry `k` is which edge of the graph is edge `k` of
    /// [`transposed`](Self::transposed). A symmetric graph has one too, since edge (r, c) becomes edge (c, r).
    /// It is a permutation of the edge ids; edges that are equal keep their order.
    pub fn edge_map(&self) -> &[u32] {
        self.0
            .edge_map
            .get_or_init(|| transpose::edge_map(&self.0.csr))
    }

    /// How many edges lead to each vertex: the lengths of its rows.
    pub fn in_degrees(&self) -> Vec<u32> {
        self.0.csr.row_degrees()
    }

    /// How many edges lead from each vertex: how often it is a column.
    pub fn out_degrees(&self) -> Vec<u32> {
        if self.known_symmetry() == Symmetry::Known(true) {
            return self.in_degrees();
        }
        self.0.csr.column_degrees()
    }

    /// Statistics of the in-degrees, which decide how long the kernels' rows are.
    pub fn degree_stats(&self) -> DegreeStats {
        DegreeStats::of(self.in_degrees())
    }

    /// The bytes on the host: the adjacency, and the transpose and edge map as far as they exist by now.
    pub fn bytes(&self) -> u64 {
        let transpose = match self.0.transpose.get() {
            Some(Transpose::Explicit(csr)) => csr.bytes(),
            _ => 0,
        };
        self.0.csr.bytes() + transpose + self.0.edge_map.get().map_or(0, |map| map.len() as u64 * 4)
    }
}

/// Two graphs are equal when their adjacencies are; what has been computed from them does not matter.
impl PartialEq for Graph {
    fn eq(&self, other: &Self) -> bool {
        self.0.csr == other.0.csr
    }
}

impl Eq for Graph {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_symmetric_graph_stores_no_transpose_but_maps_its_edges() {
        let graph = Graph::from_edges(3, &[0, 1, 1, 2, 2], &[1, 0, 2, 1, 2]).unwrap();
        let before = graph.bytes();
        assert_eq!(graph.transpose(), &Transpose::Symmetric);
        assert!(std::ptr::eq(graph.transposed(), graph.csr()));
        assert_eq!(graph.bytes(), before);
        assert_eq!(graph.edge_map(), [1, 0, 3, 2, 4]);
        assert_eq!(graph.bytes(), before + 5 * 4);
        assert_eq!(graph.out_degrees(), graph.in_degrees());
    }

    #[test]
    fn a_directed_graph_has_two_kinds_of_degrees() {
        let graph = Graph::from_edges(3, &[0, 0, 0, 2], &[1, 1, 2, 1]).unwrap();
        assert_eq!(graph.in_degrees(), [3, 0, 1]);
        assert_eq!(graph.out_degrees(), [0, 3, 1]);
        assert_eq!(graph.transposed().row_degrees(), graph.out_degrees());
        assert_eq!(graph.degree_stats().max(), 3);
        let again = Graph::from_offsets(vec![0, 3, 3, 4], vec![2, 1, 1, 1]).unwrap();
        assert_eq!(graph, again);
    }
}
