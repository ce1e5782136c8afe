//! The entries of the SpMM: one for each row of the contract's lists.
#![allow(unused_imports, unused_macros)] // where the build has none of the entries

use halfgnn_contract::spmm::SpmmParams;
use halfgnn_kernels::device::vector::{
    BFloatVector8 as BFloat8, Float4, HalfVector2 as Half2, HalfVector4 as Half4,
    HalfVector8 as Half8,
};
use halfgnn_kernels::spmm::additive::{Additive, BothAdditive};
use halfgnn_kernels::spmm::policy::{
    Atomic, Attention, AttentionGradient, BiasedAttention, BiasedAttentionGradient, BothInFloat,
    ColumnScale, Discretized, EdgeFeatures, EdgeFloats, Finished, InFloat, InHalf, Largest,
    Maximum, Ones, PostReduction, PreReduction, SignedAttention, SignedBiasedAttention,
    StoredAttention,
};
use halfgnn_kernels::spmm::quantized::{
    BothOfE4m3, BothOfInt8, E4m3InFloat, InInteger, Int8InFloat,
};
use halfgnn_kernels::spmm::rows::{InTurn, PackedStarts, RowIds, Starts};
use halfgnn_kernels::spmm::sums::{Both, One, Quantized, QuantizedBoth};
use halfgnn_kernels::spmm::{chunks, edge_parallel, follow_up, vertex_parallel};

/// Makes a macro of the entries whose warps have edges in one order, from lists of policies.
macro_rules! edge_parallel {
    ($dollar:tt $($list:ident: $order:ident, $about:literal;)*) => {$(
        macro_rules! $list {
            ($dollar($dollar entry:ident: $dollar element:ident, $dollar weight:ident, $dollar scale:ident, $dollar accumulate:ident;)*) => {$dollar(
                #[doc = concat!($about, stringify!($dollar element, $dollar weight, $dollar scale, $dollar accumulate), ".")]
                ///
                /// # Safety
                /// The launch contract in `halfgnn_contract::spmm`.
                #[cfg($dollar entry)]
                #[unsafe(no_mangle)]
                pub unsafe extern "ptx-kernel" fn $dollar entry(params: SpmmParams) {
                    // SAFETY: the host keeps the launch contract.
                    unsafe {
                        edge_parallel::run::<$dollar element, $dollar weight, $dollar scale, $dollar accumulate, $order>(&params)
                    }
                }
            )*};
        }
    )*};
}

/// The same of the follow-up kernels.
macro_rules! follow_up {
    ($dollar:tt $($list:ident: $order:ident, $about:literal;)*) => {$(
        macro_rules! $list {
            ($dollar($dollar entry:ident: $dollar element:ident, $dollar scale:ident, $dollar sums:ident;)*) => {$dollar(
                #[doc = concat!($about, stringify!($dollar element, $dollar scale, $dollar sums), ".")]
                ///
                /// # Safety
                /// The launch contract in `halfgnn_contract::spmm`, after the edge-parallel kernel of the same policies.
                #[cfg($dollar entry)]
                #[unsafe(no_mangle)]
                pub unsafe extern "ptx-kernel" fn $dollar entry(params: SpmmParams) {
                    // SAFETY: the host keeps the launch contract.
                    unsafe { follow_up::run::<$dollar element, $dollar scale, $dollar sums<$dollar element>, $order>(&params) }
                }
            )*};
        }
    )*};
}

/// The same of the kernels that add chunks of long rows.
macro_rules! chunks {
    ($dollar:tt $($list:ident: $order:ident, $about:literal;)*) => {$(
        macro_rules! $list {
            ($dollar($dollar entry:ident: $dollar scale:ident;)*) => {$dollar(
                #[doc = concat!($about, stringify!($dollar scale), ".")]
                ///
                /// # Safety
                /// The launch contract in `halfgnn_contract::spmm`, between an edge-parallel kernel and its follow-up.
                #[cfg($dollar entry)]
                #[unsafe(no_mangle)]
                pub unsafe extern "ptx-kernel" fn $dollar entry(params: SpmmParams) {
                    // SAFETY: the host keeps the launch contract.
                    unsafe { chunks::run::<$dollar scale, $order>(&params) }
                }
            )*};
        }
    )*};
}

edge_parallel! { $
    edge_parallel_entries: Starts, "Edge-parallel SpMM: ";
    packed_entries: PackedStarts, "Edge-parallel SpMM of packed lanes: ";
    row_id_entries: RowIds, "Edge-parallel SpMM by row ids: ";
    in_turn_entries: InTurn, "SpMM by row ids, edges round-robin: ";
}

follow_up! { $
    follow_up_entries: Starts, "Follow-up of the SpMM: ";
    row_id_follow_up_entries: RowIds, "Follow-up of the SpMM by row ids: ";
}

chunks! { $
    chunk_entries: Starts, "Chunks of long rows of the SpMM: ";
    row_id_chunk_entries: RowIds, "Chunks of long rows of the SpMM by row ids: ";
}

macro_rules! vertex_parallel_entries {
    ($($entry:ident: $element:ident, $weight:ident, $scale:ident, $accumulate:ident;)*) => {$(
        #[doc = concat!("Vertex-parallel SpMM: ", stringify!($element, $weight, $scale, $accumulate), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::spmm`.
        #[cfg($entry)]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: SpmmParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { vertex_parallel::run::<$element, $weight, $scale, $accumulate>(&params) }
        }
    )*};
}

halfgnn_contract::spmm_entries!(edge_parallel_entries);
halfgnn_contract::spmm_packed_entries!(packed_entries);
halfgnn_contract::spmm_coo_entries!(row_id_entries);
halfgnn_contract::spmm_coo_in_turn_entries!(in_turn_entries);
halfgnn_contract::spmm_follow_up_entries!(follow_up_entries);
halfgnn_contract::spmm_coo_follow_up_entries!(row_id_follow_up_entries);
halfgnn_contract::spmm_chunk_entries!(chunk_entries);
halfgnn_contract::spmm_coo_chunk_entries!(row_id_chunk_entries);
halfgnn_contract::spmm_vertex_entries!(vertex_parallel_entries);
