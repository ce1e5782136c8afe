//! Sums of rows of 8-bit codes, over the scales of their columns: exact in integers where edges have no weights, else in float.

use super::policy::{Accumulate, ByEight, SIGN, Weights, both_weights};
use super::sums::{Both, Quantized, QuantizedBoth, Sums};
use crate::device::code::{Code, Codes, E4m3, Int8};
use crate::device::float::mul_add;
use crate::device::integer::{bytes_of, dot_of_high, dot_of_low, transposed};
use crate::device::registers::{recomputed, unroll};
use crate::device::vector::{Floats, Input, Vector};
use halfgnn_contract::quantize::INT8_ZERO;
use halfgnn_contract::spmm::SpmmParams;

/// int8 in integers: sums of a lane's eight codes, and of how many edges, since a code is [`INT8_ZERO`] too large. A sub-warp has at most 256
/// edges, and so a batch.
pub struct InInteger;

/// The sums of a batch. No arrays, of which LLVM makes numbers of 64 bits.
///
/// A word has four codes, of which those with odd numbers are added up as two sums of 16 bits, and all four as the word that they are. That sum is
/// Σ even + 2⁸ · Σ odd modulo 2³², where Σ even are the two sums of the other codes. Each of the four is at most 256 · 255 < 2¹⁶, so Σ even is
/// below 2³² and no half of it carries into the other: 2⁸ · Σ odd taken off leaves it exactly, and no edge has to mask a code.
#[derive(Clone, Copy)]
pub struct Integers {
    /// Of the first words, modulo 2³².
    low: u32,
    /// Of the second words.
    high: u32,
    /// Of the codes with odd numbers of the first words.
    low_odd: u32,
    /// Of those of the second words.
    high_odd: u32,
    /// Edges.
    count: u32,
}

impl Integers {
    /// With one more edge, of which nothing is counted.
    #[inline(always)]
    fn with(self, low: u32, high: u32) -> Self {
        Self {
            low: self.low.wrapping_add(low),
            high: self.high.wrapping_add(high),
            low_odd: self.low_odd + odd(low),
            high_odd: self.high_odd + odd(high),
            ..self
        }
    }

    #[inline(always)]
    fn counted(self, edges: u32) -> Self {
        Self {
            count: self.count + edges,
            ..self
        }
    }
}

/// The codes of a word that have odd numbers, where the even ones are.
#[inline(always)]
fn odd(word: u32) -> u32 {
    bytes_of::<0x4341>(word, 0)
}

impl<V: Vector<Floats = [f32; 8]>> Accumulate<V> for InInteger {
    type Input = Codes<Int8>;
    type Sum = Integers;
    type Sums = Quantized<V>;
    const BY_EIGHT: ByEight = ByEight::All;
    const ADDS_SOME: bool = true;
    #[inline(always)]
    fn zero() -> Integers {
        Integers {
            low: 0,
            high: 0,
            low_odd: 0,
            high_odd: 0,
            count: 0,
        }
    }
    /// Zeros that LLVM does not know: else it would take the first row that ends out of the loop over those that do, and make two copies of
    /// what ends a row.
    #[inline(always)]
    unsafe fn start(_: &SpmmParams, _: u32, _: u32) -> Integers {
        let zero = || recomputed(0);
        Integers {
            low: zero(),
            high: zero(),
            low_odd: zero(),
            high_odd: zero(),
            count: zero(),
        }
    }
    #[inline(always)]
    fn add(sum: Integers, x: Codes<Int8>) -> Integers {
        sum.with(x.words[0], x.words[1]).counted(1)
    }
    #[inline(always)]
    fn add_weighted<W: Weights>(sum: Integers, _: u32, x: Codes<Int8>) -> Integers {
        const { assert!(!W::WEIGHTED, "products with weights are float") };
        <Self as Accumulate<V>>::add(sum, x)
    }
    #[inline(always)]
    fn add_scaled<W: Weights>(sum: Integers, weight: u32, _: f32, x: Codes<Int8>) -> Integers {
        <Self as Accumulate<V>>::add_weighted::<W>(sum, weight, x)
    }
    /// Of words that LLVM does not know to be those of [`Accumulate::add`]: else it would make of them what both want before it is known which of
    /// them it will be, and wait there for all rows.
    #[inline(always)]
    fn add_some(mut sum: Integers, x: [[Codes<Int8>; 4]; 2], edges: u32) -> Integers {
        let x = x.map(|four| four.map(Input::recomputed));
        unroll!(i in 0..8 => {
            let [low, high] = x[i / 4][i % 4].words;
            let there = edges & 1 << i != 0;
            sum = sum.with(if there { low } else { 0 }, if there { high } else { 0 });
        });
        sum.counted(edges.count_ones())
    }
    #[inline(always)]
    fn finish(sum: Integers) -> Quantized<V> {
        let zeros = (sum.count * INT8_ZERO) as i32;
        let float = |value: u32| (value as i32 - zeros) as f32;
        let even = |words: u32, odd: u32| words.wrapping_sub(odd << 8);
        let low = even(sum.low, sum.low_odd);
        let high = even(sum.high, sum.high_odd);
        Quantized([
            float(low & 0xffff),
            float(sum.low_odd & 0xffff),
            float(low >> 16),
            float(sum.low_odd >> 16),
            float(high & 0xffff),
            float(sum.high_odd & 0xffff),
            float(high >> 16),
            float(sum.high_odd >> 16),
        ])
    }
}

/// Codes in float.
pub struct CodesInFloat<C>(core::marker::PhantomData<C>);

/// int8 in float.
pub type Int8InFloat = CodesInFloat<Int8>;
/// e4m3 in float.
pub type E4m3InFloat = CodesInFloat<E4m3>;

impl<C: Code, V: Vector<Floats = [f32; 8]>> Accumulate<V> for CodesInFloat<C> {
    type Input = Codes<C>;
    type Sum = [f32; 8];
    type Sums = Quantized<V>;
    const BY_EIGHT: ByEight = ByEight::All;
    #[inline(always)]
    fn zero() -> [f32; 8] {
        Floats::ZERO
    }
    #[inline(always)]
    fn add(sum: [f32; 8], x: Codes<C>) -> [f32; 8] {
        sum.zip(x.widen(), |sum, x| sum + x)
    }
    #[inline(always)]
    fn add_weighted<W: Weights>(sum: [f32; 8], weight: u32, x: Codes<C>) -> [f32; 8] {
        let weight = if W::IN_FLOAT {
            f32::from_bits(weight)
        } else {
            V::weight_to_f32(weight)
        };
        sum.zip(x.widen(), |sum, x| mul_add(x, weight, sum))
    }
    #[inline(always)]
    fn add_scaled<W: Weights>(sum: [f32; 8], weight: u32, scale: f32, x: Codes<C>) -> [f32; 8] {
        let weight = if W::IN_FLOAT {
            f32::from_bits(weight)
        } else {
            V::weight_to_f32(weight)
        };
        sum.zip(x.widen(), |sum, x| mul_add(x, weight * scale, sum))
    }
    #[inline(always)]
    fn finish(sum: [f32; 8]) -> Quantized<V> {
        Quantized(sum.map(|value| value * C::UNIT))
    }
}

/// Two sums of codes in float, as [`BothInFloat`](super::policy::BothInFloat) has of elements. Four rows are under way, not eight as in one
/// sum: beside sixteen sums a lane has no registers for the others, and a quarter fewer warps cost more than they gain.
pub struct BothOfCodes<C>(core::marker::PhantomData<C>);

/// Of e4m3.
pub type BothOfE4m3 = BothOfCodes<E4m3>;

impl<C: Code, V: Vector<Floats = [f32; 8]>> Accumulate<V> for BothOfCodes<C> {
    type Input = Codes<C>;
    type Sum = Both<V>;
    type Sums = QuantizedBoth<V>;
    #[inline(always)]
    fn zero() -> Both<V> {
        Sums::zero()
    }
    #[inline(always)]
    fn add(sum: Both<V>, x: Codes<C>) -> Both<V> {
        let x = x.widen();
        Both {
            all: sum.all.zip(x, |sum, x| sum + x),
            positive: sum.positive.zip(x, |sum, x| sum + x),
            ..sum
        }
    }
    #[inline(always)]
    fn add_weighted<W: Weights>(sum: Both<V>, weight: u32, x: Codes<C>) -> Both<V> {
        const { assert!(W::IN_FLOAT, "a sign is told apart from a weight") };
        let [all, positive] = both_weights(weight);
        let x = x.widen();
        Both {
            all: sum.all.zip(x, |sum, x| mul_add(x, all, sum)),
            positive: sum.positive.zip(x, |sum, x| mul_add(x, positive, sum)),
            ..sum
        }
    }
    #[inline(always)]
    fn add_scaled<W: Weights>(sum: Both<V>, weight: u32, scale: f32, x: Codes<C>) -> Both<V> {
        let weight = f32::from_bits(weight) * scale;
        <Self as Accumulate<V>>::add_weighted::<W>(sum, weight.to_bits(), x)
    }
    #[inline(always)]
    fn add_term(sum: Both<V>, term: f32) -> Both<V> {
        sum.with_term(sum.term + term)
    }
    #[inline(always)]
    fn finish(sum: Both<V>) -> QuantizedBoth<V> {
        QuantizedBoth(Both {
            all: sum.all.map(|value| value * C::UNIT),
            positive: sum.positive.map(|value| value * C::UNIT),
            ..sum
        })
    }
}

/// Two sums of int8 in integers, of all edges and of those of positive sign: weights are whole numbers of 16 bits, and four edges of a
/// column take two instructions a sum ([`dot_of_low`]), where floats take eight and widen each code before.
///
/// 256 edges of a sub-warp are less than 2³¹: 256 · 65,535 · 127.
pub struct BothOfInt8;

/// The sums of a batch, over the unit of the warp's weights.
#[derive(Clone, Copy)]
pub struct WholeSums {
    all: [u32; 8],
    positive: [u32; 8],
    term: f32,
}

/// Four codes with their signs as bytes have them.
const SIGNS: u32 = INT8_ZERO * 0x0101_0101;

impl<V: Vector<Floats = [f32; 8]>> Accumulate<V> for BothOfInt8 {
    type Input = Codes<Int8>;
    type Sum = WholeSums;
    type Sums = QuantizedBoth<V>;
    const WHOLE_WEIGHTS: bool = true;
    #[inline(always)]
    fn zero() -> WholeSums {
        WholeSums {
            all: [0; 8],
            positive: [0; 8],
            term: 0.0,
        }
    }
    #[inline(always)]
    fn add(sum: WholeSums, _: Codes<Int8>) -> WholeSums {
        sum
    }
    #[inline(always)]
    fn add_weighted<W: Weights>(sum: WholeSums, _: u32, _: Codes<Int8>) -> WholeSums {
        sum
    }
    #[inline(always)]
    fn add_scaled<W: Weights>(sum: WholeSums, _: u32, _: f32, _: Codes<Int8>) -> WholeSums {
        sum
    }
    #[inline(always)]
    fn add_term(sum: WholeSums, term: f32) -> WholeSums {
        WholeSums {
            term: sum.term + term,
            ..sum
        }
    }
    /// Two weights a word: of all edges, and with zeros for those of negative sign.
    #[inline(always)]
    fn whole_weights(weights: [u32; 4], factor: f32) -> [u32; 4] {
        // Adding 2²³ rounds, and leaves the number in the low bits.
        let all = weights
            .map(|weight| (mul_add(f32::from_bits(weight & !SIGN), factor, 8_388_608.0)).to_bits());
        let positive = |i: usize| all[i] & !((weights[i] as i32 >> 31) as u32);
        [
            bytes_of::<0x5410>(all[0], all[1]),
            bytes_of::<0x5410>(all[2], all[3]),
            bytes_of::<0x5410>(positive(0), positive(1)),
            bytes_of::<0x5410>(positive(2), positive(3)),
        ]
    }
    #[inline(always)]
    fn weights_of([a, b, c, d]: [u32; 4], edges: u32) -> [u32; 4] {
        let both = |edges: u32| (edges & 1 | (edges & 2) << 15) * 0xffff;
        let (first, last) = (both(edges), both(edges >> 2));
        [a & first, b & last, c & first, d & last]
    }
    #[inline(always)]
    fn together(x: [Codes<Int8>; 4]) -> [Codes<Int8>; 4] {
        let columns = |word: usize| transposed(x.map(|codes| codes.words[word] ^ SIGNS));
        let ([a, b, c, d], [e, f, g, h]) = (columns(0), columns(1));
        [[a, b], [c, d], [e, f], [g, h]].map(Input::from_bits)
    }
    #[inline(always)]
    fn add_four(mut sum: WholeSums, words: [u32; 4], x: [Codes<Int8>; 4]) -> WholeSums {
        let [a, b, c, d] = words;
        let mut i = 0;
        while i < 8 {
            let column = x[i / 2].words[i % 2];
            sum.all[i] = dot_of_high(b, column, dot_of_low(a, column, sum.all[i]));
            sum.positive[i] = dot_of_high(d, column, dot_of_low(c, column, sum.positive[i]));
            i += 1;
        }
        sum
    }
    #[inline(always)]
    fn finish(sum: WholeSums) -> QuantizedBoth<V> {
        let float = |value: u32| value as i32 as f32;
        QuantizedBoth(Both {
            all: sum.all.map(float),
            positive: sum.positive.map(float),
            term: sum.term,
        })
    }
}
