//! What makes codes of the elements that pass a thread: a pass of its own, or the epilogue of a kernel that has just computed them.
//!
//! Of a vector whose numbers are all within the format, and nearly all are, an element takes a few instructions and no branch. What
//! is too large or no number is counted and cut off before, on a way of its own. With tests and branches at every element it was
//! instructions that making codes took, and not bytes.

use crate::device::float::{max, whole_part};
use crate::device::global::{Global, add_u32, max_u32, peek_u32};
use crate::device::integer::{bytes_of, wide_product};
use crate::device::registers::recomputed;
use crate::device::shared::Shared;
use crate::device::thread::{sync_threads, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use crate::device::warp::{lane_id, shuffle_xor, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::quantize::{
    CodeFormat, CodesParams, NOT_FINITE, SATURATED, int8_bits, int8_drawn,
};
use halfgnn_contract::rng::{ROUNDED_TOGETHER, rounding_bits_by, rounding_noise};

/// A thread's columns, as wide as one of its vectors, and what it has seen of them.
pub struct Coder<V: Vector> {
    vector: u32,
    /// Of the vector's elements those that are no padding, or more.
    filled: u32,
    format: CodeFormat,
    reciprocals: V::Floats,
    step: u32,
    drawn: bool,
    /// NaN where a value was.
    largest: V::Floats,
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
            filled: columns.saturating_sub(vector * V::WIDTH),
            format,
            reciprocals: V::Floats::ONE,
            step: 0,
            drawn,
            largest: V::Floats::ZERO,
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
        if self.filled < V::WIDTH {
            // Padding is zero, whatever the factor of the row.
            let mut i = 0;
            while i < V::WIDTH {
                if i >= self.filled {
                    values = values.with(i as usize, 0.0);
                }
                i += 1;
            }
        }
        let larger = |largest, value: f32| max(largest, value.abs());
        self.largest = self.largest.zip(values, larger);
        let mut numbers = values.zip(self.reciprocals, |value, reciprocal| value * reciprocal);
        // Also of a NaN, which is not within anything.
        if !(largest_of::<V>(numbers) <= self.format.limit()) {
            if row < params.counted {
                self.count(values, numbers);
            }
            numbers = numbers.map(|number| self.format.within(number));
        }
        let words = if self.drawn {
            let block = first / ROUNDED_TOGETHER;
            // Round keys take fewer instructions than registers.
            let key = params.key.map(recomputed);
            let of_rows = Global::<u32>::new(params.numbers);
            let number = if of_rows.is_null() {
                row
            } else {
                // SAFETY: there is a number for each row.
                unsafe { of_rows.at(row).read() as u64 }
            };
            let bits = rounding_bits_by(key, self.step, number, block, wide_product);
            // A vector of floats is half of what is drawn together.
            let second = V::WIDTH < ROUNDED_TOGETHER && self.vector % 2 == 1;
            let [a, b, c, d] = bits;
            let noise = if second { [c, d, a, b] } else { bits };
            words::<V>(numbers, |number, i| {
                let noise = rounding_noise(noise, i);
                match self.format {
                    CodeFormat::Int8 => whole_part(int8_drawn(number, noise >> 16)),
                    CodeFormat::E4m3 => self.format.encode_within(number, Some(noise)),
                }
            })
        } else {
            words::<V>(numbers, |number, _| match self.format {
                CodeFormat::Int8 => int8_bits(number),
                CodeFormat::E4m3 => self.format.encode_within(number, None),
            })
        };
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

    /// Counts what no code stands for: values, which are numbers times their scales.
    #[inline(always)]
    fn count(&mut self, values: V::Floats, numbers: V::Floats) {
        let mut i = 0;
        while i < V::WIDTH as usize {
            self.not_finite += !values.get(i).is_finite() as u32;
            self.saturated += (numbers.get(i).abs() > self.format.saturation()) as u32;
            i += 1;
        }
    }

    /// Tells what all threads of the CTA have seen: `1 << lanes_log2` neighbouring ones have vectors side by side, which those
    /// after them have as well, and the first of the CTA has `first_vector`. Together they have no more columns than the CTA threads.
    ///
    /// # Safety
    /// The launch contract; all `THREADS` threads of the CTA come together, and `room` has
    /// [`largest_bytes`](halfgnn_contract::quantize::largest_bytes) that none of them uses, aligned to 16 bytes.
    #[inline(always)]
    pub unsafe fn finish<const THREADS: u32>(
        self,
        params: &CodesParams,
        room: Shared,
        lanes_log2: u32,
        first_vector: u32,
    ) {
        let counts = Global::<u32>::new(params.counts);
        let columns = V::WIDTH << lanes_log2;
        let column = first_vector * V::WIDTH + thread_idx_x();
        let has_column = thread_idx_x() < columns && column < params.stride;
        let place = |warp: u32, at: u32| room.offset((warp * columns + at) * 4);
        let largest = Global::<u32>::new(params.largest).at(column as u64);
        // SAFETY: the caller's promise. Of a warp the first lanes write what all have seen, before the barrier; after it a column is one
        // thread's.
        unsafe {
            if self.saturated != 0 {
                add_u32(counts.at(SATURATED as u64), self.saturated);
            }
            if self.not_finite != 0 {
                add_u32(counts.at(NOT_FINITE as u64), self.not_finite);
            }
            // What others have told already, on its way while this CTA puts its own together.
            let told = if has_column { peek_u32(largest) } else { 0 };
            let mut seen = self.largest;
            let mut distance = 1 << lanes_log2;
            while distance < WARP {
                // One after the other, so that no function is made of it.
                let mut i = 0;
                while i < V::WIDTH as usize {
                    let of_another = shuffle_xor(seen.get(i), distance);
                    seen = seen.with(i, max(seen.get(i), of_another));
                    i += 1;
                }
                distance *= 2;
            }
            if lane_id() < 1 << lanes_log2 {
                let mut i = 0;
                while i < V::WIDTH {
                    let four = [0, 1, 2, 3].map(|k| seen.get((i + k) as usize).to_bits());
                    place(warp_id(), lane_id() * V::WIDTH + i).store_u32x4(four);
                    i += 4;
                }
            }
            sync_threads();
            if !has_column {
                return;
            }
            let mut found = 0;
            let mut warp = 0;
            while warp < THREADS / WARP {
                found = place(warp, thread_idx_x()).load_u32().max(found);
                warp += 1;
            }
            // NaNs are infinite here.
            let found = found.min(f32::INFINITY.to_bits());
            // A column's largest is found early, and thousands of CTAs would wait for each other to say nothing new.
            if found > told {
                max_u32(largest, found);
            }
        }
    }
}

/// The largest magnitude, NaN if one is.
#[inline(always)]
fn largest_of<V: Vector>(numbers: V::Floats) -> f32 {
    let mut largest = [0.0; 2];
    let mut i = 0;
    while i < V::WIDTH as usize {
        largest[i % 2] = max(largest[i % 2], numbers.get(i).abs());
        i += 1;
    }
    max(largest[0], largest[1])
}

/// The lowest bytes of what `code` makes of numbers and their places in the vector, four a word.
#[inline(always)]
fn words<V: Vector>(numbers: V::Floats, code: impl Fn(f32, u32) -> u32) -> [u32; 2] {
    let mut words = [0; 2];
    let mut i = 0;
    while i < V::WIDTH {
        let code = |k: u32| code(numbers.get((i + k) as usize), i + k);
        let low = bytes_of::<0x0040>(code(0), code(1));
        let high = bytes_of::<0x0040>(code(2), code(3));
        words[(i / 4) as usize] = bytes_of::<0x5410>(low, high);
        i += 4;
    }
    words
}
