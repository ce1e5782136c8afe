//! `y = dropout(relu(x + bias))`, and its gradient.

use crate::device::global::Global;
use crate::device::integer::wide_product;
use crate::device::thread::{block_idx_x, thread_idx_x};
use crate::device::vector::{Floats, Vector, without_padding};
use core::num::NonZeroU32;
use halfgnn_contract::dense::{ActivateParams, DROPOUT, RELU, THREADS_PER_CTA};
use halfgnn_contract::rng::{dropout_counter, philox_by};

/// # Safety
/// The launch contract of [`ActivateParams`]: a CTA for each `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn forward<V: Vector>(params: &ActivateParams) {
    let bias = Global::<f32>::new(params.bias);
    for_vectors(params, |row, vector, at| {
        // SAFETY: `at` is a vector of the matrix, the thread's own; the bias has a number for each column.
        unsafe {
            let mut values = load::<V>(Global::new(params.x), at);
            let mut i = 0;
            while i < V::WIDTH {
                let column = vector * V::WIDTH + i;
                let mut value = values.get(i as usize);
                if column < params.columns {
                    if !bias.is_null() {
                        value += bias.at(column as u64).read();
                    }
                    // Not `max`, which would make a zero of a NaN.
                    if params.flags & RELU != 0 && value < 0.0 {
                        value = 0.0;
                    }
                } else {
                    value = 0.0;
                }
                values = values.with(i as usize, value);
                i += 1;
            }
            if params.flags & DROPOUT != 0 {
                values = drop_elements::<V>(params, row, vector, values);
            }
            Global::<V::Bits>::new(params.y)
                .at(at)
                .store(V::narrow(values).to_bits());
        }
    });
}

/// # Safety
/// The launch contract of [`ActivateParams`]: a CTA for each `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn backward<V: Vector>(params: &ActivateParams) {
    let row_scale = Global::<f32>::new(params.row_scale);
    for_vectors(params, |row, vector, at| {
        // SAFETY: `at` is a vector of the matrices, the thread's own; there is a factor for each row.
        unsafe {
            let mut values = load::<V>(Global::new(params.y), at);
            if params.flags & RELU != 0 {
                // What ReLU or dropout made zero says so by itself: no number is drawn again.
                let factor = if params.flags & DROPOUT != 0 {
                    params.keep_scale
                } else {
                    1.0
                };
                let output = load::<V>(Global::new(params.x), at);
                values = values.zip(
                    output,
                    |value, output| if output > 0.0 { value * factor } else { 0.0 },
                );
            } else if params.flags & DROPOUT != 0 {
                values = drop_elements::<V>(params, row, vector, values);
            }
            if !row_scale.is_null() {
                let scale = row_scale.at(row).read();
                values = values.map(|value| value * scale);
                // A NaN or an infinite factor made more than zeros of the padding.
                let first = vector as u64 * V::WIDTH as u64;
                values = without_padding::<V>(values, first, params.columns);
            }
            Global::<V::Bits>::new(params.y)
                .at(at)
                .store(V::narrow(values).to_bits());
        }
    });
}

/// # Safety
/// `at` is a vector of the matrix.
#[inline(always)]
unsafe fn load<V: Vector>(matrix: Global<V::Bits>, at: u64) -> V::Floats {
    // SAFETY: the caller's promise. Not `read`: the matrix may be written in place.
    V::from_bits(unsafe { matrix.at(at).load() }).widen()
}

/// Calls `f(row, vector of the row, vector of the matrix)` for every vector of the CTA's rows, a thread each.
#[inline(always)]
fn for_vectors(params: &ActivateParams, f: impl Fn(u64, u32, u64)) {
    let Some(vectors) = NonZeroU32::new(params.vectors) else {
        return;
    };
    let first = block_idx_x() as u64 * params.rows_per_cta as u64;
    let rows = (params.rows - first).min(params.rows_per_cta as u64) as u32;
    let mut i = thread_idx_x();
    while i < rows * params.vectors {
        let row = first + (i / vectors) as u64;
        f(row, i % vectors, first * params.vectors as u64 + i as u64);
        i += THREADS_PER_CTA;
    }
}

/// Drops elements of a vector of a row, and scales the others.
#[inline(always)]
fn drop_elements<V: Vector>(
    params: &ActivateParams,
    row: u64,
    vector: u32,
    mut values: V::Floats,
) -> V::Floats {
    let mut i = 0;
    while i < V::WIDTH {
        let mut zeros = true;
        let mut k = 0;
        while k < 4 && i + k < V::WIDTH {
            zeros &= values.get((i + k) as usize).to_bits() == 0;
            k += 1;
        }
        // Kept or not, a zero stays one; bag-of-words features have little else.
        if !zeros {
            let counter = dropout_counter(params.step, row, (vector * V::WIDTH + i) / 4);
            let bits = philox_by(params.key, counter, wide_product);
            let mut k = 0;
            while k < 4 && i + k < V::WIDTH {
                let at = (i + k) as usize;
                let kept = bits[k as usize] >= params.threshold;
                values = values.with(
                    at,
                    if kept {
                        values.get(at) * params.keep_scale
                    } else {
                        0.0
                    },
                );
                k += 1;
            }
        }
        i += 4;
    }
    values
}
