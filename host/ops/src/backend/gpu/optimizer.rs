//! The optimiser: several parameters a launch.

use super::{Gpu, array, dense_config, entry, matrix, narrow, optional_matrix, stride_vectors};
use crate::backend::{AdamHyper, LossScaling, OptimizerOperators, OptimizerState, ParameterMut};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::dense::{self as contract, AdamParameter, AdamParams, EndStepParams};

impl<D: Driver> Gpu<D> {
    /// A row of the table, its CTAs after `ctas` others, which become more.
    fn adam_parameter(
        &self,
        operator: &'static str,
        gradient: &Matrix<Self, f32>,
        ctas: &mut u64,
    ) -> Result<AdamParameter, Error> {
        let (rows, vectors) = (gradient.rows() as u64, stride_vectors(operator, gradient)?);
        let first_cta = narrow(
            operator,
            "CTAs",
            usize::try_from(*ctas).unwrap_or(usize::MAX),
        )?;
        *ctas = ctas.saturating_add(contract::optimizer_ctas(rows, vectors));
        Ok(AdamParameter {
            gradient: matrix(gradient),
            rows,
            vectors,
            first_cta,
            ..AdamParameter::NONE
        })
    }
}

impl<D: Driver> OptimizerOperators for Gpu<D> {
    fn check_finite(
        &self,
        gradients: &[&Matrix<Self, f32>],
        state: &mut OptimizerState<Self>,
    ) -> Result<(), Error> {
        const NAME: &str = "check_finite";
        for gradients in gradients.chunks(contract::PARAMETERS_PER_LAUNCH) {
            let mut params = adam_params(&AdamHyper::default(), state);
            let mut ctas = 0;
            for (parameter, gradient) in params.parameters.iter_mut().zip(gradients) {
                *parameter = self.adam_parameter(NAME, gradient, &mut ctas)?;
            }
            let config = dense_config(NAME, ctas, 1, 0)?;
            // SAFETY: the gradients have the rows and vectors that they say, the state its words.
            unsafe { self.kernels.launch(&self.driver, NAME, config, &params)? };
        }
        Ok(())
    }

    fn adam<E: Element>(
        &self,
        hyper: &AdamHyper,
        state: &OptimizerState<Self>,
        parameters: &mut [ParameterMut<'_, Self, E>],
    ) -> Result<(), Error> {
        const NAME: &str = "adam";
        for parameters in parameters.chunks_mut(contract::PARAMETERS_PER_LAUNCH) {
            let mut params = adam_params(hyper, state);
            let mut ctas = 0;
            for (to, from) in params.parameters.iter_mut().zip(parameters) {
                *to = AdamParameter {
                    master: matrix(from.master),
                    first_moment: matrix(from.first_moment),
                    second_moment: matrix(from.second_moment),
                    rounded: optional_matrix(from.rounded.as_deref()),
                    rounded_stride: match &from.rounded {
                        Some(rounded) => narrow(NAME, "columns", rounded.stride())?,
                        None => 0,
                    },
                    ..self.adam_parameter(NAME, from.gradient, &mut ctas)?
                };
            }
            let name = entry::<E>("adam_f16", "adam_f32");
            let config = dense_config(NAME, ctas, 1, 0)?;
            // SAFETY: the operator checked that all matrices of a parameter have one shape; the state has its words.
            unsafe { self.kernels.launch(&self.driver, name, config, &params)? };
        }
        Ok(())
    }

    fn end_step(
        &self,
        scaling: &LossScaling,
        state: &mut OptimizerState<Self>,
    ) -> Result<(), Error> {
        let params = EndStepParams {
            state: array(&state.words),
            growth_interval: scaling.growth_interval,
            maximum: scaling.maximum,
        };
        let config = LaunchConfig {
            grid: [1, 1, 1],
            block: [1, 1, 1],
            shared_bytes: 0,
        };
        // SAFETY: the state has its words.
        unsafe {
            self.kernels
                .launch(&self.driver, "end_step", config, &params)
        }
    }
}

/// Address of the word that tells the dropout of one step from that of the next.
pub(super) fn step<D: Driver>(state: &OptimizerState<Gpu<D>>) -> DevicePtr<u32> {
    let words: DevicePtr<u32> = array(&state.words);
    DevicePtr::new(words.address() + (contract::state::ATTEMPTS * size_of::<u32>()) as u64)
}

/// A table of parameters that are yet to be filled in.
fn adam_params<D: Driver>(hyper: &AdamHyper, state: &OptimizerState<Gpu<D>>) -> AdamParams {
    AdamParams {
        parameters: [AdamParameter::NONE; contract::PARAMETERS_PER_LAUNCH],
        state: array(&state.words),
        learning_rate: hyper.learning_rate,
        beta1: hyper.beta1,
        beta2: hyper.beta2,
        epsilon: hyper.epsilon,
        weight_decay: hyper.weight_decay,
        reserved: 0,
    }
}
