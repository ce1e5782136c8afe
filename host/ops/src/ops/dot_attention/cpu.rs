//! Attention by dot products row by row: the plain twin of the kernels.

use super::{
    DotAttention, DotAttentionBackwardOperands, DotAttentionOperands, DotAttentionOperators,
};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widened};
use crate::backend::cpu::view::{view, view_mut, with_edges};
use crate::error::Error;
use crate::ops::Checked;
use crate::ops::elementwise::cpu::Mask;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::math::{exp_nonpositive, ln};
use halfgnn_graph::parallel::{self, Items};
use std::borrow::Cow;
use std::ops::Range;

/// Rows that are one piece of work at least.
const MIN_ROWS: usize = 8;

/// Parts that a dot product is kept in, so that the compiler takes vectors.
const PARTS: usize = 8;

/// A matrix in float.
struct Floats<'a> {
    values: Cow<'a, [f32]>,
    stride: usize,
}

impl Floats<'_> {
    fn row(&self, row: usize, columns: Range<usize>) -> &[f32] {
        &self.values[row * self.stride..][columns]
    }
}

/// Calls `f` with the matrices in float.
fn with_floats<E: Element, const N: usize, T>(
    matrices: [&Matrix<Cpu, E>; N],
    f: impl FnOnce([Floats<'_>; N]) -> T,
) -> T {
    let readings = matrices.map(|matrix| (matrix, matrix.buffer.read()));
    let views = readings
        .each_ref()
        .map(|(matrix, values)| view(matrix, values));
    f(views.map(|view| Floats {
        values: widened(view.values),
        stride: view.stride,
    }))
}

impl DotAttentionOperators for Cpu {
    fn dot_attention<E: Element>(
        &self,
        operands: Checked<DotAttentionOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let DotAttentionOperands {
            a,
            op,
            y,
            statistics,
        } = operands.into_inner();
        let heads = Heads::new(&op);
        let y = view_mut(y);
        let rows = (
            parallel::chunks_mut(y.values, y.stride),
            parallel::chunks_mut(statistics.buffer.get_mut(), op.heads),
        );
        with_floats([op.q, op.k, op.v], |[q, k, v]| {
            with_edges(a, |graph| {
                parallel::pieces(rows, MIN_ROWS, &|first, rows| {
                    let mut scores = Vec::new();
                    let mut sums = vec![0.0; y.stride];
                    for (row, (y, statistics)) in (first..).zip(rows.each()) {
                        sums.fill(0.0);
                        let edges = &graph.columns[graph.of_row(row)];
                        for (head, columns) in heads.each() {
                            let query = q.row(row, columns.clone());
                            let score = |&source: &u32| {
                                op.scale * dot(query, k.row(source as usize, columns.clone()))
                            };
                            scores.clear();
                            scores.extend(edges.iter().map(score));
                            let larger = |m: f32, &score: &f32| if score > m { score } else { m };
                            let m = scores.iter().fold(f32::MIN, larger);
                            let mut z = 0.0;
                            let sum = &mut sums[columns.clone()];
                            for (&source, score) in edges.iter().zip(&scores) {
                                let source = source as usize;
                                let weight = exp_nonpositive(score - m);
                                z += weight;
                                let weight = heads.dropped(weight, (head, row, source));
                                add(sum, weight, v.row(source, columns.clone()));
                            }
                            statistics[head] = [0.0; 2];
                            if !edges.is_empty() {
                                let factor = 1.0 / z;
                                sum.iter_mut().for_each(|sum| *sum *= factor);
                                statistics[head][0] = m + ln(z);
                            }
                        }
                        round(&sums, y);
                    }
                });
            });
        });
        Ok(())
    }

    fn dot_attention_backward<E: Element>(
        &self,
        operands: Checked<DotAttentionBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let DotAttentionBackwardOperands {
            a,
            transposed,
            op,
            y,
            dy,
            statistics,
            dq,
            dk,
            dv,
        } = operands.into_inner();
        let heads = Heads::new(&op);
        let statistics = statistics.buffer.get_mut();
        with_floats([op.q, op.k, op.v, y, dy], |[q, k, v, y, dy]| {
            let [dq, dk, dv] = [dq, dk, dv].map(view_mut);
            let gradient = |destination: usize,
                            source: usize,
                            (head, columns),
                            [normalizer, delta]: [f32; 2]| {
                let columns: Range<usize> = columns;
                let [query, gradient] = [&q, &dy].map(|of| of.row(destination, columns.clone()));
                let [key, value] = [&k, &v].map(|of| of.row(source, columns.clone()));
                let above = op.scale * dot(query, key) - normalizer;
                let weight = exp_nonpositive(if above > 0.0 { 0.0 } else { above });
                let ends = (head, destination, source);
                let d = heads.dropped(dot(gradient, value), ends);
                (weight * (d - delta) * op.scale, heads.dropped(weight, ends))
            };
            let rows = (
                parallel::chunks_mut(dq.values, dq.stride),
                parallel::chunks_mut(&mut *statistics, op.heads),
            );
            with_edges(a, |graph| {
                parallel::pieces(rows, MIN_ROWS, &|first, rows| {
                    let mut sums = vec![0.0; dq.stride];
                    for (row, (dq, statistics)) in (first..).zip(rows.each()) {
                        sums.fill(0.0);
                        for (head, columns) in heads.each() {
                            let delta =
                                dot(dy.row(row, columns.clone()), y.row(row, columns.clone()));
                            statistics[head][1] = delta;
                            for &source in &graph.columns[graph.of_row(row)] {
                                let source = source as usize;
                                let of = (head, columns.clone());
                                let (t, _) = gradient(row, source, of, statistics[head]);
                                add(
                                    &mut sums[columns.clone()],
                                    t,
                                    k.row(source, columns.clone()),
                                );
                            }
                        }
                        round(&sums, dq);
                    }
                });
            });
            let statistics: &[[f32; 2]] = statistics;
            let rows = (
                parallel::chunks_mut(dk.values, dk.stride),
                parallel::chunks_mut(dv.values, dv.stride),
            );
            with_edges(transposed, |graph| {
                parallel::pieces(rows, MIN_ROWS, &|first, rows| {
                    let mut sums = [vec![0.0; dk.stride], vec![0.0; dv.stride]];
                    for (row, (dk, dv)) in (first..).zip(rows.each()) {
                        sums.iter_mut().for_each(|sums| sums.fill(0.0));
                        let [of_key, of_value] = &mut sums;
                        for (head, columns) in heads.each() {
                            for &destination in &graph.columns[graph.of_row(row)] {
                                let destination = destination as usize;
                                let of = (head, columns.clone());
                                let statistics = statistics[destination * op.heads + head];
                                let (t, weight) = gradient(destination, row, of, statistics);
                                add(
                                    &mut of_key[columns.clone()],
                                    t,
                                    q.row(destination, columns.clone()),
                                );
                                add(
                                    &mut of_value[columns.clone()],
                                    weight,
                                    dy.row(destination, columns.clone()),
                                );
                            }
                        }
                        round(of_key, dk);
                        round(of_value, dv);
                    }
                });
            });
        });
        Ok(())
    }
}

/// The heads, and what dropout makes of weights.
struct Heads {
    count: usize,
    width: usize,
    mask: Option<Mask>,
}

impl Heads {
    fn new<E: Element>(op: &DotAttention<'_, Cpu, E>) -> Self {
        let dropout = op.dropout.filter(|dropout| dropout.probability > 0.0);
        Self {
            count: op.heads,
            width: op.q.columns() / op.heads,
            mask: dropout.map(Mask::new),
        }
    }

    /// Each head with its columns.
    fn each(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let width = self.width;
        (0..self.count).map(move |head| (head, head * width..(head + 1) * width))
    }

    fn dropped(&self, weight: f32, (head, destination, source): (usize, usize, usize)) -> f32 {
        match &self.mask {
            Some(mask) => mask.edge(weight, head, destination, source),
            None => weight,
        }
    }
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut parts = [0.0; PARTS];
    let (a, b) = (a.chunks_exact(PARTS), b.chunks_exact(PARTS));
    let rest: f32 = a
        .remainder()
        .iter()
        .zip(b.remainder())
        .map(|(a, b)| a * b)
        .sum();
    for (a, b) in a.zip(b) {
        for i in 0..PARTS {
            parts[i] += a[i] * b[i];
        }
    }
    parts.iter().sum::<f32>() + rest
}

fn add(sum: &mut [f32], weight: f32, x: &[f32]) {
    sum.iter_mut()
        .zip(x)
        .for_each(|(sum, x)| *sum += weight * x);
}
