//! What a sum over neighbours becomes, and who adds up the rows of few edges.

use super::planes::{Planes, Unit};
use super::sums::{Edges, Place};
use crate::device::global::Global;
use crate::device::vector::{Floats, Vector, store_element};
use crate::device::warp::{ballot, lane_id};
use core::marker::PhantomData;
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{
    BspmmParams, FACTORED_SIGN_COLUMNS, GROUP_ROW_EDGES, LANE_COLUMNS, LANE_ROW_EDGES, WORD_BITS,
};

/// A kind of output, of units of `U` words of 32 columns.
pub trait Output<const U: usize> {
    /// Lanes that share a unit of a row of few edges.
    const LANES: u32;
    /// The most edges of such a row.
    const FEW: u32;
    /// Adds up a unit of a row of few edges, and writes it.
    ///
    /// # Safety
    /// The launch contract; [`Output::LANES`] neighbouring lanes come with the same unit, and nobody else writes it.
    unsafe fn write_few(params: &BspmmParams, place: Place, edges: &impl Edges<U>);
    /// Columns of a lane of [`Output::write_factored`].
    const FACTORED_COLUMNS: u32;
    /// The same of a row of few edges whose columns have factors.
    ///
    /// # Safety
    /// As [`Output::write_few`], with a lane for each [`Output::FACTORED_COLUMNS`] of the unit.
    unsafe fn write_factored(params: &BspmmParams, place: Place, edges: &impl Edges<U>);
    /// Writes a unit: the sums of the column of the lane's own number, and of those 32 further each.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, and nobody else writes the unit.
    unsafe fn write_sums(params: &BspmmParams, place: Place, sums: [i32; U]);
    /// Writes a unit of a row without edges.
    ///
    /// # Safety
    /// As [`Output::write_sums`].
    unsafe fn clear(params: &BspmmParams, place: Place);
}

/// The first column of a unit.
#[inline(always)]
fn first_column<const U: usize>(params: &BspmmParams, unit: u32) -> u32 {
    params.first_word * WORD_BITS + unit * U as u32 * WARP
}

/// The sums of `N` columns from `first` of a unit on, of rows of ±1 times the factors of their columns.
///
/// # Safety
/// Columns have factors.
#[inline(always)]
unsafe fn factored<const U: usize, const N: usize>(edges: &impl Edges<U>, first: u32) -> [i32; N] {
    let mut sums = [0i32; N];
    let mut edge = edges.begin();
    while edge < edges.end() {
        // SAFETY: the caller's promise; the edge is one of them.
        let (bits, code) = unsafe {
            let bits = edges.word(edge, first / WARP) >> (first % WARP);
            (bits, edges.code(edge) as i32)
        };
        let mut i = 0;
        while i < N {
            sums[i] += if bits >> i & 1 != 0 { code } else { -code };
            i += 1;
        }
        edge += 1;
    }
    sums
}

/// The sign: a bit is set where the sum is zero or more.
pub struct Signs;

impl Signs {
    /// Writes a unit, without the bits past the last column.
    ///
    /// # Safety
    /// The launch contract; nobody else writes the unit.
    #[inline(always)]
    unsafe fn write<const U: usize>(params: &BspmmParams, place: Place, mut signs: Unit<U>) {
        let first = first_column::<U>(params, place.unit);
        let mut word = 0;
        while word < U {
            let there = params.features.saturating_sub(first + word as u32 * WARP);
            if there < WARP {
                signs[word] &= !(u32::MAX << there);
            }
            word += 1;
        }
        let at = place.row as u64 * params.y_stride as u64 + (first / WORD_BITS) as u64;
        let y = Global::<u64>::new(params.y).at(at);
        // SAFETY: the caller's promise; rows of more than one word are aligned to 16 bytes, and a unit is theirs then.
        unsafe {
            if U == 2 {
                Global::<[u32; 2]>::cast(y).store([signs[0], signs[1]]);
            } else {
                let [a, b] = [signs[U - 2], signs[U - 1]];
                Global::<[u32; 4]>::cast(y).store([signs[0], signs[1], a, b]);
            }
        }
    }
}

impl<const U: usize> Output<U> for Signs {
    const LANES: u32 = 1;
    const FEW: u32 = LANE_ROW_EDGES;
    #[inline(always)]
    unsafe fn write_few(params: &BspmmParams, place: Place, edges: &impl Edges<U>) {
        let mut counts = Planes::<5, U>::EMPTY;
        let mut edge = edges.begin();
        // SAFETY: the caller's promise.
        unsafe {
            while edge + 1 < edges.end() {
                counts.add_two(edges.unit(edge), edges.unit(edge + 1));
                edge += 2;
            }
            if edge < edges.end() {
                counts.add(edges.unit(edge));
            }
            let signs = counts.at_least((edges.end() - edges.begin()).div_ceil(2));
            Self::write(params, place, signs);
        }
    }
    const FACTORED_COLUMNS: u32 = FACTORED_SIGN_COLUMNS;
    #[inline(always)]
    unsafe fn write_factored(params: &BspmmParams, place: Place, edges: &impl Edges<U>) {
        const N: usize = FACTORED_SIGN_COLUMNS as usize;
        let lanes = U as u32 * WARP / FACTORED_SIGN_COLUMNS;
        let of_unit = lane_id() % lanes * FACTORED_SIGN_COLUMNS;
        // SAFETY: the caller's promise; the lane's half of a word is its own, as rows of `y` are whole words.
        unsafe {
            let sums = factored::<U, N>(edges, of_unit);
            let first = first_column::<U>(params, place.unit) + of_unit;
            let mut signs = 0;
            let mut i = 0;
            while i < N {
                let is_set = first + (i as u32) < params.features && sums[i] >= 0;
                signs |= (is_set as u16) << i;
                i += 1;
            }
            let at = (place.row as u64 * params.y_stride as u64)
                * (WORD_BITS / FACTORED_SIGN_COLUMNS) as u64
                + (first / FACTORED_SIGN_COLUMNS) as u64;
            Global::<u16>::new(params.y).at(at).store(signs);
        }
    }
    #[inline(always)]
    unsafe fn write_sums(params: &BspmmParams, place: Place, sums: [i32; U]) {
        let mut signs = [0; U];
        let mut word = 0;
        // SAFETY: the caller's promise.
        unsafe {
            while word < U {
                signs[word] = ballot(sums[word] >= 0);
                word += 1;
            }
            if lane_id() == 0 {
                Self::write(params, place, signs);
            }
        }
    }
    #[inline(always)]
    unsafe fn clear(params: &BspmmParams, place: Place) {
        if lane_id() == 0 {
            // SAFETY: the caller's promise.
            unsafe { Self::write(params, place, [u32::MAX; U]) }
        }
    }
}

/// An element, times the factor of the row and that of all.
pub struct Elements<V>(PhantomData<V>);

impl<V: Vector> Elements<V> {
    /// What sums of a row are multiplied by.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn factor(params: &BspmmParams, row: u32) -> f32 {
        let row_scale = Global::<f32>::new(params.row_scale);
        if row_scale.is_null() {
            params.scale
        } else {
            // SAFETY: there is a factor a row.
            params.scale * unsafe { row_scale.at(row as u64).read() }
        }
    }

    /// Writes the columns of byte `byte` of a unit, whose sums are `sum`, and zeros past the last.
    ///
    /// # Safety
    /// The launch contract; nobody else writes them.
    #[inline(always)]
    unsafe fn write_lane<const U: usize>(
        params: &BspmmParams,
        place: Place,
        byte: u32,
        sum: impl Fn(u32) -> f32,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            let factor = Self::factor(params, place.row);
            let first = first_column::<U>(params, place.unit) + byte * LANE_COLUMNS;
            let y = Global::<V::Feature>::new(params.y)
                .at(place.row as u64 * params.y_stride as u64 + first as u64);
            let mut vector = 0;
            while vector < LANE_COLUMNS / V::WIDTH {
                let mut floats = V::Floats::ZERO;
                let mut i = 0;
                while i < V::WIDTH {
                    let at = vector * V::WIDTH + i;
                    let is_column = first + at < params.features;
                    let value = if is_column { sum(at) * factor } else { 0.0 };
                    floats = floats.with(i as usize, value);
                    i += 1;
                }
                if first + vector * V::WIDTH < params.y_stride {
                    Global::<V::Bits>::cast(y)
                        .at(vector as u64)
                        .store(V::narrow(floats).to_bits());
                }
                vector += 1;
            }
        }
    }

    /// Writes the lane's columns of a unit, 32 apart; columns past the last become zero, whatever they were.
    ///
    /// # Safety
    /// As [`Output::write_sums`].
    #[inline(always)]
    unsafe fn write<const U: usize>(params: &BspmmParams, place: Place, values: [f32; U]) {
        let first = first_column::<U>(params, place.unit) + lane_id();
        let y = Global::<V::Feature>::new(params.y)
            .at(place.row as u64 * params.y_stride as u64 + first as u64);
        let mut word = 0;
        while word < U {
            let column = first + word as u32 * WARP;
            if column < params.y_stride {
                let is_column = column < params.features;
                let value = if is_column { values[word] } else { 0.0 };
                let element = y.at(word as u64 * WARP as u64);
                // SAFETY: the caller's promise; the column is one of the row's, padding included.
                unsafe { store_element::<V>(element, value) };
            }
            word += 1;
        }
    }
}

impl<V: Vector, const U: usize> Output<U> for Elements<V> {
    const LANES: u32 = U as u32 * WARP / LANE_COLUMNS;
    const FEW: u32 = GROUP_ROW_EDGES;
    #[inline(always)]
    unsafe fn write_few(params: &BspmmParams, place: Place, edges: &impl Edges<U>) {
        let byte = lane_id() % <Self as Output<U>>::LANES;
        let shift = byte % 4 * 8;
        // Counts of four columns each, a byte a column.
        let mut counts = [0u32; 2];
        let mut edge = edges.begin();
        // SAFETY: the caller's promise.
        unsafe {
            while edge < edges.end() {
                let bits = edges.word(edge, byte / 4) >> shift;
                counts[0] += spread(bits & 0xf);
                counts[1] += spread(bits >> 4 & 0xf);
                edge += 1;
            }
            let total = (edges.end() - edges.begin()) as f32;
            Self::write_lane::<U>(params, place, byte, |at| {
                let count = counts[(at / 4) as usize] >> (at % 4 * 8) & 0xff;
                // A float of 2²³ and a small number has that in its last bits.
                let count = f32::from_bits(0x4b00_0000 | count) - 8_388_608.0;
                count + count - total
            });
        }
    }
    const FACTORED_COLUMNS: u32 = LANE_COLUMNS;
    #[inline(always)]
    unsafe fn write_factored(params: &BspmmParams, place: Place, edges: &impl Edges<U>) {
        const N: usize = LANE_COLUMNS as usize;
        let byte = lane_id() % <Self as Output<U>>::LANES;
        // SAFETY: the caller's promise.
        unsafe {
            let sums = factored::<U, N>(edges, byte * LANE_COLUMNS);
            Self::write_lane::<U>(params, place, byte, |at| sums[at as usize] as f32);
        }
    }
    #[inline(always)]
    unsafe fn write_sums(params: &BspmmParams, place: Place, sums: [i32; U]) {
        // SAFETY: the caller's promise.
        unsafe {
            let factor = Self::factor(params, place.row);
            Self::write(params, place, sums.map(|sum| sum as f32 * factor));
        }
    }
    #[inline(always)]
    unsafe fn clear(params: &BspmmParams, place: Place) {
        // SAFETY: the caller's promise.
        unsafe { Self::write(params, place, [0.0; U]) }
    }
}

/// Four bits as four bytes of 0 or 1: each is moved by seven more than the one before, and no two meet.
#[inline(always)]
fn spread(bits: u32) -> u32 {
    bits.wrapping_mul(0x0020_4081) & 0x0101_0101
}
