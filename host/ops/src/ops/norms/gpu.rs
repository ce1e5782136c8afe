//! Norms between layers on a GPU.

use super::{
    GroupNorm, GroupNormalization, GroupStatisticsOperands, NormalizeGroupsBackwardOperands,
    NormalizeGroupsOperands, NormalizeRowsBackwardOperands, NormalizeRowsOperands, NormsOperators,
    RowGroups,
};
use crate::backend::gpu::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::elementwise::sum_rows_per_cta;
use halfgnn_contract::normalize::{self, FinishParams, RELU};
use halfgnn_contract::norms::{
    self as contract, GroupFinishParams, GroupsParams, RowMomentsParams, RowsParams, TERMS_ROWS,
};

fn relu(relu: bool) -> u32 {
    if relu { RELU } else { 0 }
}

impl<D: Driver> Gpu<D> {
    fn rows_params<E: Element>(
        &self,
        operator: &'static str,
        x: &Matrix<Self, E>,
        y: &Matrix<Self, E>,
        statistics: &Matrix<Self, f32>,
        weight: &Matrix<Self, f32>,
    ) -> Result<(RowsParams, LaunchConfig), Error> {
        let vectors = stride_vectors(operator, x)?;
        let lanes_log2 = contract::row_lanes_log2(vectors);
        let params = RowsParams {
            x: self.matrix(x)?,
            y: self.matrix(y)?,
            statistics: self.matrix(statistics)?,
            weight: self.matrix(weight)?,
            bias: DevicePtr::NULL,
            rows: x.rows() as u64,
            columns: narrow(operator, "columns", x.columns())?,
            vectors,
            float_vectors: stride_vectors(operator, weight)?,
            lanes_log2,
            flags: 0,
            epsilon: 0.0,
        };
        let ctas = params
            .rows
            .div_ceil(contract::rows_per_cta(lanes_log2).into());
        Ok((params, dense_config(operator, ctas, 1, 0)?))
    }

    /// The parameters of the kernels that walk chunks of `x`, and their launch.
    fn groups_params<E: Element>(
        &self,
        operator: &'static str,
        groups: &RowGroups<Self>,
        x: &Matrix<Self, E>,
    ) -> Result<(GroupsParams, LaunchConfig), Error> {
        let vectors = stride_vectors(operator, x)?;
        let params = GroupsParams {
            x: self.matrix(x)?,
            y: DevicePtr::NULL,
            chunks: self.array(&groups.chunks)?,
            partials: DevicePtr::NULL,
            statistics: DevicePtr::NULL,
            weight: DevicePtr::NULL,
            bias: DevicePtr::NULL,
            terms: DevicePtr::NULL,
            columns: narrow(operator, "columns", x.columns())?,
            vectors,
            float_vectors: narrow(operator, "columns", x.columns().div_ceil(4))?,
            flags: 0,
            lanes_log2: normalize::lanes_log2(vectors),
            reserved: 0,
        };
        let (ctas, ctas_y) = (groups.chunks() as u64, normalize::ctas_y(vectors));
        let shared = normalize::MOMENTS_SHARED_BYTES;
        Ok((params, dense_config(operator, ctas, ctas_y, shared)?))
    }

    /// [`Gpu::groups_params`] of a kernel that normalises, or undoes it.
    fn normalization<E: Element>(
        &self,
        operator: &'static str,
        op: &GroupNormalization<'_, Self>,
        x: &Matrix<Self, E>,
        y: &Matrix<Self, E>,
    ) -> Result<(GroupsParams, LaunchConfig), Error> {
        let (params, config) = self.groups_params(operator, op.groups, x)?;
        let params = GroupsParams {
            y: self.matrix(y)?,
            statistics: self.matrix(op.statistics)?,
            weight: self.optional_matrix(op.weight)?,
            bias: self.optional_matrix(op.bias)?,
            flags: relu(op.relu),
            ..params
        };
        Ok((params, config))
    }

    fn finish_params(
        &self,
        groups: &RowGroups<Self>,
        norm: &GroupNorm<'_, Self>,
        of: &GroupsParams,
    ) -> Result<GroupFinishParams, Error> {
        let mean_scale = match norm {
            GroupNorm::Graph(mean_scale) => Some(*mean_scale),
            GroupNorm::Pair => None,
        };
        Ok(GroupFinishParams {
            partials: of.partials,
            groups: self.array(&groups.groups)?,
            x: of.x,
            statistics: of.statistics,
            weight: of.weight,
            mean_scale: self.optional_matrix(mean_scale)?,
            terms: of.terms,
            weight_gradient: DevicePtr::NULL,
            bias_gradient: DevicePtr::NULL,
            mean_scale_gradient: DevicePtr::NULL,
            columns: of.columns,
            vectors: of.vectors,
            float_vectors: of.float_vectors,
            kind: match norm {
                GroupNorm::Graph(_) => contract::GRAPH,
                GroupNorm::Pair => contract::PAIR,
            },
            epsilon: 0.0,
            reserved: 0,
        })
    }
}

/// A launch of a CTA for each group.
fn finish_config<D: Driver>(
    operator: &'static str,
    groups: &RowGroups<Gpu<D>>,
) -> Result<LaunchConfig, Error> {
    let ctas = groups.groups() as u64;
    dense_config(operator, ctas, 1, contract::FINISH_SHARED_BYTES)
}

/// Floats of two planes for each chunk.
fn partials<D: Driver>(groups: &RowGroups<Gpu<D>>, float_vectors: u32) -> u64 {
    groups.chunks() as u64 * 2 * u64::from(float_vectors) * 4
}

impl<D: Driver> NormsOperators for Gpu<D> {
    fn normalize_rows<E: Element>(
        &self,
        operands: Checked<NormalizeRowsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let NormalizeRowsOperands {
            op,
            x,
            statistics,
            y,
        } = operands.into_inner();
        const NAME: &str = "normalize_rows";
        let (params, config) = self.rows_params(NAME, x, &*y, statistics, op.weight)?;
        let params = RowsParams {
            bias: self.matrix(op.bias)?,
            flags: relu(op.relu),
            epsilon: op.epsilon,
            ..params
        };
        // SAFETY: the operator checked that `x` and `y` have one shape, that there are statistics for each row, a
        // 16-byte vector of two floats and padding, and parameters for each column.
        unsafe { self.launch(entry::<E>(NAME)?, config, &params) }
    }

    fn normalize_rows_backward<E: Element>(
        &self,
        operands: Checked<NormalizeRowsBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        const NAME: &str = "normalize_rows_backward";
        let (x, d) = (of.x, &*of.d);
        if x.rows() == 0 {
            of.gradients.weight.clear(self)?;
            return of.gradients.bias.clear(self);
        }
        let (params, config) = self.rows_params(NAME, x, d, of.statistics, of.weight)?;
        let rows = params.rows;
        let rows_per_cta = sum_rows_per_cta(rows);
        let ctas = rows.div_ceil(rows_per_cta.into());
        let workspace = self.lend(ctas * 2 * u64::from(params.float_vectors) * 4)?;
        let lanes_log2 = normalize::lanes_log2(params.vectors);
        let sums = RowMomentsParams {
            x: params.x,
            d: params.y,
            partials: DevicePtr::new(workspace.address()),
            statistics: params.statistics,
            rows,
            rows_per_cta,
            columns: params.columns,
            vectors: params.vectors,
            float_vectors: params.float_vectors,
            lanes_log2,
            reserved: 0,
        };
        let ctas_y = normalize::ctas_y(params.vectors);
        let walk = dense_config(NAME, ctas, ctas_y, normalize::MOMENTS_SHARED_BYTES)?;
        // SAFETY: the operator checked that `d` has the shape of `x` and that there are statistics for each row; the
        // workspace holds two planes for each CTA.
        unsafe { self.launch(entry::<E>("moments_backward_of_rows")?, walk, &sums)? };
        let finish = FinishParams {
            partials: sums.partials,
            x: DevicePtr::NULL,
            statistics: DevicePtr::NULL,
            running: DevicePtr::NULL,
            first: self.matrix(of.gradients.bias)?,
            second: self.matrix(of.gradients.weight)?,
            rows,
            ctas: narrow(NAME, "CTAs", usize::try_from(ctas).unwrap_or(usize::MAX))?,
            columns: params.columns,
            float_vectors: params.float_vectors,
            epsilon: 0.0,
            momentum: 0.0,
            factor: 1.0,
        };
        let shared = normalize::FINISH_SHARED_BYTES;
        let of_columns = dense_config(NAME, params.float_vectors.into(), 1, shared)?;
        // SAFETY: the operator checked that both gradients have a column for each of `x`.
        unsafe { self.launch("finish_gradients", of_columns, &finish)? };
        // SAFETY: as the first; a thread writes what it alone reads.
        unsafe { self.launch(entry::<E>(NAME)?, config, &params) }
    }

    fn group_statistics<E: Element>(
        &self,
        operands: Checked<GroupStatisticsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        const NAME: &str = "group_statistics";
        let (params, config) = self.groups_params(NAME, of.groups, of.x)?;
        let workspace = self.lend(partials(of.groups, params.float_vectors))?;
        let params = GroupsParams {
            partials: DevicePtr::new(workspace.address()),
            statistics: self.matrix(of.statistics)?,
            ..params
        };
        // SAFETY: the operator checked that the groups are the rows of `x`; the workspace holds two planes for each
        // chunk.
        unsafe { self.launch(entry::<E>("moments_of_groups")?, config, &params)? };
        let finish = GroupFinishParams {
            epsilon: of.epsilon,
            ..self.finish_params(of.groups, of.norm, &params)?
        };
        let config = finish_config(NAME, of.groups)?;
        // SAFETY: the operator checked that there are three rows of statistics for each group, and multiples where they
        // are read.
        unsafe { self.launch(entry::<E>("finish_group_statistics")?, config, &finish) }
    }

    fn normalize_groups<E: Element>(
        &self,
        operands: Checked<NormalizeGroupsOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let NormalizeGroupsOperands { op, x, y } = operands.into_inner();
        const NAME: &str = "normalize_groups";
        let (params, config) = self.normalization(NAME, op, x, &*y)?;
        // SAFETY: the operator checked that `y` has the shape of `x`, that the groups are its rows, that there are
        // three rows of statistics for each, and parameters for each column where there are some.
        unsafe { self.launch(entry::<E>(NAME)?, config, &params) }
    }

    fn normalize_groups_backward<E: Element>(
        &self,
        operands: Checked<NormalizeGroupsBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let of = operands.into_inner();
        const NAME: &str = "normalize_groups_backward";
        let (op, groups) = (of.op, of.op.groups);
        let (params, config) = self.normalization(NAME, op, of.x, &*of.d)?;
        let planes = partials(groups, params.float_vectors);
        let row = u64::from(params.float_vectors) * 4;
        let terms = groups.groups() as u64 * u64::from(TERMS_ROWS) * row;
        let workspace = self.lend(planes + terms)?;
        let params = GroupsParams {
            partials: DevicePtr::new(workspace.address()),
            terms: DevicePtr::new(workspace.address() + planes * size_of::<f32>() as u64),
            ..params
        };
        // SAFETY: as in `normalize_groups`; the workspace holds two planes for each chunk.
        unsafe { self.launch(entry::<E>("moments_backward_of_groups")?, config, &params)? };
        let mut finish = self.finish_params(groups, of.norm, &params)?;
        if let Some(gradients) = of.gradients {
            finish.weight_gradient = self.matrix(gradients.weight)?;
            finish.bias_gradient = self.matrix(gradients.bias)?;
            finish.mean_scale_gradient = self.matrix(gradients.mean_scale)?;
        }
        let of_groups = finish_config(NAME, groups)?;
        // SAFETY: the operator checked that a GraphNorm has parameters, and rows of each group for their gradients; the
        // workspace holds two rows of terms for each group, behind the planes.
        unsafe { self.launch("finish_group_gradients", of_groups, &finish)? };
        // SAFETY: as the first.
        unsafe { self.launch(entry::<E>(NAME)?, config, &params) }
    }
}
