//! Attention by dot products row by row: the plain twin of the kernels.

use super::{
    DotAttention, DotAttentionBackwardOperands, DotAttentionOperands, DotAttentionOperators,
};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{WIDEST, round, widened};
use crate::backend::cpu::simd::Loop;
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
    #[inline(always)]
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

/// The operands of the forward pass in float.
struct Inputs<'a> {
    heads: &'a Heads,
    scale: f32,
    q: Floats<'a>,
    k: Floats<'a>,
    v: Floats<'a>,
}

/// The output and the statistics of one row.
struct RowOutput<'a> {
    of: &'a Inputs<'a>,
    row: usize,
    sources: &'a [u32],
    scores: &'a mut Vec<f32>,
    sums: &'a mut [f32],
    statistics: &'a mut [[f32; 2]],
}

impl Loop for RowOutput<'_> {
    #[inline(always)]
    fn run(self) {
        let Inputs {
            heads,
            scale,
            q,
            k,
            v,
        } = self.of;
        for (head, columns) in heads.each() {
            let query = q.row(self.row, columns.clone());
            self.scores.clear();
            for &source in self.sources {
                let key = k.row(source as usize, columns.clone());
                self.scores.push(scale * dot(query, key));
            }
            let larger = |m: f32, &score: &f32| if score > m { score } else { m };
            let m = self.scores.iter().fold(f32::MIN, larger);
            let mut z = 0.0;
            for score in self.scores.iter_mut() {
                *score = exp_nonpositive(*score - m);
                z += *score;
            }
            let sum = &mut self.sums[columns.clone()];
            for (&source, &weight) in self.sources.iter().zip(&*self.scores) {
                let source = source as usize;
                let weight = heads.dropped(weight, (head, self.row, source));
                add(sum, weight, v.row(source, columns.clone()));
            }
            self.statistics[head] = [0.0; 2];
            if !self.sources.is_empty() {
                let factor = 1.0 / z;
                sum.iter_mut().for_each(|sum| *sum *= factor);
                self.statistics[head][0] = m + ln(z);
            }
        }
    }
}

/// The operands of the backward pass in float.
struct Pass<'a> {
    of: Inputs<'a>,
    y: Floats<'a>,
    dy: Floats<'a>,
}

impl Pass<'_> {
    /// Of an edge and a head the gradient of its score, times the scale, and its weight.
    #[inline(always)]
    fn of_edge(
        &self,
        [destination, source]: [usize; 2],
        (head, columns): (usize, &Range<usize>),
        [normalizer, delta]: [f32; 2],
    ) -> [f32; 2] {
        let Inputs {
            heads,
            scale,
            q,
            k,
            v,
        } = &self.of;
        let [query, gradient] = [q, &self.dy].map(|of| of.row(destination, columns.clone()));
        let [key, value] = [k, v].map(|of| of.row(source, columns.clone()));
        let above = scale * dot(query, key) - normalizer;
        let weight = exp_nonpositive(if above > 0.0 { 0.0 } else { above });
        let ends = (head, destination, source);
        let d = heads.dropped(dot(gradient, value), ends);
        [weight * (d - delta) * scale, heads.dropped(weight, ends)]
    }
}

/// The gradient of one row of queries.
struct QueryGradient<'a> {
    pass: &'a Pass<'a>,
    row: usize,
    sources: &'a [u32],
    sums: &'a mut [f32],
    statistics: &'a mut [[f32; 2]],
}

impl Loop for QueryGradient<'_> {
    #[inline(always)]
    fn run(self) {
        let Pass { of, y, dy } = self.pass;
        for (head, columns) in of.heads.each() {
            let [dy, y] = [dy, y].map(|of| of.row(self.row, columns.clone()));
            self.statistics[head][1] = dot(dy, y);
            for &source in self.sources {
                let source = source as usize;
                let ends = [self.row, source];
                let of_head = (head, &columns);
                let [t, _] = self.pass.of_edge(ends, of_head, self.statistics[head]);
                let key = of.k.row(source, columns.clone());
                add(&mut self.sums[columns.clone()], t, key);
            }
        }
    }
}

/// The gradients of one row of keys and of values.
struct SourceGradients<'a> {
    pass: &'a Pass<'a>,
    row: usize,
    destinations: &'a [u32],
    sums: &'a mut [Vec<f32>; 2],
    statistics: &'a [[f32; 2]],
}

impl Loop for SourceGradients<'_> {
    #[inline(always)]
    fn run(self) {
        let Pass { of, dy, .. } = self.pass;
        let [of_key, of_value] = self.sums;
        for (head, columns) in of.heads.each() {
            for &destination in self.destinations {
                let destination = destination as usize;
                let statistics = self.statistics[destination * of.heads.count + head];
                let ends = [destination, self.row];
                let [t, weight] = self.pass.of_edge(ends, (head, &columns), statistics);
                let [query, dy] = [&of.q, dy].map(|of| of.row(destination, columns.clone()));
                add(&mut of_key[columns.clone()], t, query);
                add(&mut of_value[columns.clone()], weight, dy);
            }
        }
    }
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
        let (heads, instructions) = (Heads::new(&op), *WIDEST);
        let y = view_mut(y);
        let rows = (
            parallel::chunks_mut(y.values, y.stride),
            parallel::chunks_mut(statistics.buffer.get_mut(), op.heads),
        );
        with_floats([op.q, op.k, op.v], |[q, k, v]| {
            let (heads, scale) = (&heads, op.scale);
            let of = Inputs {
                heads,
                scale,
                q,
                k,
                v,
            };
            with_edges(a, |graph| {
                parallel::pieces(rows, MIN_ROWS, &|first, rows| {
                    let mut scores = Vec::new();
                    let mut sums = vec![0.0; y.stride];
                    for (row, (y, statistics)) in (first..).zip(rows.each()) {
                        sums.fill(0.0);
                        instructions.run(RowOutput {
                            of: &of,
                            row,
                            sources: &graph.columns[graph.of_row(row)],
                            scores: &mut scores,
                            sums: &mut sums,
                            statistics,
                        });
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
        let (heads, instructions) = (Heads::new(&op), *WIDEST);
        let statistics = statistics.buffer.get_mut();
        with_floats([op.q, op.k, op.v, y, dy], |[q, k, v, y, dy]| {
            let [dq, dk, dv] = [dq, dk, dv].map(view_mut);
            let (heads, scale) = (&heads, op.scale);
            let of = Inputs {
                heads,
                scale,
                q,
                k,
                v,
            };
            let pass = Pass { of, y, dy };
            let rows = (
                parallel::chunks_mut(dq.values, dq.stride),
                parallel::chunks_mut(&mut *statistics, op.heads),
            );
            with_edges(a, |graph| {
                parallel::pieces(rows, MIN_ROWS, &|first, rows| {
                    let mut sums = vec![0.0; dq.stride];
                    for (row, (dq, statistics)) in (first..).zip(rows.each()) {
                        sums.fill(0.0);
                        instructions.run(QueryGradient {
                            pass: &pass,
                            row,
                            sources: &graph.columns[graph.of_row(row)],
                            sums: &mut sums,
                            statistics,
                        });
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
                        instructions.run(SourceGradients {
                            pass: &pass,
                            row,
                            destinations: &graph.columns[graph.of_row(row)],
                            sums: &mut sums,
                            statistics,
                        });
                        round(&sums[0], dk);
                        round(&sums[1], dv);
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
    #[inline(always)]
    fn each(&self) -> impl Iterator<Item = (usize, Range<usize>)> {
        let width = self.width;
        (0..self.count).map(move |head| (head, head * width..(head + 1) * width))
    }

    #[inline(always)]
    fn dropped(&self, weight: f32, (head, destination, source): (usize, usize, usize)) -> f32 {
        match &self.mask {
            Some(mask) => mask.edge(weight, head, destination, source),
            None => weight,
        }
    }
}

#[inline(always)]
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
    // Halves are added to halves, so that a sum is a few vectors long and not eight numbers.
    let [a, b, c, d, e, f, g, h] = parts;
    let [a, b, c, d] = [a + e, b + f, c + g, d + h];
    ((a + c) + (b + d)) + rest
}

#[inline(always)]
fn add(sum: &mut [f32], weight: f32, x: &[f32]) {
    sum.iter_mut()
        .zip(x)
        .for_each(|(sum, x)| *sum += weight * x);
}
