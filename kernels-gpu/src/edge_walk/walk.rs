//! The walk over the rows of a chunk of edges, and the follow-up that completes rows of several chunks.

use super::lanes::Lane;
use super::part::{Part, Walked};
use super::pass::{Params, PartOf, Pass};
use super::ring::Ring;
use crate::device::float::max;
use crate::device::global::Global;
use crate::device::registers::{recomputed, unroll};
use crate::device::thread::{block_idx_x, block_idx_y};
use crate::device::vector::Vector;
use crate::device::warp::{lane_id, shuffle_xor, warp_id};
use halfgnn_contract::edge_walk::{
    EMPTY_ROWS_PER_CTA, EdgeWalk, STAGED_END, STAGED_SLOTS, STAGED_TAIL, WARPS_PER_CTA, staged_row,
};
use halfgnn_contract::{VECTOR_BYTES, WARP};

/// The row of a chunk's first edge.
struct First {
    row: u32,
    /// Number of the next row among those with edges.
    next: u32,
    /// Whether it began before the chunk.
    began_before: bool,
}

/// # Safety
/// The launch contract; `edge` is the first edge of a chunk.
#[inline(always)]
unsafe fn first_row(walk: &EdgeWalk, edge: u32) -> First {
    // SAFETY: there is a word for each 32 edges, of which this is one, and a row for each start.
    unsafe {
        let [bits, before] = Global::<[u32; 2]>::new(walk.starts)
            .at((edge / WARP) as u64)
            .read();
        let began_before = bits >> (edge % WARP) & 1 == 0;
        let next = before + (bits & (2u32 << (edge % WARP)).wrapping_sub(1)).count_ones();
        let row = Global::<u32>::new(walk.filled_rows)
            .at(next as u64 - 1)
            .read();
        First {
            row,
            next,
            began_before,
        }
    }
}

/// The edge behind the last of row `row`.
///
/// # Safety
/// The launch contract; it is a row.
#[inline(always)]
unsafe fn end_of(walk: &EdgeWalk, row: u32) -> u32 {
    // SAFETY: the caller's promise. There are no more edges than 32 bits count.
    unsafe { Global::<u64>::new(walk.offsets).at(row as u64 + 1).read() as u32 }
}

/// The number of edges of row `row`.
///
/// # Safety
/// The launch contract; it is a row.
#[inline(always)]
pub unsafe fn edges_of(walk: &EdgeWalk, row: u32) -> u32 {
    // SAFETY: the caller's promise.
    let begin = unsafe { Global::<u64>::new(walk.offsets).at(row as u64).read() as u32 };
    // SAFETY: the caller's promise.
    unsafe { end_of(walk, row) - begin }
}

/// # Safety
/// The launch contract of the pass.
#[inline(always)]
pub unsafe fn walk<V: Vector<Bits = [u32; 4]>, P: Pass<V, R>, const R: usize>(params: &P::Params) {
    let walk = params.walk();
    // SAFETY: the caller's promise.
    unsafe {
        if block_idx_x() >= walk.ctas {
            clear::<V, P, R>(params, (block_idx_x() - walk.ctas) * EMPTY_ROWS_PER_CTA);
            return;
        }
        let chunk = block_idx_x() * WARPS_PER_CTA + warp_id();
        let begin = chunk << walk.chunk_log2;
        // The last CTA may have warps without edges; the shift of a chunk past 2³² edges has no bits left.
        if begin >= walk.edges || begin >> walk.chunk_log2 != chunk {
            return;
        }
        let end = begin + (walk.edges - begin).min(1 << walk.chunk_log2);
        walk_chunk::<V, P, R>(params, chunk, begin, end);
    }
}

/// # Safety
/// The launch contract; all lanes of the warp come together, and the chunk has these edges.
#[inline(always)]
unsafe fn walk_chunk<V: Vector<Bits = [u32; 4]>, P: Pass<V, R>, const R: usize>(
    params: &P::Params,
    chunk: u32,
    begin: u32,
    end: u32,
) {
    let walk = params.walk();
    let lane = Lane::<R>::new(walk);
    let filled = Global::<u32>::new(walk.filled_rows);
    // SAFETY: the caller's promise. Behind the last row with edges there are two numbers more, which are rows.
    unsafe {
        let mut ring = Ring::<R>::new::<V, P>(params, lane, begin, end);
        let first = first_row(walk, begin);
        let (mut row, mut began_before) = (first.row, first.began_before);
        let mut next = first.next;
        let mut row_end = end_of(walk, row);
        let mut next_row = filled.at(next as u64).read();
        let mut edge = begin;
        loop {
            let end_of_next = end_of(walk, next_row);
            next += 1;
            let row_after_next = filled.at(next as u64).read();
            let stop = row_end.min(end);
            let of_row = P::row(params, lane, row, !began_before);
            let mut part = P::Part::NOTHING;
            while edge < stop {
                if edge == ring.end_of_step {
                    ring.advance::<V, P>(params);
                }
                let until = stop.min(ring.end_of_step);
                let arrived = ring.edge::<V, P>(edge, until);
                part = P::add(params, lane, (row, &of_row), part, arrived);
                edge = until;
            }
            let part = P::closed(params, part.of_groups(walk));
            let goes_on = row_end > end;
            if began_before || goes_on {
                let slot = if goes_on { STAGED_TAIL } else { STAGED_END };
                stage(walk, lane, (recomputed(chunk), slot), part);
            } else if lane.group == 0 {
                P::write(params, lane, row, part);
            }
            if stop == end {
                return;
            }
            (row, row_end, next_row) = (next_row, end_of_next, row_after_next);
            began_before = false;
        }
    }
}

/// Merges the parts of all groups of the warp, in every one of them.
///
/// # Safety
/// All lanes of the warp come together.
#[inline(always)]
pub unsafe fn of_groups<T: Part>(walk: &EdgeWalk, part: T) -> T {
    // SAFETY: the caller's promise; the loops are the same for all lanes.
    let over_groups = |mut value: f32, f: fn(f32, f32) -> f32| unsafe {
        let mut distance = 1 << walk.lanes.lanes_log2;
        while distance < WARP {
            value = f(value, shuffle_xor(value, distance));
            distance *= 2;
        }
        value
    };
    let mut part = part.aligned(|value| over_groups(value, max));
    let mut distance = 1 << walk.lanes.lanes_log2;
    while distance < WARP {
        // SAFETY: likewise.
        part = part.summed(|value| value + unsafe { shuffle_xor(value, distance) });
        distance *= 2;
    }
    part
}

/// Where the lane's first float of a slot lies; the others are a group's lanes apart.
#[inline(always)]
fn staged<T: Part, const R: usize>(
    walk: &EdgeWalk,
    lane: Lane<R>,
    (chunk, slot): (u32, u32),
) -> Global<f32> {
    let slot = chunk as u64 * STAGED_SLOTS + slot as u64;
    let row = slot * staged_row(&walk.lanes, T::FLOATS as u32);
    let of_tile = (block_idx_y() as u64 * T::FLOATS as u64) << walk.lanes.lanes_log2;
    Global::new(walk.staging).at(row + of_tile + lane.place as u64)
}

/// Puts a part into the staging buffer.
///
/// # Safety
/// The launch contract; each slot has one part.
#[inline(always)]
unsafe fn stage<T: Part, const R: usize>(
    walk: &EdgeWalk,
    lane: Lane<R>,
    slot: (u32, u32),
    part: T,
) {
    let mut place = staged::<T, R>(walk, lane, slot);
    let apart = recomputed(1 << walk.lanes.lanes_log2);
    if lane.group == 0 {
        part.map(|_, value| {
            // SAFETY: the caller's promise; a slot has these floats for each lane.
            unsafe { place.store(value) };
            place = place.at(apart as u64);
            value
        });
    }
}

/// Completes the row that began before a chunk and ends in it, where there is one.
///
/// # Safety
/// The launch contract of the pass, after [`walk`].
#[inline(always)]
pub unsafe fn follow_up<V: Vector<Bits = [u32; 4]>, P: Pass<V, R>, const R: usize>(
    params: &P::Params,
) {
    let walk = params.walk();
    let chunk = block_idx_x() * WARPS_PER_CTA + warp_id();
    let begin = chunk << walk.chunk_log2;
    if begin >= walk.edges || begin >> walk.chunk_log2 != chunk {
        return;
    }
    let end = begin + (walk.edges - begin).min(1 << walk.chunk_log2);
    // SAFETY: the caller's promise: of a row that crosses chunks each has its part in a slot.
    unsafe {
        let First {
            row, began_before, ..
        } = first_row(walk, begin);
        if !began_before || end_of(walk, row) > end {
            return;
        }
        let lane = Lane::<R>::new(walk);
        let row_begin = Global::<u64>::new(walk.offsets).at(row as u64).read() as u32;
        let mut of = (row_begin >> walk.chunk_log2) + lane.group;
        let mut part = PartOf::<V, R, P>::EMPTY;
        while of <= chunk {
            let slot = if of == chunk { STAGED_END } else { STAGED_TAIL };
            let mut place = staged::<PartOf<V, R, P>, R>(walk, lane, (of, slot));
            let apart = recomputed(1 << walk.lanes.lanes_log2);
            let other = PartOf::<V, R, P>::EMPTY.map(|_, _| {
                let value = place.load();
                place = place.at(apart as u64);
                value
            });
            part = part.merge(other);
            of += lane.groups;
        }
        let part = of_groups(walk, part);
        if lane.group == 0 {
            P::write(params, lane, row, part);
        }
    }
}

/// Clears the rows without edges from the `first`-th on.
///
/// # Safety
/// The launch contract.
#[inline(always)]
unsafe fn clear<V: Vector<Bits = [u32; 4]>, P: Pass<V, R>, const R: usize>(
    params: &P::Params,
    first: u32,
) {
    if block_idx_y() > 0 {
        return;
    }
    let walk = params.walk();
    let end = walk
        .empty_count
        .min(first.saturating_add(EMPTY_ROWS_PER_CTA));
    let mut at = first + warp_id();
    while at < end {
        // SAFETY: the caller's promise; it is a row, and each row has `stride` vectors.
        unsafe {
            let row = Global::<u32>::new(walk.empty_rows).at(at as u64).read();
            unroll!(output in 0..3 => {
                let matrix = Global::<[u32; 4]>::new(params.outputs()[output]);
                let mut vector = lane_id();
                while !matrix.is_null() && vector < walk.lanes.stride {
                    let place = matrix.row(row, walk.lanes.stride * VECTOR_BYTES);
                    place.at(vector as u64).store([0; 4]);
                    vector += WARP;
                }
            });
            P::clear(params, row, lane_id());
        }
        at += WARPS_PER_CTA;
    }
}
