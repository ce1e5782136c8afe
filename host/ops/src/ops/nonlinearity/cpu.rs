//! Activation functions, by the contract's formulas: a row is widened to float, computed with, and rounded once.

use super::{NonlinearityBackwardOperands, NonlinearityOperands, NonlinearityOperators};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widen};
use crate::backend::cpu::view::{for_rows, read_matrix, view_mut};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::nonlinearity::{apply, derivative};

impl NonlinearityOperators for Cpu {
    fn nonlinearity<E: Element>(
        &self,
        operands: Checked<NonlinearityOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let NonlinearityOperands {
            function,
            bias,
            x,
            y,
        } = operands.into_inner();
        let (function, slope) = function.code();
        let (x, bias) = (read_matrix(x), read_matrix(bias));
        let (x, bias) = (x.as_deref(), bias.as_deref());
        for_rows(view_mut(y), |row, columns, y, floats| {
            let source = x.map_or(&*y, |x| &x[row * y.len()..(row + 1) * y.len()]);
            widen(source, floats);
            for (column, value) in floats[..columns].iter_mut().enumerate() {
                let biased = bias.map_or(*value, |bias| *value + bias[column]);
                *value = apply(function, slope, biased);
            }
            round(floats, y);
        });
        Ok(())
    }

    fn nonlinearity_backward<E: Element>(
        &self,
        operands: Checked<NonlinearityBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let NonlinearityBackwardOperands { function, of, d } = operands.into_inner();
        let (function, slope) = function.code();
        let of = of.buffer.read();
        let of: &[E] = &of;
        for_rows(view_mut(d), |row, columns, d, floats| {
            widen(d, floats);
            let of = &of[row * d.len()..(row + 1) * d.len()];
            for (value, x) in floats[..columns].iter_mut().zip(of) {
                *value *= derivative(function, slope, x.to_f32());
            }
            round(floats, d);
        });
        Ok(())
    }
}
