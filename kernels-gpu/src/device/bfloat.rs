//! bfloat16: a float without the lower half of its bits. On sm_80 there are conversions and products of matrices, and no
//! arithmetic: what is computed with one is computed in float.

use core::arch::asm;
use core::arch::nvptx::trap;

use super::float;
use super::global::Global;
use super::half::Pair;
use halfgnn_contract::Format;

/// Two bfloats in one register, the first in the low bits.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub struct BFloat2(pub u32);

impl Pair for BFloat2 {
    const FORMAT: Format = Format::BF16;
    const ONE: u16 = 0x3f80;
    const LOWEST: u16 = 0xff80;
    const ATOMICS: bool = false;

    #[inline(always)]
    fn round(value: f32) -> u16 {
        Self::from_f32(value, 0.0).0 as u16
    }

    /// PTX adds to bfloats in memory from sm_90 on.
    #[inline(always)]
    unsafe fn add_to(self, _: Global<u32>) {
        // SAFETY: ends the kernel; whoever asks [`Pair::ATOMICS`] does not come here.
        unsafe { trap() }
    }

    #[inline(always)]
    fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    #[inline(always)]
    fn to_bits(self) -> u32 {
        self.0
    }

    /// `cvt.rn.bf16x2.f32`
    /// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cvt)). A
    /// NaN becomes 7fff, whatever its bits were.
    #[inline(always)]
    fn from_f32(low: f32, high: f32) -> Self {
        let pair: u32;
        // SAFETY: an arithmetic instruction; no preconditions on sm_80 and later.
        unsafe {
            asm!("cvt.rn.bf16x2.f32 {}, {}, {};", out(reg32) pair, in(reg32) high, in(reg32) low,
                options(pure, nomem, nostack, preserves_flags));
        }
        Self(pair)
    }

    #[inline(always)]
    fn low(self) -> f32 {
        f32::from_bits(self.0 << 16)
    }

    #[inline(always)]
    fn high(self) -> f32 {
        f32::from_bits(self.0 & 0xffff_0000)
    }

    /// In float, where a product of two is exact.
    #[inline(always)]
    fn mul(self, other: Self) -> Self {
        Self::from_f32(self.low() * other.low(), self.high() * other.high())
    }

    #[inline(always)]
    fn max(self, other: Self) -> Self {
        Self::from_f32(
            float::max(self.low(), other.low()),
            float::max(self.high(), other.high()),
        )
    }
}
