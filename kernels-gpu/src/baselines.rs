//! What stands beside other kernels in a comparison.

use crate::device::float::mul_add;
use crate::device::global::{Access, Global};
use crate::device::half;
use crate::device::thread::{block_idx_x, block_idx_y};
use crate::device::warp::{lane_id, sum, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::baselines::{
    EDGE_WARPS, EdgeByEdgeParams, GATHER_IN_FLIGHT, GATHER_WARPS, GatherParams,
};

/// The functions that the entries are, by name.
pub mod family {
    pub use super::{gather_8_bytes, gather_half8, sddmm_dgl_half};
}

const _: () = assert!(GATHER_IN_FLIGHT == 8, "two 16-byte loads of columns");

/// The speed of light of every kernel that gathers a row an edge: the loads, and nothing else.
///
/// # Safety
/// The launch contract of [`GatherParams`].
#[inline(always)]
pub unsafe fn gather_half8(params: &GatherParams) {
    // SAFETY: the caller's promise.
    unsafe { gather::<[u32; 4]>(params, fold) }
}

/// [`gather_half8`] of rows of 8 bytes.
///
/// # Safety
/// The launch contract of [`GatherParams`].
#[inline(always)]
pub unsafe fn gather_8_bytes(params: &GatherParams) {
    // SAFETY: the caller's promise.
    unsafe { gather::<[u32; 2]>(params, |[a, b]| a ^ b) }
}

/// # Safety
/// The launch contract of [`GatherParams`], for vectors of type `T`.
#[inline(always)]
unsafe fn gather<T: Access>(params: &GatherParams, fold: impl Fn(T) -> u32) {
    let warp = block_idx_x() as u64 * GATHER_WARPS as u64 + warp_id() as u64;
    let edges = params.edges as u64;
    let share = (params.edges_per_warp >> (5 - params.lanes_log2)) as u64;
    let first =
        warp * params.edges_per_warp as u64 + (lane_id() >> params.lanes_log2) as u64 * share;
    let end = (first + share).min(edges);
    let lanes = 1 << params.lanes_log2;
    let load = block_idx_y() * lanes + (lane_id() & (lanes - 1));
    let x = Global::<T>::new(params.x).at(load.min(params.loads - 1) as u64);
    let columns = Global::<u32>::new(params.columns);
    let mut seen = 0;
    let mut edge = first;
    // SAFETY: edges below `end` are edges of the graph, whose columns are rows of `x`; shares are multiples of 8, so the
    // columns of eight edges are aligned to 16 bytes.
    unsafe {
        while edge + GATHER_IN_FLIGHT as u64 <= end {
            let four = Global::<[u32; 4]>::cast(columns.at(edge));
            let (a, b): ([u32; 4], [u32; 4]) = (four.read(), four.at(1).read());
            let rows_a = a.map(|column| x.at(column as u64 * params.stride as u64).read());
            let rows_b = b.map(|column| x.at(column as u64 * params.stride as u64).read());
            for i in 0..4 {
                seen ^= fold(rows_a[i]) ^ fold(rows_b[i]);
            }
            edge += GATHER_IN_FLIGHT as u64;
        }
        while edge < end {
            let column = columns.at(edge).read();
            seen ^= fold(x.at(column as u64 * params.stride as u64).read());
            edge += 1;
        }
        if seen == 0x1234_5678 {
            Global::<u32>::new(params.sink).store(seen);
        }
    }
}

#[inline(always)]
fn fold(bits: [u32; 4]) -> u32 {
    bits[0] ^ bits[1] ^ bits[2] ^ bits[3]
}

/// SDDMM in DGL's way: a warp an edge, a half a lane at a time, and a tree of shuffles.
///
/// # Safety
/// The launch contract of [`EdgeByEdgeParams`].
#[inline(always)]
pub unsafe fn sddmm_dgl_half(params: &EdgeByEdgeParams) {
    let edge = block_idx_x() as u64 * EDGE_WARPS as u64 + warp_id() as u64;
    if edge >= params.edges as u64 {
        return;
    }
    // SAFETY: the edge is the graph's, and the same for all lanes of the warp; its ends are rows of `u` and `v`.
    unsafe {
        let row = Global::<u32>::new(params.rows).at(edge).read() as u64;
        let column = Global::<u32>::new(params.columns).at(edge).read() as u64;
        let u = Global::<u16>::new(params.u).at(row * params.u_stride as u64);
        let v = Global::<u16>::new(params.v).at(column * params.v_stride as u64);
        let mut products = 0.0;
        let mut feature = lane_id();
        while feature < params.features {
            products = mul_add(
                half::to_f32(u.at(feature as u64).read()),
                half::to_f32(v.at(feature as u64).read()),
                products,
            );
            feature += WARP;
        }
        let dot = sum(products);
        if lane_id() == 0 {
            let output = Global::<u16>::new(params.output).at(edge);
            output.store(half::from_f32(dot));
        }
    }
}
