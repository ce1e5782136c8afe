//! The transpose, and the map between the two edge orders.
//!
//! The backward pass of y = A·x is dx = Aᵀ·dy. An undirected graph is its own transpose, so nothing is made or
//! uploaded for it; its *edge features* still move, because edge (r, c) and edge (c, r) are two edges.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::csr::Csr;
use super::parallel;
use super::sort::{EdgeSource, WithinRow, sort_with_room};

/// The transpose of an adjacency.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transpose {
    /// The pattern equals its transpose, multiplicities included: there is nothing to store.
    Symmetric,
    /// The transposed pattern, sorted as any other.
    Explicit(Csr),
}

impl Transpose {
    /// The transpose of `csr`; `symmetric` says that it is known to be its own.
    pub(crate) fn of(csr: &Csr, symmetric: bool) -> Self {
        if symmetric {
            return Self::Symmetric;
        }
        Self::Explicit(csr.transposed())
    }
}

/// Entry `k` is which edge of `csr` is edge `k` of the transpose.
pub(crate) fn edge_map(csr: &Csr) -> Vec<u32> {
    struct Positions<'a>(&'a [u32]);
    impl EdgeSource for Positions<'_> {
        fn items(&self) -> u64 {
            self.0.len() as u64
        }
        fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
            items.for_each(|edge| sink(self.0[edge as usize], edge as u32));
        }
    }
    by_column(csr.vertices(), Positions(csr.cols())).1
}

/// The offsets and columns of the transpose of a pattern of `columns` columns that is in order.
pub(crate) fn transposed(columns: usize, offsets: &[u64], cols: &[u32]) -> (Vec<u64>, Vec<u32>) {
    struct Reversed<'a> {
        offsets: &'a [u64],
        cols: &'a [u32],
    }
    impl EdgeSource for Reversed<'_> {
        fn items(&self) -> u64 {
            self.cols.len() as u64
        }
        fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
            let mut row = self.offsets.partition_point(|&start| start <= items.start) - 1;
            for edge in items {
                while self.offsets[row + 1] <= edge {
                    row += 1;
                }
                sink(self.cols[edge as usize], row as u32);
            }
        }
    }
    by_column(columns, Reversed { offsets, cols })
}

/// Offsets of the transpose, and what `edges`, which come by ascending row, give for each column. Keeping their order
/// sorts each column by row, and equal edges by position.
fn by_column(vertices: usize, edges: impl EdgeSource) -> (Vec<u64>, Vec<u32>) {
    // Callers that can report a lack of memory check for it.
    match sort_with_room(vertices, edges, WithinRow::AsEmitted, |_| Ok(())) {
        Ok(sorted) => sorted,
        Err(error) => unreachable!("a pattern that exists has few enough edges: {error}"),
    }
}

/// Whether a pattern equals its transpose, multiplicities included: by all threads, which stop at the first edge
/// without a partner.
pub(crate) fn is_symmetric(csr: &Csr) -> bool {
    // Where each edge above the diagonal has its partners, and there are no more below, all have.
    let (above, below) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let lopsided = AtomicBool::new(false);
    let look = |rows: Range<usize>| {
        let (mut above_here, mut below_here) = (0, 0);
        for row in rows {
            if lopsided.load(Ordering::Relaxed) {
                return;
            }
            let (edges, own) = (csr.row(row), row as u32);
            let first_above = edges.partition_point(|&column| column <= own);
            let edges_below = edges[..first_above].partition_point(|&column| column < own);
            above_here += edges.len() - first_above;
            below_here += edges_below;
            for same in edges[first_above..].chunk_by(|one, next| one == next) {
                let partners = csr.row(same[0] as usize);
                let first = partners.partition_point(|&column| column < own);
                let found = partners[first..]
                    .iter()
                    .take_while(|&&column| column == own);
                if found.count() != same.len() {
                    lopsided.store(true, Ordering::Relaxed);
                    return;
                }
            }
        }
        above.fetch_add(above_here, Ordering::Relaxed);
        below.fetch_add(below_here, Ordering::Relaxed);
    };
    let mut nothing = vec![(); csr.vertices()];
    parallel::by_edges(csr.offsets(), 1, &mut nothing, &|rows, _| look(rows));
    !lopsided.into_inner() && above.into_inner() == below.into_inner()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn csr(vertices: usize, edges: &[(u32, u32)]) -> Csr {
        let (rows, cols): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
        Csr::from_edges(vertices, &rows, &cols).unwrap()
    }

    fn pairs(csr: &Csr) -> Vec<(u32, u32)> {
        csr.rows()
            .iter()
            .copied()
            .zip(csr.cols().iter().copied())
            .collect()
    }

    #[test]
    fn symmetry_counts_multiplicities_and_self_loops() {
        assert!(is_symmetric(&csr(0, &[])));
        assert!(is_symmetric(&csr(3, &[])));
        assert!(is_symmetric(&csr(3, &[(0, 0), (2, 1), (1, 2)])));
        assert!(is_symmetric(&csr(2, &[(0, 1), (0, 1), (1, 0), (1, 0)])));
        assert!(!is_symmetric(&csr(2, &[(0, 1), (0, 1), (1, 0)])));
        assert!(!is_symmetric(&csr(2, &[(0, 1), (1, 0), (1, 0)])));
        assert!(!is_symmetric(&csr(3, &[(0, 1), (1, 2), (2, 0)])));
        assert!(!is_symmetric(&csr(3, &[(2, 0)])));
        assert!(!is_symmetric(&csr(3, &[(0, 1), (2, 0)])));
    }

    proptest! {
        #[test]
        fn agrees_with_a_naive_transpose(
            edges in prop::collection::vec((0..12_u32, 0..12_u32), 0..80),
            mirror in any::<bool>(),
        ) {
            let mut edges = edges;
            if mirror {
                edges.extend(edges.clone().into_iter().map(|(row, col)| (col, row)));
            }
            let csr = csr(12, &edges);
            let mut expected: Vec<_> = edges.iter().map(|&(row, col)| (col, row)).collect();
            expected.sort();
            let symmetric = expected == pairs(&csr);
            prop_assert_eq!(is_symmetric(&csr), symmetric);

            let Transpose::Explicit(transposed) = Transpose::of(&csr, false) else { unreachable!() };
            prop_assert_eq!(pairs(&transposed), expected);
            prop_assert_eq!(Transpose::of(&csr, symmetric) == Transpose::Symmetric, symmetric);

            // The map is a bijection that carries each edge to itself, and equal edges stay in order.
            let map = edge_map(&csr);
            let carried: Vec<_> = map.iter().map(|&edge| pairs(&csr)[edge as usize]).collect();
            let back: Vec<_> = pairs(&transposed).into_iter().map(|(row, col)| (col, row)).collect();
            prop_assert_eq!(carried, back);
            let mut seen = map.clone();
            seen.sort();
            prop_assert!(seen.into_iter().eq(0..edges.len() as u32));

            // Transposed twice is the pattern again.
            let Transpose::Explicit(twice) = Transpose::of(&transposed, false) else { unreachable!() };
            prop_assert_eq!(twice, csr);
        }
    }
}
