//! Quantized values: a launch for those of a matrix, one for the matrix of theirs, and one for new scales.

use super::{
    DequantizeOperands, QuantizeOperands, QuantizeOperators, QuantizedMatrix, Rounding,
    UpdateScalesOperands,
};
use crate::backend::gpu::{Gpu, dense_config, entry, linear_config, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Array, Element};
use halfgnn_contract::quantize::{
    self as contract, CodesParams, DequantizeParams, QuantizeParams, UpdateScalesParams,
};
use halfgnn_contract::{DevicePtr, elementwise, rng};

impl<D: Driver> Gpu<D> {
    /// What kernels take for quantized values that they write.
    pub(crate) fn codes_params(
        &self,
        operator: &'static str,
        row_scale: Option<&Array<Self, f32>>,
        rounding: Rounding<'_, Self>,
        y: &QuantizedMatrix<Self>,
    ) -> Result<CodesParams, Error> {
        let (key, step, numbers) = match rounding {
            Rounding::Nearest => ([0; 2], DevicePtr::NULL, None),
            Rounding::Stochastic {
                stream,
                random,
                numbers,
            } => (
                rng::key(random.seed(), stream),
                self.step_of(random)?,
                numbers,
            ),
        };
        Ok(CodesParams {
            y: self.array(&y.codes)?,
            scales: self.matrix(&y.scales.scales)?,
            row_scale: self.optional_array(row_scale)?,
            largest: self.matrix(&y.scales.largest)?,
            counts: self.array(&y.scales.counts)?,
            step,
            numbers: self.optional_array(numbers)?,
            counted: y.counted as u64,
            key,
            stride: narrow(operator, "columns", y.stride())?,
            format: y.format().word(),
        })
    }
}

impl<D: Driver> QuantizeOperators for Gpu<D> {
    fn quantize<E: Element>(
        &self,
        operands: Checked<QuantizeOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        const NAME: &str = "quantize";
        let of = operands.into_inner();
        let x = of.x;
        let codes = self.codes_params(NAME, of.row_scale, of.rounding, of.y)?;
        let vectors = codes.stride / E::LANES as u32;
        let lanes_log2 = contract::lanes_log2(vectors);
        let rows = x.rows() as u64;
        let rows_per_cta = contract::rows_per_cta(rows);
        let params = QuantizeParams {
            x: self.matrix(x)?,
            codes,
            rows,
            rows_per_cta,
            columns: narrow(NAME, "columns", x.columns())?,
            x_vectors: stride_vectors(NAME, x)?,
            lanes_log2,
        };
        let ctas = rows.div_ceil(rows_per_cta.into());
        let config = linear_config(
            NAME,
            ctas,
            contract::THREADS_PER_CTA,
            contract::largest_bytes(contract::THREADS_PER_CTA),
        )?;
        let grid = [config.grid[0], vectors.div_ceil(1 << lanes_log2), 1];
        let name = match of.keeps_positive {
            true => "quantize_positive",
            false => NAME,
        };
        // SAFETY: the operator checked that both have one shape; quantized values, scales and largest magnitudes are as
        // long as a row is.
        unsafe { self.launch(entry::<E>(name)?, LaunchConfig { grid, ..config }, &params) }
    }

    fn dequantize<E: Element>(
        &self,
        operands: Checked<DequantizeOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        const NAME: &str = "dequantize";
        let DequantizeOperands { x, y } = operands.into_inner();
        let vectors = stride_vectors(NAME, y)?;
        let rows_per_cta = elementwise::rows_per_cta(vectors);
        let params = DequantizeParams {
            codes: self.array(&x.codes)?,
            scales: self.matrix(&x.scales.scales)?,
            y: self.matrix(y)?,
            rows: y.rows() as u64,
            rows_per_cta,
            vectors,
            reciprocal: elementwise::reciprocal(vectors),
            stride: narrow(NAME, "columns", x.stride())?,
            format: x.format().word(),
            reserved: 0,
        };
        let ctas = match vectors {
            0 => 0,
            _ => params.rows.div_ceil(rows_per_cta.into()),
        };
        let config = dense_config(NAME, ctas, 1, 0)?;
        // SAFETY: the operator checked that both have one shape; rows of quantized values and scales are padded to 16
        // elements, those of `y` to 8 or 4.
        unsafe { self.launch(entry::<E>(NAME)?, config, &params) }
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
