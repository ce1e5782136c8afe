//! The three launches of a scan.

use super::policy::Item;
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads, thread_idx_x};
use crate::device::warp::{inclusive_sum, lane_id, shuffle_idx, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::scan::{
    ADDED_PER_THREAD, ITEMS_PER_CTA, ITEMS_PER_LANE, ITEMS_PER_WARP, ScanParams, THREADS_PER_CTA,
    WARPS_PER_CTA, ctas,
};

/// The sums of the CTA's warps before this one, and of all. Shared memory may be used again on return.
///
/// # Safety
/// All threads of the CTA come together with the sum of their warp; there are [`WARPS_PER_CTA`] shared words.
#[inline(always)]
unsafe fn sums_of_warps(sum: u32) -> (u32, u32) {
    let words = Shared::base();
    let (mut before, mut all, mut warp) = (0u32, 0u32, 0);
    // SAFETY: a word a warp, and a barrier on both sides of the reads.
    unsafe {
        if lane_id() == 0 {
            words.offset(warp_id() * 4).store_u32(sum);
        }
        sync_threads();
        while warp < WARPS_PER_CTA {
            let of_warp = words.offset(warp * 4).load_u32();
            before = before.wrapping_add(if warp < warp_id() { of_warp } else { 0 });
            all = all.wrapping_add(of_warp);
            warp += 1;
        }
        sync_threads();
    }
    (before, all)
}

/// The first item of the warp.
#[inline(always)]
fn first_item() -> u64 {
    block_idx_x() as u64 * ITEMS_PER_CTA as u64 + (warp_id() * ITEMS_PER_WARP) as u64
}

/// What the lane's items count, nothing past the last. All are asked for before one is looked at: there are few threads, and each would
/// wait for memory once for each.
///
/// # Safety
/// The launch contract.
#[inline(always)]
unsafe fn values<I: Item>(params: &ScanParams) -> [u32; ITEMS_PER_LANE as usize] {
    let first = first_item() + lane_id() as u64;
    let mut values = [0; ITEMS_PER_LANE as usize];
    unroll!(turn in 0..ITEMS_PER_LANE as usize => {
        let at = first + (turn as u32 * WARP) as u64;
        // SAFETY: the caller's promise.
        values[turn] = unsafe { I::index(params, at, at < params.items) };
    });
    unroll!(turn in 0..ITEMS_PER_LANE as usize => {
        let at = first + (turn as u32 * WARP) as u64;
        // SAFETY: the caller's promise.
        values[turn] = unsafe { I::value(params, at, values[turn], at < params.items) };
    });
    values
}

/// What the items of all lanes of the warp count.
///
/// # Safety
/// All lanes of the warp come together.
#[inline(always)]
unsafe fn sum_of_warp(values: [u32; ITEMS_PER_LANE as usize]) -> u32 {
    let mut sum = 0u32;
    unroll!(turn in 0..ITEMS_PER_LANE as usize => {
        sum = sum.wrapping_add(values[turn]);
    });
    // SAFETY: the caller's promise.
    unsafe { shuffle_idx(inclusive_sum(sum), WARP - 1) }
}

/// # Safety
/// The launch contract of [`ScanParams`]: [`ctas`] CTAs of [`THREADS_PER_CTA`] threads.
#[inline(always)]
pub unsafe fn sums<I: Item>(params: &ScanParams) {
    // SAFETY: the caller's promise; all threads come along.
    unsafe {
        let values = values::<I>(params);
        let first = first_item() + lane_id() as u64;
        unroll!(turn in 0..ITEMS_PER_LANE as usize => {
            let at = first + (turn as u32 * WARP) as u64;
            if at < params.items {
                I::keep(params, at, values[turn]);
            }
        });
        let (_, all) = sums_of_warps(sum_of_warp(values));
        if thread_idx_x() == 0 {
            Global::<u32>::new(params.partials)
                .at(block_idx_x() as u64)
                .store(all);
        }
    }
}

/// # Safety
/// The launch contract of [`ScanParams`]: one CTA of [`THREADS_PER_CTA`] threads, after the sums.
#[inline(always)]
pub unsafe fn scan_partials(params: &ScanParams) {
    let partials = Global::<u32>::new(params.partials);
    let end = ctas(params.items);
    let (mut before, mut first) = (0u32, 0);
    // SAFETY: the caller's promise; the loop is the same for all threads, each of which has a word of its own.
    unsafe {
        while first < end {
            let at = first + thread_idx_x() as u64;
            let value = if at < end { partials.at(at).load() } else { 0 };
            let upto = inclusive_sum(value);
            let (warps, all) = sums_of_warps(shuffle_idx(upto, WARP - 1));
            if at < end {
                let prefix = before
                    .wrapping_add(warps)
                    .wrapping_add(upto.wrapping_sub(value));
                partials.at(at).store(prefix);
            }
            before = before.wrapping_add(all);
            first += THREADS_PER_CTA as u64;
        }
        if thread_idx_x() == 0 {
            partials.at(end).store(before);
        }
    }
}

/// What lies before the CTA's items.
///
/// # Safety
/// The launch contract of [`scan`]; all threads of the CTA come together.
#[inline(always)]
unsafe fn sum_before(params: &ScanParams) -> u32 {
    let partials = Global::<u32>::new(params.partials);
    let cta = block_idx_x() as u64;
    // SAFETY: the caller's promise: there is a partial sum a CTA, and no more CTAs before this one than are added up where they are not.
    unsafe {
        if params.added != 0 {
            return partials.at(cta).read();
        }
        let mut sum = 0u32;
        unroll!(turn in 0..ADDED_PER_THREAD as usize => {
            let at = (turn as u32 * THREADS_PER_CTA + thread_idx_x()) as u64;
            sum = sum.wrapping_add(partials.at(at).load_if(at < cta));
        });
        sums_of_warps(shuffle_idx(inclusive_sum(sum), WARP - 1)).1
    }
}

/// # Safety
/// The launch contract of [`ScanParams`]: [`ctas`] CTAs of [`THREADS_PER_CTA`] threads, after [`sums`] where they are more than one, and after
/// [`scan_partials`] where the partial sums are added.
#[allow(
    unused_assignments,
    reason = "behind the last of its items a lane asks nothing"
)]
#[inline(always)]
pub unsafe fn scan<I: Item>(params: &ScanParams) {
    // SAFETY: the caller's promise; all threads come along, and an item is one thread's.
    unsafe {
        let values = values::<I>(params);
        let (warps, _) = sums_of_warps(sum_of_warp(values));
        let mut before = sum_before(params).wrapping_add(warps);
        let first = first_item() + lane_id() as u64;
        unroll!(turn in 0..ITEMS_PER_LANE as usize => {
            let (at, value) = (first + (turn as u32 * WARP) as u64, values[turn]);
            let upto = inclusive_sum(value);
            if at < params.items {
                let prefix = before.wrapping_add(upto.wrapping_sub(value));
                I::put(params, at, value, prefix);
            }
            before = before.wrapping_add(shuffle_idx(upto, WARP - 1));
        });
    }
}
