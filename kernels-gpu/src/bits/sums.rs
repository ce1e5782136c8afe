//! The sums over neighbours of a CTA's edges.

use super::output::Output;
use super::planes::{Planes, Word};
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads, thread_idx_x};
use crate::device::warp::{ballot, lane_id, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, EDGES_PER_CTA, FEW_EDGES, LANE_ROW_EDGES, NO_ROW, START_WORDS_PER_CTA,
    THREADS_PER_CTA, WARPS_PER_CTA, WORD_BITS, place, row_bytes, staged_words,
};

const EDGES_PER_THREAD: u32 = EDGES_PER_CTA / THREADS_PER_CTA;

const _: () = assert!(
    EDGES_PER_THREAD == 4,
    "a thread has four bits of a word of starts"
);

/// Counters of a lane's own row.
type LaneRow = Planes<5>;
const _: () = assert!(LANE_ROW_EDGES < 1 << 5, "five planes count that many");

/// Counters of a lane of a warp's row: 15 edges, 32 apart.
type WarpRow = Planes<4>;
const TURNS: u32 = 15;

/// # Safety
/// The launch contract of [`BspmmParams`]: `ctas` CTAs of [`THREADS_PER_CTA`] threads, `W` its words.
#[inline(always)]
pub unsafe fn run<O: Output, const W: u32>(params: &BspmmParams) {
    let first = block_idx_x() * EDGES_PER_CTA;
    let left = params.edges - first;
    let tile = Tile::<W> {
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
        let rows = tile.load();
        if O::BY_LANE {
            tile.rows_by_lanes::<O>(&rows);
        } else {
            tile.rows_by_warps::<O>(&rows);
        }
    }
}

/// A CTA's edges.
struct Tile<'a, const W: u32> {
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

/// A row's edges among the CTA's, and what is done with their sum.
#[derive(Clone, Copy)]
struct Part {
    begin: u32,
    end: u32,
    /// The row in the list of those that have edges.
    filled: u32,
    /// It began before the CTA's edges and ends in them.
    is_end: bool,
    /// It goes on behind them.
    is_tail: bool,
}

impl Part {
    #[inline(always)]
    fn is_whole(self) -> bool {
        !self.is_end && !self.is_tail
    }
}

impl<const W: u32> Tile<'_, W> {
    /// Where row `row` starts, among the CTA's edges.
    #[inline(always)]
    fn start(row: u32) -> Shared {
        Shared::base().offset(row_bytes(W) + row * 4)
    }

    /// Word `word` of the row of an edge.
    #[inline(always)]
    fn word(edge: u32, word: u32) -> Shared {
        Shared::base().offset((place(edge) * W + word) * 8)
    }

    /// Brings the rows of the CTA's edges, and where rows of the graph start, to shared memory.
    ///
    /// # Safety
    /// The launch contract; all threads of the CTA come together.
    #[inline(always)]
    unsafe fn load(&self) -> Rows {
        let params = self.params;
        let thread = thread_idx_x();
        // SAFETY: edges below `edges` have a column, which is a row of `x`; there is a word of starts for each 32 edges and
        // the end; a place is one thread's up to the barrier.
        unsafe {
            let columns = Global::<u32>::new(params.columns).at(self.first as u64);
            let mut ids = [0; EDGES_PER_THREAD as usize];
            let mut i = 0;
            while i < EDGES_PER_THREAD {
                let edge = thread + i * THREADS_PER_CTA;
                if edge < self.edges {
                    ids[i as usize] = columns.at(edge as u64).read();
                }
                i += 1;
            }
            let x = Global::<u64>::new(params.x).at(params.first_word as u64);
            let stride = params.x_stride * 8;
            if W == 1 {
                let mut rows = [[0; 2]; EDGES_PER_THREAD as usize];
                let mut i = 0;
                while i < EDGES_PER_THREAD as usize {
                    rows[i] = Global::<[u32; 2]>::cast(x.row(ids[i], stride)).fetch();
                    i += 1;
                }
                let mut i = 0;
                while i < EDGES_PER_THREAD {
                    Self::word(thread + i * THREADS_PER_CTA, 0).store_u32x2(rows[i as usize]);
                    i += 1;
                }
            } else {
                let mut vector = 0;
                while vector < W / 2 {
                    let mut rows = [[0; 4]; EDGES_PER_THREAD as usize];
                    let mut i = 0;
                    while i < EDGES_PER_THREAD as usize {
                        let row = Global::<[u32; 4]>::cast(x.row(ids[i], stride));
                        rows[i] = row.at(vector as u64).fetch();
                        i += 1;
                    }
                    let mut i = 0;
                    while i < EDGES_PER_THREAD {
                        let edge = thread + i * THREADS_PER_CTA;
                        Self::word(edge, 2 * vector).store_u32x4(rows[i as usize]);
                        i += 1;
                    }
                    vector += 1;
                }
            }
            let rows = self.load_starts();
            sync_threads();
            let count = Self::start(0).load_u32();
            Rows { count, ..rows }
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

    /// Row `row` of `rows`.
    ///
    /// # Safety
    /// There is one, and shared memory holds the starts.
    #[inline(always)]
    unsafe fn part(&self, rows: &Rows, row: u32) -> Part {
        // SAFETY: the caller's promise.
        let start = |row: u32| unsafe { Self::start(row).load_u32() };
        let is_last = row + 1 == rows.count;
        let begin = if row == 0 { 0 } else { start(row) };
        let end = if is_last { self.edges } else { start(row + 1) };
        let is_tail = is_last && rows.is_open;
        Part {
            begin,
            end,
            filled: (rows.before + row).wrapping_sub(1),
            is_end: row == 0 && !is_tail,
            is_tail,
        }
    }

    /// A lane a word of a row, where the row is whole and short; the others by warps.
    ///
    /// # Safety
    /// All threads of the CTA come together, with what [`Tile::load`] has given.
    #[inline(always)]
    unsafe fn rows_by_lanes<O: Output>(&self, rows: &Rows) {
        // SAFETY: the caller's promise: the loop is the same for all lanes of a warp, and a word of a row is one lane's or one
        // warp's.
        unsafe {
            let mut first = warp_id() * WARP;
            while first < rows.count * W {
                let job = first + lane_id();
                let (row, word) = (job / W, job % W);
                let mut by_warp = false;
                if row < rows.count {
                    let part = self.part(rows, row);
                    let edges = part.end - part.begin;
                    if edges > LANE_ROW_EDGES || !part.is_whole() {
                        by_warp = true;
                    } else {
                        let signs = Self::signs_of_short(part, word);
                        O::write_signs(self.params, self.row_id(part), word, signs);
                    }
                }
                let mut left = ballot(by_warp);
                while left != 0 {
                    let lane = left.trailing_zeros();
                    left &= left - 1;
                    let job = first + lane;
                    self.by_warp::<O>(self.part(rows, job / W), job % W);
                }
                first += WARPS_PER_CTA * WARP;
            }
            self.no_end(rows);
        }
    }

    /// A warp a word of a row.
    ///
    /// # Safety
    /// As [`Tile::rows_by_lanes`].
    #[inline(always)]
    unsafe fn rows_by_warps<O: Output>(&self, rows: &Rows) {
        // SAFETY: the caller's promise.
        unsafe {
            let mut job = warp_id();
            while job < rows.count * W {
                self.by_warp::<O>(self.part(rows, job / W), job % W);
                job += WARPS_PER_CTA;
            }
            self.no_end(rows);
        }
    }

    /// Says that no row that began before the CTA's edges ends in them, where none does.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn no_end(&self, rows: &Rows) {
        // SAFETY: the caller's promise.
        unsafe {
            let part = self.part(rows, 0);
            if thread_idx_x() == 0 && (part.begin == part.end || !part.is_end) {
                self.staged(0).store(NO_ROW);
            }
        }
    }

    /// The id of a row.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn row_id(&self, part: Part) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            Global::<u32>::new(self.params.filled_rows)
                .at(part.filled as u64)
                .read()
        }
    }

    /// Staged word `at` of the CTA.
    #[inline(always)]
    fn staged(&self, at: u32) -> Global<u32> {
        let first = block_idx_x() as u64 * staged_words(W) as u64;
        Global::new(self.params.staging).at(first + at as u64)
    }

    /// The columns of a word in which half of a row's edges or more have a bit.
    ///
    /// # Safety
    /// The edges are the CTA's, [`LANE_ROW_EDGES`] at most.
    #[inline(always)]
    unsafe fn signs_of_short(part: Part, word: u32) -> Word {
        let mut counts = LaneRow::EMPTY;
        let mut edge = part.begin;
        // SAFETY: the caller's promise.
        unsafe {
            while edge + 1 < part.end {
                let a = Self::word(edge, word).load_u32x2();
                let b = Self::word(edge + 1, word).load_u32x2();
                counts.add_two(a, b);
                edge += 2;
            }
            if edge < part.end {
                counts.add(Self::word(edge, word).load_u32x2());
            }
        }
        counts.at_least((part.end - part.begin).div_ceil(2))
    }

    /// A word of a row by a whole warp, written or staged.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together with the same row and word.
    #[inline(always)]
    unsafe fn by_warp<O: Output>(&self, part: Part, word: u32) {
        if part.begin == part.end {
            return;
        }
        // SAFETY: the caller's promise; a part of a row is staged by one warp.
        unsafe {
            let edges = part.end - part.begin;
            let counts = if edges <= FEW_EDGES {
                Self::counts_of_few(part, word)
            } else {
                Self::counts(part, word)
            };
            let sums = counts.map(|count| 2 * count as i32 - edges as i32);
            if part.is_whole() {
                O::write_sums(self.params, self.row_id(part), word, sums);
                return;
            }
            let first = if part.is_tail { 1 + W * WORD_BITS } else { 1 };
            let first = first + word * WORD_BITS + lane_id();
            self.staged(first).store(sums[0] as u32);
            self.staged(first + WARP).store(sums[1] as u32);
            if part.is_end && word == 0 && lane_id() == 0 {
                self.staged(0).store(self.row_id(part));
            }
        }
    }

    /// How many of a row's few edges have a bit in the lane's two columns: all lanes look at one edge after the other.
    ///
    /// # Safety
    /// The edges are the CTA's.
    #[inline(always)]
    unsafe fn counts_of_few(part: Part, word: u32) -> [u32; 2] {
        let mut counts = [0; 2];
        let mut edge = part.begin;
        while edge < part.end {
            // SAFETY: the caller's promise.
            let [low, high] = unsafe { Self::word(edge, word).load_u32x2() };
            counts[0] += low >> lane_id() & 1;
            counts[1] += high >> lane_id() & 1;
            edge += 1;
        }
        counts
    }

    /// How many of a row's edges have a bit in the lane's two columns.
    ///
    /// # Safety
    /// All lanes of the warp come together; the edges are the CTA's.
    #[inline(always)]
    unsafe fn counts(part: Part, word: u32) -> [u32; 2] {
        let mut counts = [0; 2];
        let mut first = part.begin;
        while first < part.end {
            let turns = (part.end - first).div_ceil(WARP);
            let turns = if turns < TURNS { turns } else { TURNS };
            let mut of_lane = WarpRow::EMPTY;
            let mut turn = 0;
            while turn < turns {
                let edge = first + turn * WARP + lane_id();
                if edge < part.end {
                    // SAFETY: the caller's promise.
                    of_lane.add(unsafe { Self::word(edge, word).load_u32x2() });
                }
                turn += 1;
            }
            // SAFETY: the lanes are together again.
            let more = unsafe { of_lane.of_lanes(WARP - turns.leading_zeros()) };
            counts[0] += more[0];
            counts[1] += more[1];
            first += turns * WARP;
        }
        counts
    }
}
