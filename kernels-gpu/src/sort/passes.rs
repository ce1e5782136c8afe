//! The count of digits, and the move of pairs.

use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads, thread_idx_x};
use crate::device::warp::{ballot, lane_id, sync_warp, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::sort::{
    PAIRS_PER_CTA, PAIRS_PER_LANE, PAIRS_PER_WARP, SortParams, THREADS_PER_CTA, WARPS_PER_CTA,
};

/// # Safety
/// The launch contract of [`SortParams`]: `ctas` CTAs of [`THREADS_PER_CTA`] threads.
#[inline(always)]
pub unsafe fn sort_count(params: &SortParams) {
    let tile = Tile { params };
    let digit = thread_idx_x();
    // SAFETY: the caller's promise; all threads come along, and a thread has a digit.
    unsafe {
        tile.count();
        if digit < 1 << params.digit_bits {
            let (mut sum, mut warp) = (0, 0);
            while warp < WARPS_PER_CTA {
                sum += tile.word(digit, warp).load_u32();
                warp += 1;
            }
            tile.counts(digit).store(sum);
        }
    }
}

/// # Safety
/// The launch contract of [`SortParams`]: `ctas` CTAs of [`THREADS_PER_CTA`] threads, after the prefix sums of the counts.
#[inline(always)]
pub unsafe fn sort_move(params: &SortParams) {
    let tile = Tile { params };
    let digit = thread_idx_x();
    // SAFETY: the caller's promise; all threads come along, and a thread has a digit. Each pair has a place of its own.
    unsafe {
        tile.count();
        if digit < 1 << params.digit_bits {
            let mut place = tile.counts(digit).read();
            let mut warp = 0;
            while warp < WARPS_PER_CTA {
                let word = tile.word(digit, warp);
                let count = word.load_u32();
                word.store_u32(place);
                place += count;
                warp += 1;
            }
        }
        sync_threads();
        let mut turn = 0;
        while turn < PAIRS_PER_LANE {
            let place = tile.take(turn);
            if let Some((at, key, place)) = place {
                let value = match params.values.is_null() {
                    true => at,
                    false => Global::<u32>::new(params.values).at(at as u64).read(),
                };
                let place = place as u64;
                Global::<u32>::new(params.sorted_keys).at(place).store(key);
                Global::<u32>::new(params.sorted_values)
                    .at(place)
                    .store(value);
            }
            turn += 1;
        }
    }
}

/// The pairs of a CTA.
struct Tile<'a> {
    params: &'a SortParams,
}

impl Tile<'_> {
    /// The shared word of a digit and a warp.
    #[inline(always)]
    fn word(&self, digit: u32, warp: u32) -> Shared {
        Shared::base().offset((warp * THREADS_PER_CTA + digit) * 4)
    }

    /// The CTA's count of a digit.
    #[inline(always)]
    fn counts(&self, digit: u32) -> Global<u32> {
        let at = digit as u64 * self.params.ctas as u64 + block_idx_x() as u64;
        Global::new(self.params.counts).at(at)
    }

    /// Leaves in each shared word how many pairs of the warp have the digit, for all threads to read.
    ///
    /// # Safety
    /// The launch contract; all threads of the CTA come together.
    #[inline(always)]
    unsafe fn count(&self) {
        let mut digit = lane_id();
        // SAFETY: a warp's words are its own up to the barrier; the loops are the same for all lanes.
        unsafe {
            while digit < THREADS_PER_CTA {
                self.word(digit, warp_id()).store_u32(0);
                digit += WARP;
            }
            sync_warp();
            let mut turn = 0;
            while turn < PAIRS_PER_LANE {
                self.take(turn);
                turn += 1;
            }
            sync_threads();
        }
    }

    /// The lane's pair of a turn, with its key and what its digit's word of the warp said, plus the pairs of the warp
    /// before it; the word then counts all of the turn.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, and nobody else touches the warp's words.
    #[inline(always)]
    unsafe fn take(&self, turn: u32) -> Option<(u32, u32, u32)> {
        let params = self.params;
        let at = block_idx_x() as u64 * PAIRS_PER_CTA as u64
            + (warp_id() * PAIRS_PER_WARP + turn * WARP + lane_id()) as u64;
        let is_pair = at < params.pairs as u64;
        // SAFETY: pairs below `pairs` are there; words are ordered by the warp's barriers.
        unsafe {
            let key = if is_pair {
                Global::<u32>::new(params.keys).at(at).read()
            } else {
                0
            };
            let digit = (key >> params.shift) & ((1 << params.digit_bits) - 1);
            // The lanes that have a pair of the same digit.
            let mut peers = ballot(is_pair);
            let mut bit = 0;
            while bit < params.digit_bits {
                let mine = digit >> bit & 1 != 0;
                let set = ballot(mine);
                peers &= if mine { set } else { !set };
                bit += 1;
            }
            let before = (peers & !(u32::MAX << lane_id())).count_ones();
            let word = self.word(digit, warp_id());
            let count = word.load_u32();
            sync_warp();
            if is_pair && before == 0 {
                word.store_u32(count + peers.count_ones());
            }
            sync_warp();
            is_pair.then_some((at as u32, key, count + before))
        }
    }
}
