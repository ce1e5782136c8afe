//! Heads of features, row by row in float, rounded once.

use super::{
    HeadDots, HeadDotsOperands, HeadDotsOuterOperands, HeadDotsPairOperands,
    HeadMeanBackwardOperands, HeadMeanOperands, HeadOperators, HeadOuterOperands,
    HeadScoresOperands, HeadSumsOperands, head_dots,
};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widen};
use crate::backend::cpu::view::{clear_padding, for_planes, for_rows, view, view_mut};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_graph::parallel;

/// Rows whose sums are added up before they are added to those of others.
const SUM_ROWS: usize = 256;

impl HeadOperators for Cpu {
    fn head_scores<E: Element>(
        &self,
        operands: Checked<HeadScoresOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let x = of.x;
        let (x_values, vectors_values) = (x.buffer.read(), of.vectors.buffer.read());
        let ends = [(of.destination, of.destinations), (of.source, x.rows())];
        for (which, (scores, rows)) in ends.into_iter().enumerate() {
            let vector = Rows::new(of.heads, of.vectors, &vectors_values);
            let rows = Rows {
                rows,
                ..Rows::new(of.heads, x, &x_values)
            };
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

    fn head_dots_pair<E: Element>(
        &self,
        operands: Checked<HeadDotsPairOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (heads, a, u, (delta, v)) = (of.heads, of.a, of.u, of.v);
        head_dots(self, &HeadDots::new(heads, a, (1.0, of.d)), u)?;
        let op = HeadDots {
            u: Some((delta, &*u)),
            v: Some(v),
            ..HeadDots::new(heads, a, of.b)
        };
        head_dots(self, &op, of.y)
    }

    fn head_dots_outer<E: Element>(
        &self,
        operands: Checked<HeadDotsOuterOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (heads, y, (beta, b)) = (of.heads, of.y, of.b);
        let op = HeadDots {
            c: Some(of.c),
            u: Some(of.u),
            ..HeadDots::new(heads, of.a, (beta, &*b))
        };
        head_dots(self, &op, y)?;
        let outer = HeadOuterOperands {
            heads,
            destinations: of.destinations,
            destination: of.destination,
            source: y,
            vectors: of.vectors,
            x: b,
        };
        self.head_outer(Checked::new(outer)?)?;
        let sums = HeadSumsOperands {
            heads,
            destinations: of.destinations,
            x: of.a,
            destination: of.destination,
            source: y,
            sums: of.sums,
        };
        self.head_sums(Checked::new(sums)?)
    }

    fn head_outer<E: Element>(
        &self,
        operands: Checked<HeadOuterOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (destination, source, x) = (of.destination, of.source, of.x);
        let (destination, source) = (destination.buffer.read(), source.buffer.read());
        let (destination, source): (&[f32], &[f32]) = (&destination, &source);
        let values = of.vectors.buffer.read();
        let stride = x.stride();
        let width = x.columns() / of.heads;
        let mut factors = vec![0.0; 2 * stride];
        widen(&values, &mut factors);
        let (first, second) = factors.split_at(stride);
        let (rows, destinations) = (x.rows(), of.destinations);
        for_rows(view_mut(x), |row, columns, elements, floats| {
            widen(elements, floats);
            for (column, value) in floats[..columns].iter_mut().enumerate() {
                let head = column / width;
                let of_destination = match row < destinations {
                    true => destination[head * destinations + row] * first[column],
                    false => 0.0,
                };
                *value += of_destination + source[head * rows + row] * second[column];
            }
            round(floats, elements);
        });
        Ok(())
    }

    fn head_sums<E: Element>(
        &self,
        operands: Checked<HeadSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (x, destination, source, sums) = (of.x, of.destination, of.source, of.sums);
        let values = x.buffer.read();
        let x = view(x, &values);
        let (destination, source) = (destination.buffer.read(), source.buffer.read());
        let factors: [(&[f32], usize); 2] = [(&destination, of.destinations), (&source, x.rows)];
        let width = x.columns / of.heads;
        let blocks = parallel::chunks(x.values, SUM_ROWS * x.stride);
        let blocks = parallel::map(blocks, |block, elements| {
            factors.map(|(factors, rows)| {
                let mut sums = vec![0.0; x.columns];
                let first = block * SUM_ROWS;
                let of_block = elements.chunks_exact(x.stride);
                for (row, elements) in (first..rows).zip(of_block) {
                    for (column, sum) in sums.iter_mut().enumerate() {
                        let factor = factors[column / width * rows + row];
                        *sum += factor * elements[column].to_f32();
                    }
                }
                sums
            })
        });
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
        clear_padding(y);
        let values = x.buffer.read();
        let rows = Rows::new(heads, x, &values);
        let (columns, stride, scale) = (y.columns(), y.stride(), 1.0 / heads as f32);
        parallel::for_each(
            parallel::chunks_mut(y.buffer.get_mut(), stride),
            |row, y| {
                for (column, y) in y[..columns].iter_mut().enumerate() {
                    let of_head = |head: usize| rows.head(head, row)[column].to_f32();
                    *y = E::from_f32((0..heads).map(of_head).sum::<f32>() * scale);
                }
            },
        );
        Ok(())
    }

    fn head_mean_backward<E: Element>(
        &self,
        operands: Checked<HeadMeanBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let HeadMeanBackwardOperands { heads, dy, dx } = operands.into_inner();
        clear_padding(dx);
        let values = dy.buffer.read();
        let (stride, scale) = (dy.stride(), 1.0 / heads as f32);
        let (dx_stride, width) = (dx.stride(), dx.columns() / heads);
        parallel::for_each(
            parallel::chunks_mut(dx.buffer.get_mut(), dx_stride),
            |row, dx| {
                // A head has the padding of a row of `dy`, as columns.
                let dy = &values[row * stride..][..width];
                for head in dx[..heads * width].chunks_exact_mut(width) {
                    for (dx, dy) in head.iter_mut().zip(dy) {
                        *dx = E::from_f32(dy.to_f32() * scale);
                    }
                }
            },
        );
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
        for_planes(planes, self.rows, f);
    }
}
