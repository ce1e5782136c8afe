//! The figures of a graph that its memory on a device follows from.

use super::{Csr, Graph};

/// Figures of one edge order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowCounts {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// Edges.
    pub edges: usize,
    /// Rows without edges.
    pub empty: usize,
    /// Edges of the longest row.
    pub longest: u32,
}

impl RowCounts {
    /// Those of an adjacency.
    pub fn of(csr: &Csr) -> Self {
        let (rows, columns) = csr.shape();
        Self {
            rows,
            columns,
            edges: csr.edges(),
            empty: csr.empty_rows().len(),
            longest: csr.longest_row(),
        }
    }

    /// Those of its transpose, which need not be made for it.
    pub fn of_transposed(csr: &Csr) -> Self {
        let ((rows, columns), degrees) = (csr.shape(), csr.column_degrees());
        Self {
            rows: columns,
            columns: rows,
            edges: csr.edges(),
            empty: degrees.iter().filter(|&&degree| degree == 0).count(),
            longest: degrees.into_iter().max().unwrap_or(0),
        }
    }

    /// With a self-loop more a row.
    fn with_self_loops(self) -> Self {
        Self {
            edges: self.edges.saturating_add(self.rows),
            empty: 0,
            longest: self.longest.saturating_add(1),
            ..self
        }
    }
}

/// Figures of a graph: what it takes on a device is a function of them, so that it need not be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphCounts {
    /// Along the edges.
    pub forward: RowCounts,
    /// Against them; none where the graph is symmetric.
    pub backward: Option<RowCounts>,
    /// Whether every vertex has as many edges in as out, so that one array of degrees does for both.
    pub balanced: bool,
    /// Whether each edge has a weight.
    pub weighted: bool,
    /// Features of each edge that a model reads.
    pub edge_features: usize,
    /// Whether it reads them as a row of elements for each edge, and not as columns of floats.
    pub edge_rows: bool,
    /// Graphs that its vertices are of, where there are many; else 0.
    pub graphs: usize,
}

impl GraphCounts {
    /// Those of a graph.
    pub fn of(graph: &Graph) -> Self {
        let symmetric = graph.is_symmetric();
        Self {
            forward: RowCounts::of(graph.csr()),
            backward: (!symmetric).then(|| RowCounts::of_transposed(graph.csr())),
            balanced: symmetric || graph.in_degrees() == graph.out_degrees(),
            weighted: false,
            edge_features: 0,
            edge_rows: false,
            graphs: 0,
        }
    }

    /// Of the given number of graphs next to one another.
    #[must_use]
    pub fn with_graphs(self, graphs: usize) -> Self {
        Self { graphs, ..self }
    }

    /// With the given number of features of each edge.
    #[must_use]
    pub fn with_edge_features(self, edge_features: usize) -> Self {
        Self {
            edge_features,
            ..self
        }
    }

    /// With features of edges as rows of elements, or as columns of floats.
    #[must_use]
    pub fn with_edge_rows(self, edge_rows: bool) -> Self {
        Self { edge_rows, ..self }
    }

    /// With a weight for each edge, or without.
    #[must_use]
    pub fn weighted(self, weighted: bool) -> Self {
        Self { weighted, ..self }
    }

    /// Those of a symmetric graph, at most: no row is empty.
    pub fn symmetric(vertices: usize, edges: usize, longest: u32) -> Self {
        Self {
            forward: RowCounts {
                rows: vertices,
                columns: vertices,
                edges,
                empty: 0,
                longest,
            },
            backward: None,
            balanced: true,
            weighted: false,
            edge_features: 0,
            edge_rows: false,
            graphs: 0,
        }
    }

    /// With a self-loop for every vertex, as if none had one.
    #[must_use]
    pub fn with_self_loops(self) -> Self {
        Self {
            forward: self.forward.with_self_loops(),
            backward: self.backward.map(RowCounts::with_self_loops),
            ..self
        }
    }

    /// Number of vertices.
    pub fn vertices(&self) -> usize {
        self.forward.rows
    }

    /// Bytes of the graph on the host.
    pub fn host_bytes(&self) -> u64 {
        let of = |rows: RowCounts| {
            let (edges, vertices) = (rows.edges as u64, rows.rows as u64);
            edges
                .saturating_mul(4)
                .saturating_add(vertices.saturating_mul(8))
        };
        of(self.forward).saturating_add(self.backward.map_or(0, of))
    }
}
