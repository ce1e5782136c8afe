//! The loss and the counts: a kernel over the rows, and one that makes a result of what its CTAs left.

use super::{CountCorrectOperands, CrossEntropyOperands, LossOperators};
use crate::backend::gpu::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Array, Element, Matrix};
use halfgnn_contract::loss::{self as contract, LossParams};
use halfgnn_contract::{DevicePtr, spmm};

impl<D: Driver> Gpu<D> {
    /// Launches a kernel over the rows of `logits`, and the one that makes a result of what its CTAs left.
    fn launch_loss<E: Element>(
        &self,
        operator: &'static str,
        [first, second]: [&'static str; 2],
        logits: &Matrix<Self, E>,
        labels: &Array<Self, u32>,
        result: &mut Array<Self, impl bytemuck::Pod + Send + Sync>,
        complete: impl FnOnce(LossParams) -> Result<LossParams, Error>,
    ) -> Result<(), Error> {
        let vectors = stride_vectors(operator, logits)?;
        let lanes_log2 = spmm::lanes_log2(vectors);
        let rows = logits.rows() as u64;
        let rows_per_cta = contract::loss_rows_per_cta(rows, lanes_log2);
        let ctas = rows.div_ceil(rows_per_cta as u64);
        let config = dense_config(operator, ctas, 1, contract::LOSS_SHARED_BYTES)?;
        let partials = self.lend(ctas * 4)?;
        let params = complete(LossParams {
            logits: self.matrix(logits)?,
            gradient: DevicePtr::NULL,
            labels: self.array(labels)?,
            splits: DevicePtr::NULL,
            state: DevicePtr::NULL,
            partials: DevicePtr::new(partials.address()),
            result: self.array(result)?,
            rows,
            columns: narrow(operator, "classes", logits.columns())?,
            vectors,
            lanes_log2,
            ctas: config.grid[0],
            count: 0,
            rows_per_cta,
        })?;
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
}

impl<D: Driver> LossOperators for Gpu<D> {
    fn cross_entropy<E: Element>(
        &self,
        operands: Checked<CrossEntropyOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        const NAME: &str = "cross_entropy";
        let count = narrow(NAME, "rows with a target", of.count)?;
        let names = [entry::<E>("cross_entropy")?, "reduce_loss"];
        self.launch_loss(NAME, names, of.logits, of.targets, of.loss, |params| {
            Ok(LossParams {
                gradient: self.matrix(of.gradient)?,
                state: self.array(&of.state.words)?,
                count,
                ..params
            })
        })
    }

    fn count_correct<E: Element>(
        &self,
        operands: Checked<CountCorrectOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let names = [entry::<E>("count_correct")?, "reduce_counts"];
        self.launch_loss(
            "count_correct",
            names,
            of.logits,
            of.labels,
            of.correct,
            |params| {
                Ok(LossParams {
                    splits: self.array(of.splits)?,
                    ..params
                })
            },
        )
    }
}
