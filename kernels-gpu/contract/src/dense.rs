//! Element-wise operators, the loss, and the optimiser.
//!
//! Matrices are row-major; rows are 16-byte aligned, their strides count 16-byte vectors, and what lies between the end
//! of a row and the next vector is padding: zero on input, written as zero. An element is widened to float, computed
//! with, and rounded once. Reductions leave one partial result a CTA, which a second kernel adds up in a fixed order.
//!
//! # Pointers
//! - A `DevicePtr<HalfBits>` is of halves for the entries that end in `_f16`, and of floats for those in `_f32`.
//! - Matrices and `partials` are aligned to 16 bytes, arrays to their element.
//! - A pointer is null only where its field says so, or where the kernel does not use it.
//! - What a kernel writes overlaps no other operand, except where the struct's page says so.

use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Threads of a CTA, in every kernel of this family.
pub const THREADS_PER_CTA: u32 = 128;

/// No class, or no split: the row is not selected.
pub const NO_TARGET: u32 = u32::MAX;

/// Vectors that a thread of an element-wise kernel works on.
pub const VECTORS_PER_THREAD: u32 = 4;

/// Bit of [`ActivateParams::flags`]: negative elements become zero. A NaN stays one.
pub const RELU: u32 = 1;
/// Bit of [`ActivateParams::flags`]: elements are dropped.
pub const DROPOUT: u32 = 2;

param_struct! {
    /// Parameters of `activate` and `activate_backward`.
    ///
    /// - `activate`: `y = dropout(relu(x + bias))`; `x` and `y` may be the same.
    /// - `activate_backward`: `y` holds the gradient of the output and becomes that of the input, times `row_scale`; `x`
    ///   is the stored output, read where there is a ReLU.
    ///
    /// An element is dropped where its number of [`crate::rng::dropout_bits`] is below `threshold`; others are
    /// multiplied by `keep_scale`.
    pub struct ActivateParams {
        /// Input, or stored output. `activate_backward` without [`RELU`] does not use it.
        pub x: DevicePtr<HalfBits>,
        /// Output, or gradient.
        pub y: DevicePtr<HalfBits>,
        /// A number for each column, or null. A matrix of one row: aligned to 16 bytes, and padded with zeros to a
        /// whole number of 16-byte vectors of floats. `activate_backward` does not use it.
        pub bias: DevicePtr<f32>,
        /// A factor of each row, or null for 1. `activate` does not use it.
        pub row_scale: DevicePtr<f32>,
        /// The step of the dropout's numbers, a word of the optimiser's state ([`state::ATTEMPTS`]): it lies on the device
        /// so that a step that was recorded once drops other elements whenever it is replayed. Read with [`DROPOUT`].
        pub step: DevicePtr<u32>,
        /// Rows.
        pub rows: u64,
        /// Rows of a CTA: [`rows_per_cta`].
        pub rows_per_cta: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows in 16-byte vectors, for both matrices: no vector lies between them.
        pub vectors: u32,
        /// [`RELU`], [`DROPOUT`].
        pub flags: u32,
        /// Key of the dropout's numbers.
        pub key: [u32; 2],
        /// Numbers below it drop their element.
        pub threshold: u32,
        /// Factor of what is kept.
        pub keep_scale: f32,
        /// What tells the row of a vector without a division: [`reciprocal`] of `vectors`.
        pub reciprocal: u32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of `column_sums`: row `c` of `sums` becomes the sum of rows `c · rows_per_cta ..` of `x`.
    ///
    /// Launched again on its own output until one row is left.
    pub struct ColumnSumsParams {
        /// Input.
        pub x: DevicePtr<HalfBits>,
        /// Output, one row a CTA in x, in float. Padding that lies past the input's own is not written.
        pub sums: DevicePtr<f32>,
        /// Rows of the input.
        pub rows: u64,
        /// Rows of a CTA.
        pub rows_per_cta: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows of the input in 16-byte vectors.
        pub vectors: u32,
        /// Distance of two rows of the output in 16-byte vectors.
        pub sum_vectors: u32,
    }
}

param_struct! {
    /// Parameters of `cross_entropy`, `count_correct` and their reductions.
    pub struct LossParams {
        /// One row a vertex, one column a class.
        pub logits: DevicePtr<HalfBits>,
        /// Gradient of the loss, the shape and stride of `logits`. For `cross_entropy` only.
        pub gradient: DevicePtr<HalfBits>,
        /// Class of each row. For `cross_entropy` [`NO_TARGET`] where the row is not selected.
        pub labels: DevicePtr<u32>,
        /// For `count_correct` only: 0, 1, 2 or [`NO_TARGET`] for each row.
        pub splits: DevicePtr<u32>,
        /// Words of the optimiser's state: see [`state`]. For `cross_entropy` only.
        pub state: DevicePtr<u32>,
        /// Four words a CTA: written by the first kernel, read by the reduction.
        pub partials: DevicePtr<u32>,
        /// For the reductions only: one float, or three counts.
        pub result: DevicePtr<u32>,
        /// Rows.
        pub rows: u64,
        /// Classes.
        pub columns: u32,
        /// Distance of two rows in 16-byte vectors.
        pub vectors: u32,
        /// Base-2 logarithm of the lanes that share a row.
        pub lanes_log2: u32,
        /// CTAs of the first kernel, which is the number of partials: a CTA for each `rows_per_cta` rows.
        pub ctas: u32,
        /// Number of selected rows.
        pub count: u32,
        /// Rows of a CTA: [`loss_rows_per_cta`].
        pub rows_per_cta: u32,
    }
}

/// Parameters of a model that one launch of `adam` or `check_finite` takes: most models take one launch each. They have to
/// fit the 4 KiB that a kernel's parameters may take.
pub const PARAMETERS_PER_LAUNCH: usize = 32;
const _: () = assert!(size_of::<AdamParams>() <= 4096);

param_struct! {
    /// A parameter of a model as the optimiser sees it: float matrices of one shape. Padding takes part: it is zero and
    /// stays so.
    pub struct AdamParameter {
        /// Gradient, times the loss scale.
        pub gradient: DevicePtr<f32>,
        /// Master weights. Like the moments and the copy, for `adam` only.
        pub master: DevicePtr<f32>,
        /// First moment.
        pub first_moment: DevicePtr<f32>,
        /// Second moment.
        pub second_moment: DevicePtr<f32>,
        /// Copy of the master weights, rounded to half by `adam_f16` and as it is by `adam_f32`, or null for none.
        /// What lies past the float row's own padding is not written: zero from the allocation on.
        pub rounded: DevicePtr<HalfBits>,
        /// Rows.
        pub rows: u64,
        /// Distance of two float rows in 16-byte vectors.
        pub vectors: u32,
        /// Distance of two rows of `rounded` in its elements, a whole number of 16-byte vectors.
        pub rounded_stride: u32,
        /// The first of the parameter's CTAs; there are [`optimizer_ctas`]. `u32::MAX` where there is no parameter.
        pub first_cta: u32,
        /// Zero.
        pub reserved: u32,
    }
}

impl AdamParameter {
    /// No parameter.
    pub const NONE: Self = Self {
        gradient: DevicePtr::NULL,
        master: DevicePtr::NULL,
        first_moment: DevicePtr::NULL,
        second_moment: DevicePtr::NULL,
        rounded: DevicePtr::NULL,
        rows: 0,
        vectors: 0,
        rounded_stride: 0,
        first_cta: u32::MAX,
        reserved: 0,
    };
}

param_struct! {
    /// Parameters of `adam` and `check_finite`.
    pub struct AdamParams {
        /// The model's parameters in the order of their CTAs, then [`AdamParameter::NONE`].
        pub parameters: [AdamParameter; PARAMETERS_PER_LAUNCH],
        /// Words of the optimiser's state: see [`state`].
        pub state: DevicePtr<u32>,
        /// Learning rate.
        pub learning_rate: f32,
        /// Decay of the first moment.
        pub beta1: f32,
        /// Decay of the second moment.
        pub beta2: f32,
        /// Added to the root of the second moment.
        pub epsilon: f32,
        /// L2 penalty.
        pub weight_decay: f32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of `end_step`: one thread.
    pub struct EndStepParams {
        /// Words of the optimiser's state: see [`state`].
        pub state: DevicePtr<u32>,
        /// Steps without overflow after which the loss scale doubles; 0 for never.
        pub growth_interval: u32,
        /// The loss scale never exceeds this.
        pub maximum: f32,
    }
}

/// Words of the optimiser's state.
pub mod state {
    /// Bits of the loss scale.
    pub const LOSS_SCALE: usize = 0;
    /// Steps that were taken.
    pub const STEPS: usize = 1;
    /// Steps that were skipped for an overflow.
    pub const SKIPPED: usize = 2;
    /// Steps since the loss scale changed.
    pub const SINCE_CHANGE: usize = 3;
    /// Not zero where a gradient of this step holds an infinity or a NaN.
    pub const OVERFLOW: usize = 4;
    /// Steps that were taken or skipped, which tells the dropout of one from that of the next.
    pub const ATTEMPTS: usize = 5;
    /// Number of words.
    pub const WORDS: usize = 6;

    /// The words after a step: an overflow halves the loss scale, down to the smallest normal float; `growth_interval`
    /// steps without one double it, up to `maximum`, and never where that is 0.
    #[inline]
    pub const fn end_step(
        mut words: [u32; WORDS],
        growth_interval: u32,
        maximum: f32,
    ) -> [u32; WORDS] {
        let scale = f32::from_bits(words[LOSS_SCALE]);
        words[ATTEMPTS] = words[ATTEMPTS].wrapping_add(1);
        if words[OVERFLOW] != 0 {
            words[OVERFLOW] = 0;
            words[SKIPPED] = words[SKIPPED].saturating_add(1);
            words[SINCE_CHANGE] = 0;
            let halved = scale * 0.5;
            // Never zero, by which no gradient could be divided again, nor so small that its reciprocal is infinite.
            words[LOSS_SCALE] = if halved > f32::MIN_POSITIVE {
                halved
            } else {
                f32::MIN_POSITIVE
            }
            .to_bits();
        } else {
            words[STEPS] = words[STEPS].saturating_add(1);
            words[SINCE_CHANGE] = words[SINCE_CHANGE].saturating_add(1);
            if words[SINCE_CHANGE] == growth_interval {
                words[SINCE_CHANGE] = 0;
                let doubled = scale * 2.0;
                words[LOSS_SCALE] = if doubled < maximum { doubled } else { maximum }.to_bits();
            }
        }
        words
    }
}

/// One step of Adam for one weight, as PyTorch's `Adam` takes it: constants of the step, then [`AdamStep::update`].
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    unscale: f32,
    step_size: f32,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    weight_decay: f32,
    root_correction: f32,
}

impl AdamStep {
    /// The step after `steps` others. `sqrt` is the correctly rounded square root, which `core` has no name for.
    #[inline]
    pub fn new(
        [learning_rate, beta1, beta2, epsilon, weight_decay]: [f32; 5],
        loss_scale: f32,
        steps: u32,
        sqrt: impl Fn(f32) -> f32,
    ) -> Self {
        let t = steps.saturating_add(1);
        Self {
            unscale: 1.0 / loss_scale,
            step_size: learning_rate / crate::math::bias_correction(beta1, t),
            beta1,
            beta2,
            epsilon,
            weight_decay,
            root_correction: sqrt(crate::math::bias_correction(beta2, t)),
        }
    }

    /// `[weight, first moment, second moment]` after the step.
    #[inline]
    pub fn update(
        &self,
        [weight, m, v]: [f32; 3],
        gradient: f32,
        sqrt: impl Fn(f32) -> f32,
    ) -> [f32; 3] {
        let g = gradient * self.unscale + self.weight_decay * weight;
        let m = self.beta1 * m + (1.0 - self.beta1) * g;
        let v = self.beta2 * v + (1.0 - self.beta2) * g * g;
        [
            weight - self.step_size * m / (sqrt(v) / self.root_correction + self.epsilon),
            m,
            v,
        ]
    }
}

/// Rows that a CTA of an element-wise kernel works on, for rows of `vectors` vectors.
pub const fn rows_per_cta(vectors: u32) -> u32 {
    let vectors_per_cta = THREADS_PER_CTA * VECTORS_PER_THREAD;
    if vectors == 0 || vectors >= vectors_per_cta {
        1
    } else {
        vectors_per_cta / vectors
    }
}

/// Bits behind the point of [`reciprocal`].
const RECIPROCAL_BITS: u32 = 20;

/// 1 / `vectors` for [`row_in_cta`], in fixed point and rounded up; 0 where a CTA has one row.
pub const fn reciprocal(vectors: u32) -> u32 {
    if rows_per_cta(vectors) == 1 {
        0
    } else {
        (1u32 << RECIPROCAL_BITS).div_ceil(vectors)
    }
}

/// `i / vectors` for a vector `i` of the rows of a CTA of an element-wise kernel.
#[inline]
pub const fn row_in_cta(i: u32, reciprocal: u32) -> u32 {
    // A CTA that has more than one row has less than 2¹⁰ vectors, so the product fits 32 bits; rounding up adds less
    // than 2⁻²⁰ for each, which together do not reach the next whole number, 1 / vectors away.
    i.wrapping_mul(reciprocal) >> RECIPROCAL_BITS
}

/// Partial results that one CTA adds up at the end, at most.
const MOST_PARTIALS: u64 = 2048;

/// Rows of a CTA such that there are at most [`MOST_PARTIALS`] CTAs.
const fn rows_of_few_ctas(rows: u64) -> u32 {
    let rows = rows.div_ceil(MOST_PARTIALS);
    // No memory holds so many rows.
    if rows > (1 << 31) {
        1 << 31
    } else {
        rows as u32
    }
}

/// Rows that a CTA of `column_sums` adds up: at least 64, and so many that there are at most 2048 CTAs.
pub const fn sum_rows_per_cta(rows: u64) -> u32 {
    let rows = rows_of_few_ctas(rows);
    if rows < 64 { 64 } else { rows }
}

/// Bytes of dynamic shared memory of `column_sums`: eight floats a thread.
pub const SUM_SHARED_BYTES: u32 = THREADS_PER_CTA * 8 * 4;

/// Vectors of a row that a CTA of `column_sums` covers, and so CTAs in y: `vectors.div_ceil(SUM_VECTORS)`.
pub const SUM_VECTORS: u32 = 16;

/// Bytes of dynamic shared memory of the loss and its reductions: four words a warp.
pub const LOSS_SHARED_BYTES: u32 = THREADS_PER_CTA / WARP * 16;

/// Rows that a CTA of `cross_entropy` or `count_correct` works on: the same number for each of its sub-warps, at least
/// four, and so many that there are at most 2048 CTAs.
pub const fn loss_rows_per_cta(rows: u64, lanes_log2: u32) -> u32 {
    let sub_warps = THREADS_PER_CTA >> lanes_log2;
    let rows_of_each = rows_of_few_ctas(rows).div_ceil(sub_warps);
    sub_warps * if rows_of_each < 4 { 4 } else { rows_of_each }
}

/// CTAs of `adam` or `check_finite` for a parameter: a thread for each of its float vectors.
pub const fn optimizer_ctas(rows: u64, vectors: u32) -> u64 {
    rows.saturating_mul(vectors as u64)
        .div_ceil(THREADS_PER_CTA as u64)
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! dense_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Bias, ReLU and dropout.
                activate(ActivateParams): F16 = activate_f16, F32 = activate_f32, BF16 = activate_bf16;
                /// The gradient of `activate`.
                activate_backward(ActivateParams): F16 = activate_backward_f16, F32 = activate_backward_f32, BF16 = activate_backward_bf16;
                /// Sums of columns.
                column_sums(ColumnSumsParams): F16 = column_sums_f16, F32 = column_sums_f32, BF16 = column_sums_bf16;
                /// Cross-entropy and its gradient.
                cross_entropy(LossParams): F16 = cross_entropy_f16, F32 = cross_entropy_f32, BF16 = cross_entropy_bf16;
                /// Right answers by split.
                count_correct(LossParams): F16 = count_correct_f16, F32 = count_correct_f32, BF16 = count_correct_bf16;
                /// Adam, and the copy of the weights that kernels read, if any.
                adam(AdamParams): F16 = adam_f16, F32 = adam_f32, BF16 = adam_bf16;
            }
            plain {
                /// The mean loss from its partial sums.
                reduce_loss(LossParams);
                /// The counts from their partial counts.
                reduce_counts(LossParams);
                /// The overflow flag.
                check_finite(AdamParams);
                /// The loss scale and the count of steps.
                end_step(EndStepParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[dense_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_scale_follows_overflows() {
        let start = [8.0f32.to_bits(), 0, 0, 0, 0, 0];
        let once = state::end_step(start, 2, 16.0);
        assert_eq!(once, [8.0f32.to_bits(), 1, 0, 1, 0, 1]);
        let twice = state::end_step(once, 2, 16.0);
        assert_eq!(twice, [16.0f32.to_bits(), 2, 0, 0, 0, 2]);
        let capped = state::end_step(state::end_step(twice, 2, 16.0), 2, 16.0);
        assert_eq!(capped, [16.0f32.to_bits(), 4, 0, 0, 0, 4]);
        let mut overflowed = capped;
        overflowed[state::OVERFLOW] = 1;
        assert_eq!(
            state::end_step(overflowed, 2, 16.0),
            [8.0f32.to_bits(), 4, 1, 0, 0, 5]
        );
    }

    #[test]
    fn the_loss_scale_stays_positive() {
        let mut words = [1.0f32.to_bits(), 0, 0, 0, 0, 0];
        for _ in 0..1000 {
            words[state::OVERFLOW] = 1;
            words = state::end_step(words, 1, 16.0);
        }
        let scale = f32::from_bits(words[state::LOSS_SCALE]);
        assert_eq!(scale, f32::MIN_POSITIVE);
        assert!((1.0 / scale).is_finite());
        words = state::end_step(words, 1, 16.0);
        assert_eq!(f32::from_bits(words[state::LOSS_SCALE]), 2.0 * scale);
    }

    #[test]
    fn an_interval_of_zero_keeps_the_loss_scale() {
        let mut words = [8.0f32.to_bits(), 0, 0, 0, 0, 0];
        for _ in 0..5 {
            words = state::end_step(words, 0, 16.0);
        }
        assert_eq!(words, [8.0f32.to_bits(), 5, 0, 5, 0, 5]);
        // Not even where the count ends.
        words[state::SINCE_CHANGE] = u32::MAX;
        assert_eq!(
            f32::from_bits(state::end_step(words, 0, 16.0)[state::LOSS_SCALE]),
            8.0
        );
    }

    #[test]
    fn rows_of_a_cta_are_at_least_one() {
        for vectors in [0, 1, 2, 75, 511, 512, 513, u32::MAX] {
            assert!(rows_per_cta(vectors) >= 1);
            assert!(vectors > 512 || rows_per_cta(vectors) * vectors <= 512);
        }
        assert_eq!(sum_rows_per_cta(1), 64);
        assert!(u64::from(u32::MAX).div_ceil(sum_rows_per_cta(u32::MAX as u64) as u64) <= 2048);
    }

    #[test]
    fn rows_are_found_without_a_division() {
        for vectors in 1..=600 {
            for i in 0..rows_per_cta(vectors) * vectors {
                assert_eq!(
                    row_in_cta(i, reciprocal(vectors)),
                    i / vectors,
                    "{i} / {vectors}"
                );
            }
        }
        assert_eq!(row_in_cta(u32::MAX - 1, reciprocal(u32::MAX)), 0);
        assert_eq!(reciprocal(0), 0);
    }

    #[test]
    fn rows_of_a_loss_are_dealt_out_evenly_to_few_ctas() {
        assert_eq!(loss_rows_per_cta(0, 0), 512);
        assert_eq!(loss_rows_per_cta(2708, 0), 512);
        assert_eq!(loss_rows_per_cta(2708, 5), 16);
        for lanes_log2 in 0..=5 {
            for rows in [1, 32_768, 32_769, 2_449_029, 111_059_956, 1 << 38] {
                let per_cta = loss_rows_per_cta(rows, lanes_log2);
                assert_eq!(per_cta % (THREADS_PER_CTA >> lanes_log2), 0);
                assert!(rows.div_ceil(per_cta as u64) <= MOST_PARTIALS, "{rows}");
            }
        }
        assert_eq!(loss_rows_per_cta(u64::MAX, 0) % THREADS_PER_CTA, 0);
    }
}
