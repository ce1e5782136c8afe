//! Sums of rows of 8-bit codes, over the scales of their columns: exact in integers where edges have no weights, else in float.

use super::policy::{Accumulate, Weights, both_weights};
use super::sums::{Both, Quantized, QuantizedBoth, Sums};
use crate::device::code::{Code, Codes, E4m3, Int8};
use crate::device::float::mul_add;
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::quantize::INT8_ZERO;

/// int8 in integers: two sums of 16 bits in a register, and how many codes each has, since a code is [`INT8_ZERO`] too large. A
/// sub-warp has at most 256 edges, and so a batch.
pub struct InInteger;

/// The sums of a batch: of the codes with even numbers of a word, of those with odd ones, and of the next word.
#[derive(Clone, Copy)]
pub struct Integers {
    sums: [u32; 4],
    count: u32,
}

/// The codes of a word that have even numbers.
const EVEN: u32 = 0x00ff_00ff;

impl<V: Vector<Floats = [f32; 8]>> Accumulate<V> for InInteger {
    type Input = Codes<Int8>;
    type Sum = Integers;
    type Sums = Quantized<V>;
    const FOURS: u32 = 2;
    #[inline(always)]
    fn zero() -> Integers {
        Integers {
            sums: [0; 4],
            count: 0,
        }
    }
    #[inline(always)]
    fn add(sum: Integers, x: Codes<Int8>) -> Integers {
        let [low, high] = x.words;
        let [a, b, c, d] = sum.sums;
        Integers {
            sums: [
                a + (low & EVEN),
                b + (low >> 8 & EVEN),
                c + (high & EVEN),
                d + (high >> 8 & EVEN),
            ],
            count: sum.count + 1,
        }
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
    #[inline(always)]
    fn finish(sum: Integers) -> Quantized<V> {
        let zeros = (sum.count * INT8_ZERO) as i32;
        let float = |value: u32| (value as i32 - zeros) as f32;
        let [a, b, c, d] = sum.sums;
        Quantized([
            float(a & 0xffff),
            float(b & 0xffff),
            float(a >> 16),
            float(b >> 16),
            float(c & 0xffff),
            float(d & 0xffff),
            float(c >> 16),
            float(d >> 16),
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
    const FOURS: u32 = 2;
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

/// Of int8.
pub type BothOfInt8 = BothOfCodes<Int8>;
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
