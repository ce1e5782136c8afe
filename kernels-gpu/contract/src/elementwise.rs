//! Element-wise operators, and sums of columns.
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
use crate::{DevicePtr, EntrySpec, HalfBits, param_struct};

/// Threads of a CTA, in every kernel of this family and of [`crate::loss`], [`crate::optimizer`] and [`crate::normalize`].
pub const THREADS_PER_CTA: u32 = 128;

/// Vectors that a thread of an element-wise kernel works on.
pub const VECTORS_PER_THREAD: u32 = 4;

/// Bit of [`ActivateParams::flags`]: negative elements become zero. A NaN stays one.
pub const RELU: u32 = 1;

/// Bit of [`ActivateParams::flags`]: what stands in the output is added to the input.
pub const SUM: u32 = 2;

param_struct! {
    /// A dropout: an element is dropped where its number of [`crate::rng::dropout_bits`] is below `threshold`; others are
    /// multiplied by `keep_scale`.
    pub struct DropoutParams {
        /// The step of the numbers, a word of the optimiser's state ([`ATTEMPTS`](crate::optimizer::state::ATTEMPTS)): it lies on the device
        /// so that a step that was recorded once drops other elements whenever it is replayed. Null where nothing is dropped.
        pub step: DevicePtr<u32>,
        /// Key of the numbers.
        pub key: [u32; 2],
        /// Numbers below it drop their element.
        pub threshold: u32,
        /// Factor of what is kept.
        pub keep_scale: f32,
    }
}

impl DropoutParams {
    /// Nothing is dropped.
    pub const NONE: Self = Self {
        step: DevicePtr::NULL,
        key: [0; 2],
        threshold: 0,
        keep_scale: 1.0,
    };
}

param_struct! {
    /// Parameters of `activate` and `activate_backward`.
    ///
    /// - `activate`: `y = dropout(relu(x + bias))`; `x` and `y` may be the same. With [`SUM`] it is `y = dropout(relu(x + y + bias))`.
    ///   With an `order` row `i` of `y` is of row `order[i]` of `x`, or of zeros where there is no such row; not with [`SUM`].
    /// - `activate_backward`: `y` holds the gradient of the output and becomes that of the input, times `row_scale`; `x`
    ///   is the stored output, read where there is a ReLU.
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
        /// What is dropped, if anything is.
        pub dropout: DropoutParams,
        /// Which row of `x` each of `y` is of, or null where `x` has the rows of `y`. `activate_backward` does not use it.
        pub order: DevicePtr<u32>,
        /// Rows.
        pub rows: u64,
        /// Rows of `x`, which are looked at with an `order`.
        pub x_rows: u64,
        /// Rows of a CTA: [`rows_per_cta`].
        pub rows_per_cta: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows in 16-byte vectors, of `y` and without an `order` of `x`: no vector lies between them.
        pub vectors: u32,
        /// [`RELU`], and of `activate` [`SUM`].
        pub flags: u32,
        /// What tells the row of a vector without a division: [`reciprocal`] of `vectors`.
        pub reciprocal: u32,
        /// Distance of two rows of `x` in 16-byte vectors, with an `order`.
        pub x_vectors: u32,
    }
}

param_struct! {
    /// Parameters of `drop_rows`: dropout of a part of a matrix, in place, with the numbers that the rows have in the whole.
    ///
    /// An element is dropped as `activate` drops that of row `vertices[row]`.
    pub struct DropRowsParams {
        /// Input and output.
        pub y: DevicePtr<HalfBits>,
        /// The number of each row.
        pub vertices: DevicePtr<u32>,
        /// What is dropped.
        pub dropout: DropoutParams,
        /// Rows.
        pub rows: u64,
        /// Rows of a CTA: [`rows_per_cta`].
        pub rows_per_cta: u32,
        /// Distance of two rows in 16-byte vectors: no vector lies between them.
        pub vectors: u32,
        /// [`reciprocal`] of `vectors`.
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
    /// Parameters of `sum_parts` and `largest_of_parts`: a float of `sums` becomes `factor` times the sum of that of each part, or
    /// the largest of them, from zero on and in their order, whatever the device. A thread for each.
    pub struct SumPartsParams {
        /// Parts of `len` floats, one behind the other.
        pub parts: DevicePtr<f32>,
        /// `len` floats.
        pub sums: DevicePtr<f32>,
        /// Floats of a part.
        pub len: u64,
        /// How many parts.
        pub count: u32,
        /// Factor of each.
        pub factor: f32,
    }
}

/// Rows that a CTA of an element-wise kernel works on, for rows of `vectors` vectors.
#[inline]
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
#[inline]
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
pub(crate) const MOST_PARTIALS: u64 = 2048;

/// Rows of a CTA such that there are at most [`MOST_PARTIALS`] CTAs.
#[inline]
pub(crate) const fn rows_of_few_ctas(rows: u64) -> u32 {
    let rows = rows.div_ceil(MOST_PARTIALS);
    // No memory holds so many rows.
    if rows > (1 << 31) {
        1 << 31
    } else {
        rows as u32
    }
}

/// Rows that a CTA of `column_sums` adds up: at least 64, and so many that there are at most 2048 CTAs.
#[inline]
pub const fn sum_rows_per_cta(rows: u64) -> u32 {
    let rows = rows_of_few_ctas(rows);
    if rows < 64 { 64 } else { rows }
}

/// Bytes of dynamic shared memory of `column_sums`: eight floats a thread.
pub const SUM_SHARED_BYTES: u32 = THREADS_PER_CTA * 8 * 4;

/// Vectors of a row that a CTA of `column_sums` covers, and so CTAs in y: `vectors.div_ceil(SUM_VECTORS)`.
pub const SUM_VECTORS: u32 = 16;

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! elementwise_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Bias, ReLU and dropout.
                activate(ActivateParams): F16 = activate_f16, F32 = activate_f32, BF16 = activate_bf16;
                /// The gradient of `activate`.
                activate_backward(ActivateParams): F16 = activate_backward_f16, F32 = activate_backward_f32, BF16 = activate_backward_bf16;
                /// Dropout of some rows of a matrix.
                drop_rows(DropRowsParams): F16 = drop_rows_f16, F32 = drop_rows_f32, BF16 = drop_rows_bf16;
                /// Sums of columns.
                column_sums(ColumnSumsParams): F16 = column_sums_f16, F32 = column_sums_f32, BF16 = column_sums_bf16;
            }
            plain {
                /// Sums of what several ranks have.
                sum_parts(SumPartsParams);
                /// The largest float of parts, none of which is negative.
                largest_of_parts(SumPartsParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[elementwise_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

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
}
