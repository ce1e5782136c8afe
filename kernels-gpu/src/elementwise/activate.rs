//! `y = dropout(relu(x + bias))`, and its gradient.

use super::Dropping;
use crate::device::global::Global;
use crate::device::thread::{block_idx_x, thread_idx_x};
use crate::device::vector::{Floats, Vector, without_padding};
use halfgnn_contract::elementwise::{
    ActivateParams, DropRowsParams, DropoutParams, RELU, SUM, THREADS_PER_CTA, row_in_cta,
};
use halfgnn_contract::{DevicePtr, HalfBits};

/// # Safety
/// The launch contract of [`ActivateParams`]: a CTA for each `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn forward<V: Vector>(params: &ActivateParams) {
    // SAFETY: the caller's promise.
    let dropping = unsafe { Dropping::of(&params.dropout) };
    for_vectors(params, |row, vector, at| {
        // SAFETY: `at` is a vector of the matrix, the thread's own, and with an order that has a number for each row.
        unsafe {
            let mut values = if params.order.is_null() {
                load::<V>(Global::new(params.x), at)
            } else {
                load_picked::<V>(params, row, vector)
            };
            if params.flags & SUM != 0 {
                let addend = load::<V>(Global::new(params.y), at);
                values = values.zip(addend, |value, addend| value + addend);
            }
            values = add_bias::<V>(params, vector, values);
            if params.flags & RELU != 0 {
                // Not `max`, which would make a zero of a NaN.
                values = values.map(|value| if value < 0.0 { 0.0 } else { value });
            }
            if let Some(dropping) = dropping {
                values = dropping.drop_elements::<V>(row, vector, values);
            }
            store::<V>(params.y, at, values);
        }
    });
}

/// # Safety
/// The launch contract of [`ActivateParams`]: a CTA for each `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn backward<V: Vector>(params: &ActivateParams) {
    // SAFETY: the caller's promise.
    let dropping = unsafe { Dropping::of(&params.dropout) };
    let row_scale = Global::<f32>::new(params.row_scale);
    for_vectors(params, |row, vector, at| {
        // SAFETY: `at` is a vector of the matrices, the thread's own; there is a factor for each row.
        unsafe {
            let mut values = load::<V>(Global::new(params.y), at);
            if params.flags & RELU != 0 {
                // What ReLU or dropout made zero says so by itself: no number is drawn again.
                let factor = params.dropout.keep_scale;
                let output = load::<V>(Global::new(params.x), at);
                values = values.zip(
                    output,
                    |value, output| if output > 0.0 { value * factor } else { 0.0 },
                );
            } else if let Some(dropping) = dropping {
                values = dropping.drop_elements::<V>(row, vector, values);
            }
            if !row_scale.is_null() {
                let scale = row_scale.at(row).read();
                values = values.map(|value| value * scale);
                // A NaN or an infinite factor made more than zeros of the padding.
                let first = vector as u64 * V::WIDTH as u64;
                values = without_padding::<V>(values, first, params.columns);
            }
            store::<V>(params.y, at, values);
        }
    });
}

/// # Safety
/// The launch contract of [`DropRowsParams`]: a CTA for each `rows_per_cta` rows.
#[inline(always)]
pub unsafe fn drop_rows<V: Vector>(params: &DropRowsParams) {
    let vertices = Global::<u32>::new(params.vertices);
    let matrix = ActivateParams {
        x: params.y,
        y: params.y,
        bias: DevicePtr::NULL,
        row_scale: DevicePtr::NULL,
        dropout: DropoutParams::NONE,
        order: DevicePtr::NULL,
        rows: params.rows,
        x_rows: params.rows,
        rows_per_cta: params.rows_per_cta,
        columns: 0,
        vectors: params.vectors,
        flags: 0,
        reciprocal: params.reciprocal,
        x_vectors: params.vectors,
    };
    // SAFETY: the caller's promise.
    let Some(dropping) = (unsafe { Dropping::of(&params.dropout) }) else {
        return;
    };
    for_vectors(&matrix, |row, vector, at| {
        // SAFETY: `at` is a vector of the matrix, the thread's own; there is a number for each row.
        unsafe {
            let vertex = vertices.at(row).read() as u64;
            let values = load::<V>(Global::new(params.y), at);
            let values = dropping.drop_elements::<V>(vertex, vector, values);
            store::<V>(params.y, at, values);
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

/// The vector of the row of `x` that row `row` is of, or zeros where there is no such row.
///
/// # Safety
/// The launch contract of [`ActivateParams`] with an order, of which `row` has a number.
#[inline(always)]
unsafe fn load_picked<V: Vector>(params: &ActivateParams, row: u64, vector: u32) -> V::Floats {
    // SAFETY: the caller's promise; a row that is there has the vector.
    unsafe {
        let from = Global::<u32>::new(params.order).at(row).read() as u64;
        let at = from * params.x_vectors as u64 + vector as u64;
        let bits = Global::<V::Bits>::new(params.x).at(at);
        V::from_bits(bits.load_if(from < params.x_rows)).widen()
    }
}

/// # Safety
/// `at` is a vector of the matrix and no other thread's.
#[inline(always)]
unsafe fn store<V: Vector>(matrix: DevicePtr<HalfBits>, at: u64, values: V::Floats) {
    let vector = Global::<V::Bits>::new(matrix).at(at);
    // SAFETY: the caller's promise.
    unsafe { vector.store(V::narrow(values).to_bits()) }
}

/// Adds the bias, if there is one, to a vector of a row.
///
/// # Safety
/// The launch contract: the bias is as long as a row, up to 16 bytes.
#[inline(always)]
unsafe fn add_bias<V: Vector>(
    params: &ActivateParams,
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

/// Calls `f(row, vector of the row, vector of the matrix)` for every vector of the CTA's rows, a thread each.
#[inline(always)]
fn for_vectors(params: &ActivateParams, f: impl Fn(u64, u32, u64)) {
    let first = block_idx_x() as u64 * params.rows_per_cta as u64;
    let rows = (params.rows - first).min(params.rows_per_cta as u64) as u32;
    let mut i = thread_idx_x();
    while i < rows * params.vectors {
        let row = row_in_cta(i, params.reciprocal);
        let vector = i - row * params.vectors;
        f(
            first + row as u64,
            vector,
            first * params.vectors as u64 + i as u64,
        );
        i += THREADS_PER_CTA;
    }
}
