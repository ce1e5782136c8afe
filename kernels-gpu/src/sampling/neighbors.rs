//! Neighbours of vertices, drawn at random.
//!
//! Without replacement a draw depends on those before it: whether what it drew is taken. So the lanes of a vertex draw at once,
//! and then settle in turn, each asking all others; of more draws than a warp has lanes those before lie in memory as places in the row, and
//! become neighbours when all are settled. Where there are few draws a warp has several vertices, since it mostly waits for memory.

use super::relabel::mark;
use crate::device::global::Global;
use crate::device::integer::wide_product;
use crate::device::thread::block_idx_x;
use crate::device::warp::{ballot, lane_id, shuffle_idx, sync_warp, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::rng::philox_by;
use halfgnn_contract::sampling::{
    NO_VERTEX, NeighborParams, lanes_per_vertex, neighbor_counter, sampled,
};

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
    /// Of which nothing is drawn.
    const EMPTY: Self = Self {
        begin: 0,
        degree: 0,
        picks: 0,
        own: 0,
    };

    /// Edges of the vertex in the batch.
    #[inline(always)]
    fn edges(&self) -> u32 {
        self.picks + self.own
    }

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

/// The lanes of a vertex: a warp, or a part of it.
#[derive(Clone, Copy)]
struct Lanes {
    count: u32,
    /// The lane's number among them.
    lane: u32,
    /// The first one's number in the warp.
    first: u32,
}

impl Lanes {
    #[inline(always)]
    fn new(fanout: u32) -> Self {
        let count = lanes_per_vertex(fanout);
        let lane = lane_id() & (count - 1);
        Self {
            count,
            lane,
            first: lane_id() - lane,
        }
    }

    /// Which of the launch's vertices is theirs.
    #[inline(always)]
    fn vertex(self) -> u64 {
        let warp = block_idx_x() as u64 * (THREADS_PER_CTA / WARP) as u64 + warp_id() as u64;
        (warp * WARP as u64 + self.first as u64) / self.count as u64
    }

    /// What one of them has.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    unsafe fn shuffle(self, value: u32, lane: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { shuffle_idx(value, self.first + lane) }
    }

    /// Whether any of them says so.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    unsafe fn any(self, predicate: bool) -> bool {
        // SAFETY: the caller's promise.
        let warp = unsafe { ballot(predicate) };
        (warp >> self.first) & (u32::MAX >> (WARP - self.count)) != 0
    }
}

/// # Safety
/// The launch contract of [`NeighborParams`]: [`lanes_per_vertex`] lanes for each vertex, whole warps.
#[inline(always)]
pub unsafe fn sample_neighbors(params: &NeighborParams) {
    let lanes = Lanes::new(params.fanout);
    let at = lanes.vertex();
    // SAFETY: the caller's promise. All lanes of a warp come together to where places are settled, with vertices or without; the edges
    // from `first` to `end` are in the buffers and of the lanes' own, and so are those that they pad.
    unsafe {
        let (mut vertex, mut first) = (NO_VERTEX, 0);
        if at < params.vertex_count as u64 {
            end_rows(params, lanes, at);
            vertex = Global::<u32>::new(params.vertices).at(at).read();
            first = Global::<u32>::new(params.firsts).at(at).read() as u64;
        }
        let row = match Row::of(params, vertex) {
            Some(row) if first + row.edges() as u64 <= params.edges => row,
            _ => Row::EMPTY,
        };
        let end = first + row.edges() as u64;
        let mut edge = first + lanes.lane as u64;
        while edge < end {
            Global::<u32>::new(params.rows).at(edge).store(at as u32);
            edge += lanes.count as u64;
        }
        let mut places = Global::<u32>::new(params.neighbors).at(first);
        if row.own != 0 {
            if lanes.lane == 0 {
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
        let taken = !whole && !again;
        if ballot(taken) != 0 {
            let of = if taken { &row } else { &Row::EMPTY };
            take_places(lanes, of, params.fanout, places, draw);
        }
        let columns = Global::<u32>::new(params.columns).at(row.begin);
        let mut pick = lanes.lane;
        while pick < row.picks {
            let to = places.at(pick as u64);
            let place = if whole {
                pick
            } else if again {
                draw(pick, row.degree)
            } else {
                to.load()
            };
            let neighbor = columns.at(place as u64).read();
            to.store(neighbor);
            if !Global::<u32>::new(params.marks).is_null() {
                mark(params.known, params.marks, neighbor);
            }
            pick += lanes.count;
        }
    }
}

/// Says where the vertex' edges begin and how many there are of all, and that there is none behind them: the lanes of all vertices share
/// what is left of the room.
///
/// # Safety
/// The launch contract; `at` is below the number of vertices, the lanes' own.
#[inline(always)]
unsafe fn end_rows(params: &NeighborParams, lanes: Lanes, at: u64) {
    let vertices = params.vertex_count as u64;
    // SAFETY: the caller's promise: there is a sum behind those of the vertices, and an offset likewise; places below `edges` are in the
    // buffers.
    unsafe {
        let firsts = Global::<u32>::new(params.firsts);
        let sum = firsts.at(vertices).read();
        let total = Global::<u32>::new(params.total);
        if at == 0 && lanes.lane == 0 && !total.is_null() {
            total.store(sum);
        }
        let offsets = Global::<u64>::new(params.row_offsets);
        if lanes.lane == 0 && !offsets.is_null() {
            let room = |edge: u32| (edge as u64).min(params.edges);
            offsets.at(at).store(room(firsts.at(at).read()));
            if at == 0 {
                offsets.at(vertices).store(room(sum));
            }
        }
        let mut edge = sum as u64 + at * lanes.count as u64 + lanes.lane as u64;
        while edge < params.edges {
            Global::<u32>::new(params.rows).at(edge).store(NO_VERTEX);
            Global::<u32>::new(params.neighbors)
                .at(edge)
                .store(NO_VERTEX);
            edge += vertices * lanes.count as u64;
        }
    }
}

/// Stores different places in a row, `fanout` of them, which are fewer than its edges; none of an empty one. Each lane loads those alone
/// that it stored.
///
/// # Safety
/// All lanes of the warp come together, with one `fanout` and each with the row and the places of its vertex, the lanes' own.
#[inline(always)]
unsafe fn take_places(
    lanes: Lanes,
    row: &Row,
    fanout: u32,
    places: Global<u32>,
    draw: impl Fn(u32, u32) -> u32,
) {
    let least = row.degree - row.picks;
    let mut begin = 0;
    while begin < fanout {
        let pick = begin + lanes.lane;
        let mut mine = if pick < row.picks {
            draw(pick, least + pick + 1)
        } else {
            0
        };
        let turns = if fanout - begin < lanes.count {
            fanout - begin
        } else {
            lanes.count
        };
        let mut turn = 0;
        while turn < turns {
            // SAFETY: all lanes are in the same turn; what earlier lanes and rounds of draws settled stays, behind a barrier.
            unsafe {
                let drawn = lanes.shuffle(mine, turn);
                let mut taken = lanes.lane < turn && mine == drawn;
                let mut before = lanes.lane;
                while before < begin {
                    taken |= places.at(before as u64).load() == drawn;
                    before += lanes.count;
                }
                if lanes.any(taken) && lanes.lane == turn {
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
        begin += lanes.count;
    }
}
