//! The planes of sums that CTAs left, added up in their order, and what is made of the sums.

use crate::device::float::sqrt;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, global_idx_x, sync_threads, thread_idx_x};
use crate::device::vector::Vector;
use halfgnn_contract::DevicePtr;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::normalize::{
    FinishParams, MergeParams, Merged, carry_on, moments, part_mean, reciprocal_deviation,
};

/// The sums of a column in both planes, for the thread that has one: a CTA for each vector of floats, a thread for each
/// of its columns. Those of padding are zero.
///
/// # Safety
/// The launch contract of [`FinishParams`], and every thread of the CTA calls it.
#[inline(always)]
unsafe fn sums(params: &FinishParams) -> Option<(u64, [f32; 2])> {
    let partials = Global::<[u32; 4]>::new(params.partials).at(block_idx_x() as u64);
    let mut planes = [[0.0; 4]; 2];
    let mut cta = thread_idx_x();
    while cta < params.ctas {
        let mut plane = 0;
        while plane < 2 {
            let at = (2 * cta as u64 + plane as u64) * params.float_vectors as u64;
            // SAFETY: a vector of a plane that a CTA left.
            let values = unsafe { partials.at(at).read() };
            let mut k = 0;
            while k < 4 {
                planes[plane][k] += f32::from_bits(values[k]);
                k += 1;
            }
            plane += 1;
        }
        cta += THREADS_PER_CTA;
    }
    let mut element = 0;
    while element < 8 {
        // SAFETY: a word for each element of each thread.
        unsafe {
            word(element, thread_idx_x())
                .store_f32(planes[element as usize / 4][element as usize % 4]);
        }
        element += 1;
    }
    // SAFETY: the caller's promise.
    unsafe { sync_threads() };
    let column = block_idx_x() as u64 * 4 + thread_idx_x() as u64;
    if thread_idx_x() >= 4 {
        return None;
    }
    if column >= params.columns as u64 {
        return Some((column, [0.0; 2]));
    }
    let threads = params.ctas.min(THREADS_PER_CTA);
    let mut totals = [0.0; 2];
    let mut thread = 0;
    while thread < threads {
        // SAFETY: the thread stored them before the barrier.
        unsafe {
            totals[0] += word(thread_idx_x(), thread).load_f32();
            totals[1] += word(4 + thread_idx_x(), thread).load_f32();
        }
        thread += 1;
    }
    Some((column, totals))
}

/// Mean and reciprocal deviation of the columns, and the running statistics carried on.
///
/// # Safety
/// The launch contract of [`FinishParams`].
#[inline(always)]
pub unsafe fn statistics<V: Vector>(params: &FinishParams) {
    // SAFETY: the launch contract; the thread's own column.
    unsafe {
        let Some((column, [sum, squares])) = sums(params) else {
            return;
        };
        if column >= params.columns as u64 {
            return write_rows(params.statistics, params.float_vectors, column, [0.0; 2]);
        }
        let shift = V::weight_to_f32(V::weight(Global::<V::Feature>::new(params.x).at(column)));
        let count = params.rows as f32;
        let batch = moments(sum, squares, shift, count);
        let row = params.float_vectors as u64 * 4;
        write_statistics(params, column, batch);
        let running = Global::<f32>::new(params.running).at(column);
        let before = [running.load(), running.at(row).load()];
        let [mean, variance] = carry_on(before, batch, count, params.momentum);
        running.store(mean);
        running.at(row).store(variance);
    }
}

/// Mean and reciprocal deviation from the running mean and variance: a thread for each column, padding included.
///
/// # Safety
/// The launch contract of [`FinishParams`].
#[inline(always)]
pub unsafe fn running(params: &FinishParams) {
    let column = global_idx_x();
    if column < params.columns as u64 {
        let running = Global::<f32>::new(params.running).at(column);
        // SAFETY: the launch contract; the thread's own column.
        unsafe {
            let variance = running.at(params.float_vectors as u64 * 4).read();
            write_statistics(params, column, [running.read(), variance]);
        }
    } else if column < params.float_vectors as u64 * 4 {
        // SAFETY: the launch contract; the thread's own column.
        unsafe { write_rows(params.statistics, params.float_vectors, column, [0.0; 2]) }
    }
}

/// Mean and reciprocal deviation of a batch from those of its parts, and the running statistics carried on: a thread for each column,
/// padding included.
///
/// # Safety
/// The launch contract of [`MergeParams`].
#[inline(always)]
pub unsafe fn merge(params: &MergeParams) {
    let column = global_idx_x();
    let row = params.float_vectors as u64 * 4;
    if column >= params.columns as u64 {
        if column < row {
            // SAFETY: the launch contract; the thread's own column.
            unsafe { write_rows(params.statistics, params.float_vectors, column, [0.0; 2]) }
        }
        return;
    }
    let counts = Global::<u32>::new(params.counts);
    let moments = Global::<f32>::new(params.moments).at(column);
    let deviations = Global::<f32>::new(params.deviations).at(column);
    let of = |part: u32| {
        let first = 2 * part as u64 * row;
        // SAFETY: the launch contract: each part has a count, and two rows of either.
        unsafe {
            let statistics = [
                deviations.at(first).read(),
                deviations.at(first + row).read(),
            ];
            let mean = part_mean(moments.at(first).read(), statistics);
            let variance = moments.at(first + row).read();
            (counts.at(part as u64).read(), mean, variance)
        }
    };
    let mut merged = Merged::default();
    let mut part = 0;
    while part < params.count {
        let (rows, mean, _) = of(part);
        merged.count(rows, mean);
        part += 1;
    }
    part = 0;
    while part < params.count {
        let (rows, mean, variance) = of(part);
        merged.spread(rows, mean, variance);
        part += 1;
    }
    let batch = merged.moments();
    let running = Global::<f32>::new(params.running).at(column);
    let reciprocal = reciprocal_deviation(batch[1], params.epsilon, sqrt);
    // SAFETY: the thread's own column of both.
    unsafe {
        let statistics = [batch[0], reciprocal];
        write_rows(params.statistics, params.float_vectors, column, statistics);
        if !params.running.is_null() {
            let before = [running.load(), running.at(row).load()];
            let [mean, variance] = carry_on(before, batch, merged.rows(), params.momentum);
            running.store(mean);
            running.at(row).store(variance);
        }
    }
}

/// # Safety
/// The launch contract of [`FinishParams`], and `column` is a column that is the thread's own.
#[inline(always)]
unsafe fn write_statistics(params: &FinishParams, column: u64, [mean, variance]: [f32; 2]) {
    let reciprocal = reciprocal_deviation(variance, params.epsilon, sqrt);
    let statistics = [mean, reciprocal];
    // SAFETY: the caller's promise.
    unsafe { write_rows(params.statistics, params.float_vectors, column, statistics) }
}

/// Writes a column of two rows.
///
/// # Safety
/// `matrix` has two rows of `float_vectors` vectors, and `column` is one of theirs and the thread's own.
#[inline(always)]
unsafe fn write_rows(
    matrix: DevicePtr<f32>,
    float_vectors: u32,
    column: u64,
    [first, second]: [f32; 2],
) {
    let matrix = Global::<f32>::new(matrix).at(column);
    // SAFETY: the caller's promise.
    unsafe {
        matrix.store(first);
        matrix.at(float_vectors as u64 * 4).store(second);
    }
}

/// The sums of both planes, a row each.
///
/// # Safety
/// The launch contract of [`FinishParams`].
#[inline(always)]
pub unsafe fn gradients(params: &FinishParams) {
    // SAFETY: the launch contract; the thread's own column.
    unsafe {
        if let Some((column, [first, second])) = sums(params) {
            Global::<f32>::new(params.first).at(column).store(first);
            Global::<f32>::new(params.second).at(column).store(second);
        }
    }
}

/// The sum of all that is in the second planes, times a factor: one CTA.
///
/// # Safety
/// The launch contract of [`FinishParams`].
#[inline(always)]
pub unsafe fn dot(params: &FinishParams) {
    let partials = Global::<[u32; 4]>::new(params.partials);
    let vectors = params.float_vectors as u64;
    let mut sum = 0.0;
    let mut cta = 0;
    while cta < params.ctas as u64 {
        let mut vector = thread_idx_x() as u64;
        while vector < vectors {
            // SAFETY: a vector of a plane that a CTA left; its padding is zero.
            let [a, b, c, d] =
                unsafe { partials.at((2 * cta + 1) * vectors + vector).read() }.map(f32::from_bits);
            sum += (a + b) + (c + d);
            vector += THREADS_PER_CTA as u64;
        }
        cta += 1;
    }
    // SAFETY: a word for each thread; every thread comes to the barrier.
    unsafe {
        word(0, thread_idx_x()).store_f32(sum);
        sync_threads();
    }
    if thread_idx_x() == 0 {
        let mut total = 0.0;
        let mut thread = 0;
        while thread < THREADS_PER_CTA {
            // SAFETY: the thread stored it before the barrier.
            total += unsafe { word(0, thread).load_f32() };
            thread += 1;
        }
        let result = [params.factor * total, 0.0, 0.0, 0.0];
        // SAFETY: the result is a row of one float with its padding, and there is one CTA.
        unsafe { Global::<[u32; 4]>::new(params.second).store(result.map(f32::to_bits)) };
    }
}

/// The shared word of one element of one thread; consecutive threads use consecutive banks.
#[inline(always)]
fn word(element: u32, thread: u32) -> Shared {
    Shared::base().offset((element * THREADS_PER_CTA + thread) * 4)
}
