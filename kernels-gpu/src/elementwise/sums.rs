//! Sums of columns, a block of rows a CTA; and sums of what several ranks have.

use crate::device::float::max;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, global_idx_x, sync_threads, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::elementwise::{
    ColumnSumsParams, SUM_VECTORS, SumPartsParams, THREADS_PER_CTA,
};

/// Threads that share a vector of the row.
const GROUPS: u32 = THREADS_PER_CTA / SUM_VECTORS;

/// # Safety
/// The launch contract of [`ColumnSumsParams`]: a CTA for each `rows_per_cta` rows and each [`SUM_VECTORS`] vectors.
#[inline(always)]
pub unsafe fn columns<V: Vector>(params: &ColumnSumsParams) {
    let first = block_idx_x() as u64 * params.rows_per_cta as u64;
    let rows = (params.rows - first).min(params.rows_per_cta as u64);
    let vector = block_idx_y() * SUM_VECTORS + thread_idx_x() % SUM_VECTORS;
    let group = thread_idx_x() / SUM_VECTORS;
    let mut sum = V::Floats::ZERO;
    if vector < params.vectors {
        let x = Global::<V::Bits>::new(params.x).at(first * params.vectors as u64 + vector as u64);
        let mut row = group as u64;
        while row < rows {
            // SAFETY: `row` is a row of the CTA, `vector` one of its vectors.
            let values = V::from_bits(unsafe { x.at(row * params.vectors as u64).read() }).widen();
            sum = sum.zip(values, |sum, value| sum + value);
            row += GROUPS as u64;
        }
    }
    let mut i = 0;
    while i < V::WIDTH {
        // SAFETY: a word for each element of each thread.
        unsafe { word(i, thread_idx_x()).store_f32(sum.get(i as usize)) };
        i += 1;
    }
    // SAFETY: every thread of the CTA comes through here.
    unsafe { sync_threads() };
    if group > 0 || vector >= params.vectors {
        return;
    }
    let mut other = 1;
    while other < GROUPS {
        let mut i = 0;
        while i < V::WIDTH {
            // SAFETY: the thread stored it before the barrier.
            let value = unsafe { word(i, other * SUM_VECTORS + thread_idx_x()).load_f32() };
            sum = sum.with(i as usize, sum.get(i as usize) + value);
            i += 1;
        }
        other += 1;
    }
    let out =
        Global::<f32>::new(params.sums).at(block_idx_x() as u64 * params.sum_vectors as u64 * 4);
    let mut i = 0;
    while i < V::WIDTH {
        let column = vector * V::WIDTH + i;
        // A float row may be shorter than a half row's padding.
        if column < params.sum_vectors * 4 {
            let value = if column < params.columns {
                sum.get(i as usize)
            } else {
                0.0
            };
            // SAFETY: a column of the CTA's row of the output, the thread's own.
            unsafe { out.at(column as u64).store(value) };
        }
        i += 1;
    }
}

/// The sum of a float of each part, in their order.
///
/// # Safety
/// The launch contract of [`SumPartsParams`].
#[inline(always)]
pub unsafe fn sum_parts(params: &SumPartsParams) {
    // SAFETY: the caller's promise.
    unsafe { fold_parts(params, |sum, term| sum + term) }
}

/// The largest of a float of each part, none of which is negative.
///
/// # Safety
/// The launch contract of [`SumPartsParams`].
#[inline(always)]
pub unsafe fn largest_of_parts(params: &SumPartsParams) {
    // SAFETY: the caller's promise.
    unsafe { fold_parts(params, max) }
}

/// # Safety
/// The launch contract of [`SumPartsParams`].
#[inline(always)]
unsafe fn fold_parts(params: &SumPartsParams, fold: impl Fn(f32, f32) -> f32) {
    let at = global_idx_x();
    if at >= params.len {
        return;
    }
    let mut result = 0.0;
    let mut part = 0;
    while part < params.count as u64 {
        // SAFETY: a float of a part, by the launch contract.
        let term = unsafe {
            Global::<f32>::new(params.parts)
                .at(part * params.len + at)
                .read()
        };
        result = fold(result, term);
        part += 1;
    }
    // SAFETY: the thread's own float of the sums.
    unsafe {
        Global::<f32>::new(params.sums)
            .at(at)
            .store(params.factor * result);
    }
}

/// The shared word of one element of one thread; consecutive threads use consecutive banks.
#[inline(always)]
fn word(element: u32, thread: u32) -> Shared {
    Shared::base().offset((element * THREADS_PER_CTA + thread) * 4)
}
