//! Which row an edge is in, and which edges a sub-warp has: [`Order`].
//!
//! - [`Starts`]: bits that say where rows start, and the list of the rows that have edges.
//! - [`RowIds`]: the row of each edge as it stands in a COO, and nothing that would have to be made before (GNNOne §4).
//! - [`InTurn`]: the same, where sub-warps take edges in turn.

use super::lanes::{Lanes, Packed, Powers};
use crate::device::global::Global;
use core::marker::PhantomData;
use halfgnn_contract::spmm::SpmmParams;

/// How a walk knows which row an edge is in, and which of its warp's edges a sub-warp has.
pub trait Order: Copy {
    /// Whether the rows of edges lie in shared memory beside their columns.
    const CACHES_ROWS: bool;
    /// Whether sub-warps take edges in turn, and not an equal share of consecutive ones each. Then a sub-warp has no row for
    /// itself: all parts are added to the output.
    const IN_TURN: bool = false;
    /// Which lanes are a sub-warp.
    type Lanes: Lanes;
    /// What is asked for before the edges are cached.
    type Asked: Copy;

    /// Asks for what is to be known of the share before it is walked: its first edge, and the one behind its last.
    ///
    /// # Safety
    /// The launch contract; both are at most the number of edges.
    unsafe fn ask(params: &SpmmParams, share: (u32, u32)) -> Self::Asked;
    /// From edge `first` on, in row `id` where rows are cached: the order, the first row, and whether that begins with the edge.
    ///
    /// # Safety
    /// The launch contract; `first` is an edge, and the first of those of which was asked.
    unsafe fn begin(
        params: &SpmmParams,
        asked: Self::Asked,
        first: u32,
        id: u32,
    ) -> (Self, Rows, bool);
    /// A bit for each of the next four edges, set where it begins a row; the edge before them is of row `row`, and where rows
    /// are cached theirs are `ids`.
    fn four(&self, row: u32, ids: [u32; 4]) -> u32;
    /// The bit of the next edge alone.
    fn one(&self, row: u32, id: u32) -> u32;
    /// The bits of the next eight edges, which are of one word of starts. Of no meaning where rows are cached.
    fn eight(&self) -> u32;
    /// The row after `rows`, that of an edge which begins it and is in row `id` where rows are cached.
    ///
    /// # Safety
    /// The launch contract; there is such a row.
    unsafe fn next(params: &SpmmParams, rows: Rows, id: u32) -> Rows;
    /// Passes `count` edges, so that `edge` is the next, if `more` are to come.
    ///
    /// # Safety
    /// The launch contract; `edge` is at most the number of edges, and less where there are more.
    unsafe fn pass(&mut self, params: &SpmmParams, count: u32, edge: u32, more: bool);
    /// Whether the last row of the share, `row`, goes on after it.
    fn goes_on(&self, row: u32) -> bool;
}

/// How rows that cross CTAs are found.
pub trait Crossings {
    /// The row that began before `cta` and ends in it.
    ///
    /// # Safety
    /// The launch contract.
    unsafe fn into(params: &SpmmParams, cta: u32) -> Crossing;
    /// A number of the row that began before `cta` and has edges in it, which no other row has, or [`NO_ROW`].
    ///
    /// # Safety
    /// The launch contract.
    unsafe fn at(params: &SpmmParams, cta: u32) -> u32;
}

/// A row that crosses CTAs of the edge-parallel kernel, as the CTA sees it in which it ends.
pub struct Crossing {
    /// The row.
    pub row: u32,
    /// The CTA in which it began.
    pub begin: u32,
    /// The CTA in which it ends, or `begin` where there is no such row.
    pub end: u32,
}

impl Crossing {
    const NONE: Self = Self {
        row: 0,
        begin: 0,
        end: 0,
    };

    /// CTAs that left it to the next one.
    #[inline(always)]
    pub fn parts(&self) -> u32 {
        self.end - self.begin
    }

    /// Whether it crosses the bounds of two chunks, so that its parts were [added](super::chunks) chunk by chunk.
    #[inline(always)]
    pub fn is_long(&self, params: &SpmmParams) -> bool {
        (self.end >> params.chunk_log2) - (self.begin >> params.chunk_log2) > 1
    }
}

/// Two neighbouring words of starts, and how many rows start before them.
#[derive(Clone, Copy)]
pub struct Words {
    first: [u32; 2],
    second: u32,
}

/// The starts of rows among the edges to come, of sub-warps of lanes `L`.
pub struct StartsOf<L> {
    /// The lowest bit is that of the next edge.
    bits: u32,
    /// The word after the one that `bits` are of.
    next: u32,
    of: PhantomData<L>,
}

/// Of as many lanes as are a power of two.
pub type Starts = StartsOf<Powers>;

/// Of as many lanes as a row has loads.
pub type PackedStarts = StartsOf<Packed>;

impl<L> Clone for StartsOf<L> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<L> Copy for StartsOf<L> {}

impl<L> StartsOf<L> {
    /// Asks for the words from `edge` on.
    ///
    /// # Safety
    /// The launch contract; `edge` is at most the number of edges.
    #[inline(always)]
    unsafe fn words(params: &SpmmParams, edge: u32) -> Words {
        let words = Global::<u32>::new(params.starts).at(2 * (edge / 32) as u64);
        // SAFETY: there is a word for each 32 edges, and two more.
        unsafe {
            Words {
                first: Global::<[u32; 2]>::cast(words).fetch(),
                second: words.at(2).fetch(),
            }
        }
    }

    /// From `edge` on, an edge of the first of the words, and which of the rows with edges it is in.
    #[inline(always)]
    fn at(words: Words, edge: u32) -> (Self, u32) {
        let [bits, rank] = words.first;
        let upto = bits & (2u32 << (edge % 32)).wrapping_sub(1);
        let starts = Self {
            bits: bits >> (edge % 32),
            next: words.second,
            of: PhantomData,
        };
        (starts, rank + upto.count_ones() - 1)
    }

    /// Whether the next edge is the first of its row; from now on it is taken as if it were not.
    #[inline(always)]
    fn take(&mut self) -> bool {
        let first = self.bits & 1 != 0;
        self.bits &= !1;
        first
    }
}

impl<L: Lanes> Order for StartsOf<L> {
    const CACHES_ROWS: bool = false;
    type Lanes = L;
    type Asked = Words;
    #[inline(always)]
    unsafe fn ask(params: &SpmmParams, (first, _): (u32, u32)) -> Words {
        // SAFETY: the caller's promise.
        unsafe { Self::words(params, first) }
    }
    #[inline(always)]
    unsafe fn begin(params: &SpmmParams, asked: Words, first: u32, _: u32) -> (Self, Rows, bool) {
        let (mut starts, index) = Self::at(asked, first);
        // SAFETY: the caller's promise: there is an edge, and so its row.
        let rows = unsafe { Rows::at(params, index) };
        let begins = starts.take();
        (starts, rows, begins)
    }
    #[inline(always)]
    fn four(&self, _: u32, _: [u32; 4]) -> u32 {
        self.bits & 15
    }
    #[inline(always)]
    fn one(&self, _: u32, _: u32) -> u32 {
        self.bits & 1
    }
    #[inline(always)]
    fn eight(&self) -> u32 {
        self.bits & 0xff
    }
    #[inline(always)]
    unsafe fn next(params: &SpmmParams, rows: Rows, _: u32) -> Rows {
        // SAFETY: the caller's promise.
        unsafe { rows.next(params) }
    }
    /// Where that begins a word, and `more` are to come, the word after it is asked for: it is wanted 32 edges later.
    #[inline(always)]
    unsafe fn pass(&mut self, params: &SpmmParams, count: u32, edge: u32, more: bool) {
        self.bits >>= count;
        if edge % 32 == 0 {
            self.bits = self.next;
            if more {
                // SAFETY: the caller's promise: two words follow the one of the last edge.
                self.next = unsafe { word_after(params, edge) };
            }
        }
    }
    /// Past the last edge there is one more start.
    #[inline(always)]
    fn goes_on(&self, _: u32) -> bool {
        self.bits & 1 == 0
    }
}

impl Crossings for Starts {
    #[inline(always)]
    unsafe fn into(params: &SpmmParams, cta: u32) -> Crossing {
        if cta >= params.ctas {
            return Crossing::NONE;
        }
        let starts = Global::<[u32; 2]>::new(params.starts);
        // The first word of a CTA; a CTA has more than one.
        let word = |cta: u32| {
            let word = (cta as u64) << (params.cta_edges_log2 - 5);
            // SAFETY: `cta` is at most the last CTA, whose first edge is an edge.
            unsafe { starts.at(word).read() }
        };
        let [bits, rank] = word(cta);
        if bits & 1 != 0 {
            return Crossing::NONE;
        }
        if cta + 1 < params.ctas {
            let [bits, later] = word(cta + 1);
            // No row starts in the CTA, nor right after it.
            if bits & 1 == 0 && later == rank {
                return Crossing::NONE;
            }
        }
        // SAFETY: the row crosses from one CTA to the next, so there is one.
        unsafe {
            let row = Global::<u32>::new(params.filled_rows)
                .at(rank as u64 - 1)
                .read();
            let first = Global::<u64>::new(params.offsets).at(row as u64).read();
            Crossing {
                row,
                begin: (first >> params.cta_edges_log2) as u32,
                end: cta,
            }
        }
    }
    #[inline(always)]
    unsafe fn at(params: &SpmmParams, cta: u32) -> u32 {
        if cta >= params.ctas {
            return NO_ROW;
        }
        let word = (cta as u64) << (params.cta_edges_log2 - 5);
        // SAFETY: there is such a CTA, whose first edge is an edge.
        let [bits, rank] = unsafe { Global::<[u32; 2]>::new(params.starts).at(word).read() };
        if bits & 1 == 0 { rank } else { NO_ROW }
    }
}

/// The row of no edge: there are fewer than 2³² rows.
pub const NO_ROW: u32 = u32::MAX;

/// The row of an edge, or that of none.
///
/// # Safety
/// The launch contract; it is an edge if it `is_there`.
#[inline(always)]
unsafe fn id_if(params: &SpmmParams, is_there: bool, edge: u32) -> u32 {
    if is_there {
        // SAFETY: the caller's promise.
        unsafe { Global::<u32>::new(params.rows).at(edge as u64).fetch() }
    } else {
        NO_ROW
    }
}

/// The rows of edges, from their list: [`RowIds`], or [`InTurn`].
#[derive(Clone, Copy)]
pub struct ById<const IN_TURN: bool> {
    /// That of the edge behind the share; of edges in turn none is known.
    after: u32,
}

/// Sub-warps have consecutive edges.
pub type RowIds = ById<false>;

/// A warp's sub-warps take its edges in turn (GNNOne §4.2.2's round-robin): for comparison.
pub type InTurn = ById<true>;

impl<const IN_TURN: bool> Order for ById<IN_TURN> {
    const CACHES_ROWS: bool = true;
    const IN_TURN: bool = IN_TURN;
    type Lanes = Powers;
    /// The rows of the edge before the share and of that behind it.
    type Asked = [u32; 2];
    #[inline(always)]
    unsafe fn ask(params: &SpmmParams, (first, end): (u32, u32)) -> [u32; 2] {
        if IN_TURN {
            return [NO_ROW; 2];
        }
        // SAFETY: the caller's promise.
        unsafe {
            [
                id_if(params, first > 0, first.wrapping_sub(1)),
                id_if(params, end < params.edges, end),
            ]
        }
    }
    #[inline(always)]
    unsafe fn begin(
        params: &SpmmParams,
        [before, after]: [u32; 2],
        _: u32,
        id: u32,
    ) -> (Self, Rows, bool) {
        // In turn of no row it is known to begin here. SAFETY: the caller's promise.
        (
            Self { after },
            unsafe { Rows::of(params, id) },
            !IN_TURN && before != id,
        )
    }
    #[inline(always)]
    fn four(&self, row: u32, ids: [u32; 4]) -> u32 {
        starting(row, ids)
    }
    #[inline(always)]
    fn one(&self, row: u32, id: u32) -> u32 {
        (id != row) as u32
    }
    #[inline(always)]
    fn eight(&self) -> u32 {
        0
    }
    #[inline(always)]
    unsafe fn next(params: &SpmmParams, _: Rows, id: u32) -> Rows {
        // SAFETY: the caller's promise.
        unsafe { Rows::of(params, id) }
    }
    #[inline(always)]
    unsafe fn pass(&mut self, _: &SpmmParams, _: u32, _: u32, _: bool) {}
    #[inline(always)]
    fn goes_on(&self, row: u32) -> bool {
        IN_TURN || self.after == row
    }
}

/// A bit for each of four edges, set where its row is not that of the edge before.
#[inline(always)]
fn starting(row: u32, [a, b, c, d]: [u32; 4]) -> u32 {
    (a != row) as u32 | ((b != a) as u32) << 1 | ((c != b) as u32) << 2 | ((d != c) as u32) << 3
}

impl Crossings for RowIds {
    #[inline(always)]
    unsafe fn into(params: &SpmmParams, cta: u32) -> Crossing {
        if cta == 0 || cta >= params.ctas {
            return Crossing::NONE;
        }
        let ids = Global::<u32>::new(params.rows);
        let first = |cta: u32| (cta as u64) << params.cta_edges_log2;
        // SAFETY: the first edge of a CTA is an edge, and that of no CTA but the first has one before it.
        unsafe {
            let row = ids.at(first(cta)).read();
            if ids.at(first(cta) - 1).read() != row
                || (cta + 1 < params.ctas && ids.at(first(cta + 1)).read() == row)
            {
                return Crossing::NONE;
            }
            // The first CTA that begins in the row: in steps that double, since most rows are short, and then by halves.
            let (mut low, mut high, mut step) = (0, cta, 1);
            while high > low {
                let middle = if step > 0 {
                    high.saturating_sub(step)
                } else {
                    low + (high - low) / 2
                };
                if ids.at(first(middle)).read() == row {
                    high = middle;
                    step *= 2;
                } else {
                    low = middle + 1;
                    step = 0;
                }
            }
            let begins_before = high > 0 && ids.at(first(high) - 1).read() == row;
            Crossing {
                row,
                begin: high - begins_before as u32,
                end: cta,
            }
        }
    }
    #[inline(always)]
    unsafe fn at(params: &SpmmParams, cta: u32) -> u32 {
        if cta == 0 || cta >= params.ctas {
            return NO_ROW;
        }
        let first = Global::<u32>::new(params.rows).at((cta as u64) << params.cta_edges_log2);
        // SAFETY: the first edge of a CTA is an edge, and that of no CTA but the first has one before it.
        unsafe {
            let row = first.read();
            let before = Global::<u32>::at_address(first.address() - size_of::<u32>() as u64);
            if before.read() == row { row } else { NO_ROW }
        }
    }
}

/// The edges of sub-warp `sub_warp` of a warp that has `base .. end`: the first, and the end of them.
#[inline(always)]
pub fn share<O: Order>(
    params: &SpmmParams,
    (base, end): (u32, u32),
    warp_edges: u32,
    sub_warp: u32,
) -> (u32, u32) {
    if O::IN_TURN {
        return (base.saturating_add(sub_warp).min(end), end);
    }
    let (first, edges) = O::Lanes::share(params, warp_edges, sub_warp);
    let first = base.saturating_add(first).min(end);
    (first, first.saturating_add(edges).min(end))
}

/// The starts of the word after that of `edge`.
///
/// # Safety
/// The launch contract; `edge` is an edge of the graph.
#[inline(always)]
unsafe fn word_after(params: &SpmmParams, edge: u32) -> u32 {
    let words = Global::<u32>::new(params.starts);
    // SAFETY: two words follow the one of the last edge.
    unsafe { words.at(2 * (edge / 32 + 1) as u64).read() }
}

/// A row and its factor, which are asked for when its edges are come to and wanted when they are left.
#[derive(Clone, Copy)]
pub struct Rows {
    /// The row.
    pub row: u32,
    /// Which of the rows with edges it is, or the row itself: a number that no other row has.
    pub index: u32,
    /// Its factor, without that of the whole product: to multiply them here would be to wait for it here.
    factor: f32,
}

impl Rows {
    /// The `index`-th of the rows with edges.
    ///
    /// # Safety
    /// The launch contract; there is such a row.
    #[inline(always)]
    unsafe fn at(params: &SpmmParams, index: u32) -> Self {
        let list = Global::<u32>::new(params.filled_rows);
        // SAFETY: the caller's promise.
        unsafe {
            let row = list.at(index as u64).read();
            Self {
                row,
                index,
                factor: factor_of(params, row),
            }
        }
    }

    /// Row `row`, from its edges' ids.
    ///
    /// # Safety
    /// The launch contract; there is such a row.
    #[inline(always)]
    unsafe fn of(params: &SpmmParams, row: u32) -> Self {
        Self {
            row,
            index: row,
            // SAFETY: the caller's promise.
            factor: unsafe { factor_of(params, row) },
        }
    }

    /// The row's factor.
    #[inline(always)]
    pub fn scale(&self, params: &SpmmParams) -> f32 {
        params.scale * self.factor
    }

    /// The next row.
    ///
    /// # Safety
    /// The launch contract; there is a next row.
    #[inline(always)]
    unsafe fn next(self, params: &SpmmParams) -> Self {
        // SAFETY: the caller's promise.
        unsafe { Self::at(params, self.index + 1) }
    }
}

/// The factor of a row.
///
/// # Safety
/// The launch contract; `row` is a row.
#[inline(always)]
pub unsafe fn scale_of(params: &SpmmParams, row: u32) -> f32 {
    // SAFETY: the caller's promise.
    params.scale * unsafe { factor_of(params, row) }
}

/// The factor of a row, without that of the whole product.
///
/// # Safety
/// The launch contract; `row` is a row.
#[inline(always)]
unsafe fn factor_of(params: &SpmmParams, row: u32) -> f32 {
    let scales = Global::<f32>::new(params.row_scale);
    if scales.is_null() {
        1.0
    } else {
        // SAFETY: the caller's promise.
        unsafe { scales.at(row as u64).read() }
    }
}
