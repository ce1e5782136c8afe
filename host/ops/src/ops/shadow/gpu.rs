//! Shadow operators, a launch each.

use super::{Shadow, ShadowOperands, ShadowOperators};
use crate::backend::gpu::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::driver::Driver;
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::heads::Heads;
use halfgnn_contract::shadow::ShadowParams;

const NAME: &str = "shadow operator";

impl<D: Driver> ShadowOperators for Gpu<D> {
    fn shadow<E: Element>(
        &self,
        operands: Checked<ShadowOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ShadowOperands { op, x, y } = operands.into_inner();
        let stride = stride_vectors(NAME, x)?;
        let rows = Heads::new(x.rows() as u64, 1, stride, stride);
        let params = ShadowParams {
            rows,
            x: self.matrix(x)?,
            y: self.matrix(y)?,
            columns: narrow(NAME, "columns", x.columns())?,
            scale: match op {
                Shadow::Mean => 1.0 / x.columns() as f32,
                _ => 1.0,
            },
        };
        let name = match op {
            Shadow::Exp => entry::<E>("shadow_exp")?,
            Shadow::Softmax => entry::<E>("shadow_softmax")?,
            Shadow::LogSoftmax => entry::<E>("shadow_log_softmax")?,
            Shadow::Sum | Shadow::Mean => entry::<E>("shadow_sum")?,
        };
        let config = dense_config(NAME, rows.ctas(), 1, 0)?;
        // SAFETY: the operator checked that `y` has the rows of `x`, and its columns or one.
        unsafe { self.launch(name, config, &params) }
    }
}
