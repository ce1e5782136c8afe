//! Activation functions, a launch each.

use super::{
    Nonlinearity, NonlinearityBackwardOperands, NonlinearityOperands, NonlinearityOperators,
};
use crate::backend::gpu::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::elementwise::{reciprocal, rows_per_cta};
use halfgnn_contract::nonlinearity::NonlinearityParams;

impl<D: Driver> NonlinearityOperators for Gpu<D> {
    fn nonlinearity<E: Element>(
        &self,
        operands: Checked<NonlinearityOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (params, config) = self.nonlinearity_params(of.function, of.x.unwrap_or(of.y), of.y)?;
        let params = NonlinearityParams {
            bias: self.optional_matrix(of.bias)?,
            ..params
        };
        // SAFETY: the operator checked that `x`, `y` and the bias fit one another.
        unsafe { self.launch(entry::<E>("nonlinearity")?, config, &params) }
    }

    fn nonlinearity_backward<E: Element>(
        &self,
        operands: Checked<NonlinearityBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        let (params, config) = self.nonlinearity_params(of.function, of.of, of.d)?;
        let name = entry::<E>("nonlinearity_backward")?;
        // SAFETY: the operator checked that both matrices are of one shape.
        unsafe { self.launch(name, config, &params) }
    }
}

impl<D: Driver> Gpu<D> {
    fn nonlinearity_params<E: Element>(
        &self,
        function: Nonlinearity,
        x: &Matrix<Self, E>,
        y: &Matrix<Self, E>,
    ) -> Result<(NonlinearityParams, LaunchConfig), Error> {
        const NAME: &str = "nonlinearity";
        let vectors = stride_vectors(NAME, y)?;
        let (function, slope) = function.code();
        let params = NonlinearityParams {
            x: self.matrix(x)?,
            y: self.matrix(y)?,
            bias: DevicePtr::NULL,
            rows: y.rows() as u64,
            rows_per_cta: rows_per_cta(vectors),
            columns: narrow(NAME, "columns", y.columns())?,
            vectors,
            function,
            slope,
            reciprocal: reciprocal(vectors),
        };
        let ctas = match vectors {
            0 => 0,
            _ => params.rows.div_ceil(params.rows_per_cta.into()),
        };
        Ok((params, dense_config(NAME, ctas, 1, 0)?))
    }
}
