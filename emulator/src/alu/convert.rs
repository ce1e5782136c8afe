//! `cvt`: every rounding, saturation and NaN rule of the PTX ISA's entry.

use super::{float, half};
use crate::ir::{Convert, Rounding, ScalarType};

/// A binary floating-point format.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Format {
    /// Bits of the significand, the hidden one included.
    precision: i32,
    /// Exponent of the smallest normal number.
    least: i32,
    /// The bits of infinity.
    infinity: u64,
    sign: u64,
}

impl Format {
    pub(crate) const HALF: Format = Format {
        precision: 11,
        least: -14,
        infinity: 0x7C00,
        sign: 1 << 15,
    };
    pub(crate) const BFLOAT: Format = Format {
        precision: 8,
        least: -126,
        infinity: 0x7F80,
        sign: 1 << 15,
    };
    pub(crate) const SINGLE: Format = Format {
        precision: 24,
        least: -126,
        infinity: 0x7F80_0000,
        sign: 1 << 31,
    };
    pub(crate) const DOUBLE: Format = Format {
        precision: 53,
        least: -1022,
        infinity: 0x7FF << 52,
        sign: 1 << 63,
    };
}

/// The upper half of a single's bits as a single, exactly.
#[inline(always)]
pub(crate) fn bf16_to_f32(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// The bits of `± magnitude · 2^exponent` rounded to a format, from an exact value.
pub(crate) fn round(
    negative: bool,
    magnitude: u128,
    exponent: i32,
    format: Format,
    rounding: Rounding,
) -> u64 {
    let sign = if negative { format.sign } else { 0 };
    if magnitude == 0 {
        return sign;
    }
    let top = 127 - magnitude.leading_zeros() as i32 + exponent;
    let smallest = format.least - (format.precision - 1);
    // The exponent of the result's last place.
    let last = (top - (format.precision - 1)).max(smallest);
    let shift = last - exponent;
    let (mut q, above_half, half, inexact) = match shift {
        ..=0 => ((magnitude << -shift) as u64, false, false, false),
        1..128 => {
            let rest = magnitude & ((1 << shift) - 1);
            let tie = 1u128 << (shift - 1);
            (
                (magnitude >> shift) as u64,
                rest > tie,
                rest == tie,
                rest != 0,
            )
        }
        _ => (0, false, false, true),
    };
    let up = match rounding {
        Rounding::Nearest => above_half || (half && q & 1 == 1),
        Rounding::Zero => false,
        Rounding::Down => inexact && negative,
        Rounding::Up => inexact && !negative,
    };
    q += u64::from(up);
    let hidden = 1u64 << (format.precision - 1);
    let bits = if q < hidden {
        q
    } else {
        (((last - smallest + 1) as u64) << (format.precision - 1)) + (q - hidden)
    };
    if bits < format.infinity {
        return sign | bits;
    }
    let to_infinity = match rounding {
        Rounding::Nearest => true,
        Rounding::Zero => false,
        Rounding::Down => negative,
        Rounding::Up => !negative,
    };
    sign | if to_infinity {
        format.infinity
    } else {
        format.infinity - 1
    }
}

/// A finite double as sign, magnitude and exponent.
fn parts(x: f64) -> (bool, u128, i32) {
    let bits = x.to_bits();
    let (exponent, mantissa) = ((bits >> 52 & 0x7FF) as i32, bits & ((1 << 52) - 1));
    let magnitude = if exponent == 0 {
        mantissa
    } else {
        mantissa | 1 << 52
    };
    (
        x.is_sign_negative(),
        magnitude.into(),
        exponent.max(1) - 1075,
    )
}

/// The bits of a double rounded to a narrower format; NaN must not come here.
pub(crate) fn narrow(x: f64, format: Format, rounding: Rounding) -> u64 {
    if x.is_infinite() {
        return if x < 0.0 {
            format.sign | format.infinity
        } else {
            format.infinity
        };
    }
    let (negative, magnitude, exponent) = parts(x);
    round(negative, magnitude, exponent, format, rounding)
}

/// The bits of the half nearest to a double.
pub(crate) fn half_from_f64(x: f64) -> u16 {
    if x.is_nan() {
        half::NAN
    } else {
        narrow(x, Format::HALF, Rounding::Nearest) as u16
    }
}

fn to_integral(x: f64, rounding: Rounding) -> f64 {
    match rounding {
        Rounding::Nearest => x.round_ties_even(),
        Rounding::Zero => x.trunc(),
        Rounding::Down => x.floor(),
        Rounding::Up => x.ceil(),
    }
}

/// The source as an integer, sign extended where its type is signed.
fn source_int(v: u64, ty: ScalarType) -> i128 {
    match ty {
        ScalarType::U8 => i128::from(v as u8),
        ScalarType::S8 => i128::from(v as i8),
        ScalarType::U16 | ScalarType::F16 | ScalarType::Bf16 => i128::from(v as u16),
        ScalarType::S16 => i128::from(v as i16),
        ScalarType::U32 | ScalarType::F32 => i128::from(v as u32),
        ScalarType::S32 => i128::from(v as i32),
        ScalarType::U64 | ScalarType::F64 => i128::from(v),
        ScalarType::S64 => i128::from(v as i64),
    }
}

fn range(ty: ScalarType) -> (i128, i128) {
    let bits = u32::from(ty.bits());
    if ty.is_signed() {
        (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
    } else {
        (0, (1 << bits) - 1)
    }
}

/// One conversion; the result is extended to the destination register.
pub(crate) fn convert(v: u64, how: Convert) -> u64 {
    let result = match (how.from.is_float(), how.to.is_float()) {
        (false, false) => {
            let x = source_int(v, how.from);
            let (low, high) = range(how.to);
            let x = if how.sat { x.clamp(low, high) } else { x };
            extend(x as u64, how)
        }
        (true, false) => extend(float_to_int(v, how), how),
        (false, true) => {
            let x = source_int(v, how.from);
            saturate(
                round(x < 0, x.unsigned_abs(), 0, format(how.to), how.rounding),
                how,
            )
        }
        (true, true) => float_to_float(v, how),
    };
    mask(result, how.bits)
}

fn format(ty: ScalarType) -> Format {
    match ty {
        ScalarType::F16 => Format::HALF,
        ScalarType::Bf16 => Format::BFLOAT,
        ScalarType::F32 => Format::SINGLE,
        _ => Format::DOUBLE,
    }
}

fn mask(v: u64, bits: u8) -> u64 {
    v & (u64::MAX >> (64 - bits))
}

/// Cuts to the destination type, then extends its sign if it has one.
fn extend(v: u64, how: Convert) -> u64 {
    let unused = 64 - u32::from(how.to.bits());
    if how.to.is_signed() {
        ((v << unused) as i64 >> unused) as u64
    } else {
        v << unused >> unused
    }
}

fn source_float(v: u64, how: Convert) -> f64 {
    match how.from {
        ScalarType::F16 => f64::from(half::to_f32(v as u16)),
        ScalarType::Bf16 => f64::from(bf16_to_f32(v as u16)),
        ScalarType::F32 => {
            let v = if how.ftz {
                float::flush(v as u32)
            } else {
                v as u32
            };
            f64::from(f32::from_bits(v))
        }
        _ => f64::from_bits(v),
    }
}

/// Out of range gives the nearest end; NaN gives 0, or the top bit alone where a side has 64 bits.
fn float_to_int(v: u64, how: Convert) -> u64 {
    let x = source_float(v, how);
    if x.is_nan() {
        let wide = how.from == ScalarType::F64 || how.to.bits() == 64;
        return if wide { 1 << (how.to.bits() - 1) } else { 0 };
    }
    let rounding = if how.integral {
        how.rounding
    } else {
        Rounding::Zero
    };
    let (low, high) = range(how.to);
    (to_integral(x, rounding) as i128).clamp(low, high) as u64
}

/// What becomes of a NaN, given as a double. Where either side is double it keeps its sign and the top of its payload;
/// else, and where `.ftz` sends a single through the unit that flushes, it is the canonical one.
fn nan(x: u64, how: Convert) -> u64 {
    /// [`float::NAN`] widened.
    const CANONICAL: u64 = 0x7FFF_FFFF_E000_0000;
    let canonical = how.ftz && how.from == ScalarType::F32;
    let x = if canonical { CANONICAL } else { x };
    if how.from == ScalarType::F64 || how.to == ScalarType::F64 {
        let to = format(how.to);
        let sign = if x >> 63 == 1 { to.sign } else { 0 };
        let payload = x & ((1 << 52) - 1) | 1 << 51;
        sign | to.infinity | payload >> (Format::DOUBLE.precision - to.precision)
    } else if matches!(how.to, ScalarType::F16 | ScalarType::Bf16) {
        // 0x7fff is the NaN of both.
        half::NAN.into()
    } else {
        float::NAN.into()
    }
}

fn float_to_float(v: u64, how: Convert) -> u64 {
    let x = source_float(v, how);
    if x.is_nan() {
        return match how.to {
            _ if how.sat => 0,
            _ => nan(x.to_bits(), how),
        };
    }
    let x = if how.integral {
        to_integral(x, how.rounding)
    } else {
        x
    };
    let bits = match how.to {
        ScalarType::F64 => x.to_bits(),
        to => narrow(x, format(to), how.rounding),
    };
    let bits = if how.ftz && how.to == ScalarType::F32 {
        float::flush(bits as u32).into()
    } else {
        bits
    };
    let negative = bits & format(how.to).sign != 0;
    if how.relu && negative {
        0
    } else {
        saturate(bits, how)
    }
}

/// `.sat` of a float: into [0, 1].
fn saturate(bits: u64, how: Convert) -> u64 {
    if !how.sat {
        return bits;
    }
    let f = format(how.to);
    // One's exponent is zero, so its exponent field is the bias.
    let one = ((1 - f.least) as u64) << (f.precision - 1);
    if bits & f.sign != 0 { 0 } else { bits.min(one) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ScalarType::*;

    fn how(to: ScalarType, from: ScalarType, rounding: Rounding) -> Convert {
        Convert {
            to,
            from,
            rounding,
            integral: !to.is_float(),
            sat: false,
            ftz: false,
            relu: false,
            bits: to.bits().max(16),
        }
    }

    #[test]
    fn floats_to_integers_saturate_and_nan_is_by_width() {
        let f = |x: f32, to| convert(x.to_bits().into(), how(to, F32, Rounding::Zero));
        assert_eq!(f(-1.5, S32), (-1i32) as u32 as u64);
        assert_eq!(f(3e9, S32), i32::MAX as u64);
        assert_eq!(f(-1.0, U32), 0);
        assert_eq!(f(300.0, U8), 255);
        assert_eq!(f(f32::NAN, S32), 0);
        assert_eq!(f(f32::NAN, S64), 1 << 63);
        assert_eq!(
            convert(f64::NAN.to_bits(), how(S32, F64, Rounding::Zero)),
            1 << 31
        );
        assert_eq!(
            convert(2.5f32.to_bits().into(), how(S32, F32, Rounding::Nearest)),
            2
        );
        assert_eq!(
            convert((-2.5f32).to_bits().into(), how(S32, F32, Rounding::Down)) as i32,
            -3
        );
        assert_eq!(
            convert(2.1f32.to_bits().into(), how(S32, F32, Rounding::Up)),
            3
        );
    }

    #[test]
    fn integers_to_floats_round_as_asked() {
        let n = (1u64 << 24) + 1;
        let f = |r| f32::from_bits(convert(n, how(F32, U64, r)) as u32);
        assert_eq!(
            (f(Rounding::Nearest), f(Rounding::Zero), f(Rounding::Up)),
            (16_777_216.0, 16_777_216.0, 16_777_218.0)
        );
        let m = f32::from_bits(convert((-(n as i64)) as u64, how(F32, S64, Rounding::Down)) as u32);
        assert_eq!(m, -16_777_218.0);
        for v in [0i64, 1, -1, i64::MIN, i64::MAX, 123_456_789_012_345_678] {
            assert_eq!(
                convert(v as u64, how(F64, S64, Rounding::Nearest)),
                (v as f64).to_bits()
            );
            assert_eq!(
                convert(v as u64, how(F32, S64, Rounding::Nearest)),
                u64::from((v as f32).to_bits())
            );
        }
    }

    #[test]
    fn narrowing_agrees_with_the_machine_and_overflows_by_rounding() {
        let mut x = 3u64;
        for _ in 0..500_000 {
            x = x
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            // Exponents near float's range, subnormals and overflow included.
            let d = f64::from_bits((x & 0x800F_FFFF_FFFF_FFFF) | (800 + (x >> 13) % 450) << 52);
            assert_eq!(
                convert(d.to_bits(), how(F32, F64, Rounding::Nearest)),
                u64::from((d as f32).to_bits()),
                "{d:e}"
            );
        }
        let big = 1e30f32.to_bits().into();
        assert_eq!(convert(big, how(F16, F32, Rounding::Nearest)), 0x7C00);
        assert_eq!(convert(big, how(F16, F32, Rounding::Zero)), 0x7BFF);
        assert_eq!(
            convert(f32::NAN.to_bits().into(), how(F16, F32, Rounding::Nearest)),
            0x7FFF
        );
        assert_eq!(
            convert(0x7E00, how(F32, F16, Rounding::Nearest)),
            0x7FFF_FFFF
        );
    }

    #[test]
    fn nan_keeps_sign_and_payload_from_and_to_double() {
        let f = |v, to, from| convert(v, how(to, from, Rounding::Nearest));
        let (negative, signalling) = (0xFFF8_1234_5678_9ABC, 0x7FF0_0000_0000_0001);
        assert_eq!(f(negative, F32, F64), 0xFFC0_91A2);
        assert_eq!(f(negative, F16, F64), 0xFE04);
        assert_eq!(f(negative, F64, F64), negative);
        assert_eq!(f(signalling, F32, F64), 0x7FC0_0000);
        assert_eq!(f(signalling, F64, F64), signalling | 1 << 51);
        assert_eq!(f(0xFFC1_2345, F64, F32), 0xFFF8_2468_A000_0000);
        assert_eq!(f(0x7F80_0001, F64, F32), 0x7FF8_0000_2000_0000);
        assert_eq!(f(0x7C01, F64, F16), 0x7FF8_0400_0000_0000);
        assert_eq!(f(0xFFC1_2345, F16, F32), 0x7FFF);
        let flushing = Convert {
            ftz: true,
            ..how(F64, F32, Rounding::Nearest)
        };
        assert_eq!(convert(0xFFC1_2345, flushing), 0x7FFF_FFFF_E000_0000);
    }

    #[test]
    fn saturation_sign_extension_and_relu() {
        let sat = |to, from| Convert {
            sat: true,
            ..how(to, from, Rounding::Nearest)
        };
        let f = |x: f32| f32::from_bits(convert(x.to_bits().into(), sat(F32, F32)) as u32);
        assert_eq!(
            (f(2.0), f(-1.0), f(0.25), f(f32::NAN)),
            (1.0, 0.0, 0.25, 0.0)
        );
        assert_eq!(convert(1.5f64.to_bits(), sat(F64, F64)), 1f64.to_bits());
        assert_eq!(convert(0x4400, sat(F16, F16)), 0x3C00);
        assert_eq!(convert(300, sat(U8, U32)), 255);
        assert_eq!(
            convert(
                0xFFFF_FFFF,
                Convert {
                    sat: true,
                    ..how(S8, S32, Rounding::Nearest)
                }
            ),
            0xFFFF
        );
        assert_eq!(
            convert(
                0x80,
                Convert {
                    bits: 32,
                    ..how(S8, S8, Rounding::Nearest)
                }
            ),
            0xFFFF_FF80
        );
        let relu = Convert {
            relu: true,
            ..how(F16, F32, Rounding::Nearest)
        };
        assert_eq!(convert((-2f32).to_bits().into(), relu), 0);
    }
}
