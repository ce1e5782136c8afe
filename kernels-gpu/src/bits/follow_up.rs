//! The follow-up kernel: rows that cross CTAs, and rows without edges.

use super::columns::first_column;
use super::output::{Output, Place, is_written};
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::thread::block_idx_x;
use crate::device::warp::{lane_id, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, EDGES_PER_CTA, EMPTY_ROWS_PER_CTA, NO_ROW, STAGED_PARTS, WARPS_PER_CTA, WORD_BITS,
    staged_part, staged_words,
};

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
                // Sixteen numbers of a lane are on their way at once: a hub has parts in hundreds of CTAs.
                let factored = !params.codes.is_null();
                match (params.words, factored) {
                    (1, false) => join::<O, 1, 16, false>(params, cta),
                    (2, false) => join::<O, 2, 8, false>(params, cta),
                    (_, false) => join::<O, 4, 4, false>(params, cta),
                    (1, true) => join::<O, 1, 8, true>(params, cta),
                    (2, true) => join::<O, 2, 4, true>(params, cta),
                    (_, true) => join::<O, 4, 2, true>(params, cta),
                }
            }
        } else {
            clear::<O>(params, (block_idx_x() - joining) * EMPTY_ROWS_PER_CTA);
        }
    }
}

/// Adds up the `W` words of the row that ends in CTA `cta` and began before it, where there is one, `N` CTAs at a time; of edges with factors where those are there.
///
/// # Safety
/// The launch contract; a launch sums up so many words, and all lanes of the warp come together.
#[inline(always)]
unsafe fn join<O: Output<1>, const W: usize, const N: usize, const FACTORED: bool>(
    params: &BspmmParams,
    cta: u32,
) {
    let part = staged_part(W as u32, FACTORED);
    let words = staged_words(W as u32, FACTORED) as u64;
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
        let words_at = |cta: u32, first: u32, is_there: bool| {
            let of_lane = if FACTORED {
                first_column::<1>()
            } else {
                first_column::<1>() / 2
            };
            load_words::<W, FACTORED>(staged(cta, first + of_lane), is_there)
        };
        let mut sums = [[0; 2]; W];
        add_words::<W, FACTORED>(&mut sums, &words_at(cta, STAGED_PARTS, true));
        let mut at = first;
        while at < cta {
            let left = cta - at;
            let mut parts = [[[0; 2]; W]; N];
            unroll!(i in 0..N => {
                let is_there = (i as u32) < left;
                parts[i] = words_at(at + i as u32, STAGED_PARTS + part, is_there);
            });
            unroll!(i in 0..N => {
                add_words::<W, FACTORED>(&mut sums, &parts[i]);
            });
            at += N as u32;
        }
        unroll!(word in 0..W => {
            let unit = word as u32;
            let [a, b] = sums[word];
            O::write(params, Place { row, unit }, [[a as i32, b as i32]]);
        });
    }
}

/// A lane's words of a part as they are staged: two numbers in one, or one each.
///
/// # Safety
/// `W` words are staged from `place` on, if `is_there`.
#[inline(always)]
unsafe fn load_words<const W: usize, const FACTORED: bool>(
    place: Global<u32>,
    is_there: bool,
) -> [[u32; 2]; W] {
    let mut words = [[0; 2]; W];
    unroll!(word in 0..W => {
        let column = word as u32 * WORD_BITS;
        // SAFETY: the caller's promise.
        words[word] = unsafe {
            if FACTORED {
                Global::<[u32; 2]>::cast(place.at(column as u64)).load_if(is_there)
            } else {
                [place.at((column / 2) as u64).load_if(is_there), 0]
            }
        };
    });
    words
}

/// Adds staged words to sums.
#[inline(always)]
fn add_words<const W: usize, const FACTORED: bool>(
    sums: &mut [[u32; 2]; W],
    words: &[[u32; 2]; W],
) {
    unroll!(word in 0..W => {
        let ([a, b], [c, d]) = (sums[word], words[word]);
        let [c, d] = match FACTORED {
            true => [c, d],
            false => [((c as i32) << 16 >> 16) as u32, (c as i32 >> 16) as u32],
        };
        sums[word] = [a.wrapping_add(c), b.wrapping_add(d)];
    });
}

/// Writes the sums of no edges, which are zero, to the rows without edges from the `first`-th on.
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
        let is_there = at + lane_id() < end;
        // SAFETY: what is read is below the number of empty rows, each of which stands once in the list.
        unsafe {
            let row = rows.load_if(is_there);
            let mut unit = 0;
            while unit < params.words {
                O::clear_rows(params, Place { row, unit }, is_there);
                unit += 1;
            }
        }
        at += WARPS_PER_CTA * WARP;
    }
}
