//! Codes of elements: a lane has a vector of columns, and rows one after the other, so that what it knows of its columns stays in
//! registers.

use crate::device::global::{Global, add_u32, max_u32};
use crate::device::integer::wide_product;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, sync_threads, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::quantize::{
    CodeFormat, INT8, NOT_FINITE, QuantizeParams, SATURATED, THREADS_PER_CTA,
};
use halfgnn_contract::rng::{dropout_counter, philox_by};

/// # Safety
/// The launch contract of [`QuantizeParams`].
#[inline(always)]
pub unsafe fn quantize<V: Vector>(params: &QuantizeParams) {
    // SAFETY: the caller's promise.
    unsafe {
        if params.format == INT8 {
            run::<V>(params, CodeFormat::Int8)
        } else {
            run::<V>(params, CodeFormat::E4m3)
        }
    }
}

/// # Safety
/// The launch contract; all threads of a CTA come together.
#[inline(always)]
unsafe fn run<V: Vector>(params: &QuantizeParams, format: CodeFormat) {
    let lanes = 1 << params.lanes_log2;
    let lane = thread_idx_x() & (lanes - 1);
    let vector = block_idx_y() * lanes + lane;
    let is_row = vector < params.y_stride / V::WIDTH;
    let has_elements = vector < params.x_vectors;
    let mut largest = [0u32; 8];
    let (mut saturated, mut not_finite) = (0, 0);
    // SAFETY: the caller's promise: a vector of the row has scales and codes, and elements if `has_elements`; a code is one lane's.
    unsafe {
        if is_row {
            let scales = Global::<f32>::new(params.scales).at((vector * V::WIDTH) as u64);
            let reciprocals = V::Floats::load(scales).map(|scale| 1.0 / scale);
            let step = Global::<u32>::new(params.step);
            let drawn = !step.is_null();
            let step = if drawn { step.read() } else { 0 };
            let first = block_idx_x() as u64 * params.rows_per_cta as u64;
            let end = (first + params.rows_per_cta as u64).min(params.rows);
            let mut row = first + (thread_idx_x() >> params.lanes_log2) as u64;
            let ask = |row: u64| {
                let place = row * params.x_vectors as u64 + vector as u64;
                let elements = Global::<V::Bits>::new(params.x).at(place);
                elements.load_once_if(has_elements && row < end)
            };
            let rows_of_lanes = (THREADS_PER_CTA >> params.lanes_log2) as u64;
            // The next row is asked for before this one is worked on.
            let mut ahead = ask(row);
            while row < end {
                let mut values = V::from_bits(ahead).widen();
                ahead = ask(row + rows_of_lanes);
                let row_scale = Global::<f32>::new(params.row_scale);
                if !row_scale.is_null() {
                    let factor = row_scale.at(row).read();
                    values = values.map(|value| value * factor);
                }
                let mut words = [0; 2];
                let mut i = 0;
                while i < V::WIDTH {
                    let block = (vector * V::WIDTH + i) / 4;
                    let noise = if drawn {
                        let counter = dropout_counter(step, row, block);
                        philox_by(params.key, counter, wide_product)
                    } else {
                        [0; 4]
                    };
                    let mut word = 0;
                    let mut k = 0;
                    while k < 4 {
                        let at = (i + k) as usize;
                        // Padding is zero, whatever the factor of the row.
                        let is_column = vector * V::WIDTH + i + k < params.columns;
                        let value = if is_column { values.get(at) } else { 0.0 };
                        let magnitude = value.to_bits() & 0x7fff_ffff;
                        not_finite += (magnitude >= f32::INFINITY.to_bits()) as u32;
                        largest[at] = largest[at].max(magnitude);
                        let number = value * reciprocals.get(at);
                        let size = f32::from_bits(number.to_bits() & 0x7fff_ffff);
                        saturated += (size > format.saturation()) as u32;
                        let code = if drawn {
                            format.encode(number, Some(noise[k as usize]))
                        } else {
                            format.encode(number, None)
                        };
                        word |= code << (8 * k);
                        k += 1;
                    }
                    words[(i / 4) as usize] = word;
                    i += 4;
                }
                let first = row * (params.y_stride / 4) as u64 + (vector * V::WIDTH / 4) as u64;
                let codes = Global::<u32>::new(params.y).at(first);
                if V::WIDTH == 8 {
                    Global::<[u32; 2]>::cast(codes).store(words);
                } else {
                    codes.store(words[0]);
                }
                row += rows_of_lanes;
            }
        }
        let counts = Global::<u32>::new(params.counts);
        if saturated != 0 {
            add_u32(counts.at(SATURATED as u64), saturated);
        }
        if not_finite != 0 {
            add_u32(counts.at(NOT_FINITE as u64), not_finite);
        }
        raise_largest::<V>(params, largest);
    }
}

/// Raises the largest magnitudes of the CTA's columns by those of its lanes.
///
/// # Safety
/// The launch contract; all threads of the CTA come together.
#[inline(always)]
unsafe fn raise_largest<V: Vector>(params: &QuantizeParams, largest: [u32; 8]) {
    let place = |thread: u32, i: u32| Shared::base().offset((i * THREADS_PER_CTA + thread) * 4);
    // SAFETY: a word is one thread's until the barrier; a column of the tile one thread's after it.
    unsafe {
        let mut i = 0;
        while i < V::WIDTH {
            place(thread_idx_x(), i).store_u32(largest[i as usize]);
            i += 1;
        }
        sync_threads();
        let lanes = 1 << params.lanes_log2;
        let (lane, i) = (thread_idx_x() / V::WIDTH, thread_idx_x() % V::WIDTH);
        if lane >= lanes {
            return;
        }
        let mut found = 0u32;
        let mut thread = lane;
        while thread < THREADS_PER_CTA {
            found = found.max(place(thread, i).load_u32());
            thread += lanes;
        }
        if found != 0 {
            let column = (block_idx_y() * lanes + lane) * V::WIDTH + i;
            // NaNs are infinite here.
            let found = found.min(f32::INFINITY.to_bits());
            max_u32(Global::<u32>::new(params.largest).at(column as u64), found);
        }
    }
}
