//! Graphs made on a device of edges that lie there, compared with those that the host makes by `==`: array by array, and by
//! an SpMM.

use crate::Scale;
use crate::graphs::{boundaries, from_degrees, odd, permutation, power_law, rectangular};
use crate::input::{KIND, Random, words};
use crate::spmm;
use half::f16;
use halfgnn::backend::{Adjacency, Backend, DeviceGraph};
use halfgnn::graph::reorder::Permutation;
use halfgnn::graph::{Csr, Graph, edge_order};
use halfgnn::ops::{self, DegreePower, GraphRows, SpmmPolicy};
use halfgnn::tensor::Array;

fn read<B: Backend>(backend: &B, array: &Array<B, u32>) -> Vec<u32> {
    array.to_vec(backend).expect("no failure before")
}

/// The edges of a graph in some other order, and the order: entry `k` is which edge of the graph the `k`-th is.
fn shuffled(graph: &Csr, random: u32) -> (Vec<u32>, Vec<u32>) {
    let order = permutation(graph.edges(), Random(random));
    let pick = |ids: &[u32]| order.iter().map(|&at| ids[at as usize]).collect();
    (pick(graph.rows()), pick(graph.cols()))
}

/// All arrays of `made` are those of an adjacency of `expected`.
fn assert_same<B: Backend>(backend: &B, name: &str, made: &Adjacency<B>, expected: &Csr) {
    let uploaded = Adjacency::new(backend, expected).expect("room for a graph");
    let arrays = |a: &Adjacency<B>| a.arrays(backend).expect("no failure before");
    let (made, uploaded) = (arrays(made), arrays(&uploaded));
    assert!(made == uploaded, "{name}: {made:?}\nis not\n{uploaded:?}");
}

/// Graphs of every kind.
fn graphs(scale: Scale) -> Vec<(String, Csr)> {
    let named = |(name, graph): (&str, Csr)| (name.to_string(), graph);
    let mut graphs: Vec<_> = odd(scale).into_iter().map(named).collect();
    graphs.extend(rectangular(scale).into_iter().map(named));
    graphs.extend(boundaries(scale).into_iter().take(scale.pick(6, 1_000)));
    let edges = scale.pick(9_000, 500_000);
    graphs.push(("power law".into(), power_law(3_000, edges, Random(40))));
    graphs
}

/// Edges in any order become the host's graph, and the order says where each edge was.
pub fn coo_becomes_the_hosts_graph<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs(scale) {
        let (rows, columns) = shuffled(&graph, 41);
        let (given_rows, given_columns) = (words(backend, &rows), words(backend, &columns));
        let (a, order) = Adjacency::from_coo(backend, graph.shape(), &given_rows, &given_columns)
            .expect("edges of the graph");
        assert_same(backend, &name, &a, &graph);
        let order = order.to_vec(backend).expect("no failure before");
        if graph.shape().0 == graph.shape().1 {
            let expected = edge_order(graph.vertices(), &rows, &columns).expect("legal edges");
            assert_eq!(order, expected, "{name}");
        }
        let back: Vec<u32> = order.iter().map(|&at| columns[at as usize]).collect();
        assert_eq!(back, graph.cols(), "{name}");
    }
}

/// Offsets and columns, in order within a row or not, become the host's graph.
pub fn csr_becomes_the_hosts_graph<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs(scale) {
        let mut columns = graph.cols().to_vec();
        for row in 0..graph.vertices() {
            columns[graph.row_range(row)].reverse();
        }
        let offsets = Array::from_slice(backend, graph.offsets(), KIND).expect("room");
        let columns = words(backend, &columns);
        let (a, _) = Adjacency::from_csr(backend, graph.shape().1, &offsets, &columns)
            .expect("edges of the graph");
        assert_same(backend, &name, &a, &graph);
    }
}

/// The transpose is the host's, and the map takes its edges to the same edges.
pub fn transposes<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs(scale) {
        let a = Adjacency::new(backend, &graph).expect("room for a graph");
        let (transposed, map) = a.transposed(backend).expect("room for the transpose");
        let expected = graph.transposed();
        assert_same(backend, &name, &transposed, &expected);
        let map = map.to_vec(backend).expect("no failure before");
        for (edge, &of) in map.iter().enumerate() {
            let ends = (expected.rows()[edge], expected.cols()[edge]);
            let of = of as usize;
            assert_eq!(ends, (graph.cols()[of], graph.rows()[of]), "{name}");
        }
    }
}

/// With their vertices renamed on the device graphs are the host's, array by array and both ways, and the map takes edges along in their order.
pub fn renamed_graphs_are_the_hosts<B: Backend>(backend: &B, scale: Scale) {
    let squares = graphs(scale)
        .into_iter()
        .filter(|(_, graph)| graph.shape().0 == graph.shape().1);
    // Edges between the same vertices, which keep their order, and a graph that is its own transpose.
    let (rows, columns) = ([0, 1, 2, 2, 2, 2, 3], [2, 2, 0, 1, 3, 3, 2]);
    let twice = Csr::from_edges(4, &rows, &columns).expect("legal edges");
    let both_ways = Graph::new(power_law(90, 700, Random(46))).expect("a square adjacency");
    let both_ways = both_ways.to_undirected().expect("room").csr().clone();
    let more = [("twice".into(), twice), ("both ways".into(), both_ways)];
    for (name, csr) in squares.chain(more) {
        let graph = Graph::new(csr).expect("a square adjacency");
        let order = Permutation::of_order(&permutation(graph.vertices(), Random(45)));
        let order = order.expect("each vertex once");
        let expected = graph.permuted(order.new_of_old()).expect("a permutation");
        let rows = GraphRows::new(backend, graph.csr()).expect("room for a graph");
        let a = Adjacency::renamed(backend, &rows, &order).expect("room to rename");
        assert_same(backend, &name, &a, expected.csr());
        let (offsets, columns) = a.to_csr(backend).expect("no failure before");
        let fetched = graph.permuted_as(offsets, columns).expect("a graph");
        assert_eq!(fetched.csr(), expected.csr(), "{name}");
        let both = DeviceGraph::of_renamed(backend, &expected, a).expect("room for the transpose");
        assert_same(backend, &name, both.backward(), expected.transposed());

        let (a, map) = Adjacency::renamed_with_map(backend, &rows, &order).expect("room to rename");
        assert_same(backend, &name, &a, expected.csr());
        let rename = |ids: &[u32]| -> Vec<u32> { ids.iter().map(|&v| order.rename(v)).collect() };
        let (rows, columns) = (rename(graph.rows()), rename(graph.cols()));
        let wanted = edge_order(graph.vertices(), &rows, &columns).expect("legal edges");
        let map = map.to_vec(backend).expect("no failure before");
        assert_eq!(map, wanted, "{name}");
    }
    // Names of other vertices, and rows that are not vertices.
    let graph = power_law(9, 20, Random(47));
    let rows = GraphRows::new(backend, &graph).expect("room for a graph");
    let order = Permutation::of_order(&[1, 0]).expect("each vertex once");
    let refused = Adjacency::renamed(backend, &rows, &order).expect_err("refused");
    assert_eq!(refused.to_string(), "renaming: names should be 9, is 2");
    let tall = Csr::rectangular_from_edges((3, 2), &[2], &[1]).expect("legal edges");
    let refused = GraphRows::new(backend, &tall).expect_err("refused");
    assert_eq!(
        refused.to_string(),
        "GraphRows::new: columns should be 3, is 2"
    );
}

/// An SpMM on a graph that was made on the device has the bits of one on the host's.
pub fn sums_are_the_same<B: Backend>(backend: &B, _: Scale) {
    let graph = power_law(200, 3_000, Random(42));
    let (rows, columns) = shuffled(&graph, 43);
    let (a, _) = Adjacency::from_coo(
        backend,
        graph.shape(),
        &words(backend, &rows),
        &words(backend, &columns),
    )
    .expect("edges of the graph");
    let case = spmm::Case::random::<f16>(&graph, 24, SpmmPolicy::DEFAULT);
    assert_eq!(
        case.run_on::<B, f16>(backend, &a),
        case.run::<B, f16>(backend)
    );
}

/// Factors are those of the formula, rounded once each.
pub fn degrees_make_factors<B: Backend>(backend: &B, scale: Scale) {
    for (name, graph) in graphs(scale) {
        let a = Adjacency::new(backend, &graph).expect("room for a graph");
        let powers = [
            DegreePower::Degree,
            DegreePower::Inverse,
            DegreePower::InverseRoot,
        ];
        for power in powers {
            let factor = |degree: f32| match power {
                DegreePower::Degree => degree,
                DegreePower::Inverse => 1.0 / degree,
                DegreePower::InverseRoot => 1.0 / degree.sqrt(),
            };
            let made = ops::degree_factors(backend, &a, power).expect("room for factors");
            let degrees = graph.row_degrees();
            let wanted: Vec<f32> = (degrees.iter())
                .map(|&degree| factor(degree.max(1) as f32))
                .collect();
            let made = made.to_vec(backend).expect("no failure before");
            assert_eq!(made, wanted, "{name}, {power:?}");
        }
    }
}

/// Ids that are no vertex's, offsets that are none, lists of two lengths: a line each, and nothing is made.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let refused = |shape, rows: &[u32], columns: &[u32]| {
        Adjacency::from_coo(
            backend,
            shape,
            &words(backend, rows),
            &words(backend, columns),
        )
        .expect_err("refused")
        .to_string()
    };
    assert_eq!(
        refused((3, 2), &[0, 2, 1], &[1, 0, 2]),
        "columns[2] is 2, but a graph of 2 vertices has ids below 2"
    );
    assert_eq!(
        refused((3, 9), &[0, 7, 1], &[1, 0, 2]),
        "rows[1] is 7, but a graph of 3 vertices has ids below 3"
    );
    assert_eq!(
        refused((3, 3), &[0, 1], &[1]),
        "Adjacency::from_coo: columns should be 2, is 1"
    );
    let columns = words(backend, &[0, 1, 0]);
    for (offsets, reason) in [
        (vec![], "offsets has 0 entries"),
        (vec![1, 2, 3], "offsets[0] is 1"),
        (vec![0, 2, 1, 3], "offsets[2] is 1"),
        (vec![0, 1, 2], "offsets[2] is 2"),
    ] {
        let offsets = Array::from_slice(backend, &offsets, KIND).expect("room");
        let error = Adjacency::from_csr(backend, 2, &offsets, &columns)
            .expect_err("refused")
            .to_string();
        assert!(error.contains(reason), "{error}");
    }
    // What an order names beyond the words is nothing.
    let mut taken = words(backend, &[7; 3]);
    let order = words(backend, &[1, 9, 0]);
    ops::take_words(backend, &words(backend, &[5, 6]), &order, &mut taken).expect("legal");
    assert_eq!(read(backend, &taken), [6, 0, 5]);
}

/// Rows of edges come from offsets, and offsets from rows, with empty rows at both ends and hubs between.
pub fn rows_and_offsets<B: Backend>(backend: &B, _: Scale) {
    let graph = from_degrees(&[0, 0, 3, 700, 0, 1, 255, 1, 0, 0], Random(44));
    let offsets = Array::from_slice(backend, graph.offsets(), KIND).expect("room");
    let mut ids = words(backend, &vec![u32::MAX; graph.edges()]);
    ops::row_ids(backend, &offsets, &mut ids).expect("legal");
    assert_eq!(read(backend, &ids), graph.rows());
    let mut back = Array::from_slice(backend, &[u64::MAX; 11], KIND).expect("room");
    ops::row_offsets(backend, &ids, &mut back).expect("legal");
    let back = back.to_vec(backend).expect("no failure before");
    assert_eq!(back, graph.offsets());
    assert_eq!(ops::largest_word(backend, &ids).expect("legal"), 7);
    let many: Vec<u32> = (0..600_000).map(|at| at ^ 0x5_5555).collect();
    let most = many.iter().copied().max().unwrap_or(0);
    assert_eq!(
        ops::largest_word(backend, &words(backend, &many)).expect("legal"),
        most
    );
    assert_eq!(
        ops::largest_word(backend, &words(backend, &[])).expect("legal"),
        0
    );
}
