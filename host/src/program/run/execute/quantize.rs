//! What quantization calls.

use crate::backend::Backend;
use crate::error::Error;
use crate::nn::{MARGIN, store_in_8_bits};
use crate::ops::{self, QuantizedMatrix, Rounding};
use crate::program::operator::{Coding, Matmul, Node};
use crate::program::run::machine::{Bank, Elements, Floats, Typed, absent};
use crate::program::value::Value;
use crate::tensor::Element;

impl<B: Backend, E: Element> Typed<'_, B, E> {
    /// Quantized values of a matrix that is there.
    pub(super) fn quantize(&mut self, x: Value, node: &Node) -> Result<(), Error> {
        let Some((coding, result)) = node.coded() else {
            return absent(node.results[0]);
        };
        let follows = self.follows(result)?;
        self.memory.has_scales.insert(result);
        self.with_codes(result, |machine, codes| {
            machine.begin_codes(coding, codes)?;
            machine.quantize_to(x, coding, (codes, follows))?;
            machine.exchange_codes(node, codes)
        })
    }

    /// Quantized values of a matrix that is there, with scales of its own.
    pub(super) fn store(&mut self, x: Value, result: Value) -> Result<(), Error> {
        self.with_codes(result, |machine, codes| {
            let x = Elements::matrix(machine, x)?;
            store_in_8_bits(&machine.backend, x, codes)
        })
    }

    /// The numbers of what was stored.
    pub(super) fn dequantize(&mut self, x: Value, result: Value) -> Result<(), Error> {
        self.with_codes(x, |machine, codes| {
            machine.write::<Elements>(result, |machine, y| {
                ops::dequantize(&machine.backend, codes, y)
            })
        })
    }

    /// `alpha · aᵀ · b` of a first operand that was stored, and the sums of the columns of `b`.
    pub(super) fn product_of_stored(&mut self, op: &Matmul, node: &Node) -> Result<(), Error> {
        let of_sums = node.results.get(1).filter(|_| op.column_sums);
        self.with_codes(op.a, |machine, codes| {
            let sums = of_sums.map(|sums| Floats::take(machine, *sums));
            let mut sums = sums.transpose()?;
            let done = machine.write::<Floats>(node.results[0], |machine, y| {
                let b = Elements::matrix(machine, op.b)?;
                ops::quantized_matmul(&machine.backend, codes, b, op.alpha, sums.as_mut(), y)
            });
            if let (Some(value), Some(sums)) = (of_sums, sums) {
                Floats::put(machine, *value, sums);
            }
            done
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
        let rounding = self.rounding(coding, codes.rows())?;
        let factors = self.row_factors(coding.rows);
        if !follows {
            // Finds the largest magnitudes.
            ops::quantize(backend, x, factors, rounding, codes)?;
            codes.scales_mut().forget_counts(backend)?;
            if let Some(of_rank) = coding.of_rank {
                let what = format!("layers.{} scales", coding.layer);
                let [_, largest] = codes.scales_mut().state_mut();
                let group = self.halo(of_rank.edges)?.group();
                group.largest_by_host(backend, &what, largest)?;
            }
        }
        ops::update_scales(backend, MARGIN, codes.scales_mut())?;
        ops::quantize(backend, x, factors, rounding, codes)
    }

    /// Has `work` write the first result and, where their scales follow a step, its quantized values. In a first step these are made
    /// behind it.
    pub(super) fn coded(
        &mut self,
        node: &Node,
        work: impl FnOnce(&mut Self, Option<&mut QuantizedMatrix<B>>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let Some((coding, result)) = node.coded() else {
            return work(self, None);
        };
        if !self.follows(result)? {
            work(self, None)?;
            return self.quantize(node.results[0], node);
        }
        self.with_codes(result, |machine, codes| {
            machine.begin_codes(coding, codes)?;
            ops::update_scales(&machine.backend, MARGIN, codes.scales_mut())?;
            work(machine, Some(codes))?;
            machine.exchange_codes(node, codes)
        })
    }

    /// What an operator makes quantized values by.
    pub(super) fn coding<'a>(
        &'a self,
        coding: Option<Coding>,
        codes: Option<&'a mut QuantizedMatrix<B>>,
    ) -> Result<Option<ops::Coding<'a, B>>, Error> {
        let (Some(coding), Some(codes)) = (coding, codes) else {
            return Ok(None);
        };
        Ok(Some(ops::Coding {
            row_scale: self.row_factors(coding.rows),
            rounding: self.rounding(coding, codes.rows())?,
            codes,
            alone: coding.alone,
        }))
    }

    /// How `rows` rows are rounded.
    fn rounding(&self, coding: Coding, rows: usize) -> Result<Rounding<'_, B>, Error> {
        let Some(stream) = coding.stream else {
            return Ok(Rounding::Nearest);
        };
        let numbers = match coding.of_rank {
            Some(of_rank) => Some(self.halo(of_rank.edges)?.vertices(rows)),
            None => None,
        };
        Ok(Rounding::Stochastic {
            stream,
            random: &self.random,
            numbers,
        })
    }
}
