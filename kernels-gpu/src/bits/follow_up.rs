//! The follow-up kernel: rows that cross CTAs, and rows without edges.

use super::columns::first_column;
use super::output::{Output, Place, is_written};
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::thread::block_idx_x;
use crate::device::warp::{lane_id, shuffle_idx, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, EDGES_PER_CTA, EMPTY_ROWS_PER_CTA, NO_ROW, STAGED_PARTS, WARPS_PER_CTA, WORD_BITS,
    staged_part, staged_words,
};

/// CTAs of a row whose parts are asked for together.
const IN_FLIGHT: usize = 8;

/// # Safety
/// The launch contract of [`BspmmParams`]: `follow_up_ctas` CTAs of `THREADS_PER_CTA` threads, after the first kernel.
#[inline(always)]
pub unsafe fn run<O: Output<1>>(params: &BspmmParams) {
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
unsafe fn join<O: Output<1>>(params: &BspmmParams, cta: u32) {
    let factored = !params.codes.is_null();
    let part = staged_part(params.words, factored);
    let words = staged_words(params.words, factored) as u64;
    let staged =
        |cta: u32, at: u32| Global::<u32>::new(params.staging).at(cta as u64 * words + at as u64);
    // SAFETY: the caller's promise: a row that crosses CTAs has a tail in each from its first on.
    unsafe {
        let row = staged(cta, 0).load();
        // Of some rows a row may end in the first CTA that is none of them, and has parts before it that nobody made.
        if row == NO_ROW || !is_written(params, row) {
            return;
        }
        let offset = Global::<u64>::new(params.offsets).at(row as u64).read();
        let first = (offset / EDGES_PER_CTA as u64) as u32 - params.first_cta;
        let mut unit = 0;
        while unit < params.words {
            let column = unit * WORD_BITS + first_column::<1>();
            let head = STAGED_PARTS + if factored { column } else { column / 2 };
            let tail = head + part;
            let pair = |cta: u32, at: u32, is_there: bool| {
                if factored {
                    return Global::<[u32; 2]>::cast(staged(cta, at)).load_if(is_there);
                }
                let both = staged(cta, at).load_if(is_there) as i32;
                [both << 16 >> 16, both >> 16].map(|sum| sum as u32)
            };
            let mut sums = pair(cta, head, true);
            let mut at = first;
            while at < cta {
                let left = cta - at;
                let mut parts = [[0; 2]; IN_FLIGHT];
                unroll!(i in 0..IN_FLIGHT => {
                    parts[i] = pair(at + i as u32, tail, (i as u32) < left);
                });
                unroll!(i in 0..IN_FLIGHT => {
                    sums = [0, 1].map(|at| sums[at].wrapping_add(parts[i][at]));
                });
                at += IN_FLIGHT as u32;
            }
            let sums = [sums.map(|sum| sum as i32)];
            O::write(params, Place { row, unit }, sums);
            unit += 1;
        }
    }
}

/// Writes the sums of no edges, which are zero, to the rows without edges from the `first`-th on, a warp a row.
///
/// # Safety
/// The launch contract; all threads of the CTA come together.
#[inline(always)]
unsafe fn clear<O: Output<1>>(params: &BspmmParams, first: u32) {
    let end = first
        .saturating_add(EMPTY_ROWS_PER_CTA)
        .min(params.empty_count);
    let mut at = first + warp_id() * WARP;
    while at < end {
        let rows = Global::<u32>::new(params.empty_rows).at((at + lane_id()) as u64);
        // SAFETY: what is read is below the number of empty rows, each of which stands once in the list.
        unsafe {
            let ids = rows.load_if(at + lane_id() < end);
            let mut slot = 0;
            while slot < WARP && at + slot < end {
                let row = shuffle_idx(ids, slot);
                let mut unit = 0;
                while unit < params.words {
                    O::clear(params, Place { row, unit });
                    unit += 1;
                }
                slot += 1;
            }
        }
        at += WARPS_PER_CTA * WARP;
    }
}
