//! Codes of elements: a lane has a vector of columns, and rows one after the other, so that what it knows of its columns stays in
//! registers.

use super::coder::Coder;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::quantize::{
    CodeFormat, INT8, QuantizeParams, THREADS_PER_CTA, kept_positive,
};

/// # Safety
/// The launch contract of [`QuantizeParams`].
#[inline(always)]
pub unsafe fn quantize<V: Vector>(params: &QuantizeParams) {
    // SAFETY: the caller's promise.
    unsafe { of_format::<V, false>(params) }
}

/// # Safety
/// The launch contract of [`QuantizeParams`].
#[inline(always)]
pub unsafe fn quantize_positive<V: Vector>(params: &QuantizeParams) {
    // SAFETY: the caller's promise.
    unsafe { of_format::<V, true>(params) }
}

/// # Safety
/// The launch contract; all threads of a CTA come together.
#[inline(always)]
unsafe fn of_format<V: Vector, const POSITIVE: bool>(params: &QuantizeParams) {
    // SAFETY: the caller's promise.
    unsafe {
        if params.codes.format == INT8 {
            run::<V, POSITIVE>(params, CodeFormat::Int8)
        } else {
            run::<V, POSITIVE>(params, CodeFormat::E4m3)
        }
    }
}

/// With `POSITIVE` what is positive [stays so](kept_positive).
///
/// # Safety
/// The launch contract; all threads of a CTA come together.
#[inline(always)]
unsafe fn run<V: Vector, const POSITIVE: bool>(params: &QuantizeParams, format: CodeFormat) {
    let lanes = 1 << params.lanes_log2;
    let lane = thread_idx_x() & (lanes - 1);
    let first_vector = block_idx_y() * lanes;
    let vector = first_vector + lane;
    let has_elements = vector < params.x_vectors;
    // SAFETY: the caller's promise: a vector of a row of codes has elements if `has_elements`; a code is one lane's.
    unsafe {
        let mut coder = Coder::<V>::new(&params.codes, format, vector, params.columns);
        if coder.has_codes(&params.codes) {
            let first = block_idx_x() as u64 * params.rows_per_cta as u64;
            let end = (first + params.rows_per_cta as u64).min(params.rows);
            let mut row = first + (thread_idx_x() >> params.lanes_log2) as u64;
            let ask = |row: u64| {
                let place = row * params.x_vectors as u64 + vector as u64;
                let elements = Global::<V::Bits>::new(params.x).at(place);
                elements.load_once_if(has_elements && row < end)
            };
            let mut scales = V::Floats::ONE;
            if POSITIVE {
                let first = (vector * V::WIDTH) as u64;
                scales = V::Floats::load(Global::<f32>::new(params.codes.scales).at(first));
            }
            let rows_of_lanes = (THREADS_PER_CTA >> params.lanes_log2) as u64;
            // The next row is asked for before this one is worked on.
            let mut ahead = ask(row);
            while row < end {
                let mut values = V::from_bits(ahead).widen();
                if POSITIVE {
                    values = values.zip(scales, kept_positive);
                }
                ahead = ask(row + rows_of_lanes);
                coder.code(&params.codes, row, values);
                row += rows_of_lanes;
            }
        }
        let room = Shared::base();
        coder.finish::<THREADS_PER_CTA>(&params.codes, room, params.lanes_log2, first_vector);
    }
}
