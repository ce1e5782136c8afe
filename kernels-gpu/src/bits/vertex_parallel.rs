//! The vertex-parallel kernel: a warp a word of a row, in one launch.

use super::columns::{Pairs, map};
use super::output::{Output, Place};
use super::planes::Planes;
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::thread::{block_idx_x, block_idx_y};
use crate::device::warp::{lane_id, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{BspmmParams, WARPS_PER_CTA};

/// Edges of a lane whose rows are in flight at once, and the planes that count as many.
const IN_FLIGHT: usize = 4;
const PLANES: usize = 3;
const _: () = assert!(IN_FLIGHT < 1 << PLANES);

/// # Safety
/// The launch contract of [`BspmmParams`]: CTAs of `THREADS_PER_CTA` threads, `vertex_ctas` in x, the words of a row in y.
#[inline(always)]
pub unsafe fn run<O: Output<1>>(params: &BspmmParams) {
    let row = block_idx_x() * WARPS_PER_CTA + warp_id();
    if row >= params.rows {
        return;
    }
    let place = Place {
        row,
        unit: block_idx_y(),
    };
    // SAFETY: the caller's promise: there is an offset for each row and the end, edges are counted in 32 bits; all lanes of the warp have
    // the same row, and a word of a row is one warp's.
    unsafe {
        let offsets = Global::<u64>::new(params.offsets).at(row as u64);
        let (begin, end) = (offsets.read() as u32, offsets.at(1).read() as u32);
        if begin == end {
            O::clear(params, place);
            return;
        }
        let all = end - begin;
        let counts = counts(params, place.unit, begin, end);
        let sums = map(counts, |count| {
            count.wrapping_mul(2).wrapping_sub(all) as i32
        });
        O::write(params, place, sums);
    }
}

/// How many of the edges from `begin` to `end` have a bit in the lane's columns of word `word`. Of each 128 edges a lane looks at four,
/// whose rows are asked for together.
///
/// # Safety
/// The launch contract; all lanes of the warp come together, and there are such edges.
#[inline(always)]
unsafe fn counts(params: &BspmmParams, word: u32, begin: u32, end: u32) -> Pairs<u32, 1> {
    let columns = Global::<u32>::new(params.columns).at(begin as u64);
    let x = Global::<u64>::new(params.x).at(word as u64);
    let stride = params.x_stride * 8;
    let mut counts = [[0; 2]];
    let mut first = 0;
    let edges = end - begin;
    while first < edges {
        let left = edges - first;
        let lane = |turn: usize| turn as u32 * WARP + lane_id();
        let mut ids = [0; IN_FLIGHT];
        let mut rows = [[0; 2]; IN_FLIGHT];
        // SAFETY: the caller's promise: what is loaded belongs to edges of the row, whose columns are rows of `x`. Lanes without an edge
        // have no bits.
        unsafe {
            unroll!(turn in 0..IN_FLIGHT => {
                let at = first as u64 + lane(turn) as u64;
                ids[turn] = columns.at(at).load_if(lane(turn) < left);
            });
            unroll!(turn in 0..IN_FLIGHT => {
                let row = Global::<[u32; 2]>::cast(x.row(ids[turn], stride));
                rows[turn] = row.load_if(lane(turn) < left);
            });
        }
        let mut of_lane = Planes::<PLANES>::EMPTY;
        of_lane.add_two(rows[0], rows[1]);
        of_lane.add_two(rows[2], rows[3]);
        let turns = left.div_ceil(WARP).min(IN_FLIGHT as u32);
        // SAFETY: `left` is the same in all lanes.
        let more = unsafe { of_lane.of_lanes(WARP - turns.leading_zeros()) };
        unroll!(at in 0..2 => {
            counts[0][at] += more[0][at];
        });
        // A row may have so many edges that the sum would wrap.
        first = first.saturating_add(IN_FLIGHT as u32 * WARP);
    }
    counts
}
