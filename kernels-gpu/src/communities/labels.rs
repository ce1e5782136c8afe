//! A round of label propagation: a warp looks at the neighbours of one vertex after the other, one a lane, and each lane asks all
//! others what their neighbour's label is.

use crate::device::global::Global;
use crate::device::thread::block_idx_x;
use crate::device::warp::{ballot, lane_id, shuffle_idx, shuffle_xor, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::communities::{
    NEIGHBORS, PropagateParams, VERTICES_PER_WARP, WARPS_PER_CTA, chance, first_place, listens,
    rank, wins,
};

/// # Safety
/// The launch contract of [`PropagateParams`]: a warp for each [`VERTICES_PER_WARP`] vertices, [`WARPS_PER_CTA`] a CTA.
#[inline(always)]
pub unsafe fn propagate_labels(params: &PropagateParams) {
    let warp = block_idx_x() * WARPS_PER_CTA + warp_id();
    let first = warp as u64 * VERTICES_PER_WARP as u64;
    if first >= params.vertices as u64 {
        return;
    }
    let labels = Global::<u32>::new(params.labels);
    let vertex = first + lane_id() as u64;
    let is_vertex = vertex < params.vertices as u64;
    // SAFETY: the caller's promise: a label a vertex before and after, and an offset more. All lanes of the warp go the same way, a
    // vertex is one lane's, and the count one warp's.
    unsafe {
        let own = if is_vertex {
            labels.at(vertex).read()
        } else {
            0
        };
        let here = is_vertex && listens(chance(vertex as u32, params.round), params.round);
        let mut left = ballot(here);
        let mut label = own;
        while left != 0 {
            let turn = left.trailing_zeros();
            left &= left - 1;
            let of = first + turn as u64;
            let taken = most_common(params, of, shuffle_idx(own, turn));
            if lane_id() == turn {
                label = taken;
            }
        }
        if is_vertex {
            Global::<u32>::new(params.next).at(vertex).store(label);
        }
        let moved = ballot(label != own).count_ones();
        if lane_id() == 0 {
            Global::<u32>::new(params.moved)
                .at(warp as u64)
                .store(moved);
        }
    }
}

/// The label that most of the neighbours have of those that this round looks at.
///
/// # Safety
/// All lanes of the warp come together with the same vertex, and the launch contract.
#[inline(always)]
unsafe fn most_common(params: &PropagateParams, vertex: u64, own: u32) -> u32 {
    let offsets = Global::<u64>::new(params.offsets).at(vertex);
    // SAFETY: the caller's promise; an edge is read below their number, and a label of a vertex alone.
    unsafe {
        let end = offsets.at(1).read().min(params.edges);
        let begin = offsets.read().min(end);
        let degree = (end - begin) as u32;
        let looked = if degree < NEIGHBORS {
            degree
        } else {
            NEIGHBORS
        };
        let mut place = first_place(chance(vertex as u32, params.round), degree) as u64;
        place += lane_id() as u64;
        if place >= degree as u64 {
            place -= degree as u64;
        }
        let mut label = own;
        let mut counts = false;
        if lane_id() < looked {
            let column = Global::<u32>::new(params.columns).at(begin + place).read();
            counts = column < params.vertices;
            if counts {
                label = Global::<u32>::new(params.labels).at(column as u64).read();
            }
        }
        let voters = ballot(counts);
        let mut votes = 0;
        let mut other = 0;
        while other < looked {
            let same = shuffle_idx(label, other) == label;
            votes += same as u32 & (voters >> other) & 1;
            other += 1;
        }
        // Without a vote it is the own label, whose rank is above any other's without.
        let mut of = if counts {
            rank(votes, label == own)
        } else {
            rank(0, true)
        };
        let mut distance = WARP / 2;
        while distance > 0 {
            let theirs = (shuffle_xor(of, distance), shuffle_xor(label, distance));
            if wins(theirs, (of, label)) {
                (of, label) = theirs;
            }
            distance /= 2;
        }
        label
    }
}
