//! The vertex-parallel kernel: a warp a row (Huang et al., PPoPP 2021), a CTA a long one, with discretized batches and no
//! atomics.

use super::epilogue::{InMemory, finish, keep, let_through};
use super::lane::{Load, leads, merge_sub_warps};
use super::lanes::Powers;
use super::policy::{Accumulate, Scaling, Weights, add};
use super::rows::scale_of;
use super::sums::Sums;
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, grid_dim_x, sync_threads};
use crate::device::vector::{Input, Vector};
use crate::device::warp::{ballot, lane_id, shuffle_down, shuffle_idx, warp_id};
use halfgnn_contract::spmm::{
    SpmmParams, VERTEX_IN_FLIGHT, VERTEX_LONG_ROW, VERTEX_ROWS, WARPS_PER_CTA, vertex_shared,
};
use halfgnn_contract::{VECTOR_BYTES, WARP};

/// A CTA has four rows, a warp one of them. The rows of more than [`VERTEX_LONG_ROW`] edges are walked by all four warps,
/// first, and then the others by one warp each. In a grid of many rows a CTA has 16: the four of a warp are its own ([`four_rows_a_warp`]), or,
/// where one of them is so long, taken like the four of a CTA.
///
/// # Safety
/// The launch contract of [`SpmmParams`]: CTAs of `THREADS_PER_CTA` threads, `vertex_ctas` or `vertex_ctas_of_many` in x, feature tiles in
/// y, heads in z.
#[inline(always)]
pub unsafe fn run<V: Vector, W: Weights, S: Scaling, A: Accumulate<V>>(params: &SpmmParams) {
    const { assert!(!S::ATOMIC, "what a row has in several warps is merged") };
    const {
        assert!(
            VERTEX_ROWS == WARPS_PER_CTA,
            "a warp's rows are one for each of the CTA's"
        )
    };
    let load = Load::of::<V, W, Powers>(params);
    // All threads of the grid see the same.
    let are_many = (grid_dim_x() as u64 * WARPS_PER_CTA as u64) < params.vertices as u64;
    let fours = if are_many { VERTEX_ROWS } else { 1 };
    let first = block_idx_x() * fours * WARPS_PER_CTA;
    // SAFETY: the caller's promise. All warps have the same `long`, and so come to the barriers, and all lanes of one to its shuffles.
    unsafe {
        let offset = offsets(params, first, fours * WARPS_PER_CTA);
        // Asked for beside the offsets: it depends on none.
        let kept = if are_many && has_short_rows::<V, W>() {
            kept_of::<V, S, { VERTEX_ROWS as usize }>(params, load, first + warp_id() * VERTEX_ROWS)
        } else {
            u32::MAX
        };
        let long = ballot(shuffle_down(offset, 1) - offset > VERTEX_LONG_ROW);
        let is_shared = |four: u32| {
            let of_four = long >> (four * WARPS_PER_CTA) & ((1 << WARPS_PER_CTA) - 1);
            !are_many || !has_short_rows::<V, W>() || of_four != 0
        };
        let mut four = 0;
        while four < fours {
            if is_shared(four) {
                let before = four * WARPS_PER_CTA;
                let offset = shuffle_idx(offset, before + lane_id().min(WARPS_PER_CTA));
                a_row_a_warp::<V, W, S, A>(params, load, first + before, offset);
                if are_many {
                    // What long rows leave in shared memory is read before others come.
                    sync_threads();
                }
            }
            four += 1;
        }
        if has_short_rows::<V, W>() && !is_shared(warp_id()) {
            four_rows_a_warp::<V, W, S, A>(params, load, first, offset, kept);
        }
    }
}

/// The offsets of `rows` rows from `first` on and the one after them, a lane each, as 32 bits: edges are counted in them. Lanes past
/// those, and past the last row, have empty rows.
///
/// # Safety
/// The launch contract.
#[inline(always)]
unsafe fn offsets(params: &SpmmParams, first: u32, rows: u32) -> u32 {
    let place = first
        .saturating_add(lane_id().min(rows))
        .min(params.vertices);
    // SAFETY: the caller's promise.
    unsafe {
        Global::<u32>::new(params.offsets)
            .at(2 * place as u64)
            .read()
    }
}

/// The four rows of a CTA from `first` on, where lane `i` has the offset of the `i`-th.
///
/// # Safety
/// The launch contract; all threads of the CTA come together.
#[inline(always)]
unsafe fn a_row_a_warp<V: Vector, W: Weights, S: Scaling, A: Accumulate<V>>(
    params: &SpmmParams,
    load: Load,
    first: u32,
    offset: u32,
) {
    // SAFETY: the caller's promise. All lanes of a warp have the same bits of `long` and `left`, and so come to the shuffles
    // together; all warps have the same `long`, and so come to the barrier.
    unsafe {
        let long = ballot(shuffle_down(offset, 1) - offset > VERTEX_LONG_ROW);
        let own = 1 << warp_id();
        let mut left = long;
        if first + warp_id() < params.vertices {
            left |= own;
        }
        while left != 0 {
            let index = left.trailing_zeros();
            left &= left - 1;
            let row = Row::at(params, first, index, offset);
            if long & (1 << index) != 0 {
                let share = (warp_id(), WARPS_PER_CTA);
                let sums = walk::<V, W, S, A>(params, load.index, &row, share);
                put::<V, A::Sums>(index, sums);
            } else {
                let sums = walk::<V, W, S, A>(params, load.index, &row, (0, 1));
                let kept = kept_of::<V, S, 1>(params, load, row.row);
                write::<V, S, A::Sums>(params, load, &row, sums, kept);
            }
        }
        if long != 0 {
            sync_threads();
            if long & own != 0 {
                let mut sums = get::<V, A::Sums>(warp_id(), 0);
                let mut warp = 1;
                while warp < WARPS_PER_CTA {
                    sums = sums.merge::<S>(get::<V, A::Sums>(warp_id(), warp));
                    warp += 1;
                }
                let row = Row::at(params, first, warp_id(), offset);
                let kept = kept_of::<V, S, 1>(params, load, row.row);
                write::<V, S, A::Sums>(params, load, &row, sums, kept);
            }
        }
    }
}

/// Whether a kernel has a way for short rows of its own, which makes it half as long again: those of rows that are drawn, whose edges have
/// no weights but that of a column. The host asks no others for it.
#[inline(always)]
const fn has_short_rows<V: Vector, W: Weights>() -> bool {
    !W::BY_HEAD && V::PER_16_BYTES == 1
}

/// The warp's four of a CTA's 16 rows from `first` on, where lane `i` has the offset of the `i`-th. Where all are short, their columns and
/// features are asked for together, and each has the sums that it has alone, to the bit.
///
/// # Safety
/// The launch contract; all lanes of the warp come together, and no other warp writes these rows.
#[inline(always)]
unsafe fn four_rows_a_warp<V: Vector, W: Weights, S: Scaling, A: Accumulate<V>>(
    params: &SpmmParams,
    load: Load,
    first: u32,
    offset: u32,
    kept: u32,
) {
    // SAFETY: the caller's promise. What is branched on is the same in all lanes, as shuffles want.
    unsafe {
        let edges = shuffle_down(offset, 1) - offset;
        let (own, sub_warp) = (warp_id() * VERTEX_ROWS, lane_id() >> params.lanes_log2);
        let at_once = VERTEX_IN_FLIGHT * (WARP >> params.lanes_log2);
        let begin = shuffle_idx(offset, own);
        let all = shuffle_idx(offset, own + VERTEX_ROWS) - begin;
        let several = ballot(edges > at_once) >> own & ((1 << VERTEX_ROWS) - 1);
        if several != 0 || all > WARP {
            let mut index = own;
            while index < own + VERTEX_ROWS {
                if first + index < params.vertices {
                    let row = Row::at(params, first, index, offset);
                    let sums = walk::<V, W, S, A>(params, load.index, &row, (0, 1));
                    let kept = kept_of::<V, S, 1>(params, load, row.row);
                    write::<V, S, A::Sums>(params, load, &row, sums, kept);
                }
                index += 1;
            }
            return;
        }
        let rows: [Row; VERTEX_ROWS as usize] = [0, 1, 2, 3].map(|it| {
            let index = own + it;
            let begin = shuffle_idx(offset, index);
            let row = (first + index).min(params.vertices - 1);
            Row {
                row,
                scale: scale_of(params, row),
                begin,
                edges: shuffle_idx(offset, index + 1) - begin,
            }
        });
        let edge = begin as u64 + lane_id() as u64;
        let column = Global::<u32>::new(params.columns)
            .at(edge)
            .load_if(lane_id() < all);
        let weight = if W::WEIGHTED && lane_id() < all {
            W::one::<V>(params, edge, first, column)
        } else {
            0
        };
        unroll!(pair in 0..VERTEX_ROWS as usize / 2 => {
            let (one, other) = (&rows[2 * pair], &rows[2 * pair + 1]);
            let group = |row: &Row| Group {
                lane: row.begin - begin,
                count: row.edges,
            };
            let values = [
                gather::<V, A>(params, load.index, column, group(one), sub_warp),
                gather::<V, A>(params, load.index, column, group(other), sub_warp),
            ];
            unroll!(it in 0..2 => {
                let row = if it == 0 { one } else { other };
                let (sum, of) = (A::start(params, row.row, load.index), (group(row), sub_warp));
                let sum = add_up::<V, W, S, A>(
                    sum, params, row.scale, of, (weight, 0.0), values[it],
                );
                let mut sums = identity::<V, S, A>();
                // Nothing is no batch: an infinite factor would make a NaN of it.
                if sub_warp < row.edges {
                    sums = sums.merge::<S>(A::finish(sum).leave::<S>(row.scale));
                }
                let sums = merge_sub_warps::<V, S, A::Sums>(params, sums);
                if first + own + 2 * pair as u32 + (it as u32) < params.vertices {
                    let kept = kept >> ((2 * pair as u32 + it as u32) * V::WIDTH);
                    write::<V, S, A::Sums>(params, load, row, sums, kept);
                }
            });
        });
    }
}

/// The edges of a row that lanes have, from lane `lane` on.
#[derive(Clone, Copy)]
struct Group {
    lane: u32,
    count: u32,
}

/// The places in a group of the edges that a sub-warp has in flight at once, the first of them `first`.
#[inline(always)]
fn places(params: &SpmmParams, first: u32) -> [u32; VERTEX_IN_FLIGHT as usize] {
    let sub_warps = WARP >> params.lanes_log2;
    [0, 1, 2, 3].map(|it| first + it * sub_warps)
}

/// The lane's load of the neighbours at the [`places`] of a group, of whose edges each lane has the `column`; zeros past its end.
///
/// # Safety
/// The launch contract; all lanes of the warp come together.
#[inline(always)]
unsafe fn gather<V: Vector, A: Accumulate<V>>(
    params: &SpmmParams,
    load: u32,
    column: u32,
    group: Group,
    first: u32,
) -> [A::Input; VERTEX_IN_FLIGHT as usize] {
    let x = Global::<<A::Input as Input>::Bits>::new(params.x).at(load as u64);
    // SAFETY: the caller's promise; the host validated columns.
    places(params, first).map(|place| unsafe {
        let column = shuffle_idx(column, (group.lane + place) % WARP);
        let from = x.row(column, params.x_stride * VECTOR_BYTES);
        A::Input::from_bits(from.load_if(place < group.count))
    })
}

/// `sum` and what was [gathered](gather) at the places from the second of `of` on, by the weight and term that each lane has of its edge.
///
/// # Safety
/// All lanes of the warp come together.
#[inline(always)]
unsafe fn add_up<V: Vector, W: Weights, S: Scaling, A: Accumulate<V>>(
    mut sum: A::Sum,
    params: &SpmmParams,
    scale: f32,
    (group, first): (Group, u32),
    (weight, term): (u32, f32),
    values: [A::Input; VERTEX_IN_FLIGHT as usize],
) -> A::Sum {
    let places = places(params, first);
    unroll!(it in 0..VERTEX_IN_FLIGHT as usize => {
        let lane = (group.lane + places[it]) % WARP;
        // SAFETY: the caller's promise.
        let weight = if W::WEIGHTED { unsafe { shuffle_idx(weight, lane) } } else { 0 };
        // SAFETY: as above.
        let term = if W::TERMED { unsafe { shuffle_idx(term, lane) } } else { 0.0 };
        if places[it] < group.count {
            sum = add::<V, W, S, A>(sum, scale, (weight, term, values[it]));
        }
    });
    sum
}

/// What no batch leaves.
#[inline(always)]
fn identity<V: Vector, S: Scaling, A: Accumulate<V>>() -> A::Sums {
    A::Sums::zero().map(|_, _| S::IDENTITY)
}

/// A row and its edges.
struct Row {
    row: u32,
    scale: f32,
    begin: u32,
    edges: u32,
}

impl Row {
    /// Row `index` of the CTA whose first is `first`, where lane `i` has the offset of the `i`-th.
    ///
    /// # Safety
    /// The launch contract; there is such a row, and all lanes of the warp come together.
    #[inline(always)]
    unsafe fn at(params: &SpmmParams, first: u32, index: u32, offset: u32) -> Self {
        // SAFETY: the caller's promise.
        unsafe {
            let begin = shuffle_idx(offset, index);
            Self {
                row: first + index,
                scale: scale_of(params, first + index),
                begin,
                edges: shuffle_idx(offset, index + 1) - begin,
            }
        }
    }
}

/// The lane's part of the sums over a warp's share of a row, `(warp, of so many)`, the same in every sub-warp.
///
/// Neighbours are walked in groups of 32, an edge a lane, which sub-warps deal out among themselves edge by edge: so a short
/// row is as many loads side by side as it has edges. What a sub-warp has of a group is a batch.
///
/// # Safety
/// The launch contract; all lanes of the warp come together.
#[inline(always)]
unsafe fn walk<V: Vector, W: Weights, S: Scaling, A: Accumulate<V>>(
    params: &SpmmParams,
    load: u32,
    row: &Row,
    (warp, warps): (u32, u32),
) -> A::Sums {
    let sub_warp = lane_id() >> params.lanes_log2;
    let sub_warps = WARP >> params.lanes_log2;
    let columns = Global::<u32>::new(params.columns);
    let mut merged = identity::<V, S, A>();
    let mut left = row.edges.saturating_sub(warp * WARP);
    let mut edge = row.begin.wrapping_add(warp * WARP + lane_id());
    // SAFETY: the caller's promise: what is loaded belongs to the `left` edges from the share's first on, whose columns the
    // host validated, and `left` is the same in all lanes, so that they come to the shuffles together.
    unsafe {
        let mut column = columns.at(edge as u64).load_if(lane_id() < left);
        while left > 0 {
            let count = left.min(WARP);
            let (weight, term) = if W::WEIGHTED && lane_id() < count {
                W::termed::<V>(params, edge as u64, row.row, column)
            } else {
                (0, 0.0)
            };
            left = left.saturating_sub(warps * WARP);
            edge = edge.wrapping_add(warps * WARP);
            // Wanted when this group is done.
            let next = columns.at(edge as u64).load_if(lane_id() < left);
            let mut sum = A::start(params, row.row, load);
            let group = Group { lane: 0, count };
            let mut first = sub_warp;
            while first - sub_warp < count {
                let values = gather::<V, A>(params, load, column, group, first);
                let of = (group, first);
                sum = add_up::<V, W, S, A>(sum, params, row.scale, of, (weight, term), values);
                first += VERTEX_IN_FLIGHT * sub_warps;
            }
            // Nothing is no batch: an infinite factor would make a NaN of it.
            if sub_warp < count {
                merged = merged.merge::<S>(A::finish(sum).leave::<S>(row.scale));
            }
            column = next;
        }
        merge_sub_warps::<V, S, A::Sums>(params, merged)
    }
}

/// What is [`let_through`] of some rows, of the lanes that [write] them.
///
/// # Safety
/// The launch contract; there are rows.
#[inline(always)]
unsafe fn kept_of<V: Vector, S: Scaling, const ROWS: usize>(
    params: &SpmmParams,
    load: Load,
    first: u32,
) -> u32 {
    if !S::EPILOGUE || lane_id() >> params.lanes_log2 != 0 {
        return u32::MAX;
    }
    // SAFETY: the caller's promise; the lane's load is one of the row's.
    unsafe { let_through::<V, ROWS>(params, first, load.index) }
}

/// Writes a row whose sums every sub-warp has, as far as they are `kept`, by the lanes of the first that have a load of it.
///
/// # Safety
/// The launch contract; no other warp writes the row.
#[inline(always)]
unsafe fn write<V: Vector, S: Scaling, T: Sums<V>>(
    params: &SpmmParams,
    load: Load,
    row: &Row,
    sums: T,
    kept: u32,
) {
    if lane_id() >> params.lanes_log2 == 0 {
        let sums = if row.edges == 0 {
            // No factor makes a NaN of it.
            T::zero()
        } else {
            sums.complete::<S>(row.scale)
        };
        // SAFETY: the caller's promise; the lane's load is one of the row's.
        unsafe {
            let addend = InMemory {
                params,
                row: row.row,
                load: load.index,
            };
            let mut sums = finish::<V, S, T>(params, load.index, sums, addend);
            if S::EPILOGUE {
                sums = keep::<V, T>(sums, kept);
            }
            sums.write(params, row.row, load, || leads::<Powers>(params));
        }
    }
}

/// Leaves this warp's part of the CTA's row `index` in shared memory.
///
/// # Safety
/// The launch contract.
#[inline(always)]
unsafe fn put<V: Vector, T: Sums<V>>(index: u32, sums: T) {
    sums.map(|i, value| {
        let place = vertex_shared::part(T::FLOATS, index, warp_id(), i, lane_id());
        // SAFETY: the area has a word for each float of each lane of each warp and row.
        unsafe { Shared::base().offset(place).store_f32(value) };
        value
    });
}

/// What the same lane of `warp` left of the CTA's row `index`.
///
/// # Safety
/// It did, before the CTA's barrier.
#[inline(always)]
unsafe fn get<V: Vector, T: Sums<V>>(index: u32, warp: u32) -> T {
    T::zero().map(|i, _| {
        let place = vertex_shared::part(T::FLOATS, index, warp, i, lane_id());
        // SAFETY: the caller's promise.
        unsafe { Shared::base().offset(place).load_f32() }
    })
}
