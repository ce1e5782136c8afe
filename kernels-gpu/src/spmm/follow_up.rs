//! The follow-up kernel: rows that cross CTAs, and rows without edges.

use super::policy::Scaling;
use crate::device::global::Global;
use crate::device::thread::{block_idx_x, block_idx_y, thread_idx_x};
use crate::device::vector::{Floats, Vector, without_padding};
use crate::device::warp::{lane_id, shuffle_xor, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::spmm::{
    EDGES_PER_CTA, EMPTY_ROWS_PER_CTA, STAGED_END, STAGED_TAIL, SpmmParams, THREADS_PER_CTA,
    WARPS_PER_CTA, staging_index,
};

/// Partial rows that a sub-warp has in flight at once.
const IN_FLIGHT: u32 = 4;

/// # Safety
/// The launch contract of [`SpmmParams`]: `follow_up_ctas` × feature tiles CTAs of [`THREADS_PER_CTA`] threads, after the
/// edge-parallel kernel.
#[inline(always)]
pub unsafe fn run<V: Vector, S: Scaling>(params: &SpmmParams) {
    let lanes = 1 << params.lanes_log2;
    let load = block_idx_y() * lanes + (thread_idx_x() & (lanes - 1));
    let lane = Lane {
        load: load.min(params.feature_loads - 1) as u64,
        active: load < params.feature_loads,
        sub_warp: lane_id() >> params.lanes_log2,
        sub_warps: WARP >> params.lanes_log2,
    };
    let walkers = params.ctas.div_ceil(WARPS_PER_CTA);
    // SAFETY: the caller's promise; the two kinds of CTA write different rows.
    unsafe {
        if block_idx_x() < walkers {
            complete::<V, S>(params, &lane, block_idx_x() * WARPS_PER_CTA + warp_id());
        } else {
            clear::<V>(
                params,
                &lane,
                (block_idx_x() - walkers) * EMPTY_ROWS_PER_CTA,
            );
        }
    }
}

struct Lane {
    /// Which load of a row is the lane's.
    load: u64,
    /// Whether the row has such a load.
    active: bool,
    /// Sub-warp in the warp.
    sub_warp: u32,
    /// Sub-warps of the warp.
    sub_warps: u32,
}

/// Completes the row that began before CTA `cta` of the first kernel and ends in it, where there is one.
///
/// # Safety
/// The launch contract; all lanes of the warp come with the same `cta`.
#[inline(always)]
unsafe fn complete<V: Vector, S: Scaling>(params: &SpmmParams, lane: &Lane, cta: u32) {
    if cta == 0 || cta >= params.ctas {
        return;
    }
    let rows = Global::<u32>::new(params.rows);
    let edges = params.edges as u64;
    let first = cta as u64 * EDGES_PER_CTA as u64;
    let end = (first + EDGES_PER_CTA as u64).min(edges);
    // SAFETY: `first` and `end - 1` are edges, and so is `end` where it is read; staged rows were staged by the first
    // kernel, because the row crosses each CTA from its first to this one.
    unsafe {
        let row = rows.at(first).read();
        let began_before = rows.at(first - 1).read() == row;
        let goes_on = end < edges && rows.at(end).read() == row;
        if !began_before || goes_on {
            return;
        }
        let begin = (Global::<u64>::new(params.offsets).at(row as u64).read()
            / EDGES_PER_CTA as u64) as u32;
        let features = params.feature_loads * V::WIDTH;
        let staging = Global::<f32>::new(params.staging).at(lane.load * V::WIDTH as u64);
        let tail =
            |cta: u32| V::Floats::load(staging.at(staging_index(cta, STAGED_TAIL, features)));

        // Each sub-warp adds up every `sub_warps`-th CTA, then the sub-warps are added up as a tree.
        let mut sum = V::Floats::ZERO;
        let mut at = begin + lane.sub_warp;
        let stride = lane.sub_warps;
        while at + (IN_FLIGHT - 1) * stride < cta {
            let parts = [
                tail(at),
                tail(at + stride),
                tail(at + 2 * stride),
                tail(at + 3 * stride),
            ];
            let mut i = 0;
            while i < IN_FLIGHT as usize {
                sum = S::merge(sum, parts[i]);
                i += 1;
            }
            at += IN_FLIGHT * stride;
        }
        while at < cta {
            sum = S::merge(sum, tail(at));
            at += stride;
        }
        let mut distance = WARP / 2;
        while distance >= 1 << params.lanes_log2 {
            let mut other = V::Floats::ZERO;
            let mut i = 0;
            while i < V::WIDTH as usize {
                other = other.with(i, shuffle_xor(sum.get(i), distance));
                i += 1;
            }
            sum = S::merge(sum, other);
            distance /= 2;
        }
        sum = S::merge(
            sum,
            V::Floats::load(staging.at(staging_index(cta, STAGED_END, features))),
        );

        if lane.sub_warp == 0 && lane.active {
            let row_scale = Global::<f32>::new(params.row_scale);
            let scale = if row_scale.is_null() {
                params.scale
            } else {
                params.scale * row_scale.at(row as u64).read()
            };
            let sum = without_padding::<V>(
                S::complete(sum, scale),
                lane.load * V::WIDTH as u64,
                params.features,
            );
            store::<V>(params, lane, row, V::narrow(sum));
        }
    }
}

/// Writes zeros to the rows without edges from the `first`-th on.
///
/// # Safety
/// The launch contract.
#[inline(always)]
unsafe fn clear<V: Vector>(params: &SpmmParams, lane: &Lane, first: u32) {
    let end = first
        .saturating_add(EMPTY_ROWS_PER_CTA)
        .min(params.empty_count);
    let mut at = first + (thread_idx_x() >> params.lanes_log2);
    while at < end {
        if lane.active {
            // SAFETY: `at` is below the number of empty rows, each of which stands once in the list.
            unsafe {
                let row = Global::<u32>::new(params.empty_rows).at(at as u64).read();
                store::<V>(params, lane, row, V::zero());
            }
        }
        at += THREADS_PER_CTA >> params.lanes_log2;
    }
}

/// # Safety
/// `row` is a row of the output, and no other thread writes the lane's part of it.
#[inline(always)]
unsafe fn store<V: Vector>(params: &SpmmParams, lane: &Lane, row: u32, value: V) {
    let at = row as u64 * (params.y_stride * V::PER_16_BYTES) as u64 + lane.load;
    // SAFETY: the caller's promise.
    unsafe {
        Global::<V::Bits>::new(params.y)
            .at(at)
            .store(value.to_bits())
    };
}
