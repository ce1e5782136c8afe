//! `mma.sync` and `ldmatrix`.

use super::Case;
use super::agreement::{Agreement, Format};
use super::values::Values;
use half::{bf16, f16};
use std::fmt::Write as _;

const LANES: u32 = 384;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = products();
    cases.extend(products_of_bits());
    cases.extend(fragments());
    for case in &mut cases {
        case.lanes = LANES;
    }
    cases
}

/// The type of A and B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Factors {
    /// `f16`
    Halves,
    /// `bf16`
    BFloats,
}

impl Factors {
    fn number(self, bits: u16) -> f64 {
        match self {
            Factors::Halves => f16::from_bits(bits).to_f64(),
            Factors::BFloats => bf16::from_bits(bits).to_f64(),
        }
    }

    /// Values of the factors' registers, drawn as pairs of halves.
    fn values(self, halves: &'static Values) -> Values {
        match self {
            Factors::Halves => *halves,
            Factors::BFloats => Values::BFloats(halves),
        }
    }
}

/// Operands are the registers of A, then of B, then of C.
fn products() -> Vec<Case> {
    let mut cases = Vec::new();
    for k in [8, 16] {
        for (ty, format, of, factors) in [
            ("f32", Format::Single, "f16", Factors::Halves),
            ("f16", Format::HalfPair, "f16", Factors::Halves),
            ("f32", Format::Single, "bf16", Factors::BFloats),
        ] {
            let name = format!("mma.sync.aligned.m16n8k{k}.row.col.{ty}.{of}.{of}.{ty}");
            let accumulators = accumulators(format);
            let registers = |from: usize, count: usize| {
                let list: Vec<String> = (from..from + count).map(|i| format!("%i{i}")).collect();
                format!("{{{}}}", list.join(", "))
            };
            let results: Vec<String> = (0..accumulators).map(|i| format!("%o{i}")).collect();
            let (a, b) = (k / 4, k / 8);
            let body = format!(
                "{name} {{{}}}, {}, {}, {};",
                results.join(", "),
                registers(0, a),
                registers(a, b),
                registers(a + b, accumulators)
            );
            let single = format == Format::Single;
            let near = Agreement::Product { k, format, factors };
            for (what, factor, sum, agreement) in [
                (
                    "integers",
                    &Values::SmallIntegers,
                    if single {
                        Values::SingleInteger
                    } else {
                        Values::SmallIntegers
                    },
                    Agreement::Bits,
                ),
                (
                    "moderate",
                    &Values::Moderate,
                    if single {
                        Values::Magnitude(-9, 9)
                    } else {
                        Values::Moderate
                    },
                    near,
                ),
                (
                    "spoilt",
                    &Values::Spoilt,
                    if single {
                        Values::Magnitude(-9, 9)
                    } else {
                        Values::Spoilt
                    },
                    near,
                ),
                (
                    "any",
                    &Values::HalfPair,
                    if single {
                        Values::Single
                    } else {
                        Values::HalfPair
                    },
                    near,
                ),
            ] {
                let mut operands = vec![factors.values(factor); a + b];
                operands.resize(a + b + accumulators, sum);
                cases.push(
                    Case::new(format!("{name}/{what}"), &operands, 4)
                        .body(body.clone())
                        .results(accumulators)
                        .agreement(agreement),
                );
            }
        }
    }
    cases
}

/// Operands as of [`products`]; `xor` is of no card after sm_89, and is not recorded.
fn products_of_bits() -> Vec<Case> {
    let case = |k: usize| {
        let name = format!("mma.sync.aligned.m16n8k{k}.row.col.s32.b1.b1.s32.and.popc");
        let registers = |from: usize, count: usize| {
            let list: Vec<String> = (from..from + count).map(|i| format!("%i{i}")).collect();
            format!("{{{}}}", list.join(", "))
        };
        let (a, b) = (k / 64, k / 128);
        let body = format!(
            "{name} {{%o0, %o1, %o2, %o3}}, {}, {}, {};",
            registers(0, a),
            registers(a, b),
            registers(a + b, 4)
        );
        Case::new(name, &vec![Values::Integer(32); a + b + 4], 4)
            .body(body)
            .results(4)
    };
    [128, 256].map(case).into()
}

/// Registers of C and D in each lane.
fn accumulators(format: Format) -> usize {
    if format == Format::Single { 4 } else { 2 }
}

/// The element of C and the products that make up an element of D: that of `register` in `lane`, and there of half
/// `part`. Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k16 with floating point type".
pub(super) fn terms(
    case: &Case,
    input: &[u8],
    (k, factors): (usize, Factors),
    format: Format,
    lane: usize,
    register: usize,
    part: usize,
) -> Vec<f64> {
    let warp = lane / 32 * 32;
    let word = |lane: usize, operand: usize| {
        case.lane_operands(input, lane)
            .nth(operand)
            .expect("an operand of the case") as u32
    };
    let factor = |word: u32, part: usize| factors.number((word >> (16 * part)) as u16);
    let (group, within) = (lane % 32 / 4, lane % 4);
    let c = word(lane, k / 4 + k / 8 + register);
    let (row, column, c) = match format {
        Format::Single => (
            group + 8 * (register / 2),
            2 * within + register % 2,
            f64::from(f32::from_bits(c)),
        ),
        _ => (
            group + 8 * register,
            2 * within + part,
            Factors::Halves.number((c >> (16 * part)) as u16),
        ),
    };
    let a = |j: usize| {
        factor(
            word(warp + row % 8 * 4 + j % 8 / 2, row / 8 + 2 * (j / 8)),
            j % 2,
        )
    };
    let b = |j: usize| factor(word(warp + column * 4 + j % 8 / 2, k / 4 + j / 8), j % 2);
    std::iter::once(c)
        .chain((0..k).map(|j| a(j) * b(j)))
        .collect()
}

/// Each lane stores a row of eight halves; `%i4` says the row whose address it gives to `ldmatrix`.
fn fragments() -> Vec<Case> {
    let mut cases = Vec::new();
    for count in [1, 2, 4] {
        for transposed in ["", ".trans"] {
            let name = format!("ldmatrix.sync.aligned.m8n8.x{count}{transposed}.shared.b16");
            let mut operands = vec![Values::Integer(32); 4];
            operands.push(Values::Below(32));
            let results: Vec<String> = (0..count).map(|i| format!("%o{i}")).collect();
            let mut body = "{\n.shared .align 16 .b8 tile[2048];\nmov.u32 %r1, tile;\nshl.b32 %r2, %thread, 4;\n\
                 add.s32 %r2, %r1, %r2;\nst.shared.v4.b32 [%r2], {%i0, %i1, %i2, %i3};\nbar.sync 0;\n\
                 and.b32 %r3, %thread, 96;\nadd.s32 %r3, %r3, %i4;\nshl.b32 %r3, %r3, 4;\nadd.s32 %r3, %r1, %r3;\n"
                .to_owned();
            let _ = write!(body, "{name} {{{}}}, [%r3];\n}}", results.join(", "));
            cases.push(Case::new(name, &operands, 4).body(body).results(count));
        }
    }
    cases
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against the layout of the ISA's figures, written down for single elements.
    #[test]
    fn terms_are_those_of_the_element() {
        let case = products()
            .into_iter()
            .find(|c| c.name.contains("k16") && c.name.ends_with("f32.f16.f16.f32/integers"));
        let case = case.expect("a product of 16");
        let input = case.input();
        let operand = |lane: usize, i: usize| {
            case.lane_operands(&input, lane).nth(i).expect("an operand") as u32
        };
        let half = |word: u32, part: u32| f16::from_bits((word >> (16 * part)) as u16).to_f64();
        // Register 3 of lane 6 is row 1 + 8, column 2·2 + 1 of D.
        let terms = terms(
            &case,
            &input,
            (16, Factors::Halves),
            Format::Single,
            6,
            3,
            0,
        );
        assert_eq!(terms.len(), 17);
        assert_eq!(terms[0], f64::from(f32::from_bits(operand(6, 9))));
        // A(9, 0) is the low half of a1 in lane 4, B(0, 5) that of b0 in lane 20.
        assert_eq!(terms[1], half(operand(4, 1), 0) * half(operand(20, 4), 0));
        // A(9, 11) is the high half of a3 in lane 5, B(11, 5) that of b1 in lane 21.
        assert_eq!(terms[12], half(operand(5, 3), 1) * half(operand(21, 5), 1));
    }
}
