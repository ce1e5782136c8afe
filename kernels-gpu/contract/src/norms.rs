//! Norms between layers: of each row, and of the rows of each group.
//!
//! Matrices and the words "vector", "padding" and "CTA" are those of [`crate::elementwise`], rows of parameters those of
//! [`crate::normalize`]. Rows of a group follow one another; a group is cut into chunks, and a CTA has a chunk, so that one group of all
//! rows and many of few are one launch. Four words tell a [chunk](CHUNK_WORDS), four a [group](GROUP_WORDS).
//!
//! Statistics and sums are float. A chunk is summed up about the first row of its group, chunks are added up in their order.

use crate::elementwise::THREADS_PER_CTA;
use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, param_struct};

/// Words of a chunk: its first row, one past its last, its group, the first row of the group.
pub const CHUNK_WORDS: usize = 4;
/// Words of a group: its first chunk, one past its last, its rows, its first row.
pub const GROUP_WORDS: usize = 4;
/// Rows of statistics a group: what is subtracted, the reciprocal of what it is divided by, and the mean.
pub const STATISTICS_ROWS: u32 = 3;
/// Rows of terms a group: what is subtracted from a gradient, and what of the normalised element is.
pub const TERMS_ROWS: u32 = 2;

/// Rows of a chunk: so many that a group has at most 256 of them, and 128 at least.
#[inline]
pub const fn rows_per_chunk(rows: u64) -> u64 {
    let most = rows.div_ceil(256);
    if most < 128 { 128 } else { most }
}

/// [`GroupFinishParams::kind`]: columns less a multiple of their mean, by their own deviation (Cai et al., "GraphNorm", ICML 2021).
pub const GRAPH: u32 = 0;
/// [`GroupFinishParams::kind`]: columns less their mean, all by one deviation (Zhao and Akoglu, "PairNorm", ICLR 2020).
pub const PAIR: u32 = 1;

param_struct! {
    /// Parameters of the kernels that walk the chunks of a matrix.
    ///
    /// - `moments_of_groups`: leaves two planes of sums for each chunk, of `x` less the first row of its group and of its square.
    /// - `moments_backward_of_groups`: of `y`, the gradient of the output, and of its product with the normalised `x`.
    /// - `normalize_groups`: `y` becomes `weight · (x − shift) · reciprocal + bias`, cut off by [`RELU`](crate::normalize::RELU).
    /// - `normalize_groups_backward`: `y` holds the gradient of the output and becomes that of `x`, by the terms of the group.
    pub struct GroupsParams {
        /// What is, or was, normalised.
        pub x: DevicePtr<HalfBits>,
        /// Output, or gradient: the shape and stride of `x`. `moments_of_groups` does not use it.
        pub y: DevicePtr<HalfBits>,
        /// [`CHUNK_WORDS`] a chunk, aligned to 16 bytes.
        pub chunks: DevicePtr<u32>,
        /// Two planes of `float_vectors` vectors for each chunk. For the moments only.
        pub partials: DevicePtr<f32>,
        /// [`STATISTICS_ROWS`] a group. `moments_of_groups` does not use it.
        pub statistics: DevicePtr<f32>,
        /// Scale of each column, or null for 1.
        pub weight: DevicePtr<f32>,
        /// Shift of each column, or null for 0.
        pub bias: DevicePtr<f32>,
        /// [`TERMS_ROWS`] a group. For `normalize_groups_backward` only.
        pub terms: DevicePtr<f32>,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows in 16-byte vectors, for both matrices.
        pub vectors: u32,
        /// Distance of two planes and of two float rows in 16-byte vectors.
        pub float_vectors: u32,
        /// [`RELU`](crate::normalize::RELU), for `normalize_groups`.
        pub flags: u32,
        /// Base-2 logarithm of the vectors of a row that a CTA covers: [`crate::normalize::lanes_log2`].
        pub lanes_log2: u32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of `finish_group_statistics` and `finish_group_gradients`, a CTA a group, which add up the planes of its chunks.
    ///
    /// - `finish_group_statistics` writes the statistics of the group.
    /// - `finish_group_gradients` writes its terms, and with [`GRAPH`] its parts of the gradients of scales, shifts and multiples.
    pub struct GroupFinishParams {
        /// What the chunks left.
        pub partials: DevicePtr<f32>,
        /// [`GROUP_WORDS`] a group, aligned to 16 bytes.
        pub groups: DevicePtr<u32>,
        /// The matrix of `moments_of_groups`. For `finish_group_statistics` only.
        pub x: DevicePtr<HalfBits>,
        /// [`STATISTICS_ROWS`] a group: written by the first kernel, read by the second.
        pub statistics: DevicePtr<f32>,
        /// Scale of each column. Used by the second with [`GRAPH`].
        pub weight: DevicePtr<f32>,
        /// How often a column's mean is subtracted. Used with [`GRAPH`].
        pub mean_scale: DevicePtr<f32>,
        /// [`TERMS_ROWS`] a group: written by the second.
        pub terms: DevicePtr<f32>,
        /// A row a group: the gradient of `weight`. Written by the second with [`GRAPH`], as are those after it.
        pub weight_gradient: DevicePtr<f32>,
        /// That of the shifts.
        pub bias_gradient: DevicePtr<f32>,
        /// That of `mean_scale`.
        pub mean_scale_gradient: DevicePtr<f32>,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows of `x` in 16-byte vectors.
        pub vectors: u32,
        /// Distance of two planes and of two float rows in 16-byte vectors.
        pub float_vectors: u32,
        /// [`GRAPH`] or [`PAIR`].
        pub kind: u32,
        /// Added to a variance before its root is taken.
        pub epsilon: f32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of the kernels of norms of rows (Ba, Kiros and Hinton, "Layer Normalization", 2016).
    ///
    /// - `normalize_rows`: `y` becomes `weight · (x − mean) · reciprocal + bias` with the mean and the deviation of each row, cut off
    ///   by [`RELU`](crate::normalize::RELU); the row's mean and reciprocal deviation are kept.
    /// - `normalize_rows_backward`: `y` holds the gradient of the output and becomes that of `x`.
    pub struct RowsParams {
        /// What is, or was, normalised.
        pub x: DevicePtr<HalfBits>,
        /// Output, or gradient: the shape and stride of `x`.
        pub y: DevicePtr<HalfBits>,
        /// A 16-byte vector a row: mean, reciprocal deviation, two zeros. Written by the first kernel, read by the second.
        pub statistics: DevicePtr<f32>,
        /// Scale of each column.
        pub weight: DevicePtr<f32>,
        /// Shift of each column. For `normalize_rows` only.
        pub bias: DevicePtr<f32>,
        /// Rows.
        pub rows: u64,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows in 16-byte vectors, for both matrices.
        pub vectors: u32,
        /// Vectors of a row of parameters.
        pub float_vectors: u32,
        /// Base-2 logarithm of the lanes that share a row: [`row_lanes_log2`].
        pub lanes_log2: u32,
        /// [`RELU`](crate::normalize::RELU), for `normalize_rows`.
        pub flags: u32,
        /// Added to a variance before its root is taken. For `normalize_rows` only.
        pub epsilon: f32,
    }
}

param_struct! {
    /// Parameters of `moments_backward_of_rows`: a CTA adds up its rows and leaves two planes of sums, of `d` and of its product
    /// with the normalised `x`, for `finish_gradients` of [`crate::normalize`].
    pub struct RowMomentsParams {
        /// What was normalised.
        pub x: DevicePtr<HalfBits>,
        /// Gradient of the output, the shape and stride of `x`.
        pub d: DevicePtr<HalfBits>,
        /// Two planes of `float_vectors` vectors for each CTA in x.
        pub partials: DevicePtr<f32>,
        /// A 16-byte vector a row: mean, reciprocal deviation, two zeros.
        pub statistics: DevicePtr<f32>,
        /// Rows.
        pub rows: u64,
        /// Rows of a CTA: [`crate::elementwise::sum_rows_per_cta`].
        pub rows_per_cta: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows of `x` and `d` in 16-byte vectors.
        pub vectors: u32,
        /// Distance of two planes in 16-byte vectors.
        pub float_vectors: u32,
        /// Base-2 logarithm of the vectors of a row that a CTA covers: [`crate::normalize::lanes_log2`].
        pub lanes_log2: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Lanes that share a row, as a power of two: as many as it has vectors, a warp at most.
#[inline]
pub const fn row_lanes_log2(vectors: u32) -> u32 {
    let mut log2 = 0;
    while log2 < 5 && (1 << log2) < vectors {
        log2 += 1;
    }
    log2
}

/// Rows of a CTA of the kernels of norms of rows.
#[inline]
pub const fn rows_per_cta(lanes_log2: u32) -> u32 {
    THREADS_PER_CTA >> lanes_log2
}

/// Bytes of dynamic shared memory of the kernels that finish groups: a float of two planes a thread.
pub const FINISH_SHARED_BYTES: u32 = THREADS_PER_CTA * 2 * 4;

/// The statistics of a column of a group with [`GRAPH`], from its mean and variance: what is subtracted, the variance about that.
#[inline]
pub fn graph_norm([mean, variance]: [f32; 2], mean_scale: f32) -> [f32; 2] {
    let rest = mean - mean_scale * mean;
    [mean_scale * mean, variance + rest * rest]
}

/// What the gradients of a column of a group with [`GRAPH`] are made from.
#[derive(Clone, Copy, Debug)]
pub struct GraphNormColumn {
    /// What is subtracted from each element.
    pub shift: f32,
    /// The reciprocal of the deviation.
    pub reciprocal: f32,
    /// The mean.
    pub mean: f32,
    /// The scale.
    pub weight: f32,
    /// How often the mean is subtracted.
    pub mean_scale: f32,
}

impl GraphNormColumn {
    /// The terms of the gradient, and the gradient of the multiple of the mean, from the means of the output's gradient and of its
    /// product with the normalised elements, over `count` rows.
    #[inline]
    pub fn gradients(&self, [dy, product]: [f32; 2], count: f32) -> ([f32; 2], f32) {
        let factor = self.weight * self.reciprocal;
        let normalized = (self.mean - self.shift) * self.reciprocal;
        // The mean of the gradients with respect to what is divided.
        let mean = factor * (dy - normalized * product);
        (
            [self.mean_scale * mean, factor * product],
            -self.mean * count * mean,
        )
    }
}

/// The gradient of an element from that of its output, its normalised value and the terms of its group.
#[inline]
pub fn gradient(factor: f32, dy: f32, normalized: f32, [shift, slope]: [f32; 2]) -> f32 {
    factor * dy - shift - slope * normalized
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! norms_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Sums and sums of squares of columns, chunk by chunk.
                moments_of_groups(GroupsParams): F16 = moments_of_groups_f16, F32 = moments_of_groups_f32, BF16 = moments_of_groups_bf16;
                /// What the gradients of scales and shifts are sums of, chunk by chunk.
                moments_backward_of_groups(GroupsParams): F16 = moments_backward_of_groups_f16, F32 = moments_backward_of_groups_f32, BF16 = moments_backward_of_groups_bf16;
                /// Statistics of groups.
                finish_group_statistics(GroupFinishParams): F16 = finish_group_statistics_f16, F32 = finish_group_statistics_f32, BF16 = finish_group_statistics_bf16;
                /// The normalised matrix.
                normalize_groups(GroupsParams): F16 = normalize_groups_f16, F32 = normalize_groups_f32, BF16 = normalize_groups_bf16;
                /// The gradient of `normalize_groups`.
                normalize_groups_backward(GroupsParams): F16 = normalize_groups_backward_f16, F32 = normalize_groups_backward_f32, BF16 = normalize_groups_backward_bf16;
                /// Rows, normalised each by itself.
                normalize_rows(RowsParams): F16 = normalize_rows_f16, F32 = normalize_rows_f32, BF16 = normalize_rows_bf16;
                /// The gradient of `normalize_rows`.
                normalize_rows_backward(RowsParams): F16 = normalize_rows_backward_f16, F32 = normalize_rows_backward_f32, BF16 = normalize_rows_backward_bf16;
                /// What the gradients of its scales and shifts are sums of.
                moments_backward_of_rows(RowMomentsParams): F16 = moments_backward_of_rows_f16, F32 = moments_backward_of_rows_f32, BF16 = moments_backward_of_rows_bf16;
            }
            plain {
                /// Terms and parts of gradients of groups.
                finish_group_gradients(GroupFinishParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[norms_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_has_256_chunks_at_most() {
        for (rows, expected) in [(0, 128), (1, 128), (1 << 15, 128), (1 << 31, 1 << 23)] {
            assert_eq!(rows_per_chunk(rows), expected);
        }
        for rows in [32_769_u64, 2_449_029, (1 << 32) - 1] {
            assert!(rows.div_ceil(rows_per_chunk(rows)) <= 256);
        }
    }

    #[test]
    fn lanes_share_a_row() {
        let lanes: [u32; 7] = [0, 1, 2, 3, 8, 33, 1000].map(row_lanes_log2);
        assert_eq!(lanes, [0, 0, 1, 2, 3, 5, 5]);
        assert_eq!([0, 3, 5].map(rows_per_cta), [128, 16, 4]);
    }

    #[test]
    fn a_mean_that_stays_is_part_of_the_deviation() {
        // 1, 3 about half their mean: 0 and 2, whose mean square is 2.
        assert_eq!(graph_norm([2.0, 1.0], 0.5), [1.0, 2.0]);
        assert_eq!(graph_norm([2.0, 1.0], 1.0), [2.0, 1.0]);
    }
}
