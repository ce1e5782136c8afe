//! Rows of 8-bit codes ([`halfgnn_contract::quantize`]): eight of them are what a lane loads, 8 bytes.

use super::half::{Half2, Pair};
use super::integer::bytes_of;
use super::registers;
use super::vector::Input;
use core::marker::PhantomData;
use halfgnn_contract::quantize::INT8_ZERO;

/// How a number is told by 8 bits.
pub trait Code: Copy {
    /// What the numbers of [`Code::widen`] are times smaller than those that the codes stand for: a power of two.
    const UNIT: f32;
    /// The numbers of the four codes of a word, over [`Code::UNIT`], exactly.
    fn widen(word: u32) -> [f32; 4];
}

/// Whole numbers from −127 to 127, each [`INT8_ZERO`] more than it is.
#[derive(Clone, Copy)]
pub struct Int8;

/// Floats with four bits of exponent and three of mantissa.
#[derive(Clone, Copy)]
pub struct E4m3;

/// The byte of `word` that is the last digit of `SELECTOR`, above 2²³ in float: under the exponent.
#[inline(always)]
fn above_2_23<const SELECTOR: u32>(word: u32) -> f32 {
    f32::from_bits(bytes_of::<SELECTOR>(word, 0x4b00_0000))
}

impl Code for Int8 {
    const UNIT: f32 = 1.0;
    #[inline(always)]
    fn widen(word: u32) -> [f32; 4] {
        let zero = (0x0080_0000 + INT8_ZERO) as f32;
        [
            above_2_23::<0x7440>(word) - zero,
            above_2_23::<0x7441>(word) - zero,
            above_2_23::<0x7442>(word) - zero,
            above_2_23::<0x7443>(word) - zero,
        ]
    }
}

impl Code for E4m3 {
    // The bias of the exponent is 7 and that of a half 15.
    const UNIT: f32 = 256.0;
    /// By integers, since PTX is built for sm_80 and `cvt` has e4m3 from sm_89 on: sign, exponent and mantissa of a code that is
    /// shifted by one lie as those of a half do.
    #[inline(always)]
    fn widen(word: u32) -> [f32; 4] {
        let odd = Half2(word & 0x8000_8000 | word >> 1 & 0x3f80_3f80);
        let even = Half2(word << 8 & 0x8000_8000 | word << 7 & 0x3f80_3f80);
        [even.low(), odd.low(), even.high(), odd.high()]
    }
}

/// Eight codes, the first in the lowest bits of the first word.
#[derive(Clone, Copy)]
pub struct Codes<C> {
    /// Four a word.
    pub words: [u32; 2],
    code: PhantomData<C>,
}

impl<C: Code> Codes<C> {
    /// Their numbers over [`Code::UNIT`], exactly.
    #[inline(always)]
    pub fn widen(self) -> [f32; 8] {
        let [a, b, c, d] = C::widen(self.words[0]);
        let [e, f, g, h] = C::widen(self.words[1]);
        [a, b, c, d, e, f, g, h]
    }
}

impl<C: Code> Input for Codes<C> {
    type Bits = [u32; 2];
    #[inline(always)]
    fn from_bits(words: [u32; 2]) -> Self {
        Self {
            words,
            code: PhantomData,
        }
    }
    #[inline(always)]
    fn recomputed(self) -> Self {
        Self::from_bits(self.words.map(registers::recomputed))
    }
}
