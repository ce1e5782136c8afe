//! Batch normalisation, and weighted sums of two matrices.
//!
//! Matrices and the words "vector", "padding" and "CTA" are those of [`crate::elementwise`], as are its rules on pointers. A row
//! of parameters (scale, shift, a plane of statistics) is a row of a float matrix: aligned to 16 bytes and padded with
//! zeros to `float_vectors` vectors.
//!
//! Statistics are float throughout. A column is summed up about its first element, so that a mean which is large beside
//! the deviation costs no digits (Chan, Golub and LeVeque, The American Statistician 37, 1983, §2).

use crate::elementwise::THREADS_PER_CTA;
use crate::format::table;
use crate::quantize::{CodesParams, largest_bytes};
use crate::{DevicePtr, EntrySpec, HalfBits, VECTOR_BYTES, param_struct};

/// Bit of the flags: the output is `max(0, ·)` of what is normalised.
pub const RELU: u32 = 1;
/// Bit of [`MomentsParams::flags`]: the second plane is of `d` times the normalised `x`; without it, of `d · x`.
pub const NORMALIZED: u32 = 2;

param_struct! {
    /// Parameters of `moments` and `moments_backward`: a CTA adds up its rows and leaves two planes of sums.
    ///
    /// - `moments`: `x - x[0]` and its square.
    /// - `moments_backward`: `d`, zero where the output was cut off by [`RELU`], and its product with `x` or, with
    ///   [`NORMALIZED`], with the normalised `x`.
    pub struct MomentsParams {
        /// What is, or was, normalised.
        pub x: DevicePtr<HalfBits>,
        /// Gradient of the output, the shape and stride of `x`. `moments` does not use it.
        pub d: DevicePtr<HalfBits>,
        /// Two planes of `float_vectors` vectors for each CTA in x.
        pub partials: DevicePtr<f32>,
        /// Mean and reciprocal deviation, a row each. Used with [`NORMALIZED`].
        pub statistics: DevicePtr<f32>,
        /// Scale of each column. Used with [`NORMALIZED`].
        pub weight: DevicePtr<f32>,
        /// Shift of each column. Used with [`NORMALIZED`].
        pub bias: DevicePtr<f32>,
        /// Rows.
        pub rows: u64,
        /// Rows of a CTA: [`crate::elementwise::sum_rows_per_cta`].
        pub rows_per_cta: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows of `x` and `d` in 16-byte vectors.
        pub vectors: u32,
        /// Distance of two planes and of two rows of parameters in 16-byte vectors.
        pub float_vectors: u32,
        /// [`RELU`], [`NORMALIZED`].
        pub flags: u32,
        /// Base-2 logarithm of the vectors of a row that a CTA covers: [`lanes_log2`].
        pub lanes_log2: u32,
    }
}

param_struct! {
    /// Parameters of `finish_statistics`, `finish_gradients` and `finish_dot`, which add up the planes that CTAs left, and
    /// of `running_statistics`, which has none to add up. Rows are written with zeros in their padding.
    pub struct FinishParams {
        /// What `moments` or `moments_backward` left.
        pub partials: DevicePtr<f32>,
        /// The matrix of `moments`: its first row is the shift. For `finish_statistics` only.
        pub x: DevicePtr<HalfBits>,
        /// Mean and reciprocal deviation, a row each: written by `finish_statistics` and `running_statistics`.
        pub statistics: DevicePtr<f32>,
        /// Running mean and variance, a row each: read by `running_statistics`, carried on by `finish_statistics` unless
        /// the statistics of the batch are not finite.
        pub running: DevicePtr<f32>,
        /// The first plane's sums, a row: written by `finish_gradients`.
        pub first: DevicePtr<f32>,
        /// The second plane's sums, a row: written by `finish_gradients`. For `finish_dot` a row of one float, `factor`
        /// times the sum of them.
        pub second: DevicePtr<f32>,
        /// Rows of the matrix.
        pub rows: u64,
        /// Partial results: CTAs in x of the first kernel.
        pub ctas: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two planes in 16-byte vectors.
        pub float_vectors: u32,
        /// Added to a variance before its root is taken.
        pub epsilon: f32,
        /// Weight of the new in the running statistics.
        pub momentum: f32,
        /// Factor of the result. For `finish_dot` only.
        pub factor: f32,
    }
}

param_struct! {
    /// Parameters of `merge_statistics`: what parts of a batch know of its columns, put together ([`Merged`]). A thread for each
    /// column, padding included, which becomes zero.
    pub struct MergeParams {
        /// Mean and unbiased variance of each part, two rows of parameters: as `finish_statistics` carries them on with momentum 1.
        pub moments: DevicePtr<f32>,
        /// Mean and reciprocal deviation of each part, likewise.
        pub deviations: DevicePtr<f32>,
        /// Rows of each part; what one without rows left is not looked at.
        pub counts: DevicePtr<u32>,
        /// Mean and reciprocal deviation of the batch, a row each: written.
        pub statistics: DevicePtr<f32>,
        /// Running mean and variance, a row each: carried on as by `finish_statistics`; null where they are not.
        pub running: DevicePtr<f32>,
        /// How many parts.
        pub count: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows of parameters in 16-byte vectors.
        pub float_vectors: u32,
        /// Added to a variance before its root is taken.
        pub epsilon: f32,
        /// Weight of the new in the running statistics.
        pub momentum: f32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of `normalize`, `normalize_backward` and `normalize_backward_coded`.
    ///
    /// - `normalize`: `y` becomes `weight · (x − mean) · deviation⁻¹ + bias`, cut off by [`RELU`].
    /// - `normalize_backward`: `y` holds the gradient of the output and becomes that of `x`, times `scale` and a factor of the
    ///   row.
    /// - `normalize_backward_coded`: and codes are made of what is stored, as `quantize` would.
    pub struct NormalizeParams {
        /// What is, or was, normalised.
        pub x: DevicePtr<HalfBits>,
        /// Output, or gradient: the shape and stride of `x`.
        pub y: DevicePtr<HalfBits>,
        /// Mean and reciprocal deviation, a row each.
        pub statistics: DevicePtr<f32>,
        /// Scale of each column.
        pub weight: DevicePtr<f32>,
        /// Shift of each column.
        pub bias: DevicePtr<f32>,
        /// Gradient of `weight`. For `normalize_backward` only.
        pub weight_gradient: DevicePtr<f32>,
        /// Gradient of `bias`. For `normalize_backward` only.
        pub bias_gradient: DevicePtr<f32>,
        /// Factor of each row, or null for 1. For `normalize_backward` only.
        pub row_scale: DevicePtr<f32>,
        /// Rows.
        pub rows: u64,
        /// Rows of a CTA: [`rows_per_cta`].
        pub rows_per_cta: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows in 16-byte vectors, for both matrices.
        pub vectors: u32,
        /// Distance of two rows of parameters in 16-byte vectors.
        pub float_vectors: u32,
        /// [`RELU`].
        pub flags: u32,
        /// Base-2 logarithm of the vectors of a row that a CTA covers: [`lanes_log2`].
        pub lanes_log2: u32,
        /// Factor of all. For `normalize_backward` only.
        pub scale: f32,
        /// Zero.
        pub reserved: u32,
        /// Where codes go. For `normalize_backward_coded` only, whose lanes are those of a row of codes: [`coded_vectors`].
        pub codes: CodesParams,
    }
}

param_struct! {
    /// Parameters of `combine`: `y = x_factor · (1 + epsilon) · s · x + y_factor · y`, where each row has its own `s`.
    pub struct CombineParams {
        /// The other matrix.
        pub x: DevicePtr<HalfBits>,
        /// Input and output, the shape and stride of `x`.
        pub y: DevicePtr<HalfBits>,
        /// One float, or null for 0.
        pub epsilon: DevicePtr<f32>,
        /// Factor of each row of `x`, or null for 1.
        pub x_scale: DevicePtr<f32>,
        /// Rows.
        pub rows: u64,
        /// Rows of a CTA: [`rows_per_cta`].
        pub rows_per_cta: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows in 16-byte vectors, for both matrices.
        pub vectors: u32,
        /// Base-2 logarithm of the vectors of a row that a CTA covers: [`lanes_log2`].
        pub lanes_log2: u32,
        /// Factor of `x`.
        pub x_factor: f32,
        /// Factor of `y`; where it is 0, `y` is not read.
        pub y_factor: f32,
    }
}

/// An element of [`CombineParams`]: `x_factor · x + y_factor · y`.
#[inline]
pub fn combine(x_factor: f32, x: f32, y_factor: f32, y: f32) -> f32 {
    x_factor * x + y_factor * y
}

/// Mean and variance (biased) of `count` numbers from the sums of them about `shift`.
#[inline]
pub fn moments(sum: f32, squares: f32, shift: f32, count: f32) -> [f32; 2] {
    let mean = sum / count;
    let variance = squares / count - mean * mean;
    // Rounding may make it a little less than nothing. Not `max`, which would make a zero of a NaN.
    [shift + mean, if variance < 0.0 { 0.0 } else { variance }]
}

/// The reciprocal deviation. `sqrt` is the correctly rounded square root, which `core` has no name for.
#[inline]
pub fn reciprocal_deviation(variance: f32, epsilon: f32, sqrt: impl Fn(f32) -> f32) -> f32 {
    1.0 / sqrt(variance + epsilon)
}

/// Running mean and variance after a batch of `count`, as PyTorch's `BatchNorm1d` carries them on: the variance that
/// it remembers is the unbiased one. A batch whose statistics are not finite, of a step that an overflow spoilt, leaves
/// them as they are.
#[inline]
pub fn carry_on(
    running: [f32; 2],
    [mean, variance]: [f32; 2],
    count: f32,
    momentum: f32,
) -> [f32; 2] {
    let unbiased = if count > 1.0 {
        variance * (count / (count - 1.0))
    } else {
        variance
    };
    let next = [
        (1.0 - momentum) * running[0] + momentum * mean,
        (1.0 - momentum) * running[1] + momentum * unbiased,
    ];
    if next[0].is_finite() && next[1].is_finite() {
        next
    } else {
        running
    }
}

/// Mean and variance (biased) of a column from those of its parts (Chan, Golub and LeVeque, 1983), in double, since a mean beside a
/// small deviation cannot afford less, and in the order of the parts.
#[derive(Clone, Copy, Debug, Default)]
pub struct Merged {
    count: f64,
    sum: f64,
    squares: f64,
}

impl Merged {
    /// A first look at each part: its rows, and their mean.
    #[inline]
    pub fn count(&mut self, rows: u32, mean: f32) {
        if rows > 0 {
            self.count += rows as f64;
            self.sum += rows as f64 * mean as f64;
        }
    }

    /// A second: its rows, their mean and their unbiased variance.
    #[inline]
    pub fn spread(&mut self, rows: u32, mean: f32, variance: f32) {
        if rows > 0 {
            let rows = rows as f64;
            // Of a single row it is none.
            let share = if rows > 1.0 { (rows - 1.0) / rows } else { 1.0 };
            let apart = mean as f64 - self.mean();
            self.squares += rows * (variance as f64 * share + apart * apart);
        }
    }

    #[inline]
    fn mean(&self) -> f64 {
        self.sum / self.count
    }

    /// Mean and variance, when each part was looked at twice.
    #[inline]
    pub fn moments(&self) -> [f32; 2] {
        [self.mean() as f32, (self.squares / self.count) as f32]
    }

    /// Rows of all.
    #[inline]
    pub fn rows(&self) -> f32 {
        self.count as f32
    }
}

/// The mean of a part: none where its statistics, mean and reciprocal deviation, are not finite. Those were not carried on, and all
/// are to see them.
#[inline]
pub fn part_mean(mean: f32, statistics: [f32; 2]) -> f32 {
    if statistics[0].is_finite() && statistics[1].is_finite() {
        mean
    } else {
        f32::NAN
    }
}

/// What is known of a column when an element of it is normalised.
#[derive(Clone, Copy, Debug)]
pub struct Column {
    /// Its mean.
    pub mean: f32,
    /// The reciprocal of its deviation.
    pub reciprocal: f32,
    /// Its scale.
    pub weight: f32,
    /// Its shift.
    pub bias: f32,
}

impl Column {
    /// The element in deviations from the mean.
    #[inline]
    pub fn normalized(&self, x: f32) -> f32 {
        (x - self.mean) * self.reciprocal
    }

    /// The output, before it is cut off.
    #[inline]
    pub fn output(&self, x: f32) -> f32 {
        // One factor, which a loop over a column computes once.
        (x - self.mean) * (self.reciprocal * self.weight) + self.bias
    }

    /// `dy`, the gradient of the output, before the ReLU, if there is one: zero where it cut off what it was given.
    #[inline]
    #[allow(clippy::neg_cmp_op_on_partial_ord)] // a NaN is cut off
    pub fn before_relu(&self, relu: bool, x: f32, dy: f32) -> f32 {
        if relu && !(self.output(x) > 0.0) {
            0.0
        } else {
            dy
        }
    }

    /// The gradient of `x` from `dy`, that of the output, and the means over the column of `dy` and of its product with
    /// the normalised elements ([`mean`]).
    #[inline]
    pub fn gradient(&self, x: f32, dy: f32, [mean_dy, mean_product]: [f32; 2]) -> f32 {
        (self.weight * self.reciprocal) * (dy - mean_dy - self.normalized(x) * mean_product)
    }
}

/// The mean of numbers from their sum and the reciprocal of how many there are: a thread has sixteen such means to take.
#[inline]
pub fn mean(sum: f32, reciprocal_count: f32) -> f32 {
    sum * reciprocal_count
}

/// Vectors of a row that a CTA covers, as a power of two: all of a narrow row, so that few threads are idle, and at most
/// [`crate::elementwise::SUM_VECTORS`]. A thread stays in its columns, whose parameters it reads once.
#[inline]
pub const fn lanes_log2(vectors: u32) -> u32 {
    let mut log2 = 0;
    while (1 << log2) < vectors && (1 << log2) < crate::elementwise::SUM_VECTORS {
        log2 += 1;
    }
    log2
}

/// Rows that a CTA of `normalize`, `normalize_backward` and `combine` works on: eight a thread, or 32 of a matrix with so many
/// rows that there are CTAs enough, so that a thread reads what it wants to know of its columns for more of them.
#[inline]
pub const fn rows_per_cta(rows: u64, lanes_log2: u32) -> u32 {
    let rows_per_thread = if rows < 1 << 19 { 8 } else { 32 };
    rows_per_thread * (THREADS_PER_CTA >> lanes_log2)
}

/// CTAs in y of every kernel that walks a matrix of rows of `vectors` vectors.
#[inline]
pub const fn ctas_y(vectors: u32) -> u32 {
    vectors.div_ceil(1 << lanes_log2(vectors))
}

/// Rows of a thread that are in shared memory or on their way there: the one that it looks at and those that come next.
pub const STAGES: u32 = 4;

/// Bytes of dynamic shared memory of a kernel that walks so many matrices: a vector of each for every stage of every thread.
#[inline]
pub const fn walk_shared_bytes(matrices: u32) -> u32 {
    STAGES * matrices * THREADS_PER_CTA * VECTOR_BYTES
}

/// Vectors of a row of elements, `width` in each, and of its codes, of which there are `codes` a row: what the lanes of
/// `normalize_backward_coded` cover.
#[inline]
pub const fn coded_vectors(vectors: u32, codes: u32, width: u32) -> u32 {
    let of_codes = codes / width;
    if of_codes > vectors {
        of_codes
    } else {
        vectors
    }
}

/// Bytes of dynamic shared memory of `normalize_backward_coded`: what the walk wants, and after it room for the largest magnitudes.
pub const CODED_SHARED_BYTES: u32 = walk_shared_bytes(2) + largest_bytes(THREADS_PER_CTA);

/// Bytes of dynamic shared memory of `moments` and `moments_backward`: what the walk wants, and after it two planes of eight
/// floats a thread.
pub const MOMENTS_SHARED_BYTES: u32 = {
    let planes = THREADS_PER_CTA * 2 * 8 * 4;
    let walk = walk_shared_bytes(2);
    if planes > walk { planes } else { walk }
};

/// Bytes of dynamic shared memory of the kernels that finish: two planes of four floats a thread.
pub const FINISH_SHARED_BYTES: u32 = THREADS_PER_CTA * 2 * 4 * 4;

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! normalize_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Sums and sums of squares of columns.
                moments(MomentsParams): F16 = moments_f16, F32 = moments_f32, BF16 = moments_bf16;
                /// What the gradients of scale and shift are sums of.
                moments_backward(MomentsParams): F16 = moments_backward_f16, F32 = moments_backward_f32, BF16 = moments_backward_bf16;
                /// Mean and deviation of columns, and the running ones.
                finish_statistics(FinishParams): F16 = finish_statistics_f16, F32 = finish_statistics_f32, BF16 = finish_statistics_bf16;
                /// The normalised matrix.
                normalize(NormalizeParams): F16 = normalize_f16, F32 = normalize_f32, BF16 = normalize_bf16;
                /// The gradient of `normalize`.
                normalize_backward(NormalizeParams): F16 = normalize_backward_f16, F32 = normalize_backward_f32, BF16 = normalize_backward_bf16;
                /// The gradient of `normalize`, and its codes.
                normalize_backward_coded(NormalizeParams): F16 = normalize_backward_coded_f16, F32 = normalize_backward_coded_f32, BF16 = normalize_backward_coded_bf16;
                /// A weighted sum of two matrices.
                combine(CombineParams): F16 = combine_f16, F32 = combine_f32, BF16 = combine_bf16;
            }
            plain {
                /// The gradients of scale and shift.
                finish_gradients(FinishParams);
                /// The sum of all products.
                finish_dot(FinishParams);
                /// Mean and deviation from the running ones.
                running_statistics(FinishParams);
                /// Mean and deviation from those of parts.
                merge_statistics(MergeParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[normalize_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_about_a_shift() {
        // 5, 6, 7, 8 about 5.
        let [mean, variance] = moments(6.0, 14.0, 5.0, 4.0);
        assert_eq!((mean, variance), (6.5, 1.25));
        assert_eq!(
            moments(3.0, 2.999_999_8, 0.0, 3.0)[1],
            0.0,
            "never negative"
        );
        assert!(moments(f32::NAN, f32::NAN, 0.0, 2.0)[1].is_nan());
    }

    #[test]
    fn an_overflow_leaves_the_running_statistics() {
        assert_eq!(carry_on([0.0, 1.0], [2.0, 3.0], 4.0, 0.5), [1.0, 2.5]);
        for bad in [f32::NAN, f32::INFINITY] {
            assert_eq!(carry_on([0.5, 2.0], [bad, 1.0], 4.0, 0.1), [0.5, 2.0]);
            assert_eq!(carry_on([0.5, 2.0], [1.0, bad], 4.0, 0.1), [0.5, 2.0]);
        }
        assert_eq!(carry_on([0.0, 1.0], [2.0, 0.0], 1.0, 1.0), [2.0, 0.0]);
    }

    #[test]
    fn moments_of_parts_are_those_of_the_whole() {
        // 5; 6, 7, 8; nothing; 1, 3.
        let parts = [(1, 5.0, 0.0), (3, 7.0, 1.0), (0, 9.0, 9.0), (2, 2.0, 2.0)];
        let mut merged = Merged::default();
        for (rows, mean, _) in parts {
            merged.count(rows, mean);
        }
        for (rows, mean, variance) in parts {
            merged.spread(rows, mean, variance);
        }
        // numpy.var([5, 6, 7, 8, 1, 3])
        assert_eq!(merged.moments(), [5.0, (34.0 / 6.0) as f32]);
        assert_eq!(merged.rows(), 6.0);
        assert!(part_mean(1.0, [f32::INFINITY, 1.0]).is_nan());
        assert!(part_mean(1.0, [0.0, f32::NAN]).is_nan());
        assert_eq!(part_mean(1.0, [0.0, 1.0]), 1.0);
    }

    #[test]
    fn a_cta_covers_a_narrow_row() {
        let lanes: [u32; 7] = [0, 1, 2, 3, 8, 9, 1000].map(lanes_log2);
        assert_eq!(lanes, [0, 0, 1, 2, 3, 4, 4]);
    }
}
