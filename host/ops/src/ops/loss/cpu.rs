//! Cross-entropy of the log-softmax with its gradient, and the count of right answers.

use super::{CountCorrectOperands, CrossEntropyOperands, LossOperators, NO_TARGET};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widen, widened};
use crate::backend::cpu::view::{view, view_mut};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::WARP;
use halfgnn_contract::math::{exp, ln};
use halfgnn_contract::spmm::lanes_log2;
use rayon::prelude::*;

/// Rows whose losses are added up before they are added to those of others.
const BLOCK_ROWS: usize = 256;

impl LossOperators for Cpu {
    fn cross_entropy<E: Element>(
        &self,
        operands: Checked<CrossEntropyOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (logits, targets, gradient, loss) = (of.logits, of.targets, of.gradient, of.loss);
        let (values, targets) = (logits.buffer.read(), targets.buffer.read());
        let (logits, gradient) = (view(logits, &values), view_mut(gradient));
        let stride = logits.stride;
        let factor = of.state.loss_scale() / of.count as f32;
        let blocks: Vec<f32> = logits
            .values
            .par_chunks(BLOCK_ROWS * stride)
            .zip(gradient.values.par_chunks_mut(BLOCK_ROWS * stride))
            .zip(targets.par_chunks(BLOCK_ROWS))
            .map(|((logits_block, gradient), targets)| {
                let mut floats = vec![0.0; stride];
                let mut loss = 0.0;
                let rows = logits_block.chunks_exact(stride);
                for ((row, gradient), &target) in
                    rows.zip(gradient.chunks_exact_mut(stride)).zip(targets)
                {
                    if target == NO_TARGET {
                        gradient.fill(E::zeroed());
                        continue;
                    }
                    widen(row, &mut floats);
                    loss += row_loss(
                        &mut floats[..logits.columns],
                        E::LANES,
                        target as usize,
                        factor,
                    );
                    round(&floats, gradient);
                }
                loss
            })
            .collect();
        loss.buffer.get_mut()[0] = blocks.iter().sum::<f32>() / of.count as f32;
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
        let counts = logits
            .values
            .par_chunks(BLOCK_ROWS * stride)
            .zip(
                labels
                    .par_chunks(BLOCK_ROWS)
                    .zip(splits.par_chunks(BLOCK_ROWS)),
            )
            .map(|(block, (labels, splits))| {
                let mut correct = [0; 3];
                let floats = widened(block);
                for ((row, &label), &split) in floats.chunks_exact(stride).zip(labels).zip(splits) {
                    if let Some(correct) = correct.get_mut(split as usize) {
                        *correct +=
                            u32::from(argmax(&row[..logits.columns]) == Some(label as usize));
                    }
                }
                correct
            })
            .reduce(
                || [0; 3],
                |a, b| std::array::from_fn(|split| a[split] + b[split]),
            );
        correct.buffer.get_mut().copy_from_slice(&counts);
        Ok(())
    }
}

/// Makes of the logits of one row its gradient, and returns its loss.
///
/// `width` is the length of a 16-byte vector in elements.
fn row_loss(row: &mut [f32], width: usize, target: usize, factor: f32) -> f32 {
    let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    // A class that does not exist has no probability.
    let logit = row.get(target).map_or(f32::NAN, |logit| logit - max);
    row.iter_mut().for_each(|value| *value = exp(*value - max));
    let sum = lane_sum(row, width);
    let reciprocal = 1.0 / sum;
    for (class, value) in row.iter_mut().enumerate() {
        let expected = if class == target { 1.0 } else { 0.0 };
        *value = (*value * reciprocal - expected) * factor;
    }
    ln(sum) - logit
}

/// The sum as the lanes of a sub-warp make it: each adds up every so many vectors, and the halves of the lanes are added
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
