//! The optimiser: several parameters a launch.

use super::{
    AdamHyper, AdamOperands, CheckFiniteOperands, LossScaling, OptimizerOperators, OptimizerState,
};
use crate::backend::gpu::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::optimizer::{self as contract, AdamParameter, AdamParams, EndStepParams};

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
            gradient: self.matrix(gradient)?,
            rows,
            vectors,
            first_cta,
            ..AdamParameter::NONE
        })
    }
}

impl<D: Driver> OptimizerOperators for Gpu<D> {
    fn check_finite(&self, operands: Checked<CheckFiniteOperands<'_, Self>>) -> Result<(), Error> {
        let CheckFiniteOperands { gradients, state } = operands.into_inner();
        const NAME: &str = "check_finite";
        for gradients in gradients.chunks(contract::PARAMETERS_PER_LAUNCH) {
            let mut params = self.adam_params(&AdamHyper::default(), state)?;
            let mut ctas = 0;
            for (parameter, gradient) in params.parameters.iter_mut().zip(gradients) {
                *parameter = self.adam_parameter(NAME, gradient, &mut ctas)?;
            }
            let config = dense_config(NAME, ctas, 1, 0)?;
            // SAFETY: the gradients have the rows and vectors that they say, the state its words.
            unsafe { self.launch(NAME, config, &params)? };
        }
        Ok(())
    }

    fn adam<E: Element>(
        &self,
        operands: Checked<AdamOperands<'_, '_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        const NAME: &str = "adam";
        for parameters in of.parameters.chunks_mut(contract::PARAMETERS_PER_LAUNCH) {
            let mut params = self.adam_params(of.hyper, of.state)?;
            let mut ctas = 0;
            for (to, from) in params.parameters.iter_mut().zip(parameters) {
                *to = AdamParameter {
                    master: self.matrix(from.master)?,
                    first_moment: self.matrix(from.first_moment)?,
                    second_moment: self.matrix(from.second_moment)?,
                    rounded: self.optional_matrix(from.rounded.as_deref())?,
                    rounded_stride: match &from.rounded {
                        Some(rounded) => narrow(NAME, "columns", rounded.stride())?,
                        None => 0,
                    },
                    ..self.adam_parameter(NAME, from.gradient, &mut ctas)?
                };
            }
            let name = entry::<E>("adam")?;
            let config = dense_config(NAME, ctas, 1, 0)?;
            // SAFETY: the operator checked that all matrices of a parameter have one shape; the state has its words.
            unsafe { self.launch(name, config, &params)? };
        }
        Ok(())
    }

    fn end_step(
        &self,
        scaling: &LossScaling,
        state: &mut OptimizerState<Self>,
    ) -> Result<(), Error> {
        let params = EndStepParams {
            state: self.array(&state.words)?,
            growth_interval: scaling.growth_interval,
            maximum: scaling.maximum,
        };
        let config = LaunchConfig {
            grid: [1, 1, 1],
            block: [1, 1, 1],
            shared_bytes: 0,
        };
        // SAFETY: the state has its words.
        unsafe { self.launch("end_step", config, &params) }
    }
}

impl<D: Driver> Gpu<D> {
    /// A table of parameters that are yet to be filled in.
    fn adam_params(
        &self,
        hyper: &AdamHyper,
        state: &OptimizerState<Self>,
    ) -> Result<AdamParams, Error> {
        Ok(AdamParams {
            parameters: [AdamParameter::NONE; contract::PARAMETERS_PER_LAUNCH],
            state: self.array(&state.words)?,
            learning_rate: hyper.learning_rate,
            beta1: hyper.beta1,
            beta2: hyper.beta2,
            epsilon: hyper.epsilon,
            weight_decay: hyper.weight_decay,
            reserved: 0,
        })
    }
}
