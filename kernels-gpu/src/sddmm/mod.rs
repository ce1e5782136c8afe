//! SDDMM: a dot product for each edge (HalfGNN §4.2).
//!
//! ```text
//!  a tile of 128 edges, F = 64 halves: 8 lanes a sub-warp, 4 edges each, 16 edges a step
//!
//!  edges    0 1 2 3 │ 4 5 6 7 │ 8 … 11 │ 12 … 15 ║ 16 … 19 │ …          step 0 ║ step 1 …
//!           sub-warp 0 │ 1    │ 2      │ 3       ║ 0       │ …
//!  rows     a a a a │ a a b b │ b …                                    a: features kept from step to step
//!  lanes    each has 8 of the 64 products of its four edges: partial sums
//!           round 1: two shuffles, round 2: one, round 3: one          a tree for four edges
//! ```
//!
//! - [`policy`]: how partial sums are made and added up: by shuffles, or on tensor cores; and additive attention's scores.
//! - [`dot`]: the walk along the edges.
//! - [`combine`]: element by element, what needs no dot product.
//!
//! Stage 1 is [`crate::edges`]. Each edge is computed by lanes of one warp in a fixed order: results repeat bit for bit.

mod combine;
mod dot;
mod policy;

use crate::device::vector::{
    BFloatVector8 as BFloat8, Float4, HalfVector2 as Half2, HalfVector4 as Half4,
    HalfVector8 as Half8,
};
use halfgnn_contract::sddmm::{CombineParams, SddmmParams};
use policy::{Additive, InFloat, InHalf, Shuffles, TensorCores};

macro_rules! dot_entries {
    ($($entry:ident: $element:ident, $reduction:ident, $accumulate:ident, $wide:literal;)*) => {$(
        #[doc = concat!("SDDMM: ", stringify!($element, $reduction, $accumulate), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::sddmm`.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SddmmParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { dot::run::<$element, $reduction<$accumulate>, $wide>(&params) }
        }
    )*};
}

halfgnn_contract::sddmm_entries!(dot_entries);

/// The function that the other entries are, by name; four edges a thread.
mod family {
    pub use super::combine::run as sddmm_combine;
}

halfgnn_contract::sddmm_combine_entries!(entries);
