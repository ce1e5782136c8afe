//! Which vertices are of which graph, where one adjacency holds many.

use std::ops::Range;

use super::error::DataProblem;
use halfgnn_graph::{Block, Csr, Graph, GraphError};

/// A batch of graphs as one adjacency, none of whose edges joins two graphs. The vertices of each graph are
/// consecutive.
///
/// ```text
///   vertices   0 1 2 │ 3 4 │ 5 6 7 8      graph 0 has vertices 0 to 2, graph 1 has 3 and 4, graph 2 has 5 to 8:
///   starts     0       3     5         9   the adjacency is block-diagonal
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphIndex {
    starts: Vec<u32>,
}

impl GraphIndex {
    /// From the first vertex of each graph, and last the number of all vertices.
    ///
    /// # Errors
    /// [`DataProblem::Shape`] where there is no graph; [`DataProblem::Value`] where the first does not start at 0, or
    /// one has no vertex.
    pub fn new(starts: Vec<u32>) -> Result<Self, DataProblem> {
        if starts.len() < 2 {
            let wanted = "a start for each graph, of which there is at least one, and an end";
            return Err(DataProblem::shape("ptr", &[starts.len() as u64], wanted));
        }
        if starts[0] != 0 {
            return Err(DataProblem::value("ptr", 0, starts[0], "where 0 is wanted"));
        }
        match starts.windows(2).position(|ends| ends[0] >= ends[1]) {
            None => Ok(Self { starts }),
            Some(at) => Err(DataProblem::value(
                "ptr",
                at as u64 + 1,
                starts[at + 1],
                format!(
                    "behind {}: a graph has one vertex at least, and its vertices follow one another",
                    starts[at]
                ),
            )),
        }
    }

    /// From the number of each vertex's graph: from 0 on without gaps, in the order of the vertices.
    ///
    /// # Errors
    /// [`DataProblem::Value`] where that is not so, [`DataProblem::Shape`] where there is no vertex.
    pub fn of_vertices(graphs: &[u32]) -> Result<Self, DataProblem> {
        let mut starts = Vec::new();
        for (vertex, &graph) in graphs.iter().enumerate() {
            let next = starts.len() as u32;
            if graph == next {
                starts.push(vertex as u32);
            } else if graph.checked_add(1) != Some(next) {
                return Err(DataProblem::value(
                    "batch",
                    vertex as u64,
                    graph,
                    "but graphs are numbered from 0 on without gaps, in the order of their vertices",
                ));
            }
        }
        starts.push(graphs.len() as u32);
        Self::new(starts)
    }

    /// The number of graphs.
    pub fn graphs(&self) -> usize {
        self.starts.len() - 1
    }

    /// The number of vertices of all graphs.
    pub fn vertices(&self) -> usize {
        self.starts[self.graphs()] as usize
    }

    /// Where the vertices of each graph start, and last the number of all vertices.
    pub fn starts(&self) -> &[u32] {
        &self.starts
    }

    /// The vertices of a graph.
    ///
    /// # Panics
    /// If there is no such graph.
    pub fn vertices_of(&self, graph: usize) -> Range<usize> {
        self.starts[graph] as usize..self.starts[graph + 1] as usize
    }

    /// The number of vertices of each graph.
    pub fn sizes(&self) -> impl ExactSizeIterator<Item = usize> {
        (0..self.graphs()).map(|graph| self.vertices_of(graph).len())
    }

    /// That `graph` has these vertices, and none of its edges joins two of the graphs.
    ///
    /// # Errors
    /// [`DataProblem::Shape`] where it has another number, [`DataProblem::Value`] with the first edge that does.
    pub fn expect_apart(&self, graph: &Graph) -> Result<(), DataProblem> {
        let vertices = graph.vertices();
        if self.vertices() != vertices {
            let wanted = format!("an end at {vertices}, the number of vertices");
            return Err(DataProblem::shape("ptr", &[self.vertices() as u64], wanted));
        }
        let of_vertex = self.of_each_vertex();
        let joins = |(_, (row, column)): &(usize, (u32, u32))| {
            of_vertex[*row as usize] != of_vertex[*column as usize]
        };
        match graph.csr().iter().enumerate().find(joins) {
            None => Ok(()),
            Some((at, (row, column))) => {
                let why = format!(
                    "which has an edge from {column} of another graph; edges stay within a graph"
                );
                Err(DataProblem::value("edges", at as u64, row, why))
            }
        }
    }

    /// The number of each vertex's graph.
    pub fn of_each_vertex(&self) -> Vec<u32> {
        let sizes = self.sizes().enumerate();
        sizes
            .flat_map(|(graph, size)| std::iter::repeat_n(graph as u32, size))
            .collect()
    }

    /// Some of the graphs, in this order.
    ///
    /// # Panics
    /// If there is no such graph, or none is named.
    pub fn selected(&self, graphs: &[u32]) -> Self {
        assert!(!graphs.is_empty(), "no graph is named");
        let sizes = graphs
            .iter()
            .map(|&graph| self.vertices_of(graph as usize).len());
        let ends = sizes.scan(0, |end, size| {
            *end += size as u32;
            Some(*end)
        });
        Self {
            starts: std::iter::once(0).chain(ends).collect(),
        }
    }

    /// The adjacency of a readout: graph `i` aggregates its vertices. Every graph has a vertex, so there are no fewer
    /// sources than destinations, though graph `i` is not vertex `i`.
    ///
    /// # Errors
    /// [`GraphError::OutOfMemory`].
    pub fn block(&self) -> Result<Block, GraphError> {
        let offsets = self.starts.iter().map(|&start| start.into()).collect();
        let vertices = (0..self.vertices() as u32).collect();
        Block::new(Csr::rectangular(self.vertices(), offsets, vertices)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vertices_of_a_graph_follow_one_another() {
        let index = GraphIndex::of_vertices(&[0, 0, 0, 1, 1, 2, 2, 2, 2]).unwrap();
        assert_eq!(index.starts(), [0, 3, 5, 9]);
        assert_eq!((index.graphs(), index.vertices()), (3, 9));
        assert_eq!(index.vertices_of(1), 3..5);
        assert_eq!(index.of_each_vertex(), [0, 0, 0, 1, 1, 2, 2, 2, 2]);
        assert_eq!(index.selected(&[2, 0]).starts(), [0, 4, 7]);
        let block = index.block().unwrap();
        assert_eq!((block.destinations(), block.sources()), (3, 9));
        assert_eq!(block.csr().row(1), [3, 4]);
    }

    #[test]
    fn what_is_no_index_is_refused() {
        let of_vertices = |graphs: &[u32]| GraphIndex::of_vertices(graphs).unwrap_err().to_string();
        assert!(of_vertices(&[0, 2]).starts_with("batch[1] is 2, but graphs are numbered"));
        assert!(of_vertices(&[0, 1, 0]).starts_with("batch[2] is 0, but graphs"));
        assert!(of_vertices(&[1]).starts_with("batch[0] is 1, but graphs"));
        assert!(of_vertices(&[u32::MAX]).starts_with("batch[0] is 4294967295, but"));
        assert!(of_vertices(&[]).starts_with("ptr: the shape is [1], where"));
        let new = |starts: &[u32]| GraphIndex::new(starts.to_vec()).unwrap_err().to_string();
        assert!(new(&[1, 2]).starts_with("ptr[0] is 1, where 0"));
        assert!(new(&[0, 2, 2]).starts_with("ptr[2] is 2, behind 2: a graph has"));
    }
}
