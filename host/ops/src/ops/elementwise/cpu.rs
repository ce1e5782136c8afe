//! Bias, ReLU and dropout, their gradient, and the sums of columns.
//!
//! A row is widened to float, computed with, and rounded once.

use super::{
    ActivateBackwardOperands, ActivateOperands, ColumnSumsOperands, DropRowsOperands, Dropout,
    ElementwiseOperators, OfParts, SumPartsOperands,
};
use crate::backend::Floats;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widen, widened};
use crate::backend::cpu::simd::{Kernel, Lanes, is_zero};
use crate::backend::cpu::view::{for_rows, nonzeros, read, read_matrix, view, view_mut};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::rng;
use halfgnn_graph::parallel;

/// Rows whose sums are added up before they are added to those of others.
const SUM_ROWS: usize = 256;

impl ElementwiseOperators for Cpu {
    fn activate<E: Element>(
        &self,
        operands: Checked<ActivateOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ActivateOperands { op, x, sum, y } = operands.into_inner();
        let mask = op.dropout.map(Mask::new);
        let (values, bias) = (read_matrix(x), read_matrix(op.bias));
        let kept = match (x, &values, &bias) {
            (Some(x), Some(values), None) if !sum => nonzeros(x, values),
            _ => None,
        };
        if let Some(kept) = kept {
            let (elements, before) = y.buffer.get_mut_and_nonzeros();
            let dropped = kept.map(elements, before.as_ref(), |rows, columns, values| {
                add_bias_and_activate(values, None, op.relu);
                if let Some(mask) = &mask {
                    self.instructions().run(DropSome {
                        mask,
                        rows,
                        columns,
                        values,
                    });
                }
            });
            y.buffer.keep_nonzeros(dropped);
            return Ok(());
        }
        let (x, bias) = (values.as_deref(), bias.as_deref());
        for_rows(view_mut(y), |row, columns, y, floats| {
            let source = x.map_or(&*y, |x| &x[row * y.len()..(row + 1) * y.len()]);
            if bias.is_none() && !sum && is_mostly_zeros(source) {
                if let Some(x) = x {
                    y.copy_from_slice(&x[row * y.len()..(row + 1) * y.len()]);
                }
                return activate_runs(op.relu, mask.as_ref(), row, y, floats);
            }
            widen(source, floats);
            if sum {
                let addend = y.iter().map(|y| y.to_f32());
                floats.iter_mut().zip(addend).for_each(|(x, y)| *x += y);
            }
            add_bias_and_activate(&mut floats[..columns], bias, op.relu);
            if let Some(mask) = &mask {
                mask.apply(row, 0, &mut floats[..columns]);
            }
            round(floats, y);
        });
        Ok(())
    }

    fn activate_backward<E: Element>(
        &self,
        operands: Checked<ActivateBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let operands = operands.into_inner();
        let (op, d) = (operands.op, operands.d);
        let (y, row_scale) = (read_matrix(operands.y), read(operands.row_scale));
        let (y, row_scale) = (y.as_deref(), row_scale.as_deref());
        let mask = op.dropout.map(Mask::new);
        for_rows(view_mut(d), |row, columns, d, floats| {
            widen(d, floats);
            let floats_row = &mut floats[..columns];
            match (op.relu, y) {
                // What ReLU or dropout made zero says so by itself: no mask is drawn again.
                (true, Some(y)) => {
                    let scale = mask.as_ref().map_or(1.0, |mask| mask.scale);
                    let y = &y[row * d.len()..(row + 1) * d.len()];
                    E::keep_positive(floats_row, &y[..columns], scale);
                }
                _ => {
                    if let Some(mask) = &mask {
                        mask.apply(row, 0, floats_row);
                    }
                }
            }
            if let Some(scale) = row_scale {
                floats_row.iter_mut().for_each(|value| *value *= scale[row]);
            }
            round(floats, d);
        });
        Ok(())
    }

    fn drop_rows<E: Element>(
        &self,
        operands: Checked<DropRowsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let DropRowsOperands {
            dropout,
            vertices,
            y,
        } = operands.into_inner();
        let (mask, vertices) = (Mask::new(dropout), vertices.buffer.read());
        for_rows(view_mut(y), |row, columns, y, floats| {
            widen(y, floats);
            mask.apply(vertices[row] as usize, 0, &mut floats[..columns]);
            round(floats, y);
        });
        Ok(())
    }

    /// Sums of blocks of rows, then of the blocks, each in order.
    fn column_sums<E: Element>(
        &self,
        operands: Checked<ColumnSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ColumnSumsOperands { x, sums } = operands.into_inner();
        let values = x.buffer.read();
        let (x, sums) = (view(x, &values), sums.buffer.get_mut());
        sums.fill(0.0);
        if x.columns == 0 {
            return Ok(());
        }
        let blocks = parallel::map(
            parallel::chunks(x.values, SUM_ROWS * x.stride),
            |_, block| {
                let mut sums = vec![0.0; x.columns];
                for row in widened(block).chunks_exact(x.stride) {
                    add(&mut sums, row);
                }
                sums
            },
        );
        for block in &blocks {
            add(sums, block);
        }
        Ok(())
    }

    fn sum_parts(&self, operands: Checked<SumPartsOperands<'_, Self>>) -> Result<(), Error> {
        let of = operands.into_inner();
        let parts = of.parts.buffer.read();
        let sums = match of.sums {
            Floats::Matrix(matrix) => matrix.buffer.get_mut(),
            Floats::Array(array) => array.buffer.get_mut(),
        };
        let fold: fn(f32, f32) -> f32 = match of.of {
            OfParts::Sum => |sum, term| sum + term,
            OfParts::Largest => f32::max,
        };
        let len = sums.len();
        for (at, sum) in sums.iter_mut().enumerate() {
            let terms = (0..of.count).map(|part| parts[part * len + at]);
            *sum = of.factor * terms.fold(0.0, fold);
        }
        Ok(())
    }
}

/// Elements of a row that are compared with zero at a time.
const RUN: usize = 16;

/// Whether most runs of a row are zeros, as in bags of words.
fn is_mostly_zeros<E: Element>(row: &[E]) -> bool {
    let runs = row.chunks(RUN);
    let most = runs.len() / 2;
    runs.filter(|run| is_zero(run)).count() > most
}

/// ReLU and dropout in place, of what is not zero: zeros stay what they are.
fn activate_runs<E: Element>(
    relu: bool,
    mask: Option<&Mask>,
    row: usize,
    y: &mut [E],
    floats: &mut [f32],
) {
    for (run, elements) in y.chunks_mut(RUN).enumerate() {
        if is_zero(elements) {
            continue;
        }
        let floats = &mut floats[..elements.len()];
        widen(elements, floats);
        add_bias_and_activate(floats, None, relu);
        if let Some(mask) = mask {
            mask.apply(row, run * RUN, floats);
        }
        round(floats, elements);
    }
}

/// Adds the bias, and makes zeros of what is below zero.
pub(crate) fn add_bias_and_activate(floats: &mut [f32], bias: Option<&[f32]>, relu: bool) {
    if let Some(bias) = bias {
        floats
            .iter_mut()
            .zip(bias)
            .for_each(|(value, bias)| *value += bias);
    }
    if relu {
        for value in floats {
            // Not `max`, which would make a zero of a NaN.
            if *value < 0.0 {
                *value = 0.0;
            }
        }
    }
}

/// Scales what stands where `y` is above zero, and makes zeros of the rest. Both have one length.
pub(crate) fn keep_positive<E: Element>(floats: &mut [f32], y: &[E], scale: f32) {
    for (value, y) in floats.iter_mut().zip(y) {
        *value = if y.to_f32() > 0.0 {
            *value * scale
        } else {
            0.0
        };
    }
}

/// Which elements dropout keeps.
pub(crate) struct Mask {
    key: [u32; 2],
    step: u32,
    threshold: u32,
    scale: f32,
}

impl Mask {
    pub(crate) fn new(dropout: Dropout<'_, Cpu>) -> Self {
        let (words, at) = dropout.random.count();
        Self {
            key: rng::key(dropout.random.seed(), dropout.stream),
            step: words.buffer.read()[at],
            threshold: rng::threshold(dropout.probability),
            scale: 1.0 / (1.0 - dropout.probability),
        }
    }

    /// What becomes of the weight of the edge from `source` to `destination`.
    pub(crate) fn edge(&self, weight: f32, head: usize, destination: usize, source: usize) -> f32 {
        // Ids are 32 bits wide, and there are no more heads than columns.
        let [head, destination, source] = [head, destination, source].map(|id| id as u32);
        let counter = rng::edge_dropout_counter(self.step, head, destination, source);
        if rng::philox(self.key, counter)[0] >= self.threshold {
            weight * self.scale
        } else {
            0.0
        }
    }

    /// Drops of `values`, which begin at column `first` of a row, a multiple of four.
    fn apply(&self, row: usize, first: usize, values: &mut [f32]) {
        let row = row as u64;
        for (block, values) in values.chunks_mut(4).enumerate() {
            let block = first / 4 + block;
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

/// Drops of `values`, whose places are told one by one.
struct DropSome<'a> {
    mask: &'a Mask,
    rows: &'a [u32],
    columns: &'a [u32],
    values: &'a mut [f32],
}

impl Kernel for DropSome<'_> {
    type Output = ();

    #[inline(always)]
    fn plain(self) {
        let (rows, columns) = (self.rows.iter(), self.columns.iter());
        for ((value, &row), &column) in self.values.iter_mut().zip(rows).zip(columns) {
            let bits = rng::dropout_bits(self.mask.key, self.mask.step, row.into(), column / 4);
            // Chosen without an index, so that the compiler draws for as many values at a time as vectors hold.
            let is_odd = column & 1 != 0;
            let low = if is_odd { bits[1] } else { bits[0] };
            let high = if is_odd { bits[3] } else { bits[2] };
            let bits = if column & 2 != 0 { high } else { low };
            *value = if bits >= self.mask.threshold {
                *value * self.mask.scale
            } else {
                0.0
            };
        }
    }

    #[inline(always)]
    fn vectors<L: Lanes>(self, _: L) {
        self.plain();
    }
}

fn add(sums: &mut [f32], values: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}
