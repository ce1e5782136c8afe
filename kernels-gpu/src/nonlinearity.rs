//! `y = f(x + bias)` for activation functions other than a ReLU, and the gradient.

use crate::device::global::Global;
use crate::device::thread::{block_idx_x, thread_idx_x};
use crate::device::vector::{Floats, Vector, load, store, without_padding};
use halfgnn_contract::elementwise::{THREADS_PER_CTA, row_in_cta};
use halfgnn_contract::nonlinearity::{NonlinearityParams, apply, derivative};

/// The functions that the entries are, by name.
pub mod family {
    pub use super::{backward as nonlinearity_backward, forward as nonlinearity};
}

/// # Safety
/// The launch contract of [`NonlinearityParams`]: a CTA for each `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn forward<V: Vector>(params: &NonlinearityParams) {
    for_vectors(params, |vector, at| {
        // SAFETY: `at` is a vector of the matrices, the thread's own.
        unsafe {
            let x = biased::<V>(params, vector, load::<V>(params.x, at));
            let y = x.map(|x| apply(params.function, params.slope, x));
            // The bias is zero there, and every function of it but the sign.
            let first = vector as u64 * V::WIDTH as u64;
            store::<V>(params.y, at, without_padding::<V>(y, first, params.columns));
        }
    });
}

/// # Safety
/// The launch contract of [`NonlinearityParams`]: a CTA for each `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn backward<V: Vector>(params: &NonlinearityParams) {
    for_vectors(params, |vector, at| {
        // SAFETY: `at` is a vector of the matrices, the thread's own.
        unsafe {
            let x = load::<V>(params.x, at);
            let d = load::<V>(params.y, at);
            let d = d.zip(x, |d, x| d * derivative(params.function, params.slope, x));
            let first = vector as u64 * V::WIDTH as u64;
            store::<V>(params.y, at, without_padding::<V>(d, first, params.columns));
        }
    });
}

/// Adds the bias, if there is one, to a vector of a row.
///
/// # Safety
/// The launch contract: the bias is as long as a row, up to 16 bytes.
#[inline(always)]
unsafe fn biased<V: Vector>(
    params: &NonlinearityParams,
    vector: u32,
    mut values: V::Floats,
) -> V::Floats {
    let bias = Global::<[u32; 4]>::new(params.bias);
    if bias.is_null() {
        return values;
    }
    let mut first = 0;
    while first < V::WIDTH {
        let column = vector * V::WIDTH + first;
        // A row of halves may have four floats more of padding than the bias.
        if column < params.columns {
            // SAFETY: the bias has a vector of floats for the column.
            let piece = unsafe { bias.at((column / 4) as u64).read() };
            let mut k = 0;
            while k < 4 {
                let at = first as usize + k;
                values = values.with(at, values.get(at) + f32::from_bits(piece[k]));
                k += 1;
            }
        }
        first += 4;
    }
    values
}

/// Calls `f(vector of the row, vector of the matrix)` for every vector of the CTA's rows, a thread each.
#[inline(always)]
fn for_vectors(params: &NonlinearityParams, f: impl Fn(u32, u64)) {
    let first = block_idx_x() as u64 * params.rows_per_cta as u64;
    let rows = (params.rows - first).min(params.rows_per_cta as u64) as u32;
    let mut i = thread_idx_x();
    while i < rows * params.vectors {
        let vector = i - row_in_cta(i, params.reciprocal) * params.vectors;
        f(vector, first * params.vectors as u64 + i as u64);
        i += THREADS_PER_CTA;
    }
}
