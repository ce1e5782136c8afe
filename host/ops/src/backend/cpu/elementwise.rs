//! Bias, ReLU and dropout, their gradient, and the sums of columns.
//!
//! A row is widened to float, computed with, and rounded once.

use super::Cpu;
use super::convert::{round, widen, widened};
use super::matmul::{View, ViewMut};
use crate::backend::Dropout;
use crate::tensor::Element;
use halfgnn_contract::rng;
use rayon::prelude::*;

/// Rows that are one piece of work at least: less would cost more to hand out than to do.
const MIN_ROWS: usize = 16;

/// Rows whose sums are added up before they are added to those of others.
const SUM_ROWS: usize = 256;

/// What [`activate`] does to an element.
pub(super) struct Steps<'a> {
    pub(super) bias: Option<&'a [f32]>,
    pub(super) relu: bool,
    pub(super) mask: Option<Mask>,
}

/// `y = dropout(relu(x + bias))`; in place where `x` is absent.
pub(super) fn activate<E: Element>(steps: &Steps<'_>, x: Option<&[E]>, y: ViewMut<'_, E>) {
    for_rows(y, |row, columns, y, floats| {
        let source = x.map_or(&*y, |x| &x[row * y.len()..(row + 1) * y.len()]);
        widen(source, floats);
        for (column, value) in floats[..columns].iter_mut().enumerate() {
            if let Some(bias) = steps.bias {
                *value += bias[column];
            }
            // Not `max`, which would make a zero of a NaN.
            if steps.relu && *value < 0.0 {
                *value = 0.0;
            }
        }
        if let Some(mask) = &steps.mask {
            mask.apply(row, &mut floats[..columns]);
        }
        round(floats, y);
    });
}

/// `d` becomes the gradient of the input: see [`crate::backend::Backend::activate_backward`].
pub(super) fn activate_backward<E: Element>(
    steps: &Steps<'_>,
    y: Option<&[E]>,
    row_scale: Option<&[f32]>,
    d: ViewMut<'_, E>,
) {
    for_rows(d, |row, columns, d, floats| {
        widen(d, floats);
        let floats_row = &mut floats[..columns];
        match (steps.relu, y) {
            // What ReLU or dropout made zero says so by itself: no mask is drawn again.
            (true, Some(y)) => {
                let scale = steps.mask.as_ref().map_or(1.0, |mask| mask.scale);
                let y = &y[row * d.len()..(row + 1) * d.len()];
                for (value, y) in floats_row.iter_mut().zip(y) {
                    *value = if y.to_f32() > 0.0 {
                        *value * scale
                    } else {
                        0.0
                    };
                }
            }
            _ => {
                if let Some(mask) = &steps.mask {
                    mask.apply(row, floats_row);
                }
            }
        }
        if let Some(scale) = row_scale {
            floats_row.iter_mut().for_each(|value| *value *= scale[row]);
        }
        round(floats, d);
    });
}

/// Calls `f(row, columns, elements, floats)` for every row, with the padding in `elements` and `floats`.
pub(super) fn for_rows<E: Element>(
    matrix: ViewMut<'_, E>,
    f: impl Fn(usize, usize, &mut [E], &mut [f32]) + Sync,
) {
    let (columns, stride) = (matrix.columns, matrix.stride);
    if stride == 0 {
        return;
    }
    matrix
        .values
        .par_chunks_exact_mut(stride)
        .with_min_len(MIN_ROWS)
        .enumerate()
        .for_each_init(
            || vec![0.0; stride],
            |floats, (row, elements)| f(row, columns, elements, floats),
        );
}

/// Which elements dropout keeps.
pub(super) struct Mask {
    key: [u32; 2],
    step: u32,
    threshold: u32,
    scale: f32,
}

impl Mask {
    pub(super) fn new(dropout: Dropout<'_, Cpu>) -> Self {
        let (words, at) = dropout.random.count();
        Self {
            key: rng::key(dropout.random.seed(), dropout.stream),
            step: words.buffer.read()[at],
            threshold: rng::threshold(dropout.probability),
            scale: 1.0 / (1.0 - dropout.probability),
        }
    }

    /// What becomes of the weight of the edge from `source` to `destination`.
    pub(super) fn edge(&self, weight: f32, head: usize, destination: usize, source: usize) -> f32 {
        // Ids are 32 bits wide, and there are no more heads than columns.
        let [head, destination, source] = [head, destination, source].map(|id| id as u32);
        let counter = rng::edge_dropout_counter(self.step, head, destination, source);
        if rng::philox(self.key, counter)[0] >= self.threshold {
            weight * self.scale
        } else {
            0.0
        }
    }

    fn apply(&self, row: usize, values: &mut [f32]) {
        let row = row as u64;
        for (block, values) in values.chunks_mut(4).enumerate() {
            // Kept or not, a zero stays one; bag-of-words features have little else.
            if values.iter().all(|value| value.to_bits() == 0) {
                continue;
            }
            let bits = rng::dropout_bits(self.key, self.step, row, block as u32);
            for (value, bits) in values.iter_mut().zip(bits) {
                *value = if bits >= self.threshold {
                    *value * self.scale
                } else {
                    0.0
                };
            }
        }
    }
}

/// The sums of the columns of `x`, in float: blocks of [`SUM_ROWS`] rows, then the blocks, each in order.
pub(super) fn column_sums<E: Element>(x: View<'_, E>, sums: &mut [f32]) {
    sums.fill(0.0);
    if x.columns == 0 {
        return;
    }
    let blocks: Vec<Vec<f32>> = x
        .values
        .par_chunks(SUM_ROWS * x.stride)
        .map(|block| {
            let mut sums = vec![0.0; x.columns];
            for row in widened(block).chunks_exact(x.stride) {
                add(&mut sums, row);
            }
            sums
        })
        .collect();
    for block in &blocks {
        add(sums, block);
    }
}

fn add(sums: &mut [f32], values: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}
