//! Single and double precision: Rust's own arithmetic is IEEE's; here are the NaN, flushing and saturation rules on
//! top, and the functions that the hardware approximates, computed in double and rounded once.

use super::convert::half_from_f64;
use super::half;
use crate::exec::Lanes;
use crate::ir::{Compare, Float1, Float2, FloatMode, FloatType};

/// The NaN that single-precision instructions give.
pub(crate) const NAN: u32 = 0x7FFF_FFFF;

/// The bits of a result, NaN made canonical.
#[inline(always)]
pub(crate) fn bits(x: f32) -> u64 {
    u64::from(if x.is_nan() { NAN } else { x.to_bits() })
}

/// The NaN of double-precision instructions none of whose operands is one.
const NAN64: u64 = 0xFFF8 << 48;

#[inline(always)]
pub(crate) fn is_nan64(a: u64) -> bool {
    a & (u64::MAX >> 1) > 0x7FF << 52
}

/// A NaN as double-precision instructions hand it on: no longer signalling, its sign and payload kept.
#[inline(always)]
fn quiet(a: u64) -> u64 {
    a | 1 << 51
}

/// The bits of a double-precision result. Where it is NaN, Rust leaves open which: on the hardware it is the first NaN
/// among `operands`, listed in the order in which the instruction prefers them.
#[inline(always)]
pub(crate) fn bits64<const N: usize>(x: f64, operands: [u64; N]) -> u64 {
    if x.is_nan() {
        operands
            .into_iter()
            .find(|a| is_nan64(*a))
            .map_or(NAN64, quiet)
    } else {
        x.to_bits()
    }
}

/// Subnormals to zero of the same sign.
#[inline(always)]
pub(crate) fn flush(a: u32) -> u32 {
    if a & 0x7F80_0000 == 0 {
        a & 0x8000_0000
    } else {
        a
    }
}

fn saturate(a: u32) -> u32 {
    if a & 0x7FFF_FFFF > 0x7F80_0000 || a >> 31 == 1 {
        0
    } else {
        a.min(0x3F80_0000)
    }
}

/// A key by which floats order as integers, −0 before +0.
#[inline(always)]
fn key(a: u32) -> i64 {
    let a = i64::from(a);
    if a >> 31 == 1 {
        -(a & 0x7FFF_FFFF) - 1
    } else {
        a
    }
}

#[inline(always)]
fn key64(a: u64) -> i128 {
    let a = i128::from(a);
    if a >> 63 == 1 {
        -(a & i128::from(i64::MAX)) - 1
    } else {
        a
    }
}

#[inline(always)]
pub(crate) fn binary32(op: Float2, a: u32, b: u32) -> u64 {
    let (x, y) = (f32::from_bits(a), f32::from_bits(b));
    match op {
        Float2::Add => bits(x + y),
        Float2::Sub => bits(x - y),
        Float2::Mul => bits(x * y),
        Float2::Div => bits(x / y),
        Float2::CopySign => u64::from(a & 0x7FFF_FFFF | b & 0x8000_0000),
        Float2::Equal => bits(if x == y { 1.0 } else { 0.0 }),
        Float2::EqualMask => u64::from(if x == y { u32::MAX } else { 0 }),
        Float2::Min | Float2::Max | Float2::MinNan | Float2::MaxNan => {
            let strict = matches!(op, Float2::MinNan | Float2::MaxNan);
            let b_wins = if matches!(op, Float2::Min | Float2::MinNan) {
                key(b) < key(a)
            } else {
                key(b) > key(a)
            };
            u64::from(match (x.is_nan(), y.is_nan()) {
                (true, true) => NAN,
                (true, _) | (_, true) if strict => NAN,
                (true, false) => b,
                (false, true) => a,
                _ => {
                    if b_wins {
                        b
                    } else {
                        a
                    }
                }
            })
        }
    }
}

pub(crate) fn binary64(op: Float2, a: u64, b: u64) -> u64 {
    let (x, y) = (f64::from_bits(a), f64::from_bits(b));
    match op {
        Float2::Add => bits64(x + y, [b, a]),
        Float2::Sub => bits64(x - y, [b, a]),
        Float2::Mul => bits64(x * y, [b, a]),
        Float2::Div => bits64(x / y, [a, b]),
        Float2::CopySign => a & (u64::MAX >> 1) | b & (1 << 63),
        Float2::Equal => if x == y { 1.0_f64 } else { 0.0 }.to_bits(),
        Float2::EqualMask => {
            if x == y {
                u64::MAX
            } else {
                0
            }
        }
        Float2::Min | Float2::Max | Float2::MinNan | Float2::MaxNan => {
            let b_wins = if matches!(op, Float2::Min | Float2::MinNan) {
                key64(b) < key64(a)
            } else {
                key64(b) > key64(a)
            };
            match (x.is_nan(), y.is_nan()) {
                (true, true) => quiet(b),
                (true, false) => b,
                (false, true) => a,
                _ => {
                    if b_wins {
                        b
                    } else {
                        a
                    }
                }
            }
        }
    }
}

#[inline(always)]
pub(crate) fn binary16(op: Float2, a: u16, b: u16) -> u16 {
    match op {
        Float2::Add => half::add(a, b),
        Float2::Sub => half::sub(a, b),
        Float2::Mul => half::mul(a, b),
        Float2::Div => half::from_f32(half::to_f32(a) / half::to_f32(b)),
        Float2::Min => half::min(a, b),
        Float2::Max => half::max(a, b),
        Float2::MinNan | Float2::MaxNan if half::is_nan(a) || half::is_nan(b) => half::NAN,
        Float2::MinNan => half::min(a, b),
        Float2::MaxNan => half::max(a, b),
        Float2::CopySign => a & 0x7FFF | b & 0x8000,
        Float2::Equal if half::to_f32(a) == half::to_f32(b) => half::ONE,
        Float2::EqualMask if half::to_f32(a) == half::to_f32(b) => u16::MAX,
        Float2::Equal | Float2::EqualMask => 0,
    }
}

/// `a·b + c`, rounded once.
pub(crate) fn fma64(a: u64, b: u64, c: u64) -> u64 {
    let [x, y, z] = [a, b, c].map(f64::from_bits);
    bits64(libm::fma(x, y, z), [b, c, a])
}

/// `a · b + c` in single precision. Rust's own would call the C library's, which rounds twice in mingw's.
pub(crate) fn fma32(a: u64, b: u64, c: u64) -> u64 {
    let [a, b, c] = [a, b, c].map(|v| f32::from_bits(v as u32));
    bits(libm::fmaf(a, b, c))
}

/// [`fma32`] of all lanes. The loop is compiled for each kind of CPU, so that it has vectors of the CPU's own
/// instruction where there is one.
pub(crate) fn fma32_of_lanes(a: &Lanes, b: &Lanes, c: &Lanes) -> Lanes {
    struct EachLane<'a>([&'a Lanes; 3]);
    impl pulp::NullaryFnOnce for EachLane<'_> {
        type Output = Lanes;
        #[inline(always)]
        fn call(self) -> Lanes {
            let Self([a, b, c]) = self;
            let float = |v: u64| f32::from_bits(v as u32);
            std::array::from_fn(|i| bits(float(a[i]).mul_add(float(b[i]), float(c[i]))))
        }
    }
    pulp::Arch::new().dispatch(EachLane([a, b, c]))
}

/// A float instruction with `.ftz`, `.sat` or `.relu`: the rare ones, one lane at a time. `tiny` says of operands
/// whether their result is below the least normal number before it is rounded.
pub(crate) fn with_mode(
    ty: FloatType,
    mode: FloatMode,
    operands: [u64; 3],
    f: impl Fn([u64; 3]) -> u64,
    tiny: impl Fn([u64; 3]) -> bool,
) -> u64 {
    match ty {
        FloatType::F16 => half_with_mode(mode, operands, &f, &tiny),
        FloatType::F16x2 => {
            let low = half_with_mode(mode, operands.map(|v| v & 0xFFFF), &f, &tiny);
            let high = half_with_mode(mode, operands.map(|v| v >> 16 & 0xFFFF), &f, &tiny);
            low | high << 16
        }
        FloatType::F32 => {
            let operands = if mode.ftz {
                operands.map(|v| flush(v as u32).into())
            } else {
                operands
            };
            let mut r = f(operands) as u32;
            if mode.ftz {
                r = flush(r);
                if r & 0x7FFF_FFFF == 0x0080_0000 && tiny(operands) {
                    r &= 0x8000_0000;
                }
            }
            if mode.relu && r >> 31 == 1 {
                r = 0;
            }
            if mode.sat {
                saturate(r).into()
            } else {
                r.into()
            }
        }
        FloatType::F64 => f(operands),
    }
}

fn half_with_mode(
    mode: FloatMode,
    operands: [u64; 3],
    f: impl Fn([u64; 3]) -> u64,
    tiny: impl Fn([u64; 3]) -> bool,
) -> u64 {
    let operands = if mode.ftz {
        operands.map(|v| half::flush(v as u16).into())
    } else {
        operands
    };
    let mut r = f(operands) as u16;
    if mode.ftz {
        r = half::flush(r);
        if r & 0x7FFF == 0x0400 && tiny(operands) {
            r &= 0x8000;
        }
    }
    if mode.relu && r & 0x8000 != 0 {
        r = 0;
    }
    if mode.sat {
        half::saturate(r).into()
    } else {
        r.into()
    }
}

/// A function of one scalar operand; `ty` is not a pair.
pub(crate) fn unary(op: Float1, ty: FloatType, a: u64) -> u64 {
    match ty {
        FloatType::F16 | FloatType::F16x2 => u64::from(unary16(op, a as u16)),
        FloatType::F32 => unary32(op, a as u32),
        FloatType::F64 => {
            let x = f64::from_bits(a);
            match op {
                Float1::Neg | Float1::Abs if x.is_nan() => quiet(a),
                Float1::Neg => a ^ 1 << 63,
                Float1::Abs => a & (u64::MAX >> 1),
                _ => bits64(approximate(op, x), [a]),
            }
        }
    }
}

fn unary16(op: Float1, a: u16) -> u16 {
    match op {
        Float1::Neg | Float1::Abs if half::is_nan(a) => half::NAN,
        Float1::Neg => a ^ 0x8000,
        Float1::Abs => a & 0x7FFF,
        _ => half_from_f64(approximate(op, half::to_f32(a).into())),
    }
}

fn unary32(op: Float1, a: u32) -> u64 {
    let x = f32::from_bits(a);
    match op {
        Float1::Neg => bits(f32::from_bits(a ^ 0x8000_0000)),
        Float1::Abs => bits(f32::from_bits(a & 0x7FFF_FFFF)),
        Float1::Sqrt => bits(x.sqrt()),
        Float1::Rcp => bits(1.0 / x),
        _ => bits(approximate(op, x.into()) as f32),
    }
}

/// In double; rounding the result once stays within the error that PTX documents for each of them.
fn approximate(op: Float1, x: f64) -> f64 {
    match op {
        Float1::Neg => -x,
        Float1::Abs => x.abs(),
        Float1::Sqrt => x.sqrt(),
        Float1::Rcp => 1.0 / x,
        Float1::Rsqrt => 1.0 / x.sqrt(),
        Float1::Ex2 => x.exp2(),
        Float1::Lg2 => x.log2(),
        Float1::Sin => x.sin(),
        Float1::Cos => x.cos(),
        Float1::Tanh => x.tanh(),
    }
}

/// A comparison of two floats.
#[inline(always)]
pub(crate) fn compare(cmp: Compare, x: f64, y: f64) -> bool {
    let unordered = x.is_nan() || y.is_nan();
    match cmp {
        Compare::Eq => x == y,
        Compare::Ne => !unordered && x != y,
        Compare::Lt => x < y,
        Compare::Le => x <= y,
        Compare::Gt => x > y,
        Compare::Ge => x >= y,
        Compare::Equ => unordered || x == y,
        Compare::Neu => x != y,
        Compare::Ltu => unordered || x < y,
        Compare::Leu => unordered || x <= y,
        Compare::Gtu => unordered || x > y,
        Compare::Geu => unordered || x >= y,
        Compare::Num => !unordered,
        Compare::Nan => unordered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_canonical_and_loses_against_numbers() {
        let nan = 0xFF80_0001;
        assert_eq!(binary32(Float2::Add, nan, 0), u64::from(NAN));
        assert_eq!(
            binary32(
                Float2::Sub,
                f32::INFINITY.to_bits(),
                f32::INFINITY.to_bits()
            ),
            u64::from(NAN)
        );
        assert_eq!(binary32(Float2::Min, nan, 7), 7);
        assert_eq!(binary32(Float2::MinNan, nan, 7), u64::from(NAN));
        assert_eq!(binary32(Float2::Max, 0x8000_0000, 0), 0);
        assert_eq!(binary32(Float2::Min, 0, 0x8000_0000), 0x8000_0000);
        assert_eq!(
            binary64(Float2::Max, f64::NAN.to_bits(), 1f64.to_bits()),
            1f64.to_bits()
        );
        assert_eq!(binary16(Float2::MaxNan, half::NAN, 0), half::NAN);
    }

    #[test]
    fn sign_operations_make_nan_canonical() {
        for op in [Float1::Neg, Float1::Abs] {
            assert_eq!(unary(op, FloatType::F16, 0xFE55), half::NAN.into());
            assert_eq!(unary(op, FloatType::F32, 0xFF80_0001), NAN.into());
        }
        assert_eq!(unary(Float1::Neg, FloatType::F16, 0x7C00), 0xFC00);
        assert_eq!(unary(Float1::Neg, FloatType::F32, 0), 0x8000_0000);
    }

    #[test]
    fn double_precision_hands_nan_on() {
        let (signalling, negative) = (0x7FF0_0000_0000_0001, 0xFFF8_1234_5678_9ABC);
        let quieted = 0x7FF8_0000_0000_0001;
        for op in [Float2::Add, Float2::Sub, Float2::Mul, Float2::Min] {
            assert_eq!(binary64(op, negative, signalling), quieted, "{op:?}");
            assert_eq!(binary64(op, signalling, negative), negative, "{op:?}");
        }
        assert_eq!(binary64(Float2::Div, signalling, negative), quieted);
        assert_eq!(binary64(Float2::Div, 0, signalling), quieted);
        assert_eq!(fma64(negative, signalling, negative), quieted);
        assert_eq!(fma64(negative, 0, signalling), quieted);
        assert_eq!(fma64(signalling, 0, 0), quieted);
        let infinity = f64::INFINITY.to_bits();
        assert_eq!(binary64(Float2::Sub, infinity, infinity), NAN64);
        for op in [Float1::Neg, Float1::Abs, Float1::Sqrt, Float1::Rcp] {
            assert_eq!(unary(op, FloatType::F64, signalling), quieted, "{op:?}");
            assert_eq!(unary(op, FloatType::F64, negative), negative, "{op:?}");
        }
        let minus_one = (-1f64).to_bits();
        assert_eq!(unary(Float1::Sqrt, FloatType::F64, minus_one), NAN64);
    }

    #[test]
    fn modes_flush_and_clamp() {
        let ftz = FloatMode {
            ftz: true,
            ..FloatMode::default()
        };
        let add = |v: [u64; 3]| binary32(Float2::Add, v[0] as u32, v[1] as u32);
        let never = |_: [u64; 3]| false;
        assert_eq!(
            with_mode(
                FloatType::F32,
                ftz,
                [0x8000_0001, 0x8000_0000, 0],
                add,
                never
            ),
            0x8000_0000
        );
        let sat = FloatMode {
            sat: true,
            ..FloatMode::default()
        };
        assert_eq!(
            with_mode(
                FloatType::F32,
                sat,
                [2f32.to_bits().into(), 0, 0],
                add,
                never
            ),
            u64::from(1f32.to_bits())
        );
        assert_eq!(
            with_mode(FloatType::F32, sat, [NAN.into(), 0, 0], add, never),
            0
        );
        let least = |_: [u64; 3]| 0x8080_0000;
        assert_eq!(
            with_mode(FloatType::F32, ftz, [0; 3], least, never),
            0x8080_0000
        );
        assert_eq!(
            with_mode(FloatType::F32, ftz, [0; 3], least, |_| true),
            0x8000_0000
        );
        let relu = FloatMode {
            relu: true,
            ..FloatMode::default()
        };
        let pick = |v: [u64; 3]| v[0] & 0xFFFF;
        assert_eq!(
            with_mode(FloatType::F16x2, relu, [0xBC00_3C00, 0, 0], pick, never),
            0x3C00
        );
    }

    #[test]
    fn special_functions_at_their_corners() {
        let f = |op, x: f32| f32::from_bits(unary(op, FloatType::F32, x.to_bits().into()) as u32);
        assert_eq!(f(Float1::Rsqrt, 4.0), 0.5);
        assert_eq!(f(Float1::Rsqrt, -0.0), f32::NEG_INFINITY);
        assert_eq!(f(Float1::Ex2, 10.0), 1024.0);
        assert_eq!(f(Float1::Ex2, f32::NEG_INFINITY), 0.0);
        assert_eq!(f(Float1::Lg2, 0.0), f32::NEG_INFINITY);
        assert_eq!(f(Float1::Rcp, 0.0), f32::INFINITY);
        assert_eq!(
            unary(Float1::Sqrt, FloatType::F32, (-1f32).to_bits().into()),
            u64::from(NAN)
        );
        assert_eq!(unary(Float1::Ex2, FloatType::F16, 0x4C00), 0x7C00);
        assert_eq!(unary(Float1::Tanh, FloatType::F16, 0x7C00), 0x3C00);
    }

    #[test]
    fn comparisons_with_nan() {
        use Compare::*;
        for (cmp, expected) in [
            (Eq, false),
            (Ne, false),
            (Neu, true),
            (Ltu, true),
            (Num, false),
            (Nan, true),
            (Lt, false),
        ] {
            assert_eq!(compare(cmp, f64::NAN, 1.0), expected, "{cmp:?}");
        }
        assert!(compare(Eq, 0.0, -0.0));
    }
}
