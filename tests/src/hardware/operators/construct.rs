//! Sorts, prefix sums, and graphs made on the device.

use super::sparse::graph;
use super::{OperatorCase, Results};
use crate::input::{KIND, words};
use crate::sort::{grouped, sorted};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::graph::Graph;
use halfgnn::ops;
use halfgnn::tensor::Array;

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let sort = OperatorCase::new("sort of 9,000 pairs by 13 bits", |backend: &B, operands| {
        let keys = operands.below(1 << 13, 9_000);
        let values = operands.below(1 << 31, 9_000);
        // Groups of a pair or two, and of more than a hundred, are the same order.
        for shift in [0, 7] {
            let keys: Vec<u32> = keys.iter().map(|key| key >> shift).collect();
            let (_, of_groups, in_groups) = grouped(backend, 1 << (13 - shift), &keys, &values);
            let by_key = sorted(backend, &keys, Some(&values), 13 - shift);
            assert_eq!((of_groups, in_groups), by_key);
        }
        let (keys, values) = sorted(backend, &keys, Some(&values), 13);
        Results::words(&keys).and(Results::words(&values))
    });
    let sum = OperatorCase::new("exclusive sum of 9,000 words", |backend: &B, operands| {
        let given = words(backend, &operands.below(1 << 31, 9_000));
        let mut sums = words(backend, &[0; 9_000]);
        ops::exclusive_sum(backend, &given, &mut sums).expect("a legal sum");
        Results::words(&sums.to_vec(backend).expect("no failure before"))
    });
    let graph = OperatorCase::new("graph of edges on the device", |backend: &B, operands| {
        let graph = graph(operands);
        let (rows, columns) = (words(backend, graph.cols()), words(backend, graph.rows()));
        let (a, order) = Adjacency::from_coo(backend, graph.shape(), &rows, &columns)
            .expect("edges of the graph");
        let offsets = Array::from_slice(backend, graph.offsets(), KIND).expect("room for offsets");
        let (b, _) = Adjacency::from_csr(backend, graph.shape().1, &offsets, &rows)
            .expect("offsets of the graph");
        let order = order.to_vec(backend).expect("no failure before");
        [a, b].iter().fold(Results::words(&order), |results, a| {
            results.and(Results::words(&words_of(backend, a)))
        })
    });
    let communities = OperatorCase::new("communities by labels", |backend: &B, operands| {
        let graph = Graph::new(super::sparse::graph(operands)).expect("a square adjacency");
        let found = ops::label_propagation(backend, &graph).expect("room for a graph");
        let order = found.order(backend).expect("room for an order");
        let labels = found.labels.to_vec(backend).expect("no failure before");
        Results::words(&labels).and(Results::words(order.new_of_old()))
    });
    vec![sort, sum, graph, communities]
}

/// All arrays of an adjacency, one after the other.
pub(super) fn words_of<B: Backend>(backend: &B, a: &Adjacency<B>) -> Vec<u32> {
    let arrays = a.arrays(backend).expect("no failure before");
    arrays.words()
}
