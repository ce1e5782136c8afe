//! Norms between layers on a CPU.
//!
//! Columns are summed up chunk by chunk as on a GPU, and chunks in their order, so that a sum has the same bits on any
//! number of threads.

use super::{
    GroupNorm, GroupNormalization, GroupStatisticsOperands, NormalizeGroupsBackwardOperands,
    NormalizeGroupsOperands, NormalizeRowsBackwardOperands, NormalizeRowsOperands, NormsOperators,
    RowGroups,
};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widen, widened};
use crate::backend::cpu::view::{clear_padding, for_rows, read_matrix, view_mut};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::normalize::{moments, reciprocal_deviation};
use halfgnn_contract::norms::{
    CHUNK_WORDS, GROUP_WORDS, GraphNormColumn, STATISTICS_ROWS, gradient, graph_norm,
};
use halfgnn_graph::parallel;
use std::ops::Range;

/// Rows whose sums are added up before they are added to those of others.
const SUM_ROWS: usize = 256;

impl NormsOperators for Cpu {
    fn normalize_rows<E: Element>(
        &self,
        operands: Checked<NormalizeRowsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let NormalizeRowsOperands {
            op,
            x,
            statistics,
            y,
        } = operands.into_inner();
        let (values, stride, columns) = (x.buffer.read(), x.stride(), x.columns());
        let width = 1.0 / columns as f32;
        let known_stride = statistics.stride();
        let known = statistics.buffer.get_mut();
        parallel::for_each(parallel::chunks_mut(known, known_stride), |row, known| {
            let floats = widened(&values[row * stride..(row + 1) * stride]);
            let floats = &floats[..columns];
            let mean = floats.iter().sum::<f32>() * width;
            let squares: f32 = floats.iter().map(|x| (x - mean) * (x - mean)).sum();
            known.fill(0.0);
            known[0] = mean;
            known[1] = reciprocal_deviation(squares * width, op.epsilon, f32::sqrt);
        });
        let (weight, bias) = (op.weight.buffer.read(), op.bias.buffer.read());
        let known = statistics.buffer.read();
        for_rows(view_mut(y), |row, columns, y, floats| {
            widen(&values[row * y.len()..(row + 1) * y.len()], floats);
            let [mean, reciprocal] = [0, 1].map(|at| known[row * known_stride + at]);
            for (column, value) in floats[..columns].iter_mut().enumerate() {
                let output = (*value - mean) * reciprocal * weight[column] + bias[column];
                *value = cut_off(op.relu, output);
            }
            round(floats, y);
        });
        Ok(())
    }

    fn normalize_rows_backward<E: Element>(
        &self,
        operands: Checked<NormalizeRowsBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (x, known, weight) = (
            of.x.buffer.read(),
            of.statistics.buffer.read(),
            of.weight.buffer.read(),
        );
        let (known_stride, stride, columns) =
            (of.statistics.stride(), of.x.stride(), of.x.columns());
        let normalized = |row: usize, x: f32| {
            let [mean, reciprocal] = [0, 1].map(|at| known[row * known_stride + at]);
            (x - mean) * reciprocal
        };
        let rows = of.x.rows();
        let d = of.d.buffer.read();
        let sums = parallel::map(0..rows.div_ceil(SUM_ROWS), |block, _| {
            let rows = block * SUM_ROWS..rows.min((block + 1) * SUM_ROWS);
            sums_of_pairs(rows, columns, |row, column| {
                let at = row * stride + column;
                let dy = d[at].to_f32();
                [dy, dy * normalized(row, x[at].to_f32())]
            })
        });
        let sums = added_up(&sums, columns);
        drop(d);
        clear_padding(of.gradients.bias);
        clear_padding(of.gradients.weight);
        for (column, [dy, product]) in sums.into_iter().enumerate() {
            of.gradients.bias.buffer.get_mut()[column] = dy;
            of.gradients.weight.buffer.get_mut()[column] = product;
        }
        let width = 1.0 / columns as f32;
        for_rows(view_mut(of.d), |row, columns, d, floats| {
            let mut inputs = vec![0.0; d.len()];
            widen(&x[row * d.len()..(row + 1) * d.len()], &mut inputs);
            widen(d, floats);
            let mut sums = [0.0; 2];
            for column in 0..columns {
                floats[column] *= weight[column];
                inputs[column] = normalized(row, inputs[column]);
                add(&mut sums, [floats[column], floats[column] * inputs[column]]);
            }
            let reciprocal = known[row * known_stride + 1];
            let terms = sums.map(|sum| sum * width * reciprocal);
            for column in 0..columns {
                floats[column] = gradient(reciprocal, floats[column], inputs[column], terms);
            }
            round(floats, d);
        });
        Ok(())
    }

    fn group_statistics<E: Element>(
        &self,
        operands: Checked<GroupStatisticsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (x, stride, columns) = (of.x.buffer.read(), of.x.stride(), of.x.columns());
        let sums = sums_of_groups(of.groups, columns, |group, row, column| {
            let shift = x[group.rows.start * stride + column].to_f32();
            let value = x[row * stride + column].to_f32() - shift;
            [value, value * value]
        });
        let mean_scale = match of.norm {
            GroupNorm::Graph(mean_scale) => Some(mean_scale.buffer.read()),
            GroupNorm::Pair => None,
        };
        clear_padding(of.statistics);
        let row = of.statistics.stride();
        let statistics = of.statistics.buffer.get_mut();
        for (number, (group, sums)) in groups(of.groups).into_iter().zip(&sums).enumerate() {
            let known = &mut statistics[STATISTICS_ROWS as usize * number * row..];
            let mut variances = 0.0;
            for (column, &[sum, squares]) in sums.iter().enumerate() {
                let shift = match group.rows.is_empty() {
                    true => 0.0,
                    false => x[group.rows.start * stride + column].to_f32(),
                };
                let [mean, variance] = moments(sum, squares, shift, group.count());
                let [subtracted, variance] = match &mean_scale {
                    Some(mean_scale) => graph_norm([mean, variance], mean_scale[column]),
                    None => [mean, variance],
                };
                variances += variance;
                known[column] = subtracted;
                known[row + column] = reciprocal_deviation(variance, of.epsilon, f32::sqrt);
                known[2 * row + column] = mean;
            }
            if mean_scale.is_none() {
                let reciprocal = reciprocal_deviation(variances, of.epsilon, f32::sqrt);
                known[row..row + columns].fill(reciprocal);
            }
        }
        Ok(())
    }

    fn normalize_groups<E: Element>(
        &self,
        operands: Checked<NormalizeGroupsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let NormalizeGroupsOperands { op, x, y } = operands.into_inner();
        let (x, of_rows, known) = (x.buffer.read(), group_of_rows(op.groups), Known::of(op));
        for_rows(view_mut(y), |row, columns, y, floats| {
            widen(&x[row * y.len()..(row + 1) * y.len()], floats);
            for (column, value) in floats[..columns].iter_mut().enumerate() {
                let [shift, reciprocal, _] = known.statistics(of_rows[row], column);
                let [weight, bias] = known.affine(column);
                let output = (*value - shift) * (reciprocal * weight) + bias;
                *value = cut_off(op.relu, output);
            }
            round(floats, y);
        });
        Ok(())
    }

    fn normalize_groups_backward<E: Element>(
        &self,
        operands: Checked<NormalizeGroupsBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let mut of = operands.into_inner();
        let (x, stride, columns) = (of.x.buffer.read(), of.x.stride(), of.x.columns());
        let (of_rows, known) = (group_of_rows(of.op.groups), Known::of(of.op));
        let normalized = |row: usize, column: usize, x: f32| {
            let [shift, reciprocal, _] = known.statistics(of_rows[row], column);
            (x - shift) * reciprocal
        };
        let d = of.d.buffer.read();
        let sums = sums_of_groups(of.op.groups, columns, |_, row, column| {
            let at = row * stride + column;
            let dy = d[at].to_f32();
            [dy, dy * normalized(row, column, x[at].to_f32())]
        });
        drop(d);
        if let Some(gradients) = &mut of.gradients {
            clear_padding(gradients.weight);
            clear_padding(gradients.bias);
            clear_padding(gradients.mean_scale);
        }
        let mut terms: Vec<Vec<[f32; 2]>> = Vec::with_capacity(sums.len());
        for (number, (group, sums)) in groups(of.op.groups).into_iter().zip(&sums).enumerate() {
            let count = group.count();
            let means = |[dy, product]: [f32; 2]| [dy / count, product / count];
            let GroupNorm::Graph(mean_scale) = of.norm else {
                let products: f32 = sums.iter().map(|&sums| means(sums)[1]).sum();
                let term = |(column, &sums): (usize, &[f32; 2])| {
                    let reciprocal = known.statistics(number, column)[1];
                    [reciprocal * means(sums)[0], reciprocal * products]
                };
                terms.push(sums.iter().enumerate().map(term).collect());
                continue;
            };
            let mean_scale = mean_scale.buffer.read();
            let mut of_group = Vec::with_capacity(columns);
            for (column, &[dy, product]) in sums.iter().enumerate() {
                let [shift, reciprocal, mean] = known.statistics(number, column);
                let known = GraphNormColumn {
                    shift,
                    reciprocal,
                    mean,
                    weight: known.affine(column)[0],
                    mean_scale: mean_scale[column],
                };
                let (term, of_mean_scale) = known.gradients(means([dy, product]), count);
                of_group.push(term);
                if let Some(gradients) = &mut of.gradients {
                    let at = number * gradients.weight.stride() + column;
                    gradients.weight.buffer.get_mut()[at] = product;
                    gradients.bias.buffer.get_mut()[at] = dy;
                    gradients.mean_scale.buffer.get_mut()[at] = of_mean_scale;
                }
            }
            terms.push(of_group);
        }
        for_rows(view_mut(of.d), |row, columns, d, floats| {
            widen(d, floats);
            let inputs = &x[row * d.len()..(row + 1) * d.len()];
            for (column, value) in floats[..columns].iter_mut().enumerate() {
                let factor = known.affine(column)[0] * known.statistics(of_rows[row], column)[1];
                let normalized = normalized(row, column, inputs[column].to_f32());
                *value = gradient(factor, *value, normalized, terms[of_rows[row]][column]);
            }
            round(floats, d);
        });
        Ok(())
    }
}

fn cut_off(relu: bool, value: f32) -> f32 {
    // Not `max`, which would make a zero of a NaN.
    if relu && value < 0.0 { 0.0 } else { value }
}

/// The rows of a group, and its chunks.
struct Group {
    rows: Range<usize>,
    chunks: Range<usize>,
}

impl Group {
    /// Its rows, and 1 of a group without any.
    fn count(&self) -> f32 {
        self.rows.len().max(1) as f32
    }
}

fn groups(of: &RowGroups<Cpu>) -> Vec<Group> {
    let words = of.groups.buffer.read();
    let group = |words: &[u32]| {
        let [first, end, rows, start] = [0, 1, 2, 3].map(|at| words[at] as usize);
        Group {
            rows: start..start + rows,
            chunks: first..end,
        }
    };
    words.chunks_exact(GROUP_WORDS).map(group).collect()
}

/// The group of each row.
fn group_of_rows(of: &RowGroups<Cpu>) -> Vec<usize> {
    let all = groups(of).into_iter().enumerate();
    all.flat_map(|(number, group)| group.rows.map(move |_| number))
        .collect()
}

/// What is known of groups and columns.
struct Known {
    statistics: Vec<f32>,
    row: usize,
    affine: [Option<Vec<f32>>; 2],
}

impl Known {
    fn of(op: &GroupNormalization<'_, Cpu>) -> Self {
        let row = |matrix: Option<&Matrix<Cpu, f32>>| read_matrix(matrix).map(|row| row.to_vec());
        Self {
            statistics: op.statistics.buffer.read().to_vec(),
            row: op.statistics.stride(),
            affine: [row(op.weight), row(op.bias)],
        }
    }

    /// What is subtracted, the reciprocal of what it is divided by, and the mean.
    fn statistics(&self, group: usize, column: usize) -> [f32; 3] {
        [0, 1, 2].map(|row| self.statistics[(3 * group + row) * self.row + column])
    }

    /// Scale and shift.
    fn affine(&self, column: usize) -> [f32; 2] {
        let [weight, bias] = &self.affine;
        let of =
            |row: &Option<Vec<f32>>, otherwise| row.as_ref().map_or(otherwise, |row| row[column]);
        [of(weight, 1.0), of(bias, 0.0)]
    }
}

/// The sums over the rows of each group of `terms(group, row, column)`, for each column.
fn sums_of_groups(
    of: &RowGroups<Cpu>,
    columns: usize,
    terms: impl Fn(&Group, usize, usize) -> [f32; 2] + Sync,
) -> Vec<Vec<[f32; 2]>> {
    let all = groups(of);
    let words = of.chunks.buffer.read();
    let sums = parallel::map(parallel::chunks(&words, CHUNK_WORDS), |_, chunk| {
        let (rows, group) = (chunk[0] as usize..chunk[1] as usize, chunk[2] as usize);
        sums_of_pairs(rows, columns, |row, column| terms(&all[group], row, column))
    });
    let of_group = |group: &Group| added_up(&sums[group.chunks.clone()], columns);
    all.iter().map(of_group).collect()
}

/// The sums of `terms(row, column)` over some rows.
fn sums_of_pairs(
    rows: Range<usize>,
    columns: usize,
    terms: impl Fn(usize, usize) -> [f32; 2],
) -> Vec<[f32; 2]> {
    let mut sums = vec![[0.0; 2]; columns];
    for row in rows {
        for (column, sum) in sums.iter_mut().enumerate() {
            add(sum, terms(row, column));
        }
    }
    sums
}

fn added_up(parts: &[Vec<[f32; 2]>], columns: usize) -> Vec<[f32; 2]> {
    let mut sums = vec![[0.0; 2]; columns];
    for part in parts {
        for (sum, &terms) in sums.iter_mut().zip(part) {
            add(sum, terms);
        }
    }
    sums
}

fn add(sum: &mut [f32; 2], terms: [f32; 2]) {
    sum[0] += terms[0];
    sum[1] += terms[1];
}
