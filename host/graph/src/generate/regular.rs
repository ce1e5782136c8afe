//! Graphs without chance: a grid, and a star of hubs.

use std::ops::Range;

use super::super::error::{check_edges, check_vertices};
use super::super::sort::EdgeSource;
use super::super::{Csr, Graph, GraphError, Symmetry};

/// `width` × `height` crossings, each joined to the next in both directions: a road network's degrees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grid {
    /// Crossings in a line; crossing (x, y) is vertex `y * width + x`.
    pub width: u64,
    /// Lines.
    pub height: u64,
}

impl Grid {
    /// The graph, which is undirected.
    ///
    /// # Errors
    /// [`GraphError::TooManyVertices`] and [`GraphError::TooManyEdges`].
    pub fn generate(&self) -> Result<Graph, GraphError> {
        let vertices = self.width.saturating_mul(self.height);
        check_vertices(vertices)?;
        // Four for each vertex, less those that would leave the grid.
        check_edges((4 * vertices).saturating_sub(2 * self.width.saturating_add(self.height)))?;
        undirected(vertices, self)
    }
}

impl EdgeSource for Grid {
    fn items(&self) -> u64 {
        self.width * self.height
    }

    fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
        for vertex in items {
            let right = (vertex % self.width + 1 < self.width).then(|| vertex + 1);
            let below = Some(vertex + self.width).filter(|&below| below < self.items());
            for other in right.into_iter().chain(below) {
                sink(vertex as u32, other as u32);
                sink(other as u32, vertex as u32);
            }
        }
    }
}

/// A centre (vertex 0), hubs around it (vertices 1 to `hubs`), and leaves of its own around every hub.
///
/// A hub's degree is `leaves + 1`: past 2048 a half-precision sum of ones no longer grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StarOfHubs {
    /// The number of hubs.
    pub hubs: u64,
    /// The leaves of each hub.
    pub leaves: u64,
}

impl StarOfHubs {
    /// The graph, which is undirected.
    ///
    /// # Errors
    /// [`GraphError::TooManyVertices`] and [`GraphError::TooManyEdges`].
    pub fn generate(&self) -> Result<Graph, GraphError> {
        let edges = self.hubs.saturating_mul(self.leaves.saturating_add(1));
        check_vertices(edges.saturating_add(1))?;
        check_edges(2 * edges)?;
        undirected(edges + 1, self)
    }
}

impl EdgeSource for StarOfHubs {
    fn items(&self) -> u64 {
        self.hubs * (self.leaves + 1)
    }

    fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
        for edge in items {
            // Vertex edge + 1 is a hub, whose parent is the centre, or a leaf of the hubs, round-robin.
            let parent = if edge < self.hubs {
                0
            } else {
                (edge - self.hubs) / self.leaves + 1
            };
            sink(parent as u32, edge as u32 + 1);
            sink(edge as u32 + 1, parent as u32);
        }
    }
}

/// The graph of a source that gives both directions.
fn undirected(vertices: u64, source: &impl EdgeSource) -> Result<Graph, GraphError> {
    Ok(Graph::with_symmetry(
        Csr::from_source(vertices as usize, source)?,
        Symmetry::Known(true),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_grid_of_three_by_two() {
        let graph = Grid {
            width: 3,
            height: 2,
        }
        .generate()
        .unwrap();
        let rows: Vec<&[u32]> = (0..6).map(|row| graph.csr().row(row)).collect();
        assert_eq!(
            rows,
            [
                &[1, 3][..],
                &[0, 2, 4],
                &[1, 5],
                &[0, 4],
                &[1, 3, 5],
                &[2, 4]
            ]
        );
        assert!(Graph::new(graph.csr().clone()).unwrap().is_symmetric());
    }

    #[test]
    fn grids_without_width_or_height() {
        for (width, height, edges) in [
            (0, 0, 0),
            (0, 5, 0),
            (5, 0, 0),
            (1, 1, 0),
            (1, 4, 6),
            (4, 1, 6),
        ] {
            let graph = Grid { width, height }.generate().unwrap();
            assert_eq!(
                (graph.vertices() as u64, graph.edges()),
                (width * height, edges)
            );
        }
    }

    #[test]
    fn a_star_has_its_hubs() {
        let graph = StarOfHubs {
            hubs: 3,
            leaves: 2048,
        }
        .generate()
        .unwrap();
        let degrees = graph.in_degrees();
        assert_eq!(
            (degrees.len(), &degrees[..4]),
            (1 + 3 * 2049, &[3, 2049, 2049, 2049][..])
        );
        assert!(degrees[4..].iter().all(|&degree| degree == 1));
        assert!(Graph::new(graph.csr().clone()).unwrap().is_symmetric());
        assert_eq!(
            StarOfHubs { hubs: 0, leaves: 7 }
                .generate()
                .unwrap()
                .vertices(),
            1
        );
        assert_eq!(
            StarOfHubs { hubs: 2, leaves: 0 }
                .generate()
                .unwrap()
                .csr()
                .row(0),
            [1, 2]
        );
    }

    #[test]
    fn what_ids_cannot_name_is_refused() {
        assert!(
            Grid {
                width: 1 << 16,
                height: 1 << 16
            }
            .generate()
            .is_err()
        );
        assert!(
            Grid {
                width: 1 << 40,
                height: 1 << 40
            }
            .generate()
            .is_err()
        );
        assert!(
            StarOfHubs {
                hubs: u64::MAX,
                leaves: u64::MAX
            }
            .generate()
            .is_err()
        );
        assert!(
            StarOfHubs {
                hubs: 1,
                leaves: 1 << 31
            }
            .generate()
            .is_err()
        );
    }
}
