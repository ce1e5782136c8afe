//! The adjacency arrays that kernels read.

use std::ops::Range;
use std::path::Path;
use std::sync::OnceLock;

use super::columns::Columns;
use super::error::{
    GraphError, OffsetRule, check_edges, check_ids, check_length, check_vertices, wrong_offset,
};
use super::sort::{EdgeSource, WithinRow, fill_rows, rows_of, sort_by_row, sort_row};
use super::transpose::transposed;
use crate::parallel;

/// A sparse pattern: row offsets and columns, and, on request, the row of each edge. That of a [`Graph`](super::Graph)
/// is square; that of a sampled layer or a part of a graph has rows and columns of different vertices, and another
/// number of each.
///
/// Edges are sorted by row and, within a row, by column. An edge that occurs twice is two edges. The module's
/// first page has a worked picture.
#[derive(Debug, Clone)]
pub struct Csr {
    /// Made at the first request.
    rows: OnceLock<Vec<u32>>,
    cols: Columns,
    offsets: Vec<u64>,
    columns: usize,
}

impl Csr {
    /// A square one from row offsets (`vertices + 1` of them) and columns, which may be unsorted within a row.
    ///
    /// # Errors
    /// [`GraphError::Offsets`], [`GraphError::VertexOutOfRange`], [`GraphError::Length`] where `offsets` is
    /// empty, [`GraphError::TooManyVertices`], [`GraphError::TooManyEdges`], [`GraphError::OutOfMemory`].
    pub fn from_offsets(offsets: Vec<u64>, cols: Vec<u32>) -> Result<Self, GraphError> {
        let columns = offsets.len().saturating_sub(1);
        Self::rectangular(columns, offsets, cols)
    }

    /// One of `columns` columns, and a row less than there are offsets; columns may be unsorted within a row.
    ///
    /// # Errors
    /// Those of [`Csr::from_offsets`].
    pub fn rectangular(
        columns: usize,
        offsets: Vec<u64>,
        mut cols: Vec<u32>,
    ) -> Result<Self, GraphError> {
        check_vertices(columns as u64)?;
        Self::check_offsets(&offsets, cols.len())?;
        check_ids("columns", &cols, columns as u64)?;
        fill_rows(&offsets, &mut cols, &|_, row: &mut [u32]| sort_row(row));
        Ok(Self::from_sorted_of(columns, offsets, cols.into()))
    }

    /// A square one from edges in any order: edge `k` is (`rows[k]`, `cols[k]`).
    ///
    /// # Errors
    /// [`GraphError::Length`], [`GraphError::VertexOutOfRange`], [`GraphError::TooManyVertices`],
    /// [`GraphError::TooManyEdges`], [`GraphError::OutOfMemory`].
    pub fn from_edges(vertices: usize, rows: &[u32], cols: &[u32]) -> Result<Self, GraphError> {
        Self::rectangular_from_edges((vertices, vertices), rows, cols)
    }

    /// One of `shape` (rows, columns) from edges in any order.
    ///
    /// # Errors
    /// Those of [`Csr::from_edges`].
    pub fn rectangular_from_edges(
        shape: (usize, usize),
        rows: &[u32],
        cols: &[u32],
    ) -> Result<Self, GraphError> {
        check_vertices(shape.0 as u64)?;
        check_vertices(shape.1 as u64)?;
        check_length("columns", cols.len(), rows.len(), "one for each row id")?;
        check_ids("rows", rows, shape.0 as u64)?;
        check_ids("columns", cols, shape.1 as u64)?;
        let pairs = &Pairs { rows, cols };
        let (offsets, cols) = sort_by_row(shape.0, pairs, WithinRow::Sorted)?;
        Ok(Self::from_sorted_of(shape.1, offsets, cols.into()))
    }

    /// A square one from a source whose edges are known to be in range; one that is given away is dropped as early as
    /// can be.
    pub(crate) fn from_source(
        vertices: usize,
        source: impl EdgeSource,
    ) -> Result<Self, GraphError> {
        check_vertices(vertices as u64)?;
        let (offsets, cols) = sort_by_row(vertices, source, WithinRow::Sorted)?;
        Ok(Self::from_sorted(offsets, cols.into()))
    }

    /// A square one from offsets and columns that are known to be in range and in order.
    pub(crate) fn from_sorted(offsets: Vec<u64>, cols: Columns) -> Self {
        Self::from_sorted_of(offsets.len() - 1, offsets, cols)
    }

    /// [`Csr::from_sorted`] of `columns` columns.
    pub(crate) fn from_sorted_of(columns: usize, offsets: Vec<u64>, cols: Columns) -> Self {
        Self {
            rows: OnceLock::new(),
            cols,
            offsets,
            columns,
        }
    }

    /// Its offsets and columns; columns on disk are read into memory.
    pub fn into_offsets(self) -> (Vec<u64>, Vec<u32>) {
        (self.offsets, self.cols.into_vec())
    }

    /// The same whose columns are in a file without a name in a folder, which is gone with its last clone, whatever
    /// ends the process. They look like memory, of which the system gives it as much as others leave, and reads from
    /// the disk what is not there; offsets are in memory. What
    /// [`Graph`](super::Graph) makes of its edges is on the same disk, but for a transpose and what has reverses added.
    ///
    /// A disk that fails while columns are read ends the process, as where a part of the program itself cannot be read.
    ///
    /// # Errors
    /// [`GraphError::Disk`] where no file can be made there, or its disk is full.
    pub fn to_disk(&self, folder: &Path) -> Result<Self, GraphError> {
        let copy = |row: usize, out: &mut [u32]| out.copy_from_slice(self.row(row));
        let columns = Columns::filled(Some(folder), &self.offsets, &copy)?;
        Ok(Self::from_sorted_of(
            self.columns,
            self.offsets.clone(),
            columns,
        ))
    }

    /// Whether its columns are [on disk](Csr::to_disk).
    pub fn is_on_disk(&self) -> bool {
        self.folder().is_some()
    }

    /// The folder on whose disk its columns are, if they are.
    pub fn folder(&self) -> Option<&Path> {
        self.cols.folder()
    }

    /// The transpose: an edge (r, c) becomes (c, r).
    pub fn transposed(&self) -> Self {
        let (offsets, cols) = transposed(self.columns, &self.offsets, &self.cols);
        Self::from_sorted_of(self.vertices(), offsets, cols.into())
    }

    /// That `offsets` are the offsets of `edges` edges.
    ///
    /// # Errors
    /// [`GraphError::Length`], [`GraphError::Offsets`], [`GraphError::TooManyVertices`], [`GraphError::TooManyEdges`].
    pub fn check_offsets(offsets: &[u64], edges: usize) -> Result<(), GraphError> {
        if offsets.is_empty() {
            return check_length("offsets", 0, 1, "one more than there are vertices");
        }
        check_vertices(offsets.len() as u64 - 1)?;
        check_edges(edges as u64)?;
        match wrong_offset(offsets, (edges as u64, OffsetRule::EndAtEdges)) {
            Some((index, rule)) => Err(GraphError::Offsets {
                index: index as u64,
                value: offsets[index],
                rule,
            }),
            None => Ok(()),
        }
    }

    /// The number of rows; of a square pattern, that is the number of columns too.
    pub fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The numbers of rows and of columns.
    pub fn shape(&self) -> (usize, usize) {
        (self.vertices(), self.columns)
    }

    /// The number of edges (`nnz`).
    pub fn edges(&self) -> usize {
        self.cols.len()
    }

    /// The row of each edge, ascending: 4 bytes an edge, from the first call on.
    pub fn rows(&self) -> &[u32] {
        self.rows.get_or_init(|| rows_of(&self.offsets))
    }

    /// The row of an edge, by a search among the offsets.
    ///
    /// # Panics
    /// If there is no such edge.
    pub fn row_of(&self, edge: usize) -> u32 {
        assert!(edge < self.edges(), "edge {edge} of {}", self.edges());
        let starts = &self.offsets[..self.vertices()];
        starts.partition_point(|&start| start <= edge as u64) as u32 - 1
    }

    /// Row and column of each edge, in order, without an array of the rows.
    pub fn iter(&self) -> impl Iterator<Item = (u32, u32)> {
        (0..self.vertices()).flat_map(|row| self.row(row).iter().map(move |&col| (row as u32, col)))
    }

    /// The column of each edge, ascending within a row.
    pub fn cols(&self) -> &[u32] {
        &self.cols
    }

    /// Where each row's edges start; `vertices + 1` entries, the last of which is the number of edges.
    pub fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    /// The edges of `row`, as positions in [`cols`](Self::cols).
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row_range(&self, row: usize) -> Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// The columns of `row`, ascending.
    ///
    /// # Panics
    /// If there is no such row.
    pub fn row(&self, row: usize) -> &[u32] {
        &self.cols[self.row_range(row)]
    }

    /// The number of edges in each row.
    pub fn row_degrees(&self) -> Vec<u32> {
        self.offsets
            .windows(2)
            .map(|pair| (pair[1] - pair[0]) as u32)
            .collect()
    }

    /// How often each vertex is a column.
    pub fn column_degrees(&self) -> Vec<u32> {
        let mut degrees = vec![0; self.shape().1];
        self.cols()
            .iter()
            .for_each(|&col| degrees[col as usize] += 1);
        degrees
    }

    /// The number of edges in the longest row; 0 where there is no row.
    pub fn longest_row(&self) -> u32 {
        let degrees = self.offsets.windows(2).map(|pair| pair[1] - pair[0]);
        degrees.max().unwrap_or(0) as u32
    }

    /// The rows without any edge, ascending. An SpMM writes zeros there.
    pub fn empty_rows(&self) -> Vec<u32> {
        let empty = |row: &usize| self.offsets[*row] == self.offsets[row + 1];
        (0..self.vertices())
            .filter(empty)
            .map(|row| row as u32)
            .collect()
    }

    /// Edges that are there already: of one that occurs n times n − 1.
    pub fn repeated_edges(&self) -> usize {
        const ROWS: usize = 1 << 12;
        let starts = parallel::chunks(&self.offsets[1..], ROWS);
        let repeated = parallel::map(starts, |chunk, ends| {
            let rows = (chunk * ROWS..).take(ends.len());
            let of_row = |row| {
                let pairs = self.row(row).windows(2);
                pairs.filter(|pair| pair[0] == pair[1]).count()
            };
            rows.map(of_row).sum::<usize>()
        });
        repeated.into_iter().sum()
    }

    /// The bytes that its arrays take of memory: offsets, columns that are not [on disk](Csr::to_disk), and the rows
    /// where they have been made.
    pub fn bytes(&self) -> u64 {
        let rows = self.rows.get().map_or(0, Vec::len) as u64 * 4;
        rows + self.cols.bytes_in_memory() + self.offsets.len() as u64 * 8
    }
}

/// Whether rows were asked for does not matter.
impl PartialEq for Csr {
    fn eq(&self, other: &Self) -> bool {
        let of = |csr: &Self| (csr.columns, csr.offsets.len());
        of(self) == of(other) && self.offsets == other.offsets && self.cols[..] == other.cols[..]
    }
}

impl Eq for Csr {}

/// Edges as two arrays.
struct Pairs<'a> {
    rows: &'a [u32],
    cols: &'a [u32],
}

impl EdgeSource for Pairs<'_> {
    fn items(&self) -> u64 {
        self.rows.len() as u64
    }

    fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
        let items = items.start as usize..items.end as usize;
        for (&row, &col) in self.rows[items.clone()].iter().zip(&self.cols[items]) {
            sink(row, col);
        }
    }
}

/// The order in which [`Csr::from_edges`] puts edges: entry `k` is which of the given edges becomes edge `k`.
/// Edges that are equal keep their order. It carries weights along: `sorted[k] = weights[order[k]]`.
///
/// # Errors
/// As [`Csr::from_edges`].
pub fn edge_order(vertices: usize, rows: &[u32], cols: &[u32]) -> Result<Vec<u32>, GraphError> {
    /// Edge `order[k]`, or edge `k` where there is no order yet, in the row that `ends` gives it.
    struct ByEnd<'a> {
        ends: &'a [u32],
        order: Option<&'a [u32]>,
    }
    impl EdgeSource for ByEnd<'_> {
        fn items(&self) -> u64 {
            self.ends.len() as u64
        }
        fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
            for k in items {
                let edge = self.order.map_or(k as u32, |order| order[k as usize]);
                sink(self.ends[edge as usize], edge);
            }
        }
    }
    check_vertices(vertices as u64)?;
    check_edges(rows.len() as u64)?;
    check_length("columns", cols.len(), rows.len(), "one for each row id")?;
    check_ids("rows", rows, vertices as u64)?;
    check_ids("columns", cols, vertices as u64)?;
    // Least significant digit first: stable by column, then stable by row.
    let (_, by_col) = sort_by_row(
        vertices,
        &ByEnd {
            ends: cols,
            order: None,
        },
        WithinRow::AsEmitted,
    )?;
    let (_, order) = sort_by_row(
        vertices,
        &ByEnd {
            ends: rows,
            order: Some(&by_col),
        },
        WithinRow::AsEmitted,
    )?;
    Ok(order)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Graph;
    use super::*;

    #[test]
    fn the_picture_in_the_module_page() {
        let csr = Csr::from_edges(4, &[3, 0, 1, 1, 3], &[1, 2, 3, 0, 1]).unwrap();
        assert_eq!(csr.bytes(), 5 * 4 + 5 * 8);
        let untouched = csr.clone();
        assert_eq!(csr.rows(), [0, 1, 1, 3, 3]);
        assert_eq!(csr, untouched);
        assert_eq!(csr.cols(), [2, 0, 3, 1, 1]);
        assert_eq!(csr.offsets(), [0, 1, 3, 3, 5]);
        assert_eq!(csr.empty_rows(), [2]);
        assert_eq!(csr.row_degrees(), [1, 2, 0, 2]);
        assert_eq!(csr.longest_row(), 2);
        assert_eq!((csr.row(1), csr.row_range(3)), ([0, 3].as_slice(), 3..5));
        assert_eq!(csr.bytes(), 2 * 5 * 4 + 5 * 8);
        let rows: Vec<_> = (0..5).map(|edge| csr.row_of(edge)).collect();
        assert_eq!(rows, csr.rows());
        let edges: Vec<_> = csr.iter().collect();
        assert_eq!(edges, [(0, 2), (1, 0), (1, 3), (3, 1), (3, 1)]);
    }

    #[test]
    fn offsets_are_checked() {
        let broken = |offsets: &[u64], cols: &[u32]| {
            Csr::from_offsets(offsets.to_vec(), cols.to_vec())
                .unwrap_err()
                .to_string()
        };
        assert_eq!(
            broken(&[], &[]),
            "offsets has 0 entries where 1 are wanted (one more than there are vertices)"
        );
        assert_eq!(
            broken(&[1, 1], &[0]),
            "offsets[0] is 1, but row offsets start at 0"
        );
        assert_eq!(
            broken(&[0, 2, 1, 2], &[0, 0]),
            "offsets[2] is 1, but row offsets never decrease (the one before is 2)"
        );
        assert_eq!(
            broken(&[0, 2], &[0]),
            "offsets[1] is 2, but row offsets end at the number of edges, 1"
        );
        assert_eq!(
            broken(&[0, u64::MAX], &[0])
                .matches("18446744073709551615")
                .count(),
            1
        );
        assert_eq!(
            broken(&[0, 1], &[1]),
            "columns[0] is 1, but a graph of 1 vertices has ids below 1"
        );
    }

    #[test]
    fn edges_are_checked() {
        let broken = |vertices, rows: &[u32], cols: &[u32]| {
            let error = Csr::from_edges(vertices, rows, cols).unwrap_err();
            assert_eq!(edge_order(vertices, rows, cols).unwrap_err(), error);
            error.to_string()
        };
        assert_eq!(
            broken(2, &[0, 2], &[0, 0]),
            "rows[1] is 2, but a graph of 2 vertices has ids below 2"
        );
        assert_eq!(
            broken(3, &[0], &[u32::MAX]),
            "columns[0] is 4294967295, but a graph of 3 vertices has ids below 3"
        );
        assert_eq!(
            broken(3, &[0], &[]),
            "columns has 0 entries where 1 are wanted (one for each row id)"
        );
        assert!(
            broken(1 << 32, &[], &[])
                .starts_with("4294967296 vertices are more than the 4294967295")
        );
    }

    #[test]
    fn rows_and_columns_may_differ() {
        let wide = Csr::rectangular_from_edges((2, 5), &[1, 0, 1], &[4, 2, 0]).unwrap();
        assert_eq!((wide.shape(), wide.row(1)), ((2, 5), [0, 4].as_slice()));
        assert_eq!(
            wide,
            Csr::rectangular(5, vec![0, 1, 3], vec![2, 4, 0]).unwrap()
        );
        let tall = wide.transposed();
        assert_eq!(tall.shape(), (5, 2));
        assert_eq!(
            (tall.rows(), tall.cols()),
            ([0, 2, 4].as_slice(), [1, 0, 1].as_slice())
        );
        assert_eq!(tall.transposed(), wide);
        let none = Csr::rectangular(0, vec![0; 4], vec![]).unwrap();
        assert_eq!((none.shape(), none.transposed().shape()), ((3, 0), (0, 3)));
        let message = |csr: Result<Csr, GraphError>| csr.unwrap_err().to_string();
        assert_eq!(
            message(Csr::rectangular_from_edges((5, 2), &[4], &[2])),
            "columns[0] is 2, but a graph of 2 vertices has ids below 2"
        );
        assert_eq!(
            message(Csr::rectangular(0, vec![0, 1], vec![0])),
            "columns[0] is 0, but a graph of 0 vertices has ids below 0"
        );
        assert_eq!(
            message(Graph::new(wide).map(|graph| graph.csr().clone())),
            "the adjacency of a graph is square, not 2 x 5"
        );
    }

    proptest! {
        #[test]
        fn offsets_and_edges_and_the_edge_order_agree(
            edges in prop::collection::vec((0..40_u32, 0..40_u32), 0..300),
        ) {
            let (rows, cols): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
            let csr = Csr::from_edges(40, &rows, &cols).unwrap();
            let mut expected = edges.clone();
            expected.sort();
            let found: Vec<_> = csr.rows().iter().copied().zip(csr.cols().iter().copied()).collect();
            prop_assert_eq!(&found, &expected);

            let order = edge_order(40, &rows, &cols).unwrap();
            let mut by_key: Vec<u32> = (0..edges.len() as u32).collect();
            by_key.sort_by_key(|&k| edges[k as usize]);
            prop_assert_eq!(order, by_key);

            let mut unsorted = csr.cols().to_vec();
            (0..40).for_each(|row| unsorted[csr.row_range(row)].reverse());
            prop_assert_eq!(Csr::from_offsets(csr.offsets().to_vec(), unsorted).unwrap(), csr);
        }
    }
}
