//! Between widths, between integers and floats, with every rounding.

use crate::harness::{Round, check, evaluate, operands, round};
use half::{bf16, f16};

const FLOATS: [u64; 13] = [
    0x0000_0000,
    0x8000_0000,
    0x3f00_0000,
    0x3fc0_0000,
    0xc020_0000,
    0x4f00_0000,
    0xcf00_0001,
    0x4f80_0000,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0001,
    0x477f_efff,
    0x477f_f000,
];

fn float(v: u64) -> f32 {
    f32::from_bits(v as u32)
}

fn half_bits(v: f16) -> u64 {
    if v.is_nan() {
        0x7fff
    } else {
        v.to_bits().into()
    }
}

#[test]
fn widths_of_integers() {
    let all = operands(
        &[
            0,
            0x7f,
            0x80,
            0xff,
            0x7fff,
            0x8000,
            0xffff,
            0x8000_0000,
            0xffff_ffff,
        ],
        32,
        1,
    );
    let u = |instruction: &str, to: &str, f: fn(u32) -> u64| {
        check(instruction, to, "b32", &all, |x, _, _| f(x as u32))
    };
    u("cvt.u64.u32 d, x;", "b64", u64::from);
    u("cvt.s64.s32 d, x;", "b64", |x| i64::from(x as i32) as u64);
    u("cvt.u16.u32 d, x;", "b16", |x| u64::from(x as u16));
    u("cvt.u16.u32 %h1, x; cvt.u32.u16 d, %h1;", "b32", |x| {
        u64::from(x as u16)
    });
    u("cvt.u16.u32 %h1, x; cvt.s32.s16 d, %h1;", "b32", |x| {
        u64::from(i32::from(x as i16) as u32)
    });
    u("cvt.s32.s8 d, x;", "b32", |x| {
        u64::from(i32::from(x as i8) as u32)
    });
    u("cvt.u32.u8 d, x;", "b32", |x| u64::from(x as u8));
    u("cvt.sat.u16.u32 d, x;", "b16", |x| u64::from(x.min(0xffff)));
    let wide = operands(&[0, 0xffff_ffff, 1 << 32, u64::MAX], 64, 2);
    check("cvt.u32.u64 d, x;", "b32", "b64", &wide, |x, _, _| {
        x & 0xffff_ffff
    });
    check("cvt.u16.u64 d, x;", "b16", "b64", &wide, |x, _, _| {
        x & 0xffff
    });
}

/// Outside the range the nearest end, and 0 for what is no number.
#[test]
fn floats_to_integers() {
    let mut all = operands(&FLOATS, 32, 3);
    // Values whose fractions matter.
    all.extend((-4000..4000).map(|i| [u64::from((i as f32 / 16.0).to_bits()), 0, 0]));
    for (name, f) in [
        ("rzi", f64::trunc as fn(f64) -> f64),
        ("rni", f64::round_ties_even),
        ("rmi", f64::floor),
        ("rpi", f64::ceil),
    ] {
        let integral = move |x: u64| f(f64::from(float(x)));
        // `as` saturates and takes NaN to 0 as well.
        check(
            &format!("cvt.{name}.s32.f32 d, x;"),
            "b32",
            "b32",
            &all,
            |x, _, _| u64::from(integral(x) as i32 as u32),
        );
        check(
            &format!("cvt.{name}.u32.f32 d, x;"),
            "b32",
            "b32",
            &all,
            |x, _, _| u64::from(integral(x) as u32),
        );
        let numbers: Vec<_> = all
            .iter()
            .filter(|o| !float(o[0]).is_nan())
            .copied()
            .collect();
        check(
            &format!("cvt.{name}.s64.f32 d, x;"),
            "b64",
            "b32",
            &numbers,
            |x, _, _| integral(x) as i64 as u64,
        );
        check(
            &format!("cvt.{name}.f32.f32 d, x;"),
            "b32",
            "b32",
            &numbers,
            |x, _, _| (integral(x) as f32).to_bits().into(),
        );
    }
}

#[test]
fn integers_to_floats() {
    let all = operands(
        &[
            0,
            1,
            0x00ff_ffff,
            0x0100_0001,
            0x0100_0003,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
        ],
        32,
        4,
    );
    for (how, name) in Round::ALL {
        check(
            &format!("cvt.{name}.f32.u32 d, x;"),
            "b32",
            "b32",
            &all,
            |x, _, _| {
                (round(i128::from(x), 0, 24, -149, how) as f32)
                    .to_bits()
                    .into()
            },
        );
        check(
            &format!("cvt.{name}.f32.s32 d, x;"),
            "b32",
            "b32",
            &all,
            |x, _, _| {
                (round(i128::from(x as u32 as i32), 0, 24, -149, how) as f32)
                    .to_bits()
                    .into()
            },
        );
    }
    let wide = operands(&[0, u64::MAX, 1 << 63, 0xffff_ff80_0000_0000], 64, 5);
    check("cvt.rn.f32.u64 d, x;", "b32", "b64", &wide, |x, _, _| {
        (x as f32).to_bits().into()
    });
    check("cvt.rn.f64.s64 d, x;", "b64", "b64", &wide, |x, _, _| {
        (x as i64 as f64).to_bits()
    });
    let short = operands(&[0, 1, 2048, 2049, 2051, 0x7fff, 0x8000, 0xffff], 16, 6);
    check("cvt.rn.f16.u16 d, x;", "b16", "b16", &short, |x, _, _| {
        half_bits(f16::from_f64(x as f64))
    });
    check("cvt.rn.f32.s16 d, x;", "b32", "b16", &short, |x, _, _| {
        f32::from(x as u16 as i16).to_bits().into()
    });
}

#[test]
fn floats_to_halves() {
    // Exponents that halves have, and a little beyond.
    let mut all = operands(&FLOATS, 32, 7);
    all.extend((0..4000u64).map(|i| [0x3300_0000 + i * 0x5_4321 + (i & 1) * 0x8000_0000, 0, 0]));
    let in_range = |x: u64| float(x).is_finite() && float(x).abs() < 65_000.0;
    check("cvt.rn.f16.f32 d, x;", "b16", "b32", &all, |x, _, _| {
        half_bits(f16::from_f32(float(x)))
    });
    let numbers: Vec<_> = all.iter().filter(|o| in_range(o[0])).copied().collect();
    for (how, name) in Round::ALL {
        check(
            &format!("cvt.{name}.f16.f32 d, x;"),
            "b16",
            "b32",
            &numbers,
            |x, _, _| {
                let v = f64::from(float(x));
                if v == 0.0 || v.abs() < f64::exp2(-60.0) {
                    let least = if v > 0.0 && how == Round::Up || v < 0.0 && how == Round::Down {
                        1
                    } else {
                        0
                    };
                    return u64::from(v.is_sign_negative()) << 15 | least;
                }
                let rounded = round((v * f64::exp2(90.0)) as i128, -90, 11, -24, how);
                half_bits(f16::from_f64(rounded.copysign(v)))
            },
        );
    }
    check(
        "cvt.rn.f16x2.f32 d, x, y;",
        "b32",
        "b32",
        &all,
        |x, y, _| half_bits(f16::from_f32(float(x))) << 16 | half_bits(f16::from_f32(float(y))),
    );
}

/// A bfloat has float's exponents: what is rounded is the lower half of the bits.
#[test]
fn floats_to_bfloats() {
    let mut all = operands(&FLOATS, 32, 10);
    // Ties, to even and away from odd, the largest that is finite, and subnormals, which stay.
    all.extend(
        [
            0x3f80_8000u64,
            0x3f81_8000,
            0x3f80_8001,
            0x7f7f_7fff,
            0x7f7f_8000,
            0x0000_8000,
            0x0000_8001,
            0x8001_8000,
            0x7f80_0001,
        ]
        .map(|bits| [bits, bits ^ 0x8000_0000, 0]),
    );
    let nearest = |x: u64| {
        let rounded = bf16::from_f32(float(x));
        if rounded.is_nan() {
            0x7fff
        } else {
            rounded.to_bits().into()
        }
    };
    let cut = |x: u64| if float(x).is_nan() { 0x7fff } else { x >> 16 };
    let positive = |x: u64| {
        let rounded: u64 = nearest(x);
        if rounded & 0x8000 == 0 { rounded } else { 0 }
    };
    let check = |name: &str, f: &dyn Fn(u64) -> u64| {
        let one = format!("cvt.{name}.bf16.f32 d, x;");
        check(&one, "b16", "b32", &all, |x, _, _| f(x));
        let two = format!("cvt.{name}.bf16x2.f32 d, x, y;");
        check(&two, "b32", "b32", &all, |x, y, _| f(x) << 16 | f(y));
    };
    check("rn", &nearest);
    check("rz", &cut);
    check("rn.relu", &positive);
}

#[test]
fn every_half_to_wider_floats() {
    let all: Vec<[u64; 3]> = (0..=0xffff).map(|v| [v, 0, 0]).collect();
    for (o, found) in all
        .iter()
        .zip(evaluate("cvt.f32.f16 d, x;", "b32", "b16", &all))
    {
        let right = f16::from_bits(o[0] as u16).to_f32();
        assert!(
            float(found).to_bits() == right.to_bits() || right.is_nan() && float(found).is_nan(),
            "{:#x}: {found:#x}",
            o[0]
        );
    }
    let numbers: Vec<_> = all
        .into_iter()
        .filter(|o| o[0] & 0x7fff <= 0x7c00)
        .collect();
    check(
        "cvt.f32.f16 %f1, x; cvt.rn.f16.f32 d, %f1;",
        "b16",
        "b16",
        &numbers,
        |x, _, _| x,
    );
}

#[test]
fn between_single_and_double() {
    let numbers: Vec<_> = operands(&FLOATS, 32, 8)
        .into_iter()
        .filter(|o| !float(o[0]).is_nan())
        .collect();
    check("cvt.f64.f32 d, x;", "b64", "b32", &numbers, |x, _, _| {
        f64::from(float(x)).to_bits()
    });
    let wide: Vec<_> = operands(
        &[
            0,
            1 << 63,
            1,
            0x36a0_0000_0000_0001,
            0x47ef_ffff_f000_0000,
            0x3810_0000_0000_0000,
        ],
        64,
        9,
    );
    let wide: Vec<_> = wide
        .into_iter()
        .filter(|o| !f64::from_bits(o[0]).is_nan())
        .collect();
    check("cvt.rn.f32.f64 d, x;", "b32", "b64", &wide, |x, _, _| {
        (f64::from_bits(x) as f32).to_bits().into()
    });
}
