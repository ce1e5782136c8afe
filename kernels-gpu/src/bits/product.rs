//! Products of two matrices of bits, on tensor cores that count where both have a bit.

use crate::device::global::Global;
use crate::device::mma::count_both;
use crate::device::registers::{recomputed, unroll};
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, sync_threads, thread_idx_x};
use crate::device::vector::{Floats, Vector, without_padding};
use crate::device::warp::{lane_id, shuffle_xor, warp_id};
use core::marker::PhantomData;
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{BMM_COLUMNS, BMM_STEP, BMM_TILE_ROWS, BmmParams, WARPS_PER_CTA};

/// Fragments of 8 columns.
const FRAGMENTS: usize = (BMM_COLUMNS / 8) as usize;
/// Columns of a lane: two of each fragment.
const LANE_COLUMNS: usize = 2 * FRAGMENTS;
/// Lanes that share a row.
const ROW_LANES: u32 = 4;
/// Words of 32 bits that are multiplied at once.
const STEP_WORDS: u32 = BMM_STEP / WARP;

/// The most of [`Output::TILES_AHEAD`].
const MOST_TILES_AHEAD: usize = 4;
/// Steps whose words are asked for together, where they do not.
const STEPS_AHEAD: usize = 2;

/// Where the factors of columns lie in shared memory, behind what follows from how many bits each has.
const SCALES: u32 = BMM_COLUMNS * 4;
/// Where what is added lies.
const BIASES: u32 = 2 * SCALES;

/// What a product becomes.
pub trait Output {
    /// Columns of a lane side by side. Those of the lanes that share a row follow one another, and then the next of the first: so what
    /// they store at once is side by side.
    const SIDE: usize;
    /// Tiles whose rows are asked for together, where columns stay in registers: of one a warp waits longer for memory than it multiplies.
    const TILES_AHEAD: usize;
    /// What there is of a lane's columns from `first` on, where the output is of that.
    ///
    /// # Safety
    /// The launch contract.
    unsafe fn before(params: &BmmParams, row: u32, first: u32) -> [u32; 4];
    /// Writes the first [`Output::SIDE`] values to a row, from column `first` on, those past the last column as zero.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come, four neighbouring ones with the same row and columns that follow one another.
    /// Nothing is written where the row is none.
    unsafe fn write(
        params: &BmmParams,
        row: u32,
        first: u32,
        before: [u32; 4],
        values: [f32; LANE_COLUMNS],
    );
    /// Writes products that nothing is done with, of which none is past the last column.
    ///
    /// # Safety
    /// As [`Output::write`].
    unsafe fn write_plain(
        params: &BmmParams,
        row: u32,
        first: u32,
        before: [u32; 4],
        products: [i32; LANE_COLUMNS],
    );
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

impl<V: Vector<Bits = [u32; 4]>, S: Sum> Elements<V, S> {
    /// The vector of a row that begins with column `first`.
    #[inline(always)]
    fn place(params: &BmmParams, row: u32, first: u32) -> Global<[u32; 4]> {
        let at = row as u64 * params.y_stride as u64 + first as u64;
        Global::cast(Global::<V::Feature>::new(params.y).at(at))
    }

    /// What elements become of what there was and of `value`.
    #[inline(always)]
    fn sums(params: &BmmParams, before: [u32; 4], value: impl Fn(usize) -> f32) -> V::Floats {
        let before = V::from_bits(before).widen();
        let mut floats = V::Floats::ZERO;
        unroll!(i in 0..V::WIDTH as usize => {
            floats = floats.with(i, S::of(params, before.get(i), value(i)));
        });
        floats
    }
}

impl<V: Vector<Bits = [u32; 4]>, S: Sum> Output for Elements<V, S> {
    const SIDE: usize = V::WIDTH as usize;
    // What is written is most of the traffic, and of more tiles some words have no register.
    const TILES_AHEAD: usize = 2;
    #[inline(always)]
    unsafe fn before(params: &BmmParams, row: u32, first: u32) -> [u32; 4] {
        if !S::READS {
            return [0; 4];
        }
        let is_there = row < params.rows && first < params.y_stride;
        // SAFETY: the vector is one of the row's, and none but this lane writes it. No `read`: it is written.
        unsafe { Self::place(params, row, first).load_if(is_there) }
    }
    #[inline(always)]
    unsafe fn write(
        params: &BmmParams,
        row: u32,
        first: u32,
        before: [u32; 4],
        values: [f32; LANE_COLUMNS],
    ) {
        let sums = Self::sums(params, before, |i| values[i]);
        let sums = without_padding::<V>(sums, first as u64, params.columns);
        if row < params.rows && first < params.y_stride {
            // SAFETY: the vector is one of the row's, padding included, and the row is one of the matrix.
            unsafe { Self::place(params, row, first).store(V::narrow(sums).to_bits()) };
        }
    }
    #[inline(always)]
    unsafe fn write_plain(
        params: &BmmParams,
        row: u32,
        first: u32,
        before: [u32; 4],
        products: [i32; LANE_COLUMNS],
    ) {
        let sums = Self::sums(params, before, |i| products[i] as f32);
        if row < params.rows {
            // SAFETY: the vector is one of the row's, and the row is one of the matrix.
            unsafe { Self::place(params, row, first).store(V::narrow(sums).to_bits()) };
        }
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
    const SIDE: usize = LANE_COLUMNS;
    const TILES_AHEAD: usize = 4;
    #[inline(always)]
    unsafe fn before(_: &BmmParams, _: u32, _: u32) -> [u32; 4] {
        [0; 4]
    }
    #[inline(always)]
    unsafe fn write(
        params: &BmmParams,
        row: u32,
        first: u32,
        _: [u32; 4],
        values: [f32; LANE_COLUMNS],
    ) {
        let mut bits = 0;
        unroll!(at in 0..LANE_COLUMNS => {
            bits |= ((values[at] >= 0.0) as u32) << at;
        });
        // SAFETY: the caller's promise.
        unsafe { Self::write_bits(params, row, first, bits) }
    }
    #[inline(always)]
    unsafe fn write_plain(
        params: &BmmParams,
        row: u32,
        first: u32,
        _: [u32; 4],
        products: [i32; LANE_COLUMNS],
    ) {
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
    let is_null = |numbers| Global::<f32>::new(numbers).is_null();
    let first = (block_idx_x() * WARPS_PER_CTA + warp_id()) * params.rows_per_warp;
    let warp = Warp {
        params,
        first_column,
        words: params.inner.div_ceil(WARP),
        first,
        end: (first + params.rows_per_warp).min(params.rows),
    };
    // Nothing is done with products, and none is past the last column.
    let is_plain = params.scale == 1.0
        && is_null(params.row_scale)
        && is_null(params.column_scale)
        && is_null(params.bias)
        && first_column + BMM_COLUMNS <= params.columns;
    // SAFETY: the caller's promise; all threads come to the barrier, and all lanes to what is the warp's.
    unsafe {
        warp.look_at_columns();
        sync_threads();
        match (warp.words <= STEP_WORDS, is_plain) {
            (true, true) => warp.by_columns_that_stay::<O, true>(),
            (true, false) => warp.by_columns_that_stay::<O, false>(),
            (false, true) => warp.by_steps::<O, true>(),
            (false, false) => warp.by_steps::<O, false>(),
        }
    }
}

/// The rows and columns of a warp.
struct Warp<'a> {
    params: &'a BmmParams,
    first_column: u32,
    /// Words of 32 bits of a row of either operand.
    words: u32,
    first: u32,
    /// One behind the last row.
    end: u32,
}

impl Warp<'_> {
    /// Word `word` of a row of the second operand. Rows are of less than 2³² bits, so that their bytes fit 32.
    #[inline(always)]
    fn column(&self, column: u32, word: u32) -> Global<u32> {
        let words = Global::new(self.params.b).at(word as u64);
        words.row(column, self.params.b_stride * 8)
    }

    /// Puts what follows from how many bits each of the CTA's columns has, and their factors, into shared memory: four threads a column.
    ///
    /// # Safety
    /// The launch contract; all threads of the CTA come together.
    #[inline(always)]
    unsafe fn look_at_columns(&self) {
        const { assert!(WARPS_PER_CTA * WARP == BMM_COLUMNS * ROW_LANES) };
        let params = self.params;
        let (of_cta, within) = (thread_idx_x() / ROW_LANES, thread_idx_x() % ROW_LANES);
        let column = self.first_column + of_cta;
        let mut count = 0;
        // SAFETY: the caller's promise: a column that is one has the words; all lanes come to the shuffles, and a place is one thread's.
        unsafe {
            let mut word = within;
            while column < params.columns && word < self.words {
                count += self.column(column, word).read().count_ones();
                word += ROW_LANES;
            }
            count += shuffle_xor(count, 1);
            count += shuffle_xor(count, 2);
            if within == 0 {
                let place = Shared::base().offset(of_cta * 4);
                place.store_u32(params.inner.wrapping_sub(2 * count));
                let scale = factor(params.column_scale, column, params.columns, 1.0);
                place.offset(SCALES).store_f32(scale);
                let bias = factor(params.bias, column, params.columns, 0.0);
                place.offset(BIASES).store_f32(bias);
            }
        }
    }

    /// The words of a lane's two rows of a tile, from word `step` on; zeros past the last of either.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn of_rows(&self, row: u32, step: u32) -> [u32; 2] {
        let word = step + lane_id() % ROW_LANES;
        let a = Global::<u32>::new(self.params.a).at(word as u64);
        let mut words = [0u32; 2];
        unroll!(half in 0..2 => {
            let row = row + lane_id() / ROW_LANES + half as u32 * 8;
            let place = a.row(row, self.params.a_stride * 8);
            // SAFETY: the caller's promise: it is a word of the matrix if the condition holds.
            words[half] = unsafe { place.load_if(row < self.end && word < self.words) };
        });
        words
    }

    /// The word of a lane's column of each fragment, likewise. Column `n` of a fragment is in the sums of lane `n / 2` of a row's, and is
    /// numbered so that these come to lie as the output wants them.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn of_columns<O: Output>(&self, step: u32) -> [u32; FRAGMENTS] {
        // Where columns lie is found again in every step: as many addresses have no room beside the counts.
        let lane = recomputed(lane_id());
        let (n, word) = (lane / ROW_LANES, step + lane % ROW_LANES);
        let mut words = [0u32; FRAGMENTS];
        unroll!(fragment in 0..FRAGMENTS => {
            let column = self.first_of_vector::<O>(2 * fragment / O::SIDE, n / 2)
                + (2 * fragment % O::SIDE) as u32
                + n % 2;
            let is_there = column < self.params.columns && word < self.words;
            // SAFETY: the caller's promise: it is a word of the matrix if the condition holds.
            words[fragment] = unsafe { self.column(column, word).load_if(is_there) };
        });
        words
    }

    /// The first column of a vector of lane `within` of those that share a row.
    #[inline(always)]
    fn first_of_vector<O: Output>(&self, vector: usize, within: u32) -> u32 {
        self.first_column + (vector as u32 * ROW_LANES + within) * O::SIDE as u32
    }

    /// All tiles, of columns of so few bits that their words stay in registers. `PLAIN` says that products are what is written.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, and shared memory holds what the columns are.
    #[inline(always)]
    unsafe fn by_columns_that_stay<O: Output, const PLAIN: bool>(&self) {
        const { assert!(O::TILES_AHEAD <= MOST_TILES_AHEAD) };
        let mut row = self.first;
        // SAFETY: the caller's promise: loops are the same for all lanes.
        unsafe {
            let ahead_of = |row: u32| {
                let mut tiles = [[0u32; 2]; MOST_TILES_AHEAD];
                unroll!(tile in 0..MOST_TILES_AHEAD => {
                    if tile < O::TILES_AHEAD {
                        tiles[tile] = self.of_rows(row + tile as u32 * BMM_TILE_ROWS, 0);
                    }
                });
                tiles
            };
            let of_b = self.of_columns::<O>(0);
            let mut ahead = ahead_of(row);
            while row < self.end {
                let tiles = ahead;
                ahead = ahead_of(row + O::TILES_AHEAD as u32 * BMM_TILE_ROWS);
                let mut tile = 0;
                while tile < O::TILES_AHEAD as u32 && row < self.end {
                    // By selection, since registers have no numbers.
                    let mut of_a = [0; 2];
                    unroll!(i in 0..MOST_TILES_AHEAD => {
                        if i < O::TILES_AHEAD && tile == i as u32 {
                            of_a = tiles[i];
                        }
                    });
                    let mut sums = Sums::ZERO;
                    sums.add(of_a, of_b);
                    self.write::<O, PLAIN>(row, &sums);
                    row += BMM_TILE_ROWS;
                    tile += 1;
                }
            }
        }
    }

    /// All tiles, of columns of more bits.
    ///
    /// # Safety
    /// As [`Warp::by_columns_that_stay`].
    #[inline(always)]
    unsafe fn by_steps<O: Output, const PLAIN: bool>(&self) {
        let mut row = self.first;
        // SAFETY: the caller's promise: loops are the same for all lanes.
        unsafe {
            while row < self.end {
                let mut sums = Sums::ZERO;
                let mut step = 0;
                while step < self.words {
                    let mut of_a = [[0u32; 2]; STEPS_AHEAD];
                    let mut of_b = [[0u32; FRAGMENTS]; STEPS_AHEAD];
                    unroll!(i in 0..STEPS_AHEAD => {
                        of_a[i] = self.of_rows(row, step + i as u32 * STEP_WORDS);
                        of_b[i] = self.of_columns::<O>(step + i as u32 * STEP_WORDS);
                    });
                    unroll!(i in 0..STEPS_AHEAD => {
                        sums.add(of_a[i], of_b[i]);
                    });
                    step += STEPS_AHEAD as u32 * STEP_WORDS;
                }
                self.write::<O, PLAIN>(row, &sums);
                row += BMM_TILE_ROWS;
            }
        }
    }

    /// Writes a tile.
    ///
    /// # Safety
    /// As [`Warp::by_columns_that_stay`].
    #[inline(always)]
    unsafe fn write<O: Output, const PLAIN: bool>(&self, row: u32, sums: &Sums) {
        // SAFETY: the caller's promise.
        unsafe {
            self.write_half::<O, PLAIN, 0>(row, sums);
            self.write_half::<O, PLAIN, 1>(row, sums);
        }
    }

    /// Writes the first or the second eight rows of a tile.
    ///
    /// # Safety
    /// As [`Warp::by_columns_that_stay`].
    #[inline(always)]
    unsafe fn write_half<O: Output, const PLAIN: bool, const HALF: usize>(
        &self,
        row: u32,
        sums: &Sums,
    ) {
        const { assert!(LANE_COLUMNS.is_multiple_of(O::SIDE) && O::SIDE.is_multiple_of(4)) };
        let params = self.params;
        let within = lane_id() % ROW_LANES;
        let row = row + lane_id() / ROW_LANES + HALF as u32 * 8;
        // SAFETY: the caller's promise; the four lanes of a row come to the shuffles with what it has.
        unsafe {
            let mut ones = sums.ones[HALF];
            ones += shuffle_xor(ones, 1);
            ones += shuffle_xor(ones, 2);
            // All of it is asked for before anything is written.
            let mut before = [[0; 4]; LANE_COLUMNS];
            unroll!(vector in 0..LANE_COLUMNS / O::SIDE => {
                before[vector] = O::before(params, row, self.first_of_vector::<O>(vector, within));
            });
            let factor = match PLAIN {
                true => 1.0,
                false => params.scale * factor(params.row_scale, row, params.rows, 1.0),
            };
            unroll!(vector in 0..LANE_COLUMNS / O::SIDE => {
                let first = self.first_of_vector::<O>(vector, within);
                let columns = Shared::base().offset((first - self.first_column) * 4);
                let both = |at: usize| sums.both(HALF, vector * O::SIDE + at);
                let products = products::<O>(columns, ones, both);
                if PLAIN {
                    O::write_plain(params, row, first, before[vector], products);
                } else {
                    let values = scaled::<O>(columns, factor, products);
                    O::write(params, row, first, before[vector], values);
                }
            });
        }
    }
}

/// Products of columns that shared memory knows, of so many ones in their row, from where both have a bit.
///
/// # Safety
/// `columns` are those of an output's vector.
#[inline(always)]
unsafe fn products<O: Output>(
    columns: Shared,
    ones: u32,
    both: impl Fn(usize) -> u32,
) -> [i32; LANE_COLUMNS] {
    let mut products = [0i32; LANE_COLUMNS];
    let mut of_columns = [0u32; 4];
    unroll!(at in 0..O::SIDE => {
        if at % 4 == 0 {
            // SAFETY: the caller's promise.
            of_columns = unsafe { columns.offset(at as u32 * 4).load_u32x4() };
        }
        let rest = of_columns[at % 4].wrapping_sub(2 * ones);
        products[at] = rest.wrapping_add(4 * both(at)) as i32;
    });
    products
}

/// What is done with products of a row and of columns that shared memory knows.
///
/// # Safety
/// As [`products`].
#[inline(always)]
unsafe fn scaled<O: Output>(
    columns: Shared,
    factor: f32,
    products: [i32; LANE_COLUMNS],
) -> [f32; LANE_COLUMNS] {
    let mut values = [0.0; LANE_COLUMNS];
    let (mut scales, mut biases) = ([0u32; 4], [0u32; 4]);
    unroll!(at in 0..O::SIDE => {
        if at % 4 == 0 {
            let place = columns.offset(at as u32 * 4);
            // SAFETY: the caller's promise.
            (scales, biases) =
                unsafe { (place.offset(SCALES).load_u32x4(), place.offset(BIASES).load_u32x4()) };
        }
        let scaled = products[at] as f32 * factor * f32::from_bits(scales[at % 4]);
        values[at] = scaled + f32::from_bits(biases[at % 4]);
    });
    values
}

/// What is counted of a tile: where both have a bit, as fragments have it, and where the lane's two rows have one.
struct Sums {
    both: [[u32; 4]; FRAGMENTS],
    ones: [u32; 2],
}

impl Sums {
    const ZERO: Self = Self {
        both: [[0; 4]; FRAGMENTS],
        ones: [0; 2],
    };

    /// Counts a step.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    unsafe fn add(&mut self, of_a: [u32; 2], of_b: [u32; FRAGMENTS]) {
        unroll!(half in 0..2 => {
            self.ones[half] += of_a[half].count_ones();
        });
        unroll!(fragment in 0..FRAGMENTS => {
            // SAFETY: the caller's promise.
            unsafe { count_both(&mut self.both[fragment], of_a, of_b[fragment]) };
        });
    }

    /// Where both have a bit, of a lane's column `at` in one of its two rows.
    #[inline(always)]
    fn both(&self, half: usize, at: usize) -> u32 {
        self.both[at / 2][2 * half + at % 2]
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
