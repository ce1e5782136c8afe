//! The edges of rows that end in known vertices: the lanes of a warp look at 32 edges of a row at a time, and a vote says where
//! each of those that stay goes.

use crate::device::global::Global;
use crate::device::thread::block_idx_x;
use crate::device::warp::{ballot, lane_id, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::subgraph::WithinParams;

/// The warp's place among the vertices.
#[inline(always)]
fn place() -> u64 {
    const WARPS_PER_CTA: u32 = THREADS_PER_CTA / WARP;
    block_idx_x() as u64 * WARPS_PER_CTA as u64 + warp_id() as u64
}

/// Calls `with` with a lane's edge and its column, if it ends in a known vertex, and the lanes of which that is so; for all edges of
/// a vertex, 32 at a time.
///
/// # Safety
/// The launch contract of [`WithinParams`]; all lanes of the warp come together with the same vertex.
#[inline(always)]
unsafe fn for_edges(
    params: &WithinParams,
    vertex: u32,
    mut with: impl FnMut(Option<(u64, u32)>, u32),
) {
    if vertex as u64 >= params.graph_rows {
        return;
    }
    let offset = Global::<u64>::new(params.offsets).at(vertex as u64);
    // SAFETY: the caller's promise: there is an offset more than rows, and columns are vertices.
    unsafe {
        let (mut edge, end) = (offset.read(), offset.at(1).read());
        while edge < end {
            let mine = edge + lane_id() as u64;
            let mut found = None;
            if mine < end {
                let column = Global::<u32>::new(params.columns).at(mine).read();
                let word = Global::<u32>::new(params.known).at(column as u64 / 32);
                if word.read() >> (column % 32) & 1 != 0 {
                    found = Some((mine, column));
                }
            }
            let all = ballot(found.is_some());
            with(found, all);
            edge += WARP as u64;
        }
    }
}

/// # Safety
/// The launch contract of [`WithinParams`]: a warp for each vertex, and one more.
#[inline(always)]
pub unsafe fn count_within(params: &WithinParams) {
    let at = place();
    let count = params.vertex_count as u64;
    if at > count {
        return;
    }
    let mut edges = 0;
    // SAFETY: the caller's promise; a count is one warp's, and one more lies behind them.
    unsafe {
        if at < count {
            let vertex = Global::<u32>::new(params.vertices).at(at).read();
            for_edges(params, vertex, |_, all| edges += all.count_ones());
        }
        if lane_id() == 0 {
            Global::<u32>::new(params.firsts).at(at).store(edges);
        }
    }
}

/// # Safety
/// The launch contract of [`WithinParams`]: a warp for each vertex.
#[inline(always)]
pub unsafe fn take_within(params: &WithinParams) {
    let at = place();
    if at >= params.vertex_count as u64 {
        return;
    }
    // SAFETY: the caller's promise; edges before `end` are in the buffers and the warp's own.
    unsafe {
        let first = Global::<u32>::new(params.firsts).at(at);
        let (mut next, end) = (first.read() as u64, first.at(1).read() as u64);
        if end > params.edges {
            return;
        }
        let vertex = Global::<u32>::new(params.vertices).at(at).read();
        for_edges(params, vertex, |found, all| {
            let before = all & ((1 << lane_id()) - 1);
            let to = next + before.count_ones() as u64;
            if let Some((edge, column)) = found
                && to < end
            {
                let place = Global::<u32>::new(params.places).at(column as u64).read();
                Global::<u32>::new(params.rows).at(to).store(at as u32);
                Global::<u32>::new(params.neighbors).at(to).store(place);
                Global::<u32>::new(params.edge_ids)
                    .at(to)
                    .store(edge as u32);
            }
            next += all.count_ones() as u64;
        });
    }
}
