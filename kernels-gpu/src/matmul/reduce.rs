//! The follow-up of a split product: adds the partial sums of each element and applies the epilogue.
//!
//! A lane has four neighbouring elements. The four warps of a CTA share the splits of the same elements, each every
//! fourth of them; then the first warp adds the four warps' sums. The order never changes.

use core::num::NonZeroU64;

use halfgnn_contract::matmul::{
    MatmulParams, POSITIVE_CODES, REDUCE_VECTORS_PER_CTA, SUM, WARPS_PER_CTA, matrix_vector,
    reduce_vectors, workspace_vector,
};
use halfgnn_contract::quantize::row_codes;
use halfgnn_contract::{VECTOR_BYTES, WARP};

use super::epilogue::{Epilogue, Output};
use crate::device::code::{Code, Int8};
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads};
use crate::device::warp::{lane_id, warp_id};

/// Partial sums that a thread reads at a time. There are few threads, so they wait for memory once for each of these.
const LOADS: u32 = 16;

#[inline(always)]
fn add(sums: [f32; 4], more: [u32; 4]) -> [f32; 4] {
    let [a, b, c, d] = more.map(f32::from_bits);
    [sums[0] + a, sums[1] + b, sums[2] + c, sums[3] + d]
}

/// One CTA of the reduction.
///
/// # Safety
/// The launch contract in `halfgnn_contract::matmul`, C not empty.
#[inline(always)]
pub unsafe fn run<O: Output>(params: &MatmulParams) {
    const { assert!(REDUCE_VECTORS_PER_CTA == WARP) };
    let row_vectors = reduce_vectors(O::ELEMENT, params.n);
    let index = block_idx_x() as u64 * REDUCE_VECTORS_PER_CTA as u64 + lane_id() as u64;
    // SAFETY: a launch has work, so a row has vectors.
    let in_a_row = unsafe { NonZeroU64::new_unchecked(row_vectors as u64) };
    let (row, vector) = (index / in_a_row, (index % in_a_row) as u32);
    let present = row < params.sum_rows as u64;
    let row = row as u32;

    let mut sums = [0.0; 4];
    if present {
        let mut first = warp_id();
        while first < params.splits {
            // Several loads are under way before the first addition waits for one. Zeros beyond the last split change
            // nothing: a sum that began as +0 is never -0.
            let mut parts = [[0; 4]; LOADS as usize];
            unroll!(i in 0..LOADS => {
                let split = first + i * WARPS_PER_CTA;
                let place = workspace_vector(
                    split,
                    row,
                    vector,
                    params.sum_rows,
                    params.workspace_stride,
                );
                let part = Global::<[u32; 4]>::new(params.workspace).at(place);
                // SAFETY: `row` and `vector` lie in the split's part, which the product has written before.
                parts[i as usize] = unsafe { part.load_if(split < params.splits) };
            });
            unroll!(i in 0..LOADS => {
                sums = add(sums, parts[i as usize]);
            });
            first += LOADS * WARPS_PER_CTA;
        }
    }
    let place = |warp: u32| Shared::base().offset((warp * WARP + lane_id()) * VECTOR_BYTES);
    // SAFETY: each thread has its own 16 bytes, and all threads reach the barrier.
    unsafe {
        place(warp_id()).store_u32x4(sums.map(f32::to_bits));
        sync_threads();
    }
    if warp_id() != 0 || !present {
        return;
    }
    let mut warp = 1;
    while warp < WARPS_PER_CTA {
        // SAFETY: written before the barrier.
        sums = add(sums, unsafe { place(warp).load_u32x4() });
        warp += 1;
    }
    if row >= params.m {
        // Behind C there is at most the row of sums, and in between nothing.
        if row + 1 == params.sum_rows {
            let sums_of_b = Global::<[u32; 4]>::new(params.column_sums).at(vector as u64);
            // SAFETY: a vector of the row, and only this lane's.
            unsafe { sums_of_b.store(sums.map(f32::to_bits)) };
        }
        return;
    }
    let epilogue = Epilogue::new(params);
    let scale = epilogue.scale(row);
    let mut column = vector * 4;
    let values = sums.map(|sum| {
        let value = epilogue.finish(sum * scale, epilogue.bias(column), column);
        column += 1;
        value
    });
    // SAFETY: a vector of the row's, which is as long as C's padded row, and only this lane's; the other matrix lies as C
    // does, or its rows have as many codes at least.
    unsafe {
        let mut kept = values;
        if !params.positive.is_null() {
            let others = if params.flags & POSITIVE_CODES == 0 {
                O::read_four(params.positive, params.c_stride, row, vector)
            } else {
                let fours = row_codes(params.n as u64) as u32 / 4;
                let word =
                    Global::<u32>::new(params.positive).at(matrix_vector(row, vector, fours));
                Int8::widen(word.read())
            };
            let mut i = 0;
            while i < 4 {
                kept[i] = if others[i] > 0.0 { values[i] } else { 0.0 };
                i += 1;
            }
        }
        if params.flags & SUM != 0 {
            let there = O::read_four(params.c, params.c_stride, row, vector);
            kept = O::rounded(kept);
            let mut i = 0;
            while i < 4 {
                kept[i] += there[i];
                i += 1;
            }
        }
        O::write_four(params, row, vector, kept)
    };
}
