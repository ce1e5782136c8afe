//! Shadow operators, a row at a time: widened, computed with in float, rounded once.

use super::{Shadow, ShadowOperands, ShadowOperators};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widened};
use crate::backend::cpu::view::{for_rows, view_mut};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::math::{exp, ln};

impl ShadowOperators for Cpu {
    fn shadow<E: Element>(
        &self,
        operands: Checked<ShadowOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ShadowOperands { op, x, y } = operands.into_inner();
        let (columns, stride) = (x.columns(), x.stride());
        let values = x.buffer.read();
        for_rows(view_mut(y), |row, _, y, _| {
            let mut floats = widened(&values[row * stride..(row + 1) * stride]).into_owned();
            of_row(op, &mut floats[..columns]);
            round(&floats[..y.len()], y);
        });
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
