//! What quantization calls.

use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{self, Rounding};
use crate::program::operator::Quantize;
use crate::program::run::machine::{Bank, Elements, Typed};
use crate::program::value::Value;
use crate::tensor::Element;

/// Scales hold this many times the largest magnitude of the step before.
const MARGIN: f32 = 1.5;

impl<B: Backend, E: Element> Typed<B, E> {
    pub(super) fn quantize(&mut self, op: &Quantize, result: Value) -> Result<(), Error> {
        let follows = !self.has_scales.insert(result);
        self.with_codes(result, |machine, codes| {
            let (backend, x) = (&machine.backend, Elements::matrix(machine, op.x)?);
            let factors = machine.row_factors(op.rows);
            let rounding = match op.stream {
                Some(stream) => Rounding::Stochastic {
                    stream,
                    random: &machine.random,
                    numbers: None,
                },
                None => Rounding::Nearest,
            };
            if !follows {
                // Finds the largest magnitudes.
                ops::quantize(backend, x, factors, rounding, codes)?;
                codes.scales_mut().forget_counts(backend)?;
            }
            ops::update_scales(backend, MARGIN, codes.scales_mut())?;
            ops::quantize(backend, x, factors, rounding, codes)
        })
    }
}
