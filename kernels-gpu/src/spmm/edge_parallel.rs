//! The edge-parallel kernel: two stages, then a merge inside the CTA.
//!
//! - [`by_eight`]: the walk of sums that take eight edges at once.
//! - [`whole_weights`]: what is done with weights in between, where they become whole numbers.

mod by_eight;
mod whole_weights;

use super::empty;
use super::epilogue::{Addend, InMemory, addend_factor, addend_load, addend_scale, finish};
use super::lane::Load;
use super::lanes::{Lanes, STEP};
use super::policy::{Accumulate, Scaling, Weights, add};
use super::rows::{Order, Rows, share};
use super::sums::Sums;
use crate::device::async_copy;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, sync_threads, thread_idx_x_anew};
use crate::device::vector::{Input, Vector};
use crate::device::warp::{lane_id, sync_warp, warp_id};
use halfgnn_contract::spmm::{
    STAGED_END, STAGED_TAIL, SpmmParams, WARPS_PER_CTA, merge_bytes, shared, shared_bytes,
};
use halfgnn_contract::{VECTOR_BYTES, WARP};
use whole_weights::{add_terms, terms_of};

/// Edges whose rows of `x` a sub-warp has in flight at once; twice as many where it walks [by eight](by_eight).
const IN_FLIGHT: u32 = STEP;

/// A sub-warp's last row goes on after its share of the edges.
const OPEN: u32 = 1;
/// That row also began before it: the share holds nothing else.
const THROUGH: u32 = 2;

/// # Safety
/// The launch contract of [`SpmmParams`]: CTAs of [`THREADS_PER_CTA`] threads, in x `ctas` and those for the rows without
/// edges, in y the feature tiles, in z the heads.
#[inline(always)]
pub unsafe fn run<V: Vector, W: Weights, S: Scaling, A: Accumulate<V>, O: Order>(
    params: &SpmmParams,
) {
    const {
        assert!(
            S::ATOMIC || !O::IN_TURN,
            "edges that are taken in turn leave no sub-warp a row for itself"
        );
        assert!(
            !S::EPILOGUE || !O::CACHES_ROWS,
            "rows without edges, which may be zeros from before, have an epilogue as well"
        );
        assert!(
            !S::ATOMIC || V::ATOMICS,
            "these elements are not added to in memory"
        )
    };
    // SAFETY: all threads of the CTA take the same way; the barriers below order the accesses to shared memory.
    unsafe {
        let mut tile = Tile::<V, A::Sums, O::Lanes>::new::<W, S, O>(params);
        if block_idx_x() >= params.ctas {
            let cta = block_idx_x() - params.ctas;
            return if !O::CACHES_ROWS {
                empty::clear::<V, S, A::Sums, O::Lanes>(params, cta, tile.load)
            } else if !S::ATOMIC {
                empty::find_and_clear::<V, S, A::Sums>(params, cta, tile.load)
            };
        }
        // Before the edges, so that one wait is for both; but not where weights take all registers.
        let early = (!W::OF_ROWS).then(|| O::ask(params, tile.share));
        tile.cache_edges::<W, O>(params);
        if A::WHOLE_WEIGHTS {
            tile.unit = tile.round_weights::<W, A>(params);
        }
        sync_warp();
        let asked = early.unwrap_or_else(|| O::ask(params, tile.share));
        let ended = tile.walk::<W, S, A, O>(params, asked);
        if !S::ATOMIC {
            sync_threads();
            tile.merge::<S>(params, ended);
        }
    }
}

/// Words of an edge in shared memory, without its row.
#[inline(always)]
fn words<W: Weights>() -> u32 {
    1 + W::WEIGHTED as u32 + W::TERMED as u32
}

/// What one lane works on: its sub-warp's share of the edges, and one load of their features.
struct Tile<V: Vector, T: Sums<V>, L: Lanes> {
    memory: Shared,
    /// First edge of the warp, and the end of its edges.
    warp: (u32, u32),
    /// First edge of the sub-warp, and the end of its share.
    share: (u32, u32),
    load: Load,
    /// Of the addend, where there is an epilogue.
    addend_factor: f32,
    /// What weights are multiples of, where they are whole numbers, else 1.
    unit: f32,
    of: core::marker::PhantomData<(V, T, L)>,
}

/// The row that a sub-warp is adding up.
#[derive(Clone, Copy)]
struct Segment<T> {
    rows: Rows,
    /// [`Rows::index`] of the row that began before the share, or [`NONE`].
    head: u32,
    sum: T,
}

/// The index of no row.
const NONE: u32 = u32::MAX;

impl<T> Segment<T> {
    /// Whether the row began before the share.
    #[inline(always)]
    fn is_head(&self) -> bool {
        self.rows.index == self.head
    }
}

/// A row of the addend, in shared memory of the thread's own if it was called for.
struct PrefetchedAddend<'a> {
    /// The launch's factor of it.
    factor: f32,
    /// Whether it was, and was waited for.
    arrived: bool,
    places: PrefetchPlaces,
    memory: InMemory<'a>,
}

/// Where what is called for comes to.
struct PrefetchPlaces {
    /// 16 bytes for the thread's load of the row.
    load: Shared,
    /// A float for the row's factor, if rows have some.
    scale: Option<Shared>,
}

impl Addend for PrefetchedAddend<'_> {
    #[inline(always)]
    unsafe fn factor(&self) -> f32 {
        match self.places.scale {
            // SAFETY: the thread's own copy has arrived; else the launch contract.
            Some(scale) if self.arrived => self.factor * unsafe { scale.load_f32() },
            Some(_) => self.factor * unsafe { self.memory.scale() },
            None => self.factor,
        }
    }
    #[inline(always)]
    unsafe fn half(&self, half: u32) -> [u32; 2] {
        // SAFETY: as above.
        unsafe {
            if self.arrived {
                let at = half * VECTOR_BYTES / 2;
                self.places.load.offset(at).load_u32x2()
            } else {
                self.memory.half(half)
            }
        }
    }
}

/// How a sub-warp's share ended.
#[derive(Clone, Copy)]
struct Ends {
    /// Its first row began before the share and ended in it.
    head: bool,
    /// Its last row goes on after it.
    open: bool,
}

impl<V: Vector, T: Sums<V>, L: Lanes> Tile<V, T, L> {
    /// The weights of edges where nothing reads them.
    const ONES: [u32; 4] = [0; 4];

    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn new<W: Weights, S: Scaling, O: Order>(params: &SpmmParams) -> Self {
        let warp_edges = (1 << params.cta_edges_log2) / WARPS_PER_CTA;
        // No sum leaves 32 bits, unless the last edges do.
        let base = (block_idx_x() << params.cta_edges_log2) + warp_id() * warp_edges;
        let warp_end = base.saturating_add(warp_edges).min(params.edges);
        let sub_warp = L::sub_warp(params, lane_id());
        Self {
            memory: Shared::base(),
            warp: (base, warp_end),
            share: share::<O>(params, (base, warp_end), warp_edges, sub_warp),
            load: Load::of::<V, W, L>(params),
            addend_factor: if S::EPILOGUE {
                // SAFETY: the caller's promise.
                unsafe { addend_factor(params) }
            } else {
                0.0
            },
            unit: 1.0,
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

    /// Where its row is: behind what weights have there.
    #[inline(always)]
    fn row_id<W: Weights>(&self, params: &SpmmParams, edge: u32) -> Shared {
        self.of_edge(params, words::<W>(), edge)
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
        L::of_cta(params, thread_idx_x_anew())
    }

    /// Whether the lane is the first of its sub-warp.
    #[inline(always)]
    fn leads(&self, params: &SpmmParams) -> bool {
        L::place(params, thread_idx_x_anew()) == 0
    }

    /// Stage 1: the warp's edges go to shared memory, four a lane, each array read once and in whole lines.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn cache_edges<W: Weights, O: Order>(&self, params: &SpmmParams) {
        let (base, end) = self.warp;
        let mut edge = base.saturating_add(lane_id() * 4);
        let four = |edge: u32| {
            let columns = Global::<u32>::new(params.columns).at(edge as u64);
            // SAFETY: edges before `end` are edges of the graph, arrays of edges are 16-byte aligned, and `edge` is a multiple
            // of 4.
            unsafe { Global::<[u32; 4]>::cast(columns).load_once_if(edge < end && end - edge >= 4) }
        };
        let four_rows = |edge: u32| {
            let rows = Global::<u32>::new(params.rows).at(edge as u64);
            // SAFETY: as above.
            unsafe { Global::<[u32; 4]>::cast(rows).load_once_if(edge < end && end - edge >= 4) }
        };
        let mut ahead = four(edge);
        while edge < end {
            // Beside the columns, so that one wait is for both.
            let ids = if O::CACHES_ROWS {
                four_rows(edge)
            } else {
                [0; 4]
            };
            let at = edge as u64;
            let columns = Global::<u32>::new(params.columns).at(at);
            let four_columns = ahead;
            let next = edge.saturating_add(4 * WARP);
            if !W::OF_ROWS {
                ahead = four(next);
            }
            let rows = Global::<u32>::new(params.rows).at(at);
            // SAFETY: edges before `end` are edges of the graph, arrays of edges are 16-byte aligned, `edge` is a
            // multiple of 4, and no other lane writes these words.
            unsafe {
                if end - edge >= 4 {
                    let columns = four_columns;
                    self.column(params, edge).store_u32x4(columns);
                    if O::CACHES_ROWS {
                        self.row_id::<W>(params, edge).store_u32x4(ids);
                    }
                    if W::WEIGHTED {
                        let rows = if W::OF_ROWS {
                            Global::<[u32; 4]>::cast(rows).read()
                        } else {
                            [0; 4]
                        };
                        let (weights, terms) = W::four_termed::<V>(params, at, rows, columns);
                        self.weight(params, edge).store_u32x4(weights);
                        if W::TERMED {
                            let terms = terms.map(f32::to_bits);
                            self.term(params, edge).store_u32x4(terms);
                        }
                    }
                } else {
                    let mut i = 0;
                    while i < end - edge {
                        let column = columns.at(i as u64).read();
                        self.column(params, edge + i).store_u32(column);
                        if O::CACHES_ROWS {
                            let id = rows.at(i as u64).read();
                            self.row_id::<W>(params, edge + i).store_u32(id);
                        }
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
            edge = next;
            if W::OF_ROWS {
                ahead = four(next);
            }
        }
    }

    /// Stage 2: the sub-warp walks its edges, adds up each row and writes the rows that lie inside its share. The first
    /// and the last row, where they do not, go to the merge areas.
    ///
    /// # Safety
    /// The launch contract, after stage 1 and a barrier of the warp; `asked` is of the share.
    #[inline(always)]
    unsafe fn walk<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>, O: Order>(
        &self,
        params: &SpmmParams,
        asked: O::Asked,
    ) -> Ends {
        let (first, end) = self.share;
        if first == end {
            return Ends {
                head: false,
                open: false,
            };
        }
        let x = Global::<<A::Input as Input>::Bits>::new(params.x).at(self.load.index as u64);
        let fetch = |column: u32| {
            // SAFETY: the host validated the columns, and the lane's load is one of the row's.
            A::Input::from_bits(unsafe { x.row(column, params.x_stride * VECTOR_BYTES).load() })
        };
        // SAFETY: `first` and `end - 1` are edges of the warp, and past the last edge there is one more start.
        unsafe {
            let id = if O::CACHES_ROWS {
                self.row_id::<W>(params, first).load_u32()
            } else {
                0
            };
            let (mut order, rows, begins) = O::begin(params, asked, first, id);
            let mut segment = Segment::<A::Sum> {
                head: if begins { NONE } else { rows.index },
                sum: A::start(params, rows.row, self.load.index),
                rows,
            };
            if !segment.is_head() {
                self.call::<W, S>(params, segment.rows.row);
            } else if S::EPILOGUE && params.addend_factor != 0.0 {
                // It is wanted after the CTA's barrier, if it ends here, where nothing hides what memory takes. Its number is waited for beside
                // those of the rows that other sub-warps call for.
                addend_load::<V::Bits>(params, segment.rows.row, self.load.index).prefetch();
            }
            let mut edge = first;
            // Edges from one of the sub-warp's to its next.
            let stride = if O::IN_TURN { L::sub_warps(params) } else { 1 };
            // In turn they may leave 32 bits behind the last.
            let after = |edge: u32, count: u32| {
                if O::IN_TURN {
                    edge.saturating_add(count * stride)
                } else {
                    edge + count
                }
            };
            // Four words of shared memory, of the next four edges.
            let four = |place: Shared| {
                if O::IN_TURN {
                    let at = |i: u32| place.offset(i * stride * 4).load_u32();
                    [at(0), at(1), at(2), at(3)]
                } else {
                    place.load_u32x4()
                }
            };
            // The next four edges, of these rows of `x`. A function in its place has conversions moved past branches.
            macro_rules! add_four {
                ($values:expr) => {
                    let values = $values;
                    let [a, b, c, d] = values;
                    let weights = if W::WEIGHTED {
                        four(self.weight(params, edge))
                    } else {
                        Self::ONES
                    };
                    let terms = if W::TERMED {
                        four(self.term(params, edge)).map(f32::from_bits)
                    } else {
                        [0.0; 4]
                    };
                    // Sub-warps of a warp end rows at different edges. They part only where one does, and add together: a way of
                    // its own for steps without a start would be walked beside this one.
                    let ids = if O::CACHES_ROWS {
                        four(self.row_id::<W>(params, edge))
                    } else {
                        [0; 4]
                    };
                    let starting = order.four(segment.rows.row, ids);
                    let edges = [
                        (weights[0], terms[0], a),
                        (weights[1], terms[1], b),
                        (weights[2], terms[2], c),
                        (weights[3], terms[3], d),
                    ];
                    segment = self.step::<0, W, S, A, O>(params, segment, (starting, ids[0]), edges[0]);
                    segment = self.step::<1, W, S, A, O>(params, segment, (starting, ids[1]), edges[1]);
                    segment = self.step::<2, W, S, A, O>(params, segment, (starting, ids[2]), edges[2]);
                    segment = self.step::<3, W, S, A, O>(params, segment, (starting, ids[3]), edges[3]);
                    if starting != 0 {
                        self.call::<W, S>(params, segment.rows.row);
                    }
                    edge = after(edge, IN_FLIGHT);
                    order.pass(params, IN_FLIGHT, edge, edge < end);
                };
            }
            // The next `count` edges at once, at most four, of these rows of `x`. A row that begins among them ends the one before, of which
            // their first ones are: sub-warps that end rows at different edges do so together, by one copy of what ends a row.
            macro_rules! add_together {
                ($values:expr, $count:expr) => {
                    let count: u32 = $count;
                    let x = A::together($values);
                    let mut words = self.weight(params, edge).load_u32x4();
                    let mut terms = if W::TERMED {
                        self.term(params, edge).load_u32x4().map(f32::from_bits)
                    } else {
                        [0.0; 4]
                    };
                    // Past the last edge there is one more start.
                    let mut starting = order.four(segment.rows.row, [0; 4]) & ((1 << count) - 1);
                    while starting != 0 {
                        let before = (starting & starting.wrapping_neg()) - 1;
                        segment.sum = A::add_four(segment.sum, A::weights_of(words, before), x);
                        words = A::weights_of(words, !before);
                        if W::TERMED {
                            segment.sum = add_terms::<V, A>(segment.sum, terms_of(terms, before));
                            terms = terms_of(terms, !before);
                        }
                        segment = self.end::<W, S, A, O>(params, segment, false, 0);
                        starting &= starting - 1;
                    }
                    segment.sum = A::add_four(segment.sum, words, x);
                    if W::TERMED {
                        segment.sum = add_terms::<V, A>(segment.sum, terms);
                    }
                    edge += count;
                    order.pass(params, count, edge, edge < end);
                };
            }
            if A::WHOLE_WEIGHTS {
                const { assert!(!A::WHOLE_WEIGHTS || !O::CACHES_ROWS && !S::EPILOGUE) };
                while end - edge >= IN_FLIGHT {
                    let columns = self.column(params, edge).load_u32x4();
                    add_together!(columns.map(fetch), IN_FLIGHT);
                }
                if edge < end {
                    // At the end of the graph. The first one's row stands for those that there are not, which have no weight.
                    let count = end - edge;
                    let column = |i: u32| {
                        let edge = if i < count { edge + i } else { edge };
                        self.column(params, edge).load_u32()
                    };
                    add_together!(
                        [column(0), column(1), column(2), column(3)].map(fetch),
                        count
                    );
                }
            }
            if by_eight::is_taken::<V, W, S, A, O>() {
                (order, segment, edge) =
                    self.by_eight::<W, S, A, O>(params, order, segment, edge, &fetch);
            }
            // Shares begin at multiples of a step; no sum here leaves 32 bits.
            if O::IN_TURN {
                while edge < end && end - edge > (IN_FLIGHT - 1) * stride {
                    let columns = four(self.column(params, edge));
                    add_four!(columns.map(fetch));
                }
            } else if !A::WHOLE_WEIGHTS {
                while edge < end & !(IN_FLIGHT - 1) {
                    let columns = four(self.column(params, edge));
                    add_four!(columns.map(fetch));
                }
            }
            while !A::WHOLE_WEIGHTS && edge < end {
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
                let id = if O::CACHES_ROWS {
                    self.row_id::<W>(params, edge).load_u32()
                } else {
                    0
                };
                let starting = order.one(segment.rows.row, id);
                segment = self.step::<0, W, S, A, O>(params, segment, (starting, id), edge_alone);
                if starting != 0 {
                    self.call::<W, S>(params, segment.rows.row);
                }
                edge = after(edge, 1);
                order.pass(params, 1, edge, edge < end);
            }
            let open = order.goes_on(segment.rows.row);
            let scale = self.scale::<A>(params, &segment.rows);
            if open && S::ATOMIC {
                let sums = A::finish(segment.sum).leave::<S>(scale);
                self.add_to_output(params, segment.rows.row, sums);
            } else if open {
                let sums = A::finish(segment.sum).leave::<S>(scale);
                if S::EPILOGUE {
                    // What was called for comes to the same place.
                    async_copy::wait::<0>();
                }
                self.put(Self::OPEN_AREA, sums);
            } else {
                self.flush::<W, S, A>(params, &segment, true);
            }
            if self.leads(params) {
                let flags = if open {
                    OPEN | if segment.is_head() { THROUGH } else { 0 }
                } else {
                    0
                };
                self.of_sub_warp(shared::FLAGS, self.sub_warp(params))
                    .store_u32(flags);
            }
            Ends {
                head: segment.head != NONE && !(open && segment.is_head()),
                open,
            }
        }
    }

    /// One more edge, of this weight, term and row of `x`: that of this number of those whose bits are in `starting`, where
    /// the bit of an edge is set if it begins a new row; `id` is its row where those are cached.
    ///
    /// # Safety
    /// As [`Tile::walk`]; the edge follows those of the segment.
    #[inline(always)]
    unsafe fn step<
        const NUMBER: u32,
        W: Weights,
        S: Scaling,
        A: Accumulate<V, Sums = T>,
        O: Order,
    >(
        &self,
        params: &SpmmParams,
        mut segment: Segment<A::Sum>,
        (starting, id): (u32, u32),
        edge: (u32, f32, A::Input),
    ) -> Segment<A::Sum> {
        // SAFETY: the caller's promise.
        unsafe {
            if starting & 1 << NUMBER != 0 {
                let called = starting & ((1 << NUMBER) - 1) == 0;
                segment = self.end::<W, S, A, O>(params, segment, called, id);
            }
            let scale = segment.rows.scale(params);
            segment.sum = add::<V, W, S, A>(segment.sum, scale, edge);
        }
        segment
    }

    /// [Ends](Tile::flush) the row of a segment, and begins the next, that of an edge which is in row `id` where rows are cached.
    ///
    /// # Safety
    /// As [`Tile::walk`]; there is a next row.
    #[inline(always)]
    unsafe fn end<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>, O: Order>(
        &self,
        params: &SpmmParams,
        segment: Segment<A::Sum>,
        called: bool,
        id: u32,
    ) -> Segment<A::Sum> {
        // SAFETY: the caller's promise.
        unsafe {
            self.flush::<W, S, A>(params, &segment, called);
            let rows = O::next(params, segment.rows, id);
            Segment {
                // In turn, a sub-warp has no row for itself.
                head: if O::IN_TURN { rows.index } else { segment.head },
                sum: A::start(params, rows.row, self.load.index),
                rows,
            }
        }
    }

    /// Has the lane's load of row `row` of the addend and the row's factor come to shared memory while the row's edges are walked,
    /// for the epilogue: in registers it would be too many of them, and waited for at the end it would stop the whole warp.
    /// After a step and not where the row begins: there its number would have to be waited for. A row that begins and ends in
    /// one step has not been called for.
    ///
    /// # Safety
    /// As [`Tile::walk`]; what was called before has been used, or never will be.
    #[inline(always)]
    unsafe fn call<W: Weights, S: Scaling>(&self, params: &SpmmParams, row: u32) {
        if S::EPILOGUE && params.addend_factor != 0.0 {
            let PrefetchPlaces { load, scale } = self.places::<W>(params);
            let source = addend_load::<V::Bits>(params, row, self.load.index).address();
            // SAFETY: the thread's own places, which it has read from before it asks for the next; the load is one of the row's,
            // and where rows have factors there is one for each.
            unsafe {
                async_copy::copy_16(load, source, true);
                if let Some(scale) = scale {
                    async_copy::copy_4(scale, addend_scale(params, row).address());
                }
            }
            async_copy::commit();
        }
    }

    /// Where what is called for comes to: the load to the thread's own first piece of the second merge area, which is wanted
    /// when no row is called for any more.
    #[inline(always)]
    fn places<W: Weights>(&self, params: &SpmmParams) -> PrefetchPlaces {
        let scales = shared_bytes(T::FLOATS, params.cta_edges_log2, words::<W>());
        let thread = thread_idx_x_anew();
        PrefetchPlaces {
            load: T::place(self.memory.offset(Self::OPEN_AREA), thread, 0),
            scale: (!params.addend_scale.is_null())
                .then(|| self.memory.offset(scales + thread * 4)),
        }
    }

    /// Ends a row, which was [called](Tile::call) for or not: to the output, or to the first merge area where it began before
    /// the share.
    ///
    /// # Safety
    /// As [`Tile::walk`].
    #[inline(always)]
    unsafe fn flush<W: Weights, S: Scaling, A: Accumulate<V, Sums = T>>(
        &self,
        params: &SpmmParams,
        segment: &Segment<A::Sum>,
        called: bool,
    ) {
        let (row, scale) = (segment.rows.row, self.scale::<A>(params, &segment.rows));
        let sums = A::finish(segment.sum).leave::<S>(scale);
        // SAFETY: the caller's promise; a row that lies inside the share is completed by nobody else.
        unsafe {
            if segment.is_head() && S::ATOMIC {
                self.add_to_output(params, row, sums);
            } else if segment.is_head() {
                self.put(shared::MERGE, sums);
                if self.leads(params) {
                    self.of_sub_warp(shared::HEAD_ROWS, self.sub_warp(params))
                        .store_u32(row);
                    self.of_sub_warp(shared::HEAD_SCALES, self.sub_warp(params))
                        .store_f32(scale);
                }
            } else {
                if S::EPILOGUE && called {
                    async_copy::wait::<0>();
                }
                let addend = PrefetchedAddend {
                    factor: self.addend_factor,
                    arrived: called,
                    places: self.places::<W>(params),
                    memory: InMemory {
                        params,
                        row,
                        load: self.load.index,
                    },
                };
                self.write::<S>(params, row, sums.complete::<S>(scale), addend);
            }
        }
    }

    /// Puts the lane's part of a partial row into a merge area.
    ///
    /// # Safety
    /// `area` is one of the two.
    #[inline(always)]
    unsafe fn put(&self, area: u32, sums: T) {
        // SAFETY: the area is the CTA's, and its words for the thread the thread's own.
        unsafe { sums.put(self.memory.offset(area), thread_idx_x_anew()) };
    }

    /// The part of a partial row that the same lane of sub-warp `sub_warp` put into a merge area.
    ///
    /// # Safety
    /// It did, before the CTA's barrier.
    #[inline(always)]
    unsafe fn get(&self, params: &SpmmParams, area: u32, sub_warp: u32) -> T {
        let thread = L::thread(params, sub_warp, L::place(params, thread_idx_x_anew()));
        // SAFETY: the caller's promise.
        unsafe { T::get(self.memory.offset(area), thread) }
    }

    /// Whether the lane has what its sub-warp has in common of a row, such as the sum of the terms: one lane of each head.
    #[inline(always)]
    fn has_common(&self, params: &SpmmParams) -> bool {
        block_idx_y() == 0 && self.leads(params)
    }

    /// Writes the lane's part of a complete row to the output, finished and rounded; `addend` is the same row of the addend.
    ///
    /// # Safety
    /// `row` is a row of the output that no other sub-warp completes.
    #[inline(always)]
    unsafe fn write<S: Scaling>(
        &self,
        params: &SpmmParams,
        row: u32,
        sums: T,
        addend: impl Addend,
    ) {
        // SAFETY: the caller's promise; the lane's load is one of the row's.
        unsafe {
            let sums = finish::<V, S, T>(params, self.load.index, sums, addend);
            // With an epilogue there are no registers for the address of the output's first row.
            let load = if S::EPILOGUE {
                self.load.recomputed()
            } else {
                self.load
            };
            sums.write(params, row, load, || self.has_common(params));
        }
    }

    /// Adds the lane's part of a row to the output, rounded before and after.
    ///
    /// # Safety
    /// `row` is a row of the output that no sub-warp writes in another way.
    #[inline(always)]
    unsafe fn add_to_output(&self, params: &SpmmParams, row: u32, sums: T) {
        sums.output(params, 0, row, self.load, |place, value| {
            // SAFETY: the caller's promise; the load is one of the row's.
            unsafe { value.add_to(place) }
        });
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
                    let addend = InMemory {
                        params,
                        row,
                        load: self.load.index,
                    };
                    self.write::<S>(params, row, sums.complete::<S>(scale), addend);
                }
            }
            let last = self.sub_warp(params) + 1 == WARPS_PER_CTA * L::sub_warps(params);
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
        if self.load.is_active() {
            let slot = (block_idx_x(), slot);
            // SAFETY: the caller's promise; an active lane's load is one of the row's.
            unsafe { sums.stage(params, slot, self.load.index, || self.has_common(params)) };
        }
    }
}
