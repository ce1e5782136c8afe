//! What one lane loads at once: half2, half4, half8 (HalfGNN §4.2), eight bfloats and four floats.
//!
//! A kernel that is generic over [`Vector`] is HalfGNN's with half vectors and GNNOne's with [`Float4`].

use super::bfloat::BFloat2;
use super::float;
use super::global::{Access, Global, add_f32};
use super::half::{Half2, Pair};
use halfgnn_contract::{DevicePtr, HalfBits, VECTOR_BYTES};

/// A few floats of one lane: what a half vector is widened to.
pub trait Floats: Copy {
    /// All zero.
    const ZERO: Self;
    /// All one.
    const ONE: Self;
    /// All negative infinity, which is below every number.
    const LEAST: Self;
    /// Each element of a function of this and the other.
    fn zip(self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self;
    /// Each element of a function of this.
    fn map(self, f: impl Fn(f32) -> f32) -> Self;
    /// Element `i`, and its replacement.
    fn get(self, i: usize) -> f32;
    /// With element `i` replaced.
    fn with(self, i: usize, value: f32) -> Self;
    /// Loads from consecutive floats.
    ///
    /// # Safety
    /// The floats lie in the buffer, and the address is aligned to them all or to 16 bytes.
    unsafe fn load(from: Global<f32>) -> Self;
    /// Stores to consecutive floats.
    ///
    /// # Safety
    /// As [`Floats::load`], and no other thread touches them unordered.
    unsafe fn store(self, to: Global<f32>);
}

/// Vector `at` of a matrix that may be written in place.
///
/// # Safety
/// It is one, and no other thread writes it unordered.
#[inline(always)]
pub unsafe fn load<V: Vector>(matrix: DevicePtr<HalfBits>, at: u64) -> V::Floats {
    // SAFETY: the caller's promise. Not `read`, which is for what no thread writes.
    V::from_bits(unsafe { Global::<V::Bits>::new(matrix).at(at).load() }).widen()
}

/// `sum` and the products of the elements of two vectors, one after the other.
#[inline(always)]
pub fn dot<V: Vector>(mut sum: f32, a: V::Floats, b: V::Floats) -> f32 {
    let mut i = 0;
    while i < V::WIDTH as usize {
        sum = float::mul_add(a.get(i), b.get(i), sum);
        i += 1;
    }
    sum
}

/// Makes these vector `at` of a matrix, each rounded.
///
/// # Safety
/// It is one, and no other thread touches it unordered.
#[inline(always)]
pub unsafe fn store<V: Vector>(matrix: DevicePtr<HalfBits>, at: u64, values: V::Floats) {
    let vector = Global::<V::Bits>::new(matrix).at(at);
    // SAFETY: the caller's promise.
    unsafe { vector.store(V::narrow(values).to_bits()) }
}

/// Stores one element, rounded to the nearest.
///
/// # Safety
/// It lies in the buffer, and no other thread touches it unordered.
#[inline(always)]
pub unsafe fn store_element<V: Vector>(element: Global<V::Feature>, value: f32) {
    let bits = V::weight_from_f32(value);
    // SAFETY: the caller's promise; an element of 16 bits is in both halves.
    unsafe {
        if size_of::<V::Feature>() == 2 {
            Global::<u16>::cast(element).store(bits as u16);
        } else {
            Global::<u32>::cast(element).store(bits);
        }
    }
}

/// `floats` as elements `first ..` of a row of `columns`: those past its end become zero, whatever they were.
#[inline(always)]
pub fn without_padding<V: Vector>(mut floats: V::Floats, first: u64, columns: u32) -> V::Floats {
    if first + V::WIDTH as u64 > columns as u64 {
        let mut i = 0;
        while i < V::WIDTH {
            if first + i as u64 >= columns as u64 {
                floats = floats.with(i as usize, 0.0);
            }
            i += 1;
        }
    }
    floats
}

macro_rules! floats {
    ($n:literal, $piece:literal) => {
        impl Floats for [f32; $n] {
            const ZERO: Self = [0.0; $n];
            const ONE: Self = [1.0; $n];
            const LEAST: Self = [f32::NEG_INFINITY; $n];
            #[inline(always)]
            fn zip(mut self, other: Self, f: impl Fn(f32, f32) -> f32) -> Self {
                let mut i = 0;
                while i < $n {
                    self[i] = f(self[i], other[i]);
                    i += 1;
                }
                self
            }
            #[inline(always)]
            fn map(mut self, f: impl Fn(f32) -> f32) -> Self {
                let mut i = 0;
                while i < $n {
                    self[i] = f(self[i]);
                    i += 1;
                }
                self
            }
            #[inline(always)]
            fn get(self, i: usize) -> f32 {
                self[i]
            }
            #[inline(always)]
            fn with(mut self, i: usize, value: f32) -> Self {
                self[i] = value;
                self
            }
            #[inline(always)]
            unsafe fn load(from: Global<f32>) -> Self {
                let mut all = Self::ZERO;
                let mut i = 0;
                while i < $n {
                    // SAFETY: the caller's promise; pieces of an aligned whole are aligned.
                    let piece: [u32; $piece] =
                        unsafe { <[u32; $piece] as Access>::load(from.at(i as u64).address()) };
                    let mut k = 0;
                    while k < $piece {
                        all[i + k] = f32::from_bits(piece[k]);
                        k += 1;
                    }
                    i += $piece;
                }
                all
            }
            #[inline(always)]
            unsafe fn store(self, to: Global<f32>) {
                let mut i = 0;
                while i < $n {
                    let mut piece = [0; $piece];
                    let mut k = 0;
                    while k < $piece {
                        piece[k] = self[i + k].to_bits();
                        k += 1;
                    }
                    // SAFETY: the caller's promise; pieces of an aligned whole are aligned.
                    unsafe { <[u32; $piece] as Access>::store(to.at(i as u64).address(), piece) };
                    i += $piece;
                }
            }
        }
    };
}

floats!(2, 2);
floats!(4, 4);
floats!(8, 4);

/// A vector that one instruction loads.
pub trait Vector: Copy {
    /// Elements.
    const WIDTH: u32;
    /// Loads of this width in a 16-byte vector.
    const PER_16_BYTES: u32 = VECTOR_BYTES / size_of::<Self::Bits>() as u32;
    /// The bits of a one.
    const ONE: u32;
    /// The vector as a load gives it.
    type Bits: Access;
    /// The vector in float.
    type Floats: Floats;

    /// The vector of a load.
    fn from_bits(bits: Self::Bits) -> Self;
    /// The vector for a store.
    fn to_bits(self) -> Self::Bits;
    /// The elements in float, exactly.
    fn widen(self) -> Self::Floats;
    /// Each float rounded to the nearest element.
    fn narrow(floats: Self::Floats) -> Self;
    /// All zero.
    fn zero() -> Self;
    /// The first `count` elements; the others become zero, whatever they were.
    fn first(self, count: u32) -> Self;
    /// The larger of each two elements, NaN where either is.
    fn max(self, other: Self) -> Self;
    /// All −∞.
    fn lowest() -> Self;
    /// The largest element in float, NaN where one is.
    fn largest(self) -> f32;
    /// Whether there is [`Vector::add_to`].
    const ATOMICS: bool;
    /// Adds to elements in memory, each addition rounded.
    ///
    /// # Safety
    /// The vector lies in the buffer and is aligned, and other threads only add to it.
    unsafe fn add_to(self, place: Global<Self::Bits>);
    /// Element-wise product with one weight (see [`Vector::weights`]), each rounded to the nearest element.
    fn scale(self, weight: u32) -> Self;

    /// Edge features of four consecutive edges as they are cached: 16 bits mirrored into both halves of a word (HalfGNN
    /// §4.1.1), floats as they are.
    ///
    /// # Safety
    /// The four features lie in the buffer, and the address is aligned to them all.
    unsafe fn weights(features: Global<Self::Feature>) -> [u32; 4];
    /// One edge feature, as [`Vector::weights`] caches it.
    ///
    /// # Safety
    /// The feature lies in the buffer.
    unsafe fn weight(feature: Global<Self::Feature>) -> u32;
    /// Stores edge features of four consecutive edges, each rounded to the nearest element.
    ///
    /// # Safety
    /// As [`Vector::weights`], and no other thread touches them unordered.
    unsafe fn store_features(features: Global<Self::Feature>, values: [f32; 4]);
    /// A cached weight in float, exactly.
    fn weight_to_f32(weight: u32) -> f32;
    /// A float as a weight is cached, rounded to the nearest element.
    fn weight_from_f32(value: f32) -> u32;
    /// An edge feature in memory.
    type Feature: Access;
    /// Two elements, as a load or a store has them.
    type Pair: Access;
    /// Each float rounded to the nearest element.
    fn pair(low: f32, high: f32) -> Self::Pair;
}

/// What one lane loads of a row that is added up: elements of the output's kind, or codes of them.
pub trait Input: Copy {
    /// As a load gives it.
    type Bits: Access;
    /// What was loaded.
    fn from_bits(bits: Self::Bits) -> Self;
    /// The same, of which LLVM does not know that it is ([`recomputed`](super::registers::recomputed)): of codes. Nothing asks for it of elements.
    #[inline(always)]
    fn recomputed(self) -> Self {
        self
    }
}

impl<V: Vector> Input for V {
    type Bits = V::Bits;
    #[inline(always)]
    fn from_bits(bits: V::Bits) -> V {
        V::from_bits(bits)
    }
}

/// `N` registers of two elements of 16 bits: half2, half4 and half8, and as many bfloats.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Packed<P, const N: usize>([P; N]);

/// Four floats.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Float4([f32; 4]);

/// A vector with half2 arithmetic.
pub trait HalfVector: Vector {
    /// Element-wise sum, each rounded.
    fn add(self, other: Self) -> Self;
    /// `self · weight + addend`, rounded once.
    fn scale_add(self, weight: u32, addend: Self) -> Self;
    /// `sum` plus the products of both vectors' elements, those with even numbers in its low half: half2 arithmetic, each
    /// step rounded once.
    fn dot(self, other: Self, sum: Half2) -> Half2;
}

macro_rules! packed {
    ($registers:literal, $width:literal, $bits:ty, $from:expr, $to:expr) => {
        impl<P: Pair> Vector for Packed<P, $registers> {
            const WIDTH: u32 = $width;
            const ONE: u32 = P::ONE as u32;
            type Bits = $bits;
            type Floats = [f32; $width];
            type Feature = u16;
            type Pair = u32;

            #[inline(always)]
            fn from_bits(bits: Self::Bits) -> Self {
                let words: [u32; $registers] = $from(bits);
                Self(words.map(P::from_bits))
            }
            #[inline(always)]
            fn to_bits(self) -> Self::Bits {
                $to(self.0.map(P::to_bits))
            }
            #[inline(always)]
            fn widen(self) -> Self::Floats {
                let mut floats = [0.0; $width];
                let mut i = 0;
                while i < $registers {
                    floats[2 * i] = self.0[i].low();
                    floats[2 * i + 1] = self.0[i].high();
                    i += 1;
                }
                floats
            }
            #[inline(always)]
            fn narrow(floats: Self::Floats) -> Self {
                let mut registers = [P::from_bits(0); $registers];
                let mut i = 0;
                while i < $registers {
                    registers[i] = P::from_f32(floats[2 * i], floats[2 * i + 1]);
                    i += 1;
                }
                Self(registers)
            }
            #[inline(always)]
            fn zero() -> Self {
                Self([P::from_bits(0); $registers])
            }
            #[inline(always)]
            fn first(mut self, count: u32) -> Self {
                let mut i = 0;
                while i < $registers {
                    // Two elements, one, or none.
                    let kept = if count >= 2 * i + 2 {
                        u32::MAX
                    } else if count == 2 * i + 1 {
                        0xffff
                    } else {
                        0
                    };
                    let register = &mut self.0[i as usize];
                    *register = P::from_bits(register.to_bits() & kept);
                    i += 1;
                }
                self
            }
            #[inline(always)]
            fn max(mut self, other: Self) -> Self {
                let mut i = 0;
                while i < $registers {
                    self.0[i] = self.0[i].max(other.0[i]);
                    i += 1;
                }
                self
            }
            #[inline(always)]
            fn lowest() -> Self {
                Self([P::mirror(P::LOWEST); $registers])
            }
            #[inline(always)]
            fn largest(self) -> f32 {
                let mut pair = self.0[0];
                let mut i = 1;
                while i < $registers {
                    pair = pair.max(self.0[i]);
                    i += 1;
                }
                float::max(pair.low(), pair.high())
            }
            const ATOMICS: bool = P::ATOMICS;
            #[inline(always)]
            unsafe fn add_to(self, place: Global<Self::Bits>) {
                let mut i = 0;
                while i < $registers {
                    // SAFETY: the caller's promise.
                    unsafe { self.0[i].add_to(Global::cast(place).at(i as u64)) };
                    i += 1;
                }
            }
            #[inline(always)]
            fn scale(self, weight: u32) -> Self {
                Self(self.0.map(|register| register.mul(P::from_bits(weight))))
            }
            #[inline(always)]
            unsafe fn weights(features: Global<u16>) -> [u32; 4] {
                // SAFETY: the caller's promise: four elements are 8 bytes.
                let [a, b]: [u32; 2] = unsafe { <[u32; 2] as Access>::read(features.address()) };
                [a as u16, (a >> 16) as u16, b as u16, (b >> 16) as u16]
                    .map(|bits| P::mirror(bits).to_bits())
            }
            #[inline(always)]
            unsafe fn weight(feature: Global<u16>) -> u32 {
                // SAFETY: the caller's promise.
                P::mirror(unsafe { feature.read() }).to_bits()
            }
            #[inline(always)]
            unsafe fn store_features(features: Global<u16>, [a, b, c, d]: [f32; 4]) {
                let pairs = [P::from_f32(a, b).to_bits(), P::from_f32(c, d).to_bits()];
                // SAFETY: the caller's promise: four elements are 8 bytes.
                unsafe { <[u32; 2] as Access>::store(features.address(), pairs) };
            }
            #[inline(always)]
            fn weight_to_f32(weight: u32) -> f32 {
                P::from_bits(weight).low()
            }
            #[inline(always)]
            fn weight_from_f32(value: f32) -> u32 {
                P::mirror(P::round(value)).to_bits()
            }
            #[inline(always)]
            fn pair(low: f32, high: f32) -> u32 {
                P::from_f32(low, high).to_bits()
            }
        }
    };
}

impl<const N: usize> HalfVector for Packed<Half2, N>
where
    Self: Vector,
{
    #[inline(always)]
    fn add(mut self, other: Self) -> Self {
        let mut i = 0;
        while i < N {
            self.0[i] = self.0[i].add(other.0[i]);
            i += 1;
        }
        self
    }
    #[inline(always)]
    fn scale_add(mut self, weight: u32, addend: Self) -> Self {
        let mut i = 0;
        while i < N {
            self.0[i] = self.0[i].mul_add(Half2(weight), addend.0[i]);
            i += 1;
        }
        self
    }
    #[inline(always)]
    fn dot(self, other: Self, mut sum: Half2) -> Half2 {
        let mut i = 0;
        while i < N {
            sum = self.0[i].mul_add(other.0[i], sum);
            i += 1;
        }
        sum
    }
}

packed!(1, 2, u32, |bits| [bits], |[word]: [u32; 1]| word);
packed!(2, 4, [u32; 2], |bits| bits, |words| words);
packed!(4, 8, [u32; 4], |bits| bits, |words| words);

/// Four bytes a lane: 128 a warp.
pub type HalfVector2 = Packed<Half2, 1>;
/// Eight bytes a lane: 256 a warp.
pub type HalfVector4 = Packed<Half2, 2>;
/// Sixteen bytes a lane: 512 a warp.
pub type HalfVector8 = Packed<Half2, 4>;
/// Eight bfloats, sixteen bytes a lane.
pub type BFloatVector8 = Packed<BFloat2, 4>;

/// 16 bytes of each format of the contract, by its name there.
pub type F16 = HalfVector8;
/// As [`F16`].
pub type F32 = Float4;
/// As [`F16`].
pub type BF16 = BFloatVector8;

impl Vector for Float4 {
    const WIDTH: u32 = 4;
    const ONE: u32 = 1.0f32.to_bits();
    type Bits = [u32; 4];
    type Floats = [f32; 4];
    type Feature = f32;
    type Pair = [u32; 2];

    #[inline(always)]
    fn from_bits(bits: Self::Bits) -> Self {
        Self(bits.map(f32::from_bits))
    }
    #[inline(always)]
    fn to_bits(self) -> Self::Bits {
        self.0.map(f32::to_bits)
    }
    #[inline(always)]
    fn widen(self) -> Self::Floats {
        self.0
    }
    #[inline(always)]
    fn narrow(floats: Self::Floats) -> Self {
        Self(floats)
    }
    #[inline(always)]
    fn zero() -> Self {
        Self([0.0; 4])
    }
    #[inline(always)]
    fn first(mut self, count: u32) -> Self {
        let mut i = 0;
        while i < 4 {
            if i >= count {
                self.0[i as usize] = 0.0;
            }
            i += 1;
        }
        self
    }
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self(Floats::zip(self.0, other.0, float::max))
    }
    #[inline(always)]
    fn lowest() -> Self {
        Self([f32::NEG_INFINITY; 4])
    }
    #[inline(always)]
    fn largest(self) -> f32 {
        let [a, b, c, d] = self.0;
        float::max(float::max(a, b), float::max(c, d))
    }
    const ATOMICS: bool = true;
    #[inline(always)]
    unsafe fn add_to(self, place: Global<[u32; 4]>) {
        let mut i = 0;
        while i < 4 {
            // SAFETY: the caller's promise.
            unsafe { add_f32(Global::cast(place).at(i as u64), self.0[i]) };
            i += 1;
        }
    }
    #[inline(always)]
    fn scale(self, weight: u32) -> Self {
        Self(self.0.map(|value| value * f32::from_bits(weight)))
    }
    #[inline(always)]
    unsafe fn weights(features: Global<f32>) -> [u32; 4] {
        // SAFETY: the caller's promise: four floats are 16 bytes.
        unsafe { <[u32; 4] as Access>::read(features.address()) }
    }
    #[inline(always)]
    unsafe fn weight(feature: Global<f32>) -> u32 {
        // SAFETY: the caller's promise.
        unsafe { feature.read() }.to_bits()
    }
    #[inline(always)]
    unsafe fn store_features(features: Global<f32>, values: [f32; 4]) {
        // SAFETY: the caller's promise: four floats are 16 bytes.
        unsafe { <[u32; 4] as Access>::store(features.address(), values.map(f32::to_bits)) };
    }
    #[inline(always)]
    fn weight_to_f32(weight: u32) -> f32 {
        f32::from_bits(weight)
    }
    #[inline(always)]
    fn weight_from_f32(value: f32) -> u32 {
        value.to_bits()
    }
    #[inline(always)]
    fn pair(low: f32, high: f32) -> [u32; 2] {
        [low.to_bits(), high.to_bits()]
    }
}
