//! Element-wise operators, the loss, and the optimiser.

use super::{Gpu, array, matrix, narrow, optional_array, optional_matrix, stride_vectors};
use crate::backend::{Activation, AdamHyper, LossScaling, OptimizerState, ParameterMut};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix, Precision};
use halfgnn_contract::dense::{
    self as contract, ActivateParams, AdamParameter, AdamParams, ColumnSumsParams, EndStepParams,
    LossParams,
};
use halfgnn_contract::{DevicePtr, rng, spmm};

/// The entry for halves, or the one for floats.
fn entry<E: Element>(half: &'static str, float: &'static str) -> &'static str {
    match E::PRECISION {
        Precision::Half => half,
        Precision::Float => float,
    }
}

/// CTAs in x, and in y, of the threads that this family has.
fn config(
    operator: &'static str,
    ctas: u64,
    ctas_y: u32,
    shared_bytes: u32,
) -> Result<LaunchConfig, Error> {
    let ctas = narrow(
        operator,
        "CTAs",
        usize::try_from(ctas).unwrap_or(usize::MAX),
    )?;
    Ok(LaunchConfig {
        grid: [ctas, ctas_y, 1],
        block: [contract::THREADS_PER_CTA, 1, 1],
        shared_bytes,
    })
}

impl<D: Driver> Gpu<D> {
    fn activate_params<E: Element>(
        &self,
        op: &Activation<'_, Self>,
        x: DevicePtr<u16>,
        y: &Matrix<Self, E>,
    ) -> Result<(ActivateParams, LaunchConfig), Error> {
        const NAME: &str = "activate";
        let vectors = stride_vectors(NAME, y)?;
        let rows_per_cta = contract::rows_per_cta(vectors);
        let dropout = op.dropout.filter(|dropout| dropout.probability > 0.0);
        let probability = dropout.map_or(0.0, |dropout| dropout.probability);
        let mut flags = 0;
        flags |= if op.relu { contract::RELU } else { 0 };
        flags |= if dropout.is_some() {
            contract::DROPOUT
        } else {
            0
        };
        let params = ActivateParams {
            x,
            y: matrix(y),
            bias: optional_matrix(op.bias),
            row_scale: DevicePtr::NULL,
            rows: y.rows() as u64,
            rows_per_cta,
            columns: narrow(NAME, "columns", y.columns())?,
            vectors,
            flags,
            key: dropout.map_or([0; 2], |dropout| rng::key(dropout.seed, dropout.stream)),
            step: dropout.map_or(0, |dropout| dropout.step),
            threshold: rng::threshold(probability),
            keep_scale: 1.0 / (1.0 - probability),
            reciprocal: contract::reciprocal(vectors),
        };
        let ctas = if vectors == 0 {
            0
        } else {
            params.rows.div_ceil(rows_per_cta as u64)
        };
        Ok((params, config(NAME, ctas, 1, 0)?))
    }

    pub(super) fn launch_activate<E: Element>(
        &self,
        op: &Activation<'_, Self>,
        x: Option<&Matrix<Self, E>>,
        y: &mut Matrix<Self, E>,
    ) -> Result<(), Error> {
        let (params, config) = self.activate_params(op, x.map_or_else(|| matrix(y), matrix), y)?;
        // SAFETY: the operator checked that `x`, `y` and the bias fit one another.
        unsafe {
            self.kernels.launch(
                &self.driver,
                entry::<E>("activate_f16", "activate_f32"),
                config,
                &params,
            )
        }
    }

    pub(super) fn launch_activate_backward<E: Element>(
        &self,
        op: &Activation<'_, Self>,
        y: Option<&Matrix<Self, E>>,
        row_scale: Option<&Array<Self, f32>>,
        d: &mut Matrix<Self, E>,
    ) -> Result<(), Error> {
        let (params, config) = self.activate_params(op, optional_matrix(y), d)?;
        let params = ActivateParams {
            row_scale: optional_array(row_scale),
            ..params
        };
        let name = entry::<E>("activate_backward_f16", "activate_backward_f32");
        // SAFETY: the operator checked that the operands fit one another, and that `y` is there where it is read.
        unsafe { self.kernels.launch(&self.driver, name, config, &params) }
    }

    /// Adds up blocks of rows, then the blocks in the same way, until one row is left.
    pub(super) fn launch_column_sums<E: Element>(
        &self,
        x: &Matrix<Self, E>,
        sums: &mut Matrix<Self, f32>,
    ) -> Result<(), Error> {
        const NAME: &str = "column_sums";
        if x.rows() == 0 || x.columns() == 0 {
            return Ok(self.driver.fill(sums.buffer.memory(), 0)?);
        }
        let sum_vectors = stride_vectors(NAME, sums)?;
        let row_floats = sum_vectors as u64 * 4;
        let blocks = |rows: u64| rows.div_ceil(contract::sum_rows_per_cta(rows) as u64);
        // Two halves of the workspace take turns.
        let most = blocks(x.rows() as u64) * row_floats;
        let workspace = self
            .workspace
            .floats(&self.driver, &self.ledger, 2 * most)?;
        let turn = |i: usize| DevicePtr::new(workspace.address() + (i % 2) as u64 * most * 4);

        let mut params = ColumnSumsParams {
            x: matrix(x),
            sums: turn(0),
            rows: x.rows() as u64,
            rows_per_cta: 0,
            columns: narrow(NAME, "columns", x.columns())?,
            vectors: stride_vectors(NAME, x)?,
            sum_vectors,
        };
        let mut name = entry::<E>("column_sums_f16", "column_sums_f32");
        for i in 0.. {
            let ctas = blocks(params.rows);
            params.rows_per_cta = contract::sum_rows_per_cta(params.rows);
            params.sums = if ctas == 1 { matrix(sums) } else { turn(i) };
            let ctas_y = params.vectors.div_ceil(contract::SUM_VECTORS);
            let config = config(NAME, ctas, ctas_y, contract::SUM_SHARED_BYTES)?;
            // SAFETY: the operator checked that `sums` has a column for each of `x`; a half of the workspace holds a
            // row for each CTA.
            unsafe { self.kernels.launch(&self.driver, name, config, &params)? };
            if ctas == 1 {
                break;
            }
            name = "column_sums_f32";
            (params.x, params.rows, params.vectors) =
                (DevicePtr::new(params.sums.address()), ctas, sum_vectors);
        }
        Ok(())
    }

    /// Launches a kernel over the rows of `logits`, and the one that makes a result of what its CTAs left.
    fn launch_loss<E: Element>(
        &self,
        operator: &'static str,
        [first, second]: [&'static str; 2],
        logits: &Matrix<Self, E>,
        labels: &Array<Self, u32>,
        result: &mut Array<Self, impl bytemuck::Pod + Send + Sync>,
        complete: impl FnOnce(LossParams) -> LossParams,
    ) -> Result<(), Error> {
        let vectors = stride_vectors(operator, logits)?;
        let lanes_log2 = spmm::lanes_log2(vectors);
        let rows = logits.rows() as u64;
        let rows_per_cta = contract::loss_rows_per_cta(rows, lanes_log2);
        let ctas = rows.div_ceil(rows_per_cta as u64);
        let config = config(operator, ctas, 1, contract::LOSS_SHARED_BYTES)?;
        let partials = self
            .workspace
            .floats(&self.driver, &self.ledger, ctas * 4)?;
        let params = complete(LossParams {
            logits: matrix(logits),
            gradient: DevicePtr::NULL,
            labels: array(labels),
            splits: DevicePtr::NULL,
            state: DevicePtr::NULL,
            partials: DevicePtr::new(partials.address()),
            result: array(result),
            rows,
            columns: narrow(operator, "classes", logits.columns())?,
            vectors,
            lanes_log2,
            ctas: config.grid[0],
            count: 0,
            rows_per_cta,
        });
        let one_cta = LaunchConfig {
            grid: [1, 1, 1],
            ..config
        };
        // SAFETY: the operator checked that the operands fit one another; there are four words a CTA, and the workspace
        // is held until both launches are under way.
        unsafe {
            self.kernels.launch(&self.driver, first, config, &params)?;
            self.kernels.launch(&self.driver, second, one_cta, &params)
        }
    }

    pub(super) fn launch_cross_entropy<E: Element>(
        &self,
        logits: &Matrix<Self, E>,
        targets: &Array<Self, u32>,
        count: usize,
        state: &OptimizerState<Self>,
        gradient: &mut Matrix<Self, E>,
        loss: &mut Array<Self, f32>,
    ) -> Result<(), Error> {
        const NAME: &str = "cross_entropy";
        let count = narrow(NAME, "rows with a target", count)?;
        let names = [
            entry::<E>("cross_entropy_f16", "cross_entropy_f32"),
            "reduce_loss",
        ];
        self.launch_loss(NAME, names, logits, targets, loss, |params| LossParams {
            gradient: matrix(gradient),
            state: array(&state.words),
            count,
            ..params
        })
    }

    pub(super) fn launch_count_correct<E: Element>(
        &self,
        logits: &Matrix<Self, E>,
        labels: &Array<Self, u32>,
        splits: &Array<Self, u32>,
        correct: &mut Array<Self, u32>,
    ) -> Result<(), Error> {
        let names = [
            entry::<E>("count_correct_f16", "count_correct_f32"),
            "reduce_counts",
        ];
        self.launch_loss("count_correct", names, logits, labels, correct, |params| {
            LossParams {
                splits: array(splits),
                ..params
            }
        })
    }

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

    pub(super) fn launch_check_finite(
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
            let config = config(NAME, ctas, 1, 0)?;
            // SAFETY: the gradients have the rows and vectors that they say, the state its words.
            unsafe { self.kernels.launch(&self.driver, NAME, config, &params)? };
        }
        Ok(())
    }

    pub(super) fn launch_adam<E: Element>(
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
            let config = config(NAME, ctas, 1, 0)?;
            // SAFETY: the operator checked that all matrices of a parameter have one shape; the state has its words.
            unsafe { self.kernels.launch(&self.driver, name, config, &params)? };
        }
        Ok(())
    }

    pub(super) fn launch_end_step(
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
