//! Edges as they were read, block by block, on their way to a graph.

use std::ops::Range;

use crate::data::error::DataProblem;
use crate::data::input::Progress;
use crate::graph::{Csr, EdgeSource, Graph, Symmetry};

/// Which edges a listed pair stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Direction {
    /// The one that is listed.
    AsListed,
    /// That one and, unless it is a self-loop, its reverse.
    Both,
    /// Both, without the duplicates of any edge.
    BothOnce,
}

/// Edges (row, column): 8 bytes each, which are given back before the graph's columns are made.
#[derive(Debug, Default)]
pub(super) struct Pairs {
    blocks: Vec<Vec<[u32; 2]>>,
    /// How many edges come before each block, and how many there are.
    starts: Vec<u64>,
}

impl Pairs {
    pub fn push(&mut self, mut block: Vec<[u32; 2]>) {
        block.shrink_to_fit();
        if self.starts.is_empty() {
            self.starts.push(0);
        }
        self.starts.push(self.len() + block.len() as u64);
        self.blocks.push(block);
    }

    pub fn len(&self) -> u64 {
        self.starts.last().copied().unwrap_or(0)
    }

    pub fn blocks(&self) -> &[Vec<[u32; 2]>] {
        &self.blocks
    }

    pub fn blocks_mut(&mut self) -> &mut [Vec<[u32; 2]>] {
        &mut self.blocks
    }

    /// The graph of these edges, whose ends are known to be below `vertices`.
    pub fn into_graph(
        self,
        vertices: usize,
        direction: Direction,
        progress: &dyn Progress,
    ) -> Result<Graph, DataProblem> {
        progress.begin("bringing edges into row order", 0);
        let source = Mirrored {
            mirrored: direction == Direction::Both,
            pairs: self,
        };
        let graph = match direction {
            Direction::AsListed => Csr::from_source(vertices, source).and_then(Graph::new),
            Direction::Both => Csr::from_source(vertices, source)
                .map(|csr| Graph::with_symmetry(csr, Symmetry::Known(true))),
            Direction::BothOnce => Graph::undirected_from_source(vertices, source),
        };
        graph.map_err(|error| DataProblem::graph("edges", error))
    }
}

struct Mirrored {
    pairs: Pairs,
    mirrored: bool,
}

impl EdgeSource for Mirrored {
    fn items(&self) -> u64 {
        self.pairs.len()
    }

    fn emit(&self, items: Range<u64>, mut sink: impl FnMut(u32, u32)) {
        let Pairs { blocks, starts } = &self.pairs;
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
    use crate::data::input::Silent;

    #[test]
    fn blocks_of_any_size_make_one_graph() {
        let edges: Vec<[u32; 2]> = (0..1000_u32).map(|k| [k * k % 97, k * 31 % 97]).collect();
        let (rows, cols): (Vec<_>, Vec<_>) = edges.iter().map(|&[row, col]| (row, col)).unzip();
        let expected = Graph::from_edges(97, &rows, &cols).unwrap();
        for size in [1, 7, 1000] {
            let pairs = || {
                let mut pairs = Pairs::default();
                for block in edges.chunks(size) {
                    pairs.push(block.to_vec());
                    pairs.push(Vec::new());
                }
                pairs
            };
            let graph = |direction| pairs().into_graph(97, direction, &Silent).unwrap();
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
        let none = Pairs::default()
            .into_graph(3, Direction::AsListed, &Silent)
            .unwrap();
        assert_eq!((none.vertices(), none.edges()), (3, 0));
    }
}
