//! Softmax over the edges of a row, and steps of it on planes of edges.
//!
//! Everything is computed in float, row by row in the order of the edges, and rounded once.

use super::{
    AttentionOperators, AttentionStatisticsOperands, EdgeBiasGradientOperands, EdgeStep,
    EdgeStepOperands,
};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::view::{for_numbers, with_edges};
use crate::error::Error;
use crate::ops::elementwise::cpu::Mask;
use crate::ops::spmm::{Planes, with_scores};
use crate::ops::{Checked, edge_plane};
use crate::tensor::Element;
use halfgnn_contract::attention::{Softmax, leaky_relu, leaky_relu_derivative, weight};
use halfgnn_contract::math::exp;

impl AttentionOperators for Cpu {
    fn attention_statistics(
        &self,
        operands: Checked<AttentionStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let rows_of_edges = match of.sums {
            Some(_) => Some(of.a.row_ids(self)?.buffer.read()),
            None => None,
        };
        with_edges(of.a, |edges| {
            with_scores(of.scores, Planes::new(of.a, false), |scores| {
                let softmax = |head: usize, row: usize| {
                    let score = |edge: usize| {
                        let column = edges.columns[edge] as usize;
                        Softmax::of(scores.of(head, edge, row, column).0, scores.slope)
                    };
                    let of_row = edges.of_row(row).map(score);
                    of_row.fold(Softmax::EMPTY, Softmax::join)
                };
                edges.for_rows(of.statistics.buffer.get_mut(), |head, row| {
                    softmax(head, row).statistics()
                });
                if let Some(share) = of.positive_share {
                    edges.for_rows(share.buffer.get_mut(), |head, row| {
                        softmax(head, row).positive_share()
                    });
                }
                if let (Some(sums), Some(rows)) = (of.sums, &rows_of_edges) {
                    let plane = edge_plane(of.a.edges());
                    for_numbers(sums.buffer.get_mut(), |at, sum| {
                        let (head, edge) = (at / plane, at % plane);
                        *sum = match (rows.get(edge), edges.columns.get(edge)) {
                            (Some(&row), Some(&column)) => {
                                scores.of(head, edge, row as usize, column as usize).0
                            }
                            _ => 0.0,
                        };
                    });
                }
            });
        });
        Ok(())
    }

    fn keeps_sums_of_scores(&self, _sources: usize, _edges: usize, _heads: usize) -> bool {
        false
    }

    fn edge_map<E: Element>(
        &self,
        operands: Checked<EdgeStepOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (a, x, y) = (of.a, of.x, of.y);
        let (edges, rows) = (a.edges(), a.rows());
        if edges == 0 {
            return Ok(());
        }
        let rows_of_edges = a.row_ids(self)?.buffer.read();
        let rows_of_edges: &[u32] = &rows_of_edges;
        let stride = edge_plane(edges);
        let x = x.map(|x| x.buffer.read());
        // `f(head, column, row, place in the planes, x)` for each edge; zero past the last of a plane.
        let mut map = |f: &(dyn Fn(usize, usize, usize, usize, f32) -> f32 + Sync)| {
            with_edges(a, |graph| {
                for_numbers(y.buffer.get_mut(), |at, y| {
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
        match of.step {
            EdgeStep::Scores(of) => with_scores(of, Planes::new(a, false), |scores| {
                map(&|head, column, row, at, _| {
                    leaky_relu(scores.of(head, at % stride, row, column).0, scores.slope)
                });
            }),
            EdgeStep::ScoresBackward(of) => with_scores(of, Planes::new(a, false), |scores| {
                map(&|head, column, row, at, x| {
                    x * leaky_relu_derivative(
                        scores.of(head, at % stride, row, column).0,
                        scores.slope,
                    )
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

    fn edge_bias_gradient<E: Element>(
        &self,
        operands: Checked<EdgeBiasGradientOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let EdgeBiasGradientOperands {
            a,
            weights,
            x,
            inner,
            d,
        } = operands.into_inner();
        let (edges, stride) = (a.edges(), edge_plane(a.edges()));
        if edges == 0 {
            return Ok(());
        }
        let rows = a.row_ids(self)?.buffer.read();
        let rows: &[u32] = &rows;
        let (x, inner, statistics) = (
            x.buffer.read(),
            inner.buffer.read(),
            weights.statistics.buffer.read(),
        );
        let (x, inner, statistics): (&[E], &[f32], &[[f32; 2]]) = (&x, &inner, &statistics);
        let mask = weights.dropout.map(Mask::new);
        let planes = Planes::new(a, weights.transposed);
        with_edges(a, |graph| {
            with_scores(&weights.scores(), planes, |scores| {
                for_numbers(d.buffer.get_mut(), |at, d| {
                    let (head, edge) = (at / stride, at % stride);
                    if edge >= edges {
                        *d = 0.0;
                        return;
                    }
                    let (row, column) = (rows[edge] as usize, graph.columns[edge] as usize);
                    let (sum, vertex) = scores.of(head, edge, row, column);
                    let x = x[at].to_f32();
                    let d_weight = mask
                        .as_ref()
                        .map_or(x, |mask| planes.dropped(mask, x, head, row, column));
                    *d = leaky_relu_derivative(sum, scores.slope)
                        * weight(sum, scores.slope, statistics[vertex])
                        * (d_weight - inner[vertex]);
                });
            });
        });
        Ok(())
    }
}
