//! Half precision from single, each operation rounded once.
//!
//! Sums and products: a half has 11 bits of precision and a float 24 = 2·11 + 2, enough that rounding to float first
//! and to half then gives what one rounding would. Fused multiply-add: the product of two halves is exact in float, and
//! the sum is rounded to odd, which leaves the tie to the final rounding. NaN is 0x7fff, as on the hardware.

/// The NaN that half instructions give.
pub(crate) const NAN: u16 = 0x7FFF;

/// One.
pub(crate) const ONE: u16 = 0x3C00;

/// Exact.
#[inline(always)]
pub(crate) fn to_f32(h: u16) -> f32 {
    let w = u32::from(h) << 16;
    let sign = w & 0x8000_0000;
    let twice = w.wrapping_add(w);
    let normal =
        f32::from_bits((twice >> 4).wrapping_add(0xE0 << 23)) * f32::from_bits(0x0780_0000);
    let subnormal = f32::from_bits((twice >> 17) | (126 << 23)) - 0.5;
    let magnitude = if twice < (1 << 27) {
        subnormal.to_bits()
    } else {
        normal.to_bits()
    };
    f32::from_bits(sign | magnitude)
}

/// To nearest, ties to even.
#[inline(always)]
pub(crate) fn from_f32(f: f32) -> u16 {
    let w = f.to_bits();
    let twice = w.wrapping_add(w);
    // Out of half's range the first product becomes infinite; the second scales back.
    let base = f.abs() * f32::from_bits(0x7780_0000) * f32::from_bits(0x0880_0000);
    let bias = (twice & 0xFF00_0000).max(0x7100_0000);
    // Adding a power of two makes the float addition round at half's last place.
    let bits = (f32::from_bits((bias >> 1).wrapping_add(0x0780_0000)) + base).to_bits();
    let magnitude = ((bits >> 13) & 0x7C00).wrapping_add(bits & 0x0FFF);
    if twice > 0xFF00_0000 {
        NAN
    } else {
        ((w >> 16) & 0x8000 | magnitude) as u16
    }
}

#[inline(always)]
pub(crate) fn add(a: u16, b: u16) -> u16 {
    from_f32(to_f32(a) + to_f32(b))
}

#[inline(always)]
pub(crate) fn sub(a: u16, b: u16) -> u16 {
    from_f32(to_f32(a) - to_f32(b))
}

#[inline(always)]
pub(crate) fn mul(a: u16, b: u16) -> u16 {
    from_f32(to_f32(a) * to_f32(b))
}

#[inline(always)]
pub(crate) fn fma(a: u16, b: u16, c: u16) -> u16 {
    let product = to_f32(a) * to_f32(b);
    from_f32(add_to_odd(product, to_f32(c)))
}

/// The sum with its last bit set when it is inexact (Boldo and Melquiond), from the error that two-sum gives.
#[inline(always)]
fn add_to_odd(a: f32, b: f32) -> f32 {
    let sum = a + b;
    let b_part = sum - a;
    let error = (a - (sum - b_part)) + (b - b_part);
    let bits = sum.to_bits();
    // An infinite or NaN sum has a NaN error, which compares unequal to zero and to itself.
    let inexact = (error != 0.0) & !error.is_nan() & (bits & 1 == 0);
    let away = (error > 0.0) == (sum > 0.0);
    let step = if away { 1 } else { u32::MAX };
    f32::from_bits(if inexact {
        bits.wrapping_add(step)
    } else {
        bits
    })
}

#[inline(always)]
pub(crate) fn is_nan(a: u16) -> bool {
    a & 0x7FFF > 0x7C00
}

/// A key by which halves order as integers, −0 before +0.
#[inline(always)]
fn key(a: u16) -> i32 {
    let a = i32::from(a);
    if a & 0x8000 != 0 {
        -(a & 0x7FFF) - 1
    } else {
        a
    }
}

/// IEEE 754-2019 minimumNumber: a number wins over NaN.
#[inline(always)]
pub(crate) fn min(a: u16, b: u16) -> u16 {
    match (is_nan(a), is_nan(b)) {
        (true, true) => NAN,
        (true, false) => b,
        (false, true) => a,
        _ => {
            if key(b) < key(a) {
                b
            } else {
                a
            }
        }
    }
}

/// IEEE 754-2019 maximumNumber.
#[inline(always)]
pub(crate) fn max(a: u16, b: u16) -> u16 {
    match (is_nan(a), is_nan(b)) {
        (true, true) => NAN,
        (true, false) => b,
        (false, true) => a,
        _ => {
            if key(b) > key(a) {
                b
            } else {
                a
            }
        }
    }
}

/// Subnormals to zero of the same sign.
pub(crate) fn flush(a: u16) -> u16 {
    if a & 0x7C00 == 0 { a & 0x8000 } else { a }
}

/// Into [0, 1]; NaN becomes +0.
pub(crate) fn saturate(a: u16) -> u16 {
    if is_nan(a) || a & 0x8000 != 0 {
        0
    } else {
        a.min(0x3C00)
    }
}

/// `f` on both halves of a pair.
#[inline(always)]
pub(crate) fn pair(a: u32, b: u32, f: impl Fn(u16, u16) -> u16) -> u32 {
    u32::from(f(a as u16, b as u16)) | u32::from(f((a >> 16) as u16, (b >> 16) as u16)) << 16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alu::convert::{Format, round};
    use crate::ir::Rounding;

    /// A half as sign and integer multiple of 2^-48, so that sums of products are exact in `i128`.
    fn exact(h: u16) -> Option<i128> {
        let (e, m) = (i32::from(h >> 10 & 31), i128::from(h & 0x3FF));
        let magnitude = match e {
            31 => return None,
            0 => m << 24,
            _ => (m | 0x400) << (24 + e - 1),
        };
        Some(if h & 0x8000 != 0 {
            -magnitude
        } else {
            magnitude
        })
    }

    #[test]
    fn widening_and_narrowing_agree_with_the_half_crate() {
        for bits in 0..=u16::MAX {
            let theirs = ::half::f16::from_bits(bits).to_f32();
            if theirs.is_nan() {
                assert!(to_f32(bits).is_nan());
            } else {
                assert_eq!(to_f32(bits).to_bits(), theirs.to_bits(), "{bits:#x}");
                assert_eq!(from_f32(theirs), bits);
            }
        }
        let mut x = 1u32;
        for _ in 0..2_000_000 {
            x = x.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let f = f32::from_bits(x);
            let expected = if f.is_nan() {
                NAN
            } else {
                ::half::f16::from_f32(f).to_bits()
            };
            assert_eq!(from_f32(f), expected, "{f:e}");
        }
    }

    #[test]
    fn fma_rounds_once() {
        let mut x = 7u64;
        let mut next = || {
            x = x
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (x >> 40) as u16
        };
        let mut checked = 0;
        for _ in 0..1_000_000 {
            let (a, b, c) = (next(), next(), next());
            let (Some(ea), Some(eb), Some(ec)) = (exact(a), exact(b), exact(c)) else {
                continue;
            };
            // The product in units of 2^-96 is below 2^130 only for extreme exponents; halve the scale: 2^-48 · 2^-48.
            let (pa, pb) = (ea >> 24, eb >> 24);
            let sum = pa * pb + ec;
            if sum == 0 {
                continue;
            }
            // pa and pb are in units of 2^-24, so the sum is in units of 2^-48.
            let expected = round(
                sum < 0,
                sum.unsigned_abs(),
                -48,
                Format::HALF,
                Rounding::Nearest,
            ) as u16;
            assert_eq!(fma(a, b, c), expected, "{a:#x} {b:#x} {c:#x}");
            checked += 1;
        }
        assert!(checked > 900_000, "{checked}");
        // 2049 · 1 + 2^-24 lies just above a tie: rounding twice would give 2048.
        let near = fma(0x6801, 0x3C00, 0x0001);
        assert_eq!(near, 0x6801);
        // (1 + 2^-10)(1 + 2^-10) − 2^-24 is just below the tie 1 + 2^-9 + 2^-20.
        assert_eq!(fma(0x3C01, 0x3C01, 0x8001), 0x3C02);
    }

    #[test]
    fn special_values() {
        const INF: u16 = 0x7C00;
        assert_eq!(add(INF, 0xFC00), NAN);
        assert_eq!(mul(INF, 0), NAN);
        assert_eq!(fma(INF, 0x3C00, 0xFC00), NAN);
        assert_eq!(fma(INF, 0x3C00, 0x3C00), INF);
        assert_eq!(add(0x7BFF, 0x7BFF), INF);
        assert_eq!(add(0x0001, 0x0001), 0x0002);
        assert_eq!(
            (min(0x8000, 0), min(0, 0x8000), max(0x8000, 0)),
            (0x8000, 0x8000, 0)
        );
        assert_eq!(
            (min(NAN, 0x3C00), max(0x3C00, NAN), min(NAN, 0xFE00)),
            (0x3C00, 0x3C00, NAN)
        );
        assert_eq!(
            (
                saturate(0x4000),
                saturate(0xBC00),
                saturate(NAN),
                flush(0x83FF)
            ),
            (0x3C00, 0, 0, 0x8000)
        );
    }
}
