//! Single-precision arithmetic rounded towards zero, down or up.
//!
//! Each result is computed in double and rounded there to odd (Boldo and Melquiond), from the exact error; a double has
//! more than twice a float's precision plus two bits, so one more rounding, in whichever direction, gives what a single
//! would.

use super::convert::{Format, narrow};
use super::float;
use super::half;
use crate::ir::{Float1, Float2, FloatType, Rounding};

/// `value` with its last bit set if the exact result is `value + error`, with an error that is not zero.
fn to_odd(value: f64, error: f64) -> f64 {
    let bits = value.to_bits();
    if error == 0.0 || bits & 1 == 1 {
        return value;
    }
    let away = (error > 0.0) == (value > 0.0);
    f64::from_bits(if away { bits + 1 } else { bits - 1 })
}

fn finish(x: f64, rounding: Rounding) -> u64 {
    if x.is_finite() {
        narrow(x, Format::SINGLE, rounding)
    } else {
        float::bits(x as f32)
    }
}

fn sum(x: f64, y: f64, rounding: Rounding) -> u64 {
    let sum = x + y;
    if sum == 0.0 {
        // Numbers that cancel give −0 only when rounding down; equal zeros keep their sign.
        let negative = if x == 0.0 && x.is_sign_negative() == y.is_sign_negative() {
            x.is_sign_negative()
        } else {
            rounding == Rounding::Down
        };
        return if negative { 1 << 31 } else { 0 };
    }
    finish(sum_to_odd(x, y), rounding)
}

fn sum_to_odd(x: f64, y: f64) -> f64 {
    let sum = x + y;
    if !sum.is_finite() {
        return sum;
    }
    let y_part = sum - x;
    to_odd(sum, (x - (sum - y_part)) + (y - y_part))
}

fn quotient(x: f64, y: f64, rounding: Rounding) -> u64 {
    let q = x / y;
    if !q.is_finite() || q == 0.0 || y.is_infinite() {
        return finish(q, rounding);
    }
    let remainder = libm::fma(-q, y, x);
    finish(
        to_odd(q, if y > 0.0 { remainder } else { -remainder }),
        rounding,
    )
}

fn double(bits: u64) -> f64 {
    f32::from_bits(bits as u32).into()
}

/// The product of two floats is exact in double, and so is the whole up to one sum.
pub(crate) fn fma(a: u64, b: u64, c: u64, rounding: Rounding) -> u64 {
    sum(double(a) * double(b), double(c), rounding)
}

/// `add`, `sub`, `mul`, `div`; the rest has no rounding.
pub(crate) fn binary(op: Float2, a: u64, b: u64, rounding: Rounding) -> u64 {
    let (x, y) = (double(a), double(b));
    match op {
        Float2::Add => sum(x, y, rounding),
        Float2::Sub => sum(x, -y, rounding),
        Float2::Mul => finish(x * y, rounding),
        Float2::Div => quotient(x, y, rounding),
        _ => float::binary32(op, a as u32, b as u32),
    }
}

/// `sqrt`, `rcp`; the rest has no rounding.
pub(crate) fn unary(op: Float1, a: u64, rounding: Rounding) -> u64 {
    let x = double(a);
    match op {
        Float1::Rcp => quotient(1.0, x, rounding),
        Float1::Sqrt => {
            let root = x.sqrt();
            if !root.is_finite() || root == 0.0 {
                return finish(root, rounding);
            }
            finish(to_odd(root, libm::fma(-root, root, x)), rounding)
        }
        _ => float::unary(op, crate::ir::FloatType::F32, a),
    }
}

/// A float or a half in double.
fn wider(ty: FloatType, bits: u64) -> f64 {
    if ty == FloatType::F32 {
        double(bits)
    } else {
        half::to_f32(bits as u16).into()
    }
}

/// Below the least normal number of the type: what `.ftz` goes by is the exact result, so that numbers which rounding
/// would carry up to the least normal one are flushed too.
fn is_tiny(ty: FloatType, exact: f64) -> bool {
    let least = if ty == FloatType::F32 {
        f32::MIN_POSITIVE
    } else {
        half::to_f32(0x0400)
    };
    exact.abs() < f64::from(least)
}

/// Whether a single-precision result is tiny before it is rounded; only quotients are then rounded at all.
pub(crate) fn is_tiny_unary(op: Float1, a: u64) -> bool {
    op == Float1::Rcp && is_tiny(FloatType::F32, 1.0 / double(a))
}

/// As [`is_tiny_unary`], of two halves or floats. Double is wide enough to keep a quotient apart from the least normal
/// number; tiny sums are exact.
pub(crate) fn is_tiny_binary(op: Float2, ty: FloatType, a: u64, b: u64) -> bool {
    let (x, y) = (wider(ty, a), wider(ty, b));
    match op {
        Float2::Mul => is_tiny(ty, x * y),
        Float2::Div => is_tiny(ty, x / y),
        _ => false,
    }
}

/// As [`is_tiny_binary`], of a fused multiply-add.
pub(crate) fn is_tiny_fma(ty: FloatType, a: u64, b: u64, c: u64) -> bool {
    let product = wider(ty, a) * wider(ty, b);
    is_tiny(ty, sum_to_odd(product, wider(ty, c)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTED: [Rounding; 4] = [
        Rounding::Nearest,
        Rounding::Zero,
        Rounding::Down,
        Rounding::Up,
    ];

    type Operation = fn(u64, u64, u64, Rounding) -> u64;

    fn random(x: &mut u64) -> f32 {
        *x = x
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        f32::from_bits((*x >> 32) as u32)
    }

    /// Down and up enclose the nearest, are neighbours or equal, and zero is the one of smaller magnitude.
    #[test]
    fn directions_enclose_the_nearest() {
        let mut x = 5;
        for _ in 0..200_000 {
            let (a, b, c) = (random(&mut x), random(&mut x), random(&mut x));
            if !(a.is_finite() && b.is_finite() && c.is_finite()) {
                continue;
            }
            let [ab, bb, cb] = [a, b, c].map(|v| u64::from(v.to_bits()));
            let all: [(f32, Operation); 5] = [
                (a + b, |a, b, _, r| binary(Float2::Add, a, b, r)),
                (a * b, |a, b, _, r| binary(Float2::Mul, a, b, r)),
                (a / b, |a, b, _, r| binary(Float2::Div, a, b, r)),
                (libm::fmaf(a, b, c), fma),
                (a.abs().sqrt(), |a, _, _, r| {
                    unary(Float1::Sqrt, a & 0x7FFF_FFFF, r)
                }),
            ];
            for (nearest, f) in all {
                let [n, z, d, u] = DIRECTED.map(|r| f32::from_bits(f(ab, bb, cb, r) as u32));
                if nearest.is_nan() {
                    assert!(n.is_nan());
                    continue;
                }
                assert_eq!(n.to_bits(), nearest.to_bits(), "{a:e} {b:e} {c:e}");
                assert!(
                    d <= nearest && nearest <= u && (d == u || d.next_up() == u),
                    "{a:e} {b:e} {c:e}: {d:e} {nearest:e} {u:e}"
                );
                assert_eq!(z, if nearest.is_sign_positive() { d } else { u });
            }
        }
    }

    #[test]
    fn results_below_the_least_normal_number_are_tiny_however_they_round() {
        let (below_one, least, one) = (0x3F7F_FFFF, 0x0080_0000, 0x3F80_0000);
        let single = FloatType::F32;
        assert_eq!(
            float::binary32(Float2::Mul, below_one as u32, least as u32),
            least
        );
        assert!(is_tiny_binary(Float2::Mul, single, below_one, least));
        assert!(!is_tiny_binary(Float2::Mul, single, one, least));
        assert!(is_tiny_fma(single, below_one, least, 0));
        // The product, far below an addend's last place in double, still decides.
        assert!(is_tiny_fma(single, 0x8080_0000, 0x0080_0000, least));
        assert!(!is_tiny_fma(single, least, least, least));
        assert!(is_tiny_binary(Float2::Div, single, least, 0x3F80_0001));
        assert!(
            is_tiny_unary(Float1::Rcp, 0x7E80_0001) && !is_tiny_unary(Float1::Rcp, 0x7E80_0000)
        );
        for half in [FloatType::F16, FloatType::F16x2] {
            assert!(is_tiny_binary(Float2::Mul, half, 0x3BFF, 0x8400));
            assert!(!is_tiny_binary(Float2::Mul, half, 0x3C00, 0x8400));
        }
    }

    #[test]
    fn zeros() {
        let (plus, minus) = (0u64, 1u64 << 31);
        assert_eq!(binary(Float2::Sub, 7, 7, Rounding::Down), minus);
        assert_eq!(binary(Float2::Sub, 7, 7, Rounding::Zero), plus);
        assert_eq!(binary(Float2::Add, plus, plus, Rounding::Down), plus);
        assert_eq!(binary(Float2::Add, minus, minus, Rounding::Up), minus);
        assert_eq!(
            binary(Float2::Div, 0x3F80_0000, 0x7F80_0000, Rounding::Up),
            plus
        );
    }
}
