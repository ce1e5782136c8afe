//! The edge-parallel kernel: two stages, then a merge inside the CTA.

use super::policy::{Accumulate, Scaling, Weights};
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, sync_threads, thread_idx_x};
use crate::device::vector::{Floats, Vector, without_padding};
use crate::device::warp::{lane_id, sync_warp, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::spmm::{
    EDGES_PER_CTA, EDGES_PER_WARP, STAGED_END, STAGED_TAIL, SpmmParams, THREADS_PER_CTA,
    WARPS_PER_CTA, merge_bytes, shared, staging_index,
};

/// Edges whose features a sub-warp has in flight at once.
const IN_FLIGHT: u32 = 4;
const _: () = assert!(
    IN_FLIGHT == 4,
    "one 16-byte load of shared memory gives the columns of a step"
);
const _: () = assert!(
    EDGES_PER_WARP == 4 * WARP,
    "stage 1 loads four edges a lane"
);

/// A sub-warp's last row goes on after its share of the edges.
const OPEN: u32 = 1;
/// That row also began before it: the share holds nothing else.
const THROUGH: u32 = 2;

/// # Safety
/// The launch contract of [`SpmmParams`]: `ctas` × feature tiles CTAs of [`THREADS_PER_CTA`] threads.
#[inline(always)]
pub unsafe fn run<V: Vector, W: Weights, S: Scaling, A: Accumulate<V>>(params: &SpmmParams) {
    let tile = Tile::<V>::new(params);
    // SAFETY: all threads of the CTA come through here; the barriers below order the accesses to shared memory.
    unsafe {
        tile.cache_edges::<W, S>(params);
        sync_warp();
        let ended = tile.walk::<W, S, A>(params);
        sync_threads();
        tile.merge::<S>(params, ended);
    }
}

/// What one lane works on: its sub-warp's share of the edges, and one load of their features.
struct Tile<V: Vector> {
    memory: Shared,
    /// First edge of the warp.
    base: u64,
    /// Edges of the warp.
    count: u32,
    /// Sub-warp in the CTA.
    sub_warp: u32,
    /// First edge of the sub-warp, and the end of its share, counted from `base`.
    share: (u32, u32),
    /// Which load of a row is the lane's.
    load: u64,
    /// Whether the row has such a load; idle lanes read another's and write nothing.
    active: bool,
    vector: core::marker::PhantomData<V>,
}

/// The row that a sub-warp is adding up.
#[derive(Clone, Copy)]
struct Segment<T> {
    row: u32,
    /// It began before the share.
    head: bool,
    /// An earlier row of the share did, and ended in it.
    ended_head: bool,
    sum: T,
}

/// How a sub-warp's share ended.
#[derive(Clone, Copy)]
struct Ends {
    /// Its first row began before the share and ended in it.
    head: bool,
    /// Its last row goes on after it.
    open: bool,
}

impl<V: Vector> Tile<V> {
    /// The weights of edges where nothing reads them.
    const ONES: [u32; 4] = [0; 4];

    #[inline(always)]
    fn new(params: &SpmmParams) -> Self {
        let lanes = 1 << params.lanes_log2;
        let base =
            block_idx_x() as u64 * EDGES_PER_CTA as u64 + (warp_id() * EDGES_PER_WARP) as u64;
        let count = (params.edges as u64)
            .saturating_sub(base)
            .min(EDGES_PER_WARP as u64) as u32;
        let edges = EDGES_PER_WARP / WARP * lanes;
        let first = ((lane_id() >> params.lanes_log2) * edges).min(count);
        let load = block_idx_y() * lanes + (thread_idx_x() & (lanes - 1));
        Self {
            memory: Shared::base(),
            base,
            count,
            sub_warp: thread_idx_x() >> params.lanes_log2,
            share: (first, (first + edges).min(count)),
            load: load.min(params.feature_loads - 1) as u64,
            active: load < params.feature_loads,
            vector: core::marker::PhantomData,
        }
    }

    /// Word `edge` (counted from the warp's first) of one of the arrays of [`shared`].
    #[inline(always)]
    fn cached(&self, array: u32, edge: u32) -> Shared {
        self.memory
            .offset(array + (warp_id() * EDGES_PER_WARP + edge) * 4)
    }

    /// The row of an edge of the warp.
    ///
    /// # Safety
    /// `edge < self.count`, after stage 1.
    #[inline(always)]
    unsafe fn row(&self, edge: u32) -> u32 {
        // SAFETY: stage 1 wrote it.
        unsafe { self.cached(shared::ROWS, edge).load_u32() }
    }

    /// The factor of an edge's row.
    ///
    /// # Safety
    /// `edge < self.count`, after stage 1.
    #[inline(always)]
    unsafe fn scale(&self, edge: u32) -> f32 {
        // SAFETY: stage 1 wrote it.
        unsafe { self.cached(shared::SCALES, edge).load_f32() }
    }

    /// Stage 1: the warp's edges go to shared memory, four a lane, each array read once and in whole lines.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn cache_edges<W: Weights, S: Scaling>(&self, params: &SpmmParams) {
        let edge = lane_id() * 4;
        let at = self.base + edge as u64;
        let rows = Global::<u32>::new(params.rows).at(at);
        let columns = Global::<u32>::new(params.columns).at(at);
        let row_scale = Global::<f32>::new(params.row_scale);
        // SAFETY: edges below `count` are edges of the graph, arrays of edges are 16-byte aligned, `edge` is a multiple
        // of 4, and no other lane writes these words.
        unsafe {
            let scale = |row: u32| {
                if row_scale.is_null() {
                    params.scale
                } else {
                    params.scale * row_scale.at(row as u64).read()
                }
            };
            if edge + 4 <= self.count {
                let rows: [u32; 4] = Global::<[u32; 4]>::cast(rows).read();
                let columns: [u32; 4] = Global::<[u32; 4]>::cast(columns).read();
                self.cached(shared::ROWS, edge).store_u32x4(rows);
                self.cached(shared::COLUMNS, edge).store_u32x4(columns);
                if W::WEIGHTED {
                    self.cached(shared::WEIGHTS, edge)
                        .store_u32x4(W::four::<V>(params, at, columns));
                }
                self.cached(shared::SCALES, edge)
                    .store_u32x4(rows.map(|row| scale(row).to_bits()));
            } else {
                let mut i = 0;
                while edge + i < self.count {
                    let row = rows.at(i as u64).read();
                    let column = columns.at(i as u64).read();
                    self.cached(shared::ROWS, edge + i).store_u32(row);
                    self.cached(shared::COLUMNS, edge + i).store_u32(column);
                    if W::WEIGHTED {
                        self.cached(shared::WEIGHTS, edge + i)
                            .store_u32(W::one::<V>(params, at + i as u64, column));
                    }
                    self.cached(shared::SCALES, edge + i).store_f32(scale(row));
                    i += 1;
                }
            }
        }
    }

    /// Stage 2: the sub-warp walks its edges, adds up each row and writes the rows that lie inside its share. The first
    /// and the last row, where they do not, go to the merge areas.
    ///
    /// # Safety
    /// The launch contract, after stage 1 and a barrier of the warp.
    #[inline(always)]
    unsafe fn walk<W: Weights, S: Scaling, A: Accumulate<V>>(&self, params: &SpmmParams) -> Ends {
        let (first, end) = self.share;
        if first == end {
            return Ends {
                head: false,
                open: false,
            };
        }
        let x = Global::<V::Bits>::new(params.x).at(self.load);
        let x_stride = (params.x_stride * V::PER_16_BYTES) as u64;
        let fetch = |column: u32| {
            // SAFETY: the host validated the columns, and the lane's load is one of the row's.
            V::from_bits(unsafe { x.at(column as u64 * x_stride).read() })
        };
        // SAFETY: `first` and `end - 1` are edges of the warp; neighbours are read where they are edges of the graph.
        unsafe {
            let row = self.row(first);
            let head = self.base + first as u64 > 0 && self.row_before(params, first) == row;
            let mut segment = Segment::<A::Sum> {
                row,
                head,
                ended_head: false,
                sum: A::zero(),
            };
            let mut edge = first;
            while edge + IN_FLIGHT <= end {
                let columns = self.cached(shared::COLUMNS, edge).load_u32x4();
                let [a, b, c, d] = columns.map(fetch);
                let rows = self.cached(shared::ROWS, edge).load_u32x4();
                let weights = if W::WEIGHTED {
                    self.cached(shared::WEIGHTS, edge).load_u32x4()
                } else {
                    Self::ONES
                };
                // Rows ascend: where the last is the same, all are.
                if rows[3] == segment.row {
                    segment.sum = self.add::<W, S, A>(segment.sum, edge, weights[0], a);
                    segment.sum = self.add::<W, S, A>(segment.sum, edge + 1, weights[1], b);
                    segment.sum = self.add::<W, S, A>(segment.sum, edge + 2, weights[2], c);
                    segment.sum = self.add::<W, S, A>(segment.sum, edge + 3, weights[3], d);
                } else {
                    segment = self.step::<W, S, A>(params, segment, edge, rows[0], weights[0], a);
                    segment =
                        self.step::<W, S, A>(params, segment, edge + 1, rows[1], weights[1], b);
                    segment =
                        self.step::<W, S, A>(params, segment, edge + 2, rows[2], weights[2], c);
                    segment =
                        self.step::<W, S, A>(params, segment, edge + 3, rows[3], weights[3], d);
                }
                edge += IN_FLIGHT;
            }
            while edge < end {
                let value = fetch(self.cached(shared::COLUMNS, edge).load_u32());
                let weight = if W::WEIGHTED {
                    self.cached(shared::WEIGHTS, edge).load_u32()
                } else {
                    Self::ONES[0]
                };
                segment =
                    self.step::<W, S, A>(params, segment, edge, self.row(edge), weight, value);
                edge += 1;
            }
            let open = self.base + (end as u64) < params.edges as u64
                && self.row_after(params, end) == segment.row;
            if open {
                let sum = S::leave(A::finish(segment.sum), self.scale(end - 1));
                self.put(shared::MERGE + merge_bytes(V::WIDTH), sum);
            } else {
                self.flush::<S, A>(params, &segment, end);
                segment.ended_head |= segment.head;
            }
            if thread_idx_x() & ((1 << params.lanes_log2) - 1) == 0 {
                let flags = if open {
                    OPEN | if segment.head { THROUGH } else { 0 }
                } else {
                    0
                };
                self.memory
                    .offset(shared::FLAGS + self.sub_warp * 4)
                    .store_u32(flags);
            }
            Ends {
                head: segment.ended_head,
                open,
            }
        }
    }

    /// `sum` with one more edge.
    ///
    /// # Safety
    /// `edge < self.count`, after stage 1.
    #[inline(always)]
    unsafe fn add<W: Weights, S: Scaling, A: Accumulate<V>>(
        &self,
        sum: A::Sum,
        edge: u32,
        weight: u32,
        value: V,
    ) -> A::Sum {
        if S::EACH_PRODUCT {
            // SAFETY: the caller's promise.
            A::add_scaled::<W>(sum, weight, unsafe { self.scale(edge) }, value)
        } else if W::WEIGHTED {
            A::add_weighted::<W>(sum, weight, value)
        } else {
            A::add(sum, value)
        }
    }

    /// One more edge, which may begin a new row.
    ///
    /// # Safety
    /// As [`Tile::walk`]; `edge` follows those of the segment.
    #[inline(always)]
    unsafe fn step<W: Weights, S: Scaling, A: Accumulate<V>>(
        &self,
        params: &SpmmParams,
        mut segment: Segment<A::Sum>,
        edge: u32,
        row: u32,
        weight: u32,
        value: V,
    ) -> Segment<A::Sum> {
        // SAFETY: the caller's promise.
        unsafe {
            if row != segment.row {
                self.flush::<S, A>(params, &segment, edge);
                let ended_head = segment.ended_head | segment.head;
                segment = Segment {
                    row,
                    head: false,
                    ended_head,
                    sum: A::zero(),
                };
            }
            segment.sum = self.add::<W, S, A>(segment.sum, edge, weight, value);
        }
        segment
    }

    /// Ends a row whose last edge is `end - 1`: to the output, or to the first merge area where it began before the share.
    ///
    /// # Safety
    /// As [`Tile::walk`].
    #[inline(always)]
    unsafe fn flush<S: Scaling, A: Accumulate<V>>(
        &self,
        params: &SpmmParams,
        segment: &Segment<A::Sum>,
        end: u32,
    ) {
        // SAFETY: the caller's promise; a row that lies inside the share is completed by nobody else.
        unsafe {
            let scale = self.scale(end - 1);
            let sum = S::leave(A::finish(segment.sum), scale);
            if segment.head {
                self.put(shared::MERGE, sum);
            } else {
                self.write(params, segment.row, S::complete(sum, scale));
            }
        }
    }

    /// The row of the edge before `edge`.
    ///
    /// # Safety
    /// There is such an edge in the graph; after stage 1.
    #[inline(always)]
    unsafe fn row_before(&self, params: &SpmmParams, edge: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            if edge > 0 {
                self.row(edge - 1)
            } else {
                Global::<u32>::new(params.rows)
                    .at(self.base + edge as u64 - 1)
                    .read()
            }
        }
    }

    /// The row of `edge`, which may be the next warp's.
    ///
    /// # Safety
    /// There is such an edge in the graph; after stage 1.
    #[inline(always)]
    unsafe fn row_after(&self, params: &SpmmParams, edge: u32) -> u32 {
        // SAFETY: the caller's promise.
        unsafe {
            if edge < self.count {
                self.row(edge)
            } else {
                Global::<u32>::new(params.rows)
                    .at(self.base + edge as u64)
                    .read()
            }
        }
    }

    /// Puts the lane's part of a partial row into a merge area.
    ///
    /// # Safety
    /// `area` is one of the two.
    #[inline(always)]
    unsafe fn put(&self, area: u32, sum: V::Floats) {
        let mut i = 0;
        while i < V::WIDTH {
            // SAFETY: the area has a word for each element of each thread; consecutive lanes use consecutive banks.
            unsafe {
                let word = i * THREADS_PER_CTA + thread_idx_x();
                self.memory
                    .offset(area + word * 4)
                    .store_f32(sum.get(i as usize));
            }
            i += 1;
        }
    }

    /// The part of a partial row that the same lane of sub-warp `sub_warp` put into a merge area.
    ///
    /// # Safety
    /// It did, before the CTA's barrier.
    #[inline(always)]
    unsafe fn get(&self, params: &SpmmParams, area: u32, sub_warp: u32) -> V::Floats {
        let thread =
            (sub_warp << params.lanes_log2) | (thread_idx_x() & ((1 << params.lanes_log2) - 1));
        let mut sum = V::Floats::ZERO;
        let mut i = 0;
        while i < V::WIDTH {
            // SAFETY: the caller's promise.
            let value = unsafe {
                self.memory
                    .offset(area + (i * THREADS_PER_CTA + thread) * 4)
                    .load_f32()
            };
            sum = sum.with(i as usize, value);
            i += 1;
        }
        sum
    }

    /// Writes the lane's part of a complete row to the output, rounded.
    ///
    /// # Safety
    /// `row` is a row of the output that no other sub-warp completes.
    #[inline(always)]
    unsafe fn write(&self, params: &SpmmParams, row: u32, sum: V::Floats) {
        if self.active {
            let at = row as u64 * (params.y_stride * V::PER_16_BYTES) as u64 + self.load;
            // A NaN or an infinite factor made more than zeros of the padding.
            let sum = without_padding::<V>(sum, self.load * V::WIDTH as u64, params.features);
            // SAFETY: the caller's promise; an active lane's load is one of the row's.
            unsafe {
                Global::<V::Bits>::new(params.y)
                    .at(at)
                    .store(V::narrow(sum).to_bits())
            };
        }
    }

    /// Adds the sums of earlier sub-warps to `sum`, back to the one in which the row began. Says whether it began before
    /// the CTA.
    ///
    /// # Safety
    /// After the CTA's barrier; the row of `sum` began before the share of this sub-warp.
    #[inline(always)]
    unsafe fn gather<S: Scaling>(
        &self,
        params: &SpmmParams,
        mut sum: V::Floats,
    ) -> (V::Floats, bool) {
        let mut sub_warp = self.sub_warp;
        loop {
            if sub_warp == 0 {
                return (sum, true);
            }
            sub_warp -= 1;
            // SAFETY: the row comes from that sub-warp, which therefore left it open in the second merge area.
            unsafe {
                sum = S::merge(
                    self.get(params, shared::MERGE + merge_bytes(V::WIDTH), sub_warp),
                    sum,
                );
                if self.memory.offset(shared::FLAGS + sub_warp * 4).load_u32() & THROUGH == 0 {
                    return (sum, false);
                }
            }
        }
    }

    /// Completes the rows that cross sub-warps, and stages those that cross CTAs.
    ///
    /// # Safety
    /// The launch contract, after the CTA's barrier.
    #[inline(always)]
    unsafe fn merge<S: Scaling>(&self, params: &SpmmParams, ended: Ends) {
        // SAFETY: the caller's promise; each row is completed or staged by the one sub-warp in which it ends.
        unsafe {
            if ended.head {
                let (sum, from_before) =
                    self.gather::<S>(params, self.get(params, shared::MERGE, self.sub_warp));
                if from_before {
                    self.stage(params, STAGED_END, sum);
                } else {
                    let first = self.share.0;
                    self.write(params, self.row(first), S::complete(sum, self.scale(first)));
                }
            }
            let last = self.sub_warp + 1 == (WARPS_PER_CTA * WARP) >> params.lanes_log2;
            if last && ended.open {
                let area = shared::MERGE + merge_bytes(V::WIDTH);
                let flags = self
                    .memory
                    .offset(shared::FLAGS + self.sub_warp * 4)
                    .load_u32();
                let own = self.get(params, area, self.sub_warp);
                let (sum, _) = if flags & THROUGH != 0 {
                    self.gather::<S>(params, own)
                } else {
                    (own, false)
                };
                self.stage(params, STAGED_TAIL, sum);
            }
        }
    }

    /// Writes the lane's part of a row that crosses CTAs to the staging buffer.
    ///
    /// # Safety
    /// The launch contract; one sub-warp a slot.
    #[inline(always)]
    unsafe fn stage(&self, params: &SpmmParams, slot: u32, sum: V::Floats) {
        if self.active {
            let features = params.feature_loads * V::WIDTH;
            let at = staging_index(block_idx_x(), slot, features) + self.load * V::WIDTH as u64;
            // SAFETY: the staging buffer has a row for each slot of each CTA.
            unsafe { sum.store(Global::<f32>::new(params.staging).at(at)) };
        }
    }
}
