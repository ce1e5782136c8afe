//! The kernel between the edge-parallel kernel and the follow-up where rows are very long: it adds the parts of those chunk by chunk.
//!
//! ```text
//!  CTAs    0 … 31 │ 32 … 63 │ 64 … 95 │ 96 …       a chunk each 32
//!  tails   ··aaaaa│aaaaaaaaa│aaaa bbbb│bb c        a crosses the bounds of two chunks, b and c are the follow-up's alone
//!                ↑         ↑    ↑                  where the sums of a's tails are left, for the follow-up
//! ```
//!
//! Most rows cross few CTAs, and in the follow-up one sub-warp has all parts of a row. It would add thousands of them one after the other.

use super::policy::Scaling;
use super::rows::{Crossings, NO_ROW};
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, sync_threads, thread_idx_x};
use crate::device::warp::{ballot, lane_id, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::spmm::{STAGED_TAIL, SpmmParams, WARPS_PER_CTA, staging_index};

/// Parts that a lane has in flight at once.
const IN_FLIGHT: usize = 8;

/// A CTA for each chunk (x) and 32 floats of a staged row (y): it adds the tails of the row that enters the chunk and of the one that
/// leaves it, where they cross another bound of chunks.
///
/// # Safety
/// The launch contract of [`SpmmParams`]: `chunk_ctas` CTAs in x, `chunk_tiles` in y, of `THREADS_PER_CTA` threads and
/// `CHUNK_SHARED_BYTES`, between the edge-parallel kernel and its follow-up.
#[inline(always)]
pub unsafe fn run<S: Scaling, C: Crossings>(params: &SpmmParams) {
    let size = 1 << params.chunk_log2;
    let first = block_idx_x() << params.chunk_log2;
    // SAFETY: the caller's promise. All threads of a CTA find the same rows, so they come to its barriers together.
    unsafe {
        // Before the first chunk there is none: that CTA is past the last one.
        let before = C::at(params, first.wrapping_sub(size));
        let enters = C::at(params, first);
        let leaves = C::at(params, first + size);
        let after = C::at(params, first + 2 * size);
        if enters != NO_ROW && (enters == before || enters == leaves) {
            let count = tails::<C>(params, first, enters);
            add::<S>(params, first, first + count);
        }
        if leaves != NO_ROW && leaves == after && leaves != enters {
            let count = tails::<C>(params, first, leaves);
            add::<S>(params, first + size - count, first + size);
        }
    }
}

/// How many CTAs of the chunk from CTA `first` on leave row `row` to the next CTA.
///
/// # Safety
/// The launch contract; all lanes of the warp come together.
#[inline(always)]
unsafe fn tails<C: Crossings>(params: &SpmmParams, first: u32, row: u32) -> u32 {
    let (mut count, mut at) = (0, 0);
    while at < 1 << params.chunk_log2 {
        // SAFETY: the caller's promise; a chunk is some times as long as a warp has lanes.
        unsafe {
            let next = first + at + lane_id() + 1;
            count += ballot(C::at(params, next) == row).count_ones();
        }
        at += WARP;
    }
    count
}

/// Leaves the sum of the tails of CTAs `begin .. end` in that of the last of them.
///
/// # Safety
/// The launch contract; they are tails of one row, which no other CTA adds, and all threads of the CTA come together.
#[inline(always)]
unsafe fn add<S: Scaling>(params: &SpmmParams, begin: u32, end: u32) {
    // The row ended in the first CTA of the chunk.
    if begin == end {
        return;
    }
    let float = block_idx_y() * WARP + lane_id();
    let is_one = float < params.staged_floats;
    let staging = Global::<f32>::new(params.staging).at(float.min(params.staged_floats - 1).into());
    let tail = |cta: u32| staging.at(staging_index(cta, STAGED_TAIL, params.staged_row));
    let mut sum = S::IDENTITY;
    let mut at = begin + warp_id();
    while at < end {
        let mut parts = [S::IDENTITY; IN_FLIGHT];
        unroll!(i in 0..IN_FLIGHT => {
            let cta = at + i as u32 * WARPS_PER_CTA;
            // SAFETY: the caller's promise: each of them staged a row of `staged_floats` floats.
            let part = unsafe { tail(cta.min(end - 1)).load() };
            parts[i] = if cta < end { part } else { S::IDENTITY };
        });
        unroll!(i in 0..IN_FLIGHT => {
            sum = S::both(sum, parts[i]);
        });
        at += IN_FLIGHT as u32 * WARPS_PER_CTA;
    }
    let own = Shared::base().offset(thread_idx_x() * 4);
    // SAFETY: a float a thread; the barriers are before each read of them, and before the next row's.
    unsafe {
        own.store_f32(sum);
        sync_threads();
        if warp_id() == 0 {
            unroll!(warp in 0..WARPS_PER_CTA as usize - 1 => {
                let other = own.offset((warp as u32 + 1) * WARP * 4);
                sum = S::both(sum, other.load_f32());
            });
            if is_one {
                tail(end - 1).store(sum);
            }
        }
        sync_threads();
    }
}
