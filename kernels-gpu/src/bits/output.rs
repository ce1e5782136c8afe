//! What a sum over neighbours becomes.

use super::planes::Word;
use crate::device::global::Global;
use crate::device::vector::Vector;
use crate::device::warp::{ballot, lane_id};
use core::marker::PhantomData;
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{BspmmParams, WORD_BITS};

/// A kind of output.
pub trait Output {
    /// Whether a lane alone writes a word of a row, from which columns have sums of zero or more.
    const BY_LANE: bool;
    /// Writes a word of a row of the graph, of sums that are zero or more where bits are set.
    ///
    /// # Safety
    /// The launch contract; [`Output::BY_LANE`], and nobody else writes the word.
    unsafe fn write_signs(params: &BspmmParams, row: u32, word: u32, signs: Word);
    /// Writes a word of a row of the graph: the sums of the lane's own column and the one 32 further.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, and nobody else writes the word.
    unsafe fn write_sums(params: &BspmmParams, row: u32, word: u32, sums: [i32; 2]);
    /// Writes a word of a row of the graph without edges.
    ///
    /// # Safety
    /// The launch contract; where not [`Output::BY_LANE`] all lanes of the warp come together; nobody else writes the word.
    unsafe fn clear(params: &BspmmParams, row: u32, word: u32);
}

/// Which columns of a word there are.
#[inline(always)]
fn columns(params: &BspmmParams, word: u32) -> Word {
    let first = (params.first_word + word) * WORD_BITS;
    [first, first + WARP].map(|first| {
        let there = params.features.saturating_sub(first);
        if there >= WARP {
            u32::MAX
        } else {
            !(u32::MAX << there)
        }
    })
}

/// The sign: a bit is set where the sum is zero or more.
pub struct Signs;

impl Output for Signs {
    const BY_LANE: bool = true;
    #[inline(always)]
    unsafe fn write_signs(params: &BspmmParams, row: u32, word: u32, signs: Word) {
        let there = columns(params, word);
        let at = row as u64 * params.y_stride as u64 + (params.first_word + word) as u64;
        // SAFETY: the caller's promise.
        unsafe {
            Global::<[u32; 2]>::new(params.y)
                .at(at)
                .store([signs[0] & there[0], signs[1] & there[1]]);
        }
    }
    #[inline(always)]
    unsafe fn write_sums(params: &BspmmParams, row: u32, word: u32, sums: [i32; 2]) {
        // SAFETY: the caller's promise.
        unsafe {
            let signs = [ballot(sums[0] >= 0), ballot(sums[1] >= 0)];
            if lane_id() == 0 {
                Self::write_signs(params, row, word, signs);
            }
        }
    }
    #[inline(always)]
    unsafe fn clear(params: &BspmmParams, row: u32, word: u32) {
        // SAFETY: the caller's promise.
        unsafe { Self::write_signs(params, row, word, [u32::MAX; 2]) }
    }
}

/// An element, times the factor of the row and that of all.
pub struct Elements<V>(PhantomData<V>);

impl<V: Vector> Output for Elements<V> {
    const BY_LANE: bool = false;
    #[inline(always)]
    unsafe fn write_signs(_: &BspmmParams, _: u32, _: u32, _: Word) {}
    #[inline(always)]
    unsafe fn write_sums(params: &BspmmParams, row: u32, word: u32, sums: [i32; 2]) {
        let row_scale = Global::<f32>::new(params.row_scale);
        // SAFETY: the caller's promise; there is a factor a row, or none.
        unsafe {
            let factor = if row_scale.is_null() {
                params.scale
            } else {
                params.scale * row_scale.at(row as u64).read()
            };
            Self::write(params, row, word, sums.map(|sum| sum as f32 * factor));
        }
    }
    #[inline(always)]
    unsafe fn clear(params: &BspmmParams, row: u32, word: u32) {
        // SAFETY: the caller's promise.
        unsafe { Self::write(params, row, word, [0.0; 2]) }
    }
}

impl<V: Vector> Elements<V> {
    /// Writes the lane's own column of a word and the one 32 further; columns past the last become zero, whatever they were.
    ///
    /// # Safety
    /// As [`Output::write_sums`].
    #[inline(always)]
    unsafe fn write(params: &BspmmParams, row: u32, word: u32, values: [f32; 2]) {
        let mut half = 0;
        while half < 2 {
            let column = (params.first_word + word) * WORD_BITS + half * WARP + lane_id();
            if column < params.y_stride {
                let is_column = column < params.features;
                let value = if is_column {
                    values[half as usize]
                } else {
                    0.0
                };
                let at = row as u64 * params.y_stride as u64 + column as u64;
                let place = Global::<V::Feature>::new(params.y).at(at);
                // SAFETY: the caller's promise; the column is one of the row's, padding included.
                unsafe { store::<V>(place.address(), value) };
            }
            half += 1;
        }
    }
}

/// Stores one element, rounded to the nearest.
///
/// # Safety
/// It lies in the buffer, and nobody else writes it.
#[inline(always)]
unsafe fn store<V: Vector>(address: u64, value: f32) {
    let bits = V::weight_from_f32(value);
    // SAFETY: the caller's promise; an element of 16 bits is in both halves.
    unsafe {
        if size_of::<V::Feature>() == 2 {
            Global::<u16>::at_address(address).store(bits as u16);
        } else {
            Global::<u32>::at_address(address).store(bits);
        }
    }
}
