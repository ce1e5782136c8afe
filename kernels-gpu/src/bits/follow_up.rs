//! The follow-up kernel: rows that cross CTAs, and rows without edges.

use super::output::Output;
use super::sums::Place;
use crate::device::global::Global;
use crate::device::thread::block_idx_x;
use crate::device::warp::{lane_id, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, EDGES_PER_CTA, EMPTY_ROWS_PER_CTA, NO_ROW, WARPS_PER_CTA, WORD_BITS, staged_words,
};

/// Units are of 64 columns, whatever the first kernel had.
const U: usize = 2;

/// # Safety
/// The launch contract of [`BspmmParams`]: `follow_up_ctas` CTAs of `THREADS_PER_CTA` threads, after the first kernel.
#[inline(always)]
pub unsafe fn run<O: Output<U>>(params: &BspmmParams) {
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
unsafe fn join<O: Output<U>>(params: &BspmmParams, cta: u32) {
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
        let mut unit = 0;
        while unit < params.words {
            let end = 1 + unit * WORD_BITS + lane_id();
            let tail = end + params.words * WORD_BITS;
            let mut sums = [staged(cta, end).load(), staged(cta, end + WARP).load()];
            let mut at = first;
            while at < cta {
                sums[0] = sums[0].wrapping_add(staged(at, tail).load());
                sums[1] = sums[1].wrapping_add(staged(at, tail + WARP).load());
                at += 1;
            }
            O::write_sums(params, Place { row, unit }, sums.map(|sum| sum as i32));
            unit += 1;
        }
    }
}

/// Writes the sums of no edges, which are zero, to the rows without edges from the `first`-th on, a warp a row.
///
/// # Safety
/// The launch contract; all threads of the CTA come together.
#[inline(always)]
unsafe fn clear<O: Output<U>>(params: &BspmmParams, first: u32) {
    let end = first
        .saturating_add(EMPTY_ROWS_PER_CTA)
        .min(params.empty_count);
    let mut at = first + warp_id();
    while at < end {
        // SAFETY: what is read is below the number of empty rows, each of which stands once in the list.
        unsafe {
            let row = Global::<u32>::new(params.empty_rows).at(at as u64).read();
            let mut unit = 0;
            while unit < params.words {
                O::clear(params, Place { row, unit });
                unit += 1;
            }
        }
        at += WARPS_PER_CTA;
    }
}
