//! Graphs whose edges end anywhere.

use std::ops::Range;

use halfgnn_contract::rng;

use super::super::error::{check_edges, check_vertices};
use super::super::sort::EdgeSource;
use super::super::{Csr, Graph, GraphError, Symmetry};
use super::{below, draw, out_of_range, stream};

/// Edges whose ends are independent and uniform: Erdős and Rényi's G(n, m), with duplicates and self-loops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErdosRenyi {
    /// The number of vertices; at least 1 where there are edges.
    pub vertices: u64,
    /// The number of sampled edges.
    pub edges: u64,
    /// Whether each sampled edge stands in both directions, and so counts twice.
    pub undirected: bool,
}

impl ErdosRenyi {
    /// The graph of `seed`.
    ///
    /// # Errors
    /// [`GraphError::Parameter`], [`GraphError::TooManyVertices`] and [`GraphError::TooManyEdges`].
    pub fn generate(&self, seed: u64) -> Result<Graph, GraphError> {
        struct Source<'a>(&'a ErdosRenyi, [u32; 2]);
        impl EdgeSource for Source<'_> {
            fn items(&self) -> u64 {
                self.0.edges
            }
            fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
                for edge in items {
                    let [a, b, c, d] = draw(self.1, edge, 0);
                    let (row, col) = (
                        below(self.0.vertices, a, b) as u32,
                        below(self.0.vertices, c, d) as u32,
                    );
                    sink(row, col);
                    if self.0.undirected {
                        sink(col, row);
                    }
                }
            }
        }
        if self.vertices == 0 && self.edges > 0 {
            return out_of_range("vertices", 0, "at least 1 where there are edges");
        }
        check_vertices(self.vertices)?;
        check_edges(
            self.edges
                .saturating_mul(if self.undirected { 2 } else { 1 }),
        )?;
        let symmetry = if self.undirected {
            Symmetry::Known(true)
        } else {
            Symmetry::Unknown
        };
        let source = Source(self, rng::key(seed, stream::EDGES));
        Ok(Graph::with_symmetry(
            Csr::from_source(self.vertices as usize, &source)?,
            symmetry,
        ))
    }
}

/// A directed graph whose row `i` has exactly `degrees[i]` edges, from anywhere.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowDegrees {
    /// The length of each row; one entry a vertex.
    pub degrees: Vec<u32>,
}

impl RowDegrees {
    /// The graph of `seed`.
    ///
    /// # Errors
    /// [`GraphError::TooManyVertices`] and [`GraphError::TooManyEdges`].
    pub fn generate(&self, seed: u64) -> Result<Graph, GraphError> {
        struct Source<'a>(&'a [u32], [u32; 2]);
        impl EdgeSource for Source<'_> {
            fn items(&self) -> u64 {
                self.0.len() as u64
            }
            fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
                for row in items {
                    for edge in 0..self.0[row as usize] {
                        let [high, low, ..] = draw(self.1, row, edge);
                        sink(row as u32, below(self.0.len() as u64, high, low) as u32);
                    }
                }
            }
        }
        check_edges(self.degrees.iter().copied().map(u64::from).sum())?;
        let source = Source(&self.degrees, rng::key(seed, stream::EDGES));
        Graph::new(Csr::from_source(self.degrees.len(), &source)?)
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::same_on_any_threads;
    use super::*;

    #[test]
    fn degrees_are_even() {
        let spec = ErdosRenyi {
            vertices: 1000,
            edges: 50_000,
            undirected: true,
        };
        let graph = same_on_any_threads(|| spec.generate(5).unwrap());
        let stats = graph.degree_stats();
        assert_eq!(stats.mean(), 100.0);
        assert!(
            stats.min() > 55 && stats.max() < 155,
            "{} to {}",
            stats.min(),
            stats.max()
        );
        assert!(Graph::new(graph.csr().clone()).unwrap().is_symmetric());
        let directed = ErdosRenyi {
            undirected: false,
            ..spec
        }
        .generate(5)
        .unwrap();
        assert_eq!(directed.edges(), 50_000);
        assert!(!directed.is_symmetric());
    }

    #[test]
    fn rows_have_the_degrees_asked_for() {
        let degrees = vec![0, 31, 32, 33, 127, 128, 129, 0, 70_000, 0];
        let graph = same_on_any_threads(|| {
            RowDegrees {
                degrees: degrees.clone(),
            }
            .generate(2)
            .unwrap()
        });
        assert_eq!(graph.in_degrees(), degrees);
        assert!(graph.out_degrees().iter().all(|&degree| degree > 6500));
        assert_eq!(
            RowDegrees { degrees: vec![] }
                .generate(2)
                .unwrap()
                .vertices(),
            0
        );
    }

    #[test]
    fn what_cannot_be_made_is_refused() {
        let spec = ErdosRenyi {
            vertices: 0,
            edges: 1,
            undirected: false,
        };
        assert!(
            spec.generate(0)
                .unwrap_err()
                .to_string()
                .starts_with("vertices = 0")
        );
        assert!(
            ErdosRenyi {
                vertices: 1,
                edges: 1 << 31,
                undirected: true
            }
            .generate(0)
            .is_err()
        );
        assert!(
            RowDegrees {
                degrees: vec![u32::MAX, 1]
            }
            .generate(0)
            .is_err()
        );
        assert_eq!(
            ErdosRenyi { edges: 0, ..spec }
                .generate(0)
                .unwrap()
                .vertices(),
            0
        );
    }
}
