//! The sums over neighbours of a warp's edges, with a factor a column or without.

use super::output::Output;
use super::planes::{Planes, Unit, transpose};
use crate::device::async_copy::{commit, copy_8, copy_16, wait};
use crate::device::global::Global;
use crate::device::registers::{recomputed, unroll};
use crate::device::shared::Shared;
use crate::device::thread::block_idx_x;
use crate::device::warp::{ballot, lane_id, shuffle_idx, sync_warp, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, CODE_BITS, CODES_PER_WORD, FACTORED_ROW_EDGES, LARGEST_CODE, NO_ROW, RING_EDGES,
    SUM_WARPS, TILE_EDGES, WORD_BITS, place, row_bytes, shared_bytes, staged_words, warp_bytes,
};

/// Edges of a tile that are a lane's.
const LANE_EDGES: usize = (TILE_EDGES / WARP) as usize;
/// Bits of a word of starts that are a lane's.
const LANE_BITS: u32 = LANE_EDGES as u32;
/// Lanes that share a word of starts.
const LANES_PER_WORD: u32 = WARP / LANE_BITS;
/// Words of starts of a tile.
const START_WORDS: u32 = TILE_EDGES / WARP;

/// Counters of a lane of a row that is the warp's: 31 edges, 32 apart.
type WarpRow<const U: usize> = Planes<5, U>;
const MOST_TURNS: u32 = 31;
/// Turns that what a tile has of a row takes, and what waits of it from the tile before.
const TILE_TURNS: u32 = 2 * TILE_EDGES / WARP;

/// `W` words of rows, which are `U` words of 32 columns.
///
/// # Safety
/// The launch contract of [`BspmmParams`]: `sum_ctas` CTAs of `SUM_THREADS` threads.
#[inline(always)]
pub unsafe fn run<O: Output<U>, F: Factors, const W: u32, const U: usize>(params: &BspmmParams) {
    const { assert!(W * 2 == U as u32) };
    let chunk = block_idx_x() * SUM_WARPS + warp_id();
    if chunk >= params.chunks {
        return;
    }
    let first = chunk << params.chunk_edges_log2;
    let (left, most) = (params.edges - first, 1 << params.chunk_edges_log2);
    let bytes = warp_bytes(W, F::ARE_THERE);
    let walk = Walk::<W, U> {
        params,
        chunk,
        first,
        edges: if left < most { left } else { most },
        memory: Shared::base().offset(warp_id() * bytes),
    };
    // SAFETY: the caller's promise; all lanes of the warp come along.
    unsafe { walk.run::<O, F>() }
}

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

/// A unit of a row of the graph.
#[derive(Clone, Copy)]
pub struct Place {
    /// The row.
    pub row: u32,
    /// The unit, among those of the launch.
    pub unit: u32,
}

/// The edges of a row, each with a unit of the row that it names.
pub trait Edges<const U: usize> {
    /// The first.
    fn begin(&self) -> u32;
    /// One behind the last.
    fn end(&self) -> u32;
    /// Word `word` of the unit of an edge.
    ///
    /// # Safety
    /// It is one of the edges.
    unsafe fn word(&self, edge: u32, word: u32) -> u32;
    /// The factor of the column of an edge.
    ///
    /// # Safety
    /// It is one of the edges, and columns have factors.
    unsafe fn code(&self, edge: u32) -> u32;
}

/// A warp's edges.
struct Walk<'a, const W: u32, const U: usize> {
    params: &'a BspmmParams,
    /// Which of all.
    chunk: u32,
    /// The first edge.
    first: u32,
    /// How many.
    edges: u32,
    /// Where the warp's shared memory begins.
    memory: Shared,
}

/// The rows of the graph in a tile. Number 0 is the one that began before it, where one did; the others start in it.
struct Rows {
    /// Those that end with or in the tile.
    complete: u32,
    /// Whether one more goes on behind it.
    is_open: bool,
    /// Rows that have edges and start before the tile.
    before: u32,
}

/// The row that a tile begins in.
#[derive(Clone, Copy)]
struct Open {
    /// Its edges in the tile before, which are to be counted yet.
    waiting: u32,
    /// Whether edges of it are in the warp's sum, which it is then for the warp to end.
    is_in_sum: bool,
    /// Whether it began before the warp's edges.
    is_foreign: bool,
}

/// Edges of a row in the ring: number `e` lies in place `e % RING_EDGES`.
#[derive(Clone, Copy)]
struct Part<const W: u32, const U: usize> {
    memory: Shared,
    begin: u32,
    end: u32,
}

impl<const W: u32, const U: usize> Part<W, U> {
    #[inline(always)]
    fn edges(self) -> u32 {
        self.end.wrapping_sub(self.begin)
    }

    /// Where the row of an edge is.
    #[inline(always)]
    fn place(self, edge: u32) -> Shared {
        self.memory
            .offset(place(edge % RING_EDGES) * (U as u32 * 4))
    }

    /// The row of an edge that is one of these, else zeros.
    ///
    /// # Safety
    /// The edges are in the ring.
    #[inline(always)]
    unsafe fn unit(self, edge: u32) -> Unit<U> {
        let mut unit = [0; U];
        if edge < self.end {
            let place = self.place(edge);
            // SAFETY: the caller's promise.
            unsafe {
                if U == 2 {
                    let [a, b] = place.load_u32x2();
                    (unit[0], unit[U - 1]) = (a, b);
                } else {
                    let [a, b, c, d] = place.load_u32x4();
                    (unit[0], unit[1], unit[U - 2], unit[U - 1]) = (a, b, c, d);
                }
            }
        }
        unit
    }
}

impl<const W: u32, const U: usize> Edges<U> for Part<W, U> {
    #[inline(always)]
    fn begin(&self) -> u32 {
        self.begin
    }
    #[inline(always)]
    fn end(&self) -> u32 {
        self.end
    }
    #[inline(always)]
    unsafe fn word(&self, edge: u32, word: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.place(edge).offset(word * 4).load_u32() }
    }
    #[inline(always)]
    unsafe fn code(&self, edge: u32) -> u32 {
        let codes = self.memory.offset(shared_bytes(W));
        // SAFETY: the caller's promise.
        unsafe { codes.offset(edge % RING_EDGES * 4).load_u32() }
    }
}

/// What the warp has counted of a row.
struct Sum<const U: usize> {
    /// Of the last `turns` times 32 edges.
    planes: WarpRow<U>,
    turns: u32,
    /// Of those before, in the lane's columns: with factors, the sums of the factors of edges that have a bit.
    counts: [u32; U],
    /// Edges, or the sum of their factors.
    all: u32,
}

impl<const U: usize> Sum<U> {
    const EMPTY: Self = Self {
        planes: WarpRow::EMPTY,
        turns: 0,
        counts: [0; U],
        all: 0,
    };

    /// Counts more edges.
    ///
    /// # Safety
    /// All lanes of the warp come together with the same part, whose edges are in the ring; there [is room](Sum::is_full).
    #[inline(always)]
    unsafe fn add<F: Factors, const W: u32>(&mut self, part: Part<W, U>) {
        // SAFETY: the caller's promise; the loops are the same for all lanes.
        unsafe {
            if F::ARE_THERE {
                self.add_factored(part);
                return;
            }
            self.all += part.edges();
            let mut first = part.begin;
            while first < part.end {
                let edge = first + lane_id();
                if first + WARP < part.end {
                    self.planes.add_two(part.unit(edge), part.unit(edge + WARP));
                    self.turns += 2;
                } else {
                    self.planes.add(part.unit(edge));
                    self.turns += 1;
                }
                first += 2 * WARP;
            }
        }
    }

    /// Whether there is no room for what a tile may have of the row.
    #[inline(always)]
    fn is_full(&self) -> bool {
        self.turns > MOST_TURNS - TILE_TURNS
    }

    /// Moves what the planes have to the counts.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    unsafe fn settle(&mut self) {
        // SAFETY: the caller's promise: they have seen as many turns.
        let more = unsafe { self.planes.of_lanes(WARP - self.turns.leading_zeros()) };
        unroll!(word in 0..U => {
            self.counts[word] += more[word];
        });
        self.planes = WarpRow::EMPTY;
        self.turns = 0;
    }

    /// [`Sum::add`] where columns have factors.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn add_factored<const W: u32>(&mut self, part: Part<W, U>) {
        let mut first = part.begin;
        while first < part.end {
            let edge = first + lane_id();
            // SAFETY: the caller's promise; lanes without an edge have a factor of zero.
            unsafe {
                let mut unit = part.unit(edge);
                let code = if edge < part.end { part.code(edge) } else { 0 };
                unroll!(word in 0..U => {
                    unit[word] = transpose(unit[word]);
                });
                let mut plane = 0;
                while plane < CODE_BITS {
                    let mask = ballot(code >> plane & 1 != 0);
                    self.all += mask.count_ones() << plane;
                    unroll!(word in 0..U => {
                        self.counts[word] += (unit[word] & mask).count_ones() << plane;
                    });
                    plane += 1;
                }
            }
            first += WARP;
        }
    }

    /// The sums of ±1, or of factors, in the lane's columns, of what is [settled](Sum::settle); nothing is counted any more.
    #[inline(always)]
    fn take(&mut self) -> [i32; U] {
        let mut sums = [0; U];
        unroll!(word in 0..U => {
            sums[word] = self.counts[word].wrapping_mul(2).wrapping_sub(self.all) as i32;
        });
        (self.counts, self.all) = ([0; U], 0);
        sums
    }
}

impl<const W: u32, const U: usize> Walk<'_, W, U> {
    /// # Safety
    /// The launch contract; all lanes of the warp come together.
    #[inline(always)]
    unsafe fn run<O: Output<U>, F: Factors>(&self) {
        let tiles = self.edges.div_ceil(TILE_EDGES);
        // SAFETY: the caller's promise: what is the same for all lanes are numbers of the launch and of votes and shuffles.
        unsafe {
            if lane_id() == 0 {
                self.staged(0).store(NO_ROW);
            }
            self.send_for::<F>(0, self.columns(0));
            self.send_for::<F>(1, self.columns(1));
            let mut columns = self.columns(2);
            let mut next = self.starts(0);
            let begins = shuffle_idx(next[0], 0) & 1 != 0;
            let mut open = Open {
                waiting: 0,
                is_in_sum: !begins,
                is_foreign: !begins,
            };
            let mut sum = Sum::<U>::EMPTY;
            let mut tile = 0;
            while tile < tiles {
                // All but the tile behind this one have come, and no lane looks at that of two tiles ago any more.
                wait::<1>();
                sync_warp();
                let starts = next;
                next = self.starts(tile + 1);
                self.send_for::<F>(tile + 2, columns);
                columns = self.columns(tile + 3);
                let rows = self.list(tile, starts, next);
                self.rows_of_few_edges::<O, F>(tile, &rows, open);
                self.rows_of_many_edges::<O, F>(tile, &rows, &mut open, &mut sum);
                tile += 1;
            }
        }
    }

    /// The columns of the lane's edges of a tile, of those that there are.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn columns(&self, tile: u32) -> [u32; LANE_EDGES] {
        let edge = tile * TILE_EDGES + lane_id();
        // No addresses that stay in registers while a tile is counted.
        let first = recomputed(self.first) + edge;
        let place = Global::<u32>::new(self.params.columns).at(first as u64);
        let mut columns = [0; LANE_EDGES];
        unroll!(i in 0..LANE_EDGES => {
            let edge = edge + i as u32 * WARP;
            // SAFETY: the caller's promise: an edge has a column.
            columns[i] = unsafe { place.at(i as u64 * WARP as u64).load_once_if(edge < self.edges) };
        });
        columns
    }

    /// Sends for the rows of a tile, where there is one, of which these are the columns; that is a group of copies.
    ///
    /// # Safety
    /// The launch contract; nobody looks at the tile of four before.
    #[inline(always)]
    unsafe fn send_for<F: Factors>(&self, tile: u32, columns: [u32; LANE_EDGES]) {
        if tile * TILE_EDGES < self.edges {
            let params = self.params;
            let x = Global::<u64>::new(params.x).at(params.first_word as u64);
            let stride = params.x_stride * 8;
            let edge = tile * TILE_EDGES + lane_id();
            let part = Part::<W, U> {
                memory: self.memory,
                begin: edge,
                end: 0,
            };
            let first = part.place(edge);
            // SAFETY: the caller's promise: a column is a row of `x`, and where there is no edge it is row 0, which is there as any
            // row is; the places are the lane's own until all lanes have waited.
            unsafe {
                unroll!(i in 0..LANE_EDGES => {
                    // A tile begins at a place whose number is a multiple of 16.
                    let target = first.offset(place(i as u32 * WARP) * (U as u32 * 4));
                    let source = x.row(columns[i], stride).address();
                    if U == 2 {
                        copy_8(target, source);
                    } else {
                        copy_16(target, source, true);
                    }
                });
                if F::ARE_THERE {
                    self.bring_codes(part, columns);
                }
            }
        }
        commit();
    }

    /// Brings the factor of each edge's column, from the lane's first on, to shared memory.
    ///
    /// # Safety
    /// As [`Walk::send_for`], and columns have factors.
    #[inline(always)]
    unsafe fn bring_codes(&self, part: Part<W, U>, columns: [u32; LANE_EDGES]) {
        let codes = Global::<u32>::new(self.params.codes);
        unroll!(i in 0..LANE_EDGES => {
            let column = columns[i];
            // SAFETY: the caller's promise: a factor a column, of which there is one.
            unsafe {
                let word = codes.at((column / CODES_PER_WORD) as u64).fetch();
                let code = word >> (column % CODES_PER_WORD * CODE_BITS) & LARGEST_CODE;
                let edge = (part.begin + i as u32 * WARP) % RING_EDGES;
                self.memory
                    .offset(shared_bytes(W) + edge * 4)
                    .store_u32(code);
            }
        });
    }

    /// The word of starts of a tile that has the lane's edges; no starts, where there is none.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn starts(&self, tile: u32) -> [u32; 2] {
        let first = recomputed(self.first) / WARP + tile * START_WORDS;
        let word = first + lane_id() / LANES_PER_WORD;
        let starts = Global::<[u32; 2]>::new(self.params.starts).at(word as u64);
        // SAFETY: the caller's promise: there is a word for each 32 edges and the end.
        unsafe { starts.load_if(word <= self.params.edges / WARP) }
    }

    /// Where row `row` of the tile starts.
    #[inline(always)]
    fn start(&self, row: u32) -> Shared {
        self.memory.offset(row_bytes(W) + row * 4)
    }

    /// Lists where rows start, and behind the last of them where it ends in the tile: `starts` is the tile's words, `next` those of the
    /// next.
    ///
    /// # Safety
    /// All lanes of the warp come together, and none looks at the list of the tile before.
    #[inline(always)]
    unsafe fn list(&self, tile: u32, starts: [u32; 2], next: [u32; 2]) -> Rows {
        let left = self.edges - tile * TILE_EDGES;
        let is_full = left >= TILE_EDGES;
        // The last lane whose word of starts there is.
        let last = if is_full {
            WARP
        } else {
            (left / WARP + 1) * LANES_PER_WORD
        } - 1;
        let lane = recomputed(lane_id());
        let (word, shift) = (lane / LANES_PER_WORD, lane % LANES_PER_WORD * LANE_BITS);
        let [bits, rank] = starts;
        // SAFETY: the caller's promise: a tile has no more rows than edges, and each lane lists its own.
        unsafe {
            let before = shuffle_idx(rank, 0);
            let mut count = rank - before + (bits & !(u32::MAX << shift)).count_ones();
            let mut left_bits = bits >> shift & ((1 << LANE_BITS) - 1);
            while left_bits != 0 {
                count += 1;
                let edge = word * WARP + shift + left_bits.trailing_zeros();
                self.start(count).store_u32(tile * TILE_EDGES + edge);
                left_bits &= left_bits - 1;
            }
            let count = shuffle_idx(count, last);
            let rows = if is_full {
                if lane_id() == 0 {
                    self.start(count + 1).store_u32((tile + 1) * TILE_EDGES);
                }
                let is_open = shuffle_idx(next[0], 0) & 1 == 0;
                Rows {
                    complete: count + !is_open as u32,
                    is_open,
                    before,
                }
            } else {
                // The end of all edges is a start as well.
                Rows {
                    complete: count,
                    is_open: false,
                    before,
                }
            };
            sync_warp();
            rows
        }
    }

    /// What there is of row `row` in the tile, with what waits of it.
    ///
    /// # Safety
    /// There is such a row, and [`Walk::list`] has listed it.
    #[inline(always)]
    unsafe fn part(&self, tile: u32, row: u32, open: Open) -> Part<W, U> {
        // So that what waits of the tile before the first has no number below zero.
        let shift = RING_EDGES;
        // SAFETY: the caller's promise.
        unsafe {
            let begin = match row {
                0 => tile * TILE_EDGES - open.waiting,
                _ => self.start(row).load_u32(),
            };
            Part {
                memory: self.memory,
                begin: begin + shift,
                end: self.start(row + 1).load_u32() + shift,
            }
        }
    }

    /// Where the sum of row `row` of the tile goes.
    ///
    /// # Safety
    /// The launch contract, and there is such a row.
    #[inline(always)]
    unsafe fn target(&self, rows: &Rows, row: u32) -> Place {
        let filled = Global::<u32>::new(self.params.filled_rows);
        let number = (rows.before + row).wrapping_sub(1);
        Place {
            // SAFETY: the caller's promise.
            row: unsafe { filled.at(number as u64).load() },
            unit: 0,
        }
    }

    /// Whether a row that ends in the tile is one that some lanes add up by themselves.
    #[inline(always)]
    fn is_few<O: Output<U>, F: Factors>(part: Part<W, U>) -> bool {
        let few = if F::ARE_THERE {
            FACTORED_ROW_EDGES
        } else {
            O::FEW
        };
        part.edges() <= few
    }

    /// Rows of few edges that end in the tile, by as many lanes as the output wants.
    ///
    /// # Safety
    /// The launch contract, with what [`Walk::list`] has given of the tile.
    #[inline(always)]
    unsafe fn rows_of_few_edges<O: Output<U>, F: Factors>(
        &self,
        tile: u32,
        rows: &Rows,
        open: Open,
    ) {
        let lanes = if F::ARE_THERE {
            U as u32 * WARP / O::FACTORED_COLUMNS
        } else {
            O::LANES
        };
        let mut row = lane_id() / lanes;
        while row < rows.complete {
            // SAFETY: the caller's promise; a row is that of these lanes alone.
            unsafe {
                let part = self.part(tile, row, open);
                let is_the_warps = row == 0 && open.is_in_sum;
                if Self::is_few::<O, F>(part) && part.edges() > 0 && !is_the_warps {
                    let target = self.target(rows, row);
                    if F::ARE_THERE {
                        O::write_factored(self.params, target, &part);
                    } else {
                        O::write_few(self.params, target, &part);
                    }
                }
            }
            row += WARP / lanes;
        }
    }

    /// The other rows, by the whole warp, one after the other. The last, where it goes on behind the tile, stays in the sum, or waits
    /// while it has few edges.
    ///
    /// # Safety
    /// As [`Walk::rows_of_few_edges`]; all lanes of the warp come together.
    #[inline(always)]
    unsafe fn rows_of_many_edges<O: Output<U>, F: Factors>(
        &self,
        tile: u32,
        rows: &Rows,
        open: &mut Open,
        sum: &mut Sum<U>,
    ) {
        let is_last_tile = (tile + 1) * TILE_EDGES >= self.edges;
        let end = rows.complete + rows.is_open as u32;
        let mut next = Open {
            waiting: 0,
            is_in_sum: false,
            is_foreign: false,
        };
        let mut first = 0;
        // SAFETY: the caller's promise: loops are the same for all lanes of a warp.
        unsafe {
            while first < end {
                let row = first + lane_id();
                let mut is_here = false;
                if row < end {
                    let part = self.part(tile, row, *open);
                    let is_few = Self::is_few::<O, F>(part);
                    let is_begun = row == 0 && open.is_in_sum;
                    // Nobody else sees what waits at the end of the warp's edges.
                    let is_cut = row == rows.complete && is_last_tile;
                    is_here = part.edges() > 0 && (!is_few || is_begun || is_cut);
                }
                let mut left = ballot(is_here);
                while left != 0 {
                    let row = first + left.trailing_zeros();
                    left &= left - 1;
                    let target = self.target(rows, row);
                    sum.add::<F, W>(self.part(tile, row, *open));
                    let goes_on = row == rows.complete;
                    let is_foreign = row == 0 && open.is_foreign;
                    let is_done = !goes_on || is_last_tile;
                    if !F::ARE_THERE && (is_done || sum.is_full()) {
                        sum.settle();
                    }
                    if is_done {
                        let sums = sum.take();
                        if goes_on {
                            self.stage(1 + W * WORD_BITS, sums);
                        } else if is_foreign {
                            self.stage(1, sums);
                            if lane_id() == 0 {
                                self.staged(0).store(target.row);
                            }
                        } else {
                            O::write_sums(self.params, target, sums);
                        }
                    }
                    if goes_on {
                        next.is_in_sum = true;
                        next.is_foreign = is_foreign;
                    }
                }
                first += WARP;
            }
            if rows.is_open && !next.is_in_sum {
                next.waiting = self.part(tile, rows.complete, *open).edges();
            }
        }
        *open = next;
    }

    /// Staged word `at` of the warp.
    #[inline(always)]
    fn staged(&self, at: u32) -> Global<u32> {
        // Seldom wanted, and no address that stays in registers.
        let first = recomputed(self.chunk) as u64 * staged_words(W) as u64;
        Global::new(self.params.staging).at(first + at as u64)
    }

    /// Stages sums from word `first` on.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together.
    #[inline(always)]
    unsafe fn stage(&self, first: u32, sums: [i32; U]) {
        let place = self.staged(first + lane_id());
        unroll!(word in 0..U => {
            // SAFETY: the caller's promise: the staging buffer has as many words for each warp.
            unsafe {
                place.at((word as u32 * WARP) as u64).store(sums[word] as u32);
            }
        });
    }
}
