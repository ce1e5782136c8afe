//! The loss, its gradient, and the count of right answers.
//!
//! A first kernel leaves one partial result a CTA, which a second one adds up in a fixed order. The words "vector" and
//! "padding" are those of [`crate::elementwise`], as are its rules on pointers.

use crate::elementwise::{THREADS_PER_CTA, rows_of_few_ctas};
use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// No class, or no split: the row is not selected.
pub const NO_TARGET: u32 = u32::MAX;

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
        /// Words of the optimiser's state: see [`crate::optimizer::state`]. For `cross_entropy` only.
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

/// Bytes of dynamic shared memory of the loss and its reductions: four words a warp.
pub const LOSS_SHARED_BYTES: u32 = THREADS_PER_CTA / WARP * 16;

/// Rows that a CTA of `cross_entropy` or `count_correct` works on: the same number for each of its sub-warps, at least
/// four, and so many that there are at most 2048 CTAs.
pub const fn loss_rows_per_cta(rows: u64, lanes_log2: u32) -> u32 {
    let sub_warps = THREADS_PER_CTA >> lanes_log2;
    let rows_of_each = rows_of_few_ctas(rows).div_ceil(sub_warps);
    sub_warps * if rows_of_each < 4 { 4 } else { rows_of_each }
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! loss_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Cross-entropy and its gradient.
                cross_entropy(LossParams): F16 = cross_entropy_f16, F32 = cross_entropy_f32, BF16 = cross_entropy_bf16;
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
