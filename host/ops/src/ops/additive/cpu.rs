//! Additive attention edge by edge: the plain twin of the kernels.

use super::{Additive, AdditiveGradientOperands, AdditiveOperators, AdditiveScoresOperands};
use crate::backend::Adjacency;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widen};
use crate::error::Error;
use crate::ops::sddmm::cpu::{CHUNK_EDGES, Features, PARTS, sum_parts};
use crate::ops::{Checked, edge_plane};
use crate::tensor::Element;
use halfgnn_contract::attention::{leaky_relu, leaky_relu_derivative};
use halfgnn_graph::parallel;
use std::ops::Range;

impl AdditiveOperators for Cpu {
    fn additive_scores<E: Element>(
        &self,
        operands: Checked<AdditiveScoresOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let AdditiveScoresOperands { a, op, scores } = operands.into_inner();
        let plane = edge_plane(a.edges());
        if plane == 0 {
            return Ok(());
        }
        // Of one head with its padding, which is zero in all.
        let (stride, features) = (op.u.stride(), op.u.stride() / op.heads);
        let (rows, columns) = (a.row_ids(self)?.buffer.read(), a.column_ids.buffer.read());
        let (u, v) = (op.u.buffer.read(), op.v.buffer.read());
        let (rows, columns): (&[u32], &[u32]) = (&rows, &columns);
        let (u, v): (&[E], &[E]) = (&u, &v);
        let vector = floats(&op);
        let planes = scores.buffer.get_mut().chunks_exact_mut(plane);
        for (head, scores) in planes.enumerate() {
            let first = head * features;
            let vector = &vector[first..][..features];
            let chunks = parallel::chunks_mut(scores, CHUNK_EDGES);
            parallel::for_each(chunks, |chunk, scores| {
                let mut of_row = Features::new(u, stride, first, features);
                let mut of_column = Features::new(v, stride, first, features);
                for (edge, score) in (chunk * CHUNK_EDGES..).zip(scores) {
                    if edge >= rows.len() {
                        *score = 0.0;
                        continue;
                    }
                    let (u, v) = (of_row.of(rows[edge]), of_column.of(columns[edge]));
                    *score = sum(vector, u, v, op.slope);
                }
            });
        }
        Ok(())
    }

    fn additive_gradient<E: Element>(
        &self,
        operands: Checked<AdditiveGradientOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let AdditiveGradientOperands {
            a,
            op,
            d,
            du,
            of_vector,
        } = operands.into_inner();
        let d: &[f32] = &d.buffer.read();
        let vector = floats(&op);
        let slope = op.slope;
        gradient(a, op, d, du.buffer.get_mut(), |feature, given| {
            vector[feature] * leaky_relu_derivative(given, slope)
        });
        if let Some(of_vector) = of_vector {
            gradient(a, op, d, of_vector.buffer.get_mut(), |_, given| {
                leaky_relu(given, slope)
            });
        }
        Ok(())
    }
}

/// The vector in float, padding included.
fn floats<E: Element>(op: &Additive<'_, Cpu, E>) -> Vec<f32> {
    let mut floats = vec![0.0; op.vector.stride()];
    widen(&op.vector.buffer.read(), &mut floats);
    floats
}

/// `Σ_f a[f] · LeakyReLU(u[f] + v[f])`
fn sum(vector: &[f32], u: &[f32], v: &[f32], slope: f32) -> f32 {
    let mut parts = [0.0; PARTS];
    let whole = vector.len() / PARTS * PARTS;
    for at in (0..whole).step_by(PARTS) {
        for part in 0..PARTS {
            let given = u[at + part] + v[at + part];
            parts[part] += vector[at + part] * leaky_relu(given, slope);
        }
    }
    for at in whole..vector.len() {
        parts[at - whole] += vector[at] * leaky_relu(u[at] + v[at], slope);
    }
    sum_parts(parts)
}

/// Edges of a row whose sums are one piece of work.
const PIECE_EDGES: usize = 4096;

/// Edges that are added up before they are added to others.
const BATCH_EDGES: usize = 128;

/// Sums over the edges of each row of `d · term(f, u[row, f] + v[column, f])`, rounded to `out`.
fn gradient<E: Element>(
    a: &Adjacency<Cpu>,
    op: Additive<'_, Cpu, E>,
    d: &[f32],
    out: &mut [E],
    term: impl Fn(usize, f32) -> f32 + Sync,
) {
    let (stride, features) = (op.u.stride(), op.u.stride() / op.heads);
    let plane = edge_plane(a.edges());
    let (offsets, columns) = (a.row_offsets().buffer.read(), a.column_ids.buffer.read());
    let (u, v) = (op.u.buffer.read(), op.v.buffer.read());
    let (offsets, columns): (&[u64], &[u32]) = (&offsets, &columns);
    let (u, v): (&[E], &[E]) = (&u, &v);
    // A row of `u` and some of its edges.
    let piece = |u: &[f32], edges: Range<usize>| {
        let (mut sums, mut heard) = (vec![0.0; stride], vec![0.0; stride]);
        let mut batch = vec![0.0; stride];
        for first in edges.clone().step_by(BATCH_EDGES) {
            batch.fill(0.0);
            for edge in first..edges.end.min(first + BATCH_EDGES) {
                widen(&v[columns[edge] as usize * stride..][..stride], &mut heard);
                for head in 0..op.heads {
                    let d = d[head * plane + edge];
                    for f in head * features..(head + 1) * features {
                        batch[f] += d * term(f, u[f] + heard[f]);
                    }
                }
            }
            sums.iter_mut()
                .zip(&batch)
                .for_each(|(sum, batch)| *sum += batch);
        }
        sums
    };
    parallel::by_edges(offsets, stride, out, &|rows, out| {
        let mut own = vec![0.0; stride];
        for (row, out) in rows.zip(out.chunks_exact_mut(stride)) {
            widen(&u[row * stride..][..stride], &mut own);
            let edges = offsets[row] as usize..offsets[row + 1] as usize;
            let pieces = edges.clone().step_by(PIECE_EDGES).collect::<Vec<_>>();
            let of_piece = |first: usize| piece(&own, first..edges.end.min(first + PIECE_EDGES));
            let mut sums = match pieces[..] {
                [] => vec![0.0; stride],
                [first] => of_piece(first),
                _ => {
                    let sums = parallel::map(&*pieces, |_, &first| of_piece(first));
                    let add = |mut a: Vec<f32>, b: Vec<f32>| {
                        a.iter_mut().zip(b).for_each(|(a, b)| *a += b);
                        a
                    };
                    sums.into_iter().fold(vec![0.0; stride], add)
                }
            };
            // A NaN makes more than zeros of the padding of a single head.
            sums[op.u.columns()..].fill(0.0);
            round(&sums, out);
        }
    });
}
