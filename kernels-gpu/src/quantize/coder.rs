//! What makes codes of the elements that pass a thread: a pass of its own, or the epilogue of a kernel that has just computed them.

use crate::device::global::{Global, add_u32, max_u32};
use crate::device::integer::wide_product;
use crate::device::shared::Shared;
use crate::device::thread::{sync_threads, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::quantize::{CodeFormat, CodesParams, NOT_FINITE, SATURATED};
use halfgnn_contract::rng::{ROUNDED_TOGETHER, rounding_bits_by, rounding_noise};

/// A thread's columns, as wide as one of its vectors, and what it has seen of them.
pub struct Coder<V: Vector> {
    vector: u32,
    columns: u32,
    format: CodeFormat,
    reciprocals: V::Floats,
    step: u32,
    drawn: bool,
    largest: [u32; 8],
    saturated: u32,
    not_finite: u32,
}

impl<V: Vector> Coder<V> {
    /// Of the `vector`-th vector of rows that have `columns` columns without padding. It may lie past the end of a row of codes,
    /// for a thread that has nothing to do.
    ///
    /// # Safety
    /// The launch contract of [`CodesParams`].
    #[inline(always)]
    pub unsafe fn new(params: &CodesParams, format: CodeFormat, vector: u32, columns: u32) -> Self {
        let step = Global::<u32>::new(params.step);
        let drawn = !step.is_null();
        let mut coder = Self {
            vector,
            columns,
            format,
            reciprocals: V::Floats::ONE,
            step: 0,
            drawn,
            largest: [0; 8],
            saturated: 0,
            not_finite: 0,
        };
        // SAFETY: a vector of a row of codes has as many scales; a step that is not null is a word.
        unsafe {
            if coder.has_codes(params) {
                let scales = Global::<f32>::new(params.scales).at((vector * V::WIDTH) as u64);
                coder.reciprocals = V::Floats::load(scales).map(|scale| 1.0 / scale);
            }
            if drawn {
                coder.step = step.read();
            }
        }
        coder
    }

    /// Whether a row of codes has the thread's vector.
    #[inline(always)]
    pub fn has_codes(&self, params: &CodesParams) -> bool {
        self.vector < params.stride / V::WIDTH
    }

    /// Writes the codes of the thread's elements of row `row`.
    ///
    /// # Safety
    /// The launch contract; a row of codes [has](Coder::has_codes) the vector, there is such a row, and no other thread writes them.
    #[inline(always)]
    pub unsafe fn code(&mut self, params: &CodesParams, row: u64, mut values: V::Floats) {
        let row_scale = Global::<f32>::new(params.row_scale);
        if !row_scale.is_null() {
            // SAFETY: there is a factor for each row.
            let factor = unsafe { row_scale.at(row).read() };
            values = values.map(|value| value * factor);
        }
        let first = self.vector * V::WIDTH;
        let bits = if self.drawn {
            let block = first / ROUNDED_TOGETHER;
            rounding_bits_by(params.key, self.step, row, block, wide_product)
        } else {
            [0; 4]
        };
        let mut words = [0; 2];
        let mut i = 0;
        while i < V::WIDTH {
            let at = i as usize;
            // Padding is zero, whatever the factor of the row.
            let value = if first + i < self.columns {
                values.get(at)
            } else {
                0.0
            };
            let magnitude = value.to_bits() & 0x7fff_ffff;
            self.not_finite += (magnitude >= f32::INFINITY.to_bits()) as u32;
            self.largest[at] = self.largest[at].max(magnitude);
            let number = value * self.reciprocals.get(at);
            let size = f32::from_bits(number.to_bits() & 0x7fff_ffff);
            self.saturated += (size > self.format.saturation()) as u32;
            let code = if self.drawn {
                // A vector of floats is half of what is drawn together.
                let second = V::WIDTH < ROUNDED_TOGETHER && self.vector % 2 == 1;
                let noise = if second {
                    rounding_noise(bits, (i + V::WIDTH) % ROUNDED_TOGETHER)
                } else {
                    rounding_noise(bits, i)
                };
                self.format.encode(number, Some(noise))
            } else {
                self.format.encode(number, None)
            };
            words[at / 4] |= code << (8 * (i % 4));
            i += 1;
        }
        let place = row * (params.stride / 4) as u64 + (first / 4) as u64;
        let codes = Global::<u32>::new(params.y).at(place);
        // SAFETY: the caller's promise.
        unsafe {
            if V::WIDTH == 8 {
                Global::<[u32; 2]>::cast(codes).store(words);
            } else {
                codes.store(words[0]);
            }
        }
    }

    /// Tells what all threads of the CTA have seen: `1 << lanes_log2` neighbouring ones have vectors side by side, which those
    /// after them have as well, and the first of the CTA has `first_vector`.
    ///
    /// # Safety
    /// The launch contract; all `THREADS` threads of the CTA come together, and `room` has
    /// [`largest_bytes`](halfgnn_contract::quantize::largest_bytes) that none of them uses.
    #[inline(always)]
    pub unsafe fn finish<const THREADS: u32>(
        self,
        params: &CodesParams,
        room: Shared,
        lanes_log2: u32,
        first_vector: u32,
    ) {
        let counts = Global::<u32>::new(params.counts);
        let place = |thread: u32, i: u32| room.offset((i * THREADS + thread) * 4);
        // SAFETY: the caller's promise; a word of the room is one thread's until the barrier; a column of the tile one thread's
        // after it.
        unsafe {
            if self.saturated != 0 {
                add_u32(counts.at(SATURATED as u64), self.saturated);
            }
            if self.not_finite != 0 {
                add_u32(counts.at(NOT_FINITE as u64), self.not_finite);
            }
            let mut i = 0;
            while i < V::WIDTH {
                place(thread_idx_x(), i).store_u32(self.largest[i as usize]);
                i += 1;
            }
            sync_threads();
            let lanes = 1 << lanes_log2;
            let (lane, i) = (thread_idx_x() / V::WIDTH, thread_idx_x() % V::WIDTH);
            if lane >= lanes {
                return;
            }
            let mut found = 0u32;
            let mut thread = lane;
            while thread < THREADS {
                found = found.max(place(thread, i).load_u32());
                thread += lanes;
            }
            if found != 0 {
                let column = (first_vector + lane) * V::WIDTH + i;
                // NaNs are infinite here.
                let found = found.min(f32::INFINITY.to_bits());
                max_u32(Global::<u32>::new(params.largest).at(column as u64), found);
            }
        }
    }
}
