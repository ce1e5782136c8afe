//! The sums over neighbours of a CTA's edges, without factors, and what both these and those with factors leave of a row.

use super::columns::{Pairs, Rows, columns_apart, fetch, first_column, map, transpose};
use super::output::{Output, Place};
use super::parts::{HAS_START, IS_OPEN, Joined, Part, Partial, Parts};
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::thread::sync_threads;
use crate::device::warp::{ballot, lane_id, shuffle_idx};
use core::marker::PhantomData;
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, EDGES_PER_CTA, FEW_WARPS_PER_CTA, NO_ROW, WARPS_PER_CTA, WORD_BITS, part_bytes,
};

/// A kind of sums.
pub trait Kind {
    /// Whether columns of the graph have a factor each.
    const FACTORED: bool;
    /// Warps of a CTA.
    const WARPS: u32;
    /// Edges of a warp.
    const EDGES: u32 = EDGES_PER_CTA / Self::WARPS;
    /// Groups of 32 of them.
    const GROUPS: u32 = Self::EDGES / WARP;
}

/// Of any rows.
pub struct Any;

impl Kind for Any {
    const FACTORED: bool = false;
    const WARPS: u32 = WARPS_PER_CTA;
}

/// Of long rows.
pub struct Long;

impl Kind for Long {
    const FACTORED: bool = false;
    const WARPS: u32 = FEW_WARPS_PER_CTA;
}

/// With a factor a column of the graph, in 8 bits.
pub struct Factored;

impl Kind for Factored {
    const FACTORED: bool = true;
    const WARPS: u32 = FEW_WARPS_PER_CTA;
}

/// `P` words of rows, with the rows of `G` groups of edges in flight.
///
/// # Safety
/// The launch contract of [`BspmmParams`]: `ctas` CTAs of as many warps as the kind has.
#[inline(always)]
pub unsafe fn run<O: Output<P>, K: Kind, const P: usize, const G: usize>(params: &BspmmParams) {
    const { assert!((K::GROUPS as usize).is_multiple_of(G) && K::GROUPS < WARP) };
    let parts = Parts::<Sums<O, K, P>>::new(params);
    let first = parts.first_edge();
    // SAFETY: the caller's promise; all lanes of a warp come along, and at the barrier all warps of the CTA.
    unsafe {
        if first < params.edges {
            walk::<O, K, P, G>(params, first, &parts);
        } else {
            parts.mark(0, NO_ROW);
        }
        sync_threads();
        parts.join();
    }
}

/// What the columns of a lane count of a row.
#[derive(Clone, Copy)]
struct Count<const P: usize> {
    /// Of each column.
    of: Pairs<u32, P>,
    /// Of all.
    all: u32,
}

impl<const P: usize> Count<P> {
    const NOTHING: Self = Self {
        of: [[0; 2]; P],
        all: 0,
    };

    /// Counts those of 32 edges of `mask`, whose bits are there by columns.
    #[inline(always)]
    fn add(&mut self, columns: &Pairs<u32, P>, mask: u32) {
        self.all += mask.count_ones();
        unroll!(pair in 0..P => {
            unroll!(at in 0..2 => {
                self.of[pair][at] += (columns[pair][at] & mask).count_ones();
            });
        });
    }

    /// The sums of ±1, which are below 2²¹ of a warp's edges.
    #[inline(always)]
    fn sums(&self) -> Pairs<i32, P> {
        const { assert!(EDGES_PER_CTA < 1 << 21) };
        map(self.of, |count| {
            count.wrapping_mul(2).wrapping_sub(self.all) as i32
        })
    }
}

/// Adds up a warp's edges from `first` on: rows that begin and end in them are written, of the others there are parts.
///
/// # Safety
/// The launch contract; there is such an edge, and all lanes of the warp come together.
#[inline(always)]
unsafe fn walk<O: Output<P>, K: Kind, const P: usize, const G: usize>(
    params: &BspmmParams,
    first: u32,
    parts: &Parts<'_, Sums<O, K, P>>,
) {
    let left = params.edges - first;
    let edges_of_warp = left.min(K::EDGES);
    let lane = lane_id();
    // SAFETY: the caller's promise: what is read belongs to edges, each of whose columns is a row of `x`; there is a word of starts for each 32
    // edges and the end, and a row for each start. Loops are the same for all lanes.
    unsafe {
        // The last word that has a start of these rows, or the end of the last: the end's own, or the one behind the warp's.
        let last = (left / WARP).min(K::GROUPS);
        let starts = Global::<[u32; 2]>::new(params.starts).at((first / WARP + lane) as u64);
        let [mut bits, rank] = starts.load_if(lane <= last);
        let mut ids = column_ids::<G>(params, first, edges_of_warp, 0);
        if lane == K::GROUPS {
            bits &= 1;
        }
        let with_starts = ballot(bits != 0);
        let begins = shuffle_idx(bits, 0) & 1 != 0;
        let mut crossing = Crossing::<O, K, P>::open(params, parts, rank, bits != 0);
        if begins {
            crossing.within = Within::None;
        }
        let head = if begins || with_starts == 0 {
            NO_ROW
        } else {
            shuffle_idx(crossing.row, with_starts.trailing_zeros())
        };
        let x = Global::<u64>::new(params.x).at(params.first_word as u64);
        let mut count = Count::<P>::NOTHING;
        let mut done = 0;
        while done < K::GROUPS {
            let mut edges = [[[0; 2]; P]; G];
            unroll!(at in 0..G => {
                edges[at] = fetch::<P>(x, ids[at], params.x_stride * (WORD_BITS / 8));
            });
            ids = column_ids::<G>(params, first, edges_of_warp, done + G as u32);
            unroll!(at in 0..G => {
                let number = done + at as u32;
                let starts = shuffle_idx(bits, number);
                let first_row = shuffle_idx(rank, number);
                // Asked for here, it is on its way while columns are made.
                let has_inner = starts & starts.wrapping_sub(1) != 0;
                let inner = if has_inner {
                    Inner::<O, P>::open(params, starts, first_row)
                } else {
                    Inner::none(params)
                };
                let columns = transpose::<P>(edges[at]);
                if starts == 0 {
                    count.add(&columns, u32::MAX);
                } else {
                    count.add(&columns, !starts & (starts - 1));
                    crossing.end(&mut count, number);
                    if has_inner {
                        inner.add_up(params, &edges[at], &columns, starts);
                    }
                    count.add(&columns, from_last(starts));
                }
            });
            done += G as u32;
        }
        let is_end = with_starts >> K::GROUPS != 0;
        if is_end {
            crossing.end(&mut count, K::GROUPS);
        }
        let is_open = last == K::GROUPS && !is_end;
        if is_open {
            parts.store(Part::Tail, &Sums::new(count.sums()));
        }
        let has_start = with_starts & !(1 << K::GROUPS) != 0;
        parts.mark(
            has_start as u32 * HAS_START | is_open as u32 * IS_OPEN,
            head,
        );
    }
}

/// The bits from the last that is set on.
#[inline(always)]
fn from_last(bits: u32) -> u32 {
    u32::MAX << (31 - bits.leading_zeros())
}

/// Of a set of starts those after the one whose bit this is.
#[inline(always)]
fn after(starts: u32, start: u32) -> u32 {
    starts & !(start | (start - 1))
}

/// All that a launch sums up of a row.
#[inline(always)]
fn whole(row: u32) -> Place {
    Place { row, unit: 0 }
}

/// In what row a warp is.
#[derive(Clone, Copy)]
enum Within {
    /// In none: its first edge begins one.
    None,
    /// In one that began before its edges.
    Head,
    /// In one that began among them.
    Own,
}

/// The rows in which groups of 32 edges begin, each of which is known to the lane of the group's number: at most one of them ends in a group.
struct Crossing<'a, O: Output<P>, K: Kind, const P: usize> {
    params: &'a BspmmParams,
    parts: &'a Parts<'a, Sums<O, K, P>>,
    row: u32,
    of_row: O::OfRow,
    /// In what row the next group begins.
    within: Within,
}

impl<'a, O: Output<P>, K: Kind, const P: usize> Crossing<'a, O, K, P> {
    /// The row before the lane's group, before which `rank` rows begin.
    ///
    /// # Safety
    /// The launch contract: there are so many rows; all lanes of the warp come together.
    #[inline(always)]
    unsafe fn open(
        params: &'a BspmmParams,
        parts: &'a Parts<'a, Sums<O, K, P>>,
        rank: u32,
        has_starts: bool,
    ) -> Self {
        let is_there = has_starts && rank > 0;
        let rows = Global::<u32>::new(params.filled_rows);
        // SAFETY: the caller's promise.
        unsafe {
            let row = rows.at(rank.wrapping_sub(1) as u64).load_if(is_there);
            Self {
                params,
                parts,
                row,
                of_row: O::open(params, row, is_there),
                within: Within::Head,
            }
        }
    }

    /// The row in which group `group` begins ends there.
    ///
    /// # Safety
    /// As [`Crossing::open`]; it does, and the count is its.
    #[inline(always)]
    unsafe fn end(&mut self, count: &mut Count<P>, group: u32) {
        let sums = count.sums();
        *count = Count::NOTHING;
        // SAFETY: the caller's promise; a row ends in one warp.
        unsafe {
            match self.within {
                Within::None => {}
                Within::Head => self.parts.store(Part::Head, &Sums::new(sums)),
                Within::Own => O::put(self.params, whole(self.row), self.of_row, group, sums),
            }
        }
        self.within = Within::Own;
    }
}

/// The rows that begin and end in a group of 32 edges, each of which is known to the lane of its first edge.
struct Inner<O: Output<P>, const P: usize> {
    row: u32,
    of_row: O::OfRow,
    /// The edges of the lane's row; none where it has no row.
    edges: u32,
}

impl<O: Output<P>, const P: usize> Inner<O, P> {
    /// No rows.
    #[inline(always)]
    fn none(params: &BspmmParams) -> Self {
        Self {
            row: 0,
            // SAFETY: nothing is asked of no row.
            of_row: unsafe { O::open(params, 0, false) },
            edges: 0,
        }
    }

    /// The rows that begin at `starts`, the first of which is number `first_row` in the list of rows that have edges.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together.
    #[inline(always)]
    unsafe fn open(params: &BspmmParams, starts: u32, first_row: u32) -> Self {
        let bit = 1 << lane_id();
        let after = after(starts, bit);
        let is_there = starts & bit != 0 && after != 0;
        let edges = (!after & after.wrapping_sub(1) & !(bit - 1)).count_ones();
        let before = (starts & (bit - 1)).count_ones();
        // SAFETY: the caller's promise: there is a row for each start.
        unsafe {
            let rows = Global::<u32>::new(params.filled_rows);
            let row = rows.at((first_row + before) as u64).load_if(is_there);
            Self {
                row,
                of_row: O::open(params, row, is_there),
                edges: if is_there { edges } else { 0 },
            }
        }
    }

    /// Adds up the rows, those of few edges by their lanes where the output can.
    ///
    /// # Safety
    /// As [`Inner::open`].
    #[inline(always)]
    unsafe fn add_up(
        self,
        params: &BspmmParams,
        rows: &Rows<P>,
        columns: &Pairs<u32, P>,
        starts: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let place = whole(self.row);
            let mut by_warp = self.edges > 0;
            if O::LANE_EDGES > 0 {
                by_warp = self.edges > O::LANE_EDGES;
                let edges = if by_warp { 0 } else { self.edges };
                O::write_few(params, place, rows, edges);
            }
            let mut left = ballot(by_warp);
            while left != 0 {
                let first = left & left.wrapping_neg();
                left ^= first;
                // There is a start after that of each row here.
                let after = after(starts, first);
                let mut count = Count::NOTHING;
                count.add(columns, (after & after.wrapping_neg()) - first);
                let slot = (first - 1).count_ones();
                O::put(params, place, self.of_row, slot, count.sums());
            }
        }
    }
}

/// The columns of the edges of the lanes in `G` groups from `group` on, of a warp that has `edges` from `first` on; zero where there is none.
///
/// # Safety
/// The launch contract.
#[inline(always)]
unsafe fn column_ids<const G: usize>(
    params: &BspmmParams,
    first: u32,
    edges: u32,
    group: u32,
) -> [u32; G] {
    let mut ids = [0; G];
    unroll!(at in 0..G => {
        let edge = (group + at as u32) * WARP + lane_id();
        let column = Global::<u32>::new(params.columns).at(first as u64 + edge as u64);
        // SAFETY: the caller's promise.
        ids[at] = unsafe { column.load_if(edge < edges) };
    });
    ids
}

/// The sums of some edges of a row, in the columns of each lane.
pub(super) struct Sums<O, K, const P: usize> {
    of: Pairs<u32, P>,
    kind: PhantomData<(O, K)>,
}

impl<O, K, const P: usize> Sums<O, K, P> {
    #[inline(always)]
    fn new(sums: Pairs<i32, P>) -> Self {
        Self {
            of: map(sums, |sum| sum as u32),
            kind: PhantomData,
        }
    }

    /// What a part has of the lane's columns.
    #[inline(always)]
    fn of_lane(at: Shared, pair: usize) -> Shared {
        at.offset((first_column::<P>() + pair as u32 * columns_apart(P)) * 4)
    }
}

impl<O: Output<P>, K: Kind, const P: usize> Partial for Sums<O, K, P> {
    const BYTES: u32 = part_bytes(P as u32);
    const WORDS: u32 = P as u32;
    const FACTORED: bool = K::FACTORED;
    const WARPS: u32 = K::WARPS;
    const NOTHING: Self = Self {
        of: [[0; 2]; P],
        kind: PhantomData,
    };

    #[inline(always)]
    unsafe fn store(&self, at: Shared) {
        unroll!(pair in 0..P => {
            // SAFETY: the caller's promise; the columns are this lane's.
            unsafe { Self::of_lane(at, pair).store_u32x2(self.of[pair]) };
        });
    }

    #[inline(always)]
    unsafe fn add(&mut self, at: Shared) {
        unroll!(pair in 0..P => {
            // SAFETY: the caller's promise.
            let more = unsafe { Self::of_lane(at, pair).load_u32x2() };
            unroll!(at in 0..2 => {
                self.of[pair][at] = self.of[pair][at].wrapping_add(more[at]);
            });
        });
    }
}

impl<O: Output<P>, K: Kind, const P: usize> Joined for Sums<O, K, P> {
    #[inline(always)]
    unsafe fn write(&self, params: &BspmmParams, row: u32) {
        // SAFETY: the caller's promise.
        unsafe { O::write(params, whole(row), map(self.of, |sum| sum as i32)) }
    }

    #[inline(always)]
    unsafe fn stage(&self, to: Global<u32>) {
        unroll!(pair in 0..P => {
            let column = first_column::<P>() + pair as u32 * columns_apart(P);
            // SAFETY: the caller's promise.
            unsafe {
                if K::FACTORED {
                    Global::<[u32; 2]>::cast(to.at(column as u64)).store(self.of[pair]);
                } else {
                    let [a, b] = self.of[pair];
                    to.at((column / 2) as u64).store((a & 0xffff) | b << 16);
                }
            };
        });
    }
}
