//! The walk of sums that take eight edges at once ([`Accumulate::BY_EIGHT`]): of rows of so few bytes that instructions are what it waits for.
//!
//! Where no row begins among the next eight edges of any sub-warp of the warp, which a vote tells and which is so in three of four steps on
//! graphs with 50 edges a row, eight edges are added and nothing else is looked at. Else rows end in one of two ways:
//!
//! - One after the other of four edges, and again of the next four: a copy of what ends a row for each of the four.
//! - With an epilogue that is ten times as long as an edge, and eight copies of it leave the instruction cache. So there is one: each sub-warp adds
//!   those of the eight edges that are of the row so far, ends the row, and adds those of the next. Sub-warps that end rows at different edges end
//!   them together.

use super::{IN_FLIGHT, Segment, Tile};
use crate::device::global::Global;
use crate::device::registers::recomputed;
use crate::device::thread::block_idx_x;
use crate::device::vector::{Input, Vector};
use crate::device::warp::all;
use crate::spmm::policy::{Accumulate, Scaling, Weights};
use crate::spmm::rows::Order;
use crate::spmm::sums::Sums;
use halfgnn_contract::VECTOR_BYTES;
use halfgnn_contract::spmm::SpmmParams;

/// Edges whose rows are under way at once.
const EDGES: u32 = 2 * IN_FLIGHT;

impl<V: Vector, T: Sums<V>> Tile<V, T> {
    /// Walks the share, from the row in which it begins to that in which it ends.
    ///
    /// # Safety
    /// As [`Tile::walk`]; the share is not empty, and `order` and `segment` are those of its first edge.
    #[inline(always)]
    pub(super) unsafe fn by_eight<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>, O: Order>(
        &self,
        params: &SpmmParams,
        mut order: O,
        mut segment: Segment<A::Sum>,
    ) -> (O, Segment<A::Sum>) {
        const {
            assert!(
                !A::BY_EIGHT || !W::WEIGHTED && !S::EACH_PRODUCT && !O::CACHES_ROWS,
                "edges without weights, and starts of rows as bits"
            )
        };
        let x = Global::<<A::Input as Input>::Bits>::new(params.x).at(self.load.index as u64);
        let fetch = |column: u32| {
            // SAFETY: the host validated the columns, and the lane's load is one of the row's.
            A::Input::from_bits(unsafe { x.row(column, params.x_stride * VECTOR_BYTES).load() })
        };
        // All other CTAs have all of their edges, so that all lanes of a warp vote as often.
        let whole = block_idx_x() + 1 < params.ctas;
        let (mut edge, end) = self.share;
        // SAFETY: the caller's promise; shares are a power of two edges long and begin at a multiple of that, so that eight of one lie in one
        // word of starts.
        unsafe {
            while end - edge >= EDGES {
                let columns =
                    [0, IN_FLIGHT].map(|later| self.column(params, edge + later).load_u32x4());
                let x = columns.map(|columns| columns.map(fetch));
                let starting = order.ahead(EDGES);
                if whole && all(starting == 0) {
                    segment.sum = x.into_iter().flatten().fold(segment.sum, A::add);
                } else if S::EPILOGUE {
                    let every = (1 << EDGES) - 1;
                    segment = self.together::<W, S, A, O>(params, segment, x, every, starting);
                } else {
                    segment = self.in_turn::<W, S, A, O>(params, segment, x, starting);
                }
                edge += EDGES;
                order.pass(params, EDGES, edge, edge < end);
            }
            if edge < end {
                // At the end of the graph, or of a share of four. The last one's row stands for those that there are not.
                let count = end - edge;
                let column =
                    |i: u32| fetch(self.column(params, edge + i.min(count - 1)).load_u32());
                let x = [[0, 1, 2, 3], [4, 5, 6, 7]].map(|four| four.map(column));
                let (edges, starting) = ((1 << count) - 1, order.ahead(count));
                segment = self.together::<W, S, A, O>(params, segment, x, edges, starting);
                order.pass(params, count, end, false);
            }
        }
        (order, segment)
    }

    /// Eight edges one after the other, of which those in `starting` begin rows.
    ///
    /// # Safety
    /// As [`Tile::by_eight`]; they are the next edges.
    #[inline(always)]
    unsafe fn in_turn<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>, O: Order>(
        &self,
        params: &SpmmParams,
        mut segment: Segment<A::Sum>,
        [first, second]: [[A::Input; 4]; 2],
        mut starting: u32,
    ) -> Segment<A::Sum> {
        // LLVM is not to know how often, nor of what: it would make a copy for each four.
        let (mut fours, mut x) = (recomputed(2), first);
        loop {
            let edge = |i: usize| (0, 0.0, x[i]);
            // SAFETY: the caller's promise.
            unsafe {
                segment = self.step::<0, W, S, A, O>(params, segment, (starting, 0), edge(0));
                segment = self.step::<1, W, S, A, O>(params, segment, (starting, 0), edge(1));
                segment = self.step::<2, W, S, A, O>(params, segment, (starting, 0), edge(2));
                segment = self.step::<3, W, S, A, O>(params, segment, (starting, 0), edge(3));
            }
            fours -= 1;
            if fours == 0 {
                return segment;
            }
            x = A::recomputed(second);
            starting >>= IN_FLIGHT;
        }
    }

    /// Those of eight edges whose bits are in `edges`, of which those in `starting` begin rows.
    ///
    /// # Safety
    /// As [`Tile::by_eight`]; they are the next edges.
    #[inline(always)]
    unsafe fn together<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>, O: Order>(
        &self,
        params: &SpmmParams,
        mut segment: Segment<A::Sum>,
        x: [[A::Input; 4]; 2],
        edges: u32,
        starting: u32,
    ) -> Segment<A::Sum> {
        let (mut left, mut starts) = (edges, starting);
        // SAFETY: the caller's promise.
        unsafe {
            loop {
                // Without a start all that are left.
                let before = left & (starts & starts.wrapping_neg()).wrapping_sub(1);
                segment.sum = A::add_some(segment.sum, x, before);
                if starts == 0 {
                    break;
                }
                // Of the rows that end here the first alone began before.
                self.flush::<W, S, A>(params, &segment, starts == starting);
                let rows = O::next(params, segment.rows, 0);
                segment = Segment {
                    sum: A::start(params, rows.row, self.load.index),
                    rows,
                    ..segment
                };
                left &= !before;
                starts &= starts - 1;
            }
            if starting != 0 {
                self.call::<W, S>(params, segment.rows.row);
            }
        }
        segment
    }
}
