//! Losses and counts: a kernel over the rows, and one that makes a result of what its CTAs left, or none where counts
//! are added up where they are.

use super::{
    CountClassesOperands, CountCorrectOperands, CountLabelsOperands, CrossEntropyOperands,
    ElementLoss, ElementLossOperands, LossOperators,
};
use crate::backend::Storage;
use crate::backend::gpu::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Array, Element, Matrix};
use halfgnn_contract::loss::{self as contract, LossParams};
use halfgnn_contract::{DevicePtr, spmm};

impl<D: Driver> Gpu<D> {
    /// What all kernels over the rows of `logits` take, and how they are launched.
    fn over_rows<E: Element>(
        &self,
        operator: &'static str,
        logits: &Matrix<Self, E>,
        result: &mut Array<Self, impl bytemuck::Pod + Send + Sync>,
    ) -> Result<(LossParams, LaunchConfig), Error> {
        let vectors = stride_vectors(operator, logits)?;
        let lanes_log2 = spmm::lanes_log2(vectors);
        let rows = logits.rows() as u64;
        let rows_per_cta = contract::loss_rows_per_cta(rows, lanes_log2);
        let ctas = rows.div_ceil(rows_per_cta as u64);
        let config = dense_config(operator, ctas, 1, contract::LOSS_SHARED_BYTES)?;
        let params = LossParams {
            logits: self.matrix(logits)?,
            gradient: DevicePtr::NULL,
            labels: DevicePtr::NULL,
            splits: DevicePtr::NULL,
            targets: DevicePtr::NULL,
            weights: DevicePtr::NULL,
            row_weights: DevicePtr::NULL,
            state: DevicePtr::NULL,
            partials: DevicePtr::NULL,
            result: self.array(result)?,
            rows,
            columns: narrow(operator, "classes", logits.columns())?,
            vectors,
            lanes_log2,
            ctas: config.grid[0],
            divisor: 0.0,
            rows_per_cta,
            target_vectors: 0,
            reserved: 0,
        };
        Ok((params, config))
    }

    /// Launches a kernel over the rows, and the one that makes a result of what its CTAs left.
    fn launch_loss(
        &self,
        [first, second]: [&'static str; 2],
        params: LossParams,
        config: LaunchConfig,
    ) -> Result<(), Error> {
        let partials = self.lend(u64::from(params.ctas) * 4)?;
        let params = LossParams {
            partials: DevicePtr::new(partials.address()),
            ..params
        };
        let one_cta = LaunchConfig {
            grid: [1, 1, 1],
            ..config
        };
        // SAFETY: the operator checked that the operands fit one another; there are four words a CTA, and the workspace
        // is held until both launches are under way.
        unsafe {
            self.launch(first, config, &params)?;
            self.launch(second, one_cta, &params)
        }
    }

    /// Launches a kernel that adds outcomes to `counts`, which begin at zero.
    fn launch_counts(
        &self,
        name: &'static str,
        params: LossParams,
        config: LaunchConfig,
        counts: &Array<Self, u32>,
    ) -> Result<(), Error> {
        self.clear(&counts.buffer)?;
        // SAFETY: the operator checked that the operands fit one another and that there are counts of every column.
        unsafe { self.launch(name, config, &params) }
    }
}

impl<D: Driver> LossOperators for Gpu<D> {
    fn cross_entropy<E: Element>(
        &self,
        operands: Checked<CrossEntropyOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let family = match of.weights {
            Some(_) => "cross_entropy_weighted",
            None => "cross_entropy",
        };
        let (params, config) = self.over_rows("cross_entropy", of.logits, of.loss)?;
        let params = LossParams {
            gradient: self.matrix(of.gradient)?,
            labels: self.array(of.targets)?,
            weights: self.optional_array(of.weights)?,
            row_weights: self.optional_array(of.row_weights)?,
            state: self.array(&of.state.words)?,
            divisor: of.divisor,
            ..params
        };
        self.launch_loss([entry::<E>(family)?, "reduce_loss"], params, config)
    }

    fn element_loss<E: Element>(
        &self,
        operands: Checked<ElementLossOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        const NAME: &str = "element_loss";
        let of = operands.into_inner();
        let (family, weights) = match of.kind {
            ElementLoss::BinaryCrossEntropy {
                positive_weights: None,
            } => ("binary_cross_entropy", None),
            ElementLoss::BinaryCrossEntropy { positive_weights } => {
                ("binary_cross_entropy_weighted", positive_weights)
            }
            ElementLoss::SquaredError => ("squared_error", None),
            ElementLoss::AbsoluteError => ("absolute_error", None),
        };
        let (params, config) = self.over_rows(NAME, of.logits, of.loss)?;
        let params = LossParams {
            gradient: self.matrix(of.gradient)?,
            labels: self.array(of.rows)?,
            targets: self.matrix(of.targets)?,
            target_vectors: stride_vectors(NAME, of.targets)?,
            weights: self.optional_array(weights)?,
            row_weights: self.optional_array(of.row_weights)?,
            state: self.array(&of.state.words)?,
            divisor: of.divisor,
            ..params
        };
        self.launch_loss([entry::<E>(family)?, "reduce_loss"], params, config)
    }

    fn count_correct<E: Element>(
        &self,
        operands: Checked<CountCorrectOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (params, config) = self.over_rows("count_correct", of.logits, of.correct)?;
        let params = LossParams {
            labels: self.array(of.labels)?,
            splits: self.array(of.splits)?,
            ..params
        };
        let names = [entry::<E>("count_correct")?, "reduce_counts"];
        self.launch_loss(names, params, config)
    }

    fn count_classes<E: Element>(
        &self,
        operands: Checked<CountClassesOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (params, config) = self.over_rows("count_classes", of.logits, of.counts)?;
        let params = LossParams {
            labels: self.array(of.labels)?,
            splits: self.array(of.splits)?,
            ..params
        };
        self.launch_counts(entry::<E>("count_classes")?, params, config, of.counts)
    }

    fn count_labels<E: Element>(
        &self,
        operands: Checked<CountLabelsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        const NAME: &str = "count_labels";
        let of = operands.into_inner();
        let (params, config) = self.over_rows(NAME, of.logits, of.counts)?;
        let params = LossParams {
            splits: self.array(of.splits)?,
            targets: self.matrix(of.targets)?,
            target_vectors: stride_vectors(NAME, of.targets)?,
            ..params
        };
        self.launch_counts(entry::<E>(NAME)?, params, config, of.counts)
    }
}
