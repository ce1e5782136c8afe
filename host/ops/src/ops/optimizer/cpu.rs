//! Rules on float master weights, clipping, and the loss scale that follows overflows.

use super::{
    CheckFiniteOperands, ClipNormOperands, LossScaling, Optimizer, OptimizerOperators,
    OptimizerState, ParameterMut, UpdateOperands,
};
use crate::backend::Storage;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::round;
use crate::backend::cpu::view::view_mut;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::optimizer::{
    AdamStep, Rule, SgdStep, StepConstants, clip_factor, factors, squares, state, sum_of_cta,
};
use halfgnn_graph::parallel::{self, Items};

/// Rows that are one piece of work at least.
const MIN_ROWS: usize = 64;

impl OptimizerOperators for Cpu {
    fn check_finite(&self, operands: Checked<CheckFiniteOperands<'_, Self>>) -> Result<(), Error> {
        let CheckFiniteOperands { gradients, state } = operands.into_inner();
        // Padding is zero, so it may be among the values.
        let finite = |gradient: &&Matrix<Cpu, f32>| {
            let values = gradient.buffer.read();
            parallel::position_first(&values, |value| !value.is_finite()).is_none()
        };
        if !gradients.iter().all(finite) {
            let mut words = state.words.to_vec(self)?;
            words[state::OVERFLOW] = 1;
            self.upload(&state.words.buffer, &words)?;
        }
        Ok(())
    }

    fn clip_norm(&self, operands: Checked<ClipNormOperands<'_, Self>>) -> Result<(), Error> {
        let ClipNormOperands {
            maximum,
            gradients,
            state,
        } = operands.into_inner();
        // As the kernels add up: of each CTA the sum, and thread by thread of one CTA those sums.
        let partials = gradients.iter().flat_map(|gradient| sums_of_ctas(gradient));
        let mut threads = [0.0; THREADS];
        for (at, partial) in partials.enumerate() {
            threads[at % THREADS] += partial;
        }
        let sum = sum_of_cta(threads);
        let mut all = state.factors.to_vec(self)?;
        all[factors::GRADIENT] = clip_factor(sum, state.loss_scale(), maximum, f64::sqrt);
        self.upload(&state.factors.buffer, &all)
    }

    fn update<E: Element>(
        &self,
        operands: Checked<UpdateOperands<'_, '_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let words = of.state.words.buffer.read();
        if words[state::OVERFLOW] != 0 {
            return Ok(());
        }
        let given = of.state.factors.buffer.read();
        let constants = StepConstants {
            factors: [given[factors::LEARNING_RATE], given[factors::GRADIENT]],
            loss_scale: f32::from_bits(words[state::LOSS_SCALE]),
            steps: words[state::STEPS],
            ..of.optimizer.constants(of.clip_value)
        };
        let moments = of.optimizer.moments();
        for parameter in of.parameters {
            match of.optimizer {
                Optimizer::Adam(_) => {
                    step_of(
                        parameter,
                        moments,
                        &AdamStep::<false>::new(&constants, f32::sqrt),
                    );
                }
                Optimizer::AdamW(_) => {
                    step_of(
                        parameter,
                        moments,
                        &AdamStep::<true>::new(&constants, f32::sqrt),
                    );
                }
                Optimizer::Sgd(_) => {
                    step_of(parameter, moments, &SgdStep::new(&constants, f32::sqrt));
                }
            }
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

/// Threads of a CTA.
const THREADS: usize = THREADS_PER_CTA as usize;

/// The sums of squares that the CTAs of a kernel leave of a gradient, a vector a thread.
fn sums_of_ctas(gradient: &Matrix<Cpu, f32>) -> Vec<f64> {
    let values = gradient.buffer.read();
    let of_cta = |values: &[f32]| {
        let mut threads = [0.0; THREADS];
        for (thread, vector) in threads.iter_mut().zip(values.as_chunks().0) {
            *thread = squares(*vector);
        }
        sum_of_cta(threads)
    };
    parallel::map(parallel::chunks(&values, 4 * THREADS), |_, values| {
        of_cta(values)
    })
}

/// One step of one parameter, of which a number of moments are kept.
fn step_of<E: Element>(
    parameter: &mut ParameterMut<'_, Cpu, E>,
    moments: usize,
    step: &(impl Rule + Sync),
) {
    let (columns, stride) = (parameter.master.columns(), parameter.master.stride());
    if columns == 0 {
        return;
    }
    let gradient = parameter.gradient.buffer.read();
    let master = parameter.master.buffer.get_mut();
    let rows = (
        parallel::chunks_mut(master, stride),
        parallel::chunks(&gradient, stride),
    );
    let moments = [
        parameter
            .first_moment
            .as_deref_mut()
            .filter(|_| moments > 0),
        parameter
            .second_moment
            .as_deref_mut()
            .filter(|_| moments > 1),
    ];
    match moments.map(|moment| moment.map(|moment| moment.buffer.get_mut())) {
        [Some(first), Some(second)] => {
            let first = parallel::chunks_mut(first, stride);
            let rows = (rows, (first, parallel::chunks_mut(second, stride)));
            for_rows(rows, |((master, gradient), (m, v))| {
                for i in 0..columns {
                    let before = [master[i], m[i], v[i]];
                    [master[i], m[i], v[i]] = step.update(before, gradient[i], f32::sqrt);
                }
            });
        }
        [Some(first), None] => {
            let rows = (rows, parallel::chunks_mut(first, stride));
            for_rows(rows, |((master, gradient), m)| {
                for i in 0..columns {
                    let before = [master[i], m[i], 0.0];
                    [master[i], m[i], _] = step.update(before, gradient[i], f32::sqrt);
                }
            });
        }
        [None, _] => for_rows(rows, |(master, gradient)| {
            for i in 0..columns {
                let before = [master[i], 0.0, 0.0];
                [master[i], ..] = step.update(before, gradient[i], f32::sqrt);
            }
        }),
    }
    if let Some(rounded) = parameter.rounded.as_deref_mut().map(view_mut) {
        let rows = (
            parallel::chunks_mut(rounded.values, rounded.stride),
            parallel::chunks(master, stride),
        );
        for_rows(rows, |(rounded, master)| {
            round(&master[..columns], &mut rounded[..columns]);
        });
    }
}

fn for_rows<I: Items>(rows: I, f: impl Fn(I::Item) + Sync) {
    parallel::pieces(rows, MIN_ROWS, &|_, rows| rows.each().for_each(&f));
}
