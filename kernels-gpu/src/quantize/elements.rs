//! Elements of codes: a thread a vector.

use crate::device::code::{Code, E4m3, Int8};
use crate::device::global::Global;
use crate::device::thread::{block_idx_x, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::elementwise::{THREADS_PER_CTA, row_in_cta};
use halfgnn_contract::quantize::{DequantizeParams, INT8};

/// # Safety
/// The launch contract of [`DequantizeParams`].
#[inline(always)]
pub unsafe fn dequantize<V: Vector>(params: &DequantizeParams) {
    // SAFETY: the caller's promise.
    unsafe {
        if params.format == INT8 {
            run::<V, Int8>(params)
        } else {
            run::<V, E4m3>(params)
        }
    }
}

/// # Safety
/// The launch contract of [`DequantizeParams`], with codes of `C`.
#[inline(always)]
unsafe fn run<V: Vector, C: Code>(params: &DequantizeParams) {
    let first = block_idx_x() as u64 * params.rows_per_cta as u64;
    let rows = (params.rows - first).min(params.rows_per_cta as u64) as u32;
    let mut i = thread_idx_x();
    while i < rows * params.vectors {
        let row = row_in_cta(i, params.reciprocal);
        let column = (i - row * params.vectors) * V::WIDTH;
        let words = (first + row as u64) * (params.stride / 4) as u64 + (column / 4) as u64;
        // SAFETY: a row of codes has as many elements as one of `y`, padding included, and as many scales; the vector of `y` is the
        // thread's own.
        unsafe {
            let mut values = V::Floats::load(Global::<f32>::new(params.scales).at(column as u64));
            let mut k = 0;
            while k < V::WIDTH {
                let word = Global::<u32>::new(params.codes).at(words + (k / 4) as u64);
                let numbers = C::widen(word.read());
                let mut j = 0;
                while j < 4 {
                    let at = (k + j) as usize;
                    values = values.with(at, numbers[j as usize] * C::UNIT * values.get(at));
                    j += 1;
                }
                k += 4;
            }
            let place = first * params.vectors as u64 + i as u64;
            Global::<V::Bits>::new(params.y)
                .at(place)
                .store(V::narrow(values).to_bits());
        }
        i += THREADS_PER_CTA;
    }
}
