//! Additive attention on a GPU: the scores by the walk of the SDDMM, their gradient by that of the SpMM.

use super::{AdditiveGradientOperands, AdditiveOperators, AdditiveScoresOperands};
use crate::backend::gpu::{Gpu, narrow};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, padded};

const NAME: &str = "additive_scores";

impl<D: Driver> AdditiveOperators for Gpu<D> {
    fn additive_scores<E: Element>(
        &self,
        operands: Checked<AdditiveScoresOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let AdditiveScoresOperands { a, op, scores } = operands.into_inner();
        if scores.is_empty() {
            return Ok(());
        }
        let width = padded::<E>(op.u.columns() / op.heads);
        let width = narrow(NAME, "columns of a head", width)?;
        self.launch_additive_scores(a, &op, width, scores)
    }

    fn additive_gradient<E: Element>(
        &self,
        operands: Checked<AdditiveGradientOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let AdditiveGradientOperands {
            a,
            op,
            d,
            du,
            of_vector,
        } = operands.into_inner();
        self.launch_additive_gradient(a, &op, d, du, of_vector)
    }
}
