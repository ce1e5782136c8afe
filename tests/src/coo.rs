//! SpMM and SDDMM of a plain COO in order of rows: the sums of the kernels that know where rows start, bit for bit.

use crate::Scale;
use crate::graphs;
use crate::input::{Random, bits, unwritten};
use crate::sddmm;
use crate::spmm::{Case, IN_FLOAT, Weighted};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Csr;
use halfgnn::ops::{
    self, Aggregation, Fanout, LayerRoom, LayerSources, NeighborPolicy, Schedule, Spmm, SpmmPolicy,
    Write,
};
use halfgnn::sample::LayerSizes;
use halfgnn::tensor::Element;

/// Edge-parallel, rows by their ids.
pub const BY_ROW_IDS: SpmmPolicy = SpmmPolicy {
    schedule: Schedule::RowIds,
    ..IN_FLOAT
};

/// By row ids, what threads have of a row added by atomics: GNNOne's.
pub const ATOMIC: SpmmPolicy = SpmmPolicy {
    write: Write::Atomic,
    ..BY_ROW_IDS
};

/// The same, edges in turn.
pub const IN_TURN: SpmmPolicy = SpmmPolicy {
    schedule: Schedule::RowIdsInTurn,
    ..ATOMIC
};

/// The graph as lists of rows and columns, and nothing else.
fn plain<B: Backend>(backend: &B, graph: &Csr) -> Adjacency<B> {
    Adjacency::from_row_ids(backend, graph.shape(), graph.rows(), graph.cols())
        .expect("room for a graph")
}

/// Rows that end around every boundary, empty ones, and hubs over many CTAs.
fn uneven(scale: Scale) -> Vec<Csr> {
    let degrees = [
        0, 7, 1, 0, 15, 16, 17, 31, 33, 64, 1, 127, 129, 255, 257, 513, 2, 1100, 3, 0,
    ];
    let mut all = vec![
        graphs::from_degrees(&degrees.repeat(scale.pick(1, 9)), Random(31)),
        // The row of every CTA begins in the first, and the others with a CTA.
        graphs::from_degrees(&[scale.pick(2_000, 20_000), 64, 128, 0, 192, 5], Random(32)),
        graphs::from_degrees(&[0, 0, 0], Random(33)),
    ];
    all.extend(
        graphs::rectangular(scale)
            .into_iter()
            .map(|(_, graph)| graph),
    );
    all
}

/// Each weight, in CTAs of several sizes, of the graph as it is and of its two lists alone: as where starts are known.
pub fn sums_are_those_of_starts<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        for (edges, features) in [(16, 300), (32, 57), (128, 6), (256, 130)] {
            for weighted in [Weighted::Ones, Weighted::Edges, Weighted::Columns] {
                let by = |policy| {
                    let policy = SpmmPolicy {
                        edges_per_warp: Some(edges),
                        ..policy
                    };
                    let case = Case::random::<E>(graph, features, policy);
                    case.averaged().weighted::<E>(weighted)
                };
                let case = by(BY_ROW_IDS);
                case.check::<B, E>(backend, "by row ids");
                let expected = bits(&by(IN_FLOAT).run::<B, E>(backend));
                let what = format!("{edges} edges a warp, F = {features}, {weighted:?}");
                assert_eq!(bits(&case.run::<B, E>(backend)), expected, "{what}");
                // By itself, where there is no more.
                let by_itself = by(SpmmPolicy::DEFAULT);
                let lists = plain(backend, graph);
                let actual = by_itself.run_on::<B, E>(backend, &lists);
                assert_eq!(bits(&actual), expected, "{what}, of two lists");
            }
        }
    }
    for graph in uneven(scale) {
        check::<B, f16>(backend, &graph);
        check::<B, bf16>(backend, &graph);
        check::<B, f32>(backend, &graph);
    }
}

/// Rows without edges before, between and behind those that have some: as many as a launch finds by itself, and one more, which are
/// cleared before.
pub fn rows_without_edges<B: Backend>(backend: &B, _: Scale) {
    for rows in [1, 128, 129, 1 << 17, (1 << 17) + 1] {
        let mut degrees = vec![0; rows];
        // Neighbours, and rows at the ends of what a warp and a CTA look for.
        for row in [0, 1, 31, 33, 127, 700, 701, rows - 1] {
            if row < rows && rows > 1 {
                degrees[row] = 1 + row % 5;
            }
        }
        let graph = graphs::from_degrees(&degrees, Random(35));
        for features in [5, 40] {
            let case = Case::random::<f16>(&graph, features, BY_ROW_IDS);
            case.check::<B, f16>(backend, &format!("{rows} rows"));
        }
    }
}

/// An epilogue follows in passes, and other operators make of the two lists what they want: the arrays of a CSR.
pub fn what_wants_more_makes_it<B: Backend>(backend: &B, _: Scale) {
    for graph in uneven(Scale::Small) {
        let lists = plain(backend, &graph);
        let [rows, columns] = lists.to_coo(backend).expect("no failure before");
        assert_eq!(
            (rows.as_slice(), columns.as_slice()),
            (graph.rows(), graph.cols())
        );
        let mut case = Case::random::<f32>(&graph, 9, SpmmPolicy::DEFAULT);
        case.aggregation = Aggregation::Max;
        let expected = case.run::<B, f32>(backend);
        assert_eq!(case.run_on::<B, f32>(backend, &lists), expected);
        let whole = Adjacency::new(backend, &graph).expect("room");
        assert_eq!(
            plain(backend, &graph)
                .arrays(backend)
                .expect("arrays")
                .words(),
            whole.arrays(backend).expect("arrays").words()
        );
        assert_eq!(lists.longest_row(), whole.longest_row());
    }
}

/// Dot products, which read nothing but rows and columns.
pub fn dot_products<B: Backend>(backend: &B, scale: Scale) {
    fn check<B: Backend, E: Element>(backend: &B, graph: &Csr) {
        for &policy in sddmm::policies::<E>() {
            let case = sddmm::Case::random::<E>(graph, 2, 24, policy);
            let expected = bits(&case.run::<B, E>(backend));
            let lists = plain(backend, graph);
            assert_eq!(bits(&case.run_on::<B, E>(backend, &lists)), expected);
        }
    }
    for graph in uneven(scale) {
        check::<B, f16>(backend, &graph);
        check::<B, f32>(backend, &graph);
    }
}

/// Consecutive edges and edges in turn, by atomics: integers, whose sums are exact in any order.
pub fn divisions<B: Backend>(backend: &B, scale: Scale) {
    for graph in uneven(scale) {
        for policy in [ATOMIC, IN_TURN] {
            for (edges, features) in [(None, 4), (Some(32), 13), (Some(128), 6), (Some(64), 300)] {
                let policy = SpmmPolicy {
                    edges_per_warp: edges,
                    ..policy
                };
                let mut case = Case::random::<f32>(&graph, features, policy);
                case.x = Random(34).integers(9, case.x.len());
                case.check::<B, f32>(backend, "by atomics");
            }
        }
    }
}

/// Lists that are none of edges in order of rows.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let refused = |shape, rows: &[u32], columns: &[u32]| {
        let error = Adjacency::from_row_ids(backend, shape, rows, columns).expect_err("refused");
        error.to_string()
    };
    assert_eq!(
        refused((3, 2), &[0, 1, 2], &[1, 0, 2]),
        "columns[2] is 2, but a graph of 2 vertices has ids below 2"
    );
    assert_eq!(
        refused((3, 2), &[0, 2, 1], &[1, 0, 1]),
        "rows[2] is 1, after 2; edges come in order of rows, so sort them"
    );
    assert!(refused((3, 2), &[0, 2], &[1]).contains("columns has 1 entries where 2"));
}

/// Of rows that are drawn again and again the last edges are no row's: a card would follow them.
pub fn rows_that_are_drawn_again_are_refused<B: Backend>(backend: &B, _: Scale) {
    let graph = graphs::from_degrees(&[3, 1, 2], Random(35));
    let whole = Adjacency::new(backend, &graph).expect("room");
    let sizes = LayerSizes {
        destinations: 3,
        edges: 6,
        met: 0,
    };
    let policy = NeighborPolicy {
        fanout: Fanout::All,
        replace: false,
        self_loops: false,
    };
    let (_, block) =
        LayerRoom::new(backend, &whole, policy, (sizes, LayerSources::Met)).expect("room");
    let x = unwritten::<B, f32>(backend, (3, 4));
    let mut y = unwritten::<B, f32>(backend, (3, 4));
    for policy in [BY_ROW_IDS, IN_TURN] {
        let op = Spmm {
            policy,
            ..Spmm::default()
        };
        let error = ops::spmm(backend, block.forward(), &op, &x, &mut y).expect_err("refused");
        assert!(error.to_string().contains("drawn again"), "{error}");
    }
}
