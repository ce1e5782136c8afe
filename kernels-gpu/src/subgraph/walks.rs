//! Random walks, and the walk of a frontier.
//!
//! A frontier moves one vertex at a time, and each move depends on those before, so one warp walks it: its lanes find who moves by
//! sums of degrees at three levels of 32, and correct one sum of each.

use crate::device::global::Global;
use crate::device::integer::wide_product;
use crate::device::thread::{block_idx_x, global_idx_x};
use crate::device::warp::{ballot, lane_id, shuffle_idx, shuffle_up, sync_warp};
use halfgnn_contract::WARP;
use halfgnn_contract::rng::philox_by;
use halfgnn_contract::subgraph::{
    FrontierParams, WalkParams, frontier_counter, frontier_groups, walk_counter, wide_choice,
};

/// The first edge of a row and how many there are, none of what is no row.
///
/// # Safety
/// There is an offset more than rows.
#[inline(always)]
unsafe fn row(offsets: Global<u64>, rows: u64, vertex: u32) -> (u64, u32) {
    if vertex as u64 >= rows {
        return (0, 0);
    }
    let offset = offsets.at(vertex as u64);
    // SAFETY: the caller's promise.
    let (begin, end) = unsafe { (offset.read(), offset.at(1).read()) };
    (begin, (end - begin) as u32)
}

/// # Safety
/// The launch contract of [`WalkParams`]: a thread for each walk.
#[inline(always)]
pub unsafe fn random_walks(params: &WalkParams) {
    let walk = global_idx_x();
    if walk >= params.walks as u64 {
        return;
    }
    let draw = |edges| {
        let counter = walk_counter(params.step, walk as u32, edges);
        philox_by(params.key, counter, wide_product)
    };
    let columns = Global::<u32>::new(params.columns);
    let vertices = Global::<u32>::new(params.vertices).at(walk * (params.length as u64 + 1));
    // SAFETY: the caller's promise: a root is chosen of those that there are, an edge of a row of its edges; the vertices of a walk
    // are one thread's.
    unsafe {
        let numbers = draw(0);
        let roots = Global::<u32>::new(params.roots);
        let mut vertex = if roots.is_null() {
            let edge = wide_choice([numbers[0], numbers[1]], params.edges);
            columns.at(edge).read()
        } else {
            let root = wide_product(numbers[0], params.root_count)[1];
            roots.at(root as u64).read()
        };
        vertices.store(vertex);
        let mut edges = 1;
        while edges <= params.length {
            let offsets = Global::<u64>::new(params.offsets);
            let (begin, degree) = row(offsets, params.graph_rows, vertex);
            if degree != 0 {
                let edge = wide_product(draw(edges)[0], degree)[1];
                vertex = columns.at(begin + edge as u64).read();
            }
            vertices.at(edges as u64).store(vertex);
            edges += 1;
        }
    }
}

/// The sum of the values of the lanes up to this one.
///
/// # Safety
/// All lanes of the warp come together.
#[inline(always)]
unsafe fn sum_up_to(value: u64) -> u64 {
    let mut sum = value;
    let mut distance = 1;
    while distance < WARP {
        // SAFETY: the caller's promise.
        let below = unsafe {
            let low = shuffle_up(sum as u32, distance);
            let high = shuffle_up((sum >> 32) as u32, distance);
            low as u64 | (high as u64) << 32
        };
        if lane_id() >= distance {
            sum += below;
        }
        distance *= 2;
    }
    sum
}

/// The value of a lane.
///
/// # Safety
/// All lanes of the warp come together.
#[inline(always)]
unsafe fn of_lane(value: u64, lane: u32) -> u64 {
    // SAFETY: the caller's promise.
    unsafe {
        let low = shuffle_idx(value as u32, lane);
        let high = shuffle_idx((value >> 32) as u32, lane);
        low as u64 | (high as u64) << 32
    }
}

/// The first lane the sum of whose values, and of those before, is more than `wanted`, and what of it is left to that lane.
///
/// # Safety
/// All lanes of the warp come together with the same number, which is less than the sum of all values.
#[inline(always)]
unsafe fn find(value: u64, wanted: u64) -> (u32, u64) {
    // SAFETY: the caller's promise.
    unsafe {
        let sum = sum_up_to(value);
        let lane = ballot(sum > wanted).trailing_zeros();
        (lane, wanted - of_lane(sum - value, lane))
    }
}

/// # Safety
/// The launch contract of [`FrontierParams`]: one warp.
#[inline(always)]
pub unsafe fn frontier_walk(params: &FrontierParams) {
    if block_idx_x() != 0 {
        return;
    }
    let (length, lane) = (params.frontier_len, lane_id());
    let groups = frontier_groups(length);
    let offsets = Global::<u64>::new(params.offsets);
    let columns = Global::<u32>::new(params.columns);
    let vertices = Global::<u32>::new(params.vertices);
    let frontier = Global::<u32>::new(params.frontier);
    let degrees = frontier.at(length as u64);
    let sums = Global::<u64>::new(params.sums);
    let tops = sums.at(groups as u64);
    let draw = |index| {
        let counter = frontier_counter(params.step, index);
        philox_by(params.key, counter, wide_product)
    };
    // SAFETY: the caller's promise. All lanes go the same way but where each has items of its own, behind which they meet; a frontier
    // has as many degrees and groups of sums as lanes look at.
    unsafe {
        let mut index = lane;
        while index < length {
            let root = wide_product(draw(index)[0], params.root_count)[1];
            let vertex = Global::<u32>::new(params.roots).at(root as u64).read();
            vertices.at(index as u64).store(vertex);
            frontier.at(index as u64).store(vertex);
            let (_, degree) = row(offsets, params.graph_rows, vertex);
            degrees.at(index as u64).store(degree);
            index += WARP;
        }
        sync_warp();
        let mut group = lane;
        while group < groups {
            let mut sum = 0;
            let mut member = group * WARP;
            while member < length && member < (group + 1) * WARP {
                sum += degrees.at(member as u64).load() as u64;
                member += 1;
            }
            sums.at(group as u64).store(sum);
            group += WARP;
        }
        sync_warp();
        let mut sum = 0;
        let mut group = lane * WARP;
        while group < groups && group < (lane + 1) * WARP {
            sum += sums.at(group as u64).load();
            group += 1;
        }
        if lane * WARP < groups {
            tops.at(lane as u64).store(sum);
        }
        sync_warp();
        let mut next = length;
        while next < params.vertex_count {
            let numbers = draw(next);
            let top = tops.at(lane as u64).load_if(lane * WARP < groups);
            let total = of_lane(sum_up_to(top), WARP - 1);
            if total == 0 {
                if lane == 0 {
                    vertices.at(next as u64).store(frontier.load());
                }
            } else {
                let wanted = wide_choice([numbers[0], numbers[1]], total);
                let (top, left) = find(top, wanted);
                let group = top * WARP + lane;
                let sum = sums.at(group as u64).load_if(group < groups);
                let (group, left) = find(sum, left);
                let group = top * WARP + group;
                let member = group * WARP + lane;
                let degree = degrees.at(member as u64).load_if(member < length);
                let (member, _) = find(degree as u64, left);
                let member = (group * WARP + member) as u64;
                // All have looked before one changes it.
                sync_warp();
                if lane == 0 {
                    let (begin, degree) =
                        row(offsets, params.graph_rows, frontier.at(member).load());
                    let edge = wide_product(numbers[2], degree)[1];
                    let vertex = columns.at(begin + edge as u64).read();
                    let (_, becomes) = row(offsets, params.graph_rows, vertex);
                    vertices.at(next as u64).store(vertex);
                    frontier.at(member).store(vertex);
                    degrees.at(member).store(becomes);
                    let correct = |sum: Global<u64>| {
                        sum.store(sum.load() + becomes as u64 - degree as u64);
                    };
                    correct(sums.at(group as u64));
                    correct(tops.at(top as u64));
                }
                sync_warp();
            }
            next += 1;
        }
    }
}
