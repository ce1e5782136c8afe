//! What an order saves, estimated from a sample of the edges: how many of the rows that an SpMM gathers are in a cache.

use super::Permutation;
use crate::Graph;
use crate::generate::{below, draw};
use crate::parallel;

/// Edges that are looked at.
const EDGES: u64 = 1 << 16;
/// Rows that read a column, at most, that are looked at for the last before one of them.
const READERS: usize = 1 << 11;
/// Key of the random numbers that say which edges.
const KEY: [u32; 2] = [0x6c6f_6361, 0x6c69_7479];

/// The share of the edges, 0 to 1, whose column's row is in a cache of `rows` rows when a graph is walked row by row in
/// `order`, or as it is: what a cache saves of an SpMM's gathering. Estimated from a sample of the edges, in some
/// milliseconds.
///
/// Of an edge it is looked up how many edges were walked since its column was read. A cache that drops what was not
/// read for longest has what the last `T` edges read, where `T` is the number of edges that read as many different
/// rows: the integral of the share of reads whose last one is longer ago (Xiang et al., "HOTL: a higher order theory of
/// locality", ASPLOS 2013).
///
/// # Panics
/// Where `order` is of another number of vertices.
pub fn cached_share(graph: &Graph, order: Option<&Permutation>, rows: u64) -> f64 {
    let csr = graph.csr();
    let edges = csr.edges() as u64;
    if edges == 0 {
        return 1.0;
    }
    if let Some(order) = order {
        let vertices = order.new_of_old().len();
        assert_eq!(vertices, graph.vertices(), "an order of the graph");
    }
    let readers = graph.transposed();
    let place = |vertex: u32| order.map_or(vertex, |order| order.rename(vertex)) as usize;
    // When the row of each place is walked: twice the number of edges before its middle.
    let mut times = vec![0; graph.vertices()];
    for (vertex, ends) in (0..).zip(csr.offsets().windows(2)) {
        times[place(vertex)] = ends[1] - ends[0];
    }
    let mut before = 0;
    for time in &mut times {
        let length = *time;
        *time = 2 * before + length;
        before += length;
    }
    let sample = EDGES.min(edges);
    let mut since = parallel::map(0..sample as usize, |_, at| {
        // One of each stretch of edges.
        let stretch = |at: u64| (u128::from(edges) * u128::from(at) / u128::from(sample)) as u64;
        let (first, last) = (stretch(at as u64), stretch(at as u64 + 1));
        let [high, low, ..] = draw(KEY, at as u64, 0);
        let edge = first + below(last - first, high, low);
        let row = csr.offsets().partition_point(|&offset| offset <= edge) - 1;
        let (column, edge) = (csr.cols()[edge as usize], edge as usize);
        if edge > csr.offsets()[row] as usize && csr.cols()[edge - 1] == column {
            // An edge that occurs twice.
            return 0;
        }
        let readers = readers.row(column as usize);
        // Of many, some in even steps; the one that was looked for is then as many times as near.
        let step = readers.len().div_ceil(READERS).max(1);
        let here = times[place(row as u32)];
        let others = readers.iter().step_by(step);
        let others = others.map(|&other| times[place(other)]);
        let before = others.filter(|&other| other < here).max();
        before.map_or(u64::MAX, |before| (here - before) / 2 / step as u64)
    });
    since.sort_unstable();
    // Different rows that a number of edges read: each read counts for the time since its last one, as far as that is
    // among them.
    let mut shorter = 0.0;
    for (at, &time) in since.iter().enumerate() {
        let longer = (since.len() - at) as f64;
        let different = (shorter + longer * time as f64) / since.len() as f64;
        if different > rows as f64 || time == u64::MAX {
            return at as f64 / since.len() as f64;
        }
        shorter += time as f64;
    }
    1.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{BlockModel, ErdosRenyi, Grid, Rmat};
    use crate::reorder::{by_degree, louvain};

    /// The share that a cache has which drops what was not read for longest, counted read by read.
    fn counted(graph: &Graph, rows: usize) -> f64 {
        // Places in the order of the last reads; a row's newest alone counts.
        let mut newest = vec![usize::MAX; graph.vertices()];
        let mut reads = std::collections::VecDeque::new();
        let (mut there, mut hits) = (0, 0);
        let mut is_there = vec![false; graph.vertices()];
        for (read, &column) in graph.cols().iter().enumerate() {
            let row = column as usize;
            newest[row] = read;
            reads.push_back((read, row));
            if is_there[row] {
                hits += 1;
                continue;
            }
            is_there[row] = true;
            there += 1;
            while there > rows {
                let (read, oldest) = reads.pop_front().expect("a row that is there was read");
                if newest[oldest] == read {
                    is_there[oldest] = false;
                    there -= 1;
                }
            }
        }
        f64::from(hits) / graph.edges() as f64
    }

    #[test]
    fn the_sample_tells_what_a_cache_has() {
        let blocks = BlockModel {
            vertices: 24_000,
            classes: 80,
            mean_degree: 30.0,
            within: 0.9,
            hubs: 0,
            hub_degree: 0,
        };
        let random = ErdosRenyi {
            vertices: 10_000,
            edges: 100_000,
            undirected: true,
        };
        let grid = Grid {
            width: 200,
            height: 100,
        };
        let graphs = [
            ("blocks", blocks.generate(3).unwrap().0),
            ("random", random.generate(3).unwrap()),
            ("power law", Rmat::graph500(13).generate(3).unwrap()),
            ("grid", grid.generate().unwrap()),
        ];
        for (name, graph) in &graphs {
            for order in [None, Some(louvain(graph)), Some(by_degree(graph))] {
                let renamed = order
                    .as_ref()
                    .map(|order| graph.permuted(order.new_of_old()).unwrap());
                for part in [20, 5] {
                    let rows = graph.vertices() / part;
                    let told = cached_share(graph, order.as_ref(), rows as u64);
                    let true_share = counted(renamed.as_ref().unwrap_or(graph), rows);
                    assert!(
                        (told - true_share).abs() < 0.03,
                        "{name}, {} of the rows, ordered {}: {told} for {true_share}",
                        1.0 / part as f64,
                        order.is_some()
                    );
                }
            }
        }
    }

    #[test]
    fn everything_is_in_a_cache_that_is_large_enough() {
        let grid = Grid {
            width: 50,
            height: 100,
        };
        let graph = grid.generate().unwrap();
        let most = cached_share(&graph, None, 1 << 40);
        // But for the first read of each.
        assert!((most - 0.745).abs() < 0.02, "{most}");
        let none = cached_share(&graph, None, 0);
        assert_eq!(none, 0.0);
        assert_eq!(
            cached_share(&Graph::from_edges(3, &[], &[]).unwrap(), None, 7),
            1.0
        );
    }
}
