//! SpMV, row by row in the order of the edges, in float.

use super::{SpmvOperands, SpmvOperators};
use crate::backend::cpu::Cpu;
use crate::backend::cpu::view::{read, with_edges};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;

impl SpmvOperators for Cpu {
    fn spmv<E: Element>(&self, operands: Checked<SpmvOperands<'_, Self, E>>) -> Result<(), Error> {
        let SpmvOperands { a, weights, x, y } = operands.into_inner();
        let (x, weights) = (x.buffer.read(), read(weights));
        let (x, weights): (&[E], Option<&[E]>) = (&x, weights.as_deref());
        with_edges(a, |edges| {
            edges.for_rows(y.buffer.get_mut(), |_, row| {
                let of_row = edges.of_row(row);
                let named = edges.columns[of_row.clone()]
                    .iter()
                    .map(|&column| x[column as usize].to_f32());
                let sum: f32 = match weights {
                    Some(weights) => named
                        .zip(&weights[of_row])
                        .map(|(value, weight)| weight.to_f32() * value)
                        .sum(),
                    None => named.sum(),
                };
                E::from_f32(sum)
            });
        });
        Ok(())
    }
}
