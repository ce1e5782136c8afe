//! The sums over neighbours of a CTA's edges, with a factor a column or without.

use super::output::Output;
use super::planes::{Planes, Unit, transpose};
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads, thread_idx_x};
use crate::device::warp::{ballot, lane_id, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, CODE_BITS, CODES_PER_WORD, EDGES_PER_CTA, FACTORED_ROW_EDGES, LARGEST_CODE,
    NO_ROW, START_WORDS_PER_CTA, THREADS_PER_CTA, UNIT_PLACES, WARPS_PER_CTA, WORD_BITS, place,
    row_bytes, shared_bytes, staged_words, unit_words,
};

const EDGES_PER_THREAD: u32 = EDGES_PER_CTA / THREADS_PER_CTA;

const _: () = assert!(
    EDGES_PER_THREAD == 4,
    "a thread has four bits of a word of starts"
);

/// Counters of a lane of a warp's row: 15 edges, 32 apart.
type WarpRow<const U: usize> = Planes<4, U>;
const TURNS: u32 = 15;

/// `W` words of rows, in units of `U` words of 32 columns.
///
/// # Safety
/// The launch contract of [`BspmmParams`]: `ctas` CTAs of [`THREADS_PER_CTA`] threads.
#[inline(always)]
pub unsafe fn run<O: Output<U>, F: Factors, const W: u32, const U: usize>(params: &BspmmParams) {
    const { assert!(unit_words(W) == U as u32) };
    let first = block_idx_x() * EDGES_PER_CTA;
    let left = params.edges - first;
    let tile = Tile::<W, U> {
        params,
        first,
        edges: if left < EDGES_PER_CTA {
            left
        } else {
            EDGES_PER_CTA
        },
    };
    // SAFETY: the caller's promise; all threads come along.
    unsafe {
        let rows = tile.load::<F>();
        tile.rows_of_few_edges::<O, F>(&rows);
        tile.rows_of_many_edges::<O, F>(&rows);
    }
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
    /// The unit of an edge.
    ///
    /// # Safety
    /// It is one of the edges.
    unsafe fn unit(&self, edge: u32) -> Unit<U>;
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

/// A CTA's edges.
struct Tile<'a, const W: u32, const U: usize> {
    params: &'a BspmmParams,
    /// The first edge.
    first: u32,
    /// How many.
    edges: u32,
}

/// The rows of the graph in a CTA's edges. Number 0 is the one that began before them, if one did; the others start here.
struct Rows {
    /// With number 0.
    count: u32,
    /// Rows that have edges and start before the CTA's edges.
    before: u32,
    /// Whether the last row goes on behind them.
    is_open: bool,
}

/// A unit of a row's edges among the CTA's, and what is done with their sum.
#[derive(Clone, Copy)]
struct Part<const U: usize> {
    begin: u32,
    end: u32,
    unit: u32,
    /// The row in the list of those that have edges.
    filled: u32,
    /// It began before the CTA's edges and ends in them.
    is_end: bool,
    /// It goes on behind them.
    is_tail: bool,
    /// Where factors of columns begin, in shared memory.
    codes: u32,
}

impl<const U: usize> Part<U> {
    /// A unit of no row.
    #[inline(always)]
    fn of_unit(unit: u32) -> Self {
        Self {
            begin: 0,
            end: 0,
            unit,
            filled: 0,
            is_end: false,
            is_tail: false,
            codes: 0,
        }
    }

    #[inline(always)]
    fn edges(self) -> u32 {
        self.end - self.begin
    }

    #[inline(always)]
    fn is_whole(self) -> bool {
        !self.is_end && !self.is_tail
    }

    /// Where the unit of an edge is.
    #[inline(always)]
    fn place(self, edge: u32) -> Shared {
        let units_before = self.unit * UNIT_PLACES;
        Shared::base().offset((units_before + place(edge)) * (U as u32 * 4))
    }
}

impl<const U: usize> Edges<U> for Part<U> {
    #[inline(always)]
    fn begin(&self) -> u32 {
        self.begin
    }
    #[inline(always)]
    fn end(&self) -> u32 {
        self.end
    }
    #[inline(always)]
    unsafe fn unit(&self, edge: u32) -> Unit<U> {
        let place = self.place(edge);
        let mut unit = [0; U];
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
        unit
    }
    #[inline(always)]
    unsafe fn word(&self, edge: u32, word: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { self.place(edge).offset(word * 4).load_u32() }
    }
    #[inline(always)]
    unsafe fn code(&self, edge: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { Shared::base().offset(self.codes + edge * 4).load_u32() }
    }
}

impl<const W: u32, const U: usize> Tile<'_, W, U> {
    /// Units of a row.
    const UNITS: u32 = W * 2 / U as u32;

    /// Where row `row` starts, among the CTA's edges.
    #[inline(always)]
    fn start(row: u32) -> Shared {
        Shared::base().offset(row_bytes(W) + row * 4)
    }

    /// Brings the rows of the CTA's edges, and where rows of the graph start, to shared memory.
    ///
    /// # Safety
    /// The launch contract; all threads of the CTA come together.
    #[inline(always)]
    unsafe fn load<F: Factors>(&self) -> Rows {
        let params = self.params;
        let thread = thread_idx_x();
        // SAFETY: edges below `edges` have a column, which is a row of `x`; there is a word of starts for each 32 edges and
        // the end; a place is one thread's up to the barrier.
        unsafe {
            let columns = Global::<u32>::new(params.columns).at(self.first as u64);
            let x = Global::<u64>::new(params.x).at(params.first_word as u64);
            let stride = params.x_stride * 8;
            // Lanes side by side load the units of one row, whose sector is then looked up once.
            let unit = thread % Self::UNITS;
            let part = Part::<U>::of_unit(unit);
            let mut turn = 0;
            while turn < Self::UNITS {
                let first = turn * THREADS_PER_CTA * EDGES_PER_THREAD + thread;
                let edge = |i: u32| (first + i * THREADS_PER_CTA) / Self::UNITS;
                let mut ids = [0; EDGES_PER_THREAD as usize];
                let mut i = 0;
                while i < EDGES_PER_THREAD {
                    if edge(i) < self.edges {
                        ids[i as usize] = columns.at(edge(i) as u64).read();
                    }
                    i += 1;
                }
                if U == 2 {
                    let mut rows = [[0; 2]; EDGES_PER_THREAD as usize];
                    let mut i = 0;
                    while i < EDGES_PER_THREAD as usize {
                        rows[i] = Global::<[u32; 2]>::cast(x.row(ids[i], stride)).fetch();
                        i += 1;
                    }
                    let mut i = 0;
                    while i < EDGES_PER_THREAD {
                        part.place(edge(i)).store_u32x2(rows[i as usize]);
                        i += 1;
                    }
                } else {
                    let mut rows = [[0; 4]; EDGES_PER_THREAD as usize];
                    let mut i = 0;
                    while i < EDGES_PER_THREAD as usize {
                        let row = Global::<[u32; 4]>::cast(x.row(ids[i], stride));
                        rows[i] = row.at(unit as u64).fetch();
                        i += 1;
                    }
                    let mut i = 0;
                    while i < EDGES_PER_THREAD {
                        part.place(edge(i)).store_u32x4(rows[i as usize]);
                        i += 1;
                    }
                }
                turn += 1;
            }
            if F::ARE_THERE {
                self.load_codes();
            }
            let rows = self.load_starts();
            sync_threads();
            let count = Self::start(0).load_u32();
            Rows { count, ..rows }
        }
    }

    /// Brings the factor of each edge's column to shared memory.
    ///
    /// # Safety
    /// As [`Tile::load`], and columns have factors.
    #[inline(always)]
    unsafe fn load_codes(&self) {
        // SAFETY: the caller's promise: a factor a column; a place is one thread's up to the barrier.
        unsafe {
            let columns = Global::<u32>::new(self.params.columns).at(self.first as u64);
            let codes = Global::<u32>::new(self.params.codes);
            let mut i = 0;
            while i < EDGES_PER_THREAD {
                let edge = i * THREADS_PER_CTA + thread_idx_x();
                if edge < self.edges {
                    let column = columns.at(edge as u64).read();
                    let word = codes.at((column / CODES_PER_WORD) as u64).fetch();
                    let code = word >> (column % CODES_PER_WORD * CODE_BITS) & LARGEST_CODE;
                    Shared::base()
                        .offset(shared_bytes(W) + edge * 4)
                        .store_u32(code);
                }
                i += 1;
            }
        }
    }

    /// Writes where rows start: each thread those of its four edges; word 0 becomes the number of rows.
    ///
    /// # Safety
    /// As [`Tile::load`].
    #[inline(always)]
    unsafe fn load_starts(&self) -> Rows {
        let params = self.params;
        let starts = Global::<[u32; 2]>::new(params.starts).at((self.first / WARP) as u64);
        // The word that has the CTA's last start: its own last, or that of the end of all edges.
        let last = self.edges / WARP;
        let last = if last < START_WORDS_PER_CTA {
            last
        } else {
            START_WORDS_PER_CTA - 1
        };
        let (word, shift) = (thread_idx_x() / 8, thread_idx_x() % 8 * 4);
        // SAFETY: the caller's promise.
        unsafe {
            let [_, before] = starts.read();
            if word <= last {
                let [bits, rank] = starts.at(word as u64).read();
                let mut row = 1 + rank - before + (bits & !(u32::MAX << shift)).count_ones();
                let mut left = bits >> shift & 0xf;
                while left != 0 {
                    let edge = word * WARP + shift + left.trailing_zeros();
                    Self::start(row).store_u32(edge);
                    row += 1;
                    left &= left - 1;
                }
                if word == last && shift == WARP - 4 {
                    // The start behind the last edge of all is no row's.
                    let is_last = self.edges < EDGES_PER_CTA;
                    Self::start(0).store_u32(row - is_last as u32);
                }
            }
            let [next, _] = if self.edges == EDGES_PER_CTA {
                starts.at(START_WORDS_PER_CTA as u64).read()
            } else {
                [1, 0]
            };
            Rows {
                count: 0,
                before,
                is_open: next & 1 == 0,
            }
        }
    }

    /// Unit `job % UNITS` of row `job / UNITS`.
    ///
    /// # Safety
    /// There is one, and shared memory holds the starts.
    #[inline(always)]
    unsafe fn part(&self, rows: &Rows, job: u32) -> Part<U> {
        // SAFETY: the caller's promise.
        let start = |row: u32| unsafe { Self::start(row).load_u32() };
        let (row, unit) = (job / Self::UNITS, job % Self::UNITS);
        let is_last = row + 1 == rows.count;
        let is_tail = is_last && rows.is_open;
        Part {
            begin: if row == 0 { 0 } else { start(row) },
            end: if is_last { self.edges } else { start(row + 1) },
            unit,
            filled: (rows.before + row).wrapping_sub(1),
            is_end: row == 0 && !is_tail,
            is_tail,
            codes: shared_bytes(W),
        }
    }

    /// Where a part's sum goes.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn target(&self, part: Part<U>) -> Place {
        let rows = Global::<u32>::new(self.params.filled_rows);
        Place {
            // SAFETY: the caller's promise.
            row: unsafe { rows.at(part.filled as u64).read() },
            unit: part.unit,
        }
    }

    /// Whole rows of few edges, by as many lanes as the output wants.
    ///
    /// # Safety
    /// All threads of the CTA come together, with what [`Tile::load`] has given.
    #[inline(always)]
    unsafe fn rows_of_few_edges<O: Output<U>, F: Factors>(&self, rows: &Rows) {
        let lanes = if F::ARE_THERE {
            U as u32 * WARP / O::FACTORED_COLUMNS
        } else {
            O::LANES
        };
        let mut job = thread_idx_x() / lanes;
        while job < rows.count * Self::UNITS {
            // SAFETY: the caller's promise; a unit of a row is that of these lanes alone.
            unsafe {
                let part = self.part(rows, job);
                if Self::is_few::<O, F>(part) {
                    let target = self.target(part);
                    if F::ARE_THERE {
                        O::write_factored(self.params, target, &part);
                    } else {
                        O::write_few(self.params, target, &part);
                    }
                }
            }
            job += THREADS_PER_CTA / lanes;
        }
    }

    /// Whether a part is a whole row that some lanes add up by themselves.
    #[inline(always)]
    fn is_few<O: Output<U>, F: Factors>(part: Part<U>) -> bool {
        let few = if F::ARE_THERE {
            FACTORED_ROW_EDGES
        } else {
            O::FEW
        };
        part.is_whole() && part.edges() <= few
    }

    /// The other rows, dealt out to the warps in turn.
    ///
    /// # Safety
    /// As [`Tile::rows_of_few_edges`].
    #[inline(always)]
    unsafe fn rows_of_many_edges<O: Output<U>, F: Factors>(&self, rows: &Rows) {
        let end = rows.count * Self::UNITS;
        let (mut first, mut seen) = (0, 0);
        // SAFETY: the caller's promise: loops are the same for all lanes of a warp.
        unsafe {
            while first < end {
                let job = first + lane_id();
                let mut is_here = false;
                if job < end {
                    let part = self.part(rows, job);
                    is_here = !Self::is_few::<O, F>(part) && part.edges() > 0;
                }
                let mut left = ballot(is_here);
                while left != 0 {
                    if seen % WARPS_PER_CTA == warp_id() {
                        let job = first + left.trailing_zeros();
                        self.by_warp::<O, F>(self.part(rows, job));
                    }
                    seen += 1;
                    left &= left - 1;
                }
                first += WARP;
            }
            // No row that began before the CTA's edges ends in them.
            let part = self.part(rows, 0);
            if thread_idx_x() == 0 && (part.edges() == 0 || !part.is_end) {
                self.staged(0).store(NO_ROW);
            }
        }
    }

    /// Staged word `at` of the CTA.
    #[inline(always)]
    fn staged(&self, at: u32) -> Global<u32> {
        let first = block_idx_x() as u64 * staged_words(W) as u64;
        Global::new(self.params.staging).at(first + at as u64)
    }

    /// A unit of a row by a whole warp, written or staged.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together with the same part.
    #[inline(always)]
    unsafe fn by_warp<O: Output<U>, F: Factors>(&self, part: Part<U>) {
        // SAFETY: the caller's promise; a part of a row is staged by one warp.
        unsafe {
            let (counts, all) = if F::ARE_THERE {
                Self::factored_counts(part)
            } else {
                (Self::counts(part), part.edges())
            };
            let sums = counts.map(|count| count.wrapping_mul(2).wrapping_sub(all) as i32);
            if part.is_whole() {
                O::write_sums(self.params, self.target(part), sums);
                return;
            }
            let first = if part.is_tail { 1 + W * WORD_BITS } else { 1 };
            let place = self.staged(first + part.unit * (U as u32 * WARP) + lane_id());
            let mut word = 0;
            while word < U {
                place
                    .at((word as u32 * WARP) as u64)
                    .store(sums[word] as u32);
                word += 1;
            }
            if part.is_end && part.unit == 0 && lane_id() == 0 {
                self.staged(0).store(self.target(part).row);
            }
        }
    }

    /// How many of a part's edges have a bit in the lane's columns.
    ///
    /// # Safety
    /// All lanes of the warp come together; the edges are the CTA's.
    #[inline(always)]
    unsafe fn counts(part: Part<U>) -> [u32; U] {
        let mut counts = [0; U];
        let mut first = part.begin;
        // SAFETY: the caller's promise; a unit is read where there is an edge.
        let unit = |edge: u32| {
            if edge < part.end {
                unsafe { part.unit(edge) }
            } else {
                [0; U]
            }
        };
        while first < part.end {
            let turns = (part.end - first).div_ceil(WARP);
            let turns = if turns < TURNS { turns } else { TURNS };
            let mut of_lane = WarpRow::<U>::EMPTY;
            let mut turn = 0;
            while turn + 1 < turns {
                let edge = first + turn * WARP + lane_id();
                of_lane.add_two(unit(edge), unit(edge + WARP));
                turn += 2;
            }
            if turn < turns {
                of_lane.add(unit(first + turn * WARP + lane_id()));
            }
            // SAFETY: the lanes are together again.
            let more = unsafe { of_lane.of_lanes(WARP - turns.leading_zeros()) };
            let mut word = 0;
            while word < U {
                counts[word] += more[word];
                word += 1;
            }
            first += turns * WARP;
        }
        counts
    }

    /// The sum of the factors of those of a part's edges that have a bit in the lane's columns, and that of all.
    ///
    /// # Safety
    /// As [`Tile::counts`], and columns have factors.
    #[inline(always)]
    unsafe fn factored_counts(part: Part<U>) -> ([u32; U], u32) {
        let (mut counts, mut all) = ([0; U], 0);
        let mut first = part.begin;
        while first < part.end {
            let edge = first + lane_id();
            let (mut unit, mut code) = ([0; U], 0);
            // SAFETY: the caller's promise; lanes without an edge have a factor of zero.
            unsafe {
                if edge < part.end {
                    unit = part.unit(edge);
                    code = part.code(edge);
                }
                let mut word = 0;
                while word < U {
                    unit[word] = transpose(unit[word]);
                    word += 1;
                }
                let mut plane = 0;
                while plane < CODE_BITS {
                    let mask = ballot(code >> plane & 1 != 0);
                    all += mask.count_ones() << plane;
                    let mut word = 0;
                    while word < U {
                        counts[word] += (unit[word] & mask).count_ones() << plane;
                        word += 1;
                    }
                    plane += 1;
                }
            }
            first += WARP;
        }
        (counts, all)
    }
}
