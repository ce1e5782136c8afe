//! Graphs made from graphs: self-loops, duplicates, direction, labels.

use crate::parallel;

use super::columns::Columns;
use super::csr::Csr;
use super::error::{GraphError, check_edges, check_ids, check_length, check_room};
use super::sort::{offsets_of, sort_row};
use super::undirected::with_reverse;
use super::{Graph, Symmetry};

impl Graph {
    /// With an edge from every vertex to itself: one is added where there is none, and those that are there
    /// stay as they are (`add_remaining_self_loops` of PyG). GCN needs this.
    ///
    /// # Errors
    /// [`GraphError::TooManyEdges`], [`GraphError::OutOfMemory`]; [`GraphError::Disk`] of edges [on
    /// disk](Csr::to_disk).
    pub fn with_self_loops(&self) -> Result<Self, GraphError> {
        let csr = self.csr();
        let missing = |row: usize| csr.row(row).binary_search(&(row as u32)).is_err();
        let lengths = parallel::map(0..csr.vertices(), |row, _| {
            csr.row(row).len() as u64 + u64::from(missing(row))
        });
        let offsets = offsets_of(lengths);
        let edges = offsets[csr.vertices()];
        if edges == csr.edges() as u64 {
            return Ok(self.clone());
        }
        check_edges(edges)?;
        if !csr.is_on_disk() {
            check_room("edges with self-loops", 8 * edges)?;
        }
        self.with_rows(offsets, |row, out| {
            let old = csr.row(row);
            if old.len() == out.len() {
                return out.copy_from_slice(old);
            }
            let before = old.partition_point(|&col| (col as usize) < row);
            out[..before].copy_from_slice(&old[..before]);
            out[before] = row as u32;
            out[before + 1..].copy_from_slice(&old[before..]);
        })
    }

    /// Without any edge from a vertex to itself.
    ///
    /// # Errors
    /// [`GraphError::Disk`] of edges [on disk](Csr::to_disk).
    pub fn without_self_loops(&self) -> Result<Self, GraphError> {
        self.filtered(|row, _, col| col as usize != row)
    }

    /// With one edge where there were several between the same two vertices in the same direction.
    ///
    /// # Errors
    /// [`GraphError::Disk`] of edges [on disk](Csr::to_disk).
    pub fn deduplicated(&self) -> Result<Self, GraphError> {
        self.filtered(|_, before, col| before != Some(col))
    }

    /// With every edge in both directions, and without duplicates; self-loops stay.
    ///
    /// # Errors
    /// [`GraphError::TooManyEdges`], [`GraphError::OutOfMemory`].
    pub fn to_undirected(&self) -> Result<Self, GraphError> {
        let (offsets, cols) = with_reverse(self.offsets(), self.cols())?;
        let both = Csr::from_sorted(offsets, cols.into());
        Ok(Self::with_symmetry(both, Symmetry::Known(true)))
    }

    /// The graph of some vertices and the edges between them, vertex `i` being `vertices[i]`, and for each of its edges
    /// the place of the edge that it was.
    ///
    /// # Errors
    /// [`GraphError::VertexOutOfRange`], and [`GraphError::Parameter`] where a vertex is listed twice.
    pub fn induced(&self, vertices: &[u32]) -> Result<(Self, Vec<u32>), GraphError> {
        check_ids("vertices", vertices, self.vertices() as u64)?;
        const NONE: u32 = u32::MAX;
        let mut names = vec![NONE; self.vertices()];
        for (&vertex, name) in vertices.iter().zip(0..) {
            let place = &mut names[vertex as usize];
            if *place != NONE {
                return Err(GraphError::Parameter {
                    parameter: "vertices",
                    value: vertex.to_string(),
                    valid: "each is listed once",
                });
            }
            *place = name;
        }
        let (mut offsets, mut edges) = (vec![0], Vec::new());
        for &vertex in vertices {
            let mut row: Vec<(u32, u32)> = self
                .csr()
                .row_range(vertex as usize)
                .map(|edge| (names[self.cols()[edge] as usize], edge as u32))
                .filter(|&(name, _)| name != NONE)
                .collect();
            row.sort_unstable();
            edges.extend(row);
            offsets.push(edges.len() as u64);
        }
        let (columns, edges) = edges.into_iter().unzip();
        Ok((Self::from_offsets(offsets, columns)?, edges))
    }

    /// With vertex `v` renamed to `permutation[v]`.
    ///
    /// # Errors
    /// [`GraphError::Length`], [`GraphError::VertexOutOfRange`], [`GraphError::NotAPermutation`] and
    /// [`GraphError::OutOfMemory`]; [`GraphError::Disk`] of edges [on disk](Csr::to_disk).
    pub fn permuted(&self, permutation: &[u32]) -> Result<Self, GraphError> {
        check_length(
            "permutation",
            permutation.len(),
            self.vertices(),
            "one label for each vertex",
        )?;
        check_ids("permutation", permutation, self.vertices() as u64)?;
        let csr = self.csr();
        if !csr.is_on_disk() {
            check_room("renamed edges", 8 * csr.edges() as u64)?;
        }
        // Which vertex each row is of; `NONE` of those that nothing was found of yet.
        const NONE: u32 = u32::MAX;
        let mut order = vec![NONE; self.vertices()];
        for (vertex, &label) in permutation.iter().enumerate() {
            let place = &mut order[label as usize];
            if *place != NONE {
                return Err(GraphError::NotAPermutation {
                    index: vertex as u64,
                    value: label.into(),
                });
            }
            *place = vertex as u32;
        }
        let lengths = order.iter().map(|&old| csr.row(old as usize).len() as u64);
        let offsets = offsets_of(lengths);
        // Rows stay together, so each is read and sorted by itself, and no edge moves among those of other rows.
        let columns = Columns::filled(csr.folder(), &offsets, &|row, out: &mut [u32]| {
            let old = csr.row(order[row] as usize);
            for (out, &column) in out.iter_mut().zip(old) {
                *out = permutation[column as usize];
            }
            sort_row(out);
        })?;
        let renamed = Csr::from_sorted(offsets, columns);
        Ok(Self::with_symmetry(renamed, self.known_symmetry()))
    }

    /// This graph with its vertices renamed, of the row offsets and the columns that it then has and that were made
    /// elsewhere, such as on a device. What is known of its symmetry stays known, since that does not depend on names.
    ///
    /// # Errors
    /// [`GraphError::Length`] where there are not as many vertices or edges, and those of [`Graph::from_offsets`].
    pub fn permuted_as(&self, offsets: Vec<u64>, columns: Vec<u32>) -> Result<Self, GraphError> {
        let wanted = "as many as before the renaming";
        check_length("offsets", offsets.len(), self.vertices() + 1, wanted)?;
        check_length("columns", columns.len(), self.edges(), wanted)?;
        let renamed = Csr::from_offsets(offsets, columns)?;
        Ok(Self::with_symmetry(renamed, self.known_symmetry()))
    }

    /// The edges that `keep` says, given the row, the column before it in that row, and the column. Whether it
    /// keeps an edge must not depend on the edge's direction.
    fn filtered(
        &self,
        keep: impl Fn(usize, Option<u32>, u32) -> bool + Sync,
    ) -> Result<Self, GraphError> {
        let csr = self.csr();
        let kept = |row: usize, each: &mut dyn FnMut(u32)| {
            let mut before = None;
            for &col in csr.row(row) {
                if keep(row, before, col) {
                    each(col);
                }
                before = Some(col);
            }
        };
        let count = |row| {
            let mut count = 0;
            kept(row, &mut |_| count += 1);
            count
        };
        let lengths = parallel::map(0..csr.vertices(), |row, _| count(row));
        let offsets = offsets_of(lengths);
        if offsets[csr.vertices()] == csr.edges() as u64 {
            return Ok(self.clone());
        }
        self.with_rows(offsets, |row, out| {
            let mut out = out.iter_mut();
            kept(row, &mut |col| {
                if let Some(out) = out.next() {
                    *out = col;
                }
            });
        })
    }

    /// The graph of the rows that `fill` writes; it is symmetric if `self` is, and on the same disk if that is on one.
    fn with_rows(
        &self,
        offsets: Vec<u64>,
        fill: impl Fn(usize, &mut [u32]) + Sync,
    ) -> Result<Self, GraphError> {
        let cols = Columns::filled(self.csr().folder(), &offsets, &fill)?;
        // An asymmetric graph can become symmetric, by losing its duplicates for one.
        let symmetry = match self.known_symmetry() {
            Symmetry::Known(true) => Symmetry::Known(true),
            _ => Symmetry::Unknown,
        };
        Ok(Self::with_symmetry(
            Csr::from_sorted(offsets, cols),
            symmetry,
        ))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn graph(edges: &[(u32, u32)]) -> Graph {
        let (rows, cols): (Vec<_>, Vec<_>) = edges.iter().copied().unzip();
        Graph::from_edges(10, &rows, &cols).unwrap()
    }

    fn pairs(graph: &Graph) -> Vec<(u32, u32)> {
        graph
            .rows()
            .iter()
            .copied()
            .zip(graph.cols().iter().copied())
            .collect()
    }

    #[test]
    fn an_induced_graph_has_the_edges_between_its_vertices() {
        let graph = graph(&[
            (0, 1),
            (1, 0),
            (1, 4),
            (4, 1),
            (4, 4),
            (4, 1),
            (7, 1),
            (2, 7),
        ]);
        let (induced, edges) = graph.induced(&[4, 7, 1]).unwrap();
        assert_eq!(induced.vertices(), 3);
        assert_eq!(pairs(&induced), [(0, 0), (0, 2), (0, 2), (1, 2), (2, 0)]);
        let before: Vec<_> = edges
            .iter()
            .map(|&edge| pairs(&graph)[edge as usize])
            .collect();
        assert_eq!(before, [(4, 4), (4, 1), (4, 1), (7, 1), (1, 4)]);
        assert_eq!(graph.induced(&[]).unwrap().0.vertices(), 0);
        let broken = |vertices: &[u32]| graph.induced(vertices).unwrap_err().to_string();
        assert!(broken(&[10]).contains("vertices[0] is 10"));
        assert_eq!(
            broken(&[3, 1, 3]),
            "vertices = 3 is out of range: each is listed once"
        );
    }

    #[test]
    fn a_permutation_is_checked() {
        let graph = graph(&[]);
        let broken = |labels: &[u32]| graph.permuted(labels).unwrap_err().to_string();
        assert_eq!(
            broken(&[0; 3]),
            "permutation has 3 entries where 10 are wanted (one label for each vertex)"
        );
        assert_eq!(
            broken(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 10]),
            "permutation[9] is 10, but a graph of 10 vertices has ids below 10"
        );
        assert_eq!(
            broken(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 3]),
            "permutation[9] is 3, which an earlier vertex already has; each label must occur once"
        );
    }

    #[test]
    fn losing_duplicates_can_make_a_graph_symmetric() {
        let lopsided = graph(&[(0, 1), (0, 1), (1, 0)]);
        assert!(!lopsided.is_symmetric());
        assert!(lopsided.deduplicated().unwrap().is_symmetric());
    }

    proptest! {
        #[test]
        fn edits_agree_with_sets_of_edges(
            edges in prop::collection::vec((0..10_u32, 0..10_u32), 0..120),
            permutation in Just((0..10_u32).collect::<Vec<_>>()).prop_shuffle(),
            ask_first in any::<bool>(),
        ) {
            let original = graph(&edges);
            if ask_first {
                original.is_symmetric(); // so that what is known of it is carried over
            }
            let set: BTreeSet<_> = edges.iter().copied().collect();
            prop_assert!(pairs(&original.deduplicated().unwrap()).into_iter().eq(set.iter().copied()));

            let mut without: Vec<_> = edges.iter().copied().filter(|(row, col)| row != col).collect();
            without.sort();
            prop_assert_eq!(pairs(&original.without_self_loops().unwrap()), without);

            let mut with = edges.clone();
            with.extend((0..10).filter(|&v| !set.contains(&(v, v))).map(|v| (v, v)));
            with.sort();
            prop_assert_eq!(pairs(&original.with_self_loops().unwrap()), with);

            let both: BTreeSet<_> = edges.iter().flat_map(|&(row, col)| [(row, col), (col, row)]).collect();
            prop_assert!(pairs(&original.to_undirected().unwrap()).into_iter().eq(both));

            let renamed = original.permuted(&permutation).unwrap();
            let name = |v: u32| permutation[v as usize];
            let mut expected: Vec<_> = edges.iter().map(|&(row, col)| (name(row), name(col))).collect();
            expected.sort();
            prop_assert_eq!(pairs(&renamed), expected);

            for made in [
                original.deduplicated().unwrap(), original.without_self_loops().unwrap(), original.with_self_loops().unwrap(),
                original.to_undirected().unwrap(), renamed,
            ] {
                // What was inferred about symmetry must be what a fresh look finds.
                prop_assert_eq!(made.is_symmetric(), Graph::new(made.csr().clone()).unwrap().is_symmetric());
            }
        }
    }
}
