//! Sums of errors: a CTA a chunk of rows, whose threads take its rows in turn, column by column.

use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::sums::sum_of_cta;
use crate::device::thread::{block_idx_x, sync_threads, thread_idx_x};
use crate::device::vector::Vector;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::metrics::{
    COLUMN_SUMS, ERRORS, ErrorParams, ROWS_PER_CHUNK, SPLITS, SUM_BYTES, error_terms,
};

/// # Safety
/// The launch contract of [`ErrorParams`]: a CTA for each chunk.
#[inline(always)]
pub unsafe fn sum_errors<V: Vector>(params: &ErrorParams) {
    let chunk = block_idx_x() as u64;
    let first = chunk * ROWS_PER_CHUNK as u64;
    let mut column = 0;
    // SAFETY: rows below `rows` have a split, a prediction and a target in each column; the sums of a column have places of their
    // own up to the barrier behind them, which all threads reach; and the chunk has a double for each sum.
    unsafe {
        while column < params.columns {
            let mut sums = [0.0; COLUMN_SUMS as usize];
            let mut i = thread_idx_x();
            while i < ROWS_PER_CHUNK {
                let row = first + i as u64;
                if row < params.rows {
                    let split = Global::<u32>::new(params.splits).at(row).read();
                    let terms = terms::<V>(params, row, column);
                    unroll!(at in 0..COLUMN_SUMS => {
                        if split == at / ERRORS {
                            sums[at as usize] += terms[(at % ERRORS) as usize];
                        }
                    });
                }
                i += THREADS_PER_CTA;
            }
            let place = (chunk * params.columns as u64 + column as u64) * COLUMN_SUMS as u64;
            unroll!(at in 0..COLUMN_SUMS => {
                let sum = sum_of_cta(sums[at as usize], Shared::base().offset(at * SUM_BYTES));
                if thread_idx_x() == 0 {
                    Global::<u64>::new(params.partials).at(place + at as u64).store(sum.to_bits());
                }
            });
            sync_threads();
            column += 1;
        }
    }
}

/// The terms of a row and column.
///
/// # Safety
/// Both are there.
#[inline(always)]
unsafe fn terms<V: Vector>(params: &ErrorParams, row: u64, column: u32) -> [f64; ERRORS as usize] {
    let at = row * params.stride as u64 + column as u64;
    let target = row * params.target_stride as u64 + column as u64;
    // SAFETY: the caller's promise.
    unsafe {
        let prediction = V::weight(Global::<V::Feature>::new(params.predictions).at(at));
        let target = Global::<f32>::new(params.targets).at(target).read();
        error_terms(V::weight_to_f32(prediction), target)
    }
}

/// # Safety
/// The launch contract of [`ErrorParams`]: a CTA for each result, after the sums of chunks.
#[inline(always)]
pub unsafe fn reduce_error_sums(params: &ErrorParams) {
    let result = block_idx_x() as u64;
    let results = params.columns as u64 * (SPLITS * ERRORS) as u64;
    let mut value = 0.0;
    let mut chunk = thread_idx_x() as u64;
    // SAFETY: chunks below `chunks` have sums, which a launch before has written; every thread is at the only sum; and the result
    // is the CTA's.
    unsafe {
        while chunk < params.chunks {
            let partial = Global::<u64>::new(params.partials).at(chunk * results + result);
            value += f64::from_bits(partial.read());
            chunk += THREADS_PER_CTA as u64;
        }
        let sum = sum_of_cta(value, Shared::base());
        if thread_idx_x() == 0 {
            Global::<u64>::new(params.result)
                .at(result)
                .store(sum.to_bits());
        }
    }
}
