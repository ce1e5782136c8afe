//! A graph on a backend: the arrays that SpMM and SDDMM kernels read.

use super::{MemoryKind, Storage};
use crate::error::Error;
use crate::graph::{Csr, Graph, GraphCounts, RowCounts, Starts};
use crate::tensor::Array;

/// One edge order of a graph: row ids, column ids and row offsets, and where rows start ([`Starts`]).
#[derive(Debug)]
pub struct Adjacency<B: Storage> {
    rows: usize,
    columns: usize,
    /// Edges of the longest row.
    pub(crate) longest_row: u32,
    pub(crate) row_ids: Array<B, u32>,
    pub(crate) column_ids: Array<B, u32>,
    pub(crate) offsets: Array<B, u64>,
    pub(crate) empty_rows: Array<B, u32>,
    pub(crate) starts: Array<B, [u32; 2]>,
    pub(crate) filled_rows: Array<B, u32>,
}

impl<B: Storage> Adjacency<B> {
    /// Copies an adjacency to the backend.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, csr: &Csr) -> Result<Self, Error> {
        let upload = |values: &[u32]| Array::from_slice(backend, values, MemoryKind::Graph);
        let starts = Starts::new(csr);
        let (rows, columns) = csr.shape();
        Ok(Self {
            rows,
            columns,
            longest_row: csr.longest_row(),
            row_ids: upload(csr.rows())?,
            column_ids: upload(csr.cols())?,
            offsets: Array::from_slice(backend, csr.offsets(), MemoryKind::Graph)?,
            empty_rows: upload(&csr.empty_rows())?,
            starts: Array::from_slice(backend, &starts.words, MemoryKind::Graph)?,
            filled_rows: upload(&starts.filled)?,
        })
    }

    /// The arrays of an adjacency of `counts`, without any edge in them: for a backend that only counts memory.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn counted(backend: &B, counts: &RowCounts) -> Result<Self, Error> {
        let zeros = |len| Array::zeros(backend, len, MemoryKind::Graph);
        let RowCounts {
            rows,
            columns,
            edges,
            empty,
            longest,
        } = *counts;
        let kind = MemoryKind::Graph;
        Ok(Self {
            rows,
            columns,
            longest_row: longest,
            row_ids: zeros(edges)?,
            column_ids: zeros(edges)?,
            offsets: Array::zeros(backend, rows + 1, kind)?,
            empty_rows: zeros(empty)?,
            starts: Array::zeros(backend, Starts::words(edges), kind)?,
            filled_rows: zeros(Starts::filled(rows - empty))?,
        })
    }

    /// Number of rows: of vertices that hear from others.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns: of vertices that are heard.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.column_ids.len()
    }
}

/// A graph on a backend, in both edge orders; a symmetric graph has one.
#[derive(Debug)]
pub struct DeviceGraph<B: Storage> {
    forward: Adjacency<B>,
    backward: Option<Adjacency<B>>,
}

impl<B: Storage> DeviceGraph<B> {
    /// Copies a graph and, unless it is symmetric, its transpose to the backend.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, graph: &Graph) -> Result<Self, Error> {
        let backward = if graph.is_symmetric() {
            None
        } else {
            Some(Adjacency::new(backend, graph.transposed())?)
        };
        Ok(Self {
            forward: Adjacency::new(backend, graph.csr())?,
            backward,
        })
    }

    /// The arrays of a graph of `counts`, as [`Adjacency::counted`] has them.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn counted(backend: &B, counts: &GraphCounts) -> Result<Self, Error> {
        Ok(Self {
            forward: Adjacency::counted(backend, &counts.forward)?,
            backward: match &counts.backward {
                Some(backward) => Some(Adjacency::counted(backend, backward)?),
                None => None,
            },
        })
    }

    /// The adjacency: row `i` lists the vertices that `i` hears from.
    pub fn forward(&self) -> &Adjacency<B> {
        &self.forward
    }

    /// The transposed adjacency, along which gradients flow.
    pub fn backward(&self) -> &Adjacency<B> {
        self.backward.as_ref().unwrap_or(&self.forward)
    }

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        self.forward.rows()
    }
}
