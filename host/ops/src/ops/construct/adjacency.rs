//! Adjacencies of edges that lie on a device.

use super::{ConstructOperators, RowIdsOperands, RowOffsetsOperands};
use crate::backend::{Adjacency, DeviceGraph, MemoryKind};
use crate::error::Error;
use crate::graph::{Csr, GraphError};
use crate::ops::{Checked, EdgeMap, SortOperators, largest_word, sort_pairs, take_words};
use crate::tensor::Array;
use halfgnn_contract::sort::bits_below;

/// Ids of vertices, an edge each.
type Words<B> = Array<B, u32>;

impl<B: ConstructOperators + SortOperators> Adjacency<B> {
    /// Of `shape` (rows, columns) from edges in any order (COO): edge `k` is (`rows[k]`, `columns[k]`), on the device.
    /// The same arrays as [`Adjacency::new`] makes of
    /// [`Csr::rectangular_from_edges`](crate::graph::Csr::rectangular_from_edges), and with them which of the given
    /// edges is each one: edges that are equal keep their order.
    ///
    /// Nothing of it is done on the host but the allocations. Ids are checked on the device.
    ///
    /// # Errors
    /// [`Error::Shape`] where the lists differ in length, [`Error::Graph`] for an id that is no row's or no column's,
    /// or too many of anything, [`Error::Driver`] where there is not enough memory.
    pub fn from_coo(
        backend: &B,
        shape: (usize, usize),
        rows: &Words<B>,
        columns: &Words<B>,
    ) -> Result<(Self, EdgeMap<B>), Error> {
        const NAME: &str = "Adjacency::from_coo";
        Error::expect(NAME, "columns", rows.len(), columns.len())?;
        let edges = rows.len();
        if u32::try_from(edges).is_err() {
            let edges = edges as u64;
            return Err(GraphError::TooManyEdges { edges }.into());
        }
        expect_below(backend, "rows", rows, shape.0)?;
        expect_below(backend, "columns", columns, shape.1)?;
        let bits = |end: usize| bits_below(end as u64);
        let uninit = || Array::uninit(backend, edges, MemoryKind::Graph);
        let spare = || Array::uninit(backend, edges, MemoryKind::Workspace);
        // By column, then by row: the least significant first.
        let (mut ids, mut order) = (uninit()?, uninit()?);
        {
            let (mut sorted, mut by_column) = (spare()?, spare()?);
            sort_pairs(
                backend,
                columns,
                None,
                bits(shape.1),
                &mut sorted,
                &mut by_column,
            )?;
            take_words(backend, rows, &by_column, &mut sorted)?;
            sort_pairs(
                backend,
                &sorted,
                Some(&by_column),
                bits(shape.0),
                &mut ids,
                &mut order,
            )?;
        }
        let mut column_ids = uninit()?;
        take_words(backend, columns, &order, &mut column_ids)?;
        let a = Self::of_sorted(backend, shape, ids, column_ids)?;
        Ok((a, EdgeMap::of_permutation(order)))
    }

    /// Of row offsets (CSR), `rows + 1` of them, and columns, which may be unsorted within a row.
    ///
    /// # Errors
    /// Those of [`Adjacency::from_coo`]; [`Error::Graph`] for offsets that are not those of the edges.
    pub fn from_csr(
        backend: &B,
        columns: usize,
        offsets: &Array<B, u64>,
        column_ids: &Words<B>,
    ) -> Result<(Self, EdgeMap<B>), Error> {
        // Eight bytes a row come to the host, to be looked at in the words that it has for what is wrong with them.
        Csr::check_offsets(&offsets.to_vec(backend)?, column_ids.len())?;
        let mut ids = Array::uninit(backend, column_ids.len(), MemoryKind::Workspace)?;
        backend.row_ids(Checked::new(RowIdsOperands {
            offsets,
            ids: &mut ids,
        })?)?;
        let rows = offsets.len() - 1;
        Self::from_coo(backend, (rows, columns), &ids, column_ids)
    }

    /// The transpose, made on the device, and for each of its edges which of this one's it is.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn transposed(&self, backend: &B) -> Result<(Self, EdgeMap<B>), Error> {
        let (a, order) = self.transpose(backend)?;
        Ok((a.indexed(backend)?, EdgeMap::of_permutation(order)))
    }

    /// Of edges in order of their rows, whose ids are in range.
    pub(crate) fn of_sorted(
        backend: &B,
        shape: (usize, usize),
        ids: Words<B>,
        column_ids: Words<B>,
    ) -> Result<Self, Error> {
        Self::of_drawn(backend, shape, ids, column_ids, 0)?.indexed(backend)
    }

    /// [`Adjacency::of_sorted`] without an index of the rows, of which none has more than `longest` edges: nothing of
    /// it is waited for.
    pub(crate) fn of_drawn(
        backend: &B,
        shape: (usize, usize),
        ids: Words<B>,
        column_ids: Words<B>,
        longest: u32,
    ) -> Result<Self, Error> {
        let mut offsets = Array::uninit(backend, shape.0 + 1, MemoryKind::Graph)?;
        backend.row_offsets(Checked::new(RowOffsetsOperands {
            ids: &ids,
            offsets: &mut offsets,
        })?)?;
        Ok(Self::of_drawn_parts(
            shape, ids, column_ids, offsets, longest,
        ))
    }
}

impl<B: ConstructOperators + SortOperators> DeviceGraph<B> {
    /// A graph of `vertices` from edges in any order, on the device, in both edge orders; edge `k` goes to `rows[k]`
    /// from `columns[k]`.
    ///
    /// # Errors
    /// Those of [`Adjacency::from_coo`].
    pub fn from_coo(
        backend: &B,
        vertices: usize,
        rows: &Words<B>,
        columns: &Words<B>,
    ) -> Result<Self, Error> {
        let shape = (vertices, vertices);
        let (forward, _) = Adjacency::from_coo(backend, shape, rows, columns)?;
        let (backward, _) = forward.transposed(backend)?;
        Ok(Self::of(forward, Some(backward)))
    }
}

/// Refuses an id that is no vertex's. Which of them it is, is looked up on the host.
fn expect_below<B: ConstructOperators>(
    backend: &B,
    field: &'static str,
    ids: &Words<B>,
    vertices: usize,
) -> Result<(), Error> {
    let most = 1_u64 << 32;
    if vertices as u64 > most {
        let vertices = vertices as u64;
        return Err(GraphError::TooManyVertices { vertices }.into());
    }
    if ids.is_empty() || (largest_word(backend, ids)? as usize) < vertices {
        return Ok(());
    }
    let ids = ids.to_vec(backend)?;
    let outside = ids.iter().position(|&id| id as usize >= vertices);
    let index = outside.unwrap_or_default();
    Err(GraphError::VertexOutOfRange {
        field,
        index: index as u64,
        value: ids[index].into(),
        vertices: vertices as u64,
    }
    .into())
}
