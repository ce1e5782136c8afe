//! `cvt` between all types.

use super::Case;
use super::values::Values;

/// Integer types and their bits.
const INTEGERS: [(&str, u8); 8] = [
    ("u8", 8),
    ("s8", 8),
    ("u16", 16),
    ("s16", 16),
    ("u32", 32),
    ("s32", 32),
    ("u64", 64),
    ("s64", 64),
];

/// Float types, the values for conversions to integers and to floats, and the width of their registers.
const FLOATS: [(&str, Values, Values, u8); 3] = [
    ("f16", Values::HalfNearInteger, Values::Half, 2),
    ("f32", Values::SingleNearInteger, Values::Single, 4),
    ("f64", Values::DoubleNearInteger, Values::Double, 8),
];

const LANES: u32 = 256;
const BETWEEN_INTEGERS: u32 = 128;

/// Bytes of the register that takes an integer.
fn register(bits: u8) -> u8 {
    Values::Integer(bits).bytes()
}

fn cvt(modifiers: &str, to: &str, from: &str, values: Values, bytes: u8) -> Case {
    Case::new(format!("cvt{modifiers}.{to}.{from}"), &[values], bytes).lanes(LANES)
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (integer, bits) in INTEGERS {
        for (float, near, _, float_bytes) in FLOATS {
            for rounding in [".rni", ".rzi", ".rmi", ".rpi"] {
                cases.push(cvt(rounding, integer, float, near, register(bits)));
            }
            cases.push(cvt(".rni.sat", integer, float, near, register(bits)));
            for rounding in [".rn", ".rz", ".rm", ".rp", ".rn.sat"] {
                cases.push(cvt(
                    rounding,
                    float,
                    integer,
                    Values::Integer(bits),
                    float_bytes,
                ));
            }
        }
        cases.push(cvt(
            ".rzi.ftz",
            integer,
            "f32",
            Values::SingleNearInteger,
            register(bits),
        ));
        cases.push(cvt(
            ".rpi.ftz",
            integer,
            "f32",
            Values::Single,
            register(bits),
        ));
        for (from, from_bits) in INTEGERS.into_iter().filter(|(from, _)| *from != integer) {
            let values = Values::Integer(from_bits);
            cases.push(cvt("", integer, from, values, register(bits)).lanes(BETWEEN_INTEGERS));
            // Saturation is not allowed where every source value fits.
            let signed = [integer, from].map(|ty| ty.starts_with('s'));
            let fits = if signed[0] == signed[1] {
                bits >= from_bits
            } else {
                signed[0] && bits > from_bits
            };
            if !fits {
                cases.push(
                    cvt(".sat", integer, from, values, register(bits)).lanes(BETWEEN_INTEGERS),
                );
            }
        }
    }
    cases.extend(between_floats());
    cases
}

fn between_floats() -> Vec<Case> {
    let mut cases = Vec::new();
    for (float, near, all, bytes) in FLOATS {
        for rounding in [".rni", ".rzi", ".rmi", ".rpi"] {
            cases.push(cvt(rounding, float, float, near, bytes));
        }
        cases.push(cvt(".sat", float, float, all, bytes));
    }
    for (from, values, modes) in [
        (
            "f32",
            Values::Single,
            &[".rn", ".rz", ".rn.ftz", ".rn.sat", ".rn.relu"][..],
        ),
        (
            "f64",
            Values::Double,
            &[".rn", ".rz", ".rm", ".rp", ".rn.sat"][..],
        ),
    ] {
        for mode in modes {
            cases.push(cvt(mode, "f16", from, values, 2).lanes(1024));
        }
    }
    for mode in [".rn", ".rz", ".rm", ".rp", ".rn.ftz", ".rn.sat"] {
        cases.push(cvt(mode, "f32", "f64", Values::Double, 4).lanes(512));
    }
    for mode in ["", ".ftz", ".sat"] {
        cases.push(cvt(mode, "f32", "f16", Values::Half, 4).lanes(512));
        if mode != ".ftz" {
            cases.push(cvt(mode, "f64", "f16", Values::Half, 8));
        }
        cases.push(cvt(mode, "f64", "f32", Values::Single, 8));
    }
    for mode in ["rn", "rz", "rn.relu"] {
        for pair in ["f16x2", "bf16x2"] {
            cases.push(Case::new(
                format!("cvt.{mode}.{pair}.f32"),
                &[Values::Single; 2],
                4,
            ));
        }
        cases.push(cvt(&format!(".{mode}"), "bf16", "f32", Values::Single, 2).lanes(1024));
    }
    cases
}
