//! What attention does to features of vertices, head by head: dots with vectors, their gradients, and means over heads.
//!
//! A matrix of features has `heads` heads of `head_vectors` 16-byte vectors each, side by side; its rows are `stride`
//! vectors apart. An element is widened to float, computed with, and rounded once. Numbers of vertices are planes of
//! floats, one a head, `rows` long, and those of destinations `destinations` long: they are of the first rows. Pointers are as in [`crate::elementwise`]: a `DevicePtr<HalfBits>` is of halves for the
//! entries that end in `_f16`, of floats for those in `_f32`, and matrices are aligned to 16 bytes.

use crate::elementwise::reciprocal;
use crate::format::table;
use crate::spmm::lanes_log2;
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Threads of a CTA, in every kernel of this family.
pub const THREADS_PER_CTA: u32 = 128;

/// Items, heads of rows, that each sub-warp works on, at least and at most: what a CTA does once is shared by so many.
const ITEMS_PER_SUB_WARP: [u64; 2] = [4, 16];

/// CTAs that fill any card many times, so that what the last of them leave idle is little: only where there are more has a sub-warp more than the
/// fewest items.
const ENOUGH_CTAS: u64 = 16_384;

/// Items of a CTA of several rows, at most: [`reciprocal`] is good for so many.
const MOST_ITEMS: u64 = 512;

param_struct! {
    /// How heads of rows are dealt out: a sub-warp each.
    pub struct Heads {
        /// Rows.
        pub rows: u64,
        /// Number of heads, at least 1.
        pub heads: u32,
        /// Vectors of a head, at least 1.
        pub head_vectors: u32,
        /// Distance of two rows in 16-byte vectors.
        pub stride: u32,
        /// Base-2 logarithm of the lanes of a sub-warp.
        pub lanes_log2: u32,
        /// Rows of a CTA.
        pub rows_per_cta: u32,
        /// [`reciprocal`] of `heads`, by which an item's row is found.
        pub reciprocal: u32,
    }
}

impl Heads {
    /// The geometry of `rows` rows of `heads` heads.
    #[inline]
    pub const fn new(rows: u64, heads: u32, head_vectors: u32, stride: u32) -> Self {
        let lanes_log2 = lanes_log2(head_vectors);
        let sub_warps = (THREADS_PER_CTA >> lanes_log2) as u64;
        let [least, most] = ITEMS_PER_SUB_WARP;
        let each = match rows.saturating_mul(heads as u64) / (ENOUGH_CTAS * sub_warps) {
            each if each < least => least,
            each if each > most => most,
            each => each,
        };
        let items = if sub_warps * each < MOST_ITEMS {
            (sub_warps * each) as u32
        } else {
            MOST_ITEMS as u32
        };
        Self {
            rows,
            heads,
            head_vectors,
            stride,
            lanes_log2,
            rows_per_cta: if heads < items { items / heads } else { 1 },
            reciprocal: reciprocal(heads),
        }
    }

    /// CTAs in x.
    #[inline]
    pub const fn ctas(&self) -> u64 {
        self.rows.div_ceil(self.rows_per_cta as u64)
    }
}

param_struct! {
    /// Parameters of `head_scores`: two dots of each head of each row, with its part of each row of `vectors`.
    pub struct HeadScoresParams {
        /// How the work is dealt out.
        pub heads: Heads,
        /// Features.
        pub x: DevicePtr<HalfBits>,
        /// Two rows, the stride of `x`.
        pub vectors: DevicePtr<HalfBits>,
        /// Dots of destinations with the first row; a plane a head.
        pub destination: DevicePtr<f32>,
        /// Dots with the second row; a plane a head.
        pub source: DevicePtr<f32>,
        /// Rows that are destinations: the first.
        pub destinations: u64,
    }
}

param_struct! {
    /// Parameters of `head_dots`: `y = a · (beta · b + gamma · c) + delta · u · v`, of each head of each row.
    ///
    /// Where there is a `d`, `u = a · d` is made in the same pass. Where there are `vectors`, the pass ends with that of `head_outer`,
    /// `b += destination · vectors[0] + y · vectors[1]`.
    ///
    /// And of `head_dots_sums`, which ends with that and makes `head_sums` of `a` in the same pass: row `c` of `sums` becomes, of the CTA's
    /// rows, `Σ destination · a` and then `Σ y · a`. It is of one head, of which a lane has no more than one vector.
    pub struct HeadDotsParams {
        /// How the work is dealt out.
        pub heads: Heads,
        /// Features.
        pub a: DevicePtr<HalfBits>,
        /// Features of the same shape.
        pub b: DevicePtr<HalfBits>,
        /// Features of the same shape, or null for none.
        pub c: DevicePtr<HalfBits>,
        /// Features of the same shape, or null where `u` is read and not written.
        pub d: DevicePtr<HalfBits>,
        /// Two rows, the stride of `b`, or null where `b` stays as it is.
        pub vectors: DevicePtr<HalfBits>,
        /// Numbers of destinations that the first of `vectors` is multiplied by.
        pub destination: DevicePtr<f32>,
        /// Numbers of vertices, or null for none.
        pub u: DevicePtr<f32>,
        /// Numbers of vertices, or null for 1.
        pub v: DevicePtr<f32>,
        /// Output, numbers of vertices.
        pub y: DevicePtr<f32>,
        /// Rows that are destinations: the first.
        pub destinations: u64,
        /// Factor of `b`.
        pub beta: f32,
        /// Factor of `c`.
        pub gamma: f32,
        /// Factor of `u · v`.
        pub delta: f32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// As of [`HeadOuterParams`], for `head_dots_sums`.
        pub sums: DevicePtr<f32>,
        /// As of [`HeadOuterParams`], likewise.
        pub sum_stride: u32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of `head_outer`: `x += d · vectors[0] + s · vectors[1]`, of each head of each row, where `d` and `s` are
    /// the row's numbers; `d` is zero where the row is no destination.
    ///
    /// And of `head_sums`: row `c` of `sums` becomes, of the CTA's rows, `Σ d · x` and then `Σ s · x`.
    pub struct HeadOuterParams {
        /// Features; the output of `head_outer`.
        pub x: DevicePtr<HalfBits>,
        /// Two rows, the stride of `x`. For `head_outer`.
        pub vectors: DevicePtr<HalfBits>,
        /// Number of each destination; a plane a head.
        pub destination: DevicePtr<f32>,
        /// Number of each vertex as source; a plane a head.
        pub source: DevicePtr<f32>,
        /// Output of `head_sums`: a row a CTA in x, of two rows of `sum_stride` floats. What lies past the columns is
        /// written as zero.
        pub sums: DevicePtr<f32>,
        /// Rows.
        pub rows: u64,
        /// Rows that are destinations: the first.
        pub destinations: u64,
        /// Rows of a CTA: [`crate::elementwise::rows_per_cta`] or [`crate::elementwise::sum_rows_per_cta`].
        pub rows_per_cta: u32,
        /// Vectors of a head, at least 1.
        pub head_vectors: u32,
        /// Distance of two rows in 16-byte vectors.
        pub stride: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows of `sums` in floats.
        pub sum_stride: u32,
        /// [`crate::elementwise::reciprocal`] of `stride`. For `head_outer`.
        pub reciprocal: u32,
    }
}

param_struct! {
    /// Parameters of `head_mean`, `y = scale · Σ_heads x`, and of its gradient `head_mean_backward`, which writes
    /// `scale · y` to each head of `x`.
    pub struct HeadMeanParams {
        /// Features with heads.
        pub x: DevicePtr<HalfBits>,
        /// One head; rows are `head_vectors` apart.
        pub y: DevicePtr<HalfBits>,
        /// Rows.
        pub rows: u64,
        /// Number of heads, at least 1.
        pub heads: u32,
        /// Vectors of a head, at least 1.
        pub head_vectors: u32,
        /// Distance of two rows of `x` in 16-byte vectors.
        pub stride: u32,
        /// Columns of `y`, padding not counted.
        pub columns: u32,
        /// Rows of a CTA: [`crate::elementwise::rows_per_cta`] of `head_vectors`.
        pub rows_per_cta: u32,
        /// [`crate::elementwise::reciprocal`] of `head_vectors`.
        pub reciprocal: u32,
        /// Factor of everything.
        pub scale: f32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Vectors of a row that a CTA of `head_sums` covers, and so CTAs in y.
pub const SUM_VECTORS: u32 = 16;

/// Vectors of a head of `head_dots_sums`, at most: one a lane.
pub const MOST_DOTS_SUM_VECTORS: u32 = WARP;

/// Bytes of dynamic shared memory of `head_sums` and `head_dots_sums`: two sums of eight floats a thread.
pub const SUM_SHARED_BYTES: u32 = THREADS_PER_CTA * 8 * 4 * 2;

const _: () = assert!(WARP <= THREADS_PER_CTA);

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! heads_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Scores of vertices as destination and as source.
                head_scores(HeadScoresParams): F16 = head_scores_f16, F32 = head_scores_f32, BF16 = head_scores_bf16;
                /// Dots of the heads of matrices, row by row, and what is made of them in the same pass.
                head_dots(HeadDotsParams): F16 = head_dots_f16, F32 = head_dots_f32, BF16 = head_dots_bf16;
                /// The same, and sums of rows weighted by what was made of them.
                head_dots_sums(HeadDotsParams): F16 = head_dots_sums_f16, F32 = head_dots_sums_f32, BF16 = head_dots_sums_bf16;
                /// Adds multiples of two vectors to the heads of each row.
                head_outer(HeadOuterParams): F16 = head_outer_f16, F32 = head_outer_f32, BF16 = head_outer_bf16;
                /// Sums of rows, weighted by two numbers of each head of each.
                head_sums(HeadOuterParams): F16 = head_sums_f16, F32 = head_sums_f32, BF16 = head_sums_bf16;
                /// The mean over the heads.
                head_mean(HeadMeanParams): F16 = head_mean_f16, F32 = head_mean_f32, BF16 = head_mean_bf16;
                /// The gradient of `head_mean`.
                head_mean_backward(HeadMeanParams): F16 = head_mean_backward_f16, F32 = head_mean_backward_f32, BF16 = head_mean_backward_bf16;
            }
            plain {
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[heads_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elementwise::row_in_cta;

    #[test]
    fn every_head_of_every_row_has_its_turn() {
        for heads in [1, 2, 3, 8, 511, 512, 513, 70_000] {
            for head_vectors in [1, 2, 3, 8, 31, 32, 33, 1000] {
                for rows in [1000, 1 << 20, 1 << 40] {
                    let geometry = Heads::new(rows, heads, head_vectors, heads * head_vectors);
                    assert!(geometry.rows_per_cta >= 1);
                    assert!(geometry.ctas() * geometry.rows_per_cta as u64 >= rows);
                    for item in 0..geometry.rows_per_cta * heads {
                        assert_eq!(row_in_cta(item, geometry.reciprocal), item / heads);
                    }
                }
            }
        }
        let rows_per_cta = |rows| Heads::new(rows, 1, 8, 8).rows_per_cta;
        assert_eq!(rows_per_cta(0), 64);
        assert_eq!(rows_per_cta(1 << 21), 128);
        assert_eq!(rows_per_cta(u64::MAX), 256);
    }
}
