//! Maxima, a launch each.

use super::{
    GroupMaximumBackwardOperands, GroupMaximumOperands, MaximumBackwardOperands, MaximumOperands,
    MaximumOperators,
};
use crate::backend::gpu::{Gpu, dense_config, entry, narrow, stride_vectors};
use crate::driver::{Driver, LaunchConfig};
use crate::error::Error;
use crate::ops::{Checked, RowGroups};
use crate::tensor::{Element, Matrix};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::elementwise::reciprocal;
use halfgnn_contract::maximum::{
    GroupMaximumParams, MaximumParams, VECTORS_PER_CTA, groups_per_cta,
};

impl<D: Driver> Gpu<D> {
    fn maximum_params<E: Element>(
        &self,
        operator: &'static str,
        x: &Matrix<Self, E>,
        y: &Matrix<Self, E>,
    ) -> Result<(MaximumParams, LaunchConfig), Error> {
        let vectors = x.rows() as u64 * u64::from(stride_vectors(operator, x)?);
        let params = MaximumParams {
            x: self.matrix(x)?,
            y: self.matrix(y)?,
            d: DevicePtr::NULL,
            dx: DevicePtr::NULL,
            vectors,
        };
        let ctas = vectors.div_ceil(VECTORS_PER_CTA.into());
        Ok((params, dense_config(operator, ctas, 1, 0)?))
    }

    fn group_maximum_params<E: Element>(
        &self,
        operator: &'static str,
        groups: &RowGroups<Self>,
        x: &Matrix<Self, E>,
        y: &Matrix<Self, E>,
    ) -> Result<(GroupMaximumParams, LaunchConfig), Error> {
        let vectors = stride_vectors(operator, x)?;
        let groups_per_cta = groups_per_cta(vectors);
        let params = GroupMaximumParams {
            x: self.matrix(x)?,
            y: self.matrix(y)?,
            d: DevicePtr::NULL,
            dx: DevicePtr::NULL,
            groups: self.array(&groups.groups)?,
            count: narrow(operator, "groups", groups.groups())?,
            groups_per_cta,
            vectors,
            reciprocal: reciprocal(vectors),
        };
        let ctas = match vectors {
            0 => 0,
            _ => params.count.div_ceil(groups_per_cta),
        };
        Ok((params, dense_config(operator, ctas.into(), 1, 0)?))
    }
}

impl<D: Driver> MaximumOperators for Gpu<D> {
    fn maximum<E: Element>(
        &self,
        operands: Checked<MaximumOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let MaximumOperands { x, y } = operands.into_inner();
        const NAME: &str = "maximum";
        let (params, config) = self.maximum_params(NAME, x, &*y)?;
        // SAFETY: the operator checked that both matrices are of one shape.
        unsafe { self.launch(entry::<E>(NAME)?, config, &params) }
    }

    fn maximum_backward<E: Element>(
        &self,
        operands: Checked<MaximumBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let MaximumBackwardOperands { x, y, d, dx } = operands.into_inner();
        const NAME: &str = "maximum_backward";
        let (params, config) = self.maximum_params(NAME, x, y)?;
        let params = MaximumParams {
            d: self.matrix(&*d)?,
            dx: self.matrix(&*dx)?,
            ..params
        };
        // SAFETY: the operator checked that all four matrices are of one shape.
        unsafe { self.launch(entry::<E>(NAME)?, config, &params) }
    }

    fn group_maximum<E: Element>(
        &self,
        operands: Checked<GroupMaximumOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let GroupMaximumOperands { groups, x, y } = operands.into_inner();
        const NAME: &str = "group_maximum";
        let (params, config) = self.group_maximum_params(NAME, groups, x, &*y)?;
        // SAFETY: the operator checked that the groups are the rows of `x`, and that `y` has a row of its width for
        // each.
        unsafe { self.launch(entry::<E>(NAME)?, config, &params) }
    }

    fn group_maximum_backward<E: Element>(
        &self,
        operands: Checked<GroupMaximumBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let GroupMaximumBackwardOperands {
            groups,
            x,
            y,
            dy,
            dx,
        } = operands.into_inner();
        const NAME: &str = "group_maximum_backward";
        let (params, config) = self.group_maximum_params(NAME, groups, x, y)?;
        let params = GroupMaximumParams {
            d: self.matrix(dy)?,
            dx: self.matrix(&*dx)?,
            ..params
        };
        // SAFETY: the operator checked that the groups are the rows of `x`, that `dx` has its shape, and that `y` and
        // `dy` have a row of its width for each group.
        unsafe { self.launch(entry::<E>(NAME)?, config, &params) }
    }
}
