//! Dots of features with attention vectors, head by head, their gradients, and means over heads.

use crate::device::float::mul_add;
use crate::device::global::Global;
use crate::device::integer::divide;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, sync_threads, thread_idx_x};
use crate::device::vector::{Floats, Vector, dot, without_padding};
use crate::device::warp;
use halfgnn_contract::elementwise::row_in_cta;
use halfgnn_contract::heads::{
    HeadDotsParams, HeadMeanParams, HeadOuterParams, HeadScoresParams, Heads, SUM_VECTORS,
    THREADS_PER_CTA,
};
use halfgnn_contract::{DevicePtr, HalfBits};

/// The functions that the entries are, by name.
pub mod family {
    pub use super::{
        dots as head_dots, dots_sums as head_dots_sums, mean as head_mean,
        mean_backward as head_mean_backward, outer as head_outer, scores as head_scores,
        sums as head_sums,
    };
}

/// A head of a row, as one lane of its sub-warp sees it.
pub struct Item {
    head: u32,
    row: u64,
    /// The place of its numbers in planes of numbers of vertices.
    pub at: u64,
    /// The first vector of the head in the matrix.
    vector: u64,
    /// The first vector of the head in a row.
    column: u64,
    /// Vectors of the head; none where there is no such row.
    vectors: u32,
    lane: u32,
    lanes: u32,
}

impl Item {
    /// Calls `f(place in the matrix, place in the row)` for the lane's vectors.
    #[inline(always)]
    pub fn for_vectors(&self, mut f: impl FnMut(u64, u64)) {
        let mut vector = self.lane;
        while vector < self.vectors {
            f(self.vector + vector as u64, self.column + vector as u64);
            vector += self.lanes;
        }
    }

    /// Folds over the lane's vectors with `f(value, place in the matrix, place in the row)`, then over the lanes with
    /// `combine`.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    pub unsafe fn fold(
        &self,
        mut value: f32,
        f: impl Fn(f32, u64, u64) -> f32,
        combine: impl Fn(f32, f32) -> f32,
    ) -> f32 {
        self.for_vectors(|at, column| value = f(value, at, column));
        // SAFETY: the caller's promise.
        let [value] = unsafe { self.combine([value], combine) };
        value
    }

    /// The values of all lanes of the sub-warp as one, in every one of them.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    unsafe fn combine<const N: usize>(
        &self,
        values: [f32; N],
        combine: impl Fn(f32, f32) -> f32,
    ) -> [f32; N] {
        // SAFETY: the caller's promise; sub-warps have as many lanes.
        unsafe { warp::combine_each(values, self.lanes, combine) }
    }

    /// Whether this lane writes the item's result.
    #[inline(always)]
    pub fn writes(&self) -> bool {
        self.lane == 0 && self.vectors > 0
    }

    /// Where the number of the row as one of so many destinations stands, and whether it is one.
    #[inline(always)]
    fn as_destination(&self, numbers: DevicePtr<f32>, destinations: u64) -> (Global<f32>, bool) {
        as_destination(numbers, destinations, self.head, self.row)
    }
}

/// Where the number of a head of a row as one of so many destinations stands, and whether the row is one.
#[inline(always)]
fn as_destination(
    numbers: DevicePtr<f32>,
    destinations: u64,
    head: u32,
    row: u64,
) -> (Global<f32>, bool) {
    let place = Global::new(numbers).at(head as u64 * destinations + row);
    (place, row < destinations)
}

/// Calls `f` for each item of the sub-warp, as often in every lane of the CTA.
#[inline(always)]
pub fn for_items(heads: &Heads, mut f: impl FnMut(Item)) {
    let lanes = 1 << heads.lanes_log2;
    let sub_warps = THREADS_PER_CTA >> heads.lanes_log2;
    let first_row = block_idx_x() as u64 * heads.rows_per_cta as u64;
    let rows = heads.rows.saturating_sub(first_row);
    let items = rows.min(heads.rows_per_cta as u64) as u32 * heads.heads;
    let mut first = 0;
    while first < items {
        let item = first + (thread_idx_x() >> heads.lanes_log2);
        let row_in_cta = row_in_cta(item, heads.reciprocal);
        let head = item - row_in_cta * heads.heads;
        let row = first_row + row_in_cta as u64;
        let column = head as u64 * heads.head_vectors as u64;
        f(Item {
            head,
            row,
            at: head as u64 * heads.rows + row,
            vector: row * heads.stride as u64 + column,
            column,
            vectors: if item < items { heads.head_vectors } else { 0 },
            lane: thread_idx_x() & (lanes - 1),
            lanes,
        });
        first += sub_warps;
    }
}

/// # Safety
/// `at` is a vector of the matrix, which nothing writes during the launch.
#[inline(always)]
unsafe fn read<V: Vector>(matrix: DevicePtr<HalfBits>, at: u64) -> V::Floats {
    // SAFETY: the caller's promise.
    V::from_bits(unsafe { Global::<V::Bits>::new(matrix).at(at).read() }).widen()
}

/// # Safety
/// The launch contract of [`HeadScoresParams`]: CTAs of [`Heads::ctas`].
#[inline(always)]
pub unsafe fn scores<V: Vector>(params: &HeadScoresParams) {
    let stride = params.heads.stride as u64;
    // The two attention vectors at the column that the lane last had, which is mostly that of its next row.
    let (mut kept, mut kept_column) = ([V::Floats::ZERO; 2], u32::MAX);
    for_items(&params.heads, |item| {
        // SAFETY: `at` is a vector of `x`, `column` one of a row.
        unsafe {
            let mut sums = [0.0; 2];
            item.for_vectors(|at, column| {
                if column as u32 != kept_column {
                    let vector = |row| read::<V>(params.vectors, row * stride + column);
                    (kept, kept_column) = ([vector(0), vector(1)], column as u32);
                }
                let x = read::<V>(params.x, at);
                let [destination, source] = kept;
                sums = [
                    dot::<V>(sums[0], x, destination),
                    dot::<V>(sums[1], x, source),
                ];
            });
            let [destination, source] = item.combine(sums, |a, b| a + b);
            if item.writes() {
                let (place, is_destination) =
                    item.as_destination(params.destination, params.destinations);
                if is_destination {
                    place.store(destination);
                }
                Global::<f32>::new(params.source).at(item.at).store(source);
            }
        }
    });
}

/// # Safety
/// The launch contract of [`HeadDotsParams`]: CTAs of [`Heads::ctas`].
#[inline(always)]
pub unsafe fn dots<V: Vector>(params: &HeadDotsParams) {
    // SAFETY: the caller's promise.
    unsafe { dots_and_sums::<V, false>(params) }
}

/// # Safety
/// The launch contract of [`HeadDotsParams`]: CTAs of [`Heads::ctas`].
#[inline(always)]
pub unsafe fn dots_sums<V: Vector>(params: &HeadDotsParams) {
    // SAFETY: the caller's promise.
    unsafe { dots_and_sums::<V, true>(params) }
}

/// # Safety
/// The launch contract.
#[inline(always)]
unsafe fn dots_and_sums<V: Vector, const SUMS: bool>(params: &HeadDotsParams) {
    let has_c = params.c.address() != 0;
    let has_d = params.d.address() != 0;
    let has_u = params.u.address() != 0;
    let has_v = params.v.address() != 0;
    let has_vectors = SUMS || params.vectors.address() != 0;
    let mut sums = [V::Floats::ZERO; 2];
    for_items(&params.heads, |item| {
        // SAFETY: `at` is a vector of the matrices, of which only `b` may be written, by the lane that read the vector; there is a
        // number for each head of each row, and one that this launch writes is not read.
        unsafe {
            // All that an item reads is on its way at once.
            let number = |numbers: DevicePtr<f32>, is_read: bool| {
                let numbers = Global::<f32>::new(numbers).at(item.at);
                numbers.load_if(is_read && item.vectors > 0)
            };
            let mut u = number(params.u, has_u && !has_d);
            let v = number(params.v, has_v);
            let (place, is_destination) =
                item.as_destination(params.destination, params.destinations);
            let destination = place.load_if(has_vectors && is_destination && item.vectors > 0);
            let (mut sum, mut inner) = (0.0, 0.0);
            let mut kept = V::narrow(V::Floats::ZERO).to_bits();
            item.for_vectors(|at, _| {
                let vector = |matrix| Global::<V::Bits>::new(matrix).at(at);
                let a = vector(params.a).fetch();
                if SUMS {
                    kept = a;
                }
                let b = vector(params.b).load();
                let [c, d] = [(params.c, has_c), (params.d, has_d)]
                    .map(|(matrix, present)| vector(matrix).load_if(present));
                let a = V::from_bits(a).widen();
                let mut b = V::from_bits(b).widen().map(|b| b * params.beta);
                if has_c {
                    let c = V::from_bits(c).widen();
                    b = b.zip(c, |b, c| mul_add(c, params.gamma, b));
                }
                sum = dot::<V>(sum, a, b);
                if has_d {
                    inner = dot::<V>(inner, a, V::from_bits(d).widen());
                }
            });
            [sum] = item.combine([sum], |a, b| a + b);
            if has_d {
                [u] = item.combine([inner], |a, b| a + b);
                if item.writes() {
                    Global::<f32>::new(params.u).at(item.at).store(u);
                }
            }
            if has_u {
                sum = mul_add(params.delta * u, if has_v { v } else { 1.0 }, sum);
            }
            if item.writes() {
                Global::<f32>::new(params.y).at(item.at).store(sum);
            }
            if has_vectors {
                item.for_vectors(|at, column| {
                    let products = Products {
                        vectors: params.vectors,
                        stride: params.heads.stride,
                        columns: params.columns,
                    };
                    products.add::<V>([destination, sum], column, params.b, at);
                });
            }
            if SUMS {
                let a = V::from_bits(kept).widen();
                sums = add_to_sums(sums, [destination, sum], a);
            }
        }
    });
    if SUMS {
        let lanes = 1 << params.heads.lanes_log2;
        let sums_of = SumsOfGroups {
            lanes,
            vector: thread_idx_x() & (lanes - 1),
            vectors: params.heads.stride,
            columns: params.columns,
            out: params.sums,
            stride: params.sum_stride,
        };
        // SAFETY: the caller's promise; every thread of the CTA comes through here.
        unsafe { sums_of.write::<V>(sums) }
    }
}

/// Two sums of rows with one more row, times its two numbers.
#[inline(always)]
fn add_to_sums<F: Floats>(sums: [F; 2], [destination, source]: [f32; 2], x: F) -> [F; 2] {
    [
        sums[0].zip(x, |sum, x| mul_add(destination, x, sum)),
        sums[1].zip(x, |sum, x| mul_add(source, x, sum)),
    ]
}

/// Where two sums of a CTA's rows come together, of which each group of as many threads has a part, a vector a thread.
struct SumsOfGroups {
    /// Threads of a group.
    lanes: u32,
    /// The thread's vector of the row.
    vector: u32,
    /// Vectors of a row.
    vectors: u32,
    /// Columns, padding not counted.
    columns: u32,
    /// Two rows a CTA in x.
    out: DevicePtr<f32>,
    /// Distance of two of those in floats.
    stride: u32,
}

impl SumsOfGroups {
    /// Writes the CTA's two rows, of which a thread has these parts.
    ///
    /// # Safety
    /// All threads of the CTA come together, of which the lanes are a half at most, with [`halfgnn_contract::heads::SUM_SHARED_BYTES`] of shared memory;
    /// the output has two rows for each CTA.
    #[inline(always)]
    unsafe fn write<V: Vector>(&self, sums: [V::Floats; 2]) {
        // The shared word of one element of one thread; consecutive threads use consecutive banks.
        let word = |which: u32, element: u32, thread: u32| {
            let element = which * V::WIDTH + element;
            Shared::base().offset((element * THREADS_PER_CTA + thread) * 4)
        };
        let mut i = 0;
        while i < V::WIDTH {
            // SAFETY: a word for each element of each sum of each thread.
            unsafe {
                word(0, i, thread_idx_x()).store_f32(sums[0].get(i as usize));
                word(1, i, thread_idx_x()).store_f32(sums[1].get(i as usize));
            }
            i += 1;
        }
        // SAFETY: every thread of the CTA comes through here.
        unsafe { sync_threads() };
        // The first two groups write a sum each.
        let group = thread_idx_x() / self.lanes;
        if group > 1 || self.vector >= self.vectors {
            return;
        }
        let row = (block_idx_x() as u64 * 2 + group as u64) * self.stride as u64;
        let out = Global::<f32>::new(self.out).at(row);
        let mut i = 0;
        while i < V::WIDTH {
            let column = self.vector * V::WIDTH + i;
            // A float row may be shorter than a half row's padding.
            if column < self.stride {
                let mut sum = 0.0;
                let mut thread = thread_idx_x() & (self.lanes - 1);
                while thread < THREADS_PER_CTA {
                    // SAFETY: the thread stored it before the barrier.
                    sum += unsafe { word(group, i, thread).load_f32() };
                    thread += self.lanes;
                }
                let value = if column < self.columns { sum } else { 0.0 };
                // SAFETY: a column of the CTA's row of the output, the thread's own.
                unsafe { out.at(column as u64).store(value) };
            }
            i += 1;
        }
    }
}

/// Products of a row's two numbers with the two attention vectors.
struct Products {
    /// Two rows.
    vectors: DevicePtr<HalfBits>,
    /// Distance of two rows in vectors.
    stride: u32,
    /// Columns, padding not counted.
    columns: u32,
}

impl Products {
    /// Adds those of vector `column` of a row to vector `at` of a matrix.
    ///
    /// # Safety
    /// Both exist, and no other thread touches vector `at`.
    #[inline(always)]
    unsafe fn add<V: Vector>(
        &self,
        [destination, source]: [f32; 2],
        column: u64,
        matrix: DevicePtr<HalfBits>,
        at: u64,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let x = Global::<V::Bits>::new(matrix).at(at);
            let mut values = V::from_bits(x.load()).widen();
            values = values.zip(read::<V>(self.vectors, column), |x, a| {
                mul_add(destination, a, x)
            });
            values = values.zip(
                read::<V>(self.vectors, self.stride as u64 + column),
                |x, a| mul_add(source, a, x),
            );
            // A NaN or an infinite number made more than zeros of the padding.
            values = without_padding::<V>(values, column * V::WIDTH as u64, self.columns);
            x.store(V::narrow(values).to_bits());
        }
    }
}

/// The two numbers of the head of a row in which a vector lies: as destination, zero where it is none, and as source.
///
/// # Safety
/// `vector` is a vector of row `row`.
#[inline(always)]
unsafe fn numbers(params: &HeadOuterParams, row: u64, vector: u32) -> [f32; 2] {
    let head = divide(vector, params.head_vectors);
    let at = head as u64 * params.rows + row;
    let (place, is_destination) =
        as_destination(params.destination, params.destinations, head, row);
    // SAFETY: there is a number for each head of each row, and of each that is a destination.
    unsafe {
        [
            place.load_if(is_destination),
            Global::<f32>::new(params.source).at(at).read(),
        ]
    }
}

/// # Safety
/// The launch contract of [`HeadOuterParams`]: a CTA for each `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn outer<V: Vector>(params: &HeadOuterParams) {
    let first = block_idx_x() as u64 * params.rows_per_cta as u64;
    let rows = (params.rows - first).min(params.rows_per_cta as u64) as u32;
    let products = Products {
        vectors: params.vectors,
        stride: params.stride,
        columns: params.columns,
    };
    let mut i = thread_idx_x();
    while i < rows * params.stride {
        let row_in_cta = row_in_cta(i, params.reciprocal);
        let vector = i - row_in_cta * params.stride;
        // SAFETY: a vector of the matrix, the thread's own.
        unsafe {
            let numbers = numbers(params, first + row_in_cta as u64, vector);
            let at = first * params.stride as u64 + i as u64;
            products.add::<V>(numbers, vector as u64, params.x, at);
        }
        i += THREADS_PER_CTA;
    }
}

/// Threads that share a vector of the row.
const GROUPS: u32 = THREADS_PER_CTA / SUM_VECTORS;

/// # Safety
/// The launch contract of [`HeadOuterParams`]: a CTA for each `rows_per_cta` rows and each [`SUM_VECTORS`] vectors.
#[inline(always)]
pub unsafe fn sums<V: Vector>(params: &HeadOuterParams) {
    let first = block_idx_x() as u64 * params.rows_per_cta as u64;
    let rows = (params.rows - first).min(params.rows_per_cta as u64);
    let vector = block_idx_y() * SUM_VECTORS + thread_idx_x() % SUM_VECTORS;
    let group = thread_idx_x() / SUM_VECTORS;
    let mut sums = [V::Floats::ZERO; 2];
    if vector < params.stride {
        let mut row = first + group as u64;
        while row < first + rows {
            // SAFETY: `row` is a row of the CTA, `vector` one of its vectors.
            unsafe {
                let x = read::<V>(params.x, row * params.stride as u64 + vector as u64);
                sums = add_to_sums(sums, numbers(params, row, vector), x);
            }
            row += GROUPS as u64;
        }
    }
    let sums_of = SumsOfGroups {
        lanes: SUM_VECTORS,
        vector,
        vectors: params.stride,
        columns: params.columns,
        out: params.sums,
        stride: params.sum_stride,
    };
    // SAFETY: every thread of the CTA comes through here; the rest is the caller's promise.
    unsafe { sums_of.write::<V>(sums) }
}

/// Calls `f(row, vector of the row of y)` for every vector of the CTA's rows of `y`, a thread each.
#[inline(always)]
fn for_vectors(params: &HeadMeanParams, f: impl Fn(u64, u32)) {
    let first = block_idx_x() as u64 * params.rows_per_cta as u64;
    let rows = (params.rows - first).min(params.rows_per_cta as u64) as u32;
    let mut i = thread_idx_x();
    while i < rows * params.head_vectors {
        let row = row_in_cta(i, params.reciprocal);
        f(first + row as u64, i - row * params.head_vectors);
        i += THREADS_PER_CTA;
    }
}

/// # Safety
/// The launch contract of [`HeadMeanParams`]: a CTA for each `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn mean<V: Vector>(params: &HeadMeanParams) {
    for_vectors(params, |row, vector| {
        let mut sum = V::Floats::ZERO;
        let mut at = row * params.stride as u64 + vector as u64;
        let mut head = 0;
        // SAFETY: vectors of the row's heads; the thread's own vector of `y`.
        unsafe {
            while head < params.heads {
                sum = sum.zip(read::<V>(params.x, at), |sum, x| sum + x);
                at += params.head_vectors as u64;
                head += 1;
            }
            let y = without_padding::<V>(
                sum.map(|sum| sum * params.scale),
                vector as u64 * V::WIDTH as u64,
                params.columns,
            );
            Global::<V::Bits>::new(params.y)
                .at(row * params.head_vectors as u64 + vector as u64)
                .store(V::narrow(y).to_bits());
        }
    });
}

/// # Safety
/// The launch contract of [`HeadMeanParams`]: a CTA for each `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn mean_backward<V: Vector>(params: &HeadMeanParams) {
    for_vectors(params, |row, vector| {
        let mut at = row * params.stride as u64 + vector as u64;
        let mut head = 0;
        // SAFETY: a vector of `y`; the thread's own vectors of the row's heads.
        unsafe {
            let y = read::<V>(params.y, row * params.head_vectors as u64 + vector as u64);
            let x = V::narrow(y.map(|y| y * params.scale)).to_bits();
            while head < params.heads {
                Global::<V::Bits>::new(params.x).at(at).store(x);
                at += params.head_vectors as u64;
                head += 1;
            }
        }
    });
}
