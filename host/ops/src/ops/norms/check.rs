//! Which operands norms between layers take.

use super::{
    AffineGradients, GroupNorm, GroupNormalization, GroupStatisticsOperands,
    NormalizeGroupsBackwardOperands, NormalizeGroupsOperands, NormalizeRowsBackwardOperands,
    NormalizeRowsOperands, RowGroups,
};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::expect_shape;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::norms::STATISTICS_ROWS;

const Y: [&str; 2] = ["rows of y", "columns of y"];
const D: [&str; 2] = ["rows of d", "columns of d"];
const STATISTICS: [&str; 2] = ["rows of the statistics", "columns of the statistics"];
const SCALES: [&str; 2] = ["rows of the scales", "columns of the scales"];
const SHIFTS: [&str; 2] = ["rows of the shifts", "columns of the shifts"];
const OF_SCALES: [&str; 2] = [
    "rows of the scales' gradient",
    "columns of the scales' gradient",
];
const OF_SHIFTS: [&str; 2] = [
    "rows of the shifts' gradient",
    "columns of the shifts' gradient",
];

impl<B: Storage, E: Element> Operator for NormalizeRowsOperands<'_, B, E> {
    const NAME: &'static str = "normalize_rows";

    fn check(&self) -> Result<(), Error> {
        let (rows, columns) = self.x.shape();
        expect_shape(Self::NAME, Y, (rows, columns), self.y)?;
        expect_shape(Self::NAME, STATISTICS, (rows, 2), self.statistics)?;
        expect_shape(Self::NAME, SCALES, (1, columns), self.op.weight)?;
        expect_shape(Self::NAME, SHIFTS, (1, columns), self.op.bias)
    }
}

impl<B: Storage, E: Element> Operator for NormalizeRowsBackwardOperands<'_, B, E> {
    const NAME: &'static str = "normalize_rows_backward";

    fn check(&self) -> Result<(), Error> {
        let (rows, columns) = self.x.shape();
        expect_shape(Self::NAME, D, (rows, columns), self.d)?;
        expect_shape(Self::NAME, STATISTICS, (rows, 2), self.statistics)?;
        expect_shape(Self::NAME, SCALES, (1, columns), self.weight)?;
        let AffineGradients { weight, bias } = &self.gradients;
        expect_shape(Self::NAME, OF_SCALES, (1, columns), weight)?;
        expect_shape(Self::NAME, OF_SHIFTS, (1, columns), bias)
    }
}

/// Statistics of `groups`, which are the rows of a matrix of this shape.
fn expect_groups<B: Storage>(
    operator: &'static str,
    (rows, columns): (usize, usize),
    groups: &RowGroups<B>,
    statistics: &Matrix<B, f32>,
) -> Result<(), Error> {
    Error::expect(operator, "rows of the groups", rows, groups.rows())?;
    let shape = (STATISTICS_ROWS as usize * groups.groups(), columns);
    expect_shape(operator, STATISTICS, shape, statistics)
}

fn expect_norm<B: Storage>(
    operator: &'static str,
    columns: usize,
    norm: &GroupNorm<'_, B>,
) -> Result<(), Error> {
    match norm {
        GroupNorm::Pair => Ok(()),
        GroupNorm::Graph(multiples) => {
            let what = ["rows of the multiples", "columns of the multiples"];
            expect_shape(operator, what, (1, columns), multiples)
        }
    }
}

fn expect_normalization<B: Storage>(
    operator: &'static str,
    shape: (usize, usize),
    op: &GroupNormalization<'_, B>,
) -> Result<(), Error> {
    expect_groups(operator, shape, op.groups, op.statistics)?;
    let row = (1, shape.1);
    if let Some(weight) = op.weight {
        expect_shape(operator, SCALES, row, weight)?;
    }
    op.bias
        .map_or(Ok(()), |bias| expect_shape(operator, SHIFTS, row, bias))
}

impl<B: Storage, E: Element> Operator for GroupStatisticsOperands<'_, B, E> {
    const NAME: &'static str = "group_statistics";

    fn check(&self) -> Result<(), Error> {
        expect_groups(Self::NAME, self.x.shape(), self.groups, self.statistics)?;
        expect_norm(Self::NAME, self.x.columns(), self.norm)
    }
}

impl<B: Storage, E: Element> Operator for NormalizeGroupsOperands<'_, B, E> {
    const NAME: &'static str = "normalize_groups";

    fn check(&self) -> Result<(), Error> {
        expect_shape(Self::NAME, Y, self.x.shape(), self.y)?;
        expect_normalization(Self::NAME, self.x.shape(), self.op)
    }
}

impl<B: Storage, E: Element> Operator for NormalizeGroupsBackwardOperands<'_, B, E> {
    const NAME: &'static str = "normalize_groups_backward";

    fn check(&self) -> Result<(), Error> {
        let shape = self.x.shape();
        expect_shape(Self::NAME, D, shape, self.d)?;
        expect_normalization(Self::NAME, shape, self.op)?;
        expect_norm(Self::NAME, shape.1, self.norm)?;
        let graph = matches!(self.norm, GroupNorm::Graph(_));
        let Some(gradients) = &self.gradients else {
            return match graph {
                true => Err(unfit(
                    "a GraphNorm has parameters; give room for their gradients",
                )),
                false => Ok(()),
            };
        };
        if graph && self.op.weight.is_none() {
            return Err(unfit("a GraphNorm has scales; give them"));
        }
        let parts = (self.op.groups.groups(), shape.1);
        expect_shape(Self::NAME, OF_SCALES, parts, gradients.weight)?;
        expect_shape(Self::NAME, OF_SHIFTS, parts, gradients.bias)?;
        let what = [
            "rows of the multiples' gradient",
            "columns of the multiples' gradient",
        ];
        expect_shape(Self::NAME, what, parts, gradients.mean_scale)
    }
}

fn unfit(reason: &str) -> Error {
    Error::Unsupported {
        operator: "normalize_groups_backward",
        reason: reason.into(),
    }
}
