//! Products of two matrices of bits, on tensor cores that count where both have a bit.

use crate::device::global::Global;
use crate::device::mma::count_both;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, sync_threads, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use crate::device::warp::{lane_id, shuffle_xor, warp_id};
use core::marker::PhantomData;
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{BMM_COLUMNS, BMM_STEP, BMM_TILE_ROWS, BmmParams, WARPS_PER_CTA};

/// Fragments of 8 columns.
const FRAGMENTS: usize = (BMM_COLUMNS / 8) as usize;
/// Columns of a lane, side by side: two of each fragment.
const LANE_COLUMNS: usize = 2 * FRAGMENTS;
/// Words of 32 bits that are multiplied at once.
const STEP_WORDS: u32 = BMM_STEP / WARP;

/// Where the factors of columns lie in shared memory, behind what follows from how many bits each has.
const SCALES: u32 = BMM_COLUMNS * 4;
/// Where what is added lies.
const BIASES: u32 = 2 * SCALES;

/// What a product becomes.
pub trait Output {
    /// Writes 16 columns of a row, those past the last as zero.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come, four neighbouring ones with the same row, from the first columns of the CTA to
    /// the last. Nothing is written where the row is none.
    unsafe fn write(params: &BmmParams, row: u32, first: u32, values: [f32; LANE_COLUMNS]);
    /// Writes products that nothing is done with.
    ///
    /// # Safety
    /// As [`Output::write`].
    unsafe fn write_plain(params: &BmmParams, row: u32, first: u32, products: [i32; LANE_COLUMNS]);
}

/// What an element becomes of itself and of the product's.
pub trait Sum {
    /// Whether it is of what was there.
    const READS: bool;
    /// The element in float, before it is rounded.
    fn of(params: &BmmParams, before: f32, value: f32) -> f32;
}

/// The product alone.
pub struct Alone;

impl Sum for Alone {
    const READS: bool = false;
    #[inline(always)]
    fn of(_: &BmmParams, _: f32, value: f32) -> f32 {
        value
    }
}

/// What was there and the product.
pub struct Added;

impl Sum for Added {
    const READS: bool = true;
    #[inline(always)]
    fn of(_: &BmmParams, before: f32, value: f32) -> f32 {
        before + value
    }
}

/// What was there and a share, with the product's sign.
pub struct AddedSigns;

impl Sum for AddedSigns {
    const READS: bool = true;
    #[inline(always)]
    fn of(params: &BmmParams, before: f32, value: f32) -> f32 {
        before
            + if value >= 0.0 {
                params.share
            } else {
                -params.share
            }
    }
}

/// Elements.
pub struct Elements<V, S>(PhantomData<(V, S)>);

impl<V: Vector, S: Sum> Output for Elements<V, S> {
    #[inline(always)]
    unsafe fn write(params: &BmmParams, row: u32, first: u32, values: [f32; LANE_COLUMNS]) {
        if row >= params.rows {
            return;
        }
        let y = Global::<V::Feature>::new(params.y)
            .at(row as u64 * params.y_stride as u64 + first as u64);
        // All of it is asked for before anything is written.
        let mut before = [0.0; LANE_COLUMNS];
        if S::READS {
            let mut there = V::Floats::ZERO;
            unroll!(at in 0..LANE_COLUMNS => {
                let (vector, i) = (at as u32 / V::WIDTH, at as u32 % V::WIDTH);
                if first + vector * V::WIDTH < params.y_stride {
                    if i == 0 {
                        // SAFETY: the vector is one of the row's, and none but this lane writes it. No `read`: it is written below.
                        there = V::from_bits(unsafe {
                            Global::<V::Bits>::cast(y).at(vector as u64).load()
                        })
                        .widen();
                    }
                    before[at] = there.get(i as usize);
                }
            });
        }
        let mut floats = V::Floats::ZERO;
        unroll!(at in 0..LANE_COLUMNS => {
            let (vector, i) = (at as u32 / V::WIDTH, at as u32 % V::WIDTH);
            let is_column = first + (at as u32) < params.columns;
            let value = if is_column {
                S::of(params, before[at], values[at])
            } else {
                0.0
            };
            floats = floats.with(i as usize, value);
            if i + 1 == V::WIDTH && first + vector * V::WIDTH < params.y_stride {
                // SAFETY: the vector is one of the row's, padding included, and the row is one of the matrix.
                unsafe {
                    Global::<V::Bits>::cast(y)
                        .at(vector as u64)
                        .store(V::narrow(floats).to_bits());
                }
            }
        });
    }
    #[inline(always)]
    unsafe fn write_plain(params: &BmmParams, row: u32, first: u32, products: [i32; LANE_COLUMNS]) {
        let mut values = [0.0; LANE_COLUMNS];
        unroll!(at in 0..LANE_COLUMNS => {
            values[at] = products[at] as f32;
        });
        // SAFETY: the caller's promise.
        unsafe { Self::write(params, row, first, values) }
    }
}

/// Signs: a bit is set where the value is zero or more.
pub struct Signs;

impl Signs {
    /// Writes the bits of 16 columns, of which those past the last become zero.
    ///
    /// # Safety
    /// As [`Output::write`].
    #[inline(always)]
    unsafe fn write_bits(params: &BmmParams, row: u32, first: u32, mut bits: u32) {
        let there = params.columns.saturating_sub(first);
        if there < LANE_COLUMNS as u32 {
            bits &= !(u32::MAX << there);
        }
        let upper = first % WARP;
        // SAFETY: all lanes come to the shuffle; a word of 32 columns is the even lane's of two.
        unsafe {
            bits <<= upper;
            bits |= shuffle_xor(bits, 1);
            if row < params.rows && upper == 0 {
                let word = row as u64 * params.y_stride as u64 * 2 + (first / WARP) as u64;
                Global::<u32>::new(params.y).at(word).store(bits);
            }
        }
    }
}

impl Output for Signs {
    #[inline(always)]
    unsafe fn write(params: &BmmParams, row: u32, first: u32, values: [f32; LANE_COLUMNS]) {
        let mut bits = 0;
        unroll!(at in 0..LANE_COLUMNS => {
            bits |= ((values[at] >= 0.0) as u32) << at;
        });
        // SAFETY: the caller's promise.
        unsafe { Self::write_bits(params, row, first, bits) }
    }
    #[inline(always)]
    unsafe fn write_plain(params: &BmmParams, row: u32, first: u32, products: [i32; LANE_COLUMNS]) {
        // The bit of each that is below zero, the last column's first: one funnel shift a column.
        let mut below = 0u32;
        unroll!(at in 0..LANE_COLUMNS => {
            below = below << 1 | products[LANE_COLUMNS - 1 - at] as u32 >> 31;
        });
        // SAFETY: the caller's promise.
        unsafe { Self::write_bits(params, row, first, !below & 0xffff) }
    }
}

/// # Safety
/// The launch contract of [`BmmParams`]: `bmm_ctas` CTAs of `THREADS_PER_CTA` threads, `BMM_SHARED_BYTES` of shared memory.
#[inline(always)]
pub unsafe fn run<O: Output>(params: &BmmParams) {
    let first_column = block_idx_y() * BMM_COLUMNS;
    let words = params.inner.div_ceil(WARP);
    let a = Global::<u32>::new(params.a);
    let b = Global::<u32>::new(params.b);
    let b_row = |column: u32| b.at(column as u64 * params.b_stride as u64 * 2);
    // SAFETY: the caller's promise; all threads come to the barrier, and all lanes to what is the warp's.
    unsafe {
        if thread_idx_x() < BMM_COLUMNS {
            let column = first_column + thread_idx_x();
            let mut count = 0;
            let mut word = 0;
            while column < params.columns && word < words {
                count += b_row(column).at(word as u64).read().count_ones();
                word += 1;
            }
            let place = Shared::base().offset(thread_idx_x() * 4);
            place.store_u32(params.inner.wrapping_sub(2 * count));
            place.offset(SCALES).store_f32(factor(
                params.column_scale,
                column,
                params.columns,
                1.0,
            ));
            place
                .offset(BIASES)
                .store_f32(factor(params.bias, column, params.columns, 0.0));
        }
        sync_threads();

        let is_null = |numbers| Global::<f32>::new(numbers).is_null();
        let is_plain = params.scale == 1.0
            && is_null(params.row_scale)
            && is_null(params.column_scale)
            && is_null(params.bias);
        let (group, within) = (lane_id() / 4, lane_id() % 4);
        let first = first_column + within * LANE_COLUMNS as u32;
        let columns = Shared::base().offset(within * LANE_COLUMNS as u32 * 4);
        let warp = block_idx_x() * WARPS_PER_CTA + warp_id();
        let mut row = warp * params.rows_per_warp;
        let end = (row + params.rows_per_warp).min(params.rows);
        // The words of a lane's two rows of a tile.
        let of_rows = |row: u32, step: u32| {
            let word = step + within;
            let mut words_of = [0u32; 2];
            unroll!(half in 0..2 => {
                let row = row + group + half as u32 * 8;
                let at = row as u64 * params.a_stride as u64 * 2 + word as u64;
                words_of[half] = a.at(at).load_if(row < end && word < words);
            });
            words_of
        };
        let mut of_b = [0u32; FRAGMENTS];
        let mut has_b = false;
        let mut ahead = of_rows(row, 0);
        while row < end {
            let mut of_a = ahead;
            ahead = of_rows(row + BMM_TILE_ROWS, 0);
            let mut both = [[0u32; 4]; FRAGMENTS];
            let mut ones = [0u32; 2];
            let mut step = 0;
            while step < words {
                if step > 0 {
                    of_a = of_rows(row, step);
                }
                // Words of columns of few bits stay where they are from tile to tile.
                if !has_b {
                    let word = step + within;
                    unroll!(fragment in 0..FRAGMENTS => {
                        // So that the sums of a lane, two of each fragment, are of columns side by side.
                        let column = first_column
                            + group / 2 * LANE_COLUMNS as u32
                            + fragment as u32 * 2
                            + group % 2;
                        let is_there = column < params.columns && word < words;
                        of_b[fragment] = b_row(column).at(word as u64).load_if(is_there);
                    });
                    has_b = words <= STEP_WORDS;
                }
                unroll!(half in 0..2 => {
                    ones[half] += of_a[half].count_ones();
                });
                unroll!(fragment in 0..FRAGMENTS => {
                    count_both(&mut both[fragment], of_a, of_b[fragment]);
                });
                step += STEP_WORDS;
            }

            unroll!(half in 0..2 => {
                let own = row + group + half as u32 * 8;
                let mut ones = ones[half];
                ones += shuffle_xor(ones, 1);
                ones += shuffle_xor(ones, 2);
                let mut products = [0i32; LANE_COLUMNS];
                unroll!(vector in 0..LANE_COLUMNS / 4 => {
                    let of_columns = columns.offset(vector as u32 * 16).load_u32x4();
                    unroll!(i in 0..4 => {
                        let at = 4 * vector + i;
                        let rest = of_columns[i].wrapping_sub(2 * ones);
                        products[at] = rest.wrapping_add(4 * both[at / 2][2 * half + at % 2]) as i32;
                    });
                });
                if is_plain {
                    O::write_plain(params, own, first, products);
                } else {
                    let factor = params.scale * factor(params.row_scale, own, params.rows, 1.0);
                    let mut values = [0.0; LANE_COLUMNS];
                    unroll!(at in 0..LANE_COLUMNS => {
                        let place = columns.offset(at as u32 * 4);
                        let scaled = products[at] as f32 * factor * place.offset(SCALES).load_f32();
                        values[at] = scaled + place.offset(BIASES).load_f32();
                    });
                    O::write(params, own, first, values);
                }
            });
            row += BMM_TILE_ROWS;
        }
    }
}

/// Number `at` of `len`, or what stands for none.
///
/// # Safety
/// It is null or as long as that.
#[inline(always)]
unsafe fn factor(numbers: halfgnn_contract::DevicePtr<f32>, at: u32, len: u32, none: f32) -> f32 {
    let numbers = Global::<f32>::new(numbers);
    if numbers.is_null() || at >= len {
        none
    } else {
        // SAFETY: the caller's promise.
        unsafe { numbers.at(at as u64).read() }
    }
}
