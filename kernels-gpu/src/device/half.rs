//! Half precision: half2 arithmetic and conversions.
//!
//! Arithmetic on half4 and half8 is arithmetic on two and four [`Half2`] (HalfGNN §4.2): those are widths of a load, not
//! of an instruction.

use core::arch::asm;
use core::arch::nvptx::{self, f16x2};

use super::global::{Global, add_half2};
use halfgnn_contract::Format;

/// Two elements of 16 bits in one register, the first in the low bits.
pub trait Pair: Copy {
    /// Their name in the contract.
    const FORMAT: Format;
    /// The bits of a one.
    const ONE: u16;
    /// The bits of −∞.
    const LOWEST: u16;
    /// The pair of a register.
    fn from_bits(bits: u32) -> Self;
    /// The register.
    fn to_bits(self) -> u32;
    /// Each float rounded to the nearest element, ties to even.
    fn from_f32(low: f32, high: f32) -> Self;
    /// The first element, exactly.
    fn low(self) -> f32;
    /// The second element, exactly.
    fn high(self) -> f32;
    /// Element-wise product, each rounded.
    fn mul(self, other: Self) -> Self;
    /// The larger of each, or NaN where either is.
    fn max(self, other: Self) -> Self;
    /// A float rounded to the nearest element, ties to even.
    fn round(value: f32) -> u16;
    /// Whether there is [`Pair::add_to`].
    const ATOMICS: bool;
    /// Adds to a pair in memory, each addition rounded.
    ///
    /// # Safety
    /// The pair lies in the buffer and is aligned, and other threads only add to it.
    unsafe fn add_to(self, place: Global<u32>);

    /// `bits` as both elements: edge-feature mirroring (HalfGNN §4.1.1).
    #[inline(always)]
    fn mirror(bits: u16) -> Self {
        Self::from_bits(bits as u32 * 0x0001_0001)
    }
}

/// Two halves in one register, the first in the low bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct Half2(pub u32);

impl Pair for Half2 {
    const FORMAT: Format = Format::F16;
    const ONE: u16 = 0x3c00;
    const LOWEST: u16 = f16::NEG_INFINITY.to_bits();
    const ATOMICS: bool = true;

    #[inline(always)]
    fn round(value: f32) -> u16 {
        from_f32(value)
    }

    #[inline(always)]
    unsafe fn add_to(self, place: Global<u32>) {
        // SAFETY: the caller's promise.
        unsafe { add_half2(place, self.0) };
    }

    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn to_bits(self) -> u32 {
        self.0
    }

    /// Each float rounded to the nearest half, ties to even: `cvt.rn.f16x2.f32`
    /// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt)).
    ///
    /// LLVM makes three instructions of two casts, and those that convert one float run at a quarter of this one's rate. A
    /// NaN becomes 7fff, whatever its bits were.
    #[inline(always)]
    fn from_f32(low: f32, high: f32) -> Self {
        let halves: u32;
        // SAFETY: an arithmetic instruction; no preconditions on sm_80 and later.
        unsafe {
            asm!("cvt.rn.f16x2.f32 {}, {}, {};", out(reg32) halves, in(reg32) high, in(reg32) low,
                options(pure, nomem, nostack, preserves_flags));
        }
        Self(halves)
    }

    /// The first half, exactly.
    #[inline(always)]
    fn low(self) -> f32 {
        f16::from_bits(self.0 as u16) as f32
    }

    /// The second half, exactly.
    #[inline(always)]
    fn high(self) -> f32 {
        f16::from_bits((self.0 >> 16) as u16) as f32
    }

    /// `mul.f16x2`
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        // SAFETY: an arithmetic instruction; no preconditions on sm_53 and later.
        Self::unpacked(unsafe { nvptx::f16x2_mul(self.packed(), other.packed()) })
    }

    /// `max.NaN.f16x2`: the larger of each, or NaN where either is. In assembly, since rustc refuses the intrinsic.
    #[inline(always)]
    fn max(self, other: Self) -> Self {
        let larger: u32;
        // SAFETY: an arithmetic instruction; no preconditions on sm_80 and later.
        unsafe {
            asm!("max.NaN.f16x2 {}, {}, {};", out(reg32) larger, in(reg32) self.0, in(reg32) other.0,
                options(pure, nomem, nostack, preserves_flags));
        }
        Self(larger)
    }
}

impl Half2 {
    /// +0, +0.
    pub const ZERO: Self = Self(0);

    #[inline(always)]
    fn packed(self) -> f16x2 {
        // SAFETY: both are 32 bits that hold two IEEE halves; every bit pattern is a value.
        unsafe { core::mem::transmute(self.0) }
    }

    #[inline(always)]
    fn unpacked(value: f16x2) -> Self {
        // SAFETY: both are 32 bits that hold two IEEE halves; every bit pattern is a value.
        Self(unsafe { core::mem::transmute::<f16x2, u32>(value) })
    }

    /// `add.f16x2` ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#half-precision-floating-point-instructions-add)).
    #[inline(always)]
    pub fn add(self, other: Self) -> Self {
        // SAFETY: an arithmetic instruction; no preconditions on sm_53 and later.
        Self::unpacked(unsafe { nvptx::f16x2_add(self.packed(), other.packed()) })
    }

    /// `set.eq.f16x2.f16x2`: one where both are equal, else zero
    /// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#half-precision-comparison-instructions-set)).
    #[inline(always)]
    pub fn equal(self, other: Self) -> Self {
        let ones: u32;
        // SAFETY: a comparison; no preconditions on sm_53 and later.
        unsafe {
            asm!("set.eq.f16x2.f16x2 {}, {}, {};", out(reg32) ones, in(reg32) self.0, in(reg32) other.0,
                options(pure, nomem, nostack, preserves_flags));
        }
        Self(ones)
    }

    /// `set.eq.u32.f16x2`: all bits of a half where both are equal.
    #[inline(always)]
    pub fn equal_mask(self, other: Self) -> u32 {
        let mask: u32;
        // SAFETY: as above.
        unsafe {
            asm!("set.eq.u32.f16x2 {}, {}, {};", out(reg32) mask, in(reg32) self.0, in(reg32) other.0,
                options(pure, nomem, nostack, preserves_flags));
        }
        mask
    }

    /// `fma.rn.f16x2`: `self · factor + addend` with one rounding.
    #[inline(always)]
    pub fn mul_add(self, factor: Self, addend: Self) -> Self {
        // SAFETY: an arithmetic instruction; no preconditions on sm_53 and later.
        Self::unpacked(unsafe { nvptx::f16x2_fma(self.packed(), factor.packed(), addend.packed()) })
    }
}

/// A half as a float, exactly.
#[inline(always)]
pub fn to_f32(bits: u16) -> f32 {
    f16::from_bits(bits) as f32
}

/// A float rounded to the nearest half, ties to even.
#[inline(always)]
pub fn from_f32(value: f32) -> u16 {
    (value as f16).to_bits()
}
