//! The count of digits, and the move of pairs.

use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads, thread_idx_x};
use crate::device::warp::{ballot, lane_id, sync_warp, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::sort::{SortParams, THREADS_PER_CTA, WARPS_PER_CTA};

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
        let mut next = tile.pair(turn);
        let mut next_value = tile.value(next);
        while turn < params.pairs_per_lane {
            let (pair, value) = (next, next_value);
            turn += 1;
            next = tile.pair(turn);
            next_value = tile.value(next);
            let place = tile.take(pair) as u64;
            if pair.is_there {
                Global::<u32>::new(params.sorted_keys)
                    .at(place)
                    .store(pair.key);
                Global::<u32>::new(params.sorted_values)
                    .at(place)
                    .store(value);
            }
        }
    }
}

/// A lane's pair of a turn.
#[derive(Clone, Copy)]
struct Pair {
    at: u32,
    key: u32,
    /// Whether there are as many.
    is_there: bool,
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
            let mut next = self.pair(turn);
            while turn < self.params.pairs_per_lane {
                let pair = next;
                turn += 1;
                next = self.pair(turn);
                self.take(pair);
            }
            sync_threads();
        }
    }

    /// The lane's pair of a turn. It is asked for a turn ahead, since a turn has little to do but to wait for it.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn pair(&self, turn: u32) -> Pair {
        let params = self.params;
        let warp = block_idx_x() as u64 * WARPS_PER_CTA as u64 + warp_id() as u64;
        let at =
            (warp * params.pairs_per_lane as u64 + turn as u64) * WARP as u64 + lane_id() as u64;
        let is_there = turn < params.pairs_per_lane && at < params.pairs as u64;
        // SAFETY: pairs below `pairs` are there.
        let key = match is_there {
            true => unsafe { Global::<u32>::new(params.keys).at(at).read() },
            false => 0,
        };
        Pair {
            at: at as u32,
            key,
            is_there,
        }
    }

    /// The value of a pair.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn value(&self, pair: Pair) -> u32 {
        match pair.is_there && !self.params.values.is_null() {
            // SAFETY: there is a value for each pair.
            true => unsafe {
                Global::<u32>::new(self.params.values)
                    .at(pair.at as u64)
                    .read()
            },
            false => pair.at,
        }
    }

    /// What its digit's word of the warp said of the lane's pair, plus the pairs of the warp before it that have the same; the word then
    /// counts all of the warp's pairs.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, and nobody else touches the warp's words.
    #[inline(always)]
    unsafe fn take(&self, pair: Pair) -> u32 {
        let params = self.params;
        let digit = (pair.key >> params.shift) & ((1 << params.digit_bits) - 1);
        // SAFETY: words are ordered by the warp's barriers.
        unsafe {
            // The lanes that have a pair of the same digit.
            let mut peers = ballot(pair.is_there);
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
            if pair.is_there && before == 0 {
                word.store_u32(count + peers.count_ones());
            }
            sync_warp();
            count + before
        }
    }
}
