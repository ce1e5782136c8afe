//! Instructions that each lane executes on its own registers.

use super::warp::Warp;
use super::{Env, Lanes};
use crate::alu::int::Lane;
use crate::alu::{convert, directed, float, half, int};
use crate::ir::*;

/// Executes `op` for the lanes of `mask`; false if it is none of this kind.
pub(super) fn execute(warp: &mut Warp, env: &Env<'_>, op: &Op, mask: u32) -> bool {
    let k = &env.constants;
    match *op {
        Op::Mov { d, a } => {
            let values = *warp.row(k, a);
            warp.put(d, mask, &values);
        }
        Op::Pack { d, s, count, bits } => {
            let mut values = [0; 32];
            for (i, part) in s.iter().take(count.into()).enumerate() {
                let row = warp.row(k, *part);
                for lane in 0..32 {
                    values[lane] |= row[lane] << (i as u32 * u32::from(bits));
                }
            }
            warp.put(d, mask, &values);
        }
        Op::Unpack { d, count, bits, a } => {
            let row = *warp.row(k, a);
            for (i, part) in d.iter().take(count.into()).enumerate() {
                let values =
                    row.map(|v| v >> (i as u32 * u32::from(bits)) & (u64::MAX >> (64 - bits)));
                warp.put(*part, mask, &values);
            }
        }
        Op::PredConst { d, value } => warp.put_pred(d, mask, if value { u32::MAX } else { 0 }),
        Op::PredLogic {
            op,
            d,
            a,
            a_negated,
            b,
            b_negated,
        } => {
            let value = |p: Pred, negated: bool| {
                warp.preds[p as usize] ^ if negated { u32::MAX } else { 0 }
            };
            let bits = combine(op, value(a, a_negated), value(b, b_negated));
            warp.put_pred(d, mask, bits);
        }
        Op::Int1 { op, ty, d, a } => match ty {
            IntType::U16 => map1(warp, k, mask, d, a, |x| int::unary::<u16>(op, x)),
            IntType::S16 => map1(warp, k, mask, d, a, |x| int::unary::<i16>(op, x)),
            IntType::U32 => map1(warp, k, mask, d, a, |x| int::unary::<u32>(op, x)),
            IntType::S32 => map1(warp, k, mask, d, a, |x| int::unary::<i32>(op, x)),
            IntType::U64 => map1(warp, k, mask, d, a, |x| int::unary::<u64>(op, x)),
            IntType::S64 => map1(warp, k, mask, d, a, |x| int::unary::<i64>(op, x)),
        },
        Op::Int2 { op, ty, d, a, b } => match ty {
            IntType::U16 => int2::<u16>(warp, k, mask, op, d, a, b),
            IntType::S16 => int2::<i16>(warp, k, mask, op, d, a, b),
            IntType::U32 => int2::<u32>(warp, k, mask, op, d, a, b),
            IntType::S32 => int2::<i32>(warp, k, mask, op, d, a, b),
            IntType::U64 => int2::<u64>(warp, k, mask, op, d, a, b),
            IntType::S64 => int2::<i64>(warp, k, mask, op, d, a, b),
        },
        Op::Int3 { op, ty, d, a, b, c } => match ty {
            IntType::U16 => map3(warp, k, mask, [d, a, b, c], |x, y, z| {
                int::ternary::<u16>(op, x, y, z)
            }),
            IntType::S16 => map3(warp, k, mask, [d, a, b, c], |x, y, z| {
                int::ternary::<i16>(op, x, y, z)
            }),
            IntType::U32 => int3::<u32>(warp, k, mask, op, [d, a, b, c]),
            IntType::S32 => int3::<i32>(warp, k, mask, op, [d, a, b, c]),
            IntType::U64 => int3::<u64>(warp, k, mask, op, [d, a, b, c]),
            IntType::S64 => int3::<i64>(warp, k, mask, op, [d, a, b, c]),
        },
        Op::Bfi {
            wide,
            d,
            a,
            b,
            position,
            length,
        } => {
            let (p, l) = (*warp.row(k, position), *warp.row(k, length));
            let (x, y) = (warp.row(k, a), warp.row(k, b));
            let values: Lanes = std::array::from_fn(|i| int::insert(wide, x[i], y[i], p[i], l[i]));
            warp.put(d, mask, &values);
        }
        Op::Float1 { op, ty, mode, d, a } => {
            if ty == FloatType::F16x2 && mode == FloatMode::default() {
                map1(warp, k, mask, d, a, |x| {
                    pairwise(x, |h| float::unary(op, FloatType::F16, h))
                });
            } else if mode == FloatMode::default() {
                map1(warp, k, mask, d, a, |x| float::unary(op, ty, x));
            } else {
                let one = |v: [u64; 3]| match mode.rounding {
                    Rounding::Nearest => float::unary(op, ty, v[0]),
                    rounding => directed::unary(op, v[0], rounding),
                };
                let tiny = |v: [u64; 3]| directed::is_tiny_unary(op, v[0]);
                map1(warp, k, mask, d, a, |x| {
                    float::with_mode(ty, mode, [x, 0, 0], one, tiny)
                });
            }
        }
        Op::Float2 {
            op,
            ty,
            mode,
            d,
            a,
            b,
        } => float2(warp, k, mask, op, ty, mode, [d, a, b]),
        Op::Fma {
            ty,
            mode,
            d,
            a,
            b,
            c,
        } => fma(warp, k, mask, ty, mode, [d, a, b, c]),
        Op::Testp { test, wide, d, a } => {
            let bits = bits_where(warp.row(k, a), |v| is_class(test, wide, v));
            warp.put_pred(d, mask, bits);
        }
        Op::Setp {
            cmp,
            ty,
            ftz,
            d,
            d2,
            a,
            b,
            with,
        } => setp(warp, k, mask, cmp, ty, ftz, [d, d2], [a, b], with),
        Op::Selp { d, a, b, p } => {
            let chosen = warp.preds[p as usize];
            let (x, y) = (warp.row(k, a), warp.row(k, b));
            let values: Lanes =
                std::array::from_fn(|i| if chosen >> i & 1 == 1 { x[i] } else { y[i] });
            warp.put(d, mask, &values);
        }
        Op::Convert { d, a, how } => cvt(warp, k, mask, d, a, how),
        Op::ConvertPair { d, a, b, how } => {
            map2(warp, k, mask, d, a, b, |x, y| {
                convert::convert(x, how) << 16 | convert::convert(y, how)
            });
        }
        Op::ToGeneric { d, a, space } => {
            let base = window(space);
            map1(warp, k, mask, d, a, |x| x.wrapping_add(base));
        }
        Op::FromGeneric { d, a, space } => {
            let base = window(space);
            map1(warp, k, mask, d, a, |x| x.wrapping_sub(base));
        }
        Op::IsSpace { d, a, space } => {
            let bits = bits_where(warp.row(k, a), |v| match space {
                Space::Generic | Space::Global => {
                    !(SHARED_WINDOW..PARAM_WINDOW + WINDOW).contains(&v)
                }
                space => (window(space)..window(space) + WINDOW).contains(&v),
            });
            warp.put_pred(d, mask, bits);
        }
        _ => return false,
    }
    true
}

/// Where a space begins among generic addresses.
fn window(space: Space) -> u64 {
    match space {
        Space::Generic | Space::Global => 0,
        Space::Shared => SHARED_WINDOW,
        Space::Local => LOCAL_WINDOW,
        Space::Param => PARAM_WINDOW,
    }
}

fn combine(op: BoolOp, a: u32, b: u32) -> u32 {
    match op {
        BoolOp::And => a & b,
        BoolOp::Or => a | b,
        BoolOp::Xor => a ^ b,
    }
}

#[inline(always)]
fn map1(warp: &mut Warp, k: &[Lanes], mask: u32, d: Row, a: Row, f: impl Fn(u64) -> u64) {
    let x = warp.row(k, a);
    let mut values = [0; 32];
    for lane in 0..32 {
        values[lane] = f(x[lane]);
    }
    warp.put(d, mask, &values);
}

#[inline(always)]
fn map2(
    warp: &mut Warp,
    k: &[Lanes],
    mask: u32,
    d: Row,
    a: Row,
    b: Row,
    f: impl Fn(u64, u64) -> u64,
) {
    let (x, y) = (warp.row(k, a), warp.row(k, b));
    let mut values = [0; 32];
    for lane in 0..32 {
        values[lane] = f(x[lane], y[lane]);
    }
    warp.put(d, mask, &values);
}

#[inline(always)]
fn map3(
    warp: &mut Warp,
    k: &[Lanes],
    mask: u32,
    [d, a, b, c]: [Row; 4],
    f: impl Fn(u64, u64, u64) -> u64,
) {
    let (x, y, z) = (warp.row(k, a), warp.row(k, b), warp.row(k, c));
    let mut values = [0; 32];
    for lane in 0..32 {
        values[lane] = f(x[lane], y[lane], z[lane]);
    }
    warp.put(d, mask, &values);
}

/// `f` on each half of a pair.
#[inline(always)]
fn pairwise(x: u64, f: impl Fn(u64) -> u64) -> u64 {
    f(x & 0xFFFF) | f(x >> 16 & 0xFFFF) << 16
}

/// The common operations each get a loop of their own, in which the operation is a constant.
fn int2<T: Lane>(warp: &mut Warp, k: &[Lanes], mask: u32, op: Int2, d: Row, a: Row, b: Row) {
    macro_rules! loops {
        ($($variant:ident),*) => {
            match op {
                $(Int2::$variant => map2(warp, k, mask, d, a, b, |x, y| int::binary::<T>(Int2::$variant, x, y)),)*
                _ => map2(warp, k, mask, d, a, b, |x, y| int::binary::<T>(op, x, y)),
            }
        };
    }
    loops!(Add, Sub, MulLo, MulWide, And, Or, Xor, Shl, Shr, Min, Max);
}

fn int3<T: Lane>(warp: &mut Warp, k: &[Lanes], mask: u32, op: Int3, rows: [Row; 4]) {
    match op {
        Int3::MadLo => map3(warp, k, mask, rows, |x, y, z| {
            int::ternary::<T>(Int3::MadLo, x, y, z)
        }),
        Int3::MadWide => map3(warp, k, mask, rows, |x, y, z| {
            int::ternary::<T>(Int3::MadWide, x, y, z)
        }),
        _ => map3(warp, k, mask, rows, |x, y, z| {
            int::ternary::<T>(op, x, y, z)
        }),
    }
}

fn float2(
    warp: &mut Warp,
    k: &[Lanes],
    mask: u32,
    op: Float2,
    ty: FloatType,
    mode: FloatMode,
    [d, a, b]: [Row; 3],
) {
    if mode != FloatMode::default() {
        let single = |v: [u64; 3]| match ty {
            FloatType::F16 | FloatType::F16x2 => {
                float::binary16(op, v[0] as u16, v[1] as u16).into()
            }
            FloatType::F32 if mode.rounding != Rounding::Nearest => {
                directed::binary(op, v[0], v[1], mode.rounding)
            }
            FloatType::F32 => float::binary32(op, v[0] as u32, v[1] as u32),
            FloatType::F64 => float::binary64(op, v[0], v[1]),
        };
        let tiny = |v: [u64; 3]| directed::is_tiny_binary(op, ty, v[0], v[1]);
        return map2(warp, k, mask, d, a, b, |x, y| {
            float::with_mode(ty, mode, [x, y, 0], single, tiny)
        });
    }
    macro_rules! loops {
        ($f:ident, $($variant:ident),*) => {
            match op {
                $(Float2::$variant => map2(warp, k, mask, d, a, b, |x, y| $f(Float2::$variant, x, y)),)*
                _ => map2(warp, k, mask, d, a, b, |x, y| $f(op, x, y)),
            }
        };
    }
    match ty {
        FloatType::F16 => loops!(one_half, Add, Sub, Mul),
        FloatType::F16x2 => match op {
            Float2::Add => pairs(warp, k, mask, [d, a, b], half::add),
            Float2::Sub => pairs(warp, k, mask, [d, a, b], half::sub),
            Float2::Mul => pairs(warp, k, mask, [d, a, b], half::mul),
            _ => map2(warp, k, mask, d, a, b, |x, y| two_halves(op, x, y)),
        },
        FloatType::F32 => loops!(single, Add, Sub, Mul, Min, Max),
        FloatType::F64 => loops!(double, Add, Sub, Mul),
    }
}

/// The lower halves of all lanes, then the upper ones: a loop over them is one that the compiler makes vectors of.
#[inline(always)]
fn split(row: &Lanes) -> [u16; 64] {
    let mut halves = [0; 64];
    for lane in 0..32 {
        halves[lane] = row[lane] as u16;
        halves[lane + 32] = (row[lane] >> 16) as u16;
    }
    halves
}

#[inline(always)]
fn join(halves: &[u16; 64]) -> Lanes {
    let mut row = [0; 32];
    for lane in 0..32 {
        row[lane] = u64::from(halves[lane]) | u64::from(halves[lane + 32]) << 16;
    }
    row
}

#[inline(always)]
fn pairs(
    warp: &mut Warp,
    k: &[Lanes],
    mask: u32,
    [d, a, b]: [Row; 3],
    f: impl Fn(u16, u16) -> u16,
) {
    let (x, y) = (split(warp.row(k, a)), split(warp.row(k, b)));
    let mut values = [0; 64];
    for i in 0..64 {
        values[i] = f(x[i], y[i]);
    }
    warp.put(d, mask, &join(&values));
}

#[inline(always)]
fn one_half(op: Float2, x: u64, y: u64) -> u64 {
    float::binary16(op, x as u16, y as u16).into()
}

#[inline(always)]
fn two_halves(op: Float2, x: u64, y: u64) -> u64 {
    let low = float::binary16(op, x as u16, y as u16);
    let high = float::binary16(op, (x >> 16) as u16, (y >> 16) as u16);
    u64::from(low) | u64::from(high) << 16
}

#[inline(always)]
fn single(op: Float2, x: u64, y: u64) -> u64 {
    float::binary32(op, x as u32, y as u32)
}

#[inline(always)]
fn double(op: Float2, x: u64, y: u64) -> u64 {
    float::binary64(op, x, y)
}

fn fma(warp: &mut Warp, k: &[Lanes], mask: u32, ty: FloatType, mode: FloatMode, rows: [Row; 4]) {
    if mode != FloatMode::default() {
        let one = |v: [u64; 3]| match ty {
            FloatType::F32 if mode.rounding != Rounding::Nearest => {
                directed::fma(v[0], v[1], v[2], mode.rounding)
            }
            FloatType::F32 => float::fma32(v[0], v[1], v[2]),
            FloatType::F64 => float::fma64(v[0], v[1], v[2]),
            _ => half::fma(v[0] as u16, v[1] as u16, v[2] as u16).into(),
        };
        return map3(warp, k, mask, rows, |x, y, z| {
            float::with_mode(ty, mode, [x, y, z], one, |[x, y, z]| {
                directed::is_tiny_fma(ty, x, y, z)
            })
        });
    }
    match ty {
        FloatType::F16 => map3(warp, k, mask, rows, |x, y, z| {
            half::fma(x as u16, y as u16, z as u16).into()
        }),
        FloatType::F16x2 => {
            let [d, a, b, c] = rows;
            let [x, y, z] = [a, b, c].map(|r| split(warp.row(k, r)));
            let mut values = [0; 64];
            for i in 0..64 {
                values[i] = half::fma(x[i], y[i], z[i]);
            }
            warp.put(d, mask, &join(&values));
        }
        FloatType::F32 => {
            let [d, a, b, c] = rows;
            let values = float::fma32_of_lanes(warp.row(k, a), warp.row(k, b), warp.row(k, c));
            warp.put(d, mask, &values);
        }
        FloatType::F64 => map3(warp, k, mask, rows, float::fma64),
    }
}

#[inline(always)]
fn bits_where(row: &Lanes, f: impl Fn(u64) -> bool) -> u32 {
    (0..32).fold(0, |bits, lane| bits | u32::from(f(row[lane])) << lane)
}

#[inline(always)]
fn bits_where2(x: &Lanes, y: &Lanes, f: impl Fn(u64, u64) -> bool) -> u32 {
    (0..32).fold(0, |bits, lane| {
        bits | u32::from(f(x[lane], y[lane])) << lane
    })
}

fn compare_ints<T: Lane>(cmp: Compare, x: &Lanes, y: &Lanes) -> u32 {
    macro_rules! loops {
        ($($variant:ident),*) => {
            match cmp {
                $(Compare::$variant => bits_where2(x, y, |x, y| int::compare::<T>(Compare::$variant, x, y)),)*
                _ => bits_where2(x, y, |x, y| int::compare::<T>(cmp, x, y)),
            }
        };
    }
    loops!(Eq, Ne, Lt, Le, Gt, Ge)
}

#[allow(clippy::too_many_arguments)]
fn setp(
    warp: &mut Warp,
    k: &[Lanes],
    mask: u32,
    cmp: Compare,
    ty: CompareType,
    ftz: bool,
    [d, d2]: [Pred; 2],
    [a, b]: [Row; 2],
    with: Option<(BoolOp, Guard)>,
) {
    let (x, y) = (warp.row(k, a), warp.row(k, b));
    let half_at = |v: u64, shift: u32| f64::from(half::to_f32((v >> shift) as u16));
    let single = |v: u64| {
        f64::from(f32::from_bits(if ftz {
            float::flush(v as u32)
        } else {
            v as u32
        }))
    };
    let mut bits2 = None;
    let bits = match ty {
        CompareType::Int(IntType::U16) => compare_ints::<u16>(cmp, x, y),
        CompareType::Int(IntType::S16) => compare_ints::<i16>(cmp, x, y),
        CompareType::Int(IntType::U32) => compare_ints::<u32>(cmp, x, y),
        CompareType::Int(IntType::S32) => compare_ints::<i32>(cmp, x, y),
        CompareType::Int(IntType::U64) => compare_ints::<u64>(cmp, x, y),
        CompareType::Int(IntType::S64) => compare_ints::<i64>(cmp, x, y),
        CompareType::Float(FloatType::F16) => bits_where2(x, y, |x, y| {
            float::compare(cmp, half_at(x, 0), half_at(y, 0))
        }),
        CompareType::Float(FloatType::F16x2) => {
            // The two destinations of a pair are its halves.
            bits2 = Some(bits_where2(x, y, |x, y| {
                float::compare(cmp, half_at(x, 16), half_at(y, 16))
            }));
            bits_where2(x, y, |x, y| {
                float::compare(cmp, half_at(x, 0), half_at(y, 0))
            })
        }
        CompareType::Float(FloatType::F32) => {
            bits_where2(x, y, |x, y| float::compare(cmp, single(x), single(y)))
        }
        CompareType::Float(FloatType::F64) => bits_where2(x, y, |x, y| {
            float::compare(cmp, f64::from_bits(x), f64::from_bits(y))
        }),
    };
    let other = with.map(|(op, g)| {
        (
            op,
            warp.preds[g.pred as usize] ^ if g.negated { u32::MAX } else { 0 },
        )
    });
    let apply = |bits: u32| other.map_or(bits, |(op, c)| combine(op, bits, c));
    warp.put_pred(d, mask, apply(bits));
    warp.put_pred(d2, mask, apply(bits2.unwrap_or(!bits)));
}

fn cvt(warp: &mut Warp, k: &[Lanes], mask: u32, d: Row, a: Row, how: Convert) {
    use ScalarType::*;
    let plain =
        !how.sat && !how.ftz && !how.relu && how.rounding == Rounding::Nearest && !how.integral;
    match (how.to, how.from) {
        // The frequent ones, in loops of their own.
        (U16 | U32 | U64, U8 | U16 | U32 | U64) if !how.sat => {
            let keep = u64::MAX >> (64 - how.to.bits().min(how.from.bits()));
            map1(warp, k, mask, d, a, |x| x & keep);
        }
        (F32, F16) if plain => map1(warp, k, mask, d, a, |x| float::bits(half::to_f32(x as u16))),
        (F16, F32) if plain => map1(warp, k, mask, d, a, |x| {
            half::from_f32(f32::from_bits(x as u32)).into()
        }),
        (F32, S32) if plain => map1(warp, k, mask, d, a, |x| {
            u64::from((x as i32 as f32).to_bits())
        }),
        (F32, U32) if plain => map1(warp, k, mask, d, a, |x| {
            u64::from((x as u32 as f32).to_bits())
        }),
        _ => map1(warp, k, mask, d, a, |x| convert::convert(x, how)),
    }
}

fn is_class(test: FloatTest, wide: bool, v: u64) -> bool {
    let class = if wide {
        f64::from_bits(v).classify()
    } else {
        f32::from_bits(v as u32).classify()
    };
    use std::num::FpCategory::*;
    match test {
        FloatTest::Finite => !matches!(class, Nan | Infinite),
        FloatTest::Infinite => class == Infinite,
        FloatTest::Number => class != Nan,
        FloatTest::NotANumber => class == Nan,
        // Zeros count as normal.
        FloatTest::Normal => matches!(class, Normal | Zero),
        FloatTest::Subnormal => class == Subnormal,
    }
}
