//! Offsets from the rows of edges, rows of edges from offsets, bits where rows start, and factors of degrees.

use crate::device::float::sqrt;
use crate::device::global::{Access, Global};
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, global_idx_x, sync_threads, thread_idx_x};
use crate::device::warp::{ballot, lane_id, shuffle_up, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::construct::{
    ConstructParams, DegreeParams, THREADS_PER_CTA, WARPS_PER_CTA, degree_factor,
};

/// How many of the ascending elements `first .. end` are below `bound`, `first` added.
///
/// # Safety
/// The elements lie in the buffer, and nothing writes them during the launch.
#[inline(always)]
unsafe fn lower_bound<T: Access + PartialOrd>(
    of: Global<T>,
    mut first: u64,
    mut end: u64,
    bound: T,
) -> u64 {
    while first < end {
        let middle = first + (end - first) / 2;
        // SAFETY: the caller's promise.
        if unsafe { of.at(middle).read() } < bound {
            first = middle + 1;
        } else {
            end = middle;
        }
    }
    first
}

/// # Safety
/// The launch contract of [`ConstructParams`]: a thread for each offset.
#[inline(always)]
pub unsafe fn row_offsets(params: &ConstructParams) {
    let row = global_idx_x();
    if row <= params.row_count {
        let rows = Global::<u32>::new(params.rows);
        // SAFETY: the caller's promise; an offset is one thread's. What has the row behind the last, or more, is no edge.
        unsafe {
            let first = if row <= u32::MAX as u64 {
                lower_bound(rows, 0, params.edges, row as u32)
            } else {
                params.edges
            };
            Global::<u64>::new(params.offsets).at(row).store(first);
        }
    }
}

/// # Safety
/// The launch contract of [`ConstructParams`]: a thread for each edge, [`THREADS_PER_CTA`] a CTA, and two words of shared
/// memory.
#[inline(always)]
pub unsafe fn row_ids(params: &ConstructParams) {
    let first = block_idx_x() as u64 * THREADS_PER_CTA as u64;
    let last = (first + THREADS_PER_CTA as u64).min(params.edges) - 1;
    let edge = first + thread_idx_x() as u64;
    // Row `r` has edge `e` where `ends[r - 1] <= e < ends[r]`.
    let ends = Global::<u64>::new(params.offsets).at(1);
    // SAFETY: the caller's promise: a CTA has an edge; the range of its rows is found by two threads of different warps,
    // and read behind a barrier.
    unsafe {
        if lane_id() == 0 && warp_id() < 2 {
            let edge = if warp_id() == 0 { first } else { last };
            let row = lower_bound(ends, 0, params.row_count, edge + 1);
            Shared::base().offset(warp_id() * 4).store_u32(row as u32);
        }
        sync_threads();
        if edge < params.edges {
            let [from, to] = Shared::base().load_u32x2();
            let row = lower_bound(ends, from as u64, to as u64, edge + 1);
            Global::<u32>::new(params.rows).at(edge).store(row as u32);
        }
    }
}

/// # Safety
/// The launch contract of [`ConstructParams`]: a warp for each word of starts, [`WARPS_PER_CTA`] a CTA.
#[inline(always)]
pub unsafe fn row_starts(params: &ConstructParams) {
    let word = block_idx_x() as u64 * WARPS_PER_CTA as u64 + warp_id() as u64;
    if word >= params.results {
        return;
    }
    let edge = word * WARP as u64 + lane_id() as u64;
    let rows = Global::<u32>::new(params.rows);
    // SAFETY: the caller's promise; all lanes of the warp come along, and a word is one warp's.
    unsafe {
        let row = if edge < params.edges {
            rows.at(edge).read()
        } else {
            0
        };
        let mut before = shuffle_up(row, 1);
        if lane_id() == 0 && edge > 0 && edge <= params.edges {
            before = rows.at(edge - 1).read();
        }
        let is_start = edge == params.edges || edge < params.edges && (edge == 0 || row != before);
        let bits = ballot(is_start);
        if lane_id() == 0 {
            Global::<u32>::new(params.starts).at(2 * word).store(bits);
        }
    }
}

/// # Safety
/// The launch contract of [`DegreeParams`]: a thread for each row.
#[inline(always)]
pub unsafe fn degree_factors(params: &DegreeParams) {
    let row = global_idx_x();
    if row < params.row_count {
        let first = Global::<u64>::new(params.offsets).at(row);
        // SAFETY: the caller's promise: there is an offset more than rows; a factor is one thread's.
        unsafe {
            let degree = first.at(1).read() - first.read();
            let factor = degree_factor(degree, params.power, sqrt);
            Global::<f32>::new(params.factors).at(row).store(factor);
        }
    }
}
