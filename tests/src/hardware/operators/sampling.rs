//! Batches: what is drawn, factors of its degrees, rows of features.

use super::construct::words_of;
use super::sparse::graph;
use super::{OperatorCase, Results};
use crate::input::{KIND, matrix, words};
use half::f16;
use halfgnn::backend::{Adjacency, Backend};
use halfgnn::ops::{self, DegreePower, Fanout};
use halfgnn::sample::{NeighborSampler, Sampler};
use halfgnn::tensor::Matrix;

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
                for a in [block.forward(), block.backward()] {
                    results = results.and(Results::words(&words_of(backend, a)));
                }
            }
            let inputs = batch.inputs.to_vec(backend).expect("no failure before");
            results = results.and(Results::words(&inputs));
        }
        results
    });
    let rows = OperatorCase::new("rows that an order picks", |backend: &B, operands| {
        let order = words(backend, &operands.below(70, 300));
        let from = matrix::<B, f16>(backend, (60, 41), &operands.mixed::<f16>(60 * 41));
        let mut taken = Matrix::zeros(backend, 300, 41, KIND).expect("room for rows");
        ops::take_rows(backend, &from, &order, &mut taken).expect("legal rows");
        let bits = taken.to_padded(backend).expect("no failure before");
        Results::words(
            &bits
                .iter()
                .map(|x| x.to_bits().into())
                .collect::<Vec<u32>>(),
        )
    });
    vec![degrees, batch, rows]
}
