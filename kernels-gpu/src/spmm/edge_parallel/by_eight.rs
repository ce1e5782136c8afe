//! The walk of sums of few registers, of rows of so few bytes that instructions are what it waits for, or of halves added in half ([`Accumulate::BY_EIGHT`]).
//!
//! Where no row begins among the next eight edges of any sub-warp of the warp, which a vote tells and which is most steps where rows are long or
//! their lengths uneven, eight edges are added and nothing else is looked at. Else rows end in one of two ways:
//!
//! - One after the other of four edges, and again of the next four: a copy of what ends a row for each of the four.
//! - With an epilogue that is ten times as long as an edge, and eight copies of it had left the instruction cache. So there is one where sums can
//!   leave edges out, which those of int8 can: each sub-warp adds those of the eight that are of the row so far, ends the row, and adds those of the
//!   next. Sub-warps that end rows at different edges end them together.

use super::{IN_FLIGHT, Segment, Tile};
use crate::device::registers::recomputed;
use crate::device::thread::block_idx_x;
use crate::device::vector::{Input, Vector};
use crate::device::warp::all;
use crate::spmm::lanes::Lanes;
use crate::spmm::policy::{Accumulate, Scaling, Weights, add};
use crate::spmm::rows::Order;
use crate::spmm::sums::Sums;
use halfgnn_contract::spmm::SpmmParams;

/// Edges whose rows of `x` are under way at once.
const EDGES: u32 = 2 * IN_FLIGHT;

/// Whether there is such a walk: not where products are scaled one by one, rows told by their ids, or shares of
/// a warp not as long.
#[inline(always)]
pub(super) const fn is_taken<V: Vector, W: Weights, S: Scaling, A: Accumulate<V>, O: Order>() -> bool
{
    A::BY_EIGHT.has(W::WEIGHTED) && !S::EACH_PRODUCT && !O::CACHES_ROWS && O::Lanes::EVEN
}

impl<V: Vector, T: Sums<V>, L: Lanes> Tile<V, T, L> {
    /// Walks the share from `edge` on, its first, as long as there are eight more edges. The order, the segment and the edge after those.
    ///
    /// # Safety
    /// As [`Tile::walk`]; the share is not empty, and `order` and `segment` are those of its first edge.
    #[inline(always)]
    pub(super) unsafe fn by_eight<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>, O: Order>(
        &self,
        params: &SpmmParams,
        mut order: O,
        mut segment: Segment<A::Sum>,
        mut edge: u32,
        fetch: &impl Fn(u32) -> A::Input,
    ) -> (O, Segment<A::Sum>, u32) {
        const {
            assert!(
                !is_taken::<V, W, S, A, O>() || !W::TERMED && !A::WHOLE_WEIGHTS,
                "sums of weighted edges"
            )
        };
        // All other CTAs have all of their edges, so that all lanes of a warp vote as often.
        let whole = block_idx_x() + 1 < params.ctas;
        let (_, end) = self.share;
        // SAFETY: the caller's promise. Shares begin at multiples of their full length, a power of two; where that is eight edges or more, eight of
        // a share begin at a multiple of eight, so in one word of starts and at 16 bytes. In all CTAs but the last shares are full, so that
        // all lanes of a warp come to as many votes; in the last none votes.
        unsafe {
            while end - edge >= EDGES {
                let columns =
                    [0, IN_FLIGHT].map(|later| self.column(params, edge + later).load_u32x4());
                let x = columns.map(|columns| columns.map(fetch));
                let starting = order.eight();
                if whole && all(starting == 0) {
                    let [first, second] = x;
                    segment.sum = self.add_run::<W, S, A>(params, segment.sum, edge, first);
                    let next = edge + IN_FLIGHT;
                    segment.sum = self.add_run::<W, S, A>(params, segment.sum, next, second);
                } else if S::EPILOGUE && A::ADDS_SOME {
                    segment = self.rows_together::<W, S, A, O>(params, segment, x, starting);
                } else {
                    segment = self.one_by_one::<W, S, A, O>(params, segment, edge, x, starting);
                }
                edge += EDGES;
                order.pass(params, EDGES, edge, edge < end);
            }
        }
        (order, segment, edge)
    }

    /// The weights of edges `edge .. edge + 4`.
    ///
    /// # Safety
    /// They are the warp's, and `edge` is a multiple of 4.
    #[inline(always)]
    unsafe fn four_weights<W: Weights>(&self, params: &SpmmParams, edge: u32) -> [u32; 4] {
        if W::WEIGHTED {
            // SAFETY: the caller's promise.
            unsafe { self.weight(params, edge).load_u32x4() }
        } else {
            Self::ONES
        }
    }

    /// `sum` with edges `edge .. edge + 4`, which are of its row.
    ///
    /// # Safety
    /// As [`Tile::by_eight`]; they are edges of the share, and `edge` is a multiple of 4.
    #[inline(always)]
    unsafe fn add_run<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>>(
        &self,
        params: &SpmmParams,
        sum: A::Sum,
        edge: u32,
        x: [A::Input; 4],
    ) -> A::Sum {
        // SAFETY: the caller's promise.
        let weights = unsafe { self.four_weights::<W>(params, edge) };
        let add = |sum, i: usize| add::<V, W, S, A>(sum, 1.0, (weights[i], 0.0, x[i]));
        add(add(add(add(sum, 0), 1), 2), 3)
    }

    /// Eight edges from `edge` on one after the other, of which those in `starting` begin rows.
    ///
    /// # Safety
    /// As [`Tile::by_eight`]; they are the next edges.
    #[inline(always)]
    unsafe fn one_by_one<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>, O: Order>(
        &self,
        params: &SpmmParams,
        mut segment: Segment<A::Sum>,
        mut edge: u32,
        [first, second]: [[A::Input; 4]; 2],
        mut starting: u32,
    ) -> Segment<A::Sum> {
        // LLVM is not to know how often, nor of what: it would make a copy for each four.
        let (mut fours, mut x) = (recomputed(2), first);
        loop {
            // SAFETY: the caller's promise.
            unsafe {
                let weights = self.four_weights::<W>(params, edge);
                let edge = |i: usize| (weights[i], 0.0, x[i]);
                segment = self.step::<0, W, S, A, O>(params, segment, (starting, 0), edge(0));
                segment = self.step::<1, W, S, A, O>(params, segment, (starting, 0), edge(1));
                segment = self.step::<2, W, S, A, O>(params, segment, (starting, 0), edge(2));
                segment = self.step::<3, W, S, A, O>(params, segment, (starting, 0), edge(3));
                if starting & ((1 << IN_FLIGHT) - 1) != 0 {
                    self.call::<W, S>(params, segment.rows.row);
                }
            }
            fours -= 1;
            if fours == 0 {
                return segment;
            }
            edge += IN_FLIGHT;
            x = second.map(Input::recomputed);
            starting >>= IN_FLIGHT;
        }
    }

    /// Eight edges, of which those in `starting` begin rows, as many at once as are of one row.
    ///
    /// # Safety
    /// As [`Tile::by_eight`]; they are the next edges.
    #[inline(always)]
    unsafe fn rows_together<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>, O: Order>(
        &self,
        params: &SpmmParams,
        mut segment: Segment<A::Sum>,
        x: [[A::Input; 4]; 2],
        starting: u32,
    ) -> Segment<A::Sum> {
        const { assert!(!A::ADDS_SOME || !W::WEIGHTED, "edges of weight 1") };
        let (mut left, mut starts) = ((1 << EDGES) - 1, starting);
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
                segment = self.end::<W, S, A, O>(params, segment, starts == starting, 0);
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
