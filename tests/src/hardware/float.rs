//! Arithmetic on floats and doubles, comparisons and classes.

use super::Case;
use super::agreement::{Agreement, Format};
use super::values::Values;
use std::f32::consts::TAU;

/// Comparisons of floats.
pub(super) const COMPARISONS: [&str; 14] = [
    "eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan",
];

const ROUNDINGS: [&str; 4] = ["rn", "rz", "rm", "rp"];

/// `setp`, its predicate as 0 or 1.
pub(super) fn setp(compare: &str, ty: &str, values: Values) -> Case {
    let name = format!("setp.{compare}.{ty}");
    let body = format!("{name} %p0, %i0, %i1;\nselp.b32 %o0, 1, 0, %p0;");
    Case::new(name, &[values; 2], 4).body(body)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = single();
    cases.extend(double());
    cases.extend(approximate());
    cases
}

fn single() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut of =
        |name: String, operands| cases.push(Case::new(name, &vec![Values::Single; operands], 4));
    let modes = || {
        ROUNDINGS
            .into_iter()
            .chain(["rn.ftz", "rn.sat", "rn.ftz.sat", "rz.ftz"])
    };
    for mode in modes() {
        for op in ["add", "sub", "mul"] {
            of(format!("{op}.{mode}.f32"), 2);
        }
        of(format!("fma.{mode}.f32"), 3);
    }
    for rounding in ROUNDINGS.into_iter().chain(["rn.ftz"]) {
        of(format!("div.{rounding}.f32"), 2);
        of(format!("rcp.{rounding}.f32"), 1);
        of(format!("sqrt.{rounding}.f32"), 1);
    }
    for op in ["min", "max"] {
        for mode in ["", ".ftz", ".NaN"] {
            of(format!("{op}{mode}.f32"), 2);
        }
    }
    for op in ["neg", "neg.ftz", "abs", "abs.ftz"] {
        of(format!("{op}.f32"), 1);
    }
    of("copysign.f32".into(), 2);
    for compare in COMPARISONS {
        cases.push(setp(compare, "f32", Values::Single));
    }
    for compare in ["eq.ftz", "lt.ftz", "geu.ftz"] {
        cases.push(setp(compare, "f32", Values::Single));
    }
    cases.extend(classes("f32", Values::Single));
    cases
}

fn double() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut of = |name: String, operands| {
        // Eight bytes a result: fewer lanes.
        cases.push(
            Case::new(name, &vec![Values::Double; operands], 8).lanes(if operands == 1 {
                256
            } else {
                512
            }),
        );
    };
    for rounding in ROUNDINGS {
        for op in ["add", "sub", "mul", "div"] {
            of(format!("{op}.{rounding}.f64"), 2);
        }
        of(format!("fma.{rounding}.f64"), 3);
        of(format!("rcp.{rounding}.f64"), 1);
        of(format!("sqrt.{rounding}.f64"), 1);
    }
    for (op, operands) in [
        ("min", 2),
        ("max", 2),
        ("copysign", 2),
        ("neg", 1),
        ("abs", 1),
    ] {
        of(format!("{op}.f64"), operands);
    }
    for compare in COMPARISONS {
        cases.push(setp(compare, "f64", Values::Double));
    }
    cases.extend(classes("f64", Values::Double));
    cases
}

/// `testp`, its predicate as 0 or 1.
fn classes(ty: &str, values: Values) -> impl Iterator<Item = Case> {
    [
        "finite",
        "infinite",
        "number",
        "notanumber",
        "normal",
        "subnormal",
    ]
    .into_iter()
    .map(move |class| {
        let name = format!("testp.{class}.{ty}");
        let body = format!("{name} %p0, %i0;\nselp.b32 %o0, 1, 0, %p0;");
        Case::new(name, &[values], 4).body(body)
    })
}

/// The bounds are those of the PTX ISA's entries.
fn approximate() -> Vec<Case> {
    let near = |relative: f64, floor: f64| Agreement::Near {
        format: Format::Single,
        relative,
        floor,
    };
    let one_unit = 2f64.powi(-23);
    let any = Values::Single;
    let angle = Values::Between(-TAU, TAU);
    let mut cases = Vec::new();
    for ftz in ["", ".ftz"] {
        for (op, operands, agreement) in [
            ("div.full", vec![any; 2], near(2.0 * one_unit, 0.0)),
            // Undefined for divisors above 2^126.
            (
                "div.approx",
                vec![any, Values::Magnitude(-126, 125)],
                near(2.0 * one_unit, 0.0),
            ),
            ("rcp.approx", vec![any], near(one_unit, 0.0)),
            ("sqrt.approx", vec![any], near(one_unit, 0.0)),
            ("rsqrt.approx", vec![any], near(2f64.powf(-22.9), 0.0)),
            ("ex2.approx", vec![any], near(2f64.powi(-22), 0.0)),
            ("lg2.approx", vec![any], near(2f64.powi(-22), 1.0)),
            ("sin.approx", vec![angle], near(2f64.powf(-20.5), 1.0)),
            ("cos.approx", vec![angle], near(2f64.powf(-20.5), 1.0)),
        ] {
            cases.push(Case::new(format!("{op}{ftz}.f32"), &operands, 4).agreement(agreement));
        }
    }
    cases.push(Case::new("tanh.approx.f32", &[any], 4).agreement(near(2f64.powi(-11), 0.0)));
    let name = "ex2.approx.f32";
    let body = format!("{name} %o0, %i0;");
    cases.push(
        Case::new(
            format!("{name}/in range"),
            &[Values::Between(-150.0, 130.0)],
            4,
        )
        .body(body)
        .agreement(near(2f64.powi(-22), 0.0)),
    );
    cases
}
