//! Some vertices of a graph, and the edges that lead to them.

use super::error::{check_ids, check_room};
use super::sort::{fill_rows, offsets_of};
use super::{Block, Csr, Graph, GraphError, parallel};
use std::ops::Range;
use std::sync::atomic::{AtomicU32, Ordering};

/// Vertices of a graph and their in-neighbors: a block, and which vertices and edges of the graph it has.
///
/// ```text
///   vertices  2 3 │ 0 5       2 and 3 are the part's own; their in-neighbors are 0 and 5 as well
///   sources   0 1 │ 2 3       their places
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    vertices: Vec<u32>,
    block: Block,
    edges: Vec<u32>,
}

impl Part {
    /// The rows of `own`, whose neighbours are among them and `others`; all are different vertices.
    ///
    /// # Errors
    /// [`GraphError::VertexOutOfRange`] for one that is no vertex, and for a neighbour that is in neither list;
    /// [`GraphError::NotAPermutation`] for a vertex that stands there twice.
    pub fn new(graph: &Graph, own: &[u32], others: &[u32]) -> Result<Self, GraphError> {
        let mut places = vec![u32::MAX; graph.vertices()];
        for (place, &vertex) in own.iter().chain(others).enumerate() {
            let taken = places.get_mut(vertex as usize);
            let taken = taken.ok_or(GraphError::VertexOutOfRange {
                field: "vertices",
                index: place as u64,
                value: vertex.into(),
                vertices: graph.vertices() as u64,
            })?;
            if std::mem::replace(taken, place as u32) != u32::MAX {
                return Err(GraphError::NotAPermutation {
                    index: place as u64,
                    value: vertex.into(),
                });
            }
        }
        Self::at(graph, own, others, &places)
    }

    /// The rows of the vertices of a range, with all in-neighbors, those behind them in ascending order.
    ///
    /// # Errors
    /// [`GraphError::VertexOutOfRange`] where the range ends behind the last vertex.
    pub fn of_range(graph: &Graph, range: Range<usize>) -> Result<Self, GraphError> {
        let vertices = graph.vertices();
        if range.end > vertices || range.start > range.end {
            return Err(GraphError::VertexOutOfRange {
                field: "range",
                index: 1,
                value: range.end as u64,
                vertices: vertices as u64,
            });
        }
        let own: Vec<u32> = range.clone().map(|vertex| vertex as u32).collect();
        let (others, places) = heard_by(graph, &own);
        let first = graph.offsets()[range.start];
        let offsets = &graph.offsets()[range.start..=range.end];
        let offsets: Vec<u64> = offsets.iter().map(|offset| offset - first).collect();
        // A row ascends, and so do the places of the own vertices and those of the others.
        let by_place = |row: usize| {
            let columns = graph.csr().row(range.start + row);
            let own = columns.partition_point(|&column| (column as usize) < range.start)
                ..columns.partition_point(|&column| (column as usize) < range.end);
            own.clone()
                .chain(0..own.start)
                .chain(own.end..columns.len())
        };
        let count = offsets[range.len()] as usize;
        let [mut columns, mut numbers] = [(); 2].map(|()| vec![0; count]);
        fill_rows(&offsets, &mut columns, &|row, out: &mut [_]| {
            let columns = graph.csr().row(range.start + row);
            for (out, at) in out.iter_mut().zip(by_place(row)) {
                *out = places[columns[at] as usize];
            }
        });
        fill_rows(&offsets, &mut numbers, &|row, out: &mut [_]| {
            let start = graph.offsets()[range.start + row] as u32;
            for (out, at) in out.iter_mut().zip(by_place(row)) {
                *out = start + at as u32;
            }
        });
        let vertices = [own, others].concat();
        let csr = Csr::rectangular(vertices.len(), offsets, columns)?;
        Ok(Self {
            block: Block::new(csr)?,
            vertices,
            edges: numbers,
        })
    }

    /// The rows of some vertices, with all in-neighbors, the others of those behind them in ascending order.
    ///
    /// # Errors
    /// Those of [`Part::new`].
    pub fn of_rows(graph: &Graph, own: &[u32]) -> Result<Self, GraphError> {
        check_ids("vertices", own, graph.vertices() as u64)?;
        Self::new(graph, own, &heard_by(graph, own).0)
    }

    /// The rows of `own`, where each in-neighbor has a place.
    fn at(graph: &Graph, own: &[u32], others: &[u32], places: &[u32]) -> Result<Self, GraphError> {
        let csr = graph.csr();
        let offsets = offsets_of((own.iter()).map(|&vertex| csr.row(vertex as usize).len() as u64));
        let count = offsets[own.len()];
        check_room("edges of a part", 16 * count)?;
        let mut places_and_edges = vec![(0, 0); count as usize];
        fill_rows(&offsets, &mut places_and_edges, &|row, out: &mut [_]| {
            let edges = csr.row_range(own[row] as usize);
            for (out, edge) in out.iter_mut().zip(edges) {
                *out = (places[graph.cols()[edge] as usize], edge as u32);
            }
            // By place, and equal edges in the graph's order.
            out.sort_unstable();
        });
        let [mut columns, mut edges] = [0; 2].map(|zero| vec![zero; count as usize]);
        let of_each = ((&mut columns[..], &mut edges[..]), &places_and_edges[..]);
        parallel::for_each(of_each, |_, ((column, edge), &of)| (*column, *edge) = of);
        drop(places_and_edges);
        let vertices = [own, others].concat();
        let csr = Csr::rectangular(vertices.len(), offsets, columns)?;
        Ok(Self {
            block: Block::new(csr)?,
            vertices,
            edges,
        })
    }

    /// The same of a graph that has these vertices under other numbers: vertex `v` is its vertex `names[v]`.
    ///
    /// # Panics
    /// If there is no name for a vertex.
    #[must_use]
    pub fn renamed(self, names: &[u32]) -> Self {
        let vertices = self.vertices.iter().map(|&vertex| names[vertex as usize]);
        Self {
            vertices: vertices.collect(),
            ..self
        }
    }

    /// The graph's vertex of each source: the own ones in their order, then their other in-neighbors.
    pub fn vertices(&self) -> &[u32] {
        &self.vertices
    }

    /// Own vertices × all of [`Part::vertices`].
    pub fn block(&self) -> &Block {
        &self.block
    }

    /// The graph's edge of each edge of the block.
    pub fn edges(&self) -> &[u32] {
        &self.edges
    }

    /// Vertices that are the part's own: the first of [`Part::vertices`].
    pub fn own(&self) -> &[u32] {
        &self.vertices[..self.block.destinations()]
    }

    /// The order of the edges against their direction: which edge of the block each edge of its transpose is.
    pub fn against(&self) -> Vec<u32> {
        let csr = self.block.csr();
        let mut starts = vec![0_u64; self.vertices.len() + 1];
        for &column in csr.cols() {
            starts[column as usize + 1] += 1;
        }
        for at in 1..starts.len() {
            starts[at] += starts[at - 1];
        }
        let mut order = vec![0; csr.edges()];
        for (edge, &column) in csr.cols().iter().enumerate() {
            let place = &mut starts[column as usize];
            order[*place as usize] = edge as u32;
            *place += 1;
        }
        order
    }
}

/// The in-neighbors of the `own` vertices that are not their own, ascending, and the place of each of those and these,
/// the own ones first.
fn heard_by(graph: &Graph, own: &[u32]) -> (Vec<u32>, Vec<u32>) {
    const HEARD: u32 = u32::MAX - 1;
    let nobody = || AtomicU32::new(u32::MAX);
    let places: Vec<AtomicU32> = (0..graph.vertices()).map(|_| nobody()).collect();
    parallel::for_each(own, |_, &vertex| {
        for &column in graph.csr().row(vertex as usize) {
            places[column as usize].store(HEARD, Ordering::Relaxed);
        }
    });
    let mut places: Vec<u32> = places.into_iter().map(AtomicU32::into_inner).collect();
    for (place, &vertex) in own.iter().enumerate() {
        places[vertex as usize] = place as u32;
    }
    let mut others = Vec::new();
    for (vertex, place) in places.iter_mut().enumerate() {
        if *place == HEARD {
            *place = (own.len() + others.len()) as u32;
            others.push(vertex as u32);
        }
    }
    (others, places)
}

/// Ranges of vertices, one behind the other, each of nearly as many edges and vertices together as every other; as many
/// as there are vertices at most, and one at least.
pub fn even_ranges(graph: &Graph, count: usize) -> Vec<Range<usize>> {
    let (offsets, vertices) = (graph.offsets(), graph.vertices());
    let count = count.clamp(1, vertices.max(1));
    // Of all before a vertex.
    let work = |vertex: usize| offsets[vertex] + vertex as u64;
    let mut start = 0;
    let ranges = (1..=count).map(|number| {
        let share = (u128::from(work(vertices)) * number as u128 / count as u128) as u64;
        let left = count - number;
        // Each has a vertex.
        let (least, most) = (start + 1, vertices - left);
        let (mut low, mut high) = (least.min(most), most);
        while low < high {
            let middle = (low + high) / 2;
            match work(middle) < share {
                true => low = middle + 1,
                false => high = middle,
            }
        }
        let range = start..low;
        start = low;
        range
    });
    ranges.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn graph() -> Graph {
        let rows = [0, 0, 1, 2, 2, 2, 3, 5];
        let cols = [1, 5, 0, 0, 3, 3, 5, 2];
        Graph::from_edges(6, &rows, &cols).unwrap()
    }

    #[test]
    fn a_range_has_its_rows_and_what_they_hear_from() {
        let graph = graph();
        let part = Part::of_range(&graph, 2..4).unwrap();
        assert_eq!(part.vertices, [2, 3, 0, 5]);
        assert_eq!(part.own(), [2, 3]);
        // Vertex 2 aggregates 3 twice and 0, and 3 aggregates 5.
        assert_eq!(part.block.csr().cols(), [1, 1, 2, 3]);
        assert_eq!(part.block.csr().offsets(), [0, 3, 4]);
        assert_eq!(part.edges, [4, 5, 3, 6]);
        assert_eq!(part.against(), [0, 1, 2, 3]);
        assert_eq!(Part::new(&graph, &[2, 3], &[0, 5]).unwrap(), part);
        assert_eq!(Part::of_rows(&graph, &[2, 3]).unwrap(), part);
        let apart = Part::of_rows(&graph, &[5, 0]).unwrap();
        assert_eq!(apart.vertices, [5, 0, 1, 2]);
        assert_eq!(apart.block.csr().cols(), [3, 0, 2]);
        assert_eq!(apart.edges, [7, 1, 0]);
        let nothing = Part::of_range(&graph, 4..4).unwrap();
        assert!(nothing.vertices.is_empty() && nothing.edges.is_empty());
    }

    #[test]
    fn parts_of_other_graphs_are_refused() {
        let graph = graph();
        let told =
            |own: &[u32], others: &[u32]| Part::new(&graph, own, others).unwrap_err().to_string();
        assert!(told(&[6], &[]).contains("vertices[0] is 6"));
        assert!(told(&[2, 3], &[0, 2]).contains("permutation[3] is 2"));
        // Vertex 5, an in-neighbor of 3, is in neither.
        assert!(told(&[2, 3], &[0]).contains("4294967295"));
        let told = Part::of_rows(&graph, &[1, 6]).unwrap_err().to_string();
        assert!(told.contains("vertices[1] is 6"), "{told}");
        let told = Part::of_rows(&graph, &[1, 1]).unwrap_err().to_string();
        assert!(told.contains("permutation[1] is 1"), "{told}");
        let told = Part::of_range(&graph, 2..7).unwrap_err().to_string();
        assert!(told.contains("is 7"), "{told}");
    }

    #[test]
    fn ranges_are_even_and_all_vertices() {
        let graph = generate_star();
        for count in [1, 2, 3, 7, 100, 1000] {
            let ranges = even_ranges(&graph, count);
            assert_eq!(ranges.len(), count.min(graph.vertices()));
            assert!(ranges.iter().all(|range| !range.is_empty()));
            let all = ranges.iter().cloned().flatten();
            assert!(all.eq(0..graph.vertices()), "{count}");
        }
        // The hub, which aggregates all, is as much as all the others.
        assert_eq!(even_ranges(&graph, 2), [0..26, 26..101]);
        let empty = Graph::from_edges(0, &[], &[]).unwrap();
        assert!(even_ranges(&empty, 3).into_iter().eq(std::iter::once(0..0)));
    }

    /// Vertex 0 aggregates 100 others, each of which aggregates it.
    fn generate_star() -> Graph {
        let others = || 1..=100_u32;
        let rows: Vec<u32> = others().map(|_| 0).chain(others()).collect();
        let cols: Vec<u32> = others().chain(others().map(|_| 0)).collect();
        Graph::from_edges(101, &rows, &cols).unwrap()
    }
}
