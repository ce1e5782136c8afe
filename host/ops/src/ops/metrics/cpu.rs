//! What metrics are made of, on the CPU.

use super::{
    ERRORS, MetricsOperators, RANKS, RankKeysOperands, RankSum, ScorePairsOperands, Scores,
    SumErrorsOperands, SumRanksOperands,
};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::view::view;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::WARP;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::metrics::{
    COLUMN_SUMS, Group, NAN_KEY, POSITIVE, RANKS_PER_CHUNK, ROWS_PER_CHUNK, SPLITS, Shares,
    error_terms, score_key, segment,
};
use halfgnn_contract::optimizer::sum_of_cta;
use halfgnn_contract::spmm::lanes_log2;
use halfgnn_graph::parallel;

/// Threads of a CTA.
const THREADS: usize = THREADS_PER_CTA as usize;
/// Rows of a chunk.
const ROWS: usize = ROWS_PER_CHUNK as usize;
/// Sums of a column.
const SUMS: usize = COLUMN_SUMS as usize;

impl MetricsOperators for Cpu {
    fn sum_errors<E: Element>(
        &self,
        operands: Checked<SumErrorsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (values, targets, splits) = (
            of.predictions.buffer.read(),
            of.targets.buffer.read(),
            of.splits.buffer.read(),
        );
        let (predictions, targets) = (view(of.predictions, &values), view(of.targets, &targets));
        let of_chunk = |chunk: usize, splits: &[u32]| {
            let mut sums = vec![0.0; SUMS * predictions.columns];
            for (column, sums) in sums.as_chunks_mut::<SUMS>().0.iter_mut().enumerate() {
                let mut threads = [[0.0; THREADS]; SUMS];
                for (i, &split) in splits.iter().enumerate().filter(|&(_, &split)| split < 3) {
                    let row = chunk * ROWS + i;
                    let terms = error_terms(
                        predictions.values[row * predictions.stride + column].to_f32(),
                        targets.values[row * targets.stride + column],
                    );
                    for (term, at) in terms.into_iter().zip(split as usize * ERRORS..) {
                        threads[at][i % THREADS] += term;
                    }
                }
                *sums = threads.map(sum_of_cta);
            }
            sums
        };
        let chunks = parallel::map(parallel::chunks(&splits, ROWS), of_chunk);
        for (at, sum) in of.sums.buffer.get_mut().iter_mut().enumerate() {
            let mut threads = [0.0; THREADS];
            for (chunk, sums) in chunks.iter().enumerate() {
                threads[chunk % THREADS] += sums[at];
            }
            *sum = sum_of_cta(threads);
        }
        Ok(())
    }

    fn score_pairs<E: Element>(
        &self,
        operands: Checked<ScorePairsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (a_values, b_values) = (of.a.buffer.read(), of.b.buffer.read());
        let (a, b) = (view(of.a, &a_values), view(of.b, &b_values));
        let (firsts, seconds) = (of.firsts.buffer.read(), of.seconds.buffer.read());
        let lanes = 1 << lanes_log2((a.stride / E::LANES) as u32);
        let pairs = (of.scores.buffer.get_mut(), (&*firsts, &*seconds));
        parallel::for_each(pairs, |_, (score, (&first, &second))| {
            let (first, second) = (first as usize, second as usize);
            *score = match first < a.rows && second < b.rows {
                true => {
                    let first = &a.values[first * a.stride..][..a.stride];
                    let second = &b.values[second * b.stride..][..b.stride];
                    dot(first, second, lanes) as f32
                }
                false => f32::NAN,
            };
        });
        Ok(())
    }

    fn rank_keys<E: Element>(
        &self,
        operands: Checked<RankKeysOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (list, [second, third]) = (of.list.buffer.read(), of.begins);
        let columns = of.first_column..of.first_column + of.columns;
        let place = |at: usize, column: usize| (column - of.first_column) * list.len() + at;
        let (keys, segments) = (of.keys.buffer.get_mut(), of.segments.buffer.get_mut());
        let mut put = |at: usize, column: usize, (score, positive): (f32, bool)| {
            let split = u32::from(at >= second as usize) + u32::from(at >= third as usize);
            let segment = (column - of.first_column) as u32 * SPLITS + split;
            let item = place(at, column);
            keys[item] = score_key(score);
            segments[item] = segment | if positive { POSITIVE } else { 0 };
        };
        let rows = of.scores.rows();
        let listed = list.iter().enumerate().map(|(at, &row)| (at, row as usize));
        // What is no row has a NaN for a score.
        let (there, missing): (Vec<_>, Vec<_>) = listed.partition(|&(_, row)| row < rows);
        for (at, _) in missing {
            columns
                .clone()
                .for_each(|column| put(at, column, (f32::NAN, false)));
        }
        match of.scores {
            Scores::Labels { logits, targets } => {
                let (values, targets_read) = (logits.buffer.read(), targets.buffer.read());
                let (logits, targets) = (view(logits, &values), view(targets, &targets_read));
                for (at, row) in there {
                    for column in columns.clone() {
                        let score = logits.values[row * logits.stride + column].to_f32();
                        let target = targets.values[row * targets.stride + column];
                        put(at, column, (score, target > 0.5));
                    }
                }
            }
            Scores::Classes { logits, labels } => {
                let (values, labels) = (logits.buffer.read(), labels.buffer.read());
                let logits = view(logits, &values);
                for (at, row) in there {
                    let label = labels[row] as usize;
                    let row = &logits.values[row * logits.stride..][..logits.columns];
                    if let [first, second] = row {
                        put(at, 0, (second.to_f32() - first.to_f32(), label == 1));
                        continue;
                    }
                    let logit = |column: usize| row[column].to_f32();
                    let shares = Shares::new(row.len() as u32, |column| logit(column as usize));
                    for column in columns.clone() {
                        let score = shares.log_odds(column as u32, logit(column));
                        put(at, column, (score, label == column));
                    }
                }
            }
            Scores::Given { scores, positives } => {
                let (scores, positives) = (scores.buffer.read(), positives.buffer.read());
                for (at, row) in there {
                    put(at, 0, (scores[row].to_f32(), positives[row] == 1));
                }
            }
        }
        Ok(())
    }

    fn sum_ranks(&self, operands: Checked<SumRanksOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let (keys, segments) = (of.keys.buffer.read(), of.segments.buffer.read());
        let mut before = Vec::with_capacity(keys.len() + 1);
        before.push(0);
        for &word in segments.iter() {
            before.push(before[before.len() - 1] + (word >> 31));
        }
        let (listed, [second, third]) = (of.listed as u32, of.begins);
        let words = SPLITS as usize * RANKS;
        let sums = of.sums.buffer.get_mut();
        for (at, &kind) in of.of.iter().enumerate() {
            let first = (at * of.all_columns + of.first_column) * words;
            let results = sums[first..][..of.columns * words].as_chunks_mut().0;
            parallel::for_each(results, |at, result| {
                let [start, stop] = segment(at as u32, listed, second, third);
                let keys = &keys[start as usize..stop as usize];
                let counts = |of: &dyn Fn(&Group) -> u64| {
                    groups(keys, start, &before)
                        .map(|(_, group)| of(&group))
                        .sum()
                };
                let doubles = |of: &dyn Fn(&Group) -> f64| {
                    sum_of_chunks(
                        keys.len(),
                        groups(keys, start, &before).map(|(at, group)| (at, of(&group))),
                    )
                };
                let sum = match kind {
                    RankSum::Concordant => counts(&Group::concordant),
                    RankSum::Hits(most) => counts(&|group| group.hits(most)),
                    RankSum::Precisions => doubles(&Group::precision).to_bits(),
                    RankSum::ReciprocalRanks => doubles(&Group::reciprocal_rank).to_bits(),
                };
                let positives = before[stop as usize] - before[start as usize];
                let has_nan = keys.last() == Some(&NAN_KEY);
                *result = [sum, positives.into(), has_nan.into()];
            });
        }
        Ok(())
    }
}

/// A dot product as the lanes of a sub-warp make it: each takes every so manieth vector, and the halves of the lanes
/// are added until one is left.
fn dot<E: Element>(a: &[E], b: &[E], mut lanes: usize) -> f64 {
    let mut sums = [0.0; WARP as usize];
    let vectors = a.chunks(E::LANES).zip(b.chunks(E::LANES));
    for (i, (a, b)) in vectors.enumerate() {
        for (a, b) in a.iter().zip(b) {
            sums[i % lanes] += f64::from(a.to_f32()) * f64::from(b.to_f32());
        }
    }
    while lanes > 1 {
        lanes /= 2;
        for lane in 0..lanes {
            sums[lane] += sums[lane + lanes];
        }
    }
    sums[0]
}

/// The groups of equal keys of a segment that begins at `start`, each with the place of its first.
fn groups<'a>(
    keys: &'a [u32],
    start: u64,
    before: &'a [u32],
) -> impl Iterator<Item = (usize, Group)> + 'a {
    let stop = start + keys.len() as u64;
    keys.chunk_by(|a, b| a == b)
        .scan(start, move |begin, tied| {
            let end = *begin + tied.len() as u64;
            let group = Group::new([start, *begin, end, stop], |at| before[at as usize]);
            let at = (*begin - start) as usize;
            *begin = end;
            Some((at, group))
        })
}

/// The sum of terms at places below `len`, in the order of the kernels.
fn sum_of_chunks(len: usize, terms: impl Iterator<Item = (usize, f64)>) -> f64 {
    const CHUNK: usize = RANKS_PER_CHUNK as usize;
    let mut chunks = vec![[0.0; THREADS]; len.div_ceil(CHUNK)];
    for (at, term) in terms {
        chunks[at / CHUNK][at % CHUNK % THREADS] += term;
    }
    let mut threads = [0.0; THREADS];
    for (chunk, sums) in chunks.into_iter().enumerate() {
        threads[chunk % THREADS] += sum_of_cta(sums);
    }
    sum_of_cta(threads)
}
