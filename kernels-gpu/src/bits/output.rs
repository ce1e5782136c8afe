//! What sums over neighbours become: signs, elements, or integers.

use super::columns::{Pairs, Rows, columns_apart, first_column, in_order, interleave, whole};
use super::planes::Planes;
use crate::device::global::Global;
use crate::device::registers::{recomputed, unroll};
use crate::device::vector::{Float4, Floats, Vector};
use crate::device::warp::{ballot, lane_id, shuffle_down, shuffle_idx};
use core::marker::PhantomData;
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{BspmmParams, WORD_BITS};

/// A kind of output, of `P` words of 64 columns of up to 32 rows of a warp, each of which is known to one lane.
pub trait Output<const P: usize> {
    /// What a lane knows of its row.
    type OfRow: Copy;
    /// A row of at most so many edges is added up by the lane that has the first of them: [`Output::write_few`]. Zero where there is no such way.
    const LANE_EDGES: u32;

    /// What is known of the lane's row.
    ///
    /// # Safety
    /// The launch contract; it is a row of the graph if `is_there`.
    unsafe fn open(params: &BspmmParams, row: u32, is_there: bool) -> Self::OfRow;

    /// Writes the sums of the row of lane `slot`, which are below 2²¹.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together with the same `slot` and `unit`, whose lane has a row, and nobody else writes the unit.
    unsafe fn put(
        params: &BspmmParams,
        place: Place,
        of_row: Self::OfRow,
        slot: u32,
        sums: Pairs<i32, P>,
    );

    /// Writes the lane's own row, whose edges are that of the lane and those of the lanes after it, `edges` of them; the lane has none where that is zero.
    ///
    /// # Safety
    /// As [`Output::put`], with no more than [`Output::LANE_EDGES`] edges.
    unsafe fn write_few(params: &BspmmParams, place: Place, rows: &Rows<P>, edges: u32);

    /// Writes the sums of a row that all lanes know, as large as they may be.
    ///
    /// # Safety
    /// As [`Output::put`].
    unsafe fn write(params: &BspmmParams, place: Place, sums: Pairs<i32, P>);

    /// Writes the sums of `8 P` columns of a row from `column` on, a multiple of so many, which are below 2²¹: eight for each number below `P`. There are one, two or four of these.
    ///
    /// # Safety
    /// The launch contract; nobody else writes these columns of the row.
    unsafe fn put_columns(
        params: &BspmmParams,
        row: u32,
        of_row: Self::OfRow,
        column: u32,
        sums: impl Fn(usize) -> [i32; 8],
    );

    /// Writes a row without edges, which all lanes know.
    ///
    /// # Safety
    /// As [`Output::put`].
    unsafe fn clear(params: &BspmmParams, place: Place);

    /// Writes rows without edges, each of which one lane knows, where `is_there`.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together with the same unit, and nobody else writes it of these rows.
    #[inline(always)]
    unsafe fn clear_rows(params: &BspmmParams, place: Place, is_there: bool) {
        // SAFETY: the caller's promise; the loop is the same for all lanes.
        unsafe {
            let mut left = ballot(is_there);
            while left != 0 {
                let row = shuffle_idx(place.row, left.trailing_zeros());
                left &= left - 1;
                Self::clear(params, Place { row, ..place });
            }
        }
    }
}

/// A unit of a row of the graph: some words of 64 columns.
#[derive(Clone, Copy)]
pub struct Place {
    /// The row: in [`Output::put`], [`Output::write_few`] and [`Output::clear_rows`] the lane's own.
    pub row: u32,
    /// The unit, among those of the launch.
    pub unit: u32,
}

/// The first column of a unit.
#[inline(always)]
fn column_of<const P: usize>(params: &BspmmParams, unit: u32) -> u32 {
    (params.first_word + unit * P as u32) * WORD_BITS
}

/// Whether a row is one of those that the launch writes.
#[inline(always)]
pub fn is_written(params: &BspmmParams, row: u32) -> bool {
    row.wrapping_sub(params.first_row) < params.rows
}

/// The bits of 32 columns from `column` on that are there.
#[inline(always)]
fn there(params: &BspmmParams, column: u32) -> u32 {
    let there = params.features.saturating_sub(column);
    if there < WARP {
        !(u32::MAX << there)
    } else {
        u32::MAX
    }
}

/// The sign, of all rows: a bit is set where the sum is zero or more.
pub struct Signs;

/// Planes of the counts of a row that one lane adds up.
const COUNT_BITS: u32 = 3;

impl Signs {
    /// Writes a unit, without the bits past the last column.
    ///
    /// # Safety
    /// The launch contract; nobody else writes the unit.
    #[inline(always)]
    unsafe fn store<const P: usize>(params: &BspmmParams, place: Place, mut words: Pairs<u32, P>) {
        let first = column_of::<P>(params, place.unit);
        unroll!(word in 0..P => {
            unroll!(half in 0..2 => {
                let column = first + word as u32 * WORD_BITS + half as u32 * WARP;
                words[word][half] &= there(params, column);
            });
        });
        let y = Global::<u64>::new(params.y).at((first / WORD_BITS) as u64);
        let y = y.row(place.row, params.y_stride * (WORD_BITS / 8));
        // SAFETY: the caller's promise; rows of more than one word are aligned to 16 bytes, and a unit is theirs then.
        unsafe {
            if P == 1 {
                Global::<[u32; 2]>::cast(y).store(words[0]);
            } else {
                unroll!(two in 0..P / 2 => {
                    let [[a, b], [c, d]] = [words[2 * two], words[(2 * two + 1) % P]];
                    Global::<[u32; 4]>::cast(y).at(two as u64).store([a, b, c, d]);
                });
            }
        }
    }

    /// Writes the rows of the lanes that have `ends`: row `row` of `edges` edges, of which `counts` have a bit in the columns of the lane's word, where `P` lanes side by
    /// side have the words of a row.
    ///
    /// # Safety
    /// The launch contract; lanes of a row say the same of it, and nobody else writes it.
    #[inline(always)]
    pub unsafe fn write_counts<const N: usize, const P: usize>(
        params: &BspmmParams,
        row: u32,
        counts: &Planes<N>,
        edges: u32,
        ends: bool,
    ) {
        // Columns past the last have no edge's bit, which is less than half of any.
        let word = counts.at_least(edges.div_ceil(2));
        if ends {
            let y = Global::<u64>::new(params.y)
                .at((params.first_word + lane_id() % P as u32) as u64)
                .row(row, params.y_stride * (WORD_BITS / 8));
            // SAFETY: the caller's promise; the word is this lane's.
            unsafe { Global::<[u32; 2]>::cast(y).store(word) }
        }
    }

    /// The signs of sums, as the lanes vote for each of their columns.
    ///
    /// # Safety
    /// All lanes of the warp come together.
    #[inline(always)]
    unsafe fn of_sums<const P: usize>(sums: Pairs<i32, P>) -> Pairs<u32, P> {
        let mut words = [[0; 2]; P];
        unroll!(pair in 0..P => {
            // SAFETY: the caller's promise.
            let votes = unsafe { [ballot(sums[pair][0] >= 0), ballot(sums[pair][1] >= 0)] };
            in_order(&mut words, pair, interleave(votes));
        });
        words
    }
}

impl<const P: usize> Output<P> for Signs {
    type OfRow = ();
    const LANE_EDGES: u32 = (1 << COUNT_BITS) - 1;
    #[inline(always)]
    unsafe fn open(_: &BspmmParams, _: u32, _: bool) {}
    #[inline(always)]
    unsafe fn put(params: &BspmmParams, place: Place, (): (), slot: u32, sums: Pairs<i32, P>) {
        // SAFETY: the caller's promise.
        unsafe {
            let words = Self::of_sums(sums);
            if lane_id() == slot {
                Self::store(params, place, words);
            }
        }
    }
    #[inline(always)]
    unsafe fn write_few(params: &BspmmParams, place: Place, rows: &Rows<P>, edges: u32) {
        let mut words = [[0; 2]; P];
        // SAFETY: the caller's promise: all lanes come together, and the vote is theirs.
        unsafe {
            let rows = whole(rows);
            // Word by word: of all at once there are more planes than registers.
            unroll!(word in 0..P => {
                let mut counts = Planes::<{ COUNT_BITS as usize }>::EMPTY;
                let mut edge = 0;
                loop {
                    let row = |edge: u32| {
                        let kept = if edge < edges { u32::MAX } else { 0 };
                        let [a, b] = rows[word];
                        [shuffle_down(a, edge) & kept, shuffle_down(b, edge) & kept]
                    };
                    counts.add_two(row(edge), row(edge + 1));
                    // A loop: unrolled it is as long as all the rest.
                    edge = recomputed(edge + 2);
                    if ballot(edge < edges) == 0 {
                        break;
                    }
                }
                words[word] = counts.at_least(edges.div_ceil(2));
            });
            if edges > 0 {
                Self::store(params, place, words);
            }
        }
    }
    #[inline(always)]
    unsafe fn write(params: &BspmmParams, place: Place, sums: Pairs<i32, P>) {
        // SAFETY: the caller's promise.
        unsafe {
            let words = Self::of_sums(sums);
            if lane_id() == 0 {
                Self::store(params, place, words);
            }
        }
    }
    #[inline(always)]
    unsafe fn put_columns(
        params: &BspmmParams,
        row: u32,
        (): (),
        column: u32,
        sums: impl Fn(usize) -> [i32; 8],
    ) {
        const { assert!(P == 1 || P == 2 || P == 4) };
        let mut bits = 0;
        unroll!(byte in 0..P => {
            let sums = sums(P - 1 - byte);
            unroll!(at in 0..8 => {
                bits = bits << 1 | (!sums[7 - at] as u32) >> 31;
            });
        });
        bits &= there(params, column);
        let y = Global::<[u8; P]>::new(params.y).at((column / (8 * P as u32)) as u64);
        let y = y.row(row, params.y_stride * (WORD_BITS / 8));
        // SAFETY: the caller's promise.
        unsafe {
            match P {
                1 => Global::<u8>::cast(y).store(bits as u8),
                2 => Global::<u16>::cast(y).store(bits as u16),
                _ => Global::<u32>::cast(y).store(bits),
            }
        }
    }
    #[inline(always)]
    unsafe fn clear(params: &BspmmParams, place: Place) {
        if lane_id() == 0 {
            // SAFETY: the caller's promise.
            unsafe { Self::store(params, place, [[u32::MAX; 2]; P]) }
        }
    }
    #[inline(always)]
    unsafe fn clear_rows(params: &BspmmParams, place: Place, is_there: bool) {
        if is_there {
            // SAFETY: the caller's promise.
            unsafe { Self::store(params, place, [[u32::MAX; 2]; P]) }
        }
    }
}

/// What a sum is stored as, in the place of a float that an element is rounded from.
pub trait Stored {
    /// What the sums of a row are multiplied by.
    ///
    /// # Safety
    /// As [`Output::open`].
    unsafe fn factor(params: &BspmmParams, row: u32, is_there: bool) -> f32;
    /// A sum as large as it may be.
    fn sum(sum: i32, factor: f32) -> f32;
    /// A sum below 2²¹.
    fn small(sum: i32, factor: f32) -> f32;
}

/// Times the factor of the row and that of all.
pub struct Scaled;

impl Stored for Scaled {
    #[inline(always)]
    unsafe fn factor(params: &BspmmParams, row: u32, is_there: bool) -> f32 {
        let row_scale = Global::<f32>::new(params.row_scale);
        if row_scale.is_null() {
            return params.scale;
        }
        // SAFETY: the caller's promise: there is a factor a row.
        params.scale * unsafe { row_scale.at(row as u64).load_if(is_there) }
    }
    #[inline(always)]
    fn sum(sum: i32, factor: f32) -> f32 {
        sum as f32 * factor
    }
    #[inline(always)]
    fn small(sum: i32, factor: f32) -> f32 {
        float_of_small(sum) * factor
    }
}

/// The integer itself, as the bits of a float that nothing is computed of.
pub struct Whole;

impl Stored for Whole {
    #[inline(always)]
    unsafe fn factor(_: &BspmmParams, _: u32, _: bool) -> f32 {
        1.0
    }
    #[inline(always)]
    fn sum(sum: i32, _: f32) -> f32 {
        f32::from_bits(sum as u32)
    }
    #[inline(always)]
    fn small(sum: i32, _: f32) -> f32 {
        f32::from_bits(sum as u32)
    }
}

/// An element that a sum is [`Stored`] as. Of some rows alone the first is the first of the output.
pub struct Elements<V, S>(PhantomData<(V, S)>);

/// Sums times factors, rounded to elements.
pub type Rounded<V> = Elements<V, Scaled>;

/// Sums as integers of 32 bits, which take the places of floats.
pub type Integers = Elements<Float4, Whole>;

impl<V: Vector, S: Stored> Elements<V, S> {
    /// The `vector`-th vector of eight sums, from `column` on, without the columns past the last.
    #[inline(always)]
    fn vector_of(
        params: &BspmmParams,
        column: u32,
        of_row: f32,
        sums: &[i32; 8],
        vector: usize,
    ) -> V {
        let mut values = V::Floats::ZERO;
        unroll!(at in 0..V::WIDTH as usize => {
            let sum = sums[(vector * V::WIDTH as usize + at) % 8];
            values = values.with(at, S::small(sum, of_row));
        });
        let values = V::narrow(values);
        if column + V::WIDTH > params.features {
            values.first(params.features.saturating_sub(column))
        } else {
            values
        }
    }

    /// Writes the lane's columns of a unit; columns past the last become zero, whatever they were.
    ///
    /// # Safety
    /// As [`Output::put`].
    #[inline(always)]
    unsafe fn store<const P: usize>(
        params: &BspmmParams,
        place: Place,
        values: impl Fn(usize, usize) -> f32,
    ) {
        let first = column_of::<P>(params, place.unit) + first_column::<P>();
        let y = Global::<V::Feature>::new(params.y).at(first as u64);
        let row = place.row.wrapping_sub(params.first_row);
        let y = y.row(row, params.y_stride * size_of::<V::Feature>() as u32);
        let is_written = is_written(params, place.row);
        unroll!(pair in 0..P => {
            let apart = pair as u32 * columns_apart(P);
            let column = first + apart;
            // Rows are whole vectors, so that a pair is in them or not.
            if is_written && column < params.y_stride {
                let value = |at: usize| {
                    let is_column = column + (at as u32) < params.features;
                    if is_column { values(pair, at) } else { 0.0 }
                };
                // SAFETY: the caller's promise; the columns are two of the row's, padding included.
                unsafe {
                    Global::<V::Pair>::cast(y.at(apart as u64)).store(V::pair(value(0), value(1)));
                }
            }
        });
    }
}

impl<V: Vector, S: Stored, const P: usize> Output<P> for Elements<V, S> {
    /// What the row's sums are multiplied by.
    type OfRow = f32;
    #[inline(always)]
    unsafe fn open(params: &BspmmParams, row: u32, is_there: bool) -> f32 {
        // SAFETY: the caller's promise.
        unsafe { S::factor(params, row, is_there) }
    }
    const LANE_EDGES: u32 = 0;
    #[inline(always)]
    unsafe fn put(params: &BspmmParams, place: Place, of_row: f32, slot: u32, sums: Pairs<i32, P>) {
        // SAFETY: the caller's promise.
        unsafe {
            let factor = shuffle_idx(of_row, slot);
            let row = shuffle_idx(place.row, slot);
            let value = |pair: usize, at: usize| S::small(sums[pair][at], factor);
            Self::store::<P>(params, Place { row, ..place }, value);
        }
    }
    #[inline(always)]
    unsafe fn write_few(_: &BspmmParams, _: Place, _: &Rows<P>, _: u32) {}
    #[inline(always)]
    unsafe fn write(params: &BspmmParams, place: Place, sums: Pairs<i32, P>) {
        // SAFETY: the caller's promise.
        unsafe {
            let factor = S::factor(params, place.row, true);
            Self::store::<P>(params, place, |pair, at| S::sum(sums[pair][at], factor));
        }
    }
    #[inline(always)]
    unsafe fn put_columns(
        params: &BspmmParams,
        row: u32,
        of_row: f32,
        first: u32,
        sums: impl Fn(usize) -> [i32; 8],
    ) {
        let stride = params.y_stride * size_of::<V::Feature>() as u32;
        let y = Global::<V::Feature>::new(params.y).at(first as u64);
        let y = Global::<V::Bits>::cast(y.row(row.wrapping_sub(params.first_row), stride));
        let end = if is_written(params, row) {
            params.y_stride
        } else {
            0
        };
        unroll!(byte in 0..P => {
            let sums = sums(byte);
            unroll!(vector in 0..8 / V::WIDTH as usize => {
                let further = byte as u32 * 8 + vector as u32 * V::WIDTH;
                let column = first + further;
                if column < end {
                    let values = Self::vector_of(params, column, of_row, &sums, vector);
                    // SAFETY: the caller's promise; rows are whole vectors.
                    unsafe { y.at((further / V::WIDTH) as u64).store(values.to_bits()) }
                }
            });
        });
    }
    #[inline(always)]
    unsafe fn clear(params: &BspmmParams, place: Place) {
        // SAFETY: the caller's promise.
        unsafe { Self::store::<P>(params, place, |_, _| 0.0) }
    }
}

/// A number below 2²¹ and above its negative, without the instruction that converts it, of which a multiprocessor makes few at a time: a float of 1.5 · 2²³ and a
/// small number has that in its last bits.
#[inline(always)]
fn float_of_small(number: i32) -> f32 {
    const BIAS: f32 = 12_582_912.0;
    f32::from_bits(BIAS.to_bits().wrapping_add(number as u32)) - BIAS
}
