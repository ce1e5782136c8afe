//! Shadow operators, a row at a time: widened, computed with in float, rounded once.

use super::{Shadow, ShadowOperands, ShadowOperators};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widen};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::math::{exp, ln};
use rayon::prelude::*;

/// Rows that are one piece of work at least.
const MIN_ROWS: usize = 16;

impl ShadowOperators for Cpu {
    fn shadow<E: Element>(
        &self,
        operands: Checked<ShadowOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ShadowOperands { op, x, y } = operands.into_inner();
        let (columns, stride, y_stride) = (x.columns(), x.stride(), y.stride());
        let values = x.buffer.read();
        let rows = y.buffer.get_mut().par_chunks_exact_mut(y_stride);
        rows.zip(values.par_chunks_exact(stride))
            .with_min_len(MIN_ROWS)
            .for_each_init(
                || vec![0.0; stride],
                |floats, (y, x)| {
                    widen(x, floats);
                    of_row(op, &mut floats[..columns]);
                    round(&floats[..y_stride], y);
                },
            );
        Ok(())
    }
}

/// Replaces a row by its function; a sum is the first element, and the others are zero.
fn of_row(op: Shadow, row: &mut [f32]) {
    match op {
        Shadow::Exp => row.iter_mut().for_each(|x| *x = exp(*x)),
        Shadow::Softmax | Shadow::LogSoftmax => {
            let max = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum = row.iter().fold(0.0, |sum, x| sum + exp(x - max));
            if op == Shadow::Softmax {
                row.iter_mut().for_each(|x| *x = exp(*x - max) / sum);
            } else {
                let ln = ln(sum);
                row.iter_mut().for_each(|x| *x = *x - max - ln);
            }
        }
        Shadow::Sum | Shadow::Mean => {
            let scale = match op {
                Shadow::Mean => 1.0 / row.len() as f32,
                _ => 1.0,
            };
            let sum: f32 = row.iter().sum();
            row.fill(0.0);
            row[0] = sum * scale;
        }
    }
}
