//! Codes: a launch for those of a matrix, and one for new scales.

use super::{QuantizeOperands, QuantizeOperators, Rounding, UpdateScalesOperands};
use crate::backend::gpu::{Gpu, entry, linear_config, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::Element;
use halfgnn_contract::quantize::{self as contract, QuantizeParams, UpdateScalesParams};
use halfgnn_contract::{DevicePtr, rng};

impl<D: Driver> QuantizeOperators for Gpu<D> {
    fn quantize<E: Element>(
        &self,
        operands: Checked<QuantizeOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        const NAME: &str = "quantize";
        let of = operands.into_inner();
        let (x, y) = (of.x, of.y);
        let (key, step) = match of.rounding {
            Rounding::Nearest => ([0; 2], DevicePtr::NULL),
            Rounding::Stochastic { stream, random } => {
                (rng::key(random.seed(), stream), self.step_of(random)?)
            }
        };
        let y_stride = narrow(NAME, "columns", y.stride())?;
        let vectors = y_stride / E::LANES as u32;
        let lanes_log2 = contract::lanes_log2(vectors);
        let rows = x.rows() as u64;
        let rows_per_cta = contract::rows_per_cta(rows);
        let params = QuantizeParams {
            x: self.matrix(x)?,
            y: self.array(&y.codes)?,
            scales: self.matrix(&y.scales.scales)?,
            row_scale: self.optional_array(of.row_scale)?,
            largest: self.matrix(&y.scales.largest)?,
            counts: self.array(&y.scales.counts)?,
            step,
            rows,
            key,
            rows_per_cta,
            columns: narrow(NAME, "columns", x.columns())?,
            x_vectors: stride_vectors(NAME, x)?,
            y_stride,
            lanes_log2,
            format: y.format().word(),
        };
        let ctas = rows.div_ceil(rows_per_cta.into());
        let config = linear_config(
            NAME,
            ctas,
            contract::THREADS_PER_CTA,
            contract::SHARED_BYTES,
        )?;
        let grid = [config.grid[0], vectors.div_ceil(1 << lanes_log2), 1];
        // SAFETY: the operator checked that both have one shape; codes, scales and largest magnitudes are as long as a row is.
        unsafe { self.launch(entry::<E>(NAME)?, LaunchConfig { grid, ..config }, &params) }
    }

    fn update_scales(
        &self,
        operands: Checked<UpdateScalesOperands<'_, Self>>,
    ) -> Result<(), Error> {
        const NAME: &str = "update_scales";
        let UpdateScalesOperands { margin, scales } = operands.into_inner();
        let params = UpdateScalesParams {
            scales: self.matrix(&scales.scales)?,
            largest: self.matrix(&scales.largest)?,
            margin,
            columns: narrow(NAME, "columns", scales.stride())?,
            format: scales.format().word(),
            reserved: 0,
        };
        let ctas = u64::from(params.columns.div_ceil(contract::THREADS_PER_CTA));
        let config = linear_config(NAME, ctas, contract::THREADS_PER_CTA, 0)?;
        // SAFETY: both arrays have as many columns.
        unsafe { self.launch(NAME, config, &params) }
    }
}
