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

pub mod combine;
pub mod dot;
pub mod policy;

/// The function that the other entries are, by name; four edges a thread.
pub mod family {
    pub use super::combine::run as sddmm_combine;
}
