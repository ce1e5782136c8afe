//! Softmax over the edges of a row, steps of it on planes of edges, and what attention does to heads of features.
//!
//! Everything is computed in float, row by row in the order of the edges, and rounded once.

use super::convert::{round, widen};
use super::elementwise::Mask;
use super::spmm::Planes;
use super::{Cpu, spmm, view, view_mut};
use crate::backend::{
    Adjacency, Aggregation, AttentionOperators, AttentionScores, EdgeStep, EdgeValues,
    SegmentReduction, SoftmaxGradient,
};
use crate::error::Error;
use crate::ops::{
    AttentionPairOperands, AttentionStatisticsOperands, Checked, EdgeStepOperands,
    HeadDotsOperands, HeadMeanBackwardOperands, HeadMeanOperands, HeadOuterOperands,
    HeadScoresOperands, HeadSumsOperands, SegmentReduceOperands,
};
use crate::tensor::{Element, Matrix};
use bytemuck::Pod;
use halfgnn_contract::attention::{
    Softmax, edge_plane_stride, leaky_relu, leaky_relu_derivative, weight,
};
use halfgnn_contract::math::exp;
use rayon::prelude::*;
use std::ops::Range;

/// Rows that are one piece of work at least: less would cost more to hand out than to do.
const MIN_ROWS: usize = 64;

/// Rows whose sums are added up before they are added to those of others.
const SUM_ROWS: usize = 256;

/// A graph as the loops below see it.
struct Edges<'a> {
    offsets: &'a [u64],
    columns: &'a [u32],
    count: usize,
}

/// Calls `f` with the arrays of `a`.
fn with_edges<T>(a: &Adjacency<Cpu>, f: impl FnOnce(&Edges<'_>) -> T) -> T {
    f(&Edges {
        offsets: &a.offsets.buffer.read(),
        columns: &a.column_ids.buffer.read(),
        count: a.rows(),
    })
}

impl Edges<'_> {
    fn of_row(&self, row: usize) -> Range<usize> {
        self.offsets[row] as usize..self.offsets[row + 1] as usize
    }

    /// Writes `f(head, row)` to each number of `planes`.
    fn for_rows<T: Pod + Send>(&self, planes: &mut [T], f: impl Fn(usize, usize) -> T + Sync) {
        planes
            .par_iter_mut()
            .with_min_len(MIN_ROWS)
            .enumerate()
            .for_each(|(at, out)| *out = f(at / self.count, at % self.count));
    }
}

/// Scores of vertices, as slices.
struct Scores<'a> {
    destination: &'a [f32],
    source: &'a [f32],
    slope: f32,
    planes: Planes,
}

impl Scores<'_> {
    /// `l + r` of an edge, and where the numbers of its destination stand.
    fn of(&self, head: usize, row: usize, column: usize) -> (f32, usize) {
        let [destination, source] = self.planes.of(head, row, column);
        (
            self.destination[destination] + self.source[source],
            destination,
        )
    }
}

/// Calls `f` with the scores as slices.
fn with_scores<T>(
    of: &AttentionScores<'_, Cpu>,
    planes: Planes,
    f: impl FnOnce(&Scores<'_>) -> T,
) -> T {
    f(&Scores {
        destination: &of.destination.buffer.read(),
        source: &of.source.buffer.read(),
        slope: of.slope,
        planes,
    })
}

impl AttentionOperators for Cpu {
    fn attention_statistics(
        &self,
        operands: Checked<AttentionStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let AttentionStatisticsOperands {
            a,
            scores: of,
            statistics,
            positive_share,
        } = operands.into_inner();
        with_edges(a, |edges| {
            with_scores(of, Planes::new(a, false), |scores| {
                let softmax = |head: usize, row: usize| {
                    let score = |edge: usize| {
                        let column = edges.columns[edge] as usize;
                        Softmax::of(scores.of(head, row, column).0, scores.slope)
                    };
                    let of_row = edges.of_row(row).map(score);
                    of_row.fold(Softmax::EMPTY, Softmax::join)
                };
                edges.for_rows(statistics.buffer.get_mut(), |head, row| {
                    softmax(head, row).statistics()
                });
                if let Some(share) = positive_share {
                    edges.for_rows(share.buffer.get_mut(), |head, row| {
                        softmax(head, row).positive_share()
                    });
                }
            });
        });
        Ok(())
    }

    fn attention_pair<E: Element>(
        &self,
        operands: Checked<AttentionPairOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let AttentionPairOperands { a, op, x } = operands.into_inner();
        let of = op.weights;
        for (positive_only, y) in [(false, op.all), (true, op.positive)] {
            let weights = spmm::Attention::new(of, a, positive_only);
            let operands = spmm::Operands {
                offsets: &a.offsets.buffer.read(),
                columns: &a.column_ids.buffer.read(),
                weights: spmm::Weights::Attention(&weights),
                heads: of.heads,
                row_scale: None,
                scale: 1.0,
                aggregation: Aggregation::Sum,
                x: &x.buffer.read(),
                stride: x.stride(),
                epilogue: spmm::Epilogue::NONE,
            };
            spmm::spmm(&operands, op.policy, x.columns(), y.buffer.get_mut());
        }
        let Some(SoftmaxGradient { values, sums }) = op.through else {
            return Ok(());
        };
        let scores = AttentionScores {
            heads: of.heads,
            destination: of.destination,
            source: of.source,
            slope: of.slope,
        };
        let (statistics, values) = (of.statistics.buffer.read(), values.buffer.read());
        with_edges(a, |edges| {
            with_scores(&scores, Planes::new(a, of.transposed), |scores| {
                edges.for_rows(sums.buffer.get_mut(), |head, row| {
                    let term = |edge: usize| {
                        let (sum, at) = scores.of(head, row, edges.columns[edge] as usize);
                        leaky_relu_derivative(sum, of.slope)
                            * weight(sum, of.slope, statistics[at])
                            * values[at]
                    };
                    edges.of_row(row).map(term).sum()
                });
            });
        });
        Ok(())
    }

    fn segment_reduce<E: Element>(
        &self,
        operands: Checked<SegmentReduceOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let SegmentReduceOperands {
            a,
            heads: _,
            reduction,
            values,
            result,
        } = operands.into_inner();
        let plane_stride = edge_plane_stride(a.edges() as u64) as usize;
        let mut reduce = |value: &(dyn Fn(usize, usize) -> f32 + Sync)| {
            with_edges(a, |edges| {
                edges.for_rows(result.buffer.get_mut(), |head, row| {
                    let first = head * plane_stride;
                    let of_row = edges.of_row(row).map(|edge| value(first, edge));
                    match reduction {
                        SegmentReduction::Sum => of_row.sum(),
                        // A NaN is the largest.
                        SegmentReduction::Max => of_row.fold(f32::NEG_INFINITY, |max, value| {
                            if max > value || max.is_nan() {
                                max
                            } else {
                                value
                            }
                        }),
                    }
                });
            });
        };
        match values {
            EdgeValues::Plane(plane) => {
                let plane = plane.buffer.read();
                let plane: &[E] = &plane;
                reduce(&|first, edge| plane[first + edge].to_f32());
            }
            EdgeValues::Product(plane, factors) => {
                let (plane, factors) = (plane.buffer.read(), factors.buffer.read());
                let (plane, factors): (&[E], &[E]) = (&plane, &factors);
                reduce(&|first, edge| {
                    plane[first + edge].to_f32() * factors[first + edge].to_f32()
                });
            }
            EdgeValues::Gathered(plane, map) => {
                let (plane, map) = (plane.buffer.read(), map.edges().buffer.read());
                let (plane, map): (&[E], &[u32]) = (&plane, &map);
                reduce(&|first, edge| plane[first + map[edge] as usize].to_f32());
            }
        }
        Ok(())
    }

    fn edge_map<E: Element>(
        &self,
        operands: Checked<EdgeStepOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let EdgeStepOperands {
            a,
            heads: _,
            step,
            x,
            y,
        } = operands.into_inner();
        let (edges, rows) = (a.edges(), a.rows());
        if edges == 0 {
            return Ok(());
        }
        let rows_of_edges = a.row_ids(self)?.buffer.read();
        let rows_of_edges: &[u32] = &rows_of_edges;
        let stride = edge_plane_stride(edges as u64) as usize;
        let x = x.map(|x| x.buffer.read());
        // `f(head, edge, row, place in the planes, x)` for each edge; zero past the last of a plane.
        let mut map = |f: &(dyn Fn(usize, usize, usize, usize, f32) -> f32 + Sync)| {
            with_edges(a, |graph| {
                let values = y.buffer.get_mut().par_iter_mut().enumerate();
                values.with_min_len(MIN_ROWS).for_each(|(at, y)| {
                    let (head, edge) = (at / stride, at % stride);
                    *y = if edge < edges {
                        let x = x.as_ref().map_or(*y, |x| x[at]).to_f32();
                        let row = rows_of_edges[edge] as usize;
                        E::from_f32(f(head, graph.columns[edge] as usize, row, at, x))
                    } else {
                        E::zeroed()
                    };
                });
            });
        };
        match step {
            EdgeStep::Scores(of) => with_scores(of, Planes::new(a, false), |scores| {
                map(&|head, column, row, _, _| {
                    leaky_relu(scores.of(head, row, column).0, scores.slope)
                });
            }),
            EdgeStep::ScoresBackward(of) => with_scores(of, Planes::new(a, false), |scores| {
                map(&|head, column, row, _, x| {
                    x * leaky_relu_derivative(scores.of(head, row, column).0, scores.slope)
                });
            }),
            EdgeStep::Exp { row } => {
                let v = row.buffer.read();
                let v: &[f32] = &v;
                map(&|head, _, row, _, x| exp(x - v[head * rows + row]));
            }
            EdgeStep::Divide { row } => {
                let v = row.buffer.read();
                let v: &[f32] = &v;
                map(&|head, _, row, _, x| {
                    let v = v[head * rows + row];
                    if v == 0.0 { 0.0 } else { x / v }
                });
            }
            EdgeStep::SoftmaxBackward { factor, row } => {
                let (factor, v) = (factor.buffer.read(), row.buffer.read());
                let (factor, v): (&[E], &[f32]) = (&factor, &v);
                map(&|head, _, row, at, x| factor[at].to_f32() * (x - v[head * rows + row]));
            }
            EdgeStep::Dropout(dropout) => {
                let mask = Mask::new(*dropout);
                map(&|head, column, row, _, x| mask.edge(x, head, row, column));
            }
        }
        Ok(())
    }

    fn head_scores<E: Element>(
        &self,
        operands: Checked<HeadScoresOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadScoresOperands {
            heads,
            x,
            vectors,
            destination,
            source,
        } = operands.into_inner();
        let (x_values, vectors_values) = (x.buffer.read(), vectors.buffer.read());
        let rows = Rows::new(heads, x, &x_values);
        for (which, scores) in [destination, source].into_iter().enumerate() {
            let vector = Rows::new(heads, vectors, &vectors_values);
            rows.for_heads(scores.buffer.get_mut(), |head, row| {
                let pairs = rows.head(head, row).iter().zip(vector.head(head, which));
                pairs.map(|(x, a)| x.to_f32() * a.to_f32()).sum()
            });
        }
        Ok(())
    }

    fn head_dots<E: Element>(
        &self,
        operands: Checked<HeadDotsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadDotsOperands { op, y } = operands.into_inner();
        let (a, b) = (op.a.buffer.read(), op.b.1.buffer.read());
        let c = op.c.map(|(gamma, c)| (gamma, c, c.buffer.read()));
        let u = op.u.map(|(delta, u)| (delta, u.buffer.read()));
        let v = op.v.map(|v| v.buffer.read());
        let (a, b, beta) = (
            Rows::new(op.heads, op.a, &a),
            Rows::new(op.heads, op.b.1, &b),
            op.b.0,
        );
        let c = c
            .as_ref()
            .map(|(gamma, matrix, values)| (*gamma, Rows::new(op.heads, matrix, values)));
        a.for_heads(y.buffer.get_mut(), |head, row| {
            let (a_row, b_row) = (a.head(head, row), b.head(head, row));
            let mut sum = 0.0;
            for i in 0..a_row.len() {
                let mut right = beta * b_row[i].to_f32();
                if let Some((gamma, c)) = &c {
                    right += gamma * c.head(head, row)[i].to_f32();
                }
                sum += a_row[i].to_f32() * right;
            }
            let at = head * a.rows + row;
            if let Some((delta, u)) = &u {
                sum += delta * u[at] * v.as_ref().map_or(1.0, |v| v[at]);
            }
            sum
        });
        Ok(())
    }

    fn head_outer<E: Element>(
        &self,
        operands: Checked<HeadOuterOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadOuterOperands {
            heads,
            destination,
            source,
            vectors,
            x,
        } = operands.into_inner();
        let (destination, source) = (destination.buffer.read(), source.buffer.read());
        let (destination, source): (&[f32], &[f32]) = (&destination, &source);
        let values = vectors.buffer.read();
        let (rows, stride) = (x.rows(), x.stride());
        let width = x.columns() / heads;
        let mut factors = vec![0.0; 2 * stride];
        widen(&values, &mut factors);
        let (first, second) = factors.split_at(stride);
        let columns = x.columns();
        let elements = x.buffer.get_mut().par_chunks_exact_mut(stride);
        elements.with_min_len(MIN_ROWS).enumerate().for_each_init(
            || vec![0.0; stride],
            |floats, (row, elements)| {
                widen(elements, floats);
                for (column, value) in floats[..columns].iter_mut().enumerate() {
                    let at = column / width * rows + row;
                    *value += destination[at] * first[column] + source[at] * second[column];
                }
                round(floats, elements);
            },
        );
        Ok(())
    }

    fn head_sums<E: Element>(
        &self,
        operands: Checked<HeadSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadSumsOperands {
            heads,
            x,
            destination,
            source,
            sums,
        } = operands.into_inner();
        let values = x.buffer.read();
        let x = view(x, &values);
        let (destination, source) = (destination.buffer.read(), source.buffer.read());
        let factors: [&[f32]; 2] = [&destination, &source];
        let width = x.columns / heads;
        let blocks: Vec<[Vec<f32>; 2]> = x
            .values
            .par_chunks(SUM_ROWS * x.stride)
            .enumerate()
            .map(|(block, elements)| {
                factors.map(|factors| {
                    let mut sums = vec![0.0; x.columns];
                    for (row, elements) in elements.chunks_exact(x.stride).enumerate() {
                        let row = block * SUM_ROWS + row;
                        for (column, sum) in sums.iter_mut().enumerate() {
                            let factor = factors[column / width * x.rows + row];
                            *sum += factor * elements[column].to_f32();
                        }
                    }
                    sums
                })
            })
            .collect();
        let out = view_mut(sums);
        out.values.fill(0.0);
        for block in &blocks {
            for (row, sums) in out.values.chunks_exact_mut(out.stride).zip(block) {
                for (sum, value) in row.iter_mut().zip(sums) {
                    *sum += value;
                }
            }
        }
        Ok(())
    }

    fn head_mean<E: Element>(
        &self,
        operands: Checked<HeadMeanOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadMeanOperands { heads, x, y } = operands.into_inner();
        let values = x.buffer.read();
        let rows = Rows::new(heads, x, &values);
        let (columns, stride, scale) = (y.columns(), y.stride(), 1.0 / heads as f32);
        let elements = y.buffer.get_mut().par_chunks_exact_mut(stride);
        elements.enumerate().for_each(|(row, y)| {
            for (column, y) in y[..columns].iter_mut().enumerate() {
                let of_head = |head: usize| rows.head(head, row)[column].to_f32();
                *y = E::from_f32((0..heads).map(of_head).sum::<f32>() * scale);
            }
        });
        Ok(())
    }

    fn head_mean_backward<E: Element>(
        &self,
        operands: Checked<HeadMeanBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadMeanBackwardOperands { heads, dy, dx } = operands.into_inner();
        let values = dy.buffer.read();
        let (stride, scale) = (dy.stride(), 1.0 / heads as f32);
        let (dx_stride, width) = (dx.stride(), dx.columns() / heads);
        let elements = dx.buffer.get_mut().par_chunks_exact_mut(dx_stride);
        elements.enumerate().for_each(|(row, dx)| {
            // A head has the padding of a row of `dy`, as columns.
            let dy = &values[row * stride..][..width];
            for head in dx[..heads * width].chunks_exact_mut(width) {
                for (dx, dy) in head.iter_mut().zip(dy) {
                    *dx = E::from_f32(dy.to_f32() * scale);
                }
            }
        });
        Ok(())
    }
}

/// The heads of the rows of a matrix.
struct Rows<'a, E> {
    values: &'a [E],
    rows: usize,
    stride: usize,
    width: usize,
}

impl<'a, E: Element> Rows<'a, E> {
    fn new(heads: usize, matrix: &Matrix<Cpu, E>, values: &'a [E]) -> Self {
        Self {
            values,
            rows: matrix.rows(),
            stride: matrix.stride(),
            width: matrix.columns() / heads,
        }
    }

    fn head(&self, head: usize, row: usize) -> &'a [E] {
        &self.values[row * self.stride + head * self.width..][..self.width]
    }

    /// Writes `f(head, row)` to each number of `planes`.
    fn for_heads(&self, planes: &mut [f32], f: impl Fn(usize, usize) -> f32 + Sync) {
        planes
            .par_iter_mut()
            .with_min_len(MIN_ROWS)
            .enumerate()
            .for_each(|(at, out)| *out = f(at / self.rows, at % self.rows));
    }
}
