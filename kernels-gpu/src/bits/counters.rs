//! Signs of sums over neighbours in vertical counters: a lane has a word of the columns of some edges that lie side by side.
//!
//! Of rows of `P` words `P` lanes are a slot, and each of the `32 / P` slots of a warp has `8 P` of its edges, a piece. A lane counts the columns of its word: where no row
//! begins in the next eight edges of any piece eight rows are added at once, of more than one word four where none begins but with the first, elsewhere one after the other. A row that
//! begins and ends in a piece is written by its slot. Of the others there is what a slot counted before the first start of its piece, and after the last: the latter is added up over
//! slots (Sengupta et al., "Scan Primitives for GPU Computing", the segmented scan), and a row that ends in the warp is written by the slot in which it ends.

use super::edges::four_columns;
use super::output::Signs;
use super::parts::{HAS_START, IS_OPEN, Part, Partial, Parts};
use super::planes::{Planes, Word};
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::thread::sync_threads;
use crate::device::warp::{ballot, lane_id, shuffle_idx, shuffle_up, shuffle_xor, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, EDGES_PER_CTA, EDGES_PER_WARP, NO_ROW, WARPS_PER_CTA, WORD_BITS, counters_bytes,
    planes,
};

/// Edges of a piece, for each word of a row.
const EDGES_PER_LANE: u32 = EDGES_PER_WARP / WARP;
const _: () = assert!(EDGES_PER_LANE == 8);
/// Planes that count a warp's edges.
const OF_WARP: usize = planes(EDGES_PER_WARP) as usize;
/// Planes that count a CTA's.
const OF_CTA: usize = planes(EDGES_PER_CTA) as usize;

/// Planes that count the edges of a piece of `P` words.
#[inline(always)]
const fn of_piece(words: usize) -> usize {
    planes(EDGES_PER_LANE * words as u32) as usize
}

/// `P` words of rows, of which `K` planes count a piece's edges.
///
/// # Safety
/// The launch contract of [`BspmmParams`]: `ctas` CTAs of `THREADS_PER_CTA` threads.
#[inline(always)]
pub unsafe fn run<const P: usize, const K: usize>(params: &BspmmParams) {
    const { assert!(K == of_piece(P)) };
    let parts = Parts::<Counts<P>>::new(params);
    let first = parts.first_edge();
    // SAFETY: the caller's promise; all lanes of a warp come along, and at the barrier all warps of the CTA.
    unsafe {
        if first < params.edges {
            walk::<P, K>(params, first, &parts);
        } else {
            parts.mark(0, NO_ROW);
        }
        sync_threads();
        // By two warps: what either waits for the other does not.
        if warp_id() == 0 {
            join(params, &parts);
        } else if warp_id() == WARPS_PER_CTA - 1 {
            stage_tail(&parts);
        }
    }
}

/// Writes the rows that cross the warps of the CTA, and stages the one that began before it: slot `i` of the warp has the row that ends in warp `i` and began before that.
///
/// # Safety
/// The launch contract; all lanes of one warp come together, and the barrier is behind.
#[inline(always)]
unsafe fn join<const P: usize>(params: &BspmmParams, parts: &Parts<'_, Counts<P>>) {
    const { assert!(WARPS_PER_CTA * P as u32 <= WARP) };
    let warp = lane_id() / P as u32;
    // SAFETY: the caller's promise: there is a part of a row that ends in a warp.
    unsafe {
        let is_warp = warp < WARPS_PER_CTA;
        let [_, row] = parts.mark_of(if is_warp { warp } else { 0 });
        let ends = is_warp && row != NO_ROW;
        let mut sum = Counts::NOTHING;
        let mut has_begun = false;
        if ends {
            sum.add(Parts::<Counts<P>>::part(warp, Part::Head));
            has_begun = parts.add_before(&mut sum, warp);
        }
        Signs::write_counts::<OF_CTA, P>(params, row, &sum.of, sum.edges, ends && has_begun);
        let staged = ballot(ends && !has_begun);
        let mut head = NO_ROW;
        if staged != 0 {
            let from = staged.trailing_zeros();
            head = shuffle_idx(row, from);
            sum.stage(from, parts.staged_part(Part::Head));
        }
        if lane_id() == 0 {
            parts.staged(0).store(head);
        }
    }
}

/// Stages the row that goes on after the CTA, where one does.
///
/// # Safety
/// As [`join`].
#[inline(always)]
unsafe fn stage_tail<const P: usize>(parts: &Parts<'_, Counts<P>>) {
    let last = WARPS_PER_CTA - 1;
    // SAFETY: the caller's promise: there is a part of a row that goes on.
    unsafe {
        let [mark, _] = parts.mark_of(last);
        if mark & IS_OPEN != 0 {
            let mut sum = Counts::NOTHING;
            sum.add(Parts::<Counts<P>>::part(last, Part::Tail));
            if mark & HAS_START == 0 {
                parts.add_before(&mut sum, last);
            }
            sum.stage(0, parts.staged_part(Part::Tail));
        }
    }
}

/// What some edges of a row come to: how many there are, and how many have a bit in each column of the lane's word.
struct Counts<const P: usize> {
    of: Planes<OF_CTA>,
    edges: u32,
}

impl<const P: usize> Counts<P> {
    /// Of a warp's edges.
    #[inline(always)]
    fn new(counts: &Planes<OF_WARP>, edges: u32) -> Self {
        Self {
            of: counts.widened(),
            edges,
        }
    }

    /// Where a part has a plane of the lane's word.
    #[inline(always)]
    fn of_lane(at: Shared, plane: usize) -> Shared {
        at.offset((plane as u32 * P as u32 + lane_id() % P as u32) * (WORD_BITS / 8))
    }

    /// Where it says how many edges it has.
    #[inline(always)]
    fn edges(at: Shared) -> Shared {
        at.offset((OF_WARP * P) as u32 * (WORD_BITS / 8))
    }
}

impl<const P: usize> Partial for Counts<P> {
    const BYTES: u32 = counters_bytes(P as u32);
    const WORDS: u32 = P as u32;
    const FACTORED: bool = false;
    const WARPS: u32 = WARPS_PER_CTA;
    const NOTHING: Self = Self {
        of: Planes::EMPTY,
        edges: 0,
    };

    #[inline(always)]
    unsafe fn store(&self, at: Shared) {
        // SAFETY: the caller's promise: one slot has the part, whose lanes have its words.
        unsafe {
            unroll!(plane in 0..OF_WARP => {
                Self::of_lane(at, plane).store_u32x2(self.of.plane(plane));
            });
            if lane_id() % P as u32 == 0 {
                Self::edges(at).store_u32(self.edges);
            }
        }
    }

    #[inline(always)]
    unsafe fn add(&mut self, at: Shared) {
        let mut more = [[0; 2]; OF_CTA];
        // SAFETY: the caller's promise.
        unsafe {
            unroll!(plane in 0..OF_WARP => {
                more[plane] = Self::of_lane(at, plane).load_u32x2();
            });
            self.edges += Self::edges(at).load_u32();
        }
        self.of.add_planes(&Planes::new(more), OF_CTA);
    }
}

impl<const P: usize> Counts<P> {
    /// Stages the sums of what the `P` lanes from `from` on have.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, and the words are theirs.
    #[inline(always)]
    unsafe fn stage(&self, from: u32, to: Global<u32>) {
        // SAFETY: the caller's promise; the columns are this lane's.
        unsafe {
            let edges = shuffle_idx(self.edges, from);
            let counts = self.of.of_row::<P>(from);
            unroll!(pair in 0..P => {
                let sum = |count: u32| (2 * count).wrapping_sub(edges);
                let (a, b) = (sum(counts[pair] & 0xffff), sum(counts[pair] >> 16));
                to.at((lane_id() * P as u32 + pair as u32) as u64).store((a & 0xffff) | b << 16);
            });
        }
    }
}

/// Adds up a warp's edges from `first` on: rows that begin and end in them are written, of the others there are parts.
///
/// # Safety
/// The launch contract; there is such an edge, and all lanes of the warp come together.
#[inline(always)]
unsafe fn walk<const P: usize, const K: usize>(
    params: &BspmmParams,
    first: u32,
    parts: &Parts<'_, Counts<P>>,
) {
    let lanes = P as u32;
    let lane = lane_id();
    let (slot, word) = (lane / lanes, lane % lanes);
    let is_first_slot = slot == 0;
    let piece = slot * lanes * EDGES_PER_LANE;
    let left = params.edges - first;
    let is_full = left >= EDGES_PER_WARP;
    let rows = Global::<u32>::new(params.filled_rows);
    // SAFETY: the caller's promise: what is read belongs to edges, each of whose columns is a row of `x`; there is a word of starts for each 32
    // edges and the end, and a row for each start but the end's. Loops are the same for all lanes.
    unsafe {
        let starts = Global::<[u32; 2]>::new(params.starts).at((first / WARP) as u64);
        let of_piece = starts.at((piece / WARP) as u64);
        let [bits, rank] = of_piece.load_if(piece / WARP * WARP <= left);
        // Whether the last row ends with the warp's edges.
        let behind = starts.at((EDGES_PER_WARP / WARP) as u64);
        let [is_end, rank_behind] = behind.load_if(is_full);
        let is_end = is_end & 1 != 0;
        let ids = column_ids::<P>(params, first, left);

        let begins = bits >> (piece % WARP) & (u32::MAX >> (WARP - lanes * EDGES_PER_LANE));
        let rank = rank + (bits & !(u32::MAX << (piece % WARP))).count_ones();
        let has_start = begins != 0;
        let with_starts = ballot(has_start);
        let has_any = with_starts != 0;
        // The first slot, in which no row ends that began in the warp, has the one that ends with the last.
        let (ends, rank_of_end) = if is_first_slot {
            (is_end, rank_behind)
        } else {
            (has_start, rank)
        };
        let before = |rank: u32, is_there: bool| {
            let row = rows.at(rank.wrapping_sub(1) as u64);
            row.load_if(is_there && rank > 0)
        };
        let row_of_end = before(rank_of_end, ends);
        let row_of_head = before(rank, lane == 0 && (has_any || is_end));

        let head = Heads::of_lane::<P>();
        let tail = count::<P, K>(params, &ids, begins, rank, head);

        // What began in a slot, or came from those before, and goes on after it.
        let upto = with_starts & (u32::MAX >> (WARP - 1 - lane));
        let slots = slot - last_of(upto) / lanes;
        let mut open = tail.widened::<OF_WARP>();
        unroll!(step in 0..5 => {
            let apart = 1 << step;
            if apart * lanes < WARP {
                let is_same = slots >= apart;
                if ballot(is_same) != 0 {
                    let kept = (is_same as u32).wrapping_neg();
                    let more = open.map(K + step, |bits| shuffle_up(bits, apart * lanes) & kept);
                    open.add_planes(&more, K + step);
                }
            }
        });
        let last_start = piece + last_of(begins);
        let edges_of_tail = if has_any {
            EDGES_PER_WARP - shuffle_idx(last_start, last_of(with_starts))
        } else {
            EDGES_PER_WARP
        };
        let is_open = is_full && !is_end;
        if is_open && slot == WARP / lanes - 1 {
            parts.store(Part::Tail, &Counts::new(&open, edges_of_tail));
        }
        let mut edges_of_head = 0;
        if has_any || is_end {
            // What was counted of the row that ends in the slot, before it; the first slot has what the last has of it, and what comes before the warp's first start.
            let head = if has_start {
                head.load()
            } else {
                Planes::<K>::EMPTY
            };
            let first_start = piece + begins.trailing_zeros();
            let slot_of_head = if has_any {
                with_starts.trailing_zeros() / lanes
            } else {
                0
            };
            edges_of_head = if has_any {
                shuffle_idx(first_start, slot_of_head * lanes)
            } else {
                EDGES_PER_WARP
            };
            let is_of_head = edges_of_head > 0 && slot == slot_of_head;
            if is_of_head && has_start && is_first_slot {
                parts.store(Part::Head, &Counts::new(&head.widened(), edges_of_head));
            }
            let kept = (!is_first_slot as u32).wrapping_neg();
            let from = lane.wrapping_sub(lanes) % WARP;
            let mut all = open.map(OF_WARP, |bits| shuffle_idx(bits, from));
            all.add_planes(&head.map(K, |bits| bits & kept).widened(), OF_WARP);
            let end = if is_first_slot {
                EDGES_PER_WARP
            } else {
                first_start
            };
            let earlier = with_starts
                & if is_first_slot {
                    u32::MAX
                } else {
                    !(u32::MAX << (lane - word))
                };
            let edges = end.wrapping_sub(shuffle_idx(last_start, last_of(earlier)));
            let is_written = ends && earlier != 0;
            Signs::write_counts::<OF_WARP, P>(params, row_of_end, &all, edges, is_written);
            if is_of_head && !(has_start && is_first_slot) {
                parts.store(Part::Head, &Counts::new(&all, edges_of_head));
            }
        }
        parts.mark(
            has_any as u32 * HAS_START | is_open as u32 * IS_OPEN,
            if edges_of_head > 0 {
                row_of_head
            } else {
                NO_ROW
            },
        );
    }
}

/// The number of the last bit that is set; zero of none.
#[inline(always)]
fn last_of(bits: u32) -> u32 {
    (bits | 1).ilog2()
}

/// What the lanes of a warp counted before the first starts of their pieces, in shared memory: behind the parts, a word of each lane for each plane.
#[derive(Clone, Copy)]
struct Heads(Shared);

impl Heads {
    /// The lane's, of rows of `P` words.
    #[inline(always)]
    fn of_lane<const P: usize>() -> Self {
        let of_warp = (of_piece(P) as u32 * WARP) * (WORD_BITS / 8);
        let first = WARPS_PER_CTA * (8 + 2 * counters_bytes(P as u32));
        Self(Shared::base().offset(first + warp_id() * of_warp + lane_id() * (WORD_BITS / 8)))
    }

    #[inline(always)]
    fn plane(self, plane: usize) -> Shared {
        self.0.offset(plane as u32 * WARP * (WORD_BITS / 8))
    }

    /// # Safety
    /// The launch's shared memory has it.
    #[inline(always)]
    unsafe fn store<const K: usize>(self, counts: &Planes<K>) {
        unroll!(plane in 0..K => {
            // SAFETY: the caller's promise; it is the lane's own.
            unsafe { self.plane(plane).store_u32x2(counts.plane(plane)) };
        });
    }

    /// # Safety
    /// The lane stored it.
    #[inline(always)]
    unsafe fn load<const K: usize>(self) -> Planes<K> {
        let mut planes = [[0; 2]; K];
        unroll!(plane in 0..K => {
            // SAFETY: the caller's promise.
            planes[plane] = unsafe { self.plane(plane).load_u32x2() };
        });
        Planes::new(planes)
    }
}

/// A piece of which some edges are counted.
struct Piece<'a, const P: usize, const K: usize> {
    params: &'a BspmmParams,
    /// Where rows begin.
    begins: u32,
    /// How many began before.
    rank: u32,
    /// What is counted of the row that goes on.
    counts: Planes<K>,
    /// Where what was counted before the first start is kept.
    head: Heads,
    /// The row that goes on, where it began in the piece and ends in it.
    row: u32,
    /// Its first edge.
    begin: u32,
    /// How many rows began in the piece.
    begun: u32,
}

impl<const P: usize, const K: usize> Piece<'_, P, K> {
    /// Where a row begins at edge `at`, in some lane if `is_any`, what went on ends. What is kept of the counts: all bits, or none.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn begin_row_if(&mut self, is_any: bool, at: u32) -> u32 {
        if !is_any {
            return u32::MAX;
        }
        let rows = Global::<u32>::new(self.params.filled_rows);
        let left = self.begins >> at;
        let begins = left & 1 != 0;
        // SAFETY: the caller's promise; there is a row for each start but that of the end, behind which none is.
        unsafe {
            let edges = at - self.begin;
            let is_inner = begins && self.begun > 0;
            Signs::write_counts::<K, P>(self.params, self.row, &self.counts, edges, is_inner);
            if begins && self.begun == 0 {
                self.head.store(&self.counts);
            }
            let next = rows.at((self.rank + self.begun) as u64);
            self.row = next.load_or(begins && left > 1, self.row);
        }
        if begins {
            self.begin = at;
            self.begun += 1;
            0
        } else {
            u32::MAX
        }
    }
}

/// Counts the edges of a piece, in which rows begin at `begins` and `rank` began before. Those before the first start are left in `head`, where there is one, and the others from
/// the last on are told. Rows in between are written.
///
/// # Safety
/// The launch contract; all lanes of the warp come together.
#[inline(always)]
unsafe fn count<const P: usize, const K: usize>(
    params: &BspmmParams,
    ids: &[[u32; 4]; 2],
    begins: u32,
    rank: u32,
    head: Heads,
) -> Planes<K> {
    let lanes = P as u32;
    let word = lane_id() % lanes;
    let x = Global::<u64>::new(params.x).at((params.first_word + word) as u64);
    let mut piece = Piece::<P, K> {
        params,
        begins,
        rank,
        counts: Planes::EMPTY,
        head,
        row: 0,
        begin: 0,
        begun: 0,
    };
    // SAFETY: the caller's promise; the loops and what they branch on are the same for all lanes.
    unsafe {
        let fetch = |block: u32, edge: usize| {
            let quad = 2 * block + edge as u32 / 4;
            let id = if P == 1 {
                ids[edge / 4][edge % 4]
            } else {
                let held = if quad < lanes { ids[0] } else { ids[1] };
                shuffle_idx(held[edge % 4], lane_id() - word + quad % lanes)
            };
            let row = x.row(id, params.x_stride * (WORD_BITS / 8));
            Global::<[u32; 2]>::cast(row).fetch()
        };
        let mut edges: [Word; 8] = [[0; 2]; 8];
        unroll!(edge in 0..8 => {
            edges[edge] = fetch(0, edge);
        });
        // Where rows begin in any of the warp's pieces; the first rows are on their way.
        let mut any = begins;
        let mut apart = lanes;
        while apart < WARP {
            any |= shuffle_xor(any, apart);
            apart *= 2;
        }
        let mut block = 0;
        loop {
            let first = block * 8;
            let now = any >> first & 0xff;
            if now == 0 {
                piece.counts.add_eight(&edges);
            } else {
                unroll!(half in 0..2 => {
                    let at = 4 * half;
                    let now = now >> at & 0xf;
                    if P > 1 && now >> 1 == 0 {
                        let kept = piece.begin_row_if(now != 0, first + at as u32);
                        let four = [edges[at], edges[at + 1], edges[at + 2], edges[at + 3]];
                        piece.counts.add_four(&four, kept);
                    } else {
                        unroll!(edge in 0..4 => {
                            let kept = piece.begin_row_if(now >> edge & 1 != 0, first + (at + edge) as u32);
                            piece.counts.add_one(edges[at + edge], kept);
                        });
                    }
                });
            }
            block += 1;
            if block >= lanes {
                break;
            }
            unroll!(edge in 0..8 => {
                edges[edge] = fetch(block, edge);
            });
        }
    }
    piece.counts
}

/// The columns of eight edges of the lane's piece: of each `8 P` edges of a slot lane `w` has four from `4 w` on, then four from `4 P + 4 w` on. Zero where there is no
/// edge.
///
/// # Safety
/// The launch contract.
#[inline(always)]
unsafe fn column_ids<const P: usize>(params: &BspmmParams, first: u32, left: u32) -> [[u32; 4]; 2] {
    let lanes = P as u32;
    let (slot, word) = (lane_id() / lanes, lane_id() % lanes);
    let mut ids = [[0; 4]; 2];
    unroll!(half in 0..2 => {
        let at = slot * lanes * EDGES_PER_LANE + (half as u32 * lanes + word) * 4;
        // SAFETY: the caller's promise: a warp's first edge is a multiple of four.
        ids[half] = unsafe { four_columns(params, first, at, left, left >= EDGES_PER_WARP) };
    });
    ids
}
