//! In how many draws vertices and edges are. A word of each vertex has a bit for each of 32 draws, so one pass over the edges counts for
//! all of them: an edge is in those that its two ends have in common.

use crate::device::global::{Global, add_u32, or_u32};
use crate::device::thread::{block_idx_x, global_idx_x};
use crate::device::warp::{ballot, lane_id, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::subgraph::{DRAWS, DrawsParams, SIZED_WORDS};

/// Edges of a row that a lane has under way: the rows of hubs are long, and each edge waits for its column and then for what that is in.
const EDGES: usize = 4;

/// The warp's number in the grid.
#[inline(always)]
pub(super) fn warp() -> u64 {
    const WARPS_PER_CTA: u32 = THREADS_PER_CTA / WARP;
    block_idx_x() as u64 * WARPS_PER_CTA as u64 + warp_id() as u64
}

/// # Safety
/// The launch contract of [`DrawsParams`]: a thread for each of the vertices.
#[inline(always)]
pub unsafe fn mark_draw(params: &DrawsParams) {
    let at = global_idx_x();
    if at >= params.vertex_count {
        return;
    }
    // SAFETY: the caller's promise; bits of a word may be set by several.
    unsafe {
        let vertex = Global::<u32>::new(params.vertices).at(at).read() as u64;
        if vertex < params.graph_rows {
            or_u32(Global::new(params.members).at(vertex), params.draws);
        }
    }
}

/// # Safety
/// The launch contract of [`DrawsParams`]: a warp for each [`SIZED_WORDS`] of the members.
#[inline(always)]
pub unsafe fn size_draws(params: &DrawsParams) {
    let (lane, rows) = (lane_id(), params.graph_rows);
    let mut word = warp() * SIZED_WORDS;
    let end = word + SIZED_WORDS;
    let mut size = 0;
    // SAFETY: the caller's promise: there is a word for each row and a size for each lane. All lanes go the same way.
    unsafe {
        while word < end && word < rows {
            let mine = word + lane as u64;
            let members = Global::<u32>::new(params.members)
                .at(mine)
                .load_if(mine < rows);
            let mut draw = 0;
            while draw < DRAWS {
                let have = ballot(members >> draw & 1 != 0).count_ones();
                if lane == draw {
                    size += have;
                }
                draw += 1;
            }
            word += WARP as u64;
        }
        if size != 0 {
            add_u32(Global::new(params.sizes).at(lane as u64), size);
        }
    }
}

/// # Safety
/// The launch contract of [`DrawsParams`]: a warp for each row.
#[inline(always)]
pub unsafe fn tally_draws(params: &DrawsParams) {
    let row = warp();
    if row >= params.graph_rows {
        return;
    }
    let members = Global::<u32>::new(params.members);
    let columns = Global::<u32>::new(params.columns);
    let counts = Global::<u32>::new(params.edge_counts);
    // SAFETY: the caller's promise: columns are rows, each of which has a word; a row and its edges are one warp's, an edge one lane's.
    unsafe {
        let draws = members.at(row).read() & params.draws;
        if draws == 0 {
            return;
        }
        if lane_id() == 0 {
            let count = Global::<u32>::new(params.vertex_counts).at(row);
            count.store(count.load() + draws.count_ones());
        }
        let offset = Global::<u64>::new(params.offsets).at(row);
        let (begin, end) = (offset.read(), offset.at(1).read());
        let mut edge = begin + lane_id() as u64;
        while edge < end {
            let mut ends = [0; EDGES];
            let mut each = 0;
            while each < EDGES {
                let mine = edge + (each as u64) * WARP as u64;
                ends[each] = columns.at(mine).load_if(mine < end);
                each += 1;
            }
            let mut common = [0; EDGES];
            each = 0;
            while each < EDGES {
                let mine = edge + (each as u64) * WARP as u64;
                let other = members.at(ends[each] as u64).load_if(mine < end);
                common[each] = (other & draws).count_ones();
                each += 1;
            }
            each = 0;
            while each < EDGES {
                let count = counts.at(edge + (each as u64) * WARP as u64);
                if common[each] != 0 {
                    count.store(count.load() + common[each]);
                }
                each += 1;
            }
            edge += (EDGES as u64) * WARP as u64;
        }
    }
}
