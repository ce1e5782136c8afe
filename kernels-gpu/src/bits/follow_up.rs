//! The follow-up kernel: rows that cross CTAs, and rows without edges.

use super::output::Output;
use crate::device::global::Global;
use crate::device::thread::{block_idx_x, thread_idx_x};
use crate::device::warp::{lane_id, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, EDGES_PER_CTA, EMPTY_ROWS_PER_CTA, NO_ROW, THREADS_PER_CTA, WARPS_PER_CTA,
    WORD_BITS, staged_words,
};

/// # Safety
/// The launch contract of [`BspmmParams`]: `follow_up_ctas` CTAs of [`THREADS_PER_CTA`] threads, after the first kernel.
#[inline(always)]
pub unsafe fn run<O: Output>(params: &BspmmParams) {
    let joining = params.ctas.div_ceil(WARPS_PER_CTA);
    // SAFETY: the caller's promise; the two kinds of CTA write different rows.
    unsafe {
        if block_idx_x() < joining {
            let cta = block_idx_x() * WARPS_PER_CTA + warp_id();
            if cta < params.ctas {
                join::<O>(params, cta);
            }
        } else {
            clear::<O>(params, (block_idx_x() - joining) * EMPTY_ROWS_PER_CTA);
        }
    }
}

/// Adds up the row that ends in CTA `cta` and began before it, where there is one.
///
/// # Safety
/// The launch contract; all lanes of the warp come together.
#[inline(always)]
unsafe fn join<O: Output>(params: &BspmmParams, cta: u32) {
    let words = staged_words(params.words) as u64;
    let staged =
        |cta: u32, at: u32| Global::<u32>::new(params.staging).at(cta as u64 * words + at as u64);
    // SAFETY: the caller's promise: a row that crosses CTAs has a tail in each from its first on.
    unsafe {
        let row = staged(cta, 0).load();
        if row == NO_ROW {
            return;
        }
        let offset = Global::<u64>::new(params.offsets).at(row as u64).read();
        let first = (offset / EDGES_PER_CTA as u64) as u32;
        let mut word = 0;
        while word < params.words {
            let end = 1 + word * WORD_BITS + lane_id();
            let tail = end + params.words * WORD_BITS;
            let mut sums = [staged(cta, end).load(), staged(cta, end + WARP).load()];
            let mut at = first;
            while at < cta {
                sums[0] = sums[0].wrapping_add(staged(at, tail).load());
                sums[1] = sums[1].wrapping_add(staged(at, tail + WARP).load());
                at += 1;
            }
            O::write_sums(params, row, word, sums.map(|sum| sum as i32));
            word += 1;
        }
    }
}

/// Writes the sums of no edges, which are zero, to the rows without edges from the `first`-th on.
///
/// # Safety
/// The launch contract; all threads of the CTA come together.
#[inline(always)]
unsafe fn clear<O: Output>(params: &BspmmParams, first: u32) {
    let end = first
        .saturating_add(EMPTY_ROWS_PER_CTA)
        .min(params.empty_count);
    let ids = Global::<u32>::new(params.empty_rows);
    // A word is a lane's, or a warp's.
    let (mut at, step) = if O::BY_LANE {
        (first + thread_idx_x(), THREADS_PER_CTA)
    } else {
        (first + warp_id(), WARPS_PER_CTA)
    };
    while at < end {
        // SAFETY: what is read is below the number of empty rows, each of which stands once in the list.
        unsafe {
            let row = ids.at(at as u64).read();
            let mut word = 0;
            while word < params.words {
                O::clear(params, row, word);
                word += 1;
            }
        }
        at += step;
    }
}
