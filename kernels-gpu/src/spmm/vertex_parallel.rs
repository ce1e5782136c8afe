//! The vertex-parallel kernel: a warp a row (Huang et al., PPoPP 2021), a CTA a long one, with discretized batches and no
//! atomics.

use super::epilogue::{InMemory, finish};
use super::lane::{Load, leads, merge_sub_warps};
use super::policy::{Accumulate, Scaling, Weights, add};
use super::rows::scale_of;
use super::sums::Sums;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads};
use crate::device::vector::{Input, Vector};
use crate::device::warp::{ballot, lane_id, shuffle_down, shuffle_idx, warp_id};
use halfgnn_contract::spmm::{SpmmParams, VERTEX_LONG_ROW, WARPS_PER_CTA, vertex_shared};
use halfgnn_contract::{VECTOR_BYTES, WARP};

/// Edges whose features a sub-warp has in flight at once.
const IN_FLIGHT: u32 = 4;

/// A CTA has four rows, a warp one of them. The rows of more than [`VERTEX_LONG_ROW`] edges are walked by all four warps,
/// first, and then the others by one warp each.
///
/// # Safety
/// The launch contract of [`SpmmParams`]: CTAs of `THREADS_PER_CTA` threads, `vertex_ctas` in x, feature tiles in y, heads
/// in z.
#[inline(always)]
pub unsafe fn run<V: Vector, W: Weights, S: Scaling, A: Accumulate<V>>(params: &SpmmParams) {
    const { assert!(!S::ATOMIC, "what a row has in several warps is merged") };
    let load = Load::of::<V, W>(params);
    let first = block_idx_x() * WARPS_PER_CTA;
    // SAFETY: the caller's promise. All lanes of a warp have the same bits of `long` and `left`, and so come to the shuffles
    // together; all warps have the same `long`, and so come to the barrier.
    unsafe {
        // The offsets of the rows and the one after them, a lane each, as 32 bits: edges are counted in them. Lanes past
        // those, and past the last row, have empty rows.
        let place = first
            .saturating_add(lane_id().min(WARPS_PER_CTA))
            .min(params.vertices);
        let offset = Global::<u32>::new(params.offsets)
            .at(2 * place as u64)
            .read();
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
                write::<V, S, A::Sums>(params, load, &row, sums);
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
                write::<V, S, A::Sums>(params, load, &row, sums);
            }
        }
    }
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
    let x = Global::<<A::Input as Input>::Bits>::new(params.x).at(load as u64);
    let mut merged = A::Sums::zero().map(|_, _| S::IDENTITY);
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
            let mut first = sub_warp;
            while first - sub_warp < count {
                let places = [
                    first,
                    first + sub_warps,
                    first + 2 * sub_warps,
                    first + 3 * sub_warps,
                ];
                let values = places.map(|place| {
                    let column = shuffle_idx(column, place % WARP);
                    let from = x.row(column, params.x_stride * VECTOR_BYTES);
                    A::Input::from_bits(from.load_if(place < count))
                });
                let mut i = 0;
                while i < IN_FLIGHT as usize {
                    let weight = if W::WEIGHTED {
                        shuffle_idx(weight, places[i] % WARP)
                    } else {
                        0
                    };
                    let term = if W::TERMED {
                        shuffle_idx(term, places[i] % WARP)
                    } else {
                        0.0
                    };
                    if places[i] < count {
                        sum = add::<V, W, S, A>(sum, row.scale, (weight, term, values[i]));
                    }
                    i += 1;
                }
                first += IN_FLIGHT * sub_warps;
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

/// Writes a row whose sums every sub-warp has, by the lanes of the first that have a load of it.
///
/// # Safety
/// The launch contract; no other warp writes the row.
#[inline(always)]
unsafe fn write<V: Vector, S: Scaling, T: Sums<V>>(
    params: &SpmmParams,
    load: Load,
    row: &Row,
    sums: T,
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
            let sums = finish::<V, S, T>(params, load.index, sums, addend);
            sums.write(params, row.row, load, || leads(params));
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
