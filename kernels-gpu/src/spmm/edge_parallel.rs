//! The edge-parallel kernel: two stages, then a merge inside the CTA.

use super::empty;
use super::epilogue::{finish, own, own_load};
use super::lane::load_of;
use super::policy::{Accumulate, Scaling, Weights, add};
use super::rows::{Rows, Starts};
use super::sums::Sums;
use crate::device::async_copy;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, sync_threads, thread_idx_x_anew};
use crate::device::vector::Vector;
use crate::device::warp::{lane_id, sync_warp, warp_id};
use halfgnn_contract::spmm::{
    STAGED_END, STAGED_TAIL, SpmmParams, THREADS_PER_CTA, WARPS_PER_CTA, merge_bytes, shared,
    shared_bytes,
};
use halfgnn_contract::{VECTOR_BYTES, WARP};

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
    let tile = Tile::<V, A::Sums>::new::<W>(params);
    // SAFETY: all threads of the CTA take the same way; the barriers below order the accesses to shared memory.
    unsafe {
        if block_idx_x() >= params.ctas {
            let cta = block_idx_x() - params.ctas;
            return empty::clear::<V, S, A::Sums>(params, cta, tile.load, tile.active);
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
struct Tile<V: Vector, T: Sums<V>> {
    memory: Shared,
    /// First edge of the warp, and the end of its edges.
    warp: (u32, u32),
    /// First edge of the sub-warp, and the end of its share.
    share: (u32, u32),
    /// Which load of a row is the lane's.
    load: u32,
    /// Whether the row has such a load; idle lanes read another's and write nothing.
    active: bool,
    of: core::marker::PhantomData<(V, T)>,
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

impl<V: Vector, T: Sums<V>> Tile<V, T> {
    /// The weights of edges where nothing reads them.
    const ONES: [u32; 4] = [0; 4];

    #[inline(always)]
    fn new<W: Weights>(params: &SpmmParams) -> Self {
        let warp_edges = (1 << params.cta_edges_log2) / WARPS_PER_CTA;
        // No sum leaves 32 bits, unless the last edges do.
        let base = (block_idx_x() << params.cta_edges_log2) + warp_id() * warp_edges;
        let warp_end = base.saturating_add(warp_edges).min(params.edges);
        let edges = (warp_edges << params.lanes_log2) / WARP;
        let first = base
            .saturating_add((lane_id() >> params.lanes_log2) * edges)
            .min(warp_end);
        let (load, active) = load_of::<W>(params);
        Self {
            memory: Shared::base(),
            warp: (base, warp_end),
            share: (first, first.saturating_add(edges).min(warp_end)),
            load,
            active,
            of: core::marker::PhantomData,
        }
    }

    /// The merge area of rows that go on after a sub-warp's share; that of rows that end in it is the first.
    const OPEN_AREA: u32 = shared::MERGE + merge_bytes(T::FLOATS);

    /// Where the column of an edge of the warp is cached.
    #[inline(always)]
    fn column(&self, params: &SpmmParams, edge: u32) -> Shared {
        self.of_edge(params, shared::COLUMNS, edge)
    }

    /// Where its weight is.
    #[inline(always)]
    fn weight(&self, params: &SpmmParams, edge: u32) -> Shared {
        self.of_edge(params, shared::WEIGHTS, edge)
    }

    /// Where its term is.
    #[inline(always)]
    fn term(&self, params: &SpmmParams, edge: u32) -> Shared {
        self.of_edge(params, shared::TERMS, edge)
    }

    #[inline(always)]
    fn of_edge(&self, params: &SpmmParams, word: u32, edge: u32) -> Shared {
        let first = block_idx_x() << params.cta_edges_log2;
        let array = shared::of_edges(T::FLOATS, params.cta_edges_log2, word);
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
                        if W::TERMED {
                            let edges = [
                                W::termed::<V>(params, at, rows[0], columns[0]),
                                W::termed::<V>(params, at + 1, rows[1], columns[1]),
                                W::termed::<V>(params, at + 2, rows[2], columns[2]),
                                W::termed::<V>(params, at + 3, rows[3], columns[3]),
                            ];
                            let weights = edges.map(|(weight, _)| weight);
                            let terms = edges.map(|(_, term)| term.to_bits());
                            self.weight(params, edge).store_u32x4(weights);
                            self.term(params, edge).store_u32x4(terms);
                        } else {
                            let weights = W::four::<V>(params, at, rows, columns);
                            self.weight(params, edge).store_u32x4(weights);
                        }
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
                            let (weight, term) = W::termed::<V>(params, at + i as u64, row, column);
                            self.weight(params, edge + i).store_u32(weight);
                            if W::TERMED {
                                self.term(params, edge + i).store_f32(term);
                            }
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
    unsafe fn walk<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>>(
        &self,
        params: &SpmmParams,
    ) -> Ends {
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
            if !segment.head {
                self.call::<W, S>(params, segment.rows.row);
            }
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
                let terms = if W::TERMED {
                    self.term(params, edge).load_u32x4().map(f32::from_bits)
                } else {
                    [0.0; 4]
                };
                // Sub-warps of a warp end rows at different edges. They part only where one does, and add together: a way of
                // its own for steps without a start would be walked beside this one.
                let starting = starts.four();
                let edges = [
                    (weights[0], terms[0], a),
                    (weights[1], terms[1], b),
                    (weights[2], terms[2], c),
                    (weights[3], terms[3], d),
                ];
                segment = self.step::<W, S, A>(params, segment, starting & 1, edges[0]);
                segment = self.step::<W, S, A>(params, segment, starting & 2, edges[1]);
                segment = self.step::<W, S, A>(params, segment, starting & 4, edges[2]);
                segment = self.step::<W, S, A>(params, segment, starting & 8, edges[3]);
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
                let term = if W::TERMED {
                    self.term(params, edge).load_f32()
                } else {
                    0.0
                };
                let edge_alone = (weight, term, value);
                segment = self.step::<W, S, A>(params, segment, starts.one(), edge_alone);
                edge += 1;
                starts.pass(params, 1, edge, edge < end);
            }
            let open = starts.one() == 0;
            if open && S::ATOMIC {
                let sums = A::finish(segment.sum).leave::<S>(segment.rows.scale);
                self.add_to_output(params, segment.rows.row, sums);
            } else if open {
                let sums = A::finish(segment.sum).leave::<S>(segment.rows.scale);
                self.put(Self::OPEN_AREA, sums);
            } else {
                self.flush::<W, S, A>(params, &segment);
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

    /// One more edge, of this weight, term and row of `x`, which begins a new row where `starts` is not zero.
    ///
    /// # Safety
    /// As [`Tile::walk`]; the edge follows those of the segment.
    #[inline(always)]
    unsafe fn step<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>>(
        &self,
        params: &SpmmParams,
        mut segment: Segment<A::Sum>,
        starts: u32,
        edge: (u32, f32, V),
    ) -> Segment<A::Sum> {
        // SAFETY: the caller's promise.
        unsafe {
            if starts != 0 {
                self.flush::<W, S, A>(params, &segment);
                segment = Segment {
                    rows: segment.rows.next(params),
                    head: false,
                    ended_head: segment.ended_head | segment.head,
                    sum: A::zero(),
                };
                self.call::<W, S>(params, segment.rows.row);
            }
            segment.sum = add::<V, W, S, A>(segment.sum, segment.rows.scale, edge);
        }
        segment
    }

    /// Has the lane's load of row `row` of `x` come to shared memory while the row's edges are walked, for the epilogue: in
    /// registers it would be too many of them, and waited for at the end it would stop the whole warp.
    ///
    /// # Safety
    /// As [`Tile::walk`]; what was called before has been used, or never will be.
    #[inline(always)]
    unsafe fn call<W: Weights, S: Scaling>(&self, params: &SpmmParams, row: u32) {
        if S::EPILOGUE && params.self_factor != 0.0 {
            let source = own_load::<V>(params, row, self.load).address();
            // SAFETY: the thread's own place, which it has read from before it asks for the next; the load is one of the row's.
            unsafe { async_copy::copy_16(self.own_row::<W>(params), source, true) };
            async_copy::commit();
        }
    }

    /// Half `half` of what was called for last.
    ///
    /// # Safety
    /// Something was, and it was waited for.
    #[inline(always)]
    unsafe fn called<W: Weights>(&self, params: &SpmmParams, half: u32) -> [u32; 2] {
        // SAFETY: the thread's own copy, which has arrived.
        unsafe {
            self.own_row::<W>(params)
                .offset(half * VECTOR_BYTES / 2)
                .load_u32x2()
        }
    }

    /// The thread's 16 bytes of shared memory for the row of `x` itself.
    #[inline(always)]
    fn own_row<W: Weights>(&self, params: &SpmmParams) -> Shared {
        let words = 1 + W::WEIGHTED as u32 + W::TERMED as u32;
        let rows = shared_bytes(T::FLOATS, params.cta_edges_log2, words);
        self.memory
            .offset(rows + thread_idx_x_anew() * VECTOR_BYTES)
    }

    /// Ends a row: to the output, or to the first merge area where it began before the share.
    ///
    /// # Safety
    /// As [`Tile::walk`].
    #[inline(always)]
    unsafe fn flush<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>>(
        &self,
        params: &SpmmParams,
        segment: &Segment<A::Sum>,
    ) {
        let Rows { row, scale, .. } = segment.rows;
        let sums = A::finish(segment.sum).leave::<S>(scale);
        // SAFETY: the caller's promise; a row that lies inside the share is completed by nobody else.
        unsafe {
            if segment.head && S::ATOMIC {
                self.add_to_output(params, row, sums);
            } else if segment.head {
                self.put(shared::MERGE, sums);
                if self.leads(params) {
                    self.of_sub_warp(shared::HEAD_ROWS, self.sub_warp(params))
                        .store_u32(row);
                    self.of_sub_warp(shared::HEAD_SCALES, self.sub_warp(params))
                        .store_f32(scale);
                }
            } else {
                if S::EPILOGUE {
                    async_copy::wait::<0>();
                }
                let itself = |half| self.called::<W>(params, half);
                self.write::<S>(params, row, sums.complete::<S>(scale), itself);
            }
        }
    }

    /// Puts the lane's part of a partial row into a merge area.
    ///
    /// # Safety
    /// `area` is one of the two.
    #[inline(always)]
    unsafe fn put(&self, area: u32, sums: T) {
        let thread = thread_idx_x_anew();
        sums.map(|i, value| {
            let word = i * THREADS_PER_CTA + thread;
            // SAFETY: the area has a word for each float of each thread; consecutive lanes use consecutive banks.
            unsafe { self.memory.offset(area + word * 4).store_f32(value) };
            value
        });
    }

    /// The part of a partial row that the same lane of sub-warp `sub_warp` put into a merge area.
    ///
    /// # Safety
    /// It did, before the CTA's barrier.
    #[inline(always)]
    unsafe fn get(&self, params: &SpmmParams, area: u32, sub_warp: u32) -> T {
        let thread = (sub_warp << params.lanes_log2)
            | (thread_idx_x_anew() & ((1 << params.lanes_log2) - 1));
        T::zero().map(|i, _| {
            let word = i * THREADS_PER_CTA + thread;
            // SAFETY: the caller's promise.
            unsafe { self.memory.offset(area + word * 4).load_f32() }
        })
    }

    /// Whether the lane has what its sub-warp has in common of a row, such as the sum of the terms: one lane of each head.
    #[inline(always)]
    fn has_common(&self, params: &SpmmParams) -> bool {
        block_idx_y() == 0 && self.leads(params)
    }

    /// Writes the lane's part of a complete row to the output, finished and rounded; `itself` gives that of the row of `x`.
    ///
    /// # Safety
    /// `row` is a row of the output that no other sub-warp completes.
    #[inline(always)]
    unsafe fn write<S: Scaling>(
        &self,
        params: &SpmmParams,
        row: u32,
        sums: T,
        itself: impl Fn(u32) -> [u32; 2],
    ) {
        if self.active {
            // SAFETY: the caller's promise; an active lane's load is one of the row's.
            unsafe {
                let sums = finish::<V, S, T>(params, self.load, sums, itself);
                sums.write(params, row, self.load, || self.has_common(params));
            }
        }
    }

    /// Adds the lane's part of a row to the output, rounded before and after.
    ///
    /// # Safety
    /// `row` is a row of the output that no sub-warp writes in another way.
    #[inline(always)]
    unsafe fn add_to_output(&self, params: &SpmmParams, row: u32, sums: T) {
        if self.active {
            let (place, value) = sums.output(params, 0, row, self.load);
            // SAFETY: the caller's promise; an active lane's load is one of the row's.
            unsafe { value.add_to(place) };
        }
    }

    /// Adds the sums of earlier sub-warps to `sums`, back to the one in which the row began. Says whether it began before
    /// the CTA.
    ///
    /// # Safety
    /// After the CTA's barrier; the row of `sums` began before the share of this sub-warp.
    #[inline(always)]
    unsafe fn gather<S: Scaling>(&self, params: &SpmmParams, mut sums: T) -> (T, bool) {
        let mut sub_warp = self.sub_warp(params);
        loop {
            if sub_warp == 0 {
                return (sums, true);
            }
            sub_warp -= 1;
            // SAFETY: the row comes from that sub-warp, which therefore left it open in the second merge area.
            unsafe {
                let before = self.get(params, Self::OPEN_AREA, sub_warp);
                sums = before.merge::<S>(sums);
                if self.of_sub_warp(shared::FLAGS, sub_warp).load_u32() & THROUGH == 0 {
                    return (sums, false);
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
                let (sums, from_before) = self.gather::<S>(
                    params,
                    self.get(params, shared::MERGE, self.sub_warp(params)),
                );
                if from_before {
                    self.stage(params, STAGED_END, sums);
                } else {
                    let row = self
                        .of_sub_warp(shared::HEAD_ROWS, self.sub_warp(params))
                        .load_u32();
                    let scale = self
                        .of_sub_warp(shared::HEAD_SCALES, self.sub_warp(params))
                        .load_f32();
                    let itself = |half| own::<V>(params, row, self.load, half);
                    self.write::<S>(params, row, sums.complete::<S>(scale), itself);
                }
            }
            let last = self.sub_warp(params) + 1 == (WARPS_PER_CTA * WARP) >> params.lanes_log2;
            if last && ended.open {
                let flags = self
                    .of_sub_warp(shared::FLAGS, self.sub_warp(params))
                    .load_u32();
                let own = self.get(params, Self::OPEN_AREA, self.sub_warp(params));
                let (sums, _) = if flags & THROUGH != 0 {
                    self.gather::<S>(params, own)
                } else {
                    (own, false)
                };
                self.stage(params, STAGED_TAIL, sums);
            }
        }
    }

    /// Writes the lane's part of a row that crosses CTAs to the staging buffer.
    ///
    /// # Safety
    /// The launch contract; one sub-warp a slot.
    #[inline(always)]
    unsafe fn stage(&self, params: &SpmmParams, slot: u32, sums: T) {
        if self.active {
            let slot = (block_idx_x(), slot);
            // SAFETY: the caller's promise; an active lane's load is one of the row's.
            unsafe { sums.stage(params, slot, self.load, || self.has_common(params)) };
        }
    }
}
