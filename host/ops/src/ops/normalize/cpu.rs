//! Batch normalisation, and weighted sums of two matrices.
//!
//! Columns are summed up in blocks of rows, and the blocks in their order, so that a sum has the same bits on any
//! number of threads.

use super::{
    BatchNorm, BatchStatisticsOperands, CombineOperands, DotOperands, MergeStatisticsOperands,
    Normalization, NormalizeBackwardOperands, NormalizeOperands, NormalizeOperators,
    RunningStatisticsOperands,
};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widen};
use crate::backend::cpu::view::{View, clear_padding, for_rows, read, view, view_mut};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::normalize::{self as contract, Column};
use halfgnn_graph::parallel;

/// Rows whose sums are added up before they are added to those of others.
const SUM_ROWS: usize = 256;

impl NormalizeOperators for Cpu {
    fn combine<E: Element>(
        &self,
        operands: Checked<CombineOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let CombineOperands { rows, op, x, y } = operands.into_inner();
        let epsilon = op.epsilon.map(|epsilon| epsilon.buffer.read()[0]);
        let x_factor = epsilon.map_or(op.x_factor, |epsilon| op.x_factor * (1.0 + epsilon));
        let (x, x_scale) = (x.buffer.read(), read(op.x_scale));
        let mut y = view_mut(y);
        y.values = &mut y.values[..rows * y.stride];
        for_rows(y, |row, columns, y, floats| {
            let x_factor = x_scale
                .as_ref()
                .map_or(x_factor, |scale| x_factor * scale[row]);
            let mut others = vec![0.0; y.len()];
            widen(&x[row * y.len()..(row + 1) * y.len()], &mut others);
            if op.y_factor != 0.0 {
                widen(y, floats);
            } else {
                floats.fill(0.0);
            }
            for (value, other) in floats[..columns].iter_mut().zip(others) {
                *value = contract::combine(x_factor, other, op.y_factor, *value);
            }
            round(floats, y);
        });
        Ok(())
    }

    fn batch_statistics<E: Element>(
        &self,
        operands: Checked<BatchStatisticsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (x, running) = (of.x, of.running);
        let values = x.buffer.read();
        let x = view(x, &values);
        let mut shift = vec![0.0; x.stride];
        widen(&x.values[..x.stride], &mut shift);
        let sums = sums_of_pairs(x, |_, values, column| {
            let value = values[column] - shift[column];
            [value, value * value]
        });
        let count = x.rows as f32;
        clear_padding(of.statistics);
        let (row, running) = (of.statistics.stride(), running.buffer.get_mut());
        for (column, [sum, squares]) in sums.into_iter().enumerate() {
            let batch = contract::moments(sum, squares, shift[column], count);
            write_statistics(of.op, of.statistics, column, batch);
            let before = [running[column], running[row + column]];
            let after = contract::carry_on(before, batch, count, of.op.momentum);
            [running[column], running[row + column]] = after;
        }
        Ok(())
    }

    fn running_statistics(
        &self,
        operands: Checked<RunningStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        clear_padding(of.statistics);
        let (values, row) = (of.running.buffer.read(), of.running.stride());
        for column in 0..of.running.columns() {
            let affine = [values[column], values[row + column]];
            write_statistics(of.op, of.statistics, column, affine);
        }
        Ok(())
    }

    fn merge_statistics(
        &self,
        operands: Checked<MergeStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let mut of = operands.into_inner();
        clear_padding(of.statistics);
        let (counts, moments) = (
            of.parts.counts.buffer.read(),
            of.parts.moments.buffer.read(),
        );
        let (deviations, row) = (of.parts.deviations.buffer.read(), of.statistics.stride());
        for column in 0..of.statistics.columns() {
            let mut merged = contract::Merged::default();
            let first = |part: usize| 2 * part * row + column;
            let mean = |part: usize| {
                let at = first(part);
                contract::part_mean(moments[at], [deviations[at], deviations[at + row]])
            };
            for (part, &rows) in counts.iter().enumerate() {
                merged.count(rows, mean(part));
            }
            for (part, &rows) in counts.iter().enumerate() {
                merged.spread(rows, mean(part), moments[first(part) + row]);
            }
            let batch = merged.moments();
            write_statistics(of.op, of.statistics, column, batch);
            if let Some(running) = &mut of.running {
                let running = running.buffer.get_mut();
                let before = [running[column], running[row + column]];
                let momentum = of.op.momentum;
                let after = contract::carry_on(before, batch, merged.rows(), momentum);
                [running[column], running[row + column]] = after;
            }
        }
        Ok(())
    }

    fn normalize<E: Element>(
        &self,
        operands: Checked<NormalizeOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let NormalizeOperands { op, x, y } = operands.into_inner();
        let (affine, x) = (AffineColumns::new(op), x.buffer.read());
        for_rows(view_mut(y), |row, columns, y, floats| {
            widen(&x[row * y.len()..(row + 1) * y.len()], floats);
            affine.apply(0, &mut floats[..columns]);
            round(floats, y);
        });
        Ok(())
    }

    fn normalize_backward<E: Element>(
        &self,
        operands: Checked<NormalizeBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let mut of = operands.into_inner();
        write_sums(&mut of);
        write_gradient(self, of)
    }

    fn normalization_sums<E: Element>(
        &self,
        operands: Checked<NormalizeBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        write_sums(&mut operands.into_inner());
        Ok(())
    }

    fn normalize_backward_of<E: Element>(
        &self,
        operands: Checked<NormalizeBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        write_gradient(self, operands.into_inner())
    }

    fn dot<E: Element>(&self, operands: Checked<DotOperands<'_, Self, E>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let (values, others) = (of.x.buffer.read(), of.y.buffer.read());
        let sums = sums_of_pairs(view(of.x, &values), |row, values, column| {
            [
                0.0,
                values[column] * others[row * of.y.stride() + column].to_f32(),
            ]
        });
        let sum: f32 = sums.iter().map(|[_, sum]| sum).sum();
        clear_padding(of.result);
        of.result.buffer.get_mut()[0] = of.factor * sum;
        Ok(())
    }
}

/// The gradients of scales and shifts.
fn write_sums<E: Element>(of: &mut NormalizeBackwardOperands<'_, Cpu, E>) {
    let (x, d, gradients) = (of.x, &*of.d, &mut of.gradients);
    let (affine, values) = (columns(of.op), x.buffer.read());
    let gradient = d.buffer.read();
    let sums = sums_of_pairs(view(x, &values), |row, values, column| {
        let (x, dy) = (values[column], gradient[row * d.stride() + column].to_f32());
        let dy = affine[column].before_relu(of.op.relu, x, dy);
        [dy, dy * affine[column].normalized(x)]
    });
    clear_padding(gradients.bias);
    clear_padding(gradients.weight);
    for (column, [dy, product]) in sums.iter().enumerate() {
        gradients.bias.buffer.get_mut()[column] = *dy;
        gradients.weight.buffer.get_mut()[column] = *product;
    }
}

/// The gradient of the input, from those of scales and shifts, and its quantized values.
fn write_gradient<E: Element>(
    cpu: &Cpu,
    of: NormalizeBackwardOperands<'_, Cpu, E>,
) -> Result<(), Error> {
    let (x, d, gradients) = (of.x, of.d, of.gradients);
    let (affine, values) = (columns(of.op), x.buffer.read());
    let reciprocal_count = 1.0 / x.rows() as f32;
    let sums = [&*gradients.bias, &*gradients.weight].map(|sums| sums.buffer.read());
    let row_scale = read(gradients.row_scale);
    for_rows(view_mut(&mut *d), |row, columns, d, floats| {
        let scale = row_scale
            .as_ref()
            .map_or(gradients.scale, |scale| gradients.scale * scale[row]);
        let mut inputs = vec![0.0; d.len()];
        widen(&values[row * d.len()..(row + 1) * d.len()], &mut inputs);
        widen(d, floats);
        for (column, value) in floats[..columns].iter_mut().enumerate() {
            let x = inputs[column];
            let dy = affine[column].before_relu(of.op.relu, x, *value);
            let means = [0, 1].map(|of| contract::mean(sums[of][column], reciprocal_count));
            *value = scale * affine[column].gradient(x, dy, means);
        }
        round(floats, d);
    });
    match gradients.coding {
        Some(coding) => coding.of(cpu, d),
        None => Ok(()),
    }
}

fn write_statistics(
    op: &BatchNorm,
    statistics: &mut Matrix<Cpu, f32>,
    column: usize,
    [mean, variance]: [f32; 2],
) {
    let row = statistics.stride();
    let statistics = statistics.buffer.get_mut();
    statistics[column] = mean;
    statistics[row + column] = contract::reciprocal_deviation(variance, op.epsilon, f32::sqrt);
}

/// A normalisation of rows in float.
pub(crate) struct AffineColumns {
    columns: Vec<Column>,
    relu: bool,
}

impl AffineColumns {
    pub(crate) fn new(op: &Normalization<'_, Cpu>) -> Self {
        Self {
            columns: columns(op),
            relu: op.relu,
        }
    }

    /// Normalises part of a row, which begins at column `first`.
    pub(crate) fn apply(&self, first: usize, row: &mut [f32]) {
        for (value, column) in row.iter_mut().zip(&self.columns[first..]) {
            *value = column.output(*value);
            // Not `max`, which would make a zero of a NaN.
            if self.relu && *value < 0.0 {
                *value = 0.0;
            }
        }
    }
}

/// What is known of each column.
fn columns(op: &Normalization<'_, Cpu>) -> Vec<Column> {
    let (row, statistics) = (op.statistics.stride(), op.statistics.buffer.read());
    let (weight, bias) = (op.weight.buffer.read(), op.bias.buffer.read());
    (0..op.statistics.columns())
        .map(|column| Column {
            mean: statistics[column],
            reciprocal: statistics[row + column],
            weight: weight[column],
            bias: bias[column],
        })
        .collect()
}

/// The sums over the rows of `terms(row, the row in float, column)`, for each column.
fn sums_of_pairs<E: Element>(
    x: View<'_, E>,
    terms: impl Fn(usize, &[f32], usize) -> [f32; 2] + Sync,
) -> Vec<[f32; 2]> {
    let mut sums = vec![[0.0; 2]; x.columns];
    if x.columns == 0 {
        return sums;
    }
    let blocks = parallel::map(
        parallel::chunks(x.values, SUM_ROWS * x.stride),
        |block, values| {
            let mut sums = vec![[0.0; 2]; x.columns];
            let mut floats = vec![0.0; x.stride];
            for (row, values) in values.chunks_exact(x.stride).enumerate() {
                widen(values, &mut floats);
                let row = block * SUM_ROWS + row;
                for (column, sum) in sums.iter_mut().enumerate() {
                    add(sum, terms(row, &floats, column));
                }
            }
            sums
        },
    );
    for block in &blocks {
        for (sum, &terms) in sums.iter_mut().zip(block) {
            add(sum, terms);
        }
    }
    sums
}

fn add(sum: &mut [f32; 2], terms: [f32; 2]) {
    sum[0] += terms[0];
    sum[1] += terms[1];
}
