//! Losses, their gradients, and the counts of right and wrong answers.
//!
//! A first kernel leaves one partial result a CTA, which a second one adds up in a fixed order. The words "vector" and
//! "padding" are those of [`crate::elementwise`], as are its rules on pointers.

use crate::elementwise::{THREADS_PER_CTA, rows_of_few_ctas};
use crate::format::table;
use crate::math::{exp, ln};
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Words of [`LossParams::result`] that a class has in each split, of `count_classes` and `count_labels`: how often it was told
/// rightly, told where it is not, and not told where it is.
pub const OUTCOMES: u32 = 3;

/// No class, or no split: the row is not selected.
pub const NO_TARGET: u32 = u32::MAX;

param_struct! {
    /// Parameters of the losses, the counts and their reductions.
    ///
    /// `cross_entropy` and `count_…` read a class of each row; the losses of single elements, `binary_cross_entropy`,
    /// `squared_error` and `absolute_error`, and `count_labels` read a matrix of targets.
    pub struct LossParams {
        /// One row a vertex, one column a class.
        pub logits: DevicePtr<HalfBits>,
        /// Gradient of the loss, the shape and stride of `logits`. For losses only.
        pub gradient: DevicePtr<HalfBits>,
        /// Class of each row. For losses [`NO_TARGET`] where the row is not selected; those of single elements read nothing
        /// else from it. Null for `count_labels`.
        pub labels: DevicePtr<u32>,
        /// For counts only: 0, 1, 2 or [`NO_TARGET`] for each row.
        pub splits: DevicePtr<u32>,
        /// Target of each element, in float, `target_vectors` vectors a row. For losses of single elements and `count_labels`.
        pub targets: DevicePtr<f32>,
        /// A factor for each column: of the rows of a class (`cross_entropy_weighted`), of the term of targets of 1
        /// (`binary_cross_entropy_weighted`).
        pub weights: DevicePtr<f32>,
        /// A factor for each row, or null where all count 1. For losses only.
        pub row_weights: DevicePtr<f32>,
        /// Words of the optimiser's state: see [`crate::optimizer::state`]. For losses only.
        pub state: DevicePtr<u32>,
        /// Four words a CTA: written by the first kernel, read by the reduction.
        pub partials: DevicePtr<u32>,
        /// For the reductions one float, or three counts. For `count_classes` and `count_labels` counts of three splits, each
        /// with [`OUTCOMES`] of each column, column by column, to which is added.
        pub result: DevicePtr<u32>,
        /// Rows.
        pub rows: u64,
        /// Classes, at least one.
        pub columns: u32,
        /// Distance of two rows in 16-byte vectors.
        pub vectors: u32,
        /// Base-2 logarithm of the lanes that share a row.
        pub lanes_log2: u32,
        /// CTAs of the first kernel, which is the number of partials: a CTA for each `rows_per_cta` rows.
        pub ctas: u32,
        /// What the sum of the losses is divided by: selected rows, the sum of their weights, selected elements, or what the caller
        /// says.
        pub divisor: f32,
        /// Rows of a CTA: [`loss_rows_per_cta`].
        pub rows_per_cta: u32,
        /// Distance of two rows of `targets` in vectors of four floats.
        pub target_vectors: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Bytes of dynamic shared memory of the loss and its reductions: four words a warp.
pub const LOSS_SHARED_BYTES: u32 = THREADS_PER_CTA / WARP * 16;

/// Rows that a CTA of `cross_entropy` or `count_correct` works on: the same number for each of its sub-warps, at least
/// four, and so many that there are at most 2048 CTAs.
#[inline]
pub const fn loss_rows_per_cta(rows: u64, lanes_log2: u32) -> u32 {
    let sub_warps = THREADS_PER_CTA >> lanes_log2;
    let rows_of_each = rows_of_few_ctas(rows).div_ceil(sub_warps);
    sub_warps * if rows_of_each < 4 { 4 } else { rows_of_each }
}

/// What an element of a binary cross-entropy costs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BinaryTerm {
    /// The loss.
    pub loss: f32,
    /// Its derivative by the logit.
    pub slope: f32,
}

/// Binary cross-entropy of the logit `x`, which should be `target`, 1 or 0 or between them; the term of 1 is multiplied by
/// `weight`: `(1 - y) · x + (1 + (w - 1) · y) · ln(1 + e⁻ˣ)`, as torch's `BCEWithLogitsLoss` with `pos_weight` has it. Both sides
/// compute it here, so they have the same bits.
#[inline]
pub const fn binary_term(x: f32, target: f32, weight: f32) -> BinaryTerm {
    let magnitude = if x < 0.0 { -x } else { x };
    let e = exp(-magnitude);
    let sum = 1.0 + e;
    let (sigmoid, below) = if x < 0.0 {
        (e / sum, -x)
    } else {
        (1.0 / sum, 0.0)
    };
    let positive = 1.0 + (weight - 1.0) * target;
    BinaryTerm {
        loss: (1.0 - target) * x + positive * (ln(sum) + below),
        slope: positive * sigmoid - weight * target,
    }
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! loss_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Cross-entropy and its gradient.
                cross_entropy(LossParams): F16 = cross_entropy_f16, F32 = cross_entropy_f32, BF16 = cross_entropy_bf16;
                /// Cross-entropy and its gradient, rows weighted by their class.
                cross_entropy_weighted(LossParams): F16 = cross_entropy_weighted_f16, F32 = cross_entropy_weighted_f32, BF16 = cross_entropy_weighted_bf16;
                /// Binary cross-entropy and its gradient.
                binary_cross_entropy(LossParams): F16 = binary_cross_entropy_f16, F32 = binary_cross_entropy_f32, BF16 = binary_cross_entropy_bf16;
                /// Binary cross-entropy and its gradient, targets of 1 weighted by their column.
                binary_cross_entropy_weighted(LossParams): F16 = binary_cross_entropy_weighted_f16, F32 = binary_cross_entropy_weighted_f32, BF16 = binary_cross_entropy_weighted_bf16;
                /// Squared errors and their gradient.
                squared_error(LossParams): F16 = squared_error_f16, F32 = squared_error_f32, BF16 = squared_error_bf16;
                /// Absolute errors and their gradient.
                absolute_error(LossParams): F16 = absolute_error_f16, F32 = absolute_error_f32, BF16 = absolute_error_bf16;
                /// Right and wrong answers by split and class.
                count_classes(LossParams): F16 = count_classes_f16, F32 = count_classes_f32, BF16 = count_classes_bf16;
                /// Right and wrong answers by split and label, where a row has any number of labels.
                count_labels(LossParams): F16 = count_labels_f16, F32 = count_labels_f32, BF16 = count_labels_bf16;
                /// Right answers by split.
                count_correct(LossParams): F16 = count_correct_f16, F32 = count_correct_f32, BF16 = count_correct_bf16;
            }
            plain {
                /// The mean loss from its partial sums.
                reduce_loss(LossParams);
                /// The counts from their partial counts.
                reduce_counts(LossParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[loss_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::MOST_PARTIALS;

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
