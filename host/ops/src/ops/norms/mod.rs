//! Norms between layers: of each row, and of the rows of each group.

pub(crate) mod check;
pub(crate) mod cpu;
pub(crate) mod gpu;
mod groups;

pub use groups::RowGroups;

use super::Checked;
use crate::backend::Storage;
use crate::error::Error;
use crate::tensor::{Element, Matrix};

/// Layer normalisation (Ba, Kiros and Hinton, 2016): each row less its mean, by its deviation, times a scale and plus a
/// shift of each column: `y = weight · (x − mean) / √(variance + epsilon) + bias`, with a ReLU where `op` has it;
/// computed in float and rounded once. Mean and reciprocal deviation of each row are left in `statistics`, rows × 2.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn normalize_rows<B: NormsOperators, E: Element>(
    backend: &B,
    op: &LayerNorm<'_, B>,
    x: &Matrix<B, E>,
    statistics: &mut Matrix<B, f32>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = NormalizeRowsOperands {
        op,
        x,
        statistics,
        y,
    };
    backend.normalize_rows(Checked::new(operands)?)
}

/// A normalisation of rows.
#[derive(Debug)]
pub struct LayerNorm<'a, B: Storage> {
    /// Scale of each column: 1 × N.
    pub weight: &'a Matrix<B, f32>,
    /// Shift of each column: 1 × N.
    pub bias: &'a Matrix<B, f32>,
    /// Added to a variance before its root is taken.
    pub epsilon: f32,
    /// Whether negative results become zero.
    pub relu: bool,
}

/// Operands of [`normalize_rows`].
#[derive(Debug)]
pub struct NormalizeRowsOperands<'a, B: Storage, E: Element> {
    /// Scales and shifts.
    pub op: &'a LayerNorm<'a, B>,
    /// The input.
    pub x: &'a Matrix<B, E>,
    /// Become mean and reciprocal deviation of each row.
    pub statistics: &'a mut Matrix<B, f32>,
    /// Becomes the output.
    pub y: &'a mut Matrix<B, E>,
}

/// The gradient of [`normalize_rows`] without its ReLU, in place: `d` holds dL/dy and becomes dL/dx. The gradients of
/// scales and shifts are sums over the rows, in float and in a fixed order.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn normalize_rows_backward<B: NormsOperators, E: Element>(
    backend: &B,
    weight: &Matrix<B, f32>,
    x: &Matrix<B, E>,
    statistics: &Matrix<B, f32>,
    d: &mut Matrix<B, E>,
    gradients: AffineGradients<'_, B>,
) -> Result<(), Error> {
    let operands = NormalizeRowsBackwardOperands {
        weight,
        x,
        statistics,
        d,
        gradients,
    };
    backend.normalize_rows_backward(Checked::new(operands)?)
}

/// Where the gradients of scales and shifts go.
#[derive(Debug)]
pub struct AffineGradients<'a, B: Storage> {
    /// Of the scales: 1 × N.
    pub weight: &'a mut Matrix<B, f32>,
    /// Of the shifts: 1 × N.
    pub bias: &'a mut Matrix<B, f32>,
}

/// Operands of [`normalize_rows_backward`].
#[derive(Debug)]
pub struct NormalizeRowsBackwardOperands<'a, B: Storage, E: Element> {
    /// Scale of each column.
    pub weight: &'a Matrix<B, f32>,
    /// The input of the forward pass.
    pub x: &'a Matrix<B, E>,
    /// Mean and reciprocal deviation of each row.
    pub statistics: &'a Matrix<B, f32>,
    /// The gradient, in place.
    pub d: &'a mut Matrix<B, E>,
    /// Where those of scales and shifts go.
    pub gradients: AffineGradients<'a, B>,
}

/// What the rows of a group are normalised by.
#[derive(Debug)]
pub enum GroupNorm<'a, B: Storage> {
    /// GraphNorm (Cai et al., ICML 2021): a column less a multiple of its mean, by its deviation from that; a scale and
    /// a shift of each column follow. The multiples: 1 × N.
    Graph(&'a Matrix<B, f32>),
    /// PairNorm (Zhao and Akoglu, ICLR 2020): a column less its mean, and all by the root of the mean square of the
    /// rows.
    Pair,
}

/// The statistics of each group of rows of `x`, in float: three rows a group, what is subtracted from each column, the
/// reciprocal of what it is divided by, and its mean.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn group_statistics<B: NormsOperators, E: Element>(
    backend: &B,
    norm: &GroupNorm<'_, B>,
    epsilon: f32,
    groups: &RowGroups<B>,
    x: &Matrix<B, E>,
    statistics: &mut Matrix<B, f32>,
) -> Result<(), Error> {
    let operands = GroupStatisticsOperands {
        norm,
        epsilon,
        groups,
        x,
        statistics,
    };
    backend.group_statistics(Checked::new(operands)?)
}

/// Operands of [`group_statistics`].
#[derive(Debug)]
pub struct GroupStatisticsOperands<'a, B: Storage, E: Element> {
    /// What is subtracted and divided by.
    pub norm: &'a GroupNorm<'a, B>,
    /// Added to a variance before its root is taken.
    pub epsilon: f32,
    /// Which rows are of one group.
    pub groups: &'a RowGroups<B>,
    /// What they are taken of.
    pub x: &'a Matrix<B, E>,
    /// Three rows a group.
    pub statistics: &'a mut Matrix<B, f32>,
}

/// `y = weight · (x − shift) · reciprocal + bias` with the [statistics](group_statistics) of each row's group, with a
/// ReLU where `op` has it; computed in float and rounded once.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn normalize_groups<B: NormsOperators, E: Element>(
    backend: &B,
    op: &GroupNormalization<'_, B>,
    x: &Matrix<B, E>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = NormalizeGroupsOperands { op, x, y };
    backend.normalize_groups(Checked::new(operands)?)
}

/// A normalisation of groups whose statistics are known.
#[derive(Debug)]
pub struct GroupNormalization<'a, B: Storage> {
    /// Which rows are of one group.
    pub groups: &'a RowGroups<B>,
    /// Three rows a group.
    pub statistics: &'a Matrix<B, f32>,
    /// Scale of each column, 1 × N; 1 where absent.
    pub weight: Option<&'a Matrix<B, f32>>,
    /// Shift of each column, 1 × N; 0 where absent.
    pub bias: Option<&'a Matrix<B, f32>>,
    /// Whether negative results become zero.
    pub relu: bool,
}

/// Operands of [`normalize_groups`].
#[derive(Debug)]
pub struct NormalizeGroupsOperands<'a, B: Storage, E: Element> {
    /// Groups, statistics, scales and shifts.
    pub op: &'a GroupNormalization<'a, B>,
    /// The input.
    pub x: &'a Matrix<B, E>,
    /// Becomes the output.
    pub y: &'a mut Matrix<B, E>,
}

/// The gradient of [`group_statistics`] and [`normalize_groups`] without its ReLU, in place: `d` holds dL/dy and
/// becomes dL/dx. With [`GroupNorm::Graph`] it needs scales, shifts and `gradients`.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit, [`Error::Unsupported`] where a part of a GraphNorm is missing.
pub fn normalize_groups_backward<B: NormsOperators, E: Element>(
    backend: &B,
    norm: &GroupNorm<'_, B>,
    op: &GroupNormalization<'_, B>,
    x: &Matrix<B, E>,
    d: &mut Matrix<B, E>,
    gradients: Option<GroupGradients<'_, B>>,
) -> Result<(), Error> {
    let operands = NormalizeGroupsBackwardOperands {
        norm,
        op,
        x,
        d,
        gradients,
    };
    backend.normalize_groups_backward(Checked::new(operands)?)
}

/// Where each group's parts of the gradients of a GraphNorm's parameters go: a row a group, to be
/// [added up](crate::ops::column_sums).
#[derive(Debug)]
pub struct GroupGradients<'a, B: Storage> {
    /// Of the scales.
    pub weight: &'a mut Matrix<B, f32>,
    /// Of the shifts.
    pub bias: &'a mut Matrix<B, f32>,
    /// Of the multiples of the mean.
    pub mean_scale: &'a mut Matrix<B, f32>,
}

/// Operands of [`normalize_groups_backward`].
#[derive(Debug)]
pub struct NormalizeGroupsBackwardOperands<'a, B: Storage, E: Element> {
    /// What was subtracted and divided by.
    pub norm: &'a GroupNorm<'a, B>,
    /// Groups, statistics, scales and shifts.
    pub op: &'a GroupNormalization<'a, B>,
    /// The input of the forward pass.
    pub x: &'a Matrix<B, E>,
    /// The gradient, in place.
    pub d: &'a mut Matrix<B, E>,
    /// Where those of a GraphNorm's parameters go.
    pub gradients: Option<GroupGradients<'a, B>>,
}

/// Operators of norms between layers. Statistics are float in every precision.
pub trait NormsOperators: Storage {
    /// `y = weight · (x − mean) / deviation + bias` with the statistics of each row.
    ///
    /// # Errors
    /// Those of the device.
    fn normalize_rows<E: Element>(
        &self,
        operands: Checked<NormalizeRowsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of [`NormsOperators::normalize_rows`], in place.
    ///
    /// # Errors
    /// Those of the device.
    fn normalize_rows_backward<E: Element>(
        &self,
        operands: Checked<NormalizeRowsBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The statistics of each group.
    ///
    /// # Errors
    /// Those of the device.
    fn group_statistics<E: Element>(
        &self,
        operands: Checked<GroupStatisticsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// `y = weight · (x − shift) · reciprocal + bias` with the statistics of each row's group.
    ///
    /// # Errors
    /// Those of the device.
    fn normalize_groups<E: Element>(
        &self,
        operands: Checked<NormalizeGroupsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of it and of the statistics, in place.
    ///
    /// # Errors
    /// Those of the device.
    fn normalize_groups_backward<E: Element>(
        &self,
        operands: Checked<NormalizeGroupsBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
