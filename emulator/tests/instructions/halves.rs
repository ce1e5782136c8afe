//! Half precision, one and two at a time.

use crate::harness::{Round, check, operands, round};
use half::f16;

const NAN: u16 = 0x7fff;
const SPECIAL: [u64; 13] = [
    0x0000, 0x8000, 0x3c00, 0xbc00, 0x0001, 0x8001, 0x03ff, 0x0400, 0x7bff, 0xfbff, 0x7c00, 0xfc00,
    0x7e01,
];

/// A half times 2^24, exactly.
fn fixed(v: u16) -> i128 {
    (f16::from_bits(v).to_f64() * f64::exp2(24.0)) as i128
}

fn finite(v: u16) -> bool {
    f16::from_bits(v).is_finite()
}

/// The nearest half of an exact sum.
fn nearest(exact: i128, scale: i32) -> u16 {
    let value = round(exact, scale, 11, -24, Round::Nearest);
    if value.abs() >= 65_520.0 {
        f16::from_f64(value.signum() * f64::INFINITY).to_bits()
    } else {
        f16::from_f64(value).to_bits()
    }
}

fn canonical(v: f64) -> u16 {
    if v.is_nan() {
        NAN
    } else {
        f16::from_f64(v).to_bits()
    }
}

fn fma(x: u16, y: u16, z: u16) -> u16 {
    let [a, b, c] = [x, y, z].map(|v| f16::from_bits(v).to_f64());
    if !(finite(x) && finite(y) && finite(z)) {
        return canonical(a * b + c);
    }
    let sum = fixed(x) * fixed(y) + (fixed(z) << 24);
    // An exact zero has the sign that the terms agree on.
    if sum == 0 {
        canonical(a * b + c)
    } else {
        nearest(sum, -48)
    }
}

/// Doubles hold the sums and products of two halves exactly.
fn add(x: u16, y: u16, _: u16) -> u16 {
    canonical(f16::from_bits(x).to_f64() + f16::from_bits(y).to_f64())
}

fn sub(x: u16, y: u16, _: u16) -> u16 {
    canonical(f16::from_bits(x).to_f64() - f16::from_bits(y).to_f64())
}

fn mul(x: u16, y: u16, _: u16) -> u16 {
    canonical(f16::from_bits(x).to_f64() * f16::from_bits(y).to_f64())
}

fn least(x: u16, y: u16, _: u16) -> u16 {
    let [a, b] = [x, y].map(|v| f16::from_bits(v).to_f64());
    match (a.is_nan(), b.is_nan()) {
        (true, true) => NAN,
        (true, _) => y,
        (_, true) => x,
        _ => {
            if (a, x >> 15 == 0) < (b, y >> 15 == 0) {
                x
            } else {
                y
            }
        }
    }
}

fn greatest(x: u16, y: u16, z: u16) -> u16 {
    let v = least(x ^ 0x8000, y ^ 0x8000, z);
    if v & 0x7fff > 0x7c00 { NAN } else { v ^ 0x8000 }
}

/// An operation on up to three halves.
type Operation = fn(u16, u16, u16) -> u16;

const BINARY: [(&str, Operation); 5] = [
    ("add.rn", add),
    ("sub.rn", sub),
    ("mul.rn", mul),
    ("min", least),
    ("max", greatest),
];

#[test]
fn one_at_a_time() {
    let all = operands(&SPECIAL, 16, 1);
    for (name, f) in BINARY {
        check(
            &format!("{name}.f16 d, x, y;"),
            "b16",
            "b16",
            &all,
            |x, y, z| f(x as u16, y as u16, z as u16).into(),
        );
    }
    check("fma.rn.f16 d, x, y, z;", "b16", "b16", &all, |x, y, z| {
        fma(x as u16, y as u16, z as u16).into()
    });
}

/// Sums where rounding to single or double first would go wrong.
#[test]
fn fma_rounds_once() {
    let mut all = Vec::new();
    for x in [0x3c01u64, 0x7bff, 0x0001, 0x4a01, 0x5555, 0x2401] {
        for y in [0x3c01u64, 0x3bff, 0x1001, 0x0001, 0x6a55] {
            for z in (0..0x7c00u64).step_by(97) {
                all.push([x, y, z]);
                all.push([x, y, z | 0x8000]);
            }
        }
    }
    check("fma.rn.f16 d, x, y, z;", "b16", "b16", &all, |x, y, z| {
        fma(x as u16, y as u16, z as u16).into()
    });
}

#[test]
fn two_at_a_time() {
    let special: Vec<u64> = SPECIAL
        .iter()
        .enumerate()
        .map(|(i, v)| v << 16 | SPECIAL[(i * 5 + 3) % 13])
        .collect();
    let all = operands(&special, 32, 2);
    let both = |f: Operation| {
        move |x: u64, y: u64, z: u64| {
            let low = f(x as u16, y as u16, z as u16);
            let high = f((x >> 16) as u16, (y >> 16) as u16, (z >> 16) as u16);
            u64::from(high) << 16 | u64::from(low)
        }
    };
    for (name, f) in BINARY {
        check(
            &format!("{name}.f16x2 d, x, y;"),
            "b32",
            "b32",
            &all,
            both(f),
        );
    }
    check("fma.rn.f16x2 d, x, y, z;", "b32", "b32", &all, both(fma));
    // Random numbers are seldom equal.
    let often_equal: Vec<_> = (all.iter())
        .flat_map(|&[x, y, z]| [[x, y, z], [x, x, z], [x, x ^ 0x8000, z]])
        .collect();
    fn is_equal(x: u16, y: u16) -> bool {
        f16::from_bits(x) == f16::from_bits(y)
    }
    let set = [
        (
            "f16x2",
            both(|x, y, _| if is_equal(x, y) { 0x3c00 } else { 0 }),
        ),
        (
            "u32",
            both(|x, y, _| if is_equal(x, y) { 0xffff } else { 0 }),
        ),
    ];
    for (to, f) in set {
        let instruction = format!("set.eq.{to}.f16x2 d, x, y;");
        check(&instruction, "b32", "b32", &often_equal, f);
    }
    // Negation and magnitude of numbers; a NaN stays one.
    let numbers: Vec<_> = all
        .iter()
        .filter(|o| o[0] & 0x7fff <= 0x7c00 && o[0] >> 16 & 0x7fff <= 0x7c00)
        .copied()
        .collect();
    check(
        "neg.f16x2 d, x;",
        "b32",
        "b32",
        &numbers,
        both(|x, _, _| x ^ 0x8000),
    );
    check(
        "abs.f16x2 d, x;",
        "b32",
        "b32",
        &numbers,
        both(|x, _, _| x & 0x7fff),
    );
}

#[test]
fn every_half_is_its_own_product_with_one() {
    let all: Vec<[u64; 3]> = (0..=0xffff).map(|v| [v, 0x3c00, 0x8000]).collect();
    let same = |x: u64| if x & 0x7fff > 0x7c00 { NAN.into() } else { x };
    check("mul.rn.f16 d, x, y;", "b16", "b16", &all, |x, _, _| same(x));
    check("fma.rn.f16 d, x, y, z;", "b16", "b16", &all, |x, _, _| {
        same(x)
    });
}

#[test]
fn comparisons() {
    let all = operands(&SPECIAL, 16, 3);
    let value = |v: u64| f16::from_bits(v as u16).to_f32();
    for (name, f) in [
        ("eq", (|x, y| x == y) as fn(f32, f32) -> bool),
        ("lt", |x, y| x < y),
        ("gt", |x, y| x > y),
        ("neu", |x, y| x != y),
        ("nan", |x, y| x.is_nan() || y.is_nan()),
    ] {
        let instruction = format!("setp.{name}.f16 p, x, y; selp.b16 d, 1, 0, p;");
        check(&instruction, "b16", "b16", &all, |x, y, _| {
            f(value(x), value(y)).into()
        });
    }
}
