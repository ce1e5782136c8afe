//! Label propagation: rounds as the contract defines them, and what comes of them.

use crate::Scale;
use crate::graphs::{boundaries, odd, permutation, power_law};
use crate::input::{KIND, Random, words};
use halfgnn::backend::Backend;
use halfgnn::backend::cpu::Cpu;
use halfgnn::graph::generate::{BlockModel, Grid};
use halfgnn::graph::reorder::{Permutation, cached_share, louvain};
use halfgnn::graph::{Csr, Graph};
use halfgnn::ops::{self, Neighbors};
use halfgnn::tensor::Array;
use halfgnn_contract::communities::{NEIGHBORS, chance, first_place, listens, mixed};
use std::collections::BTreeMap;

/// A round on the device: the labels after it, and how many are others.
fn round<B: Backend>(
    backend: &B,
    offsets: &[u64],
    columns: &[u32],
    number: u32,
    labels: &[u32],
) -> (Vec<u32>, u64) {
    let offsets = Array::from_slice(backend, offsets, KIND).expect("room for offsets");
    let columns = words(backend, columns);
    let neighbors = Neighbors {
        offsets: &offsets,
        columns: &columns,
    };
    let mut next = words(backend, &vec![u32::MAX; labels.len()]);
    let labels = words(backend, labels);
    let moved = ops::propagate_labels(backend, neighbors, number, &labels, &mut next);
    let moved = moved.expect("a legal round");
    (next.to_vec(backend).expect("no failure before"), moved)
}

/// The label of a vertex after a round, by counting.
fn counted(graph: &Csr, vertex: u32, number: u32, labels: &[u32]) -> u32 {
    let (own, chance) = (labels[vertex as usize], chance(vertex, number));
    if !listens(chance, number) {
        return own;
    }
    let row = graph.row(vertex as usize);
    let first = first_place(chance, row.len() as u32) as usize;
    let heard = row.iter().cycle().skip(first);
    let mut votes = BTreeMap::new();
    for &neighbor in heard.take(row.len().min(NEIGHBORS as usize)) {
        *votes.entry(labels[neighbor as usize]).or_insert(0) += 1;
    }
    let best = votes
        .iter()
        .max_by_key(|&(&label, &votes)| (votes, label == own, mixed(label)));
    best.map_or(own, |(&label, _)| label)
}

/// Every label after a round is the one that most of the neighbours have that the round looks at, ties as the contract says, on
/// graphs of every kind, of few labels and of as many as vertices.
pub fn rounds_follow_the_contract<B: Backend>(backend: &B, scale: Scale) {
    let mut graphs: Vec<(String, Csr)> = odd(scale)
        .into_iter()
        .map(|(name, graph)| (name.to_string(), graph))
        .collect();
    graphs.extend(boundaries(scale).into_iter().take(scale.pick(3, 1_000)));
    let edges = scale.pick(9_000, 300_000);
    graphs.push(("power law".into(), power_law(1_001, edges, Random(43))));
    for (name, graph) in graphs {
        let vertices = graph.vertices() as u32;
        for kinds in [3, u32::MAX] {
            let labels: Vec<u32> = (0..vertices)
                .map(|vertex| Random(44).bits(vertex as usize) % kinds)
                .collect();
            for number in [0, 1, 6] {
                let (next, moved) = round(backend, graph.offsets(), graph.cols(), number, &labels);
                let expected: Vec<u32> = (0..vertices)
                    .map(|vertex| counted(&graph, vertex, number, &labels))
                    .collect();
                assert!(next == expected, "{name}, round {number}, {kinds} labels");
                let others = next.iter().zip(&labels).filter(|(a, b)| a != b).count();
                assert_eq!(moved, others as u64, "{name}, round {number}");
            }
        }
    }
}

/// A block model whose edges stay within their communities as often as not, and the community of each vertex.
fn planted(scale: Scale) -> (Graph, Vec<u32>) {
    let model = BlockModel {
        vertices: scale.pick(1_200, 24_000),
        classes: scale.pick(12, 60),
        mean_degree: 40.0,
        within: 0.9,
        hubs: 0,
        hub_degree: 0,
    };
    model.generate(7).expect("a graph")
}

/// How many of the edges have both ends in one community.
fn inside(graph: &Graph, communities: &[u32]) -> f64 {
    let edges = graph.rows().iter().zip(graph.cols());
    let inside = edges.filter(|&(&a, &b)| communities[a as usize] == communities[b as usize]);
    inside.count() as f64 / graph.edges() as f64
}

/// The modularity of communities (Newman and Girvan, 2004).
fn modularity(graph: &Graph, communities: &[u32]) -> f64 {
    let mut degrees: BTreeMap<u32, f64> = BTreeMap::new();
    for (&community, degree) in communities.iter().zip(graph.in_degrees()) {
        *degrees.entry(community).or_default() += degree as f64;
    }
    let edges = graph.edges() as f64;
    let chance: f64 = degrees
        .values()
        .map(|degree| (degree / edges).powi(2))
        .sum();
    inside(graph, communities) - chance
}

/// Communities that were planted are found but for a hundredth of their modularity, and their order keeps as many rows in a cache as
/// Louvain's.
pub fn planted_communities_are_found<B: Backend>(backend: &B, scale: Scale) {
    let (graph, truth) = planted(scale);
    let found = ops::label_propagation(backend, &graph).expect("room for a graph");
    let labels = found.labels.to_vec(backend).expect("no failure before");
    let (most, told) = (modularity(&graph, &truth), modularity(&graph, &labels));
    assert!(told > 0.99 * most, "{told} of {most}");
    let count = found.count(backend).expect("no failure before");
    let planted = scale.pick(12, 60);
    assert!((planted..planted * 3 / 2).contains(&count), "{count}");
    assert!(found.rounds < ops::MOST_ROUNDS, "{}", found.rounds);

    let order = found.order(backend).expect("room for an order");
    let rows = graph.vertices() as u64 / 6;
    let share = |order: Option<&Permutation>| cached_share(&graph, order, rows);
    let (before, after, best) = (
        share(None),
        share(Some(&order)),
        share(Some(&louvain(&graph))),
    );
    assert!(before < 0.4, "{before}");
    assert!(after > 0.98 * best, "{after} of {best}");
    // Communities lie one after the other, and each keeps the order of its vertices.
    let sorted = order.apply(&labels, 1);
    assert!(sorted.is_sorted());
    let vertices: Vec<u32> = (0..labels.len() as u32).collect();
    let sorted: Vec<_> = sorted.into_iter().zip(order.apply(&vertices, 1)).collect();
    assert!(sorted.is_sorted());
}

/// The same communities on every device, of a graph that is its own transpose and of others, whose vertices listen both ways.
pub fn devices_agree<B: Backend>(backend: &B, scale: Scale) {
    let mut graphs = vec![planted(scale).0];
    let edges = scale.pick(6_000, 200_000);
    let directed = power_law(700, edges, Random(45));
    graphs.push(Graph::new(directed).expect("a square adjacency"));
    // Names at random, so that near places say nothing.
    let grid = Grid {
        width: scale.pick(20, 200),
        height: 30,
    };
    let grid = grid.generate().expect("a graph");
    let names = permutation(grid.vertices(), Random(46));
    graphs.push(grid.permuted(&names).expect("a permutation"));
    // An edge from each vertex of a chain to the next, which hears from none itself.
    let chain: Vec<u32> = (0..63).collect();
    let next: Vec<u32> = (1..64).collect();
    graphs.push(Graph::from_edges(70, &chain, &next).expect("a graph"));
    graphs.push(Graph::from_edges(0, &[], &[]).expect("a graph"));
    // A vertex that hears 63 others, who hear nobody.
    let others: Vec<u32> = (1..64).collect();
    graphs.push(Graph::from_edges(64, &[0; 63], &others).expect("a graph"));
    let cpu = Cpu::new();
    for (at, graph) in graphs.iter().enumerate() {
        let here = ops::label_propagation(backend, graph).expect("room for a graph");
        let there = ops::label_propagation(&cpu, graph).expect("room for a graph");
        assert_eq!(here.rounds, there.rounds, "graph {at}");
        let labels = there.labels.to_vec(&cpu).expect("no failure before");
        assert!(
            here.labels.to_vec(backend).expect("no failure before") == labels,
            "graph {at}"
        );
        let order = here.order(backend).expect("room for an order");
        assert!(order == there.order(&cpu).expect("room"), "graph {at}");
        // Those who hear nobody, without the way back, keep their labels.
        if at == 3 || at == 5 {
            let alone = labels.iter().take(64).zip(0..).filter(|&(&l, v)| l == v);
            assert!(alone.count() < 32, "{labels:?}");
        }
        if at == 3 {
            assert_eq!(labels[64..], [64, 65, 66, 67, 68, 69]);
        }
    }
}

/// What does not fit is refused; edges that there are not, and neighbours that are no vertices, are passed over.
pub fn misfits_are_refused<B: Backend>(backend: &B, _: Scale) {
    let error = |offsets: &[u64], labels: usize, next: usize| {
        let offsets = Array::from_slice(backend, offsets, KIND).expect("room for offsets");
        let columns = words(backend, &[0, 1]);
        let neighbors = Neighbors {
            offsets: &offsets,
            columns: &columns,
        };
        let mut next = words(backend, &vec![0; next]);
        let labels = words(backend, &vec![0; labels]);
        let refused = ops::propagate_labels(backend, neighbors, 0, &labels, &mut next);
        refused.expect_err("a misfit").to_string()
    };
    assert_eq!(
        error(&[0, 1, 2], 3, 3),
        "propagate_labels: labels should be 2, is 3"
    );
    assert_eq!(
        error(&[0, 1, 2], 2, 1),
        "propagate_labels: next labels should be 2, is 1"
    );
    assert_eq!(
        error(&[], 0, 0),
        "propagate_labels: no offsets; there is one more than vertices"
    );
    // The second vertex hears from no vertex and from the first; the third begins behind the last edge, the fourth ends there.
    let (offsets, columns) = ([0, 0, 2, 90, 2], [77, 0]);
    let (labels, moved) = round(backend, &offsets, &columns, 0, &[5, 6, 7, 8]);
    assert_eq!((labels, moved), (vec![5, 5, 7, 8], 1));
    // A number that is no vertex is no voice for the label that is one's own.
    let (labels, moved) = round(backend, &[0, 0, 4, 4], &[77, 0, 0, 2], 0, &[5, 6, 6]);
    assert_eq!((labels, moved), (vec![5, 5, 6], 1));
    // Of forty such neighbours none counts.
    let (labels, moved) = round(backend, &[0, 40], &[9; 40], 0, &[5]);
    assert_eq!((labels, moved), (vec![5], 0));
}
