//! The follow-up kernel: rows that cross CTAs. Of a [long](Crossing::is_long) one it finds a part a chunk.

use super::epilogue::{InMemory, finish};
use super::lane::{Load, merge_sub_warps};
use super::policy::Scaling;
use super::rows::{Crossing, Crossings, scale_of};
use super::sums::Sums;
use crate::device::thread::{block_idx_x, block_idx_y, block_idx_z, thread_idx_x};
use crate::device::vector::Vector;
use crate::device::warp::{ballot, lane_id, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::spmm::{STAGED_END, STAGED_TAIL, SpmmParams, WARPS_PER_CTA};

/// Partial rows that a sub-warp has in flight at once. Most rows have one, and what a launch takes is how many warps wait for it at a time.
const IN_FLIGHT: u32 = 2;

/// Partial rows that one sub-warp adds up alone; the warp shares longer rows out to all of its sub-warps.
const ALONE: u32 = 4 * IN_FLIGHT;

/// One sub-warp for each CTA of the edge-parallel kernel but the first: it completes the row that began before that CTA
/// and ends in it, where there is one.
///
/// # Safety
/// The launch contract of [`SpmmParams`]: `follow_up_ctas` CTAs in x, feature tiles in y, heads in z, of
/// `THREADS_PER_CTA` threads, after the edge-parallel kernel.
#[inline(always)]
pub unsafe fn run<V: Vector, S: Scaling, T: Sums<V>, C: Crossings>(params: &SpmmParams) {
    let lanes = 1 << params.lanes_log2;
    let load = block_idx_y() * lanes + (thread_idx_x() & (lanes - 1));
    let lane = Lane {
        load: Load::new::<V>(
            params,
            block_idx_z() * params.head_loads,
            load,
            params.head_loads,
        ),
        leads: load == 0,
        sub_warp: lane_id() >> params.lanes_log2,
        sub_warps: WARP >> params.lanes_log2,
    };
    let first = 1 + (block_idx_x() * WARPS_PER_CTA + warp_id()) * lane.sub_warps;
    // SAFETY: the caller's promise; all lanes of a warp come to the shuffles of a shared row together, since the bits of
    // a ballot are the same for all.
    unsafe {
        let crossing = C::into(params, first + lane.sub_warp);
        let shared = crossing.parts() > ALONE;
        let mut left = ballot(shared);
        if crossing.parts() > 0 && !shared {
            let sums = lane.add::<V, S, T>(params, crossing.begin, 1, crossing.end);
            lane.complete::<V, S, T>(params, &crossing, sums);
        }
        while left != 0 {
            let sub_warp = left.trailing_zeros() >> params.lanes_log2;
            left &= !((u32::MAX >> (WARP - lanes)) << (sub_warp << params.lanes_log2));
            let crossing = C::into(params, first + sub_warp);
            let (long, chunk) = (crossing.is_long(params), 1 << params.chunk_log2);
            let (begin, step) = if long {
                (crossing.begin | (chunk - 1), chunk)
            } else {
                (crossing.begin, 1)
            };
            let at = begin + lane.sub_warp * step;
            let sums = lane.add::<V, S, T>(params, at, lane.sub_warps * step, crossing.end);
            let mut sums = merge_sub_warps::<V, S, T>(params, sums);
            if long && crossing.end & (chunk - 1) != 0 {
                let last = T::staged(params, crossing.end - 1, STAGED_TAIL, lane.load.index);
                sums = sums.merge::<S>(last);
            }
            if lane.sub_warp == 0 {
                lane.complete::<V, S, T>(params, &crossing, sums);
            }
        }
    }
}

struct Lane {
    load: Load,
    /// Whether that is the first of its head.
    leads: bool,
    /// Sub-warp in the warp.
    sub_warp: u32,
    /// Sub-warps of the warp.
    sub_warps: u32,
}

impl Lane {
    /// The tails of every `stride`-th CTA from `at` to before `end`.
    ///
    /// # Safety
    /// Each of them staged one.
    #[inline(always)]
    unsafe fn add<V: Vector, S: Scaling, T: Sums<V>>(
        &self,
        params: &SpmmParams,
        mut at: u32,
        stride: u32,
        end: u32,
    ) -> T {
        let mut sums = T::zero().map(|_, _| S::IDENTITY);
        // SAFETY: the caller's promise.
        unsafe {
            let tail = |cta: u32| T::staged(params, cta, STAGED_TAIL, self.load.index);
            while at + (IN_FLIGHT - 1) * stride < end {
                let parts = [tail(at), tail(at + stride)];
                let mut i = 0;
                while i < IN_FLIGHT as usize {
                    sums = sums.merge::<S>(parts[i]);
                    i += 1;
                }
                at += IN_FLIGHT * stride;
            }
            while at < end {
                sums = sums.merge::<S>(tail(at));
                at += stride;
            }
        }
        sums
    }

    /// Writes the row whose tails add up to `sums`.
    ///
    /// # Safety
    /// Its last CTA staged the end of it, and no other thread writes the lane's part of the row.
    #[inline(always)]
    unsafe fn complete<V: Vector, S: Scaling, T: Sums<V>>(
        &self,
        params: &SpmmParams,
        crossing: &Crossing,
        sums: T,
    ) {
        if !self.load.is_active() {
            return;
        }
        // SAFETY: the caller's promise; an active lane's load is one of the row's.
        unsafe {
            let end = T::staged(params, crossing.end, STAGED_END, self.load.index);
            let scale = scale_of(params, crossing.row);
            let sums = sums.merge::<S>(end).complete::<S>(scale);
            let addend = InMemory {
                params,
                row: crossing.row,
                load: self.load.index,
            };
            let sums = finish::<V, S, T>(params, self.load.index, sums, addend);
            sums.write(params, crossing.row, self.load, || self.leads);
        }
    }
}
