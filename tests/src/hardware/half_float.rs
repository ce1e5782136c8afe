//! Arithmetic on halves and on pairs of them.

use super::Case;
use super::agreement::{Agreement, Format};
use super::values::Values;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (ty, values, bytes, format) in [
        ("f16", Values::Half, 2, Format::Half),
        ("f16x2", Values::HalfPair, 4, Format::HalfPair),
    ] {
        let mut of = |name: String, operands: usize| {
            cases.push(Case::new(
                format!("{name}.{ty}"),
                &vec![values; operands],
                bytes,
            ));
        };
        for op in ["add", "sub", "mul"] {
            for mode in ["rn", "rn.ftz", "rn.sat", "rn.ftz.sat"] {
                of(format!("{op}.{mode}"), 2);
            }
        }
        for mode in ["rn", "rn.ftz", "rn.sat", "rn.relu"] {
            of(format!("fma.{mode}"), 3);
        }
        for op in ["min", "max"] {
            for mode in ["", ".ftz", ".NaN"] {
                of(format!("{op}{mode}"), 2);
            }
        }
        for op in ["neg", "abs"] {
            for mode in ["", ".ftz"] {
                of(format!("{op}{mode}"), 1);
            }
        }
        let near = |relative: f64, floor| Agreement::Near {
            format,
            relative,
            floor,
        };
        cases.push(
            Case::new(format!("ex2.approx.{ty}"), &[values], bytes)
                .agreement(near(2f64.powf(-9.9), 0.0)),
        );
        cases.push(
            Case::new(format!("tanh.approx.{ty}"), &[values], bytes)
                .agreement(near(2f64.powf(-10.987), 1.0)),
        );
    }
    for compare in super::float::COMPARISONS {
        cases.push(super::float::setp(compare, "f16", Values::Half));
    }
    for compare in ["eq", "lt", "neu", "nan"] {
        let name = format!("setp.{compare}.f16x2");
        let body = format!(
            "{name} %p0|%p1, %i0, %i1;\nselp.b32 %o0, 1, 0, %p0;\nselp.b32 %r1, 2, 0, %p1;\nor.b32 %o0, %o0, %r1;"
        );
        cases.push(Case::new(name, &[Values::HalfPair; 2], 4).body(body));
    }
    cases
}
