//! The first kernel: each warp scans its 128 edges, writes the rows that lie inside and stages the two that may not.

use super::policy::{Edge, Monoid, Source};
use crate::device::global::Global;
use crate::device::thread::{block_idx_x, block_idx_y};
use crate::device::warp::{ballot, lane_id, shuffle_down, shuffle_up, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::segment::{
    EDGES_PER_LANE, EDGES_PER_WARP, NO_ROW, SegmentParams, WARPS_PER_CTA, end_word, staging_index,
    tail_word,
};

const _: () = assert!(EDGES_PER_LANE == 4, "a lane's indices are one 16-byte load");

/// # Safety
/// The launch contract of [`SegmentParams`]: `ctas` × heads CTAs of `THREADS_PER_CTA` threads.
#[inline(always)]
pub unsafe fn run<S: Source<M>, M: Monoid>(params: &SegmentParams) {
    let warp = Warp {
        params,
        head: block_idx_y(),
        index: block_idx_x() * WARPS_PER_CTA + warp_id(),
    };
    if warp.index < params.warps {
        // SAFETY: the caller's promise; all lanes of the warp come along.
        unsafe { warp.reduce::<S, M>() }
    }
}

struct Warp<'a> {
    params: &'a SegmentParams,
    head: u32,
    /// Its number among all warps of the launch.
    index: u32,
}

impl Warp<'_> {
    /// # Safety
    /// The launch contract; all lanes of the warp come together.
    #[inline(always)]
    unsafe fn reduce<S: Source<M>, M: Monoid>(&self) {
        let lane = lane_id();
        // SAFETY: the caller's promise; each row is written by the lane at which it ends.
        unsafe {
            let (rows, values) = self.load::<S, M>(lane);
            let (before, after) = self.neighbours(lane, rows);

            // The lane's own edges: rows between its first and its last begin and end here.
            let continued = rows[0] == before;
            let (mut first, mut sum) = (M::empty(), values[0]);
            let mut first_ended = false;
            let mut k = 1;
            while k < EDGES_PER_LANE as usize {
                if rows[k] == rows[k - 1] {
                    sum = sum.join(values[k]);
                } else {
                    if !first_ended {
                        (first, first_ended) = (sum, true);
                    } else {
                        self.write(rows[k - 1], sum);
                    }
                    sum = values[k];
                }
                k += 1;
            }

            // The last rows of the lanes, as far as they began in this warp: an inclusive scan, from the lane where the
            // row began on.
            let begins = first_ended || !continued;
            let begun = ballot(begins);
            let up_to_here = begun & (u32::MAX >> (WARP - 1 - lane));
            let first_lane = (WARP - 1).saturating_sub(up_to_here.leading_zeros());
            let mut distance = 1;
            while distance < WARP {
                let other = sum.map(|_, word| shuffle_up(word, distance));
                if lane >= first_lane + distance {
                    sum = other.join(sum);
                }
                distance *= 2;
            }
            let carried = sum.map(|_, word| shuffle_up(word, 1));

            // A row that began before this warp has no lane here where it began.
            let mut ended = false;
            if first_ended {
                if continued && lane > 0 {
                    first = carried.join(first);
                }
                ended = continued && begun & !(u32::MAX << lane) == 0;
                self.end(ended, rows[0], first);
            }
            let last = rows[EDGES_PER_LANE as usize - 1];
            if last != after {
                let end = up_to_here == 0;
                self.end(end, last, sum);
                ended |= end;
            } else if lane == WARP - 1 && last != NO_ROW {
                sum.map(|word, value| {
                    self.staged::<M>(tail_word(M::WORDS, word))
                        .store(value.to_bits());
                    value
                });
            }
            if ballot(ended) == 0 && lane == 0 {
                self.staged::<M>(0).store(NO_ROW);
            }
        }
    }

    /// Rows and values of the lane's four edges; [`NO_ROW`] and [`Source::none`] past the last.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn load<S: Source<M>, M: Monoid>(&self, lane: u32) -> ([u32; 4], [M; 4]) {
        let params = self.params;
        let edges = params.edges as u64;
        let at = self.index as u64 * EDGES_PER_WARP as u64 + (lane * EDGES_PER_LANE) as u64;
        let (rows_at, columns_at) = (
            Global::<u32>::new(params.rows).at(at),
            Global::<u32>::new(params.columns).at(at),
        );
        // SAFETY: edges below `edges` are edges of the graph; arrays of edges are 16-byte aligned, `at` a multiple of 4.
        unsafe {
            if at + EDGES_PER_LANE as u64 <= edges {
                let rows: [u32; 4] = Global::cast(rows_at).read();
                let columns = if S::COLUMNS {
                    Global::<[u32; 4]>::cast(columns_at).read()
                } else {
                    [0; 4]
                };
                let edge = |k: usize| Edge {
                    at: at + k as u64,
                    row: rows[k],
                    column: columns[k],
                };
                let edges = [edge(0), edge(1), edge(2), edge(3)];
                (rows, S::four(params, self.head, edges))
            } else {
                let (mut rows, mut values) = ([NO_ROW; 4], [S::none(); 4]);
                let mut k = 0;
                while k < EDGES_PER_LANE as usize {
                    if at + (k as u64) < edges {
                        rows[k] = rows_at.at(k as u64).read();
                        let column = if S::COLUMNS {
                            columns_at.at(k as u64).read()
                        } else {
                            0
                        };
                        let edge = Edge {
                            at: at + k as u64,
                            row: rows[k],
                            column,
                        };
                        values[k] = S::one(params, self.head, edge);
                    }
                    k += 1;
                }
                (rows, values)
            }
        }
    }

    /// The rows of the edges before and after the lane's.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together.
    #[inline(always)]
    unsafe fn neighbours(&self, lane: u32, rows: [u32; 4]) -> (u32, u32) {
        let array = Global::<u32>::new(self.params.rows);
        let first = self.index as u64 * EDGES_PER_WARP as u64;
        let end = first + EDGES_PER_WARP as u64;
        // SAFETY: what is read are rows of edges.
        unsafe {
            let mut before = shuffle_up(rows[3], 1);
            let mut after = shuffle_down(rows[0], 1);
            if lane == 0 {
                before = if first > 0 {
                    array.at(first - 1).read()
                } else {
                    NO_ROW
                };
            }
            if lane == WARP - 1 {
                after = if end < self.params.edges as u64 {
                    array.at(end).read()
                } else {
                    NO_ROW
                };
            }
            (before, after)
        }
    }

    /// Ends a row that began in this warp, or before it (`staged`).
    ///
    /// # Safety
    /// As [`Warp::write`].
    #[inline(always)]
    unsafe fn end<M: Monoid>(&self, staged: bool, row: u32, value: M) {
        // SAFETY: the caller's promise; at most one row ends in the warp that began before it.
        unsafe {
            if staged {
                self.staged::<M>(0).store(row);
                value.map(|word, value| {
                    self.staged::<M>(end_word(word)).store(value.to_bits());
                    value
                });
            } else {
                self.write(row, value);
            }
        }
    }

    /// Staged word `word` of this warp, for values of type `M`.
    #[inline(always)]
    fn staged<M: Monoid>(&self, word: u32) -> Global<u32> {
        let params = self.params;
        Global::new(params.staging).at(staging_index(
            params.warps,
            M::WORDS,
            self.head,
            word,
            self.index,
        ))
    }

    /// Writes a row, unless there is none.
    ///
    /// # Safety
    /// The launch contract; no other lane writes the row.
    #[inline(always)]
    unsafe fn write<M: Monoid>(&self, row: u32, value: M) {
        if row != NO_ROW {
            let at = self.head as u64 * self.params.vertices as u64 + row as u64;
            // SAFETY: the caller's promise.
            unsafe { value.write(self.params, at) }
        }
    }
}
