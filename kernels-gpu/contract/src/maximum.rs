//! Maxima: of two matrices element by element, and of the rows of each group column by column; and their gradients.
//!
//! Matrices and the words "vector" and "padding" are those of [`crate::elementwise`], groups those of [`crate::norms`]. A gradient goes
//! to the first of what is as large as the maximum, so that each element has one that it came from.

use crate::elementwise::THREADS_PER_CTA;
use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, param_struct};

/// Vectors of a thread of the kernels that go element by element.
pub const VECTORS_PER_THREAD: u32 = 4;

/// Vectors of a CTA of those.
pub const VECTORS_PER_CTA: u32 = THREADS_PER_CTA * VECTORS_PER_THREAD;

param_struct! {
    /// Parameters of `maximum` and `maximum_backward`, [`VECTORS_PER_CTA`] vectors a CTA.
    ///
    /// - `maximum`: `y` becomes the larger of `x` and `y`.
    /// - `maximum_backward`: where `x` is as large as `y`, `dx` becomes `d`, and `d` zero; elsewhere `dx` becomes zero.
    pub struct MaximumParams {
        /// One of the matrices.
        pub x: DevicePtr<HalfBits>,
        /// The largest so far; of all, for the gradient.
        pub y: DevicePtr<HalfBits>,
        /// What nobody before has taken of the gradient of `y`. Used by the gradient, as is `dx`.
        pub d: DevicePtr<HalfBits>,
        /// The gradient of `x`.
        pub dx: DevicePtr<HalfBits>,
        /// Vectors of each, padding included.
        pub vectors: u64,
    }
}

param_struct! {
    /// Parameters of `group_maximum` and `group_maximum_backward`, a thread a vector of a group's row.
    ///
    /// - `group_maximum`: `y` becomes the largest of the rows of each group; zero of a group without rows.
    /// - `group_maximum_backward`: `dx` becomes `d` of its group where `x` is the first that is as large as `y`, else zero.
    pub struct GroupMaximumParams {
        /// The rows.
        pub x: DevicePtr<HalfBits>,
        /// A row a group.
        pub y: DevicePtr<HalfBits>,
        /// The gradient of `y`. Used by the gradient, as is `dx`.
        pub d: DevicePtr<HalfBits>,
        /// The gradient of `x`, its shape.
        pub dx: DevicePtr<HalfBits>,
        /// [`GROUP_WORDS`](crate::norms::GROUP_WORDS) a group, aligned to 16 bytes.
        pub groups: DevicePtr<u32>,
        /// The number of groups.
        pub count: u32,
        /// Groups of a CTA: [`groups_per_cta`].
        pub groups_per_cta: u32,
        /// Distance of two rows in 16-byte vectors.
        pub vectors: u32,
        /// [`reciprocal`](crate::elementwise::reciprocal) of `vectors`.
        pub reciprocal: u32,
    }
}

/// Groups of a CTA, for rows of so many vectors: a vector a thread, where several rows find room.
#[inline]
pub const fn groups_per_cta(vectors: u32) -> u32 {
    if vectors == 0 || vectors >= THREADS_PER_CTA {
        1
    } else {
        THREADS_PER_CTA / vectors
    }
}

/// The larger of two; NaN if either is one.
#[inline]
pub const fn larger(x: f32, y: f32) -> f32 {
    if x > y || x.is_nan() { x } else { y }
}

/// What an element of this size takes of a gradient, and what it leaves to those after it.
#[inline]
pub const fn share(x: f32, largest: f32, gradient: f32) -> [f32; 2] {
    if x == largest {
        [gradient, 0.0]
    } else {
        [0.0, gradient]
    }
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! maximum_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// The larger of two matrices.
                maximum(MaximumParams): F16 = maximum_f16, F32 = maximum_f32, BF16 = maximum_bf16;
                /// The gradient of one of them.
                maximum_backward(MaximumParams): F16 = maximum_backward_f16, F32 = maximum_backward_f32, BF16 = maximum_backward_bf16;
                /// The largest of the rows of each group.
                group_maximum(GroupMaximumParams): F16 = group_maximum_f16, F32 = group_maximum_f32, BF16 = group_maximum_bf16;
                /// The gradient of the rows.
                group_maximum_backward(GroupMaximumParams): F16 = group_maximum_backward_f16, F32 = group_maximum_backward_f32, BF16 = group_maximum_backward_bf16;
            }
            plain {
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[maximum_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nan_is_the_largest() {
        assert_eq!(larger(1.0, 2.0), 2.0);
        assert_eq!(larger(f32::NEG_INFINITY, -3.0), -3.0);
        assert!(larger(f32::NAN, 1.0).is_nan() && larger(1.0, f32::NAN).is_nan());
    }

    #[test]
    fn a_gradient_goes_to_one() {
        assert_eq!(share(2.0, 2.0, 3.0), [3.0, 0.0]);
        assert_eq!(share(1.0, 2.0, 3.0), [0.0, 3.0]);
    }

    #[test]
    fn groups_fill_a_cta() {
        assert_eq!(
            [0, 1, 8, 127, 128, 600].map(groups_per_cta),
            [1, 128, 16, 1, 1, 1]
        );
    }
}
