//! Batch normalisation, and weighted sums of two matrices.

use super::{
    BatchStatisticsOperands, Combine, CombineOperands, DotOperands, MergeStatisticsOperands,
    Normalization, NormalizeBackwardOperands, NormalizeOperands, NormalizeOperators,
    RunningStatisticsOperands,
};
use crate::backend::Storage;
use crate::backend::gpu::{Gpu, Lease, dense_config, entry, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::elementwise::{THREADS_PER_CTA, sum_rows_per_cta};
use halfgnn_contract::normalize::{
    self as contract, CombineParams, FinishParams, MergeParams, MomentsParams, NormalizeParams,
};
use halfgnn_contract::quantize::CodesParams;

const BACKWARD: &str = "normalize_backward";

impl<D: Driver> Gpu<D> {
    /// Launches `moments` or `moments_backward`, which leave two planes of sums for each CTA in the workspace. The
    /// result has them filled in for a kernel that finishes.
    fn moments<E: Element>(
        &self,
        operator: &'static str,
        name: &'static str,
        x: &Matrix<Self, E>,
        d: Option<&Matrix<Self, E>>,
        op: Option<&Normalization<'_, Self>>,
    ) -> Result<(FinishParams, Lease<'_, D>), Error> {
        let rows = x.rows() as u64;
        let rows_per_cta = sum_rows_per_cta(rows);
        let ctas = rows.div_ceil(rows_per_cta.into());
        let vectors = stride_vectors(operator, x)?;
        let float_vectors = narrow(operator, "columns", x.columns().div_ceil(4))?;
        let floats = ctas * 2 * u64::from(float_vectors) * 4;
        let workspace = self.lend(floats)?;
        let partials = DevicePtr::new(workspace.address());
        let columns = narrow(operator, "columns", x.columns())?;
        let params = MomentsParams {
            x: self.matrix(x)?,
            d: self.optional_matrix(d)?,
            partials,
            statistics: self.optional_matrix(op.map(|op| op.statistics))?,
            weight: self.optional_matrix(op.map(|op| op.weight))?,
            bias: self.optional_matrix(op.map(|op| op.bias))?,
            rows,
            rows_per_cta,
            columns,
            vectors,
            float_vectors,
            flags: op.map_or(0, |op| contract::NORMALIZED | relu(op)),
            lanes_log2: contract::lanes_log2(vectors),
        };
        let ctas_y = contract::ctas_y(vectors);
        let config = dense_config(operator, ctas, ctas_y, contract::MOMENTS_SHARED_BYTES)?;
        // SAFETY: the operator checked that `d` has the shape of `x`, and parameters and statistics a column for each
        // of its columns; the workspace holds two planes for each CTA.
        unsafe { self.launch(name, config, &params)? };
        let finish = FinishParams {
            partials,
            x: self.matrix(x)?,
            statistics: DevicePtr::NULL,
            running: DevicePtr::NULL,
            first: DevicePtr::NULL,
            second: DevicePtr::NULL,
            rows,
            ctas: narrow(
                operator,
                "CTAs",
                usize::try_from(ctas).unwrap_or(usize::MAX),
            )?,
            columns,
            float_vectors,
            epsilon: 0.0,
            momentum: 0.0,
            factor: 1.0,
        };
        Ok((finish, workspace))
    }

    /// The gradients of scales and shifts, of operands that were checked.
    fn launch_sums<E: Element>(
        &self,
        of: &NormalizeBackwardOperands<'_, Self, E>,
    ) -> Result<(), Error> {
        let name = entry::<E>("moments_backward")?;
        let (finish, _workspace) = self.moments(BACKWARD, name, of.x, Some(&*of.d), Some(of.op))?;
        let finish = FinishParams {
            first: self.matrix(of.gradients.bias)?,
            second: self.matrix(of.gradients.weight)?,
            ..finish
        };
        let config = finish_config(BACKWARD, finish.float_vectors.into())?;
        let name = "finish_gradients";
        // SAFETY: the operator checked that both gradients have a column for each of `x`.
        unsafe { self.launch(name, config, &finish) }
    }

    /// The gradient of the input from those, and its quantized values where they are wanted, of operands that were
    /// checked.
    fn launch_gradient<E: Element>(
        &self,
        of: &NormalizeBackwardOperands<'_, Self, E>,
    ) -> Result<(), Error> {
        let gradients = &of.gradients;
        let (params, config) = self.normalize_params(BACKWARD, of.op, of.x, &*of.d)?;
        let params = NormalizeParams {
            weight_gradient: self.matrix(gradients.weight)?,
            bias_gradient: self.matrix(gradients.bias)?,
            row_scale: self.optional_array(gradients.row_scale)?,
            scale: gradients.scale,
            ..params
        };
        let Some(coding) = &gradients.coding else {
            let name = entry::<E>("normalize_backward")?;
            // SAFETY: the operator checked that `d` has the shape of `x`, and that there are as many factors as rows.
            return unsafe { self.launch(name, config, &params) };
        };
        let (row_scale, rounding) = (coding.row_scale, coding.rounding);
        let codes = self.codes_params(BACKWARD, row_scale, rounding, coding.codes)?;
        let vectors = contract::coded_vectors(params.vectors, codes.stride, E::LANES as u32);
        let lanes_log2 = contract::lanes_log2(vectors);
        let rows_per_cta = contract::rows_per_cta(params.rows, lanes_log2);
        let params = NormalizeParams {
            rows_per_cta,
            lanes_log2,
            codes,
            ..params
        };
        let ctas = params.rows.div_ceil(rows_per_cta.into());
        let shared = contract::CODED_SHARED_BYTES;
        let config = dense_config(BACKWARD, ctas, contract::ctas_y(vectors), shared)?;
        let name = entry::<E>("normalize_backward_coded")?;
        // SAFETY: as above; quantized values have the shape of `x` as well.
        unsafe { self.launch(name, config, &params) }
    }

    fn normalize_params<E: Element>(
        &self,
        operator: &'static str,
        op: &Normalization<'_, Self>,
        x: &Matrix<Self, E>,
        y: &Matrix<Self, E>,
    ) -> Result<(NormalizeParams, LaunchConfig), Error> {
        let (config, rows_per_cta, lanes_log2) = walk_config(operator, x.rows(), x)?;
        let params = NormalizeParams {
            x: self.matrix(x)?,
            y: self.matrix(y)?,
            statistics: self.matrix(op.statistics)?,
            weight: self.matrix(op.weight)?,
            bias: self.matrix(op.bias)?,
            weight_gradient: DevicePtr::NULL,
            bias_gradient: DevicePtr::NULL,
            row_scale: DevicePtr::NULL,
            rows: x.rows() as u64,
            rows_per_cta,
            columns: narrow(operator, "columns", x.columns())?,
            vectors: stride_vectors(operator, x)?,
            float_vectors: stride_vectors(operator, op.statistics)?,
            flags: relu(op),
            lanes_log2,
            scale: 1.0,
            reserved: 0,
            codes: CodesParams::NONE,
        };
        Ok((params, config))
    }
}

impl<D: Driver> NormalizeOperators for Gpu<D> {
    fn combine<E: Element>(
        &self,
        operands: Checked<CombineOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let CombineOperands { rows, op, x, y } = operands.into_inner();
        self.combine_rows(rows, op, x, y)
    }

    fn batch_statistics<E: Element>(
        &self,
        operands: Checked<BatchStatisticsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        const NAME: &str = "batch_statistics";
        let name = entry::<E>("moments")?;
        let (finish, _workspace) = self.moments(NAME, name, of.x, None, None)?;
        let params = FinishParams {
            statistics: self.matrix(of.statistics)?,
            running: self.matrix(of.running)?,
            epsilon: of.op.epsilon,
            momentum: of.op.momentum,
            ..finish
        };
        let name = entry::<E>("finish_statistics")?;
        let config = finish_config(NAME, finish.float_vectors.into())?;
        // SAFETY: the operator checked that both statistics have two rows, and a column for each of `x`.
        unsafe { self.launch(name, config, &params) }
    }

    fn running_statistics(
        &self,
        operands: Checked<RunningStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        const NAME: &str = "running_statistics";
        let params = FinishParams {
            partials: DevicePtr::NULL,
            x: DevicePtr::NULL,
            statistics: self.matrix(of.statistics)?,
            running: self.matrix(of.running)?,
            first: DevicePtr::NULL,
            second: DevicePtr::NULL,
            rows: 0,
            ctas: 0,
            columns: narrow(NAME, "columns", of.running.columns())?,
            float_vectors: stride_vectors(NAME, of.running)?,
            epsilon: of.op.epsilon,
            momentum: of.op.momentum,
            factor: 1.0,
        };
        let ctas = params.columns.div_ceil(THREADS_PER_CTA);
        let config = dense_config(NAME, ctas.into(), 1, 0)?;
        // SAFETY: the operator checked that both statistics have one shape.
        unsafe { self.launch(NAME, config, &params) }
    }

    fn merge_statistics(
        &self,
        operands: Checked<MergeStatisticsOperands<'_, Self>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        const NAME: &str = "merge_statistics";
        let params = MergeParams {
            moments: self.array(of.parts.moments)?,
            deviations: self.array(of.parts.deviations)?,
            counts: self.array(of.parts.counts)?,
            statistics: self.matrix(of.statistics)?,
            running: self.optional_matrix(of.running.as_deref())?,
            count: narrow(NAME, "parts", of.parts.counts.len())?,
            columns: narrow(NAME, "columns", of.statistics.columns())?,
            float_vectors: stride_vectors(NAME, of.statistics)?,
            epsilon: of.op.epsilon,
            momentum: of.op.momentum,
            reserved: 0,
        };
        let ctas = params.columns.div_ceil(THREADS_PER_CTA);
        let config = dense_config(NAME, ctas.into(), 1, 0)?;
        // SAFETY: the operator checked that there are two rows of moments and two of deviations for each count, as wide
        // as the statistics, and the running ones are of their shape.
        unsafe { self.launch(NAME, config, &params) }
    }

    fn normalize<E: Element>(
        &self,
        operands: Checked<NormalizeOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let NormalizeOperands { op, x, y } = operands.into_inner();
        let (params, config) = self.normalize_params("normalize", op, x, y)?;
        let name = entry::<E>("normalize")?;
        // SAFETY: the operator checked that `x` has the shape of `y`, or more rows, and parameters and statistics its
        // columns.
        unsafe { self.launch(name, config, &params) }
    }

    fn normalize_backward<E: Element>(
        &self,
        operands: Checked<NormalizeBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        self.launch_sums(&of)?;
        self.launch_gradient(&of)
    }

    fn normalization_sums<E: Element>(
        &self,
        operands: Checked<NormalizeBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        self.launch_sums(&operands.into_inner())
    }

    fn normalize_backward_of<E: Element>(
        &self,
        operands: Checked<NormalizeBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        self.launch_gradient(&operands.into_inner())
    }

    fn dot<E: Element>(&self, operands: Checked<DotOperands<'_, Self, E>>) -> Result<(), Error> {
        let of = operands.into_inner();
        const NAME: &str = "dot";
        if of.x.rows() == 0 || of.x.columns() == 0 {
            return of.result.clear(self);
        }
        let name = entry::<E>("moments_backward")?;
        let (finish, _workspace) = self.moments(NAME, name, of.x, Some(of.y), None)?;
        let params = FinishParams {
            second: self.matrix(of.result)?,
            factor: of.factor,
            ..finish
        };
        let config = finish_config(NAME, 1)?;
        // SAFETY: the operator checked that the result has an element.
        unsafe { self.launch("finish_dot", config, &params) }
    }
}

fn relu<B: Storage>(op: &Normalization<'_, B>) -> u32 {
    if op.relu { contract::RELU } else { 0 }
}

/// The launch of a kernel that walks a number of rows of `x` and at most one matrix more, the rows of a CTA, and the
/// lanes that share a row as a power of two.
fn walk_config<D: Driver, E: Element>(
    operator: &'static str,
    rows: usize,
    x: &Matrix<Gpu<D>, E>,
) -> Result<(LaunchConfig, u32, u32), Error> {
    let (rows, vectors) = (rows as u64, stride_vectors(operator, x)?);
    let lanes_log2 = contract::lanes_log2(vectors);
    let rows_per_cta = contract::rows_per_cta(rows, lanes_log2);
    let ctas = rows.div_ceil(rows_per_cta.into());
    let shared = contract::walk_shared_bytes(2);
    let config = dense_config(operator, ctas, contract::ctas_y(vectors), shared)?;
    Ok((config, rows_per_cta, lanes_log2))
}

fn finish_config(operator: &'static str, ctas: u64) -> Result<LaunchConfig, Error> {
    dense_config(operator, ctas, 1, contract::FINISH_SHARED_BYTES)
}

impl<D: Driver> Gpu<D> {
    /// The weighted sum of the first `rows` rows of `x` and `y`, which are equally wide and have as many at least.
    pub(crate) fn combine_rows<E: Element>(
        &self,
        rows: usize,
        op: &Combine<'_, Self>,
        x: &Matrix<Self, E>,
        y: &mut Matrix<Self, E>,
    ) -> Result<(), Error> {
        const NAME: &str = "combine";
        let (config, rows_per_cta, lanes_log2) = walk_config(NAME, rows, &*y)?;
        let params = CombineParams {
            x: self.matrix(x)?,
            y: self.matrix(y)?,
            epsilon: self.optional_matrix(op.epsilon)?,
            x_scale: self.optional_array(op.x_scale)?,
            rows: rows as u64,
            rows_per_cta,
            columns: narrow(NAME, "columns", y.columns())?,
            vectors: stride_vectors(NAME, y)?,
            lanes_log2,
            x_factor: op.x_factor,
            y_factor: op.y_factor,
        };
        let name = entry::<E>("combine")?;
        // SAFETY: the operator checked that both have the given number of rows and are equally wide, that `epsilon` has
        // an element, and that there are as many factors as rows.
        unsafe { self.launch(name, config, &params) }
    }
}
