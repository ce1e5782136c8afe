//! Random pairs of vertices.

use super::{STREAM, SamplePairsOperands, SamplingOperators};
use crate::backend::cpu::Cpu;
use crate::error::Error;
use crate::ops::Checked;
use halfgnn_contract::rng::{key, philox};
use halfgnn_contract::sampling::{ATTEMPTS, pair, pair_counter};
use rayon::prelude::*;

impl SamplingOperators for Cpu {
    fn sample_pairs(&self, operands: Checked<SamplePairsOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let graph = of
            .edges
            .map(|edges| (edges.offsets.buffer.read(), edges.column_ids.buffer.read()));
        let graph = graph
            .as_ref()
            .map(|(offsets, columns)| (&offsets[..], &columns[..]));
        let is_edge = |[row, column]: [u32; 2]| {
            graph.is_some_and(|(offsets, columns)| {
                let [begin, end] = [0, 1].map(|next| offsets[row as usize + next] as usize);
                columns[begin..end].binary_search(&column).is_ok()
            })
        };
        let (key, step, vertices) = (key(of.seed, STREAM), of.step, of.vertices as u32);
        let drawn = |at, attempt| pair(philox(key, pair_counter(step, attempt, at)), vertices);
        let firsts = of.firsts.buffer.get_mut().par_iter_mut();
        let seconds = of.seconds.buffer.get_mut().par_iter_mut();
        firsts
            .zip(seconds)
            .enumerate()
            .for_each(|(at, (first, second))| {
                let mut pairs = (0..ATTEMPTS).map(|attempt| drawn(at as u64, attempt));
                let accepted = pairs.find(|&pair| !is_edge(pair));
                [*first, *second] = accepted.unwrap_or_else(|| drawn(at as u64, ATTEMPTS - 1));
            });
        Ok(())
    }
}
