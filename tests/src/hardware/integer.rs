//! Integers: arithmetic, shifts, fields, bits, comparisons, selections.

use super::Case;
use super::values::Values;

/// Types and their bits.
const TYPES: [(&str, u8); 6] = [
    ("u16", 16),
    ("s16", 16),
    ("u32", 32),
    ("s32", 32),
    ("u64", 64),
    ("s64", 64),
];

const LANES: u32 = 384;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = arithmetic();
    cases.extend(shifts_and_fields());
    cases.extend(bits());
    cases.extend(choices());
    for case in &mut cases {
        case.lanes = LANES;
    }
    cases
}

fn arithmetic() -> Vec<Case> {
    let mut cases = Vec::new();
    for (ty, width) in TYPES {
        let (v, bytes) = (Values::Integer(width), width / 8);
        for op in ["add", "sub", "mul.lo", "mul.hi", "div", "rem", "min", "max"] {
            cases.push(Case::new(format!("{op}.{ty}"), &[v; 2], bytes));
        }
        for op in ["mad.lo", "mad.hi", "sad"] {
            cases.push(Case::new(format!("{op}.{ty}"), &[v; 3], bytes));
        }
        if width < 64 {
            cases.push(Case::new(format!("mul.wide.{ty}"), &[v; 2], 2 * bytes));
            cases.push(Case::new(
                format!("mad.wide.{ty}"),
                &[v, v, Values::Integer(2 * width)],
                2 * bytes,
            ));
        }
        if ty.starts_with('s') {
            cases.push(Case::new(format!("abs.{ty}"), &[v], bytes));
            cases.push(Case::new(format!("neg.{ty}"), &[v], bytes));
        }
    }
    let word = Values::Integer(32);
    for name in ["add.sat.s32", "sub.sat.s32", "mul24.lo.u32", "mul24.lo.s32"] {
        cases.push(Case::new(name, &[word; 2], 4));
    }
    for a in ["u32", "s32"] {
        for b in ["u32", "s32"] {
            cases.push(Case::new(format!("dp4a.{a}.{b}"), &[word; 3], 4));
            for half in ["lo", "hi"] {
                cases.push(Case::new(format!("dp2a.{half}.{a}.{b}"), &[word; 3], 4));
            }
        }
    }
    cases
}

fn shifts_and_fields() -> Vec<Case> {
    let mut cases = Vec::new();
    for (op, ty, width) in [
        ("shl", "b16", 16),
        ("shl", "b32", 32),
        ("shl", "b64", 64),
        ("shr", "u16", 16),
        ("shr", "s16", 16),
        ("shr", "u32", 32),
        ("shr", "s32", 32),
        ("shr", "u64", 64),
        ("shr", "s64", 64),
    ] {
        cases.push(Case::new(
            format!("{op}.{ty}"),
            &[Values::Integer(width), Values::Amount],
            width / 8,
        ));
    }
    let word = Values::Integer(32);
    for name in [
        "shf.l.wrap.b32",
        "shf.l.clamp.b32",
        "shf.r.wrap.b32",
        "shf.r.clamp.b32",
    ] {
        cases.push(Case::new(name, &[word, word, Values::Amount], 4));
    }
    for (ty, width) in [("u32", 32), ("s32", 32), ("u64", 64), ("s64", 64)] {
        let operands = [Values::Integer(width), Values::Amount, Values::Amount];
        cases.push(Case::new(format!("bfe.{ty}"), &operands, width / 8));
    }
    for (ty, width) in [("b32", 32), ("b64", 64)] {
        let v = Values::Integer(width);
        cases.push(Case::new(
            format!("bfi.{ty}"),
            &[v, v, Values::Amount, Values::Amount],
            width / 8,
        ));
    }
    cases
}

fn bits() -> Vec<Case> {
    let mut cases = Vec::new();
    for width in [16u8, 32, 64] {
        let v = Values::Integer(width);
        for op in ["and", "or", "xor"] {
            cases.push(Case::new(format!("{op}.b{width}"), &[v; 2], width / 8));
        }
        for op in ["not", "cnot"] {
            cases.push(Case::new(format!("{op}.b{width}"), &[v], width / 8));
        }
        if width > 16 {
            cases.push(Case::new(format!("brev.b{width}"), &[v], width / 8));
            for op in [
                "popc.b",
                "clz.b",
                "bfind.u",
                "bfind.s",
                "bfind.shiftamt.u",
                "bfind.shiftamt.s",
            ] {
                cases.push(Case::new(format!("{op}{width}"), &[v], 4));
            }
        }
    }
    let word = Values::Integer(32);
    for mode in ["", ".f4e", ".b4e", ".rc8", ".ecl", ".ecr", ".rc16"] {
        let selector = if mode.is_empty() {
            word
        } else {
            Values::Amount
        };
        cases.push(Case::new(
            format!("prmt.b32{mode}"),
            &[word, word, selector],
            4,
        ));
    }
    for table in [0x96, 0xE8, 0xC0, 0x3F, 0x1B, 0x00, 0xFF] {
        let body = format!("lop3.b32 %o0, %i0, %i1, %i2, {table:#x};");
        cases.push(Case::new(format!("lop3.b32/{table:#x}"), &[word; 3], 4).body(body));
    }
    cases
}

fn choices() -> Vec<Case> {
    let mut cases = Vec::new();
    for (ty, width) in TYPES {
        for compare in ["eq", "ne", "lt", "le", "gt", "ge"] {
            cases.push(super::float::setp(compare, ty, Values::Integer(width)));
        }
        if ty.starts_with('u') {
            for compare in ["lo", "ls", "hi", "hs"] {
                cases.push(super::float::setp(compare, ty, Values::Integer(width)));
            }
        }
    }
    // A comparison combined with a predicate, into both of its results.
    for combine in ["and", "or", "xor"] {
        let name = format!("setp.lt.{combine}.s32");
        let body = format!(
            "setp.ne.u32 %p2, %i2, 0;\n{name} %p0|%p1, %i0, %i1, !%p2;\nselp.b32 %o0, 1, 0, %p0;\n\
             selp.b32 %r1, 2, 0, %p1;\nor.b32 %o0, %o0, %r1;"
        );
        let operands = [Values::Integer(32), Values::Integer(32), Values::Below(2)];
        cases.push(Case::new(name, &operands, 4).body(body));
    }
    for op in ["and", "or", "xor", "not"] {
        let operands = if op == "not" { "%p1" } else { "%p1, %p2" };
        let body = format!(
            "setp.ne.u32 %p1, %i0, 0;\nsetp.ne.u32 %p2, %i1, 0;\n{op}.pred %p0, {operands};\nselp.b32 %o0, 1, 0, %p0;"
        );
        cases.push(Case::new(format!("{op}.pred"), &[Values::Below(2); 2], 4).body(body));
    }
    for width in [16u8, 32, 64] {
        let v = Values::Integer(width);
        let body = format!("setp.ne.u32 %p0, %i2, 0;\nselp.b{width} %o0, %i0, %i1, %p0;");
        cases.push(
            Case::new(
                format!("selp.b{width}"),
                &[v, v, Values::Below(2)],
                width / 8,
            )
            .body(body),
        );
    }
    cases
}
