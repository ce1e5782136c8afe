//! The sums over neighbours of a CTA's edges with a factor a column of the graph, on tensor cores: bytes of which each is one bit of an edge's row, times bytes that are the factors of
//! the edges of one row of the graph.
//!
//! Of 32 edges, a group, a lane has a word of 32 columns of eight (four that lie side by side, and the four 16 further on), and picks of each four words the same byte: four edges' bits
//! of eight columns, of which a mask leaves those of one, times a power of two. That is its part of a row of A of `m16n8k32`, without an exchange between lanes. A column of B has the factors of
//! the edges of one of eight rows of the graph that follow one another. A row keeps its column from one group to the next, so that nothing moves where one ends; once the ninth begins
//! eight are written at once.

use super::edges::four_columns;
use super::output::Output;
use super::parts::{HAS_START, IS_OPEN, Part, Parts};
use super::sums::{Factored, Kind, Sums};
use crate::device::async_copy::{commit, copy_4, copy_8, copy_16, wait};
use crate::device::global::Global;
use crate::device::integer::{bytes_at, bytes_of, transposed};
use crate::device::mma::multiply_add_bytes;
use crate::device::registers::{recomputed, unroll};
use crate::device::shared::Shared;
use crate::device::thread::sync_threads;
use crate::device::warp::{lane_id, shuffle_idx, shuffle_xor, sync_warp, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, CODE_BITS, CODES_PER_WORD, FACTORED_STAGES, FEW_WARPS_EDGES_PER_WARP,
    LARGEST_CODE, NO_ROW, WORD_BITS, factored_columns, factored_stages, stage_bytes,
};

/// Rows of the graph that are added up at once.
const SLOTS: u32 = 8;
/// A one in each byte.
const ONES: u32 = 0x0101_0101;
/// Groups of 32 edges of a warp.
const GROUPS: u32 = Factored::GROUPS;
/// Edges that lie side by side of which a lane has a word.
const SIDE_BY_SIDE: u32 = 4;

/// `P` words of rows.
///
/// # Safety
/// The launch contract of [`BspmmParams`]: `ctas` CTAs of `FEW_WARPS_THREADS_PER_CTA` threads.
#[inline(always)]
pub unsafe fn run<O: Output<P>, const P: usize>(params: &BspmmParams) {
    let parts = Parts::<Sums<O, Factored, P>>::new(params);
    let first = parts.first_edge();
    // SAFETY: the caller's promise; all lanes of a warp come along, and at the barrier all warps of the CTA.
    unsafe {
        if first < params.edges {
            walk(params, first, &parts);
        } else {
            parts.mark(0, NO_ROW);
        }
        sync_threads();
        parts.join();
    }
}

/// The lane's place in a fragment.
#[derive(Clone, Copy)]
struct Lane {
    /// Which four edges of half a group.
    quarter: u32,
    /// Its row of A, and its column of B.
    row: u32,
}

impl Lane {
    #[inline(always)]
    fn new() -> Self {
        Self {
            quarter: lane_id() % 4,
            row: lane_id() / 4,
        }
    }

    /// The word of 32 columns that it has, of `2 P`.
    #[inline(always)]
    fn word<const P: usize>(self) -> u32 {
        self.row % (2 * P as u32)
    }

    /// The first of the `P` bytes of it that it has.
    #[inline(always)]
    fn first_byte<const P: usize>(self) -> u32 {
        self.row / (2 * P as u32) * P as u32
    }

    /// The first of its columns, `8 P`.
    #[inline(always)]
    fn column<const P: usize>(self) -> u32 {
        self.word::<P>() * 32 + self.first_byte::<P>() * 8
    }

    /// Its bytes of four words, those of one number side by side.
    #[inline(always)]
    fn bytes<const P: usize>(self, words: [u32; 4]) -> [u32; P] {
        const { assert!(P == 1 || P == 2 || P == 4) };
        let [a, b, c, d] = words;
        let mut bytes = [0; P];
        if P == 4 {
            let all = transposed(words);
            unroll!(byte in 0..P => {
                bytes[byte] = all[byte % 4];
            });
        } else {
            // One byte of two words and the next of both.
            let selector = 0x5140 + self.first_byte::<P>() * 0x1111;
            let (ab, cd) = (bytes_at(a, b, selector), bytes_at(c, d, selector));
            bytes[0] = bytes_of::<0x5410>(ab, cd);
            if P > 1 {
                bytes[P - 1] = bytes_of::<0x7632>(ab, cd);
            }
        }
        bytes
    }

    /// The edge of a group whose factor it looks up: one of its own.
    #[inline(always)]
    fn looked_up(self) -> u32 {
        self.row / 4 * (WARP / 2) + self.quarter * SIDE_BY_SIDE + self.row % 4
    }
}

/// What a lane has of a group's edges, of each half four that lie side by side.
struct Group {
    /// Its word of their rows.
    rows: [[u32; 4]; 2],
    /// Their factors, a byte each.
    factors: [u32; 2],
}

/// What is counted of eight rows: of columns `8 i + c` and `8 i + c + 4` of the lane's (`of[i][c]`) of rows `2 · quarter` and the next, `2^c` and `2^(c + 4)` times.
struct Counts<const P: usize> {
    of: [[[u32; 4]; 4]; P],
    /// The sums of all factors of these rows, in the first two.
    all: [u32; 4],
}

impl<const P: usize> Counts<P> {
    const NOTHING: Self = Self {
        of: [[[0; 4]; 4]; P],
        all: [0; 4],
    };

    /// Counts the edges of a group by the factors that they have in a row of the lane's number.
    ///
    /// # Safety
    /// All 32 lanes of the warp come together.
    #[inline(always)]
    unsafe fn add(&mut self, rows: &[[u32; 4]; 2], factors: [u32; 2], lane: Lane) {
        let [low, high] = [0, 1].map(|half| lane.bytes::<P>(rows[half]));
        // SAFETY: the caller's promise.
        unsafe {
            multiply_add_bytes(&mut self.all, [ONES, 0, ONES, 0], factors);
            unroll!(byte in 0..P => {
                let (low, high) = (low[byte], high[byte]);
                unroll!(bit in 0..4 => {
                    let (first, second) = (ONES << bit, ONES << (bit + 4));
                    let a = [low & first, low & second, high & first, high & second];
                    multiply_add_bytes(&mut self.of[byte][bit], a, factors);
                });
            });
        }
    }

    /// The sums of eight columns of row `at` of the lane's two, which are below 2²¹.
    #[inline(always)]
    fn sums(&self, byte: usize, at: usize) -> [i32; 8] {
        const { assert!(FEW_WARPS_EDGES_PER_WARP * LARGEST_CODE < 1 << 21) };
        let mut sums = [0; 8];
        unroll!(bit in 0..8 => {
            // Where it is asked for, and not before the branch to that: what is counted has the registers.
            let count = recomputed(self.of[byte][bit % 4][at + bit / 4 * 2]) >> bit;
            sums[bit] = count.wrapping_mul(2).wrapping_sub(self.all[at]) as i32;
        });
        sums
    }
}

/// The rows of a warp, numbered from the one in which the edge before its first is.
struct RowsOfWarp {
    /// Rows that begin before its edges.
    before: u32,
    /// Rows that end in them: the first so many.
    ended: u32,
    /// Whether its first edge begins a row, so that the first row has none.
    begins: bool,
    /// Whether the last row goes on.
    is_open: bool,
}

/// The lane's two rows of the eight that are added up.
struct Slots<O: Output<P>, const P: usize> {
    /// The number of the first of the eight.
    first: u32,
    rows: [u32; 2],
    of_rows: [O::OfRow; 2],
}

impl<O: Output<P>, const P: usize> Slots<O, P> {
    /// The rows from number `first` on.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn open(params: &BspmmParams, of: &RowsOfWarp, first: u32, lane: Lane) -> Self {
        let filled = Global::<u32>::new(params.filled_rows);
        // SAFETY: the caller's promise: there is a row for each start, and nothing is asked of no row.
        unsafe {
            let mut slots = Self {
                first,
                rows: [0; 2],
                of_rows: [O::open(params, 0, false); 2],
            };
            unroll!(at in 0..2 => {
                let number = first + lane.quarter * 2 + at as u32;
                let is_there = number > 0 && number < of.ended;
                let row = filled.at((of.before + number).wrapping_sub(1) as u64).load_if(is_there);
                slots.rows[at] = row;
                slots.of_rows[at] = O::open(params, row, is_there);
            });
            slots
        }
    }

    /// Writes those that begin and end in the warp's edges, and stores the parts of the others.
    ///
    /// # Safety
    /// The launch contract; the counts are theirs, and all of them.
    #[inline(always)]
    unsafe fn write(&self, params: &BspmmParams, of: &RowsOfWarp, counts: &Counts<P>, lane: Lane) {
        unroll!(slot in 0..2 => {
            let number = self.first + lane.quarter * 2 + slot as u32;
            // What follows from it is not kept in registers from one time to the next.
            let column = recomputed(lane.column::<P>());
            // SAFETY: the caller's promise; a row's columns are each one lane's.
            unsafe {
                if number > 0 && number < of.ended {
                    let column = params.first_word * WORD_BITS + column;
                    let (row, of_row) = (self.rows[slot], self.of_rows[slot]);
                    O::put_columns(params, row, of_row, column, |byte| counts.sums(byte, slot));
                }
                let is_tail = number == of.ended && of.is_open;
                let is_head = number == 0 && of.ended > 0 && !of.begins;
                if is_tail || is_head {
                    let part = if is_tail { Part::Tail } else { Part::Head };
                    let part = Parts::<Sums<O, Factored, P>>::part(warp_id(), part).offset(column * 4);
                    unroll!(byte in 0..P => {
                        let sums = counts.sums(byte, slot).map(|sum| sum as u32);
                        let [a, b, c, d, e, f, g, h] = sums;
                        let to = part.offset(byte as u32 * 8 * 4);
                        to.store_u32x4([a, b, c, d]);
                        to.offset(16).store_u32x4([e, f, g, h]);
                    });
                }
            }
        });
    }
}

/// Adds up a warp's edges from `first` on: rows that begin and end in them are written, of the others there are parts.
///
/// # Safety
/// The launch contract; there is such an edge, and all lanes of the warp come together.
#[inline(always)]
unsafe fn walk<O: Output<P>, const P: usize>(
    params: &BspmmParams,
    first: u32,
    parts: &Parts<'_, Sums<O, Factored, P>>,
) {
    let left = params.edges - first;
    let of_warp = left.min(FEW_WARPS_EDGES_PER_WARP);
    let lane = Lane::new();
    // SAFETY: the caller's promise: what is read belongs to edges, each of whose columns is a row of `x`; there is a word of starts for each 32
    // edges and the end, and a row for each start. Loops are the same for all lanes.
    unsafe {
        // The last word that has a start of these rows, or the end of the last: the end's own, or the one behind the warp's.
        let last = (left / WARP).min(GROUPS);
        let starts = Global::<[u32; 2]>::new(params.starts).at((first / WARP + lane_id()) as u64);
        let [mut bits, rank] = starts.load_if(lane_id() <= last);
        let groups = of_warp.div_ceil(WARP);
        let columns = Columns::bring::<P>(params, first, of_warp);
        let stages = Stages::<P>::open(params, columns, groups, lane);
        if lane_id() == GROUPS {
            bits &= 1;
        }
        let before = shuffle_idx(rank, 0);
        let ends = last == GROUPS && shuffle_idx(bits, GROUPS) != 0;
        let of = RowsOfWarp {
            before,
            ended: shuffle_idx(rank + bits.count_ones(), last) - before,
            begins: shuffle_idx(bits, 0) & 1 != 0,
            is_open: last == GROUPS && !ends,
        };
        let mut slots = Slots::<O, P>::open(params, &of, 0, lane);
        let mut counts = Counts::<P>::NOTHING;
        // The group that is added up, and the row in which it begins where none begins with it.
        let (mut at, mut row) = (0, 0_u32);
        let mut group = stages.take(0, lane);
        loop {
            let starts = shuffle_idx(bits, at);
            let factors = factors(starts, row.wrapping_sub(slots.first), group.factors, lane);
            counts.add(&group.rows, factors, lane);
            let last_row = row + starts.count_ones();
            let is_full = last_row >= slots.first + SLOTS;
            let is_last = at + 1 == groups;
            if is_full || is_last {
                slots.write(params, &of, &counts, lane);
                if !is_full {
                    break;
                }
                counts = Counts::NOTHING;
                slots = Slots::open(params, &of, slots.first + SLOTS, lane);
                // Of the same group there is more.
            } else {
                at += 1;
                row = last_row;
                group = stages.take(at, lane);
            }
        }
        let head = if of.begins || of.ended == 0 {
            NO_ROW
        } else {
            Global::<u32>::new(params.filled_rows)
                .at(before.wrapping_sub(1) as u64)
                .load()
        };
        let has_start = of.ended > ends as u32;
        parts.mark(
            has_start as u32 * HAS_START | of.is_open as u32 * IS_OPEN,
            head,
        );
    }
}

/// The columns of a warp's edges, in shared memory.
#[derive(Clone, Copy)]
struct Columns(Shared);

impl Columns {
    /// Brings those of the `left` edges of a warp from `first` on, and zero where there is none.
    ///
    /// # Safety
    /// The launch contract; all 32 lanes of the warp come together.
    #[inline(always)]
    unsafe fn bring<const P: usize>(params: &BspmmParams, first: u32, left: u32) -> Self {
        const VECTORS: usize = (FEW_WARPS_EDGES_PER_WARP / WARP / 4) as usize;
        let of_cta = Shared::base().offset(factored_columns(P as u32));
        let columns = Self(of_cta.offset(warp_id() * FEW_WARPS_EDGES_PER_WARP * 4));
        let edge = |vector: usize| vector as u32 * 4 * WARP + lane_id() * 4;
        let mut ids = [[0; 4]; VECTORS];
        // SAFETY: the caller's promise; warps begin at multiples of four edges.
        unsafe {
            unroll!(vector in 0..VECTORS => {
                let is_full = left == FEW_WARPS_EDGES_PER_WARP;
                ids[vector] = four_columns(params, first, edge(vector), left, is_full);
            });
            unroll!(vector in 0..VECTORS => {
                columns.at(edge(vector)).store_u32x4(ids[vector]);
            });
            sync_warp();
        }
        columns
    }

    /// Where that of an edge of the warp is.
    #[inline(always)]
    fn at(self, edge: u32) -> Shared {
        self.0.offset(edge * 4)
    }
}

/// The rows and the factors of a warp's edges, some groups of which are on their way to shared memory. Rows lie so that those that lanes look at together are in different banks:
/// that of edge `4 q + i` of half a group at `4 i + q`.
struct Stages<const P: usize> {
    /// The column of the first edge of which the lane brings a piece of a row.
    column: Shared,
    /// That of the first whose factor it looks up.
    looked_up: Shared,
    /// The piece of the first row of the matrix.
    piece: Global<u64>,
    /// Bytes of a row of the matrix.
    stride: u32,
    codes: Global<u32>,
    /// The first stage of the warp.
    stages: Shared,
    /// In a stage, where the first piece goes.
    to: u32,
    /// In a stage, the lane's word of the row of its first edge.
    word: u32,
    /// Groups of the warp.
    groups: u32,
}

impl<const P: usize> Stages<P> {
    /// Bytes of a row that the launch sums up.
    const ROW: u32 = P as u32 * (WORD_BITS / 8);
    /// Pieces of a row that are one copy each: 8 bytes of one word, of more 16.
    const PIECES: u32 = P.div_ceil(2) as u32;

    /// Asks for the rows and factors of the first groups.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, and all that is in `columns`, of `groups` groups, are rows of `x`.
    #[inline(always)]
    unsafe fn open(params: &BspmmParams, columns: Columns, groups: u32, lane: Lane) -> Self {
        let (edge, piece) = (lane_id() / Self::PIECES, lane_id() % Self::PIECES);
        let half = edge / (WARP / 2);
        let place = half * (WARP / 2) + edge % 4 * 4 + edge % (WARP / 2) / 4;
        let of_warp = warp_id() * FACTORED_STAGES * stage_bytes(P as u32);
        let stages = Self {
            column: columns.at(edge),
            looked_up: columns.at(lane.looked_up()),
            piece: Global::new(params.x).at((params.first_word + 2 * piece) as u64),
            stride: params.x_stride * (WORD_BITS / 8),
            codes: Global::new(params.codes),
            stages: Shared::base().offset(factored_stages(P as u32) + of_warp),
            to: place * Self::ROW + piece * 16,
            word: lane.quarter * Self::ROW + lane.word::<P>() * 4,
            groups,
        };
        unroll!(group in 0..FACTORED_STAGES as usize - 1 => {
            // SAFETY: the caller's promise.
            unsafe { stages.fetch(group as u32) };
        });
        stages
    }

    /// The stage of a group.
    #[inline(always)]
    fn stage(&self, group: u32) -> Shared {
        self.stages
            .offset(group % FACTORED_STAGES * stage_bytes(P as u32))
    }

    /// Where a stage has the word of the lane's factor.
    #[inline(always)]
    fn code(stage: Shared) -> Shared {
        stage.offset(WARP * Self::ROW + lane_id() * 4)
    }

    /// Asks for the rows and factors of a group, where there is one.
    ///
    /// # Safety
    /// As [`Stages::open`]; all lanes have read what was there.
    #[inline(always)]
    unsafe fn fetch(&self, group: u32) {
        if group < self.groups {
            let (stage, of_group) = (self.stage(group), group * WARP * 4);
            // SAFETY: the caller's promise; a column has a row of `x` and a factor.
            unsafe {
                let id = self.looked_up.offset(of_group).load_u32();
                let word = self.codes.at((id / CODES_PER_WORD) as u64);
                copy_4(Self::code(stage), word.address());
                unroll!(piece in 0..Self::PIECES as usize => {
                    let further = piece as u32 * WARP / Self::PIECES;
                    let column = self.column.offset(of_group + further * 4).load_u32();
                    let row = self.piece.row(column, self.stride).address();
                    let to = stage.offset(self.to + further * Self::ROW);
                    if P == 1 {
                        copy_8(to, row, true);
                    } else {
                        copy_16(to, row, true);
                    }
                });
            }
        }
        commit();
    }

    /// Waits for a group, asks for another where the one before was, and takes what the lane has of it.
    ///
    /// # Safety
    /// As [`Stages::open`]; groups are taken one after the other, and there is this one.
    #[inline(always)]
    unsafe fn take(&self, group: u32, lane: Lane) -> Group {
        // SAFETY: the caller's promise. After the barrier the lanes of the warp have what each copied, and have read what was copied before.
        unsafe {
            wait::<{ FACTORED_STAGES - 2 }>();
            sync_warp();
            self.fetch(group + FACTORED_STAGES - 1);
            let stage = self.stage(group);
            let word = |half: u32, at: u32| {
                let edge = half * (WARP / 2) + at * 4;
                stage.offset(self.word + edge * Self::ROW).load_u32()
            };
            let rows = [0, 1].map(|half| [0, 1, 2, 3].map(|at| word(half, at)));
            // Each lane has one factor of its four; what they have together all of them get.
            let id = self.looked_up.offset(group * WARP * 4).load_u32();
            let code = Self::code(stage).load_u32() >> (id % CODES_PER_WORD * CODE_BITS);
            let mut own = (code & LARGEST_CODE) << (lane.row % 4 * CODE_BITS);
            own |= shuffle_xor(own, 4);
            own |= shuffle_xor(own, 8);
            let other = shuffle_xor(own, 16);
            let factors = if lane.row < 4 {
                [own, other]
            } else {
                [other, own]
            };
            Group { rows, factors }
        }
    }
}

/// The factors of the lane's edges of a group that are of its row, and zero for the others: `starts` says where rows begin, and `slot` is that of the row in which the group's first edge is
/// where none begins with it; it may be below zero.
#[inline(always)]
fn factors(starts: u32, slot: u32, factors: [u32; 2], lane: Lane) -> [u32; 2] {
    if starts == 0 {
        return factors.map(|factors| if slot == lane.row { factors } else { 0 });
    }
    // What keeps numbers of rows above zero and in seven bits: a group has the starts of 32.
    const BIAS: u32 = 64;
    let own = (lane.row + BIAS) * ONES;
    let mut kept = [0; 2];
    unroll!(half in 0..2 => {
        let shift = half as u32 * (WARP / 2) + lane.quarter * SIDE_BY_SIDE;
        let before = (starts & !(u32::MAX << shift)).count_ones();
        // A bit a byte, then in each byte how many there are up to it: the slot of its edge's row.
        let each = (starts >> shift & 15).wrapping_mul(0x0020_4081) & ONES;
        let rows = each.wrapping_add(before).wrapping_add(slot).wrapping_add(BIAS).wrapping_mul(ONES);
        let is_own = 0x8080_8080_u32.wrapping_sub(rows ^ own) >> 7 & ONES;
        kept[half] = is_own.wrapping_mul(LARGEST_CODE) & factors[half];
    });
    kept
}
