//! Edges in order of their rows, wherever they lie.

use halfgnn_graph::Graph;
use std::io;

/// Columns that are read or written at a time.
pub(crate) const PIECE: usize = 1 << 20;

/// A graph by its row offsets and, piece by piece, its columns.
pub(crate) trait InRowOrder {
    /// Where each row's edges start.
    fn offsets(&self) -> &[u64];

    /// Whether the graph equals its transpose.
    fn is_symmetric(&self) -> io::Result<bool>;

    /// Calls `take` with the columns in their order, [`PIECE`] of them at a time and fewer at the end.
    fn each_piece<E: From<io::Error>>(
        &self,
        take: impl FnMut(&[u32]) -> Result<(), E>,
    ) -> Result<(), E>;

    /// The number of edges.
    fn edge_count(&self) -> u64 {
        self.offsets().last().copied().unwrap_or(0)
    }

    /// Calls `each` with the row and the column of every edge, in their order.
    fn each_edge<E: From<io::Error>>(
        &self,
        mut each: impl FnMut(u32, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let mut rows = RowWalk::new(self.offsets());
        let mut edge = 0;
        self.each_piece(|piece| {
            piece.iter().try_for_each(|&column| {
                let row = rows.row_of(edge)?;
                edge += 1;
                each(row, column)
            })
        })
    }
}

impl InRowOrder for Graph {
    fn offsets(&self) -> &[u64] {
        Graph::offsets(self)
    }

    fn is_symmetric(&self) -> io::Result<bool> {
        Ok(Graph::is_symmetric(self))
    }

    fn each_piece<E: From<io::Error>>(
        &self,
        take: impl FnMut(&[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.cols().chunks(PIECE).try_for_each(take)
    }
}

/// Which row each edge is of, asked in their order.
pub(crate) struct RowWalk<'a> {
    offsets: &'a [u64],
    row: usize,
}

impl<'a> RowWalk<'a> {
    /// Of row offsets, which ascend.
    pub fn new(offsets: &'a [u64]) -> Self {
        Self { offsets, row: 0 }
    }

    /// From an edge on.
    pub fn from(offsets: &'a [u64], edge: u64) -> Self {
        let row = offsets.partition_point(|&offset| offset <= edge).max(1) - 1;
        Self { offsets, row }
    }

    /// The row of an edge that does not come before the one that was asked for last.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] where there is no such edge.
    pub fn row_of(&mut self, edge: u64) -> io::Result<u32> {
        // Rows without edges are passed by.
        loop {
            match self.offsets.get(self.row + 1) {
                Some(&end) if end > edge => return Ok(self.row as u32),
                Some(_) => self.row += 1,
                None => return Err(io::ErrorKind::InvalidData.into()),
            }
        }
    }
}
