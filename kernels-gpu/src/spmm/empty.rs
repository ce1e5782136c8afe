//! Rows without edges: their sum is zero.

use super::epilogue::{InMemory, finish};
use super::lane::{Load, leads};
use super::lanes::{Lanes, Powers};
use super::policy::Scaling;
use super::sums::Sums;
use crate::device::global::Global;
use crate::device::thread::thread_idx_x;
use crate::device::vector::Vector;
use crate::device::warp::{ballot, lane_id};
use halfgnn_contract::WARP;
use halfgnn_contract::spmm::{EMPTY_ROWS_PER_CTA, SpmmParams, THREADS_PER_CTA, WARPS_PER_CTA};

/// Writes the lane's load of the `cta`-th part of the rows without edges, which are listed.
///
/// # Safety
/// The launch contract.
#[inline(always)]
pub unsafe fn clear<V: Vector, S: Scaling, T: Sums<V>, L: Lanes>(
    params: &SpmmParams,
    cta: u32,
    load: Load,
) {
    let first = cta * EMPTY_ROWS_PER_CTA;
    let end = first
        .saturating_add(EMPTY_ROWS_PER_CTA)
        .min(params.empty_count);
    if !L::EVEN && L::sub_warp(params, lane_id()) >= L::sub_warps(params) {
        return;
    }
    let mut at = first + L::of_cta(params, thread_idx_x());
    while at < end {
        // SAFETY: `at` is below the number of empty rows, each of which stands once in the list.
        unsafe {
            let row = Global::<u32>::new(params.empty_rows).at(at as u64).read();
            write::<V, S, T, L>(params, row, load);
        }
        at += WARPS_PER_CTA * L::sub_warps(params);
    }
}

/// The same where there is no list: of the `cta`-th part of all rows those that no edge is of. Each thread looks for a row among the
/// row ids.
///
/// # Safety
/// The launch contract, all threads of the CTA together.
#[inline(always)]
pub unsafe fn find_and_clear<V: Vector, S: Scaling, T: Sums<V>>(
    params: &SpmmParams,
    cta: u32,
    load: Load,
) {
    const { assert!(EMPTY_ROWS_PER_CTA == THREADS_PER_CTA, "a row a thread") };
    let row = cta * EMPTY_ROWS_PER_CTA + thread_idx_x();
    // The lane that has the first row of the sub-warp.
    let leader = lane_id() & !((1 << params.lanes_log2) - 1);
    // SAFETY: all threads come to the ballot, since what differs between them, the search, is inside its operand; a row is written by the one
    // sub-warp that looked for it.
    unsafe {
        let empty = ballot(row < params.vertices && !has_edges(params, row));
        let mut left = empty >> leader & u32::MAX >> (WARP - (1 << params.lanes_log2));
        while left != 0 {
            let lane = leader + left.trailing_zeros();
            write::<V, S, T, Powers>(params, row - lane_id() + lane, load);
            left &= left - 1;
        }
    }
}

/// Whether a row has edges, by halves.
///
/// # Safety
/// The launch contract, for an entry by row ids.
#[inline(always)]
unsafe fn has_edges(params: &SpmmParams, row: u32) -> bool {
    let ids = Global::<u32>::new(params.rows);
    let (mut low, mut high) = (0, params.edges);
    // SAFETY: `middle` is below the number of edges, and so is `low` where it is read.
    unsafe {
        while low < high {
            let middle = low + (high - low) / 2;
            if ids.at(middle as u64).read() < row {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low < params.edges && ids.at(low as u64).read() == row
    }
}

/// Writes the lane's load of row `row`, which has no edges.
///
/// # Safety
/// The launch contract; nobody else writes the row.
#[inline(always)]
unsafe fn write<V: Vector, S: Scaling, T: Sums<V>, L: Lanes>(
    params: &SpmmParams,
    row: u32,
    load: Load,
) {
    let addend = InMemory {
        params,
        row,
        load: load.index,
    };
    // SAFETY: the caller's promise.
    unsafe {
        let sums = finish::<V, S, T>(params, load.index, T::zero(), addend);
        sums.write(params, row, load, || leads::<L>(params));
    }
}
