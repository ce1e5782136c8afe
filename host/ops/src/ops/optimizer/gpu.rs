//! The optimiser: several parameters a launch.

use super::{
    CheckFiniteOperands, ClipNormOperands, LossScaling, Optimizer, OptimizerOperators,
    OptimizerState, UpdateOperands,
};
use crate::backend::gpu::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::optimizer::{
    self as contract, ClipNormParams, EndStepParams, OptimizerParameter, OptimizerParams,
};

impl<D: Driver> Gpu<D> {
    /// A row of the table, its CTAs after `ctas` others, which become more.
    fn optimizer_parameter(
        &self,
        operator: &'static str,
        gradient: &Matrix<Self, f32>,
        ctas: &mut u64,
    ) -> Result<OptimizerParameter, Error> {
        let (rows, vectors) = (gradient.rows() as u64, stride_vectors(operator, gradient)?);
        let first_cta = narrow(
            operator,
            "CTAs",
            usize::try_from(*ctas).unwrap_or(usize::MAX),
        )?;
        *ctas = ctas.saturating_add(contract::optimizer_ctas(rows, vectors));
        Ok(OptimizerParameter {
            gradient: self.matrix(gradient)?,
            rows,
            vectors,
            first_cta,
            ..OptimizerParameter::NONE
        })
    }
}

impl<D: Driver> OptimizerOperators for Gpu<D> {
    fn check_finite(&self, operands: Checked<CheckFiniteOperands<'_, Self>>) -> Result<(), Error> {
        let CheckFiniteOperands { gradients, state } = operands.into_inner();
        const NAME: &str = "check_finite";
        for gradients in gradients.chunks(contract::PARAMETERS_PER_LAUNCH) {
            let mut params = self.optimizer_params(&Optimizer::default(), None, state)?;
            let mut ctas = 0;
            for (parameter, gradient) in params.parameters.iter_mut().zip(gradients) {
                *parameter = self.optimizer_parameter(NAME, gradient, &mut ctas)?;
            }
            let config = dense_config(NAME, ctas, 1, 0)?;
            // SAFETY: the gradients have the rows and vectors that they say, the state its words.
            unsafe { self.launch(NAME, config, &params)? };
        }
        Ok(())
    }

    fn clip_norm(&self, operands: Checked<ClipNormOperands<'_, Self>>) -> Result<(), Error> {
        let ClipNormOperands {
            maximum,
            gradients,
            state,
        } = operands.into_inner();
        const NAME: &str = "sum_squares";
        let ctas_of = |gradients: &[&Matrix<Self, f32>]| {
            let mut ctas = 0u64;
            for gradient in gradients {
                let (rows, vectors) = (gradient.rows() as u64, stride_vectors(NAME, gradient)?);
                ctas = ctas.saturating_add(contract::optimizer_ctas(rows, vectors));
            }
            Ok::<u64, Error>(ctas)
        };
        let count = ctas_of(gradients)?;
        // A double takes the place of two floats.
        let partials = self.lend(count.saturating_mul(2))?;
        let mut first = partials.address();
        for gradients in gradients.chunks(contract::PARAMETERS_PER_LAUNCH) {
            let mut params = self.optimizer_params(&Optimizer::default(), None, state)?;
            params.partials = DevicePtr::new(first);
            let mut ctas = 0;
            for (parameter, gradient) in params.parameters.iter_mut().zip(gradients) {
                *parameter = self.optimizer_parameter(NAME, gradient, &mut ctas)?;
            }
            let config = dense_config(NAME, ctas, 1, contract::NORM_SHARED_BYTES)?;
            // SAFETY: the gradients have the rows and vectors that they say; there is a double for each CTA of all
            // launches, and the workspace is held until they are under way.
            unsafe { self.launch(NAME, config, &params)? };
            first += ctas * size_of::<f64>() as u64;
        }
        let params = ClipNormParams {
            state: self.array(&state.words)?,
            factors: self.array(&state.factors)?,
            partials: DevicePtr::new(partials.address()),
            count,
            maximum,
            reserved: 0,
        };
        let config = LaunchConfig {
            grid: [1, 1, 1],
            block: [THREADS_PER_CTA, 1, 1],
            shared_bytes: contract::NORM_SHARED_BYTES,
        };
        // SAFETY: the launches before have written the given number of doubles; the state has its words and its
        // factors.
        unsafe { self.launch("clip_norm", config, &params) }
    }

    fn update<E: Element>(
        &self,
        operands: Checked<UpdateOperands<'_, '_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (name, moments) = match of.optimizer {
            Optimizer::Adam(_) => ("adam", 2),
            Optimizer::AdamW(_) => ("adamw", 2),
            Optimizer::Sgd(_) => ("sgd", of.optimizer.moments()),
        };
        for parameters in of.parameters.chunks_mut(contract::PARAMETERS_PER_LAUNCH) {
            let mut params = self.optimizer_params(of.optimizer, of.clip_value, of.state)?;
            let mut ctas = 0;
            for (to, from) in params.parameters.iter_mut().zip(parameters) {
                let first_moment = from.first_moment.as_deref().filter(|_| moments > 0);
                let second_moment = from.second_moment.as_deref().filter(|_| moments > 1);
                *to = OptimizerParameter {
                    master: self.matrix(from.master)?,
                    first_moment: self.optional_matrix(first_moment)?,
                    second_moment: self.optional_matrix(second_moment)?,
                    rounded: self.optional_matrix(from.rounded.as_deref())?,
                    rounded_stride: match &from.rounded {
                        Some(rounded) => narrow(name, "columns", rounded.stride())?,
                        None => 0,
                    },
                    ..self.optimizer_parameter(name, from.gradient, &mut ctas)?
                };
            }
            let entry = entry::<E>(name)?;
            let config = dense_config(name, ctas, 1, 0)?;
            // SAFETY: the operator checked that all matrices of a parameter have one shape and that the moments are
            // there which the rule keeps; the state has its words and its factors.
            unsafe { self.launch(entry, config, &params)? };
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
    fn optimizer_params(
        &self,
        optimizer: &Optimizer,
        clip_value: Option<f32>,
        state: &OptimizerState<Self>,
    ) -> Result<OptimizerParams, Error> {
        let constants = optimizer.constants(clip_value);
        Ok(OptimizerParams {
            parameters: [OptimizerParameter::NONE; contract::PARAMETERS_PER_LAUNCH],
            state: self.array(&state.words)?,
            factors: self.array(&state.factors)?,
            partials: DevicePtr::NULL,
            learning_rate: constants.learning_rate,
            beta1: constants.beta1,
            beta2: constants.beta2,
            epsilon: constants.epsilon,
            weight_decay: constants.weight_decay,
            clip_value: constants.clip_value,
            nesterov: constants.nesterov.into(),
            reserved: 0,
        })
    }
}
