//! Single and double precision: exact where PTX rounds, within PTX's bounds where it approximates.

use crate::harness::{Round, check, evaluate, operands, round};
use std::cmp::Ordering;

const NAN: u32 = 0x7fff_ffff;

/// Zeros, subnormals, the ends of the range, infinities, NaN.
const SPECIAL: [u64; 13] = [
    0x0000_0000,
    0x8000_0000,
    0x3f80_0000,
    0xbf80_0000,
    0x0000_0001,
    0x8000_0001,
    0x007f_ffff,
    0x0080_0000,
    0x7f7f_ffff,
    0xff7f_ffff,
    0x7f80_0000,
    0xff80_0000,
    0x7fc0_0001,
];

fn float(v: u64) -> f32 {
    f32::from_bits(v as u32)
}

fn bits(v: f32) -> u64 {
    if v.is_nan() {
        NAN.into()
    } else {
        v.to_bits().into()
    }
}

#[test]
fn rounded_to_nearest() {
    let all = operands(&SPECIAL, 32, 1);
    let u = |instruction: &str, f: fn(f32, f32, f32) -> f32| {
        check(instruction, "b32", "b32", &all, |x, y, z| {
            bits(f(float(x), float(y), float(z)))
        });
    };
    u("add.rn.f32 d, x, y;", |x, y, _| x + y);
    u("add.f32 d, x, y;", |x, y, _| x + y);
    u("sub.rn.f32 d, x, y;", |x, y, _| x - y);
    u("mul.rn.f32 d, x, y;", |x, y, _| x * y);
    u("div.rn.f32 d, x, y;", |x, y, _| x / y);
    u("fma.rn.f32 d, x, y, z;", libm::fmaf);
    u("sqrt.rn.f32 d, x;", |x, _, _| x.sqrt());
    u("rcp.rn.f32 d, x;", |x, _, _| 1.0 / x);
}

#[test]
fn subnormals_flushed() {
    let all = operands(&SPECIAL, 32, 2);
    let flush = |v: f32| {
        if v.is_subnormal() {
            0f32.copysign(v)
        } else {
            v
        }
    };
    check("add.rn.ftz.f32 d, x, y;", "b32", "b32", &all, |x, y, _| {
        bits(flush(flush(float(x)) + flush(float(y))))
    });
    check("mul.rn.ftz.f32 d, x, y;", "b32", "b32", &all, |x, y, _| {
        bits(flush(flush(float(x)) * flush(float(y))))
    });
}

#[test]
fn saturated() {
    let all = operands(&SPECIAL, 32, 3);
    let saturate = |v: f32| {
        if v.is_nan() {
            0
        } else {
            bits(v.clamp(0.0, 1.0) + 0.0)
        }
    };
    check("add.rn.sat.f32 d, x, y;", "b32", "b32", &all, |x, y, _| {
        saturate(float(x) + float(y))
    });
    check(
        "fma.rn.sat.f32 d, x, y, z;",
        "b32",
        "b32",
        &all,
        |x, y, z| saturate(libm::fmaf(float(x), float(y), float(z))),
    );
}

/// Exponents near each other, so that 128 bits hold the exact result.
#[test]
fn rounded_in_every_direction() {
    let near = |v: u64| (v & 0x8000_0000) + 0x3a00_0000 + (v & 0x07ff_ffff);
    let all: Vec<[u64; 3]> = operands(&SPECIAL, 32, 4)
        .into_iter()
        .map(|o| o.map(near))
        .collect();
    // A float as an integer times 2^-60.
    let fixed = |v: u64| (f64::from(float(v)) * f64::exp2(60.0)) as i128;
    for (how, name) in Round::ALL {
        check(
            &format!("add.{name}.f32 d, x, y;"),
            "b32",
            "b32",
            &all,
            |x, y, _| {
                let sum = fixed(x) + fixed(y);
                if sum == 0 {
                    return if how == Round::Down { 0x8000_0000 } else { 0 };
                }
                bits(round(sum, -60, 24, -149, how) as f32)
            },
        );
        check(
            &format!("mul.{name}.f32 d, x, y;"),
            "b32",
            "b32",
            &all,
            |x, y, _| bits(round((fixed(x) >> 20) * (fixed(y) >> 20), -80, 24, -149, how) as f32),
        );
        check(
            &format!("fma.{name}.f32 d, x, y, z;"),
            "b32",
            "b32",
            &all,
            |x, y, z| {
                let sum = (fixed(x) >> 20) * (fixed(y) >> 20) + (fixed(z) << 20);
                if sum == 0 {
                    return if how == Round::Down { 0x8000_0000 } else { 0 };
                }
                bits(round(sum, -80, 24, -149, how) as f32)
            },
        );
    }
}

#[test]
fn signs() {
    let all = operands(&SPECIAL, 32, 5);
    // Signs of numbers; of a NaN only that it stays one.
    let same = |found: u64, right: f32| {
        if right.is_nan() {
            float(found).is_nan()
        } else {
            found == u64::from(right.to_bits())
        }
    };
    for (instruction, f) in [
        ("neg.f32 d, x;", (|x, _| -x) as fn(f32, f32) -> f32),
        ("abs.f32 d, x;", |x, _| x.abs()),
        ("copysign.f32 d, x, y;", |x, y| y.copysign(x)),
    ] {
        for (o, found) in all.iter().zip(evaluate(instruction, "b32", "b32", &all)) {
            assert!(
                same(found, f(float(o[0]), float(o[1]))),
                "{instruction} of {o:#x?} gives {found:#x}"
            );
        }
    }
}

#[test]
fn the_lesser_and_the_greater() {
    let all = operands(&SPECIAL, 32, 6);
    // −0 is less than +0; a number wins against a NaN.
    let order = |v: f32| (v, !v.is_sign_negative());
    let least = move |x: f32, y: f32| match (x.is_nan(), y.is_nan()) {
        (true, true) => f32::NAN,
        (true, _) => y,
        (_, true) => x,
        _ => {
            if order(x) < order(y) {
                x
            } else {
                y
            }
        }
    };
    let greatest = move |x: f32, y: f32| -least(-x, -y);
    check("min.f32 d, x, y;", "b32", "b32", &all, |x, y, _| {
        bits(least(float(x), float(y)))
    });
    check("max.f32 d, x, y;", "b32", "b32", &all, |x, y, _| {
        bits(greatest(float(x), float(y)))
    });
    check("max.NaN.f32 d, x, y;", "b32", "b32", &all, |x, y, _| {
        let (x, y) = (float(x), float(y));
        bits(if x.is_nan() || y.is_nan() {
            f32::NAN
        } else {
            greatest(x, y)
        })
    });
}

#[test]
fn comparisons() {
    let all = operands(&SPECIAL, 32, 7);
    let compare = |name: &str, f: &dyn Fn(Option<Ordering>) -> bool| {
        let instruction = format!("setp.{name}.f32 p, x, y; selp.u32 d, 1, 0, p;");
        check(&instruction, "b32", "b32", &all, |x, y, _| {
            f(float(x).partial_cmp(&float(y))).into()
        });
    };
    for (name, f) in [
        ("eq", Ordering::is_eq as fn(Ordering) -> bool),
        ("ne", Ordering::is_ne),
        ("lt", Ordering::is_lt),
        ("le", Ordering::is_le),
        ("gt", Ordering::is_gt),
        ("ge", Ordering::is_ge),
    ] {
        // With a NaN the plain comparisons are false and the unordered ones true.
        compare(name, &|order| order.is_some_and(f));
        compare(&format!("{name}u"), &|order| order.is_none_or(f));
    }
    compare("num", &|order| order.is_some());
    compare("nan", &|order| order.is_none());
    let greater = "setp.gt.f32 p, x, y; selp.f32 d, x, y, p;";
    check(greater, "b32", "b32", &all, |x, y, _| {
        if float(x) > float(y) { x } else { y }
    });
}

#[test]
fn doubles() {
    let special = [
        0,
        1 << 63,
        0x3ff0_0000_0000_0000,
        1,
        0x7fef_ffff_ffff_ffff,
        0x7ff0_0000_0000_0000,
        0x7ff8_0000_0000_0001,
    ];
    let all = operands(&special, 64, 8);
    let u = |instruction: &str, f: fn(f64, f64, f64) -> f64| {
        for (o, found) in all.iter().zip(evaluate(instruction, "b64", "b64", &all)) {
            let right = f(
                f64::from_bits(o[0]),
                f64::from_bits(o[1]),
                f64::from_bits(o[2]),
            );
            let found = f64::from_bits(found);
            assert!(
                found.to_bits() == right.to_bits() || found.is_nan() && right.is_nan(),
                "{instruction} {o:#x?}: {found} {right}"
            );
        }
    };
    u("add.rn.f64 d, x, y;", |x, y, _| x + y);
    u("sub.rn.f64 d, x, y;", |x, y, _| x - y);
    u("mul.rn.f64 d, x, y;", |x, y, _| x * y);
    u("div.rn.f64 d, x, y;", |x, y, _| x / y);
    u("fma.rn.f64 d, x, y, z;", libm::fma);
    u("sqrt.rn.f64 d, x;", |x, _, _| x.sqrt());
    u("neg.f64 d, x;", |x, _, _| -x);
    u("setp.lt.f64 p, x, y; selp.f64 d, x, y, p;", |x, y, _| {
        if x < y { x } else { y }
    });
}

/// The bounds are those of the PTX ISA, sections of the single instructions.
#[test]
fn approximations() {
    let values: Vec<f32> = (0..3000)
        .map(|i| (i as f32 * 0.37 - 550.0) * 0.11)
        .collect();
    let all: Vec<[u64; 3]> = values
        .iter()
        .map(|v| [v.to_bits().into(), 0x4040_0000, 0])
        .collect();
    let worst = |instruction: &str,
                 right: fn(f64) -> f64,
                 error: fn(f64, f64) -> f64,
                 usable: fn(f32) -> bool| {
        let found = evaluate(instruction, "b32", "b32", &all);
        let errors = values
            .iter()
            .zip(found)
            .filter(|(v, _)| usable(**v))
            .map(|(v, found)| {
                let right = right(f64::from(*v));
                error(f64::from(float(found)), right)
            });
        errors.fold(0.0, f64::max)
    };
    let relative: fn(f64, f64) -> f64 = |found, right| ((found - right) / right).abs();
    let absolute: fn(f64, f64) -> f64 = |found, right| (found - right).abs();
    let bound = |log2: f64| f64::exp2(log2);
    assert!(
        worst("ex2.approx.f32 d, x;", f64::exp2, relative, |v| v.abs()
            < 60.0)
            <= bound(-22.0)
    );
    assert!(
        worst("lg2.approx.f32 d, x;", f64::log2, absolute, |v| v > 0.5
            && v < 2.0)
            <= bound(-22.0)
    );
    assert!(worst("lg2.approx.f32 d, x;", f64::log2, relative, |v| v > 2.0) <= bound(-22.0));
    assert!(worst("rcp.approx.f32 d, x;", |x| 1.0 / x, relative, |v| v != 0.0) <= bound(-22.0));
    assert!(worst("sqrt.approx.f32 d, x;", f64::sqrt, relative, |v| v > 0.0) <= bound(-22.0));
    assert!(
        worst(
            "rsqrt.approx.f32 d, x;",
            |x| 1.0 / x.sqrt(),
            relative,
            |v| v > 0.0
        ) <= bound(-22.4)
    );
    assert!(
        worst("sin.approx.f32 d, x;", f64::sin, absolute, |v| v.abs()
            < 3.1)
            <= bound(-20.5)
    );
    assert!(
        worst("cos.approx.f32 d, x;", f64::cos, absolute, |v| v.abs()
            < 3.1)
            <= bound(-20.5)
    );
    assert!(worst("tanh.approx.f32 d, x;", f64::tanh, relative, |v| v != 0.0) <= bound(-10.9));
    assert!(worst("div.full.f32 d, x, y;", |x| x / 3.0, relative, |v| v != 0.0) <= bound(-22.0));
    assert!(
        worst(
            "div.approx.f32 d, x, y;",
            |x| x / 3.0,
            relative,
            |v| v != 0.0
        ) <= bound(-22.0)
    );
}

#[test]
fn approximations_of_what_is_no_number() {
    let inf = 0x7f80_0000;
    let cases = [
        (
            "ex2.approx.f32 d, x;",
            [
                (inf, inf),
                (0xff80_0000, 0),
                (0, 0x3f80_0000),
                (0x43160000, inf),
            ],
        ),
        (
            "lg2.approx.f32 d, x;",
            [
                (inf, inf),
                (0, 0xff80_0000),
                (0x8000_0000, 0xff80_0000),
                (0x3f80_0000, 0),
            ],
        ),
        (
            "rcp.approx.f32 d, x;",
            [
                (inf, 0),
                (0xff80_0000, 0x8000_0000),
                (0, inf),
                (0x8000_0000, 0xff80_0000),
            ],
        ),
        (
            "rsqrt.approx.f32 d, x;",
            [
                (inf, 0),
                (0, inf),
                (0x8000_0000, 0xff80_0000),
                (0x3f80_0000, 0x3f80_0000),
            ],
        ),
        (
            "sqrt.approx.f32 d, x;",
            [
                (inf, inf),
                (0, 0),
                (0x8000_0000, 0x8000_0000),
                (0x4080_0000, 0x4000_0000),
            ],
        ),
    ];
    for (instruction, pairs) in cases {
        let mut all: Vec<[u64; 3]> = pairs.iter().map(|p| [p.0, 0, 0]).collect();
        all.push([0x7fc0_0000, 0, 0]);
        let found = evaluate(instruction, "b32", "b32", &all);
        for (p, found) in pairs.iter().zip(&found) {
            assert_eq!(*found, p.1, "{instruction} of {:#x} gives {found:#x}", p.0);
        }
        assert!(float(found[4]).is_nan(), "{instruction} of NaN");
    }
}
