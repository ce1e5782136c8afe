//! Sums over scores in order: a CTA a chunk of a segment, whose threads take its items in turn. The first item of a group of equal
//! scores speaks for all of it.

use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::sums::{Sum64, sum_of_cta};
use crate::device::thread::{block_idx_x, block_idx_y, global_idx_x, thread_idx_x};
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::metrics::{
    Group, NAN_KEY, RANK_WORDS, RANKS_PER_CHUNK, RankSumsParams, segment,
};

/// # Safety
/// The launch contract of [`RankSumsParams`]: a thread for each item.
#[inline(always)]
pub unsafe fn rank_truths(params: &RankSumsParams) {
    let at = global_idx_x();
    if at >= params.items as u64 {
        return;
    }
    // SAFETY: an item, the thread's own.
    unsafe {
        let word = Global::<u32>::new(params.segments).at(at).read();
        Global::<u32>::new(params.positives)
            .at(at)
            .store(word >> 31);
    }
}

/// Adds up a term of each group of equal scores that begins in the CTA's chunk.
///
/// # Safety
/// The launch contract of [`RankSumsParams`]: a CTA for each chunk and segment, after the sums of positives.
#[inline(always)]
pub unsafe fn sum<T: Sum64>(params: &RankSumsParams, term: impl Fn(&Group) -> T) {
    let (chunk, segment_at) = (block_idx_x(), block_idx_y());
    let of = Segment::new(params, segment_at);
    let first = of.start + chunk as u64 * RANKS_PER_CHUNK as u64;
    let mut value = T::ZERO;
    let mut i = thread_idx_x();
    // SAFETY: items of a segment have keys; every thread is at the only sum; and the chunk's place is the CTA's.
    unsafe {
        while i < RANKS_PER_CHUNK {
            let begin = first + i as u64;
            if begin < of.stop && of.begins(begin) {
                let places = [of.start, begin, of.end_of_group(begin), of.stop];
                value = value.add(term(&Group::new(places, |at| of.before(at))));
            }
            i += THREADS_PER_CTA;
        }
        let sum = sum_of_cta(value, Shared::base());
        if thread_idx_x() == 0 {
            let place = segment_at as u64 * params.chunks as u64 + chunk as u64;
            Global::<u64>::new(params.partials)
                .at(place)
                .store(sum.to_bits());
        }
    }
}

/// Makes the result of a segment of what its chunks left.
///
/// # Safety
/// The launch contract of [`RankSumsParams`]: a CTA for each segment, after the sums.
#[inline(always)]
pub unsafe fn reduce<T: Sum64>(params: &RankSumsParams) {
    let at = block_idx_x();
    let of = Segment::new(params, at);
    let mut value = T::ZERO;
    let mut chunk = thread_idx_x();
    // SAFETY: chunks below `chunks` have sums, which a launch before has written; every thread is at the only sum; an item of a
    // segment that has some has a key; and the result is the CTA's.
    unsafe {
        while chunk < params.chunks {
            let place = at as u64 * params.chunks as u64 + chunk as u64;
            value = value.add(T::from_bits(
                Global::<u64>::new(params.partials).at(place).read(),
            ));
            chunk += THREADS_PER_CTA;
        }
        let sum = sum_of_cta(value, Shared::base());
        if thread_idx_x() == 0 {
            let (mut positives, mut has_nan) = (0, false);
            if of.start < of.stop {
                positives = of.before(of.stop) - of.before(of.start);
                has_nan = of.key(of.stop - 1) == NAN_KEY;
            }
            let result = Global::<u64>::new(params.result).at(at as u64 * RANK_WORDS as u64);
            result.store(sum.to_bits());
            result.at(1).store(positives as u64);
            result.at(2).store(has_nan as u64);
        }
    }
}

/// A segment's items.
struct Segment<'a> {
    params: &'a RankSumsParams,
    start: u64,
    stop: u64,
}

impl<'a> Segment<'a> {
    #[inline(always)]
    fn new(params: &'a RankSumsParams, at: u32) -> Self {
        let [start, stop] = segment(at, params.listed, params.second, params.third);
        Self {
            params,
            start,
            stop,
        }
    }

    /// The key of an item.
    ///
    /// # Safety
    /// It is there.
    #[inline(always)]
    unsafe fn key(&self, at: u64) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { Global::<u32>::new(self.params.keys).at(at).read() }
    }

    /// Whether a group of equal scores begins at an item.
    ///
    /// # Safety
    /// It is one of the segment.
    #[inline(always)]
    unsafe fn begins(&self, at: u64) -> bool {
        // SAFETY: the item, and the one before it in the segment.
        unsafe { at == self.start || self.key(at - 1) != self.key(at) }
    }

    /// Behind the last item of the group that an item begins: most often the item itself, else by bisection.
    ///
    /// # Safety
    /// It is one of the segment.
    #[inline(always)]
    unsafe fn end_of_group(&self, begin: u64) -> u64 {
        // SAFETY: all are items of the segment.
        unsafe {
            let key = self.key(begin);
            let (mut low, mut high) = (begin + 1, self.stop);
            if low < high && self.key(low) != key {
                return low;
            }
            while low < high {
                let middle = low + (high - low) / 2;
                if self.key(middle) > key {
                    high = middle;
                } else {
                    low = middle + 1;
                }
            }
            low
        }
    }

    /// Positives before an item, or before the end of all.
    ///
    /// # Safety
    /// There are items, and it is one or their end.
    #[inline(always)]
    unsafe fn before(&self, at: u64) -> u32 {
        let positives = Global::<u32>::new(self.params.positives);
        // SAFETY: the caller's promise.
        unsafe {
            if at < self.params.items as u64 {
                return positives.at(at).read();
            }
            let last = Global::<u32>::new(self.params.segments).at(at - 1).read();
            positives.at(at - 1).read() + (last >> 31)
        }
    }
}
