//! Rows of columns, copied to shared memory ahead of the edges that read them.
//!
//! ```text
//!  steps of a chunk    0      1      2      3      4      a step: an edge for each group of lanes
//!                   computed  └──arriving─┘               RING_STEPS buffers, reused in turn
//! ```
//!
//! Steps follow the chunk, not its rows, so a short row waits for memory no longer than a long one. A lane reads only what it copied,
//! and waits for its own copies alone.

use super::dots::Dots;
use super::lanes::Lane;
use super::pass::{Pass, statistics_at};
use crate::device::async_copy::{commit, copy_8, copy_16, wait};
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::vector::Vector;
use crate::device::warp::{lane_id, shuffle_idx, sync_warp, warp_id};
use halfgnn_contract::attention::DROPOUT;
use halfgnn_contract::dot_attention::{
    DotAttentionParams, RECORD_BYTES, RING_STEPS, STEP_BYTES, WARP_BYTES,
};
use halfgnn_contract::{VECTOR_BYTES, WARP};

/// An edge as a lane has it: a record in shared memory, zeros where there is none.
#[derive(Clone, Copy)]
pub struct Edge<const R: usize> {
    /// Whether there is one.
    pub there: bool,
    record: Shared,
}

impl<const R: usize> Edge<R> {
    const STATISTICS: u32 = 2 * R as u32 * VECTOR_BYTES;
    const COLUMN: u32 = Self::STATISTICS + 8;

    /// The lane's vectors of the column's row of a matrix, the first or the second.
    ///
    /// # Safety
    /// The ring has advanced to the edge's step.
    #[inline(always)]
    pub unsafe fn row<V: Vector<Bits = [u32; 4]>>(&self, matrix: usize) -> [V; R] {
        let mut vectors = [V::zero(); R];
        unroll!(load in 0..R => {
            let place = self.record.offset((matrix * R + load) as u32 * VECTOR_BYTES);
            // SAFETY: the caller's promise; a record has these vectors.
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
        unsafe { self.record.offset(Self::STATISTICS).load_u32x2() }.map(f32::from_bits)
    }

    /// The column, where there is dropout.
    ///
    /// # Safety
    /// As [`Edge::row`].
    #[inline(always)]
    pub unsafe fn column(&self) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.record.offset(Self::COLUMN).load_u32() }
    }
}

/// The steps of a chunk that are computed or arriving.
pub struct Ring<const R: usize> {
    lane: Lane<R>,
    /// The lane's record of the first buffer.
    records: Shared,
    /// A record of zeros.
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
}

impl<const R: usize> Ring<R> {
    /// The ring of a warp; the first steps are arriving.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, once, and the chunk has these edges.
    #[inline(always)]
    pub unsafe fn new<V: Dots, P: Pass<V, R>>(
        params: &DotAttentionParams,
        lane: Lane<R>,
        begin: u32,
        end: u32,
    ) -> Self {
        const { assert!(RECORD_BYTES == 2 * R as u32 * VECTOR_BYTES + 16) };
        let memory = Shared::base().offset(warp_id() * WARP_BYTES);
        let zeros = memory.offset(RING_STEPS * STEP_BYTES);
        let mut ring = Self {
            lane,
            records: memory.offset(lane_id() * RECORD_BYTES),
            zeros,
            current: (RING_STEPS - 1) * STEP_BYTES,
            end_of_step: begin,
            chunk: [begin, end],
            sent: 0,
            columns: [0; 2],
        };
        // SAFETY: the caller's promise; the zeros are ordered by the barrier.
        unsafe {
            ring.columns[1] = ring.columns_from(params, begin);
            if lane_id() < RECORD_BYTES / VECTOR_BYTES {
                zeros.offset(lane_id() * VECTOR_BYTES).store_u32x4([0; 4]);
            }
            sync_warp();
            unroll!(step in 0..RING_STEPS as usize - 1 => {
                ring.send::<V, P>(params, step as u32 * STEP_BYTES);
            });
        }
        ring
    }

    /// Goes on to the next step, and sends for one more.
    ///
    /// # Safety
    /// As [`Ring::new`]; the current step is not read any more.
    #[inline(always)]
    pub unsafe fn advance<V: Dots, P: Pass<V, R>>(&mut self, params: &DotAttentionParams) {
        wait::<{ RING_STEPS - 2 }>();
        // SAFETY: the caller's promise.
        unsafe { self.send::<V, P>(params, self.current) };
        self.current += STEP_BYTES;
        if self.current == RING_STEPS * STEP_BYTES {
            self.current = 0;
        }
        self.end_of_step += self.groups();
    }

    /// The lane's edge of the current step, where it is one from `first` on and before `until`.
    #[inline(always)]
    pub fn edge(&self, first: u32, until: u32) -> Edge<R> {
        let own = self.end_of_step - self.groups() + self.lane.group;
        let there = own >= first && own < until;
        let record = if there {
            self.records.offset(self.current)
        } else {
            self.zeros
        };
        Edge { there, record }
    }

    #[inline(always)]
    fn groups(&self) -> u32 {
        self.lane.groups
    }

    /// The column of edge `edge + lane`, where the chunk has it.
    ///
    /// # Safety
    /// As [`Ring::new`].
    #[inline(always)]
    unsafe fn columns_from(&self, params: &DotAttentionParams, edge: u32) -> u32 {
        let edge = edge + lane_id();
        let column = Global::<u32>::new(params.columns).at(edge as u64);
        // SAFETY: the caller's promise.
        unsafe { column.load_once_if(edge < self.chunk[1]) }
    }

    /// Starts the copies of the next step, if there is one.
    ///
    /// # Safety
    /// As [`Ring::new`]; nothing of the buffer is read before the step has arrived.
    #[inline(always)]
    unsafe fn send<V: Dots, P: Pass<V, R>>(&mut self, params: &DotAttentionParams, buffer: u32) {
        let [begin, end] = self.chunk;
        let first = begin + self.sent;
        // SAFETY: the caller's promise: columns of edges are rows of the matrices of columns, and have statistics where those are read.
        unsafe {
            if self.sent.is_multiple_of(WARP) {
                self.columns = [self.columns[1], self.columns_from(params, first + WARP)];
            }
            let own = self.sent + self.lane.group;
            let column = shuffle_idx(self.columns[0], own % WARP);
            let present = begin + own < end;
            let record = self.records.offset(buffer);
            unroll!(matrix in 0..2 => {
                let row = self.lane.row(params, params.of_columns[matrix], column);
                unroll!(load in 0..R => {
                    let place = record.offset((matrix * R + load) as u32 * VECTOR_BYTES);
                    let source = self.lane.vector_of(row, load).address();
                    copy_16(place, source, present && self.lane.has(load));
                });
            });
            if P::STATISTICS {
                let source = statistics_at(params, column, self.lane.head).address();
                let present = present && self.lane.has(0);
                copy_8(record.offset(Edge::<R>::STATISTICS), source, present);
            }
            if params.dropout.flags & DROPOUT != 0 {
                record.offset(Edge::<R>::COLUMN).store_u32(column);
            }
        }
        commit();
        self.sent += self.groups();
    }
}
