//! The counts of right and wrong answers, a sub-warp a row, and what all losses by rows have in common.

use crate::device::global::{Global, count_one};
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use crate::device::warp::{self, ballot, lane_id, warp_id};
use core::marker::PhantomData;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::loss::{LossParams, NO_TARGET, OUTCOMES};
use halfgnn_contract::optimizer::state;
use halfgnn_contract::{DevicePtr, WARP};

const WARPS: u32 = THREADS_PER_CTA / WARP;

/// # Safety
/// The launch contract of [`LossParams`]: `ctas` CTAs of `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn count_correct<V: Vector>(params: &LossParams) {
    let mut correct = [0; 3];
    // SAFETY: every lane of the warp comes with the same number of rows; `row` has lanes that are there.
    unsafe {
        for_rows(params, |place| {
            let split = place.word(params.splits);
            if ballot(split != NO_TARGET) == 0 {
                return;
            }
            let first = Row::<V>::new(params, &place).first_of_largest();
            if place.lane == 0 && first > 0 && first - 1 == place.word(params.labels) {
                correct[0] += (split == 0) as u32;
                correct[1] += (split == 1) as u32;
                correct[2] += (split == 2) as u32;
            }
        });
        let [a, b, c] = correct;
        let add = |a: u32, b: u32| a + b;
        leave(
            params,
            [
                warp::combine(a, WARP, add),
                warp::combine(b, WARP, add),
                warp::combine(c, WARP, add),
                0,
            ],
            add,
        );
    }
}

/// # Safety
/// The launch contract of [`LossParams`]: `ctas` CTAs of `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn count_classes<V: Vector>(params: &LossParams) {
    // SAFETY: every lane of the warp comes with the same number of rows; classes below `columns` have counts.
    unsafe {
        for_rows(params, |place| {
            let split = place.word(params.splits);
            if ballot(split != NO_TARGET) == 0 {
                return;
            }
            let row = Row::<V>::new(params, &place);
            let first = row.first_of_largest();
            if place.lane != 0 || split >= 3 {
                return;
            }
            let label = place.word(params.labels);
            let told = first.wrapping_sub(1);
            if told == label && label < params.columns {
                count_one(row.outcome(split, label, 0));
                return;
            }
            // A row with a NaN tells nothing.
            if told < params.columns {
                count_one(row.outcome(split, told, 1));
            }
            if label < params.columns {
                count_one(row.outcome(split, label, 2));
            }
        });
    }
}

/// The loss scale.
///
/// # Safety
/// The launch contract of [`LossParams`].
#[inline(always)]
pub(super) unsafe fn scale(params: &LossParams) -> f32 {
    // SAFETY: the state has its words.
    f32::from_bits(unsafe {
        Global::<u32>::new(params.state)
            .at(state::LOSS_SCALE as u64)
            .read()
    })
}

/// The sum of the floats whose bits they are.
#[inline(always)]
pub(super) fn add_floats(a: u32, b: u32) -> u32 {
    (f32::from_bits(a) + f32::from_bits(b)).to_bits()
}

/// # Safety
/// The launch contract of [`LossParams`]: one CTA.
#[inline(always)]
pub unsafe fn reduce_loss(params: &LossParams) {
    // SAFETY: the caller's promise.
    unsafe {
        let [sum, ..] = reduce(params, add_floats);
        if thread_idx_x() == 0 {
            Global::<f32>::new(params.result).store(f32::from_bits(sum) / params.divisor);
        }
    }
}

/// # Safety
/// The launch contract of [`LossParams`]: one CTA.
#[inline(always)]
pub unsafe fn reduce_counts(params: &LossParams) {
    // SAFETY: the caller's promise.
    unsafe {
        let [a, b, c, _] = reduce(params, |a, b| a + b);
        if thread_idx_x() == 0 {
            let result = Global::<u32>::new(params.result);
            result.store(a);
            result.at(1).store(b);
            result.at(2).store(c);
        }
    }
}

/// The partial results of all CTAs as one, in thread 0.
///
/// # Safety
/// The launch contract; every thread of the one CTA comes through here.
#[inline(always)]
unsafe fn reduce(params: &LossParams, combine: impl Fn(u32, u32) -> u32 + Copy) -> [u32; 4] {
    let mut sum = [0; 4];
    let mut at = thread_idx_x();
    // SAFETY: there are `ctas` partials; all lanes meet again after the loop.
    unsafe {
        while at < params.ctas {
            let other: [u32; 4] = Global::<[u32; 4]>::new(params.partials)
                .at(at as u64)
                .read();
            sum = combine_words(sum, other, combine);
            at += THREADS_PER_CTA;
        }
        combine_warps(sum.map(|word| warp::combine(word, WARP, combine)), combine)
    }
}

/// Leaves the CTA's partial result, from that of each warp.
///
/// # Safety
/// Every thread of the CTA comes through here, all lanes of a warp with the same words.
#[inline(always)]
pub(super) unsafe fn leave(
    params: &LossParams,
    words: [u32; 4],
    combine: impl Fn(u32, u32) -> u32 + Copy,
) {
    // SAFETY: the caller's promise; a partial for each CTA.
    unsafe {
        let words = combine_warps(words, combine);
        if thread_idx_x() == 0 {
            Global::<[u32; 4]>::new(params.partials)
                .at(block_idx_x() as u64)
                .store(words);
        }
    }
}

/// The words of all warps as one, in thread 0.
///
/// # Safety
/// Every thread of the CTA comes through here, all lanes of a warp with the same words.
#[inline(always)]
unsafe fn combine_warps(words: [u32; 4], combine: impl Fn(u32, u32) -> u32 + Copy) -> [u32; 4] {
    let slot = |warp: u32| Shared::base().offset(warp * 16);
    let mut sum = words;
    // SAFETY: sixteen bytes a warp; the barrier orders the stores before the loads.
    unsafe {
        if lane_id() == 0 {
            slot(warp_id()).store_u32x4(words);
        }
        sync_threads();
        if thread_idx_x() == 0 {
            let mut warp = 1;
            while warp < WARPS {
                sum = combine_words(sum, slot(warp).load_u32x4(), combine);
                warp += 1;
            }
        }
    }
    sum
}

#[inline(always)]
fn combine_words(
    [a, b, c, d]: [u32; 4],
    [e, f, g, h]: [u32; 4],
    combine: impl Fn(u32, u32) -> u32,
) -> [u32; 4] {
    [combine(a, e), combine(b, f), combine(c, g), combine(d, h)]
}

/// A row of logits as one lane of its sub-warp sees it.
pub(super) struct Place {
    /// The row.
    at: u64,
    /// Whether there is such a row; the last CTA may have less than it could take.
    exists: bool,
    /// Lane in the sub-warp.
    lane: u32,
    /// Lanes of the sub-warp.
    lanes: u32,
}

impl Place {
    /// The row's word in an array of one a row; [`NO_TARGET`] where there is no row.
    ///
    /// # Safety
    /// The array has a word for each row, and nothing writes it during the launch.
    #[inline(always)]
    pub(super) unsafe fn word(&self, array: DevicePtr<u32>) -> u32 {
        if self.exists {
            // SAFETY: the caller's promise.
            unsafe { Global::<u32>::new(array).at(self.at).read() }
        } else {
            NO_TARGET
        }
    }

    /// What the row counts.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    pub(super) unsafe fn weight(&self, params: &LossParams) -> f32 {
        let weights = Global::<f32>::new(params.row_weights);
        if weights.is_null() || !self.exists {
            return 1.0;
        }
        // SAFETY: the caller's promise: a weight for each row.
        unsafe { weights.at(self.at).read() }
    }

    /// The values of all lanes of the sub-warp as one, in every one of them.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    unsafe fn all<T: warp::Shuffle>(&self, value: T, combine: impl Fn(T, T) -> T) -> T {
        // SAFETY: the caller's promise; sub-warps have as many lanes.
        unsafe { warp::combine(value, self.lanes, combine) }
    }
}

/// Calls `f` for each row of the sub-warp, as often in every lane of the CTA.
///
/// # Safety
/// The launch contract.
#[inline(always)]
pub(super) unsafe fn for_rows(params: &LossParams, mut f: impl FnMut(Place)) {
    let lanes = 1 << params.lanes_log2;
    let first = block_idx_x() as u64 * params.rows_per_cta as u64;
    let mut i = thread_idx_x() >> params.lanes_log2;
    while i < params.rows_per_cta {
        let at = first + i as u64;
        f(Place {
            at,
            exists: at < params.rows,
            lane: thread_idx_x() & (lanes - 1),
            lanes,
        });
        i += THREADS_PER_CTA >> params.lanes_log2;
    }
}

/// The logits of a row.
pub(super) struct Row<'a, V> {
    params: &'a LossParams,
    place: &'a Place,
    vector: PhantomData<V>,
}

impl<'a, V: Vector> Row<'a, V> {
    #[inline(always)]
    pub(super) fn new(params: &'a LossParams, place: &'a Place) -> Self {
        Self {
            params,
            place,
            vector: PhantomData,
        }
    }

    /// Calls `f(vector of the matrix, vector of the row)` for the lane's vectors, none where there is no row.
    #[inline(always)]
    pub(super) fn for_each_vector(&self, mut f: impl FnMut(u64, u32)) {
        self.with_first(&mut f);
        self.for_each_other(f);
    }

    /// [`Row::for_each_vector`] of the lane's first vector, the only one of a row of up to 32.
    #[inline(always)]
    fn with_first(&self, f: impl FnOnce(u64, u32)) {
        if self.place.exists && self.place.lane < self.params.vectors {
            f(self.at(self.place.lane), self.place.lane);
        }
    }

    /// [`Row::for_each_vector`] of the others.
    #[inline(always)]
    fn for_each_other(&self, mut f: impl FnMut(u64, u32)) {
        let mut vector = if self.place.exists {
            self.place.lane + self.place.lanes
        } else {
            self.params.vectors
        };
        while vector < self.params.vectors {
            f(self.at(vector), vector);
            vector += self.place.lanes;
        }
    }

    /// Where in the matrix a vector of the row is.
    #[inline(always)]
    fn at(&self, vector: u32) -> u64 {
        self.place.at * self.params.vectors as u64 + vector as u64
    }

    /// The logits of the lane's first vector, to be kept in registers; -∞ where there is no such class.
    #[inline(always)]
    fn first(&self) -> V::Floats {
        let mut logits = V::Floats::ZERO.map(|_| f32::NEG_INFINITY);
        self.with_first(|at, vector| {
            let loaded = self.load(at);
            let mut i = 0;
            while i < V::WIDTH {
                if vector * V::WIDTH + i < self.params.columns {
                    logits = logits.with(i as usize, loaded.get(i as usize));
                }
                i += 1;
            }
        });
        logits
    }

    #[inline(always)]
    pub(super) fn load(&self, at: u64) -> V::Floats {
        // SAFETY: `at` is a vector of the logits, which nothing writes during the launch.
        V::from_bits(unsafe { Global::<V::Bits>::new(self.params.logits).at(at).read() }).widen()
    }

    /// One more than the first class of the largest logit, the same in every lane of the sub-warp; 0 where there is a NaN.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    unsafe fn first_of_largest(&self) -> u32 {
        let max = self.fold(self.first(), f32::NEG_INFINITY, f32::max);
        // SAFETY: the caller's promise.
        let max = unsafe { self.place.all(max, f32::max) };
        // The first of the largest; a NaN comes before all.
        let first = self.fold_u32(u32::MAX, |first, class, logit| {
            if logit.is_nan() {
                0
            } else if logit == max {
                first.min(class + 1)
            } else {
                first
            }
        });
        // SAFETY: the caller's promise.
        unsafe { self.place.all(first, |a: u32, b| a.min(b)) }
    }

    /// What the element of a column should be.
    ///
    /// # Safety
    /// The row exists, `column` is one of its columns, and there are targets.
    #[inline(always)]
    pub(super) unsafe fn target(&self, column: u32) -> f32 {
        let first = self.place.at * self.params.target_vectors as u64 * 4;
        // SAFETY: a target of the row.
        unsafe {
            Global::<f32>::new(self.params.targets)
                .at(first + column as u64)
                .read()
        }
    }

    /// Where an outcome of a column is counted.
    #[inline(always)]
    pub(super) fn outcome(&self, split: u32, column: u32, outcome: u32) -> Global<u32> {
        let column = split as u64 * self.params.columns as u64 + column as u64;
        Global::<u32>::new(self.params.result).at(column * OUTCOMES as u64 + outcome as u64)
    }

    /// Folds over the lane's logits, in order, with their classes.
    #[inline(always)]
    fn fold_u32(&self, mut value: u32, f: impl Fn(u32, u32, f32) -> u32) -> u32 {
        self.for_each_vector(|at, vector| value = self.fold_vector(value, at, vector, &f));
        value
    }

    /// Folds over the lane's logits, in order, of which `first` is [`Row::first`].
    #[inline(always)]
    fn fold(&self, first: V::Floats, value: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
        self.fold_rest(each::<V>(first, value, &f), f)
    }

    /// Folds over the logits of the lane's vectors but the first, in order.
    #[inline(always)]
    fn fold_rest(&self, value: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
        let f = |value: u32, _: u32, logit| f(f32::from_bits(value), logit).to_bits();
        let mut value = value.to_bits();
        self.for_each_other(|at, vector| value = self.fold_vector(value, at, vector, &f));
        f32::from_bits(value)
    }

    /// Folds over the logits of one vector.
    #[inline(always)]
    fn fold_vector(
        &self,
        mut value: u32,
        at: u64,
        vector: u32,
        f: &impl Fn(u32, u32, f32) -> u32,
    ) -> u32 {
        let logits = self.load(at);
        let mut i = 0;
        while i < V::WIDTH {
            let class = vector * V::WIDTH + i;
            if class < self.params.columns {
                value = f(value, class, logits.get(i as usize));
            }
            i += 1;
        }
        value
    }
}

/// Folds over a vector's elements, in order.
#[inline(always)]
fn each<V: Vector>(values: V::Floats, mut value: f32, f: impl Fn(f32, f32) -> f32) -> f32 {
    let mut i = 0;
    while i < V::WIDTH {
        value = f(value, values.get(i as usize));
        i += 1;
    }
    value
}
