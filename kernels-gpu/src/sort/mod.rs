//! Pairs in the order of their keys: a pass of a stable radix sort, and groups of few pairs.
//!
//! ```text
//!  pairs of a warp     32      32      32   …        in turn: lanes of one digit find each other, the first counts them
//!  counts        [digit][warp] in shared memory   →  [digit][CTA] in global memory   →  prefix sums
//!  place of a pair     those before its CTA  +  those of the CTA's warps before  +  those of the warp before it
//! ```
//! - [`passes`]: the count, and the move, which counts again instead of keeping what it knows in registers.
//! - [`groups`]: another way, for a hundred thousand pairs in about as many groups: one count of each key.

pub mod groups;
mod passes;

/// The functions that the entries are, by name.
pub mod family {
    pub use super::groups::{group_count, group_order, group_order_long, group_place};
    pub use super::passes::{sort_count, sort_move};
}
