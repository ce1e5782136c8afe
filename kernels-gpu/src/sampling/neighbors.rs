//! Neighbours of vertices, drawn at random.
//!
//! Without replacement a draw depends on those before it: whether what it drew is taken. So the lanes of a warp draw at once,
//! and then settle in turn, each asking all others; of more draws than lanes those before lie in memory as places in the row, and
//! become neighbours when all are settled.

use crate::device::global::Global;
use crate::device::integer::wide_product;
use crate::device::thread::{block_idx_x, global_idx_x};
use crate::device::warp::{ballot, lane_id, shuffle_idx, sync_warp, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::rng::philox_by;
use halfgnn_contract::sampling::{NO_VERTEX, NeighborParams, neighbor_counter, sampled};

/// # Safety
/// The launch contract of [`NeighborParams`]: a thread for each vertex, and one more.
#[inline(always)]
pub unsafe fn count_neighbors(params: &NeighborParams) {
    let at = global_idx_x();
    let count = params.vertex_count as u64;
    if at > count {
        return;
    }
    let mut edges = 0;
    // SAFETY: the caller's promise; a count is one thread's, and one more lies behind them.
    unsafe {
        if at < count {
            let vertex = Global::<u32>::new(params.vertices).at(at).read();
            if let Some(row) = Row::of(params, vertex) {
                edges = row.picks + row.own;
            }
        }
        Global::<u32>::new(params.firsts).at(at).store(edges);
    }
}

/// What is drawn of a vertex.
struct Row {
    /// Its first edge in the graph.
    begin: u64,
    degree: u32,
    /// Neighbours that are drawn.
    picks: u32,
    /// 1 where it hears from itself.
    own: u32,
}

impl Row {
    /// Of a vertex, if it is one.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn of(params: &NeighborParams, vertex: u32) -> Option<Self> {
        if vertex as u64 >= params.graph_rows {
            return None;
        }
        let offset = Global::<u64>::new(params.offsets).at(vertex as u64);
        // SAFETY: the caller's promise: there is an offset more than rows.
        let (begin, end) = unsafe { (offset.read(), offset.at(1).read()) };
        let degree = (end - begin) as u32;
        Some(Self {
            begin,
            degree,
            picks: sampled(degree, params.fanout, params.replace != 0),
            own: (params.own != 0) as u32,
        })
    }
}

/// # Safety
/// The launch contract of [`NeighborParams`]: a warp for each vertex.
#[inline(always)]
pub unsafe fn sample_neighbors(params: &NeighborParams) {
    const WARPS_PER_CTA: u32 = THREADS_PER_CTA / WARP;
    let at = block_idx_x() as u64 * WARPS_PER_CTA as u64 + warp_id() as u64;
    if at >= params.vertex_count as u64 {
        return;
    }
    // SAFETY: the caller's promise. All lanes of the warp go the same way but in the loops over its lanes' own draws, behind which
    // they meet; the edges from `first` to `end` are in the buffers and the warp's own, and so are those that it pads.
    unsafe {
        pad_edges(params, at);
        let vertex = Global::<u32>::new(params.vertices).at(at).read();
        let Some(row) = Row::of(params, vertex) else {
            return;
        };
        let first = Global::<u32>::new(params.firsts).at(at).read() as u64;
        let end = first + row.picks as u64 + row.own as u64;
        if end > params.edges {
            return;
        }
        let mut edge = first + lane_id() as u64;
        while edge < end {
            Global::<u32>::new(params.rows).at(edge).store(at as u32);
            edge += WARP as u64;
        }
        let mut places = Global::<u32>::new(params.neighbors).at(first);
        if row.own != 0 {
            if lane_id() == 0 {
                places.store(vertex);
            }
            places = places.at(1);
        }
        let steps = Global::<u32>::new(params.steps);
        let mut step = params.step;
        if !steps.is_null() {
            step = step.wrapping_add(steps.read());
        }
        let draw = |index, choices| {
            let counter = neighbor_counter(step, params.layer, vertex, index);
            let number = philox_by(params.key, counter, wide_product)[0];
            wide_product(number, choices)[1]
        };
        let again = params.replace != 0;
        let whole = row.picks == row.degree && !again;
        if !whole && !again {
            take_places(&row, places, draw);
        }
        let columns = Global::<u32>::new(params.columns).at(row.begin);
        let mut pick = lane_id();
        while pick < row.picks {
            let to = places.at(pick as u64);
            let place = if whole {
                pick
            } else if again {
                draw(pick, row.degree)
            } else {
                to.load()
            };
            to.store(columns.at(place as u64).read());
            pick += WARP;
        }
    }
}

/// Says how many edges there are, and that there is none behind them: the warps of all vertices share what is left of the room.
///
/// # Safety
/// The launch contract; `at` is below the number of vertices, a warp's own.
#[inline(always)]
unsafe fn pad_edges(params: &NeighborParams, at: u64) {
    let vertices = params.vertex_count as u64;
    // SAFETY: the caller's promise: there is a sum behind those of the vertices; places below `edges` are in the buffers.
    unsafe {
        let sum = Global::<u32>::new(params.firsts).at(vertices).read();
        let total = Global::<u32>::new(params.total);
        if at == 0 && lane_id() == 0 && !total.is_null() {
            total.store(sum);
        }
        let mut edge = sum as u64 + at * WARP as u64 + lane_id() as u64;
        while edge < params.edges {
            Global::<u32>::new(params.rows).at(edge).store(NO_VERTEX);
            Global::<u32>::new(params.neighbors)
                .at(edge)
                .store(NO_VERTEX);
            edge += vertices * WARP as u64;
        }
    }
}

/// Stores different places in a row, which are fewer than its edges. Each lane loads those alone that it stored.
///
/// # Safety
/// All lanes of the warp come together with the same row and places, of which there are as many as picks, the warp's own.
#[inline(always)]
unsafe fn take_places(row: &Row, places: Global<u32>, draw: impl Fn(u32, u32) -> u32) {
    let least = row.degree - row.picks;
    let mut begin = 0;
    while begin < row.picks {
        let pick = begin + lane_id();
        let mut mine = if pick < row.picks {
            draw(pick, least + pick + 1)
        } else {
            0
        };
        let turns = if row.picks - begin < WARP {
            row.picks - begin
        } else {
            WARP
        };
        let mut turn = 0;
        while turn < turns {
            // SAFETY: all lanes are in the same turn; what earlier lanes and warps of draws settled stays, behind a barrier.
            unsafe {
                let drawn = shuffle_idx(mine, turn);
                let mut taken = lane_id() < turn && mine == drawn;
                let mut before = lane_id();
                while before < begin {
                    taken |= places.at(before as u64).load() == drawn;
                    before += WARP;
                }
                if ballot(taken) != 0 && lane_id() == turn {
                    mine = least + pick;
                }
            }
            turn += 1;
        }
        // SAFETY: a pick is one lane's; others load it behind the barrier.
        unsafe {
            if pick < row.picks {
                places.at(pick as u64).store(mine);
            }
            sync_warp();
        }
        begin += WARP;
    }
}
