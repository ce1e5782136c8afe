//! Batches: what is drawn, factors of its degrees, rows of features.

use super::construct::words_of;
use super::sparse::graph;
use super::{OperatorCase, Results};
use crate::input::{KIND, elements, matrix, words};
use half::{bf16, f16};
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::ops::{
    self, DRAWS, DegreePower, Draw, EdgeNorms, Fanout, NeighborPolicy, Places, RowCache,
};
use halfgnn::sample::{NeighborSampler, Sampler};
use halfgnn::tensor::{Array, Element, Matrix};

pub(super) fn cases<B: Backend + 'static>() -> Vec<OperatorCase<B>> {
    let degrees = OperatorCase::new("factors of degrees", |backend: &B, operands| {
        let a = Adjacency::new(backend, &graph(operands)).expect("room for a graph");
        let powers = [
            DegreePower::Degree,
            DegreePower::Inverse,
            DegreePower::InverseRoot,
        ];
        let words = powers.map(|power| -> Vec<u32> {
            let factors = ops::degree_factors(backend, &a, power).expect("room for factors");
            let factors = factors.to_vec(backend).expect("no failure before");
            factors.into_iter().map(f32::to_bits).collect()
        });
        Results::words(&words.concat())
    });
    let batch = OperatorCase::new("batch of neighbours", |backend: &B, operands| {
        let graph = graph(operands);
        let mut results = Results::words(&[]);
        for (fanouts, replace, self_loops) in [([3, 40], false, true), ([2, 5], true, false)] {
            let fanouts = fanouts.map(|count| Fanout::of(count).expect("a fanout"));
            let sampler = NeighborSampler::new(backend, &graph, fanouts.to_vec());
            let sampler = sampler.expect("room for a graph").replacing(replace);
            let mut sampler = sampler.with_self_loops(self_loops);
            let seeds: Vec<u32> = (0..20).collect();
            let batch = sampler.sample(backend, &seeds, 5, 9).expect("a batch");
            for block in &batch.blocks {
                for a in [block.forward(), block.backward(backend).expect("room")] {
                    results = results.and(Results::words(&words_of(backend, a)));
                }
            }
            let inputs = batch.inputs.to_vec(backend).expect("no failure before");
            results = results.and(Results::words(&inputs));
        }
        results
    });
    let firsts = OperatorCase::new("first edges of many vertices", |backend: &B, operands| {
        let a = Adjacency::new(backend, &graph(operands)).expect("room for a graph");
        // Some are none.
        let vertices = words(backend, &operands.below(a.rows() as u32 + 9, 5000));
        let policies = [(4, false, true), (4, true, false)].map(|(count, replace, self_loops)| {
            let fanout = Fanout::of(count).expect("a fanout");
            NeighborPolicy {
                fanout,
                replace,
                self_loops,
            }
        });
        let firsts = policies.map(|policy| -> Vec<u32> {
            let mut firsts = words(backend, &vec![0; 5001]);
            ops::first_edges(backend, &a, policy, &vertices, &mut firsts).expect("legal sums");
            firsts.to_vec(backend).expect("no failure before")
        });
        Results::words(&firsts.concat())
    });
    let rows = OperatorCase::new("rows that an order picks", |backend: &B, operands| {
        let order = words(backend, &operands.below(70, 300));
        let from = matrix::<B, f16>(backend, (60, 41), &operands.mixed::<f16>(60 * 41));
        let mut taken = Matrix::zeros(backend, 300, 41, KIND).expect("room for rows");
        let bits = |taken: &Matrix<B, f16>| -> Vec<u32> {
            let bits = taken.to_padded(backend).expect("no failure before");
            bits.iter().map(|x| x.to_bits().into()).collect()
        };
        ops::take_rows(backend, &from, &order, &mut taken).expect("legal rows");
        let all = bits(&taken);
        // Rows that have a copy are the same.
        let cache = RowCache::new(backend, &from, &[59, 0, 31, 32, 7]).expect("room for copies");
        ops::take_cached_rows(backend, (&from, &cache), &order, &mut taken).expect("legal rows");
        assert_eq!(bits(&taken), all);
        Results::words(&all)
    });
    let subgraphs = OperatorCase::new("subgraph of walks", |backend: &B, operands| {
        let a = Adjacency::new(backend, &graph(operands)).expect("room for a graph");
        let vertices = a.rows();
        let draw = Draw {
            seed: 5,
            step: 9,
            layer: 0,
        };
        let roots = words(backend, &operands.below(vertices as u32, 40));
        let mut walks = words(backend, &[0; 150]);
        let mut others = words(backend, &[0; 60]);
        let mut moved = words(backend, &[0; 90]);
        ops::random_walks(backend, &a, Some(&roots), (2, draw), &mut walks).expect("legal walks");
        ops::random_walks(backend, &a, None, (0, draw), &mut others).expect("legal walks");
        ops::frontier_walk(backend, &a, &roots, (70, draw), &mut moved).expect("a legal walk");
        let mut places = Places::new(backend, vertices).expect("room for places");
        let subgraph = places
            .induced(backend, &a, &walks)
            .expect("room for a subgraph");
        let mut counts = words(backend, &vec![3; a.edges()]);
        // Of another draw nothing is counted.
        let mut members = words(backend, &vec![0; vertices]);
        let mut sizes = words(backend, &[0; DRAWS as usize]);
        let mut of_vertices = words(backend, &vec![0; vertices]);
        ops::mark_draw(backend, &mut members, &walks, 7).expect("a legal draw");
        ops::mark_draw(backend, &mut members, &others, 9).expect("a legal draw");
        ops::size_draws(backend, &members, &mut sizes).expect("legal sizes");
        let draws = (&members, 1 << 7);
        ops::tally_draws(backend, &a, draws, &mut of_vertices, &mut counts).expect("legal counts");
        let values = operands.mixed::<f16>(a.edges()).into_iter();
        let values: Vec<f16> = values.map(f16::from_f32).collect();
        let values = Array::from_slice(backend, &values, KIND).expect("room for values");
        let mut taken = Array::zeros(backend, subgraph.edges.len(), KIND).expect("room for values");
        ops::take_values(backend, &values, &subgraph.edges, &mut taken).expect("legal values");
        let read = |array: &Array<B, u32>| array.to_vec(backend).expect("no failure before");
        let taken: Vec<f16> = taken.to_vec(backend).expect("no failure before");
        let mut all = [
            &walks,
            &others,
            &moved,
            &subgraph.vertices,
            &subgraph.edges,
            &counts,
        ]
        .map(read)
        .concat();
        all.extend(taken.into_iter().map(|value| u32::from(value.to_bits())));
        all.extend(words_of(backend, subgraph.block.forward()));
        all.extend(words_of(
            backend,
            subgraph.block.backward(backend).expect("room"),
        ));
        Results::words(&all)
    });
    vec![
        degrees,
        batch,
        firsts,
        rows,
        subgraphs,
        norms::<B, f16>(),
        norms::<B, bf16>(),
        norms::<B, f32>(),
    ]
}

/// What edges multiply in GraphSAINT's batches.
fn norms<B: Backend + 'static, E: Element>() -> OperatorCase<B> {
    let name = format!("norms of edges in {}", E::PRECISION);
    OperatorCase::new(name, |backend: &B, operands| {
        let a = Adjacency::new(backend, &graph(operands)).expect("room for a graph");
        let (vertices, edges) = (a.rows(), a.edges());
        let of_vertices = words(backend, &operands.below(1300, vertices));
        let of_edges = words(backend, &operands.below(1300, edges));
        let weights = elements::<B, f32>(backend, &operands.mild::<f32>(edges));
        let mut side = || {
            let factors = operands.below(1 << 20, vertices).into_iter();
            let factors: Vec<f64> = factors.map(|x| f64::from(x).sqrt()).collect();
            Array::from_slice(backend, &factors, KIND).expect("room for factors")
        };
        let (rows, columns) = (side(), side());
        let alone = EdgeNorms {
            graph: &a,
            vertex_counts: &of_vertices,
            edge_counts: &of_edges,
            weights: None,
            sides: None,
        };
        let all = EdgeNorms {
            weights: Some(&weights),
            sides: Some([&rows, &columns]),
            ..alone
        };
        let mut results = Vec::new();
        for norms in [alone, all] {
            let largest = ops::largest_edge_norm(backend, norms).expect("legal norms");
            let mut values = Array::<B, E>::zeros(backend, edges, KIND).expect("room for values");
            ops::edge_norms(backend, norms, 0.25, &mut values).expect("legal norms");
            let values = values.to_vec(backend).expect("no failure before");
            results.push(largest.to_bits());
            results.extend(values.into_iter().map(|value| value.to_f32().to_bits()));
        }
        Results::words(&results)
    })
}
