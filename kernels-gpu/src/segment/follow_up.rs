//! The follow-up kernel: rows that cross warps, and rows without edges.

use super::policy::Monoid;
use crate::device::global::Global;
use crate::device::thread::{block_idx_x, block_idx_y, thread_idx_x};
use crate::device::warp::{ballot, lane_id, shuffle_idx, shuffle_xor};
use halfgnn_contract::WARP;
use halfgnn_contract::segment::{
    EDGES_PER_WARP, EMPTY_ROWS_PER_CTA, FEW_PARTS, NO_ROW, SegmentParams, THREADS_PER_CTA,
    end_word, staging_index, tail_word,
};

/// # Safety
/// The launch contract of [`SegmentParams`]: `follow_up_ctas` × heads CTAs of [`THREADS_PER_CTA`] threads, after the
/// first kernel.
#[inline(always)]
pub unsafe fn run<M: Monoid>(params: &SegmentParams) {
    let joining = params.warps.div_ceil(THREADS_PER_CTA);
    let staged = Staged {
        params,
        head: block_idx_y(),
    };
    // SAFETY: the caller's promise; the two kinds of CTA write different rows.
    unsafe {
        if block_idx_x() < joining {
            staged.join_rows::<M>(block_idx_x() * THREADS_PER_CTA + thread_idx_x());
        } else {
            staged.clear::<M>((block_idx_x() - joining) * EMPTY_ROWS_PER_CTA);
        }
    }
}

struct Staged<'a> {
    params: &'a SegmentParams,
    head: u32,
}

impl Staged<'_> {
    /// Joins the row that ends in warp `warp` of the first kernel and began before it, where there is one: a lane alone
    /// where it has few parts, else the lanes together, one such row after the other.
    ///
    /// # Safety
    /// The launch contract; the lanes of a warp come together with consecutive warps.
    #[inline(always)]
    unsafe fn join_rows<M: Monoid>(&self, warp: u32) {
        // SAFETY: a warp stages a row, or none; a row that crosses warps has a tail in each from its first on.
        unsafe {
            let row = if warp < self.params.warps {
                self.word::<M>(0, warp).load()
            } else {
                NO_ROW
            };
            let first = if row != NO_ROW {
                let offset = Global::<u64>::new(self.params.offsets)
                    .at(row as u64)
                    .read();
                (offset / EDGES_PER_WARP as u64) as u32
            } else {
                warp
            };
            let many = warp - first > FEW_PARTS;
            if row != NO_ROW && !many {
                let mut value = self.tail::<M>(first);
                let mut at = first + 1;
                while at < warp {
                    value = value.join(self.tail(at));
                    at += 1;
                }
                self.write(row, value.join(self.end(warp)));
            }
            let mut left = ballot(many);
            while left != 0 {
                let lane = left.trailing_zeros();
                left &= left - 1;
                let value = self.join_tails::<M>(shuffle_idx(first, lane), shuffle_idx(warp, lane));
                if lane_id() == lane {
                    self.write(row, value.join(self.end(warp)));
                }
            }
        }
    }

    /// The tails of warps `first .. end`, joined by all lanes: each takes every 32nd, then they are joined as a tree.
    ///
    /// # Safety
    /// All lanes of the warp come together with the same warps, which have staged a tail.
    #[inline(always)]
    unsafe fn join_tails<M: Monoid>(&self, first: u32, end: u32) -> M {
        let mut value = M::empty();
        let mut at = first + lane_id();
        // SAFETY: the caller's promise.
        unsafe {
            while at < end {
                value = value.join(self.tail(at));
                at += WARP;
            }
            let mut distance = 1;
            while distance < WARP {
                value = value.join(value.map(|_, word| shuffle_xor(word, distance)));
                distance *= 2;
            }
        }
        value
    }

    /// Writes what no edge gives to the rows without edges from the `first`-th on.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn clear<M: Monoid>(&self, first: u32) {
        let end = first
            .saturating_add(EMPTY_ROWS_PER_CTA)
            .min(self.params.empty_count);
        let mut at = first + thread_idx_x();
        while at < end {
            // SAFETY: `at` is below the number of empty rows, each of which stands once in the list.
            unsafe {
                let row = Global::<u32>::new(self.params.empty_rows)
                    .at(at as u64)
                    .read();
                self.write(row, M::empty());
            }
            at += THREADS_PER_CTA;
        }
    }

    #[inline(always)]
    fn word<M: Monoid>(&self, word: u32, warp: u32) -> Global<u32> {
        let warps = self.params.warps;
        Global::new(self.params.staging).at(staging_index(warps, M::WORDS, self.head, word, warp))
    }

    /// What a warp has of the row that goes on after it.
    ///
    /// # Safety
    /// It has staged it.
    #[inline(always)]
    unsafe fn tail<M: Monoid>(&self, warp: u32) -> M {
        M::empty().map(|word, _| {
            // SAFETY: the caller's promise.
            f32::from_bits(unsafe { self.word::<M>(tail_word(M::WORDS, word), warp).load() })
        })
    }

    /// What a warp has of the row that began before it and ends in it.
    ///
    /// # Safety
    /// It has staged it.
    #[inline(always)]
    unsafe fn end<M: Monoid>(&self, warp: u32) -> M {
        M::empty().map(|word, _| {
            // SAFETY: the caller's promise.
            f32::from_bits(unsafe { self.word::<M>(end_word(word), warp).load() })
        })
    }

    /// # Safety
    /// The launch contract; no other lane writes the row.
    #[inline(always)]
    unsafe fn write<M: Monoid>(&self, row: u32, value: M) {
        let at = self.head as u64 * self.params.vertices as u64 + row as u64;
        // SAFETY: the caller's promise.
        unsafe { value.write(self.params, at) }
    }
}
