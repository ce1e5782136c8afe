//! AArch64: NEON.

use crate::backend::cpu::simd::{Floats, Lanes};
use half::f16;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};

/// Four floats.
#[derive(Clone, Copy)]
pub(crate) struct Neon(pulp::aarch64::Neon);

impl Neon {
    /// Where the processor has them.
    #[inline]
    pub(crate) fn try_new() -> Option<Self> {
        pulp::aarch64::Neon::try_new().map(Self)
    }

    /// Calls `f` compiled for these instructions.
    #[inline(always)]
    pub(crate) fn vectorize<F: pulp::NullaryFnOnce>(self, f: F) -> F::Output {
        self.0.vectorize(f)
    }
}

impl Lanes for Neon {
    type Simd = pulp::aarch64::Neon;
    type Narrower = Self;

    #[inline(always)]
    fn simd(self) -> Self::Simd {
        self.0
    }

    #[inline(always)]
    fn narrower(self) -> Self {
        self
    }

    /// In integers, since the instruction's type is not stable Rust's: an exponent of a float has 112 more than that of
    /// a half, and multiplying by that power of two makes numbers of subnormals too.
    #[inline(always)]
    fn widen_halves(self, halves: &[u16]) -> Floats<Self> {
        pulp::cast([0, 1, 2, 3].map(|lane| {
            let half = u32::from(halves[lane]);
            let magnitude =
                f32::from_bits((half & 0x7fff) << 13) * f32::from_bits((254 - 15) << 23);
            // Infinities and NaNs.
            let special = if half & 0x7c00 == 0x7c00 {
                0x7f80_0000
            } else {
                0
            };
            magnitude.to_bits() | special | (half & 0x8000) << 16
        }))
    }

    #[inline(always)]
    fn round_halves(self, floats: Floats<Self>, halves: &mut [u16]) {
        let floats: [f32; 4] = pulp::cast(floats);
        halves[..4]
            .reinterpret_cast_mut::<f16>()
            .convert_from_f32_slice(&floats);
    }

    #[inline(always)]
    fn widen_bfloats(self, bfloats: &[u16]) -> Floats<Self> {
        pulp::cast([0, 1, 2, 3].map(|lane| u32::from(bfloats[lane]) << 16))
    }
}
