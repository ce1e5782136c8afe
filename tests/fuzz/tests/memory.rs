//! The memory that reading a list of edges takes, beside that of the finished graph.

use halfgnn::data::{OpenGraph, OpenOptions};
use halfgnn::graph::Graph;
use halfgnn_fuzz::allocation;
use std::fmt::Write as _;
use std::io::Cursor;

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

const VERTICES: u32 = 150_000;

/// `count` edges, hardly one of them twice.
fn edges(count: u32) -> impl Iterator<Item = (u32, u32)> {
    (0..count).map(|k| {
        let far = k.wrapping_mul(2_654_435_761) >> 8;
        (k % VERTICES, far % VERTICES)
    })
}

/// Reads a text on one thread, the one whose memory is counted: the graph, and the most that was held, in graphs.
fn read(text: &str, undirected: bool) -> (Graph, f64) {
    let mut options = OpenOptions::default();
    options.undirected = undirected;
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    let (graph, peak) = pool.expect("a thread").install(|| {
        allocation::peak_of(|| Graph::read_from(Cursor::new(text), &options).expect("a graph"))
    });
    let share = peak as f64 / graph.bytes() as f64;
    (graph, share)
}

#[test]
fn a_list_of_edges_is_read_in_less_than_two_and_a_half_graphs() {
    const LISTED: u32 = 1_500_000;
    let (mut once, mut both) = (String::new(), String::new());
    for (from, to) in edges(LISTED) {
        writeln!(once, "{from}\t{to}").expect("room");
    }
    for (from, to) in edges(LISTED / 2) {
        writeln!(both, "{from}\t{to}\n{to}\t{from}").expect("room");
    }
    let mut lower = format!(
        "%%MatrixMarket matrix coordinate pattern symmetric\n{VERTICES} {VERTICES} {LISTED}\n"
    );
    for (one, other) in edges(LISTED) {
        let (row, column) = (one.max(other) + 1, one.min(other) + 1);
        writeln!(lower, "{row} {column}").expect("room");
    }

    let listed = LISTED as usize;
    for (what, text, undirected, expected) in [
        ("each edge once", &once, false, listed),
        ("once, and the reverse added", &once, true, 2 * listed),
        ("in both directions", &both, true, listed),
        ("a symmetric matrix", &lower, false, 2 * listed),
    ] {
        let (graph, share) = read(text, undirected);
        println!("{what}: {} edges, {share:.2} graphs", graph.edges());
        let few = expected / 50; // self-loops and duplicates
        assert!(
            graph.edges() <= expected && graph.edges() + few > expected,
            "{what}"
        );
        assert!((1.0..2.5).contains(&share), "{what}: {share} graphs");
    }
}
