//! Adam on float master weights, and the loss scale that follows overflows.

use super::{
    AdamHyper, AdamOperands, CheckFiniteOperands, LossScaling, OptimizerOperators, OptimizerState,
    ParameterMut,
};
use crate::backend::Storage;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::round;
use crate::backend::cpu::view::view_mut;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::optimizer::{AdamStep, state};
use rayon::prelude::*;

/// Rows that are one piece of work at least.
const MIN_ROWS: usize = 64;

impl OptimizerOperators for Cpu {
    fn check_finite(&self, operands: Checked<CheckFiniteOperands<'_, Self>>) -> Result<(), Error> {
        let CheckFiniteOperands { gradients, state } = operands.into_inner();
        // Padding is zero, so it may be among the values.
        let finite = |gradient: &&Matrix<Cpu, f32>| {
            let values = gradient.buffer.read();
            values.par_iter().all(|value| value.is_finite())
        };
        if !gradients.iter().all(finite) {
            let mut words = state.words.to_vec(self)?;
            words[state::OVERFLOW] = 1;
            self.upload(&state.words.buffer, &words)?;
        }
        Ok(())
    }

    fn adam<E: Element>(
        &self,
        operands: Checked<AdamOperands<'_, '_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let words = of.state.words.buffer.read();
        if words[state::OVERFLOW] != 0 {
            return Ok(());
        }
        let AdamHyper {
            learning_rate,
            beta1,
            beta2,
            epsilon,
            weight_decay,
        } = *of.hyper;
        let constants = [learning_rate, beta1, beta2, epsilon, weight_decay];
        let scale = f32::from_bits(words[state::LOSS_SCALE]);
        let step = AdamStep::new(constants, scale, words[state::STEPS], f32::sqrt);
        for parameter in of.parameters {
            step_of(parameter, &step);
        }
        Ok(())
    }

    fn end_step(
        &self,
        scaling: &LossScaling,
        state: &mut OptimizerState<Self>,
    ) -> Result<(), Error> {
        let mut words = state.words.to_vec(self)?;
        if let Some(words) = words.first_chunk_mut() {
            *words = state::end_step(*words, scaling.growth_interval, scaling.maximum);
        }
        self.upload(&state.words.buffer, &words)
    }
}

impl OptimizerState<Cpu> {
    /// The loss scale as it is.
    pub(crate) fn loss_scale(&self) -> f32 {
        f32::from_bits(self.words.buffer.read()[state::LOSS_SCALE])
    }
}

/// One step of one parameter.
fn step_of<E: Element>(parameter: &mut ParameterMut<'_, Cpu, E>, step: &AdamStep) {
    let (columns, stride) = (parameter.master.columns(), parameter.master.stride());
    if columns == 0 {
        return;
    }
    let gradient = parameter.gradient.buffer.read();
    let master = parameter.master.buffer.get_mut();
    let first_moment = parameter.first_moment.buffer.get_mut();
    let second_moment = parameter.second_moment.buffer.get_mut();
    master
        .par_chunks_exact_mut(stride)
        .with_min_len(MIN_ROWS)
        .zip(first_moment.par_chunks_exact_mut(stride))
        .zip(second_moment.par_chunks_exact_mut(stride))
        .zip(gradient.par_chunks_exact(stride))
        .for_each(|(((master, m), v), gradient)| {
            for i in 0..columns {
                let before = [master[i], m[i], v[i]];
                [master[i], m[i], v[i]] = step.update(before, gradient[i], f32::sqrt);
            }
        });
    if let Some(rounded) = parameter.rounded.as_deref_mut().map(view_mut) {
        let rows = rounded.values.par_chunks_exact_mut(rounded.stride);
        rows.zip(master.par_chunks_exact(stride))
            .for_each(|(rounded, master)| round(&master[..columns], &mut rounded[..columns]));
    }
}
