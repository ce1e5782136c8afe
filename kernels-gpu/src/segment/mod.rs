//! Segment reductions: one value a row from the values of its edges, without atomics.
//!
//! ```text
//!  edges      0 … 127     │ 128 … 255   │ 256 … 383       a warp has 128 edges, a lane four neighbours
//!  rows       aaabbbbbbbb │ bbbbbbbbbbb │ bbccccdd
//!             a → result    TAIL of 1     END of 2: b     a, c: by their warp
//!             TAIL of 0: b                c → result      b: TAIL of 0, TAIL of 1, END of 2, by the follow-up
//! ```
//!
//! - [`policy`]: what a variant is made of: where an edge's value comes from, and how values are joined.
//! - [`reduce`]: the first kernel, a segmented scan of each warp.
//! - [`follow_up`]: joins the parts of rows that cross warps, and writes the rows without edges.
//!
//! Each row is joined in an order that depends on the graph alone, so results repeat bit for bit.

mod follow_up;
mod policy;
mod reduce;

use crate::device::vector::{Float4, HalfVector8 as Half8};
use halfgnn_contract::attention::Softmax;
use halfgnn_contract::segment::SegmentParams;
use policy::{Gathered, Max, Plane, Product, Scores, Sum};

macro_rules! kernels {
    ($($entry:ident: $source:ident $(<$element:ident>)?, $monoid:ident;)*) => {$(
        #[doc = concat!("Segment reduction: ", stringify!($source, $monoid), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::segment`.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SegmentParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { reduce::run::<$source$(<$element>)?, $monoid>(&params) }
        }
    )*};
    ($($entry:ident: $monoid:ident;)*) => {$(
        #[doc = concat!("Follow-up of the segment reductions: ", stringify!($monoid), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::segment`, after a kernel of the same monoid.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SegmentParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { follow_up::run::<$monoid>(&params) }
        }
    )*};
}

halfgnn_contract::segment_entries!(kernels);
halfgnn_contract::segment_follow_up_entries!(kernels);
