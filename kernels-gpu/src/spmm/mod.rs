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
//! - [`follow_up`]: completes the rows that cross CTAs.
//! - [`additive`]: the gradient of additive attention, whose rows have features of their own.
//! - [`quantized`]: what is added up of rows of 8-bit codes.
//! - [`vertex_parallel`]: a warp a row and one launch, for small graphs with short rows; of the same policies.
//!
//! Each row is added up in an order that depends on the graph alone, so results repeat bit for bit.

mod additive;
mod edge_parallel;
mod empty;
mod epilogue;
mod follow_up;
mod lane;
mod lanes;
mod policy;
mod quantized;
mod rows;
mod sums;
mod vertex_parallel;

use crate::device::vector::{
    BFloatVector8 as BFloat8, Float4, HalfVector2 as Half2, HalfVector4 as Half4,
    HalfVector8 as Half8,
};
use additive::{Additive, BothAdditive};
use halfgnn_contract::spmm::SpmmParams;
use policy::{
    Atomic, Attention, AttentionGradient, BiasedAttention, BiasedAttentionGradient, BothInFloat,
    ColumnScale, Discretized, EdgeFeatures, EdgeFloats, Finished, InFloat, InHalf, Largest,
    Maximum, Ones, PostReduction, PreReduction, SignedAttention, SignedBiasedAttention,
    StoredAttention,
};
use quantized::{BothOfE4m3, BothOfInt8, E4m3InFloat, InInteger, Int8InFloat};
use rows::{InTurn, PackedStarts, RowIds, Starts};
use sums::{Both, One, Quantized, QuantizedBoth};

macro_rules! edge_parallel_entries {
    ($($entry:ident: $element:ident, $weight:ident, $scale:ident, $accumulate:ident;)*) => {$(
        #[doc = concat!("Edge-parallel SpMM: ", stringify!($element, $weight, $scale, $accumulate), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::spmm`.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SpmmParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { edge_parallel::run::<$element, $weight, $scale, $accumulate, Starts>(&params) }
        }
    )*};
}

macro_rules! packed_entries {
    ($($entry:ident: $element:ident, $weight:ident, $scale:ident, $accumulate:ident;)*) => {$(
        #[doc = concat!("Edge-parallel SpMM of packed lanes: ", stringify!($element, $weight, $scale, $accumulate), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::spmm`.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SpmmParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { edge_parallel::run::<$element, $weight, $scale, $accumulate, PackedStarts>(&params) }
        }
    )*};
}

macro_rules! row_id_entries {
    ($($entry:ident: $element:ident, $weight:ident, $scale:ident, $accumulate:ident;)*) => {$(
        #[doc = concat!("Edge-parallel SpMM by row ids: ", stringify!($element, $weight, $scale, $accumulate), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::spmm`.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SpmmParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { edge_parallel::run::<$element, $weight, $scale, $accumulate, RowIds>(&params) }
        }
    )*};
}

macro_rules! in_turn_entries {
    ($($entry:ident: $element:ident, $weight:ident, $scale:ident, $accumulate:ident;)*) => {$(
        #[doc = concat!("SpMM by row ids, edges in turn: ", stringify!($element, $weight, $scale, $accumulate), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::spmm`.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SpmmParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { edge_parallel::run::<$element, $weight, $scale, $accumulate, InTurn>(&params) }
        }
    )*};
}

macro_rules! vertex_parallel_entries {
    ($($entry:ident: $element:ident, $weight:ident, $scale:ident, $accumulate:ident;)*) => {$(
        #[doc = concat!("Vertex-parallel SpMM: ", stringify!($element, $weight, $scale, $accumulate), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::spmm`.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SpmmParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { vertex_parallel::run::<$element, $weight, $scale, $accumulate>(&params) }
        }
    )*};
}

macro_rules! follow_up_entries {
    ($($entry:ident: $element:ident, $scale:ident, $sums:ident;)*) => {$(
        #[doc = concat!("Follow-up of the SpMM: ", stringify!($element, $scale, $sums), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::spmm`, after the edge-parallel kernel of the same policies.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SpmmParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { follow_up::run::<$element, $scale, $sums<$element>, Starts>(&params) }
        }
    )*};
}

macro_rules! row_id_follow_up_entries {
    ($($entry:ident: $element:ident, $scale:ident, $sums:ident;)*) => {$(
        #[doc = concat!("Follow-up of the SpMM by row ids: ", stringify!($element, $scale, $sums), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::spmm`, after the kernel by row ids of the same policies.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SpmmParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { follow_up::run::<$element, $scale, $sums<$element>, RowIds>(&params) }
        }
    )*};
}

halfgnn_contract::spmm_entries!(edge_parallel_entries);
halfgnn_contract::spmm_packed_entries!(packed_entries);
halfgnn_contract::spmm_coo_entries!(row_id_entries);
halfgnn_contract::spmm_coo_in_turn_entries!(in_turn_entries);
halfgnn_contract::spmm_follow_up_entries!(follow_up_entries);
halfgnn_contract::spmm_coo_follow_up_entries!(row_id_follow_up_entries);
halfgnn_contract::spmm_vertex_entries!(vertex_parallel_entries);
