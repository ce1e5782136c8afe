//! SpMM without atomics (HalfGNN §4.3): edge-parallel, and vertex-parallel (§4.3.3).
//!
//! ```text
//!  edges      0 … 127 │ 128 … 255 │ 256 … 383 │ 384 … 511 ║ 512 …       a warp has 128 edges, a CTA 512
//!  sub-warps  │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ │ ║ │ │ │ │      F/8 lanes each, an equal share of the edges
//!  rows       aaaabbbbccccccccccccccccccddddddddddddddddddd ║ ddddeeee
//!             written──┘└──merged in shared memory──┘└──staged──┘        b: direct, c: by the CTA, d: by the follow-up
//! ```
//!
//! - [`policy`]: what a variant is made of: weights, scaling, accumulation.
//! - [`sums`]: what a row adds up to, and where it goes.
//! - [`lane`]: what one lane has of a row.
//! - [`lanes`]: which lanes are a sub-warp.
//! - [`rows`]: which row an edge is in, and which edges a sub-warp has: by starts of rows, or by the row ids of a COO.
//! - [`edge_parallel`]: stage 1 caches the edges in shared memory, stage 2 walks them, then the CTA merges what its
//!   sub-warps could not write.
//! - [`empty`]: rows without edges, which CTAs of the same launch write.
//! - [`epilogue`]: what becomes of a row where it is written.
//! - [`chunks`]: adds the parts of a row that crosses very many CTAs.
//! - [`follow_up`]: completes the rows that cross CTAs.
//! - [`additive`]: the gradient of additive attention, whose rows have features of their own.
//! - [`quantized`]: what is added up of rows of 8-bit codes.
//! - [`vertex_parallel`]: a warp a row and one launch, for small graphs with short rows; of the same policies.
//!
//! Each row is added up in an order that depends on the graph alone, so results repeat bit for bit.

pub mod additive;
pub mod chunks;
pub mod edge_parallel;
pub mod empty;
pub mod epilogue;
pub mod follow_up;
pub mod lane;
pub mod lanes;
pub mod policy;
pub mod quantized;
pub mod rows;
pub mod sums;
pub mod vertex_parallel;
