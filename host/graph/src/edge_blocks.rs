//! Edges as they were read, block by block, on their way to a graph.

use crate::parallel;
use std::ops::Range;

use super::error::{GraphError, check_vertices};
use super::sort::EdgeSource;
use super::{Csr, Graph, Symmetry};

/// Which edges a listed pair stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// The one that is listed.
    AsListed,
    /// That one and, unless it is a self-loop, its reverse.
    Both,
    /// Both, without the duplicates of any edge.
    BothOnce,
}

/// Edges (row, column): 8 bytes each, which are given back before the graph's columns are made.
#[derive(Debug, Clone, Default)]
pub struct EdgeBlocks {
    blocks: Vec<Vec<[u32; 2]>>,
    /// How many edges come before each block, and how many there are.
    starts: Vec<u64>,
}

impl EdgeBlocks {
    /// Adds edges behind those that are there.
    pub fn push(&mut self, mut block: Vec<[u32; 2]>) {
        block.shrink_to_fit();
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.starts.push(self.len() + block.len() as u64);
        self.blocks.push(block);
    }

    /// The number of edges.
    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    /// Whether there is no edge.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The edges, block by block.
    pub fn blocks(&self) -> &[Vec<[u32; 2]>] {
        &self.blocks
    }

    /// The edges of each block, to rename their ends.
    pub fn blocks_mut(&mut self) -> Vec<&mut [[u32; 2]]> {
        self.blocks.iter_mut().map(Vec::as_mut_slice).collect()
    }

    /// The graph of these edges.
    ///
    /// # Errors
    /// [`GraphError::VertexOutOfRange`] where an end is no vertex, with the place of the edge;
    /// [`GraphError::TooManyVertices`], [`GraphError::TooManyEdges`].
    pub fn into_graph(self, vertices: usize, direction: Direction) -> Result<Graph, GraphError> {
        check_vertices(vertices as u64)?;
        self.check_ends(vertices as u64)?;
        let source = Mirrored {
            mirrored: direction == Direction::Both,
            edges: self,
        };
        match direction {
            Direction::AsListed => Csr::from_source(vertices, source).and_then(Graph::new),
            Direction::Both => Csr::from_source(vertices, source)
                .map(|csr| Graph::with_symmetry(csr, Symmetry::Known(true))),
            Direction::BothOnce => Graph::undirected_from_source(vertices, source),
        }
    }

    fn check_ends(&self, vertices: u64) -> Result<(), GraphError> {
        let beyond = |ends: &[u32; 2]| ends.iter().any(|&end| u64::from(end) >= vertices);
        // The first, so that the message does not depend on the number of threads.
        for (block, &start) in self.blocks.iter().zip(&self.starts) {
            if let Some(index) = parallel::position_first(block, beyond) {
                let [row, column] = block[index];
                return Err(GraphError::VertexOutOfRange {
                    field: "edges",
                    index: start + index as u64,
                    value: row.max(column).into(),
                    vertices,
                });
            }
        }
        Ok(())
    }
}

struct Mirrored {
    edges: EdgeBlocks,
    mirrored: bool,
}

impl EdgeSource for Mirrored {
    fn items(&self) -> u64 {
        self.edges.len()
    }

    fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
        let EdgeBlocks { blocks, starts } = &self.edges;
        let first = starts.partition_point(|&start| start <= items.start).max(1) - 1;
        for (block, &start) in blocks.iter().zip(starts).skip(first) {
            if start >= items.end {
                break;
            }
            let from = items.start.saturating_sub(start) as usize;
            let to = ((items.end - start) as usize).min(block.len());
            for &[row, column] in &block[from..to] {
                sink(row, column);
                if self.mirrored && row != column {
                    sink(column, row);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_any_size_make_one_graph() {
        let edges: Vec<[u32; 2]> = (0..1000_u32).map(|k| [k * k % 97, k * 31 % 97]).collect();
        let (rows, cols): (Vec<_>, Vec<_>) = edges.iter().map(|&[row, col]| (row, col)).unzip();
        let expected = Graph::from_edges(97, &rows, &cols).unwrap();
        for size in [1, 7, 1000] {
            let blocks = || {
                let mut blocks = EdgeBlocks::default();
                for block in edges.chunks(size) {
                    blocks.push(block.to_vec());
                    blocks.push(Vec::new());
                }
                blocks
            };
            let graph = |direction| blocks().into_graph(97, direction).unwrap();
            assert_eq!(graph(Direction::AsListed), expected);
            assert_eq!(
                graph(Direction::BothOnce),
                expected.to_undirected().unwrap()
            );
            let both = graph(Direction::Both);
            assert!(Graph::new(both.csr().clone()).unwrap().is_symmetric());
            let loops = edges.iter().filter(|[row, col]| row == col).count();
            assert_eq!(both.edges(), 2000 - loops);
        }
        let none = EdgeBlocks::default()
            .into_graph(3, Direction::AsListed)
            .unwrap();
        assert_eq!((none.vertices(), none.edges()), (3, 0));
    }

    #[test]
    fn an_end_that_is_no_vertex_is_refused() {
        let mut blocks = EdgeBlocks::default();
        blocks.push(vec![[0, 1], [2, 0]]);
        blocks.push(vec![[1, 1], [0, 3]]);
        assert!(blocks.clone().into_graph(4, Direction::AsListed).is_ok());
        let error = blocks.into_graph(3, Direction::BothOnce).unwrap_err();
        assert!(
            matches!(
                error,
                GraphError::VertexOutOfRange {
                    index: 3,
                    value: 3,
                    ..
                }
            ),
            "{error}"
        );
    }
}
