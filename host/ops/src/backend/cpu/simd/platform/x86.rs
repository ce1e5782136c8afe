//! x86-64: AVX2 with F16C, and AVX-512.
//!
//! `pulp` has no F16C, so the four intrinsics for halves in vectors of eight and four are called here. Each is a
//! function without any demand but the processor's, and [`F16c`] is only made where that has been asked.

use crate::backend::cpu::simd::{Floats, Lanes, read, write};
use pulp::core_arch::x86::F16c;
use pulp::x86::{V2, V3, V4};
use std::arch::x86_64::{
    __m128i, __m256i, __m512i, _MM_FROUND_CUR_DIRECTION, _MM_FROUND_TO_NEAREST_INT, _MM_HINT_T0,
    _mm_cvtph_ps, _mm_cvtps_ph, _mm256_cvtph_ps, _mm256_cvtps_ph,
};

pulp::simd_type!({
    /// All that vectors of eight use: `pulp`'s V3, and F16C.
    struct Avx2Features {
        sse: f!("sse"),
        sse2: f!("sse2"),
        fxsr: f!("fxsr"),
        sse3: f!("sse3"),
        ssse3: f!("ssse3"),
        sse4_1: f!("sse4.1"),
        sse4_2: f!("sse4.2"),
        popcnt: f!("popcnt"),
        avx: f!("avx"),
        avx2: f!("avx2"),
        bmi1: f!("bmi1"),
        bmi2: f!("bmi2"),
        fma: f!("fma"),
        lzcnt: f!("lzcnt"),
        f16c: f!("f16c"),
    }

    /// All that vectors of sixteen use: `pulp`'s V4, and F16C.
    struct Avx512Features {
        sse: f!("sse"),
        sse2: f!("sse2"),
        fxsr: f!("fxsr"),
        sse3: f!("sse3"),
        ssse3: f!("ssse3"),
        sse4_1: f!("sse4.1"),
        sse4_2: f!("sse4.2"),
        popcnt: f!("popcnt"),
        avx: f!("avx"),
        avx2: f!("avx2"),
        bmi1: f!("bmi1"),
        bmi2: f!("bmi2"),
        fma: f!("fma"),
        lzcnt: f!("lzcnt"),
        avx512f: f!("avx512f"),
        avx512bw: f!("avx512bw"),
        avx512cd: f!("avx512cd"),
        avx512dq: f!("avx512dq"),
        avx512vl: f!("avx512vl"),
        f16c: f!("f16c"),
    }
});

/// Sixteen floats.
#[derive(Clone, Copy)]
pub(crate) struct Avx512 {
    features: Avx512Features,
    v4: V4,
}

impl Avx512 {
    /// Where the processor has them.
    #[inline]
    pub(crate) fn try_new() -> Option<Self> {
        let (features, v4) = (Avx512Features::try_new()?, V4::try_new()?);
        Some(Self { features, v4 })
    }

    /// Calls `f` compiled for these instructions.
    #[inline(always)]
    pub(crate) fn vectorize<F: pulp::NullaryFnOnce>(self, f: F) -> F::Output {
        self.features.vectorize(f)
    }
}

impl Lanes for Avx512 {
    type Simd = V4;
    type Narrower = Eight;

    #[inline(always)]
    fn simd(self) -> V4 {
        self.v4
    }

    #[inline(always)]
    fn narrower(self) -> Eight {
        Eight {
            v3: *self.v4,
            f16c: self.features.f16c,
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        self.v4.sse._mm_prefetch::<_MM_HINT_T0>(address.cast());
    }

    /// A conversion takes twice as long as what it is fed to.
    const SHRINKS: bool = true;

    #[inline(always)]
    fn shrink_halves(self, halves: &[u16]) -> [Floats<Self>; 2] {
        let (avx512f, avx512bw) = (self.v4.avx512f, self.v4.avx512bw);
        let pairs: __m512i = read(halves);
        // The lower half of each word times 2^13, the sign in all bits above; the upper one moved there, and behind it
        // the lower.
        let even = avx512bw._mm512_madd_epi16(pairs, avx512f._mm512_set1_epi32(1 << 13));
        let odd = avx512f._mm512_srai_epi32::<3>(pairs);
        let fields = avx512f._mm512_set1_epi32(0x8fff_e000_u32.cast_signed());
        [even, odd].map(
            #[inline(always)]
            |words| pulp::cast(avx512f._mm512_and_si512(words, fields)),
        )
    }

    #[inline(always)]
    fn interleave(self, [even, odd]: [Floats<Self>; 2]) -> [Floats<Self>; 2] {
        const fn places(first: i32) -> [i32; 16] {
            let mut places = [0; 16];
            let mut lane = 0;
            while lane < 16 {
                // From 16 on the lanes are those of the second vector.
                places[lane] = first + lane as i32 / 2 + 16 * (lane as i32 % 2);
                lane += 1;
            }
            places
        }
        let avx512f = self.v4.avx512f;
        let (even, odd) = (pulp::cast(even), pulp::cast(odd));
        let take = |places: [i32; 16]| {
            pulp::cast(avx512f._mm512_permutex2var_ps(even, pulp::cast(places), odd))
        };
        [take(const { places(0) }), take(const { places(8) })]
    }

    #[inline(always)]
    fn widen_halves(self, halves: &[u16]) -> Floats<Self> {
        let halves: __m256i = read(halves);
        // Core's `_mm512_cvtph_ps` suppresses exceptions, for which there is no form of the instruction that reads
        // memory.
        pulp::cast(
            self.v4
                .avx512f
                ._mm512_cvt_roundph_ps::<_MM_FROUND_CUR_DIRECTION>(halves),
        )
    }

    #[inline(always)]
    fn round_halves(self, floats: Floats<Self>, halves: &mut [u16]) {
        let rounded: __m256i = self
            .v4
            .avx512f
            ._mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(pulp::cast(floats));
        write(rounded, halves);
    }

    #[inline(always)]
    fn widen_bfloats(self, bfloats: &[u16]) -> Floats<Self> {
        let words = self.v4.avx512f._mm512_cvtepu16_epi32(read(bfloats));
        pulp::cast(self.v4.avx512f._mm512_slli_epi32::<16>(words))
    }
}

/// Eight floats.
#[derive(Clone, Copy)]
pub(crate) struct Avx2 {
    features: Avx2Features,
    v3: V3,
}

impl Avx2 {
    /// Where the processor has them.
    #[inline]
    pub(crate) fn try_new() -> Option<Self> {
        let (features, v3) = (Avx2Features::try_new()?, V3::try_new()?);
        Some(Self { features, v3 })
    }

    /// Calls `f`, compiled for these instructions, with the lanes.
    #[inline(always)]
    pub(crate) fn vectorize<F: pulp::NullaryFnOnce>(self, f: F) -> F::Output {
        self.features.vectorize(f)
    }

    /// The lanes.
    #[inline(always)]
    pub(crate) fn lanes(self) -> Eight {
        Eight {
            v3: self.v3,
            f16c: self.features.f16c,
        }
    }
}

/// Eight floats, in a function that is compiled for AVX2 or more.
#[derive(Clone, Copy)]
pub(crate) struct Eight {
    v3: V3,
    f16c: F16c,
}

impl Lanes for Eight {
    type Simd = V3;
    type Narrower = Four;

    #[inline(always)]
    fn simd(self) -> V3 {
        self.v3
    }

    #[inline(always)]
    fn narrower(self) -> Four {
        Four {
            v2: *self.v3,
            f16c: self.f16c,
        }
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        self.v3.sse._mm_prefetch::<_MM_HINT_T0>(address.cast());
    }

    #[inline(always)]
    fn widen_halves(self, halves: &[u16]) -> Floats<Self> {
        let F16c { .. } = self.f16c;
        let halves: __m128i = read(halves);
        // SAFETY: the processor has F16C, as `self.f16c` proves; AVX is the vector's.
        pulp::cast(unsafe { _mm256_cvtph_ps(halves) })
    }

    #[inline(always)]
    fn round_halves(self, floats: Floats<Self>, halves: &mut [u16]) {
        // SAFETY: as in `widen_halves`.
        let rounded = unsafe { _mm256_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(pulp::cast(floats)) };
        write(rounded, halves);
    }

    #[inline(always)]
    fn widen_bfloats(self, bfloats: &[u16]) -> Floats<Self> {
        let words = self.v3.avx2._mm256_cvtepu16_epi32(read(bfloats));
        pulp::cast(self.v3.avx2._mm256_slli_epi32::<16>(words))
    }
}

/// Four floats, likewise.
#[derive(Clone, Copy)]
pub(crate) struct Four {
    v2: V2,
    f16c: F16c,
}

impl Lanes for Four {
    type Simd = V2;
    type Narrower = Self;

    #[inline(always)]
    fn simd(self) -> V2 {
        self.v2
    }

    #[inline(always)]
    fn narrower(self) -> Self {
        self
    }

    #[inline(always)]
    fn prefetch(self, address: *const u8) {
        self.v2.sse._mm_prefetch::<_MM_HINT_T0>(address.cast());
    }

    #[inline(always)]
    fn widen_halves(self, halves: &[u16]) -> Floats<Self> {
        let F16c { .. } = self.f16c;
        let four: u64 = read(halves);
        let halves: __m128i = pulp::cast([four, 0]);
        // SAFETY: the processor has F16C, as `self.f16c` proves.
        pulp::cast(unsafe { _mm_cvtph_ps(halves) })
    }

    #[inline(always)]
    fn round_halves(self, floats: Floats<Self>, halves: &mut [u16]) {
        // SAFETY: as in `widen_halves`.
        let rounded = unsafe { _mm_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(pulp::cast(floats)) };
        let [four, _]: [u64; 2] = pulp::cast(rounded);
        write(four, halves);
    }

    #[inline(always)]
    fn widen_bfloats(self, bfloats: &[u16]) -> Floats<Self> {
        let four: u64 = read(bfloats);
        let words = self.v2.sse4_1._mm_cvtepu16_epi32(pulp::cast([four, 0]));
        pulp::cast(self.v2.sse2._mm_slli_epi32::<16>(words))
    }
}
