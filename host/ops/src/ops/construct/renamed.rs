//! Graphs whose vertices get other names on the device.

use super::{ConstructOperators, row_ids, take_words};
use crate::backend::{Adjacency, DeviceGraph, MemoryKind, Storage};
use crate::error::Error;
use crate::graph::{Csr, Graph};
use crate::ops::{EdgeMap, Neighbors, SortOperators, sort_pairs};
use crate::tensor::Array;
use halfgnn_contract::sort::bits_below;
use halfgnn_graph::reorder::Permutation;

/// Rows of a graph on a device as they are copied there, 4 bytes an edge and 8 a row: what label propagation reads, and
/// what a renaming is made of.
#[derive(Debug)]
pub struct GraphRows<B: Storage> {
    vertices: usize,
    offsets: Array<B, u64>,
    columns: Array<B, u32>,
}

impl<B: Storage> GraphRows<B> {
    /// Copies the rows of a square adjacency to the device.
    ///
    /// # Errors
    /// [`Error::Shape`] where it is not square, [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, csr: &Csr) -> Result<Self, Error> {
        let (vertices, columns) = csr.shape();
        Error::expect("GraphRows::new", "columns", vertices, columns)?;
        Ok(Self {
            vertices,
            offsets: Array::from_slice(backend, csr.offsets(), MemoryKind::Graph)?,
            columns: Array::from_slice(backend, csr.cols(), MemoryKind::Graph)?,
        })
    }

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        self.vertices
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.columns.len()
    }

    /// Whose label each vertex may take.
    pub fn neighbors(&self) -> Neighbors<'_, B> {
        Neighbors {
            offsets: &self.offsets,
            columns: &self.columns,
        }
    }
}

/// Bytes of a device, at most, that a renaming of a graph takes, the rows that it starts from and what its sorts borrow
/// among them.
pub fn renaming_bytes(vertices: usize, edges: usize) -> u64 {
    // Of an edge a column before, the two ends with their new names, two words out of each of two sorts, an index in
    // order, and two words and a half that a sort borrows: ten words and less than one for where rows start. Of a
    // vertex offsets before and after, its name, and the lists of rows.
    44 * edges as u64 + 32 * vertices as u64
}

/// The row and the column of each edge.
struct Ends<B: Storage> {
    rows: Array<B, u32>,
    columns: Array<B, u32>,
}

impl<B: ConstructOperators + SortOperators> Ends<B> {
    /// With their new names, in the old order.
    fn renamed(backend: &B, rows: &GraphRows<B>, order: &Permutation) -> Result<Self, Error> {
        let vertices = rows.vertices();
        Error::expect("renaming", "names", vertices, order.new_of_old().len())?;
        let spare = || Array::uninit(backend, rows.edges(), MemoryKind::Workspace);
        // A permutation names vertices alone, so that no id has to be checked.
        let names = Array::from_slice(backend, order.new_of_old(), MemoryKind::Workspace)?;
        let (mut new_rows, mut new_columns) = (spare()?, spare()?);
        {
            let mut ids = spare()?;
            row_ids(backend, &rows.offsets, &mut ids)?;
            take_words(backend, &names, &ids, &mut new_rows)?;
        }
        take_words(backend, &names, &rows.columns, &mut new_columns)?;
        Ok(Self {
            rows: new_rows,
            columns: new_columns,
        })
    }
}

impl<B: ConstructOperators + SortOperators> Adjacency<B> {
    /// Of `rows` with vertex `v` called `order.rename(v)`: the arrays that [`Adjacency::new`] makes of
    /// [`Graph::permuted`](crate::graph::Graph::permuted). Nothing of it is done on the host but the allocations.
    ///
    /// # Errors
    /// [`Error::Shape`] where `order` is of another number of vertices, [`Error::Driver`] where there is not enough
    /// memory: [`renaming_bytes`].
    pub fn renamed(backend: &B, rows: &GraphRows<B>, order: &Permutation) -> Result<Self, Error> {
        let vertices = rows.vertices();
        let given = Ends::renamed(backend, rows, order)?;
        let uninit = |kind| Array::uninit(backend, rows.edges(), kind);
        let spare = || uninit(MemoryKind::Workspace);
        let bits = bits_below(vertices as u64);
        // By column, then by row. Each sort takes the other end along, so that nothing is looked up at random.
        let mut by_column = Ends {
            rows: spare()?,
            columns: spare()?,
        };
        sort_pairs(
            backend,
            &given.columns,
            Some(&given.rows),
            bits,
            &mut by_column.columns,
            &mut by_column.rows,
        )?;
        drop(given);
        let graph = || uninit(MemoryKind::Graph);
        let (mut ids, mut columns) = (graph()?, graph()?);
        sort_pairs(
            backend,
            &by_column.rows,
            Some(&by_column.columns),
            bits,
            &mut ids,
            &mut columns,
        )?;
        drop(by_column);
        Self::of_sorted(backend, (vertices, vertices), ids, columns)
    }

    /// [`Adjacency::renamed`], and which edge of `rows` each edge is: by it weights and features of edges go along.
    /// Edges between the same vertices keep their order.
    ///
    /// # Errors
    /// Those of [`Adjacency::renamed`].
    pub fn renamed_with_map(
        backend: &B,
        rows: &GraphRows<B>,
        order: &Permutation,
    ) -> Result<(Self, EdgeMap<B>), Error> {
        let vertices = rows.vertices();
        let given = Ends::renamed(backend, rows, order)?;
        Self::from_coo(backend, (vertices, vertices), &given.rows, &given.columns)
    }
}

impl<B: ConstructOperators + SortOperators> DeviceGraph<B> {
    /// A graph of the adjacency that a renaming has made, in both edge orders: the transpose of `forward` is made on
    /// the device where `graph`, under its old names or its new ones, is not its own.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn of_renamed(backend: &B, graph: &Graph, forward: Adjacency<B>) -> Result<Self, Error> {
        let backward = match graph.is_symmetric() {
            true => None,
            false => Some(forward.transposed(backend)?.0),
        };
        Ok(Self::of(forward, backward))
    }
}
