//! The edge-parallel kernel: two stages, then a merge inside the CTA.

use super::empty;
use super::policy::{Accumulate, Scaling, Weights};
use super::rows::{Rows, Starts};
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{
    block_idx_x, block_idx_y, block_idx_z, sync_threads, thread_idx_x, thread_idx_x_anew,
};
use crate::device::vector::{Floats, Vector};
use crate::device::warp::{lane_id, sync_warp, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::spmm::{
    STAGED_END, STAGED_TAIL, SpmmParams, THREADS_PER_CTA, WARPS_PER_CTA, merge_bytes, shared,
    staging_index,
};

/// Edges whose features a sub-warp has in flight at once.
const IN_FLIGHT: u32 = 4;
const _: () = assert!(
    IN_FLIGHT == 4,
    "one 16-byte load of shared memory gives the columns of a step"
);

/// A sub-warp's last row goes on after its share of the edges.
const OPEN: u32 = 1;
/// That row also began before it: the share holds nothing else.
const THROUGH: u32 = 2;

/// # Safety
/// The launch contract of [`SpmmParams`]: CTAs of [`THREADS_PER_CTA`] threads, in x `ctas` and those for the rows without
/// edges, in y the feature tiles, in z the heads.
#[inline(always)]
pub unsafe fn run<V: Vector, W: Weights, S: Scaling, A: Accumulate<V>>(params: &SpmmParams) {
    let tile = Tile::<V>::new::<W>(params);
    // SAFETY: all threads of the CTA take the same way; the barriers below order the accesses to shared memory.
    unsafe {
        if block_idx_x() >= params.ctas {
            return empty::clear::<V>(
                params,
                block_idx_x() - params.ctas,
                tile.load as u64,
                tile.active,
            );
        }
        tile.cache_edges::<W>(params);
        sync_warp();
        let ended = tile.walk::<W, S, A>(params);
        if !S::ATOMIC {
            sync_threads();
            tile.merge::<S>(params, ended);
        }
    }
}

/// What one lane works on: its sub-warp's share of the edges, and one load of their features.
struct Tile<V: Vector> {
    memory: Shared,
    /// First edge of the warp, and the end of its edges.
    warp: (u32, u32),
    /// First edge of the sub-warp, and the end of its share.
    share: (u32, u32),
    /// Which load of a row is the lane's.
    load: u32,
    /// Whether the row has such a load; idle lanes read another's and write nothing.
    active: bool,
    vector: core::marker::PhantomData<V>,
}

/// The row that a sub-warp is adding up.
#[derive(Clone, Copy)]
struct Segment<T> {
    rows: Rows,
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
    fn new<W: Weights>(params: &SpmmParams) -> Self {
        let lanes = 1 << params.lanes_log2;
        let warp_edges = (1 << params.cta_edges_log2) / WARPS_PER_CTA;
        // No sum leaves 32 bits, unless the last edges do.
        let base = (block_idx_x() << params.cta_edges_log2) + warp_id() * warp_edges;
        let warp_end = base.saturating_add(warp_edges).min(params.edges);
        let edges = (warp_edges << params.lanes_log2) / WARP;
        let first = base
            .saturating_add((lane_id() >> params.lanes_log2) * edges)
            .min(warp_end);
        let load = block_idx_y() * lanes + (thread_idx_x() & (lanes - 1));
        let (head, loads) = if W::BY_HEAD {
            (block_idx_z() * params.head_loads, params.head_loads)
        } else {
            (0, params.feature_loads)
        };
        Self {
            memory: Shared::base(),
            warp: (base, warp_end),
            share: (first, first.saturating_add(edges).min(warp_end)),
            load: head + load.min(loads - 1),
            active: load < loads,
            vector: core::marker::PhantomData,
        }
    }

    /// Where the column of an edge of the warp is cached.
    #[inline(always)]
    fn column(&self, params: &SpmmParams, edge: u32) -> Shared {
        self.of_edge(params, shared::columns(V::WIDTH), edge)
    }

    /// Where its weight is.
    #[inline(always)]
    fn weight(&self, params: &SpmmParams, edge: u32) -> Shared {
        self.of_edge(
            params,
            shared::weights(V::WIDTH, params.cta_edges_log2),
            edge,
        )
    }

    #[inline(always)]
    fn of_edge(&self, params: &SpmmParams, array: u32, edge: u32) -> Shared {
        let first = block_idx_x() << params.cta_edges_log2;
        self.memory.offset(array + edge.wrapping_sub(first) * 4)
    }

    /// Word of the sub-warp in one of the arrays of [`shared`] that have one for each.
    #[inline(always)]
    fn of_sub_warp(&self, array: u32, sub_warp: u32) -> Shared {
        self.memory.offset(array + sub_warp * 4)
    }

    /// The lane's sub-warp in the CTA.
    #[inline(always)]
    fn sub_warp(&self, params: &SpmmParams) -> u32 {
        thread_idx_x_anew() >> params.lanes_log2
    }

    /// Whether the lane is the first of its sub-warp.
    #[inline(always)]
    fn leads(&self, params: &SpmmParams) -> bool {
        thread_idx_x_anew() & ((1 << params.lanes_log2) - 1) == 0
    }

    /// Stage 1: the warp's edges go to shared memory, four a lane, each array read once and in whole lines.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn cache_edges<W: Weights>(&self, params: &SpmmParams) {
        let (base, end) = self.warp;
        let mut edge = base.saturating_add(lane_id() * 4);
        while edge < end {
            let at = edge as u64;
            let columns = Global::<u32>::new(params.columns).at(at);
            let rows = Global::<u32>::new(params.rows).at(at);
            // SAFETY: edges before `end` are edges of the graph, arrays of edges are 16-byte aligned, `edge` is a
            // multiple of 4, and no other lane writes these words.
            unsafe {
                if end - edge >= 4 {
                    let columns: [u32; 4] = Global::<[u32; 4]>::cast(columns).read();
                    self.column(params, edge).store_u32x4(columns);
                    if W::WEIGHTED {
                        let rows = if W::OF_ROWS {
                            Global::<[u32; 4]>::cast(rows).read()
                        } else {
                            [0; 4]
                        };
                        let weights = W::four::<V>(params, at, rows, columns);
                        self.weight(params, edge).store_u32x4(weights);
                    }
                } else {
                    let mut i = 0;
                    while i < end - edge {
                        let column = columns.at(i as u64).read();
                        self.column(params, edge + i).store_u32(column);
                        if W::WEIGHTED {
                            let row = if W::OF_ROWS {
                                rows.at(i as u64).read()
                            } else {
                                0
                            };
                            let weight = W::one::<V>(params, at + i as u64, row, column);
                            self.weight(params, edge + i).store_u32(weight);
                        }
                        i += 1;
                    }
                }
            }
            edge = edge.saturating_add(4 * WARP);
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
        let x = Global::<V::Bits>::new(params.x).at(self.load as u64);
        let x_stride = (params.x_stride * V::PER_16_BYTES) as u64;
        let fetch = |column: u32| {
            // SAFETY: the host validated the columns, and the lane's load is one of the row's.
            V::from_bits(unsafe { x.at(column as u64 * x_stride).load() })
        };
        // SAFETY: `first` and `end - 1` are edges of the warp, and past the last edge there is one more start.
        unsafe {
            let (mut starts, index) = Starts::at(params, first);
            let mut segment = Segment::<A::Sum> {
                rows: Rows::at(params, index),
                head: !starts.take(),
                ended_head: false,
                sum: A::zero(),
            };
            let mut edge = first;
            // Shares begin at multiples of a step; no sum here leaves 32 bits.
            while edge < end & !(IN_FLIGHT - 1) {
                let columns = self.column(params, edge).load_u32x4();
                let [a, b, c, d] = columns.map(fetch);
                let weights = if W::WEIGHTED {
                    self.weight(params, edge).load_u32x4()
                } else {
                    Self::ONES
                };
                // Sub-warps of a warp end rows at different edges. They part only where one does, and add together: a way of
                // its own for steps without a start would be walked beside this one.
                let starting = starts.four();
                segment = self.step::<W, S, A>(params, segment, starting & 1, weights[0], a);
                segment = self.step::<W, S, A>(params, segment, starting & 2, weights[1], b);
                segment = self.step::<W, S, A>(params, segment, starting & 4, weights[2], c);
                segment = self.step::<W, S, A>(params, segment, starting & 8, weights[3], d);
                edge += IN_FLIGHT;
                starts.pass(params, IN_FLIGHT, edge, edge < end);
            }
            while edge < end {
                let value = fetch(self.column(params, edge).load_u32());
                let weight = if W::WEIGHTED {
                    self.weight(params, edge).load_u32()
                } else {
                    Self::ONES[0]
                };
                segment = self.step::<W, S, A>(params, segment, starts.one(), weight, value);
                edge += 1;
                starts.pass(params, 1, edge, edge < end);
            }
            let open = starts.one() == 0;
            if open && S::ATOMIC {
                let sum = S::leave(A::finish(segment.sum), segment.rows.scale);
                self.add_to_output(params, segment.rows.row, sum);
            } else if open {
                let sum = S::leave(A::finish(segment.sum), segment.rows.scale);
                self.put(shared::MERGE + merge_bytes(V::WIDTH), sum);
            } else {
                self.flush::<S, A>(params, &segment);
                segment.ended_head |= segment.head;
            }
            if self.leads(params) {
                let flags = if open {
                    OPEN | if segment.head { THROUGH } else { 0 }
                } else {
                    0
                };
                self.of_sub_warp(shared::FLAGS, self.sub_warp(params))
                    .store_u32(flags);
            }
            Ends {
                head: segment.ended_head,
                open,
            }
        }
    }

    /// The segment's sum with one more edge.
    #[inline(always)]
    fn add<W: Weights, S: Scaling, A: Accumulate<V>>(
        segment: &Segment<A::Sum>,
        weight: u32,
        value: V,
    ) -> A::Sum {
        if S::EACH_PRODUCT {
            A::add_scaled::<W>(segment.sum, weight, segment.rows.scale, value)
        } else if W::WEIGHTED {
            A::add_weighted::<W>(segment.sum, weight, value)
        } else {
            A::add(segment.sum, value)
        }
    }

    /// One more edge, which begins a new row where `starts` is not zero.
    ///
    /// # Safety
    /// As [`Tile::walk`]; the edge follows those of the segment.
    #[inline(always)]
    unsafe fn step<W: Weights, S: Scaling, A: Accumulate<V>>(
        &self,
        params: &SpmmParams,
        mut segment: Segment<A::Sum>,
        starts: u32,
        weight: u32,
        value: V,
    ) -> Segment<A::Sum> {
        // SAFETY: the caller's promise.
        unsafe {
            if starts != 0 {
                self.flush::<S, A>(params, &segment);
                segment = Segment {
                    rows: segment.rows.next(params),
                    head: false,
                    ended_head: segment.ended_head | segment.head,
                    sum: A::zero(),
                };
            }
            segment.sum = Self::add::<W, S, A>(&segment, weight, value);
        }
        segment
    }

    /// Ends a row: to the output, or to the first merge area where it began before the share.
    ///
    /// # Safety
    /// As [`Tile::walk`].
    #[inline(always)]
    unsafe fn flush<S: Scaling, A: Accumulate<V>>(
        &self,
        params: &SpmmParams,
        segment: &Segment<A::Sum>,
    ) {
        let Rows { row, scale, .. } = segment.rows;
        let sum = S::leave(A::finish(segment.sum), scale);
        // SAFETY: the caller's promise; a row that lies inside the share is completed by nobody else.
        unsafe {
            if segment.head && S::ATOMIC {
                self.add_to_output(params, row, sum);
            } else if segment.head {
                self.put(shared::MERGE, sum);
                if self.leads(params) {
                    self.of_sub_warp(shared::HEAD_ROWS, self.sub_warp(params))
                        .store_u32(row);
                    self.of_sub_warp(shared::HEAD_SCALES, self.sub_warp(params))
                        .store_f32(scale);
                }
            } else {
                self.write(params, row, S::complete(sum, scale));
            }
        }
    }

    /// Puts the lane's part of a partial row into a merge area.
    ///
    /// # Safety
    /// `area` is one of the two.
    #[inline(always)]
    unsafe fn put(&self, area: u32, sum: V::Floats) {
        let thread = thread_idx_x_anew();
        let mut i = 0;
        while i < V::WIDTH {
            // SAFETY: the area has a word for each element of each thread; consecutive lanes use consecutive banks.
            unsafe {
                let word = i * THREADS_PER_CTA + thread;
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
        let thread = (sub_warp << params.lanes_log2)
            | (thread_idx_x_anew() & ((1 << params.lanes_log2) - 1));
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

    /// The lane's part of a row of the output, and what is to stand there, rounded. Idle lanes have none.
    #[inline(always)]
    fn output(&self, params: &SpmmParams, row: u32, sum: V::Floats) -> (Global<V::Bits>, V) {
        let stride = (params.y_stride * V::PER_16_BYTES) as u64;
        let place = Global::new(params.y).at(row as u64 * stride + self.load as u64);
        // A NaN or an infinite factor made more than zeros of the padding.
        let value = V::narrow(sum).within((self.load * V::WIDTH) as u64, params.features);
        (place, value)
    }

    /// Writes the lane's part of a complete row to the output, rounded.
    ///
    /// # Safety
    /// `row` is a row of the output that no other sub-warp completes.
    #[inline(always)]
    unsafe fn write(&self, params: &SpmmParams, row: u32, sum: V::Floats) {
        if self.active {
            let (place, value) = self.output(params, row, sum);
            // SAFETY: the caller's promise; an active lane's load is one of the row's.
            unsafe { place.store(value.to_bits()) };
        }
    }

    /// Adds the lane's part of a row to the output, rounded before and after.
    ///
    /// # Safety
    /// `row` is a row of the output that no sub-warp writes in another way.
    #[inline(always)]
    unsafe fn add_to_output(&self, params: &SpmmParams, row: u32, sum: V::Floats) {
        if self.active {
            let (place, value) = self.output(params, row, sum);
            // SAFETY: the caller's promise; an active lane's load is one of the row's.
            unsafe { value.add_to(place) };
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
        let mut sub_warp = self.sub_warp(params);
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
                if self.of_sub_warp(shared::FLAGS, sub_warp).load_u32() & THROUGH == 0 {
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
                let (sum, from_before) = self.gather::<S>(
                    params,
                    self.get(params, shared::MERGE, self.sub_warp(params)),
                );
                if from_before {
                    self.stage(params, STAGED_END, sum);
                } else {
                    let row = self
                        .of_sub_warp(shared::HEAD_ROWS, self.sub_warp(params))
                        .load_u32();
                    let scale = self
                        .of_sub_warp(shared::HEAD_SCALES, self.sub_warp(params))
                        .load_f32();
                    self.write(params, row, S::complete(sum, scale));
                }
            }
            let last = self.sub_warp(params) + 1 == (WARPS_PER_CTA * WARP) >> params.lanes_log2;
            if last && ended.open {
                let area = shared::MERGE + merge_bytes(V::WIDTH);
                let flags = self
                    .of_sub_warp(shared::FLAGS, self.sub_warp(params))
                    .load_u32();
                let own = self.get(params, area, self.sub_warp(params));
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
            let at = staging_index(block_idx_x(), slot, features) + (self.load * V::WIDTH) as u64;
            // SAFETY: the staging buffer has a row for each slot of each CTA.
            unsafe { sum.store(Global::<f32>::new(params.staging).at(at)) };
        }
    }
}
