//! The sums over neighbours of a CTA's edges, with a factor a column or without.

use super::columns::{Pairs, Rows, columns_apart, fetch, first_column, map, transpose};
use super::output::{Output, Place};
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads};
use crate::device::warp::{ballot, lane_id, shuffle_idx, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, CODE_BITS, CODES_PER_WORD, EDGES_PER_CTA, EDGES_PER_WARP, LARGEST_CODE, NO_ROW,
    STAGED_PARTS, WARPS_PER_CTA, WORD_BITS, part_bytes, staged_part, staged_words,
};

/// Groups of 32 edges of a warp.
const GROUPS: u32 = EDGES_PER_WARP / WARP;

/// What rows are multiplied by before they are added up.
pub trait Factors {
    /// Whether columns of the graph have a factor each.
    const ARE_THERE: bool;
}

/// Nothing.
pub struct Ones;

impl Factors for Ones {
    const ARE_THERE: bool = false;
}

/// A factor a column of the graph, in 8 bits.
pub struct Codes;

impl Factors for Codes {
    const ARE_THERE: bool = true;
}

/// `P` words of rows, with the rows of `G` groups of edges in flight.
///
/// # Safety
/// The launch contract of [`BspmmParams`]: `ctas` CTAs of `THREADS_PER_CTA` threads.
#[inline(always)]
pub unsafe fn run<O: Output<P>, F: Factors, const P: usize, const G: usize>(params: &BspmmParams) {
    const { assert!((GROUPS as usize).is_multiple_of(G)) };
    let cta = params.first_cta + block_idx_x();
    let first = cta * EDGES_PER_CTA + warp_id() * EDGES_PER_WARP;
    let parts = Parts::<P> { params };
    // SAFETY: the caller's promise; all lanes of a warp come along, and at the barrier all warps of the CTA.
    unsafe {
        if first < params.edges {
            walk::<O, F, P, G>(params, first, &parts);
        } else {
            parts.mark(warp_id(), 0, NO_ROW);
        }
        sync_threads();
        parts.join::<O, F>();
    }
}

/// What the columns of a lane count of a row.
#[derive(Clone, Copy)]
struct Count<const P: usize> {
    /// Of each column: edges, or the sum of their factors.
    of: Pairs<u32, P>,
    /// Of all.
    all: u32,
}

/// The bits of 32 edges.
struct Group<const P: usize> {
    /// By columns.
    columns: Pairs<u32, P>,
    /// Of the factors of their columns: bit `i` of plane `p` is bit `p` of that of edge `i`.
    planes: [u32; CODE_BITS as usize],
}

impl<const P: usize> Count<P> {
    const NOTHING: Self = Self {
        of: [[0; 2]; P],
        all: 0,
    };

    /// Counts those of a group's edges of `mask`.
    #[inline(always)]
    fn add<F: Factors>(&mut self, group: &Group<P>, mask: u32) {
        if F::ARE_THERE {
            unroll!(plane in 0..CODE_BITS as usize => {
                self.add_times(group, mask & group.planes[plane], plane as u32);
            });
        } else {
            self.add_times(group, mask, 0);
        }
    }

    /// Counts those of a group's edges of `mask`, `2^shift` times.
    #[inline(always)]
    fn add_times(&mut self, group: &Group<P>, mask: u32, shift: u32) {
        self.all += mask.count_ones() << shift;
        unroll!(pair in 0..P => {
            unroll!(at in 0..2 => {
                self.of[pair][at] += (group.columns[pair][at] & mask).count_ones() << shift;
            });
        });
    }

    /// The sums of ±1, which are below 2²¹ of a warp's edges.
    #[inline(always)]
    fn sums(&self) -> Pairs<i32, P> {
        const { assert!(EDGES_PER_WARP * LARGEST_CODE < 1 << 21) };
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
unsafe fn walk<O: Output<P>, F: Factors, const P: usize, const G: usize>(
    params: &BspmmParams,
    first: u32,
    parts: &Parts<'_, P>,
) {
    let left = params.edges - first;
    let lane = lane_id();
    // SAFETY: the caller's promise: what is read belongs to edges, each of whose columns is a row of `x`; there is a word of starts for each 32
    // edges and the end, and a row for each start. Loops are the same for all lanes.
    unsafe {
        // The last word that has a start of these rows, or the end of the last: the end's own, or the one behind the warp's.
        let last = (left / WARP).min(GROUPS);
        let starts = Global::<[u32; 2]>::new(params.starts).at((first / WARP + lane) as u64);
        let [mut bits, rank] = starts.load_if(lane <= last);
        let mut ids = column_ids::<G>(params, first, left, 0);
        if lane == GROUPS {
            bits &= 1;
        }
        let with_starts = ballot(bits != 0);
        let begins = shuffle_idx(bits, 0) & 1 != 0;
        let mut crossing = Crossing::<O, P>::open(params, parts, rank, bits != 0);
        if begins {
            crossing.within = Within::None;
        }
        let head = if begins || with_starts == 0 {
            NO_ROW
        } else {
            shuffle_idx(crossing.row, with_starts.trailing_zeros())
        };
        let x = Global::<u64>::new(params.x).at(params.first_word as u64);
        let codes = Global::<u32>::new(params.codes);
        let mut count = Count::<P>::NOTHING;
        let mut done = 0;
        while done < GROUPS {
            let mut edges = [[[0; 2]; P]; G];
            let mut factors = [0; G];
            unroll!(at in 0..G => {
                edges[at] = fetch::<P>(x, ids[at], params.x_stride * (WORD_BITS / 8));
                if F::ARE_THERE {
                    let word = codes.at((ids[at] / CODES_PER_WORD) as u64).fetch();
                    factors[at] = word >> (ids[at] % CODES_PER_WORD * CODE_BITS) & LARGEST_CODE;
                }
            });
            ids = column_ids::<G>(params, first, left, done + G as u32);
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
                let group = Group {
                    columns: transpose::<P>(edges[at]),
                    planes: if F::ARE_THERE { planes(factors[at]) } else { [0; CODE_BITS as usize] },
                };
                if starts == 0 {
                    count.add::<F>(&group, u32::MAX);
                } else {
                    count.add::<F>(&group, !starts & (starts - 1));
                    crossing.end(&mut count, number);
                    if has_inner {
                        inner.add_up::<F>(params, &edges[at], &group, starts);
                    }
                    count.add::<F>(&group, from_last(starts));
                }
            });
            done += G as u32;
        }
        let is_end = with_starts >> GROUPS != 0;
        if is_end {
            crossing.end(&mut count, GROUPS);
        }
        let is_open = last == GROUPS && !is_end;
        if is_open {
            parts.store(Part::Tail, count.sums());
        }
        let has_start = with_starts & !(1 << GROUPS) != 0;
        parts.mark(
            warp_id(),
            has_start as u32 * Parts::<P>::HAS_START | is_open as u32 * Parts::<P>::IS_OPEN,
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
struct Crossing<'a, O: Output<P>, const P: usize> {
    params: &'a BspmmParams,
    parts: &'a Parts<'a, P>,
    row: u32,
    of_row: O::OfRow,
    /// In what row the next group begins.
    within: Within,
}

impl<'a, O: Output<P>, const P: usize> Crossing<'a, O, P> {
    /// The row before the lane's group, before which `rank` rows begin.
    ///
    /// # Safety
    /// The launch contract: there are so many rows; all lanes of the warp come together.
    #[inline(always)]
    unsafe fn open(
        params: &'a BspmmParams,
        parts: &'a Parts<'a, P>,
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
                Within::Head => self.parts.store(Part::Head, sums),
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
    unsafe fn add_up<F: Factors>(
        self,
        params: &BspmmParams,
        rows: &Rows<P>,
        group: &Group<P>,
        starts: u32,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let place = whole(self.row);
            let mut by_warp = self.edges > 0;
            if O::LANE_EDGES > 0 && !F::ARE_THERE {
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
                count.add::<F>(group, (after & after.wrapping_neg()) - first);
                let slot = (first - 1).count_ones();
                O::put(params, place, self.of_row, slot, count.sums());
            }
        }
    }
}

/// The columns of the edges of the lanes in `G` groups from `group` on, of a warp that has `left` edges from `first` on; zero where there is none.
///
/// # Safety
/// The launch contract.
#[inline(always)]
unsafe fn column_ids<const G: usize>(
    params: &BspmmParams,
    first: u32,
    left: u32,
    group: u32,
) -> [u32; G] {
    let mut ids = [0; G];
    let edges = left.min(EDGES_PER_WARP);
    unroll!(at in 0..G => {
        let edge = (group + at as u32) * WARP + lane_id();
        let column = Global::<u32>::new(params.columns).at(first as u64 + edge as u64);
        // SAFETY: the caller's promise.
        ids[at] = unsafe { column.load_if(edge < edges) };
    });
    ids
}

/// The planes of the factors of 32 edges, one a lane.
///
/// # Safety
/// All 32 lanes of the warp come together.
#[inline(always)]
unsafe fn planes(factor: u32) -> [u32; CODE_BITS as usize] {
    let mut planes = [0; CODE_BITS as usize];
    unroll!(plane in 0..CODE_BITS as usize => {
        // SAFETY: the caller's promise.
        planes[plane] = unsafe { ballot(factor >> plane & 1 != 0) };
    });
    planes
}

/// Parts of rows that cross warps, in shared memory: for each warp what it is marked with, then a part that began before it, then one that goes on
/// after it.
struct Parts<'a, const P: usize> {
    params: &'a BspmmParams,
}

/// Which part of a warp's.
#[derive(Clone, Copy)]
enum Part {
    /// Of the row that began before it and ends in it.
    Head,
    /// Of the row that goes on after it.
    Tail,
}

impl<const P: usize> Parts<'_, P> {
    /// A row begins among the warp's edges, the first included, or all edges end before the warp's would.
    const HAS_START: u32 = 1;
    /// The last row goes on.
    const IS_OPEN: u32 = 2;

    #[inline(always)]
    fn mark_of(warp: u32) -> Shared {
        Shared::base().offset(warp * 8)
    }

    #[inline(always)]
    fn part(warp: u32, part: Part) -> Shared {
        let parts = Shared::base().offset(WARPS_PER_CTA * 8);
        let part = parts.offset((warp * 2 + part as u32) * part_bytes(P as u32));
        part.offset(first_column::<P>() * 4)
    }

    /// Marks a warp, and says which row ends in it that began before, if one does.
    ///
    /// # Safety
    /// All lanes of the warp come together, before the barrier.
    #[inline(always)]
    unsafe fn mark(&self, warp: u32, mark: u32, head: u32) {
        if lane_id() == 0 {
            // SAFETY: the caller's promise; the mark is this lane's.
            unsafe { Self::mark_of(warp).store_u32x2([mark, head]) }
        }
    }

    /// # Safety
    /// As [`Parts::mark`].
    #[inline(always)]
    unsafe fn store(&self, part: Part, sums: Pairs<i32, P>) {
        let place = Self::part(warp_id(), part);
        unroll!(pair in 0..P => {
            let place = place.offset(pair as u32 * columns_apart(P) * 4);
            // SAFETY: the caller's promise; the columns are this lane's.
            unsafe { place.store_u32x2(sums[pair].map(|sum| sum as u32)) };
        });
    }

    /// Adds a warp's part.
    ///
    /// # Safety
    /// It is there, and the barrier is behind.
    #[inline(always)]
    unsafe fn add(&self, sums: &mut Pairs<u32, P>, warp: u32, part: Part) {
        let place = Self::part(warp, part);
        unroll!(pair in 0..P => {
            let place = place.offset(pair as u32 * columns_apart(P) * 4);
            // SAFETY: the caller's promise.
            let [a, b] = unsafe { place.load_u32x2() };
            sums[pair] = [sums[pair][0].wrapping_add(a), sums[pair][1].wrapping_add(b)];
        });
    }

    /// Adds the tails of the warps before `warp` down to that in which the row began. Whether one of the CTA's did.
    ///
    /// # Safety
    /// As [`Parts::add`]; the row comes from the warp before.
    #[inline(always)]
    unsafe fn add_before(&self, sums: &mut Pairs<u32, P>, mut warp: u32) -> bool {
        let mut has_begun = false;
        while warp > 0 && !has_begun {
            warp -= 1;
            // SAFETY: the caller's promise: a row that comes from a warp has a tail there.
            unsafe {
                self.add(sums, warp, Part::Tail);
                let [mark, _] = Self::mark_of(warp).load_u32x2();
                has_begun = mark & Self::HAS_START != 0;
            }
        }
        has_begun
    }

    /// Writes the row that began before this warp and ends in it, where it began in the CTA, and stages what crosses CTAs.
    ///
    /// # Safety
    /// The launch contract; all threads of the CTA come together, and the barrier is behind.
    #[inline(always)]
    unsafe fn join<O: Output<P>, F: Factors>(&self) {
        let warp = warp_id();
        // SAFETY: the caller's promise; each part of a row is added up by the warp that the row ends in, or by the last.
        unsafe {
            let [mark, row] = Self::mark_of(warp).load_u32x2();
            if row != NO_ROW {
                let mut sums = [[0; 2]; P];
                self.add(&mut sums, warp, Part::Head);
                if self.add_before(&mut sums, warp) {
                    let sums = map(sums, |sum| sum as i32);
                    O::write(self.params, whole(row), sums);
                } else {
                    self.stage::<F>(Part::Head, sums);
                    if lane_id() == 0 {
                        self.staged::<F>(0).store(row);
                    }
                }
            }
            if warp == WARPS_PER_CTA - 1 && mark & Self::IS_OPEN != 0 {
                let mut sums = [[0; 2]; P];
                self.add(&mut sums, warp, Part::Tail);
                if mark & Self::HAS_START == 0 {
                    self.add_before(&mut sums, warp);
                }
                self.stage::<F>(Part::Tail, sums);
            }
            if warp == 0 && lane_id() == 0 && !self.has_head() {
                self.staged::<F>(0).store(NO_ROW);
            }
        }
    }

    /// Whether a row ends in the CTA that began before it.
    ///
    /// # Safety
    /// The barrier is behind.
    #[inline(always)]
    unsafe fn has_head(&self) -> bool {
        let mut warp = 0;
        while warp < WARPS_PER_CTA {
            // SAFETY: the caller's promise.
            let [mark, row] = unsafe { Self::mark_of(warp).load_u32x2() };
            if row != NO_ROW || mark & Self::HAS_START != 0 {
                return row != NO_ROW;
            }
            warp += 1;
        }
        false
    }

    /// Staged word `at` of the CTA.
    #[inline(always)]
    fn staged<F: Factors>(&self, at: u32) -> Global<u32> {
        let first = block_idx_x() as u64 * staged_words(P as u32, F::ARE_THERE) as u64;
        Global::new(self.params.staging).at(first + at as u64)
    }

    /// Stages a part for the follow-up.
    ///
    /// # Safety
    /// The launch contract; it is this warp's to stage.
    #[inline(always)]
    unsafe fn stage<F: Factors>(&self, part: Part, sums: Pairs<u32, P>) {
        let first = STAGED_PARTS + part as u32 * staged_part(P as u32, F::ARE_THERE);
        unroll!(pair in 0..P => {
            let column = first_column::<P>() + pair as u32 * columns_apart(P);
            // SAFETY: the caller's promise.
            unsafe {
                if F::ARE_THERE {
                    let place = self.staged::<F>(first + column);
                    Global::<[u32; 2]>::cast(place).store(sums[pair]);
                } else {
                    let [a, b] = sums[pair];
                    self.staged::<F>(first + column / 2).store((a & 0xffff) | b << 16);
                }
            };
        });
    }
}
