//! Rows of columns and of edges, copied to shared memory ahead of the edges that read them.
//!
//! ```text
//!  steps of a chunk    0      1      2      3      4      a step: an edge for each group of lanes
//!                   computed  └──arriving─┘               RING_STEPS buffers, reused in turn
//! ```
//!
//! Steps follow the chunk, not its rows, so a short row waits for memory no longer than a long one.
//!
//! Lanes copy whole lines of rows: neighbouring lanes neighbouring vectors, whichever lane reads them. In every second line of 128 bytes in
//! shared memory, vectors change places, so that eight lanes that read every second vector, or half of two lines, meet no bank twice.

use super::lanes::{Lane, vector_of_slot};
use super::pass::{Params, Pass};
use crate::device::async_copy::{commit, copy_8, copy_16, wait};
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::vector::Vector;
use crate::device::warp::{lane_id, shuffle_idx, sync_warp, warp_id};
use halfgnn_contract::edge_walk::{EdgeWalk, PLANE_BYTES, RING_STEPS, step_bytes, warp_bytes};
use halfgnn_contract::{DevicePtr, HalfBits, VECTOR_BYTES, WARP};

/// An edge as a lane has it: its values in the planes of a step, zeros where there is none.
#[derive(Clone, Copy)]
pub struct Edge<const R: usize> {
    /// Whether there is one.
    pub there: bool,
    /// The current step.
    step: Shared,
    /// Where the lane's vectors of a matrix lie in it.
    own: [u32; R],
    zeros: Shared,
    /// Where the plane of statistics and ids begins.
    tail: u32,
}

impl<const R: usize> Edge<R> {
    /// The place `bytes` from the step's beginning. Zeros of other edges keep what is infinite or NaN there out of a sum.
    #[inline(always)]
    fn place(&self, bytes: u32) -> Shared {
        if self.there {
            self.step.offset(bytes)
        } else {
            self.zeros
        }
    }

    /// The lane's vectors of the row that matrix `matrix` of the pass has for the column or the edge.
    ///
    /// # Safety
    /// The ring has advanced to the edge's step.
    #[inline(always)]
    pub unsafe fn row<V: Vector<Bits = [u32; 4]>>(&self, matrix: usize) -> [V; R] {
        let mut vectors = [V::zero(); R];
        unroll!(load in 0..R => {
            let place = self.place((matrix * R) as u32 * PLANE_BYTES + self.own[load]);
            // SAFETY: the caller's promise; a step has these planes.
            vectors[load] = V::from_bits(unsafe { place.load_u32x4() });
        });
        vectors
    }

    /// The statistics of the column and the lane's head, of a pass that reads them.
    ///
    /// # Safety
    /// As [`Edge::row`].
    #[inline(always)]
    pub unsafe fn statistics(&self) -> [f32; 2] {
        // SAFETY: the caller's promise.
        unsafe { self.place(self.tail).load_u32x2() }.map(f32::from_bits)
    }

    /// The column and the edge, of a pass that reads them.
    ///
    /// # Safety
    /// As [`Edge::row`].
    #[inline(always)]
    pub unsafe fn ids(&self) -> [u32; 2] {
        // SAFETY: the caller's promise.
        unsafe { self.place(self.tail + 8).load_u32x2() }
    }
}

/// A vector that a lane copies of each matrix.
#[derive(Clone, Copy, Default)]
struct Copied {
    /// Its edge, counted from the step's first.
    edge: u32,
    /// The vector of the row, where the row has one there.
    vector: u32,
    is_one: bool,
    /// Where it goes, from the matrix's beginning.
    place: u32,
}

/// Where vector `slot` of the step of a matrix lies.
#[inline(always)]
fn place_of(slot: u32) -> u32 {
    let is_odd_line = slot / VECTORS_OF_LINE % 2;
    (slot ^ (is_odd_line * (VECTORS_OF_LINE - 1))) * VECTOR_BYTES
}

/// Vectors of a line of shared memory: one for each four banks.
const VECTORS_OF_LINE: u32 = 8;

/// The steps of a chunk that are computed or arriving.
pub struct Ring<const R: usize> {
    lane: Lane<R>,
    /// The first step.
    first: Shared,
    /// Where the lane's vectors of a matrix lie in a step.
    own: [u32; R],
    /// What the lane copies of each matrix.
    copied: [Copied; R],
    /// A vector of zeros.
    zeros: Shared,
    /// The buffer of the current step, in bytes.
    current: u32,
    /// The edge behind the current step.
    pub end_of_step: u32,
    /// The chunk's first edge and the one behind its last.
    chunk: [u32; 2],
    /// Edges of the chunk that were sent for.
    sent: u32,
    /// Columns of 32 edges, a lane each, and of the 32 behind them.
    columns: [u32; 2],
    /// Likewise their numbers, of a pass that reads rows of edges.
    edges: [u32; 2],
}

/// Vectors of a step of a pass.
const fn vectors<V: Vector<Bits = [u32; 4]>, P: Pass<V, R>, const R: usize>() -> u32 {
    ((P::COLUMNS + P::EDGES) * R) as u32
}

impl<const R: usize> Ring<R> {
    /// The ring of a warp; the first steps are arriving.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, once, and the chunk has these edges.
    #[inline(always)]
    pub unsafe fn new<V: Vector<Bits = [u32; 4]>, P: Pass<V, R>>(
        params: &P::Params,
        lane: Lane<R>,
        begin: u32,
        end: u32,
    ) -> Self {
        let step_bytes = const { step_bytes(vectors::<V, P, R>()) };
        let memory = Shared::base().offset(warp_id() * const { warp_bytes(vectors::<V, P, R>()) });
        let zeros = memory.offset(RING_STEPS * step_bytes);
        let (own, copied) = places(params.walk(), &lane);
        let mut ring = Self {
            lane,
            first: memory,
            own,
            copied,
            zeros,
            current: (RING_STEPS - 1) * step_bytes,
            end_of_step: begin,
            chunk: [begin, end],
            sent: 0,
            columns: [0; 2],
            edges: [0; 2],
        };
        // SAFETY: the caller's promise; the zeros are ordered by the barrier.
        unsafe {
            ring.window::<V, P>(params, begin);
            if lane_id() == 0 {
                zeros.store_u32x4([0; 4]);
            }
            sync_warp();
            unroll!(step in 0..RING_STEPS as usize - 1 => {
                ring.send::<V, P>(params, step as u32 * step_bytes);
            });
        }
        ring
    }

    /// Goes on to the next step, and sends for one more.
    ///
    /// # Safety
    /// As [`Ring::new`]; the current step is not read any more.
    #[inline(always)]
    pub unsafe fn advance<V: Vector<Bits = [u32; 4]>, P: Pass<V, R>>(
        &mut self,
        params: &P::Params,
    ) {
        wait::<{ RING_STEPS - 2 }>();
        // SAFETY: the caller's promise. After the barrier the next step is there for all lanes, and none reads the one before.
        unsafe {
            sync_warp();
            self.send::<V, P>(params, self.current);
        }
        let step_bytes = const { step_bytes(vectors::<V, P, R>()) };
        self.current += step_bytes;
        if self.current == RING_STEPS * step_bytes {
            self.current = 0;
        }
        self.end_of_step += self.groups();
    }

    /// The lane's edge of the current step, where it is one from `first` on and before `until`.
    #[inline(always)]
    pub fn edge<V: Vector<Bits = [u32; 4]>, P: Pass<V, R>>(
        &self,
        first: u32,
        until: u32,
    ) -> Edge<R> {
        let own = self.end_of_step - self.groups() + self.lane.group;
        let there = own >= first && own < until;
        let tail = const { vectors::<V, P, R>() * PLANE_BYTES } + lane_id() * VECTOR_BYTES;
        Edge {
            there,
            step: self.first.offset(self.current),
            own: self.own,
            zeros: self.zeros,
            tail,
        }
    }

    #[inline(always)]
    fn groups(&self) -> u32 {
        self.lane.groups
    }

    /// Loads a window more: columns, and numbers where they are read, of the 32 edges from `edge` on.
    ///
    /// # Safety
    /// As [`Ring::new`].
    #[inline(always)]
    unsafe fn window<V: Vector<Bits = [u32; 4]>, P: Pass<V, R>>(
        &mut self,
        params: &P::Params,
        edge: u32,
    ) {
        let own = edge + lane_id();
        let present = own < self.chunk[1];
        let column = Global::<u32>::new(params.walk().columns).at(own as u64);
        // SAFETY: the caller's promise.
        unsafe {
            self.columns = [self.columns[1], column.load_once_if(present)];
            if P::EDGES > 0 {
                let order = Global::<u32>::new(params.order());
                // Without a branch, behind which LLVM would copy the shuffles.
                let is_read = present && !order.is_null();
                let id = order.at(own as u64).load_or(is_read, own);
                self.edges = [self.edges[1], id];
            }
        }
    }

    /// Starts the copies of the next step, if there is one.
    ///
    /// # Safety
    /// As [`Ring::new`]; nothing of the buffer is read before the step has arrived.
    #[inline(always)]
    unsafe fn send<V: Vector<Bits = [u32; 4]>, P: Pass<V, R>>(
        &mut self,
        params: &P::Params,
        buffer: u32,
    ) {
        let [begin, end] = self.chunk;
        let step = self.first.offset(buffer);
        let window = self.sent % WARP;
        // SAFETY: the caller's promise: columns of edges are rows of the matrices of columns, and have statistics where those are read.
        unsafe {
            if window == 0 {
                self.window::<V, P>(params, begin + self.sent + WARP);
            }
            unroll!(i in 0..R => {
                let copied = self.copied[i];
                let present = copied.is_one && begin + self.sent + copied.edge < end;
                let column = shuffle_idx(self.columns[0], window + copied.edge);
                unroll!(matrix in 0..P::COLUMNS => {
                    let place = step.offset((matrix * R) as u32 * PLANE_BYTES + copied.place);
                    copy(params.walk(), params.of_column(matrix), (column, copied.vector), present, place);
                });
                if P::EDGES > 0 {
                    let id = shuffle_idx(self.edges[0], window + copied.edge);
                    unroll!(edges in 0..P::EDGES => {
                        let matrix = P::COLUMNS + edges;
                        let place = step.offset((matrix * R) as u32 * PLANE_BYTES + copied.place);
                        copy(params.walk(), params.of_edge(edges), (id, copied.vector), present, place);
                    });
                }
            });
            if P::STATISTICS || P::IDS {
                self.send_tail::<V, P>(params, step, window);
            }
        }
        commit();
        self.sent += self.groups();
    }

    /// Starts the copy of the statistics of the lane's own edge, and writes its ids.
    ///
    /// # Safety
    /// As [`Ring::send`].
    #[inline(always)]
    unsafe fn send_tail<V: Vector<Bits = [u32; 4]>, P: Pass<V, R>>(
        &self,
        params: &P::Params,
        step: Shared,
        window: u32,
    ) {
        let [begin, end] = self.chunk;
        let tail = const { vectors::<V, P, R>() * PLANE_BYTES } + lane_id() * VECTOR_BYTES;
        let group = self.lane.group;
        // SAFETY: the caller's promise.
        unsafe {
            let column = shuffle_idx(self.columns[0], window + group);
            let id = match P::EDGES > 0 {
                true => shuffle_idx(self.edges[0], window + group),
                false => 0,
            };
            if P::STATISTICS {
                let source = P::statistics(params, column, self.lane.head).address();
                let present = self.lane.has(0) && begin + self.sent + group < end;
                copy_8(step.offset(tail), source, present);
            }
            if P::IDS {
                step.offset(tail + 8).store_u32x2([column, id]);
            }
        }
    }
}

/// Where the lane's own vectors of a matrix lie in a step, and what it copies. The vectors of a row are in order, each head padded to those of
/// all its lanes.
#[inline(always)]
fn places<const R: usize>(walk: &EdgeWalk, lane: &Lane<R>) -> ([u32; R], [Copied; R]) {
    let of = &walk.lanes;
    let (mut own, mut copied) = ([0; R], [Copied::default(); R]);
    let head_log2 = of.head_lanes_log2 + R.ilog2();
    let row_log2 = of.lanes_log2 + R.ilog2();
    unroll!(load in 0..R => {
        let head = lane.place >> of.head_lanes_log2;
        let in_head = lane.place & ((1 << of.head_lanes_log2) - 1);
        let in_row = (head << head_log2) + ((load as u32) << of.head_lanes_log2) + in_head;
        own[load] = place_of((lane.group << row_log2) + in_row);
        let slot = load as u32 * WARP + lane_id();
        let in_row = slot & ((1 << row_log2) - 1);
        let (vector, is_one) = vector_of_slot(walk, in_row >> head_log2, in_row & ((1 << head_log2) - 1));
        copied[load] = Copied { edge: slot >> row_log2, vector, is_one, place: place_of(slot) };
    });
    (own, copied)
}

/// Starts the copy of a vector of a row; zeros where there is no matrix.
///
/// # Safety
/// The launch contract; if `present`, the matrix is null or has the vector. As of [`copy_16`].
#[inline(always)]
unsafe fn copy(
    walk: &EdgeWalk,
    matrix: DevicePtr<HalfBits>,
    (row, vector): (u32, u32),
    present: bool,
    place: Shared,
) {
    let matrix = Global::<[u32; 4]>::new(matrix);
    let first = matrix
        .at(vector as u64)
        .row(row, walk.lanes.stride * VECTOR_BYTES);
    // SAFETY: the caller's promise.
    unsafe { copy_16(place, first.address(), present && !matrix.is_null()) }
}
