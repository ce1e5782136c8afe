//! Shadow operators (HalfGNN §4.4): functions of the rows of a matrix that take and give the matrix's own precision.

use crate::format::table;
use crate::heads::Heads;
use crate::{DevicePtr, EntrySpec, HalfBits, param_struct};

param_struct! {
    /// Parameters of the `shadow_` kernels. An element is widened to float in a register, computed with, and rounded once;
    /// no float of it is ever in memory. Padding of `x` is not read as elements, that of `y` is written as zero.
    ///
    /// | entry | row of `y` |
    /// |---|---|
    /// | `shadow_exp` | `exp(x)` |
    /// | `shadow_softmax` | `exp(x − max) / Σ exp(x − max)` |
    /// | `shadow_log_softmax` | `x − max − ln Σ exp(x − max)` |
    /// | `shadow_sum` | `Σ x`, one column |
    pub struct ShadowParams {
        /// How rows are dealt out: each is one head.
        pub rows: Heads,
        /// Input; [`HalfBits`], or floats for float entries.
        pub x: DevicePtr<HalfBits>,
        /// Output, not `x`; of the shape of `x`, or of one column.
        pub y: DevicePtr<HalfBits>,
        /// Columns of `x`, padding not counted.
        pub columns: u32,
        /// Factor of a sum.
        pub scale: f32,
    }
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! shadow_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Exponentials.
                shadow_exp(ShadowParams): F16 = shadow_exp_f16, F32 = shadow_exp_f32, BF16 = shadow_exp_bf16;
                /// Softmax of rows.
                shadow_softmax(ShadowParams): F16 = shadow_softmax_f16, F32 = shadow_softmax_f32, BF16 = shadow_softmax_bf16;
                /// Logarithm of the softmax of rows.
                shadow_log_softmax(ShadowParams): F16 = shadow_log_softmax_f16, F32 = shadow_log_softmax_f32, BF16 = shadow_log_softmax_bf16;
                /// Sums of rows.
                shadow_sum(ShadowParams): F16 = shadow_sum_f16, F32 = shadow_sum_f32, BF16 = shadow_sum_bf16;
            }
            plain {
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[shadow_entries!(table)];
