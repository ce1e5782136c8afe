//! Pairs grouped by keys, those of a group in their order, where groups are many and most of them have a pair or two: the edges of a
//! sampled block, by source.
//!
//! ```text
//!  count    a thread a pair: one more of its key, and how many came before it, whoever came first
//!  (scan)   where each group begins
//!  place    a thread a pair: its number, among those of its group, in any order
//!  order    a thread a group of up to four numbers; a warp ranks the up to 32 of each that has more
//!  long     a CTA a group: a bit for each number, and the bits before it
//! ```
//!
//! Which thread counted first is chance, and what comes of it is not: numbers are put in order, so that a result repeats bit for bit. A radix sort takes three launches
//! for each eight bits of a key, which is what it costs where all pairs of a pass are done in less time than a launch takes.

use crate::device::global::{Global, add_u32_before};
use crate::device::registers::unroll;
use crate::device::shared::{Shared, or_u32};
use crate::device::thread::{block_idx_x, global_idx_x, grid_dim_x, sync_threads, thread_idx_x};
use crate::device::warp::{ballot, inclusive_sum, lane_id, shuffle_idx, warp_id};
use halfgnn_contract::sort::{
    GroupParams, THREADS_PER_CTA, WARPS_PER_CTA, long_group_words, pair_words,
};
use halfgnn_contract::{DevicePtr, WARP};

/// # Safety
/// The launch contract of [`GroupParams`]: a thread a pair.
#[inline(always)]
pub unsafe fn group_count(params: &GroupParams) {
    let pair = global_idx_x();
    // SAFETY: the caller's promise: a slot is one thread's, words of the tally are counted up by many.
    unsafe {
        if pair < params.pairs as u64 {
            let key = Global::<u32>::new(params.keys).at(pair).read();
            if key < params.groups {
                count(params.tally, params.slots, (pair, key));
            }
        }
    }
}

/// Counts a pair of a group, and writes how many were counted of it before.
///
/// # Safety
/// The tally has a word for the key, which others only count up, and there is a slot for the pair, this thread's own.
#[inline(always)]
pub unsafe fn count(tally: DevicePtr<u32>, slots: DevicePtr<u32>, (pair, key): (u64, u32)) {
    // SAFETY: the caller's promise.
    unsafe {
        let slot = add_u32_before(Global::new(tally).at(key as u64), 1);
        Global::<u32>::new(slots).at(pair).store(slot);
    }
}

/// # Safety
/// The launch contract of [`GroupParams`]: a thread a pair.
#[inline(always)]
pub unsafe fn group_place(params: &GroupParams) {
    let pair = global_idx_x();
    if pair == 0 {
        // SAFETY: the caller's promise: the first word counts long groups, which the next launch finds.
        unsafe { Global::<u32>::new(params.long_groups).store(0) };
    }
    if pair >= params.pairs as u64 {
        return;
    }
    let firsts = Global::<u32>::new(params.firsts);
    // SAFETY: the caller's promise: a place is one pair's, and lies among the pairs whatever was in the tally before.
    unsafe {
        let key = Global::<u32>::new(params.keys).at(pair).read();
        if key < params.groups {
            let slot = Global::<u32>::new(params.slots).at(pair).read();
            let place = firsts.at(key as u64).read() as u64 + slot as u64;
            if place < params.pairs as u64 {
                let members = Global::<u32>::new(params.members);
                members.at(place).store(pair as u32);
            }
        }
        // Behind the last pair.
        if pair >= firsts.at(params.groups as u64).read() as u64 {
            write(params, pair, [u32::MAX; 2]);
        }
    }
}

/// Writes the key and the value at a place.
///
/// # Safety
/// The launch contract of [`GroupParams`]; the place lies among the pairs and is this thread's.
#[inline(always)]
unsafe fn write(params: &GroupParams, place: u64, [key, value]: [u32; 2]) {
    // SAFETY: the caller's promise.
    unsafe {
        Global::<u32>::new(params.sorted_keys).at(place).store(key);
        Global::<u32>::new(params.sorted_values)
            .at(place)
            .store(value);
    }
}

/// The first place of a group, or of what is behind the last: among the pairs or behind them, whatever was in the tally before.
///
/// # Safety
/// The launch contract of [`GroupParams`], of which there is such a group.
#[inline(always)]
unsafe fn first_of(params: &GroupParams, group: u64) -> u32 {
    // SAFETY: the caller's promise: there is a sum more than groups.
    let first = unsafe { Global::<u32>::new(params.firsts).at(group).read() };
    first.min(params.pairs)
}

/// The value of a pair. What was counted otherwise than keys are now, as of a block that had no room, may have left any number among the members.
///
/// # Safety
/// The launch contract of [`GroupParams`].
#[inline(always)]
unsafe fn value(params: &GroupParams, pair: u32) -> u32 {
    let value = Global::<u32>::new(params.values).at(pair as u64);
    // SAFETY: the caller's promise; of what is no pair nothing is read.
    unsafe { value.load_or(pair < params.pairs, u32::MAX) }
}

/// # Safety
/// The launch contract of [`GroupParams`]: a thread for each group, and one.
#[inline(always)]
pub unsafe fn group_order(params: &GroupParams) {
    let group = global_idx_x();
    let groups = params.groups as u64;
    let members = Global::<u32>::new(params.members);
    // SAFETY: the caller's promise: all lanes of a warp come along; a group is one thread's, and its places are its warp's.
    unsafe {
        let (mut first, mut pairs) = (0, 0);
        if group <= groups {
            first = first_of(params, group);
            let offset = Global::<u64>::new(params.offsets).at(group);
            offset.store(first as u64);
        }
        if group < groups {
            pairs = first_of(params, group + 1).saturating_sub(first);
            Global::<u32>::new(params.tally).at(group).store(0);
        }
        if pairs <= ALONE as u32 {
            order_alone(params, group as u32, (first, pairs));
        }
        if pairs > WARP {
            let list = Global::<u32>::new(params.long_groups);
            let at = add_u32_before(list, 1) as u64 + 1;
            if at < long_group_words(params.pairs) {
                list.at(at).store(group as u32);
            }
        }
        let mut several = ballot(pairs > ALONE as u32 && pairs <= WARP);
        while several != 0 {
            let of = several.trailing_zeros();
            several &= several - 1;
            let [first, pairs] = [first, pairs].map(|word| shuffle_idx(word, of));
            let group = shuffle_idx(group as u32, of);
            let mut own = u32::MAX;
            if lane_id() < pairs {
                own = members.at(first as u64 + lane_id() as u64).read();
            }
            let (mut before, mut lane) = (0, 0);
            while lane < pairs {
                before += (shuffle_idx(own, lane) < own) as u64;
                lane += 1;
            }
            if lane_id() < pairs {
                write(params, first as u64 + before, [group, value(params, own)]);
            }
        }
    }
}

/// The most numbers that a thread puts in order by itself. All threads of a warp do so at once, where those of a longer group are a turn of all.
const ALONE: usize = 4;

/// Writes the pairs of a group, [`ALONE`] of them at most, from place `first` on.
///
/// # Safety
/// The launch contract of [`GroupParams`]; the places are this thread's.
#[inline(always)]
unsafe fn order_alone(params: &GroupParams, group: u32, (first, pairs): (u32, u32)) {
    let members = Global::<u32>::new(params.members).at(first as u64);
    let (mut own, mut values) = ([u32::MAX; ALONE], [u32::MAX; ALONE]);
    // SAFETY: the caller's promise.
    unsafe {
        // All are on their way before one is looked at.
        unroll!(i in 0..ALONE => {
            own[i] = members.at(i as u64).load_or((i as u32) < pairs, u32::MAX);
        });
        unroll!(i in 0..ALONE => {
            values[i] = value(params, own[i]);
        });
        unroll!(i in 0..ALONE => {
            let mut before = 0;
            unroll!(j in 0..ALONE => {
                before += (own[j] < own[i]) as u64;
            });
            if (i as u32) < pairs {
                write(params, first as u64 + before, [group, values[i]]);
            }
        });
    }
}

/// # Safety
/// The launch contract of [`GroupParams`]: any number of CTAs of [`THREADS_PER_CTA`] threads, and
/// [`group_shared_bytes`](halfgnn_contract::sort::group_shared_bytes) of shared memory.
#[inline(always)]
pub unsafe fn group_order_long(params: &GroupParams) {
    let list = Global::<u32>::new(params.long_groups);
    let members = Global::<u32>::new(params.members);
    let (words, thread) = (pair_words(params.pairs), thread_idx_x());
    let word = |at: u32| Shared::base().offset(at * 4);
    // Neighbouring words of a thread.
    let own = words.div_ceil(THREADS_PER_CTA);
    let of_thread = (thread * own).min(words)..((thread + 1) * own).min(words);
    // SAFETY: the caller's promise: all threads of a CTA come along; words are set between two barriers and read between the next.
    unsafe {
        let most = long_group_words(params.pairs) - 1;
        let count = (list.read() as u64).min(most);
        let mut turn = block_idx_x() as u64;
        while turn < count {
            let group = list.at(turn + 1).read();
            let first = first_of(params, group as u64) as u64;
            let end = first_of(params, group as u64 + 1) as u64;
            let mut at = thread;
            while at < words {
                word(at).store_u32(0);
                at += THREADS_PER_CTA;
            }
            sync_threads();
            let mut place = first + thread as u64;
            while place < end {
                let pair = members.at(place).read();
                // As of `value`.
                if pair < params.pairs {
                    or_u32(word(pair / u32::BITS), 1 << (pair % u32::BITS));
                }
                place += THREADS_PER_CTA as u64;
            }
            sync_threads();
            let mut bits = 0;
            let mut at = of_thread.start;
            while at < of_thread.end {
                bits += word(at).load_u32().count_ones();
                at += 1;
            }
            let through = inclusive_sum(bits);
            if lane_id() == WARP - 1 {
                word(words + warp_id()).store_u32(through);
            }
            sync_threads();
            let mut before = through - bits;
            let mut warp = 0;
            while warp < WARPS_PER_CTA {
                let of_warp = word(words + warp).load_u32();
                before += if warp < warp_id() { of_warp } else { 0 };
                warp += 1;
            }
            let mut place = first + before as u64;
            let mut at = of_thread.start;
            while at < of_thread.end {
                let mut bits = word(at).load_u32();
                while bits != 0 {
                    let pair = at * u32::BITS + bits.trailing_zeros();
                    bits &= bits - 1;
                    write(params, place, [group, value(params, pair)]);
                    place += 1;
                }
                at += 1;
            }
            // None of them is read when the next group's are cleared.
            sync_threads();
            turn += grid_dim_x() as u64;
        }
    }
}
