//! What quantization calls.

use crate::backend::Backend;
use crate::error::Error;
use crate::nn::MARGIN;
use crate::ops::{self, QuantizedMatrix, Rounding};
use crate::program::operator::Coding;
use crate::program::run::machine::{Bank, Elements, Typed};
use crate::program::value::Value;
use crate::tensor::Element;

impl<B: Backend, E: Element> Typed<'_, B, E> {
    /// Quantized values of a matrix that is there.
    pub(super) fn quantize(
        &mut self,
        x: Value,
        coding: Coding,
        result: Value,
    ) -> Result<(), Error> {
        let follows = self.follows(result)?;
        self.memory.has_scales.insert(result);
        self.with_codes(result, |machine, codes| {
            machine.quantize_to(x, coding, (codes, follows))
        })
    }

    /// Whether scales follow a step: one of this run, or of the run that a checkpoint is of.
    fn follows(&mut self, value: Value) -> Result<bool, Error> {
        if self.memory.has_scales.contains(&value) {
            return Ok(true);
        }
        let follows = match self.memory.quantized.get(&value) {
            Some(codes) => {
                self.backend.only_counts() || !codes.scales().are_unset(&self.backend)?
            }
            None => false,
        };
        if follows {
            self.memory.has_scales.insert(value);
        }
        Ok(follows)
    }

    fn quantize_to(
        &self,
        x: Value,
        coding: Coding,
        (codes, follows): (&mut QuantizedMatrix<B>, bool),
    ) -> Result<(), Error> {
        let (backend, x) = (&self.backend, Elements::matrix(self, x)?);
        let (factors, rounding) = (self.row_factors(coding.rows), self.rounding(coding));
        if !follows {
            // Finds the largest magnitudes.
            ops::quantize(backend, x, factors, rounding, codes)?;
            codes.scales_mut().forget_counts(backend)?;
        }
        ops::update_scales(backend, MARGIN, codes.scales_mut())?;
        ops::quantize(backend, x, factors, rounding, codes)
    }

    /// Has `work` write the matrix `x` and, where their scales follow a step, its quantized values. In a first step these are made behind
    /// it.
    pub(super) fn coded(
        &mut self,
        (coding, result): (Coding, Value),
        x: Value,
        work: impl FnOnce(&mut Self, Option<&mut QuantizedMatrix<B>>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        if !self.follows(result)? {
            work(self, None)?;
            return self.quantize(x, coding, result);
        }
        self.with_codes(result, |machine, codes| {
            ops::update_scales(&machine.backend, MARGIN, codes.scales_mut())?;
            work(machine, Some(codes))
        })
    }

    /// What an operator makes quantized values by.
    pub(super) fn coding<'a>(
        &'a self,
        coding: Option<Coding>,
        codes: Option<&'a mut QuantizedMatrix<B>>,
    ) -> Option<ops::Coding<'a, B>> {
        let (coding, codes) = (coding?, codes?);
        Some(ops::Coding {
            row_scale: self.row_factors(coding.rows),
            rounding: self.rounding(coding),
            codes,
            alone: coding.alone,
        })
    }

    fn rounding(&self, coding: Coding) -> Rounding<'_, B> {
        match coding.stream {
            Some(stream) => Rounding::Stochastic {
                stream,
                random: &self.random,
                numbers: None,
            },
            None => Rounding::Nearest,
        }
    }
}
