//! Cross-entropy of the log-softmax with its gradient, losses of elements, and counts of right and wrong answers.

use super::{
    CountClassesOperands, CountCorrectOperands, CountLabelsOperands, CrossEntropyOperands,
    ElementLoss, ElementLossOperands, LossOperators, NO_TARGET, OUTCOMES,
};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widen, widened};
use crate::backend::cpu::view::{view, view_mut};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Array, Element, Matrix};
use halfgnn_contract::WARP;
use halfgnn_contract::loss::{BinaryTerm, binary_term};
use halfgnn_contract::math::{exp_nonpositive, ln};
use halfgnn_contract::spmm::lanes_log2;
use halfgnn_graph::parallel;

/// Rows whose outcomes are counted before they are added to those of others: enough that counts of many columns are
/// few.
const COUNT_ROWS: usize = 8192;

/// Rows whose losses are added up before they are added to those of others.
const BLOCK_ROWS: usize = 256;

impl LossOperators for Cpu {
    fn cross_entropy<E: Element>(
        &self,
        operands: Checked<CrossEntropyOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (logits, targets, gradient, loss) = (of.logits, of.targets, of.gradient, of.loss);
        let weights = of.weights.map(|weights| weights.buffer.read());
        let weights = weights.as_deref();
        let row_weights = of.row_weights.map(|weights| weights.buffer.read());
        let row_weight = |row: usize| row_weights.as_ref().map_or(1.0, |weights| weights[row]);
        let (values, targets) = (logits.buffer.read(), targets.buffer.read());
        let (logits, gradient) = (view(logits, &values), view_mut(gradient));
        let stride = logits.stride;
        let factor = of.state.loss_scale() / of.divisor;
        let blocks = (
            (
                parallel::chunks(logits.values, BLOCK_ROWS * stride),
                parallel::chunks_mut(gradient.values, BLOCK_ROWS * stride),
            ),
            parallel::chunks(&targets, BLOCK_ROWS),
        );
        let losses = parallel::map(blocks, |block, ((logits_block, gradient), targets)| {
            let mut floats = vec![0.0; stride];
            let mut loss = 0.0;
            let rows = logits_block.chunks_exact(stride);
            for (((row, gradient), &target), at) in rows
                .zip(gradient.chunks_exact_mut(stride))
                .zip(targets)
                .zip(block * BLOCK_ROWS..)
            {
                if target == NO_TARGET {
                    gradient.fill(E::zeroed());
                    continue;
                }
                widen(row, &mut floats);
                // A class that does not exist weighs nothing.
                let weight = weights.map_or(1.0, |weights| {
                    weights.get(target as usize).copied().unwrap_or(0.0)
                }) * row_weight(at);
                loss += weight
                    * row_loss(
                        &mut floats[..logits.columns],
                        E::LANES,
                        target as usize,
                        factor * weight,
                    );
                round(&floats, gradient);
            }
            loss
        });
        loss.buffer.get_mut()[0] = losses.iter().sum::<f32>() / of.divisor;
        Ok(())
    }

    fn count_correct<E: Element>(
        &self,
        operands: Checked<CountCorrectOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let CountCorrectOperands {
            logits,
            labels,
            splits,
            correct,
        } = operands.into_inner();
        let (values, labels, splits) = (
            logits.buffer.read(),
            labels.buffer.read(),
            splits.buffer.read(),
        );
        let logits = view(logits, &values);
        let stride = logits.stride;
        let blocks = (
            parallel::chunks(logits.values, BLOCK_ROWS * stride),
            (
                parallel::chunks(&labels, BLOCK_ROWS),
                parallel::chunks(&splits, BLOCK_ROWS),
            ),
        );
        let counts = parallel::map(blocks, |_, (block, (labels, splits))| {
            let mut correct = [0; 3];
            let floats = widened(block);
            for ((row, &label), &split) in floats.chunks_exact(stride).zip(labels).zip(splits) {
                if let Some(correct) = correct.get_mut(split as usize) {
                    *correct += u32::from(argmax(&row[..logits.columns]) == Some(label as usize));
                }
            }
            correct
        });
        let sum = |split| {
            counts
                .iter()
                .map(|of_block: &[u32; 3]| of_block[split])
                .sum()
        };
        correct
            .buffer
            .get_mut()
            .copy_from_slice(&[0, 1, 2].map(sum));
        Ok(())
    }

    fn element_loss<E: Element>(
        &self,
        operands: Checked<ElementLossOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        match of.kind {
            ElementLoss::BinaryCrossEntropy { positive_weights } => {
                let weights = positive_weights.map(|weights| weights.buffer.read());
                let weights = weights.as_deref();
                sum_elements(of, |column, x, target| {
                    let weight = weights.map_or(1.0, |weights| weights[column]);
                    let BinaryTerm { loss, slope } = binary_term(x, target, weight);
                    (loss, slope)
                });
            }
            ElementLoss::SquaredError => sum_elements(of, |_, x, target| {
                let off = x - target;
                (off * off, 2.0 * off)
            }),
            ElementLoss::AbsoluteError => sum_elements(of, |_, x, target| {
                let off = x - target;
                // Of an error of 0 the slope is 0, of a NaN a NaN.
                let slope = if off == 0.0 { off } else { off.signum() };
                (off.abs(), slope)
            }),
        }
        Ok(())
    }

    fn count_classes<E: Element>(
        &self,
        operands: Checked<CountClassesOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let labels = of.labels.buffer.read();
        count_rows(of.logits, of.splits, of.counts, |row, logits, counts| {
            let (told, label) = (argmax(logits), labels[row] as usize);
            if told == Some(label) {
                counts[label * OUTCOMES] += 1;
                return;
            }
            if let Some(told) = told {
                counts[told * OUTCOMES + 1] += 1;
            }
            if let Some(missed) = counts.get_mut(label.saturating_mul(OUTCOMES).saturating_add(2)) {
                *missed += 1;
            }
        });
        Ok(())
    }

    fn count_labels<E: Element>(
        &self,
        operands: Checked<CountLabelsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let values = of.targets.buffer.read();
        let targets = view(of.targets, &values);
        count_rows(of.logits, of.splits, of.counts, |row, logits, counts| {
            let targets = &targets.values[row * targets.stride..];
            for (column, (&logit, &target)) in logits.iter().zip(targets).enumerate() {
                let outcome = match (logit > 0.0, target > 0.5) {
                    (true, true) => 0,
                    (true, false) => 1,
                    (false, true) => 2,
                    (false, false) => continue,
                };
                counts[column * OUTCOMES + outcome] += 1;
            }
        });
        Ok(())
    }
}

/// A loss of each element, and its slope.
fn sum_elements<E: Element>(
    of: ElementLossOperands<'_, Cpu, E>,
    term: impl Fn(usize, f32, f32) -> (f32, f32) + Sync,
) {
    let (values, targets, rows) = (
        of.logits.buffer.read(),
        of.targets.buffer.read(),
        of.rows.buffer.read(),
    );
    let (logits, targets) = (view(of.logits, &values), view(of.targets, &targets));
    let gradient = view_mut(of.gradient);
    let row_weights = of.row_weights.map(|weights| weights.buffer.read());
    let row_weight = |row: usize| row_weights.as_ref().map_or(1.0, |weights| weights[row]);
    let (stride, factor) = (logits.stride, of.state.loss_scale() / of.divisor);
    let blocks = (
        (
            parallel::chunks(logits.values, BLOCK_ROWS * stride),
            parallel::chunks_mut(gradient.values, BLOCK_ROWS * stride),
        ),
        (
            parallel::chunks(targets.values, BLOCK_ROWS * targets.stride),
            parallel::chunks(&rows, BLOCK_ROWS),
        ),
    );
    let losses = parallel::map(
        blocks,
        |block, ((logits_block, gradient), (targets_block, rows))| {
            let (mut floats, mut loss) = (vec![0.0; stride], 0.0);
            let rows = rows.iter().zip(logits_block.chunks_exact(stride));
            let others = gradient
                .chunks_exact_mut(stride)
                .zip(targets_block.chunks_exact(targets.stride));
            for (((&row, logits_row), (gradient, targets)), at) in
                rows.zip(others).zip(block * BLOCK_ROWS..)
            {
                if row == NO_TARGET {
                    gradient.fill(E::zeroed());
                    continue;
                }
                widen(logits_row, &mut floats);
                let weight = row_weight(at);
                let elements = floats[..logits.columns].iter_mut().zip(targets);
                for (column, (value, &target)) in elements.enumerate() {
                    let (one, slope) = term(column, *value, target);
                    loss += one * weight;
                    *value = slope * (factor * weight);
                }
                round(&floats, gradient);
            }
            loss
        },
    );
    of.loss.buffer.get_mut()[0] = losses.iter().sum::<f32>() / of.divisor;
}

/// Counts by split what `count` finds in the logits of a row, into the outcomes of its split.
fn count_rows<E: Element>(
    logits: &Matrix<Cpu, E>,
    splits: &Array<Cpu, u32>,
    counts: &mut Array<Cpu, u32>,
    count: impl Fn(usize, &[f32], &mut [u32]) + Sync,
) {
    let (values, splits) = (logits.buffer.read(), splits.buffer.read());
    let logits = view(logits, &values);
    let (stride, words) = (logits.stride, OUTCOMES * logits.columns);
    let blocks = (
        parallel::chunks(logits.values, COUNT_ROWS * stride),
        parallel::chunks(&splits, COUNT_ROWS),
    );
    let of_blocks = parallel::map(blocks, |block, (rows, splits)| {
        let mut counts = vec![0; 3 * words];
        let mut floats = vec![0.0; stride];
        for (at, (row, &split)) in rows.chunks_exact(stride).zip(splits).enumerate() {
            if split < 3 {
                widen(row, &mut floats);
                let counts = &mut counts[split as usize * words..][..words];
                count(block * COUNT_ROWS + at, &floats[..logits.columns], counts);
            }
        }
        counts
    });
    let sums = counts.buffer.get_mut();
    sums.fill(0);
    for of_block in &of_blocks {
        sums.iter_mut()
            .zip(of_block)
            .for_each(|(sum, count)| *sum += count);
    }
}

/// Makes of the logits of one row its gradient, and returns its loss.
///
/// `width` is the length of a 16-byte vector in elements.
fn row_loss(row: &mut [f32], width: usize, target: usize, factor: f32) -> f32 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // A class that does not exist has no probability.
    let logit = row.get(target).map_or(f32::NAN, |logit| logit - max);
    row.iter_mut()
        .for_each(|value| *value = exp_nonpositive(*value - max));
    let sum = lane_sum(row, width);
    let reciprocal = 1.0 / sum;
    for (class, value) in row.iter_mut().enumerate() {
        let expected = if class == target { 1.0 } else { 0.0 };
        *value = (*value * reciprocal - expected) * factor;
    }
    ln(sum) - logit
}

/// The sum as the lanes of a sub-warp make it: each adds up every n-th vector, and the halves of the lanes are added
/// until one is left. So the gradient has the same bits as the kernel's.
fn lane_sum(row: &[f32], width: usize) -> f32 {
    let vectors = row.len().div_ceil(width) as u32;
    let mut lanes = 1 << lanes_log2(vectors);
    let mut sums = [0.0; WARP as usize];
    for (i, vector) in row.chunks(width).enumerate() {
        let lane = &mut sums[i % lanes];
        vector.iter().for_each(|value| *lane += value);
    }
    while lanes > 1 {
        lanes /= 2;
        for lane in 0..lanes {
            sums[lane] += sums[lane + lanes];
        }
    }
    sums[0]
}

/// The first of the largest values; none where there is a NaN.
fn argmax(row: &[f32]) -> Option<usize> {
    let mut best = 0;
    for (class, value) in row.iter().enumerate() {
        if value.is_nan() {
            return None;
        }
        if *value > row[best] {
            best = class;
        }
    }
    Some(best)
}
