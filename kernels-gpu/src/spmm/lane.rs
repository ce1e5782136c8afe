//! What one lane has of a row: one load of its features, and the sums that its sub-warp shares with others.

use super::policy::{Scaling, Weights};
use super::sums::Sums;
use crate::device::thread::{block_idx_y, block_idx_z, thread_idx_x};
use crate::device::vector::Vector;
use crate::device::warp::shuffle_xor;
use halfgnn_contract::WARP;
use halfgnn_contract::spmm::SpmmParams;

/// Which load of a row is the lane's, in the CTA's tile of the features (y) and head (z), for weights `W`; and whether the
/// row has such a load. Idle lanes read another's and write nothing.
#[inline(always)]
pub fn load_of<W: Weights>(params: &SpmmParams) -> (u32, bool) {
    let lanes = 1 << params.lanes_log2;
    let load = block_idx_y() * lanes + (thread_idx_x() & (lanes - 1));
    let (first, loads) = if W::BY_HEAD {
        (block_idx_z() * params.head_loads, params.head_loads)
    } else {
        (0, params.feature_loads)
    };
    (first + load.min(loads - 1), load < loads)
}

/// Whether the lane has the first load of its head.
#[inline(always)]
pub fn leads(params: &SpmmParams) -> bool {
    block_idx_y() == 0 && thread_idx_x() & ((1 << params.lanes_log2) - 1) == 0
}

/// What the sub-warps of a warp have of one row, merged as a tree; every sub-warp gets the whole.
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn merge_sub_warps<V: Vector, S: Scaling, T: Sums<V>>(
    params: &SpmmParams,
    mut sums: T,
) -> T {
    let mut distance = WARP / 2;
    while distance >= 1 << params.lanes_log2 {
        // SAFETY: the loops are the same for every lane, and the caller promises that all of them are here.
        let other = sums.map(|_, value| unsafe { shuffle_xor(value, distance) });
        sums = sums.merge::<S>(other);
        distance /= 2;
    }
    sums
}
