//! A pattern with the reverse of each of its edges.

use super::csr::Csr;
use super::error::{GraphError, check_edges, check_room, check_vertices};
use super::sort::{EdgeSource, WithinRow, fill_rows, offsets_of, sort_by_row, sort_room};
use super::transpose::transposed;
use super::{Graph, Symmetry};
use crate::parallel;

impl Graph {
    /// From a source whose edges are known to be in range: each in both directions and without duplicates, as
    /// [`to_undirected`](Self::to_undirected), which would need the listed edges' rows as well as the result.
    pub(crate) fn undirected_from_source(
        vertices: usize,
        source: impl EdgeSource,
    ) -> Result<Self, GraphError> {
        check_vertices(vertices as u64)?;
        let (offsets, cols) = sort_by_row(vertices, source, WithinRow::Sorted)?;
        let (both, both_cols) = with_reverse(&offsets, &cols)?;
        // Before the row ids are made.
        drop((offsets, cols));
        let csr = Csr::from_sorted(both, both_cols.into());
        Ok(Self::with_symmetry(csr, Symmetry::Known(true)))
    }
}

/// Offsets and columns of a pattern that is in order, united with its transpose, without duplicates. 12 bytes an edge
/// in addition to the two patterns while the transpose is made, 4 afterwards: an edge that is listed in both directions
/// is never there four times.
pub(super) fn with_reverse(
    offsets: &[u64],
    cols: &[u32],
) -> Result<(Vec<u64>, Vec<u32>), GraphError> {
    let (vertices, listed) = (offsets.len() as u64 - 1, cols.len() as u64);
    check_room("edges in both directions", sort_room(vertices, listed))?;
    let (reverse_offsets, reverse_cols) = transposed(offsets.len() - 1, offsets, cols);
    let united = |row: usize| {
        let row_of = |offsets: &[u64]| offsets[row] as usize..offsets[row + 1] as usize;
        union(
            &cols[row_of(offsets)],
            &reverse_cols[row_of(&reverse_offsets)],
        )
    };
    let lengths = parallel::map(0..offsets.len() - 1, |row, _| united(row).count() as u64);
    let both = offsets_of(lengths);
    let edges = both[both.len() - 1];
    check_edges(edges)?;
    check_room("edges in both directions", 8 * edges)?;
    let mut both_cols = vec![0; edges as usize];
    fill_rows(&both, &mut both_cols, &|row, out: &mut [u32]| {
        out.iter_mut()
            .zip(united(row))
            .for_each(|(out, col)| *out = col);
    });
    Ok((both, both_cols))
}

/// What is in either of two ascending lists, once each, ascending.
fn union<'a>(mut one: &'a [u32], mut other: &'a [u32]) -> impl Iterator<Item = u32> + 'a {
    std::iter::from_fn(move || {
        let next = match (one.first(), other.first()) {
            (Some(&a), Some(&b)) => a.min(b),
            (Some(&only), None) | (None, Some(&only)) => only,
            (None, None) => return None,
        };
        for list in [&mut one, &mut other] {
            while let [first, rest @ ..] = *list
                && *first == next
            {
                *list = rest;
            }
        }
        Some(next)
    })
}
