//! Loads and stores, asynchronous copies, atomics and reductions.

use super::Case;
use super::values::Values;

const LANES: u32 = 256;

/// Words that contended reductions meet in.
const WORDS: u32 = 64;

pub(super) fn cases() -> Vec<Case> {
    let mut cases = accesses();
    cases.extend(copies());
    cases.extend(atomics());
    cases.extend(contended());
    for case in &mut cases {
        case.lanes = LANES;
    }
    cases
}

fn accesses() -> Vec<Case> {
    let word = Values::Integer(32);
    let mut cases = Vec::new();
    for (ty, at) in [("u8", 1), ("s8", 1), ("u16", 2), ("s16", 2), ("b32", 0)] {
        for space in ["ld.global", "ld.global.nc", "ld"] {
            let name = format!("{space}.{ty}");
            let body = format!("{name} %o0, [%in+{at}];");
            cases.push(Case::new(name, &[word], 4).body(body));
        }
    }
    for (name, ty, registers) in [
        ("v2.b32", "b32", "{%r1, %r3}"),
        ("v4.b32", "b32", "{%r1, %r2, %r3, %r4}"),
        ("v2.b64", "b64", "{%d1, %d2}"),
        ("v4.b16", "b16", "{%h1, %h2, %h3, %h4}"),
    ] {
        let sum = match ty {
            "b32" => "sub.s32 %o0, %r1, %r3;".to_owned(),
            "b64" => "sub.s64 %d3, %d1, %d2;\ncvt.u32.u64 %o0, %d3;".to_owned(),
            _ => "sub.s16 %h5, %h1, %h2;\nmov.b32 %o0, {%h5, %h4};".to_owned(),
        };
        for cache in ["", ".nc"] {
            let body = format!("ld.global{cache}.{name} {registers}, [%in];\n{sum}");
            cases.push(Case::new(format!("ld.global{cache}.{name}"), &[word; 2], 4).body(body));
        }
        let body = format!(
            "{{\n.shared .align 16 .b8 tile[2048];\nmov.u32 %r8, tile;\nshl.b32 %r9, %thread, 4;\nadd.s32 %r8, %r8, %r9;\n\
             ld.global.{name} {registers}, [%in];\nst.shared.{name} [%r8], {registers};\nld.shared.b32 %o0, [%r8+4];\n}}"
        );
        cases.push(Case::new(format!("st.shared.{name}"), &[word; 2], 4).body(body));
    }
    for (name, registers) in [
        ("v2.b32", "{%i0, %i1}"),
        ("v4.b32", "{%i0, %i1, %i1, %i0}"),
        ("v4.b16", "{%h1, %h2, %h3, %h4}"),
    ] {
        let body = format!(
            "mul.wide.u32 %d1, %index, 16;\nadd.s64 %d1, %base, %d1;\nmov.b32 {{%h1, %h2}}, %i0;\n\
             mov.b32 {{%h3, %h4}}, %i1;\nst.global.{name} [%d1], {registers};"
        );
        let case = Case::new(format!("st.global.{name}"), &[word; 2], 4);
        cases.push(case.body(body).shared_results(16 * LANES as usize));
    }
    let body = "{\n.shared .align 4 .b8 tile[512];\nmov.u32 %r1, tile;\nshl.b32 %r2, %thread, 2;\n\
         add.s32 %r2, %r1, %r2;\nst.shared.b32 [%r2], %i0;\nbar.warp.sync 0xffffffff;\nxor.b32 %r3, %thread, %i1;\n\
         shl.b32 %r3, %r3, 2;\nadd.s32 %r3, %r1, %r3;\nld.shared.b32 %o0, [%r3];\n}";
    cases.push(Case::new("bar.warp.sync", &[word, Values::Below(32)], 4).body(body));
    // One address of a shared variable in both its forms, and an array in local memory that is indexed.
    let body = "{\n.shared .align 16 .b8 tile[2048];\nmov.u64 %d1, tile;\ncvta.shared.u64 %d1, %d1;\n\
         mul.wide.u32 %d2, %thread, 16;\nadd.s64 %d1, %d1, %d2;\nst.b32 [%d1], %i0;\nst.b8 [%d1+1], %i1;\n\
         cvta.to.shared.u64 %d1, %d1;\nld.shared.b32 %o0, [%d1];\n}";
    cases.push(Case::new("cvta.shared.u64", &[word; 2], 4).body(body));
    let body = "{\n.local .align 4 .b8 frame[16];\nmov.u32 %r1, frame;\nst.local.b32 [%r1], %i0;\nst.local.b32 [%r1+4], %i1;\n\
         st.local.b16 [%r1+8], 7;\nst.local.b16 [%r1+10], 9;\nshl.b32 %r2, %i2, 2;\nadd.s32 %r1, %r1, %r2;\n\
         ld.local.b32 %o0, [%r1];\n}";
    cases.push(Case::new("ld.local.b32", &[word, word, Values::Below(3)], 4).body(body));
    let body = "mov.b32 {%h1, %h2}, %i0;\nmov.b64 %o0, {%h2, %h1, %h1, %h2};";
    cases.push(Case::new("mov.b64/four halves", &[word], 8).body(body));
    cases
}

/// `%i4` of the bytes are copied and the rest is zero.
fn copies() -> Vec<Case> {
    let mut cases = Vec::new();
    for (cache, bytes) in [("ca", 4), ("ca", 8), ("ca", 16), ("cg", 16)] {
        let name = format!("cp.async.{cache}.shared.global");
        for (what, size) in [("", String::new()), (" of up to", ", %i4".into())] {
            let body = format!(
                "{{\n.shared .align 16 .b8 tile[2048];\nmov.u32 %r1, tile;\nshl.b32 %r2, %thread, 4;\nadd.s32 %r1, %r1, %r2;\n\
                 st.shared.v4.b32 [%r1], {{%thread, %thread, %thread, %thread}};\n{name} [%r1], [%in], {bytes}{size};\n\
                 cp.async.commit_group;\ncp.async.wait_group 0;\nld.shared.v4.b32 {{%o0, %o1, %o2, %o3}}, [%r1];\n}}"
            );
            let mut operands = vec![Values::Integer(32); 4];
            operands.push(Values::Below(bytes + 1));
            cases.push(
                Case::new(format!("{name}/{bytes}{what}"), &operands, 4)
                    .body(body)
                    .results(4),
            );
        }
    }
    cases
}

/// Each lane has memory of its own: the old value, then the new one.
fn atomics() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut of = |op: &str, ty: &str, values: Values| {
        let bytes = values.bytes();
        let (bits, also) = (8 * bytes, if op == "cas" { ", %i2" } else { "" });
        let operands = if op == "cas" {
            // Equal now and then.
            vec![Values::Below(3), Values::Below(3), Values::Below(3)]
        } else {
            vec![values; 2]
        };
        // Operands of `cas` stand in 32 bits, whatever its type.
        let narrow = |i: usize| match (op, bits) {
            ("cas", 64) => format!("cvt.u64.u32 %d{i}, %i{i};\n"),
            ("cas", 16) => format!("cvt.u16.u32 %h{i}, %i{i};\n"),
            _ => String::new(),
        };
        let register = match (op, bits) {
            ("cas", 64) => "%d",
            ("cas", 16) => "%h",
            _ => "%i",
        };
        let prepare: String = (0..operands.len()).map(narrow).collect();
        let also = also.replace("%i", register);
        let global = format!(
            "{prepare}st.global.b{bits} [%out], {register}0;\natom.global.{op}.{ty} %o0, [%out], {register}1{also};\n\
             ld.global.b{bits} %o1, [%out];"
        );
        cases.push(
            Case::new(format!("atom.global.{op}.{ty}"), &operands, bytes)
                .body(global)
                .results(2),
        );
        let shared = format!(
            "{{\n.shared .align 16 .b8 tile[1024];\nmov.u32 %r1, tile;\nshl.b32 %r2, %thread, 3;\nadd.s32 %r1, %r1, %r2;\n\
             {prepare}st.shared.b{bits} [%r1], {register}0;\natom.shared.{op}.{ty} %o0, [%r1], {register}1{also};\n\
             ld.shared.b{bits} %o1, [%r1];\n}}"
        );
        cases.push(
            Case::new(format!("atom.shared.{op}.{ty}"), &operands, bytes)
                .body(shared)
                .results(2),
        );
    };
    for (ty, width) in [("u32", 32), ("s32", 32), ("u64", 64), ("s64", 64)] {
        for op in ["min", "max"] {
            of(op, ty, Values::Integer(width));
        }
        if ty != "s64" {
            of("add", ty, Values::Integer(width));
        }
    }
    for (ty, width) in [("b32", 32), ("b64", 64)] {
        for op in ["and", "or", "xor", "exch", "cas"] {
            of(op, ty, Values::Integer(width));
        }
    }
    of("cas", "b16", Values::Integer(16));
    of("inc", "u32", Values::Below(9));
    of("dec", "u32", Values::Below(9));
    of("add", "f32", Values::Single);
    of("add", "f64", Values::Double);
    of("add.noftz", "f16", Values::Half);
    of("add.noftz", "f16x2", Values::HalfPair);
    cases
}

/// Lanes of all CTAs, or of one, meet in few words; the operations commute, so that their order does not show.
fn contended() -> Vec<Case> {
    let mut cases = Vec::new();
    for op in [
        "add.u32", "min.s32", "max.u32", "and.b32", "or.b32", "xor.b32",
    ] {
        let operands = [Values::Integer(32), Values::Below(WORDS)];
        let body = format!(
            "mul.wide.u32 %d1, %i1, 4;\nadd.s64 %d1, %base, %d1;\nred.global.{op} [%d1], %i0;"
        );
        cases.push(
            Case::new(format!("red.global.{op}"), &operands, 4)
                .body(body)
                .shared_results(4 * WORDS as usize),
        );
        let body = format!(
            "{{\n.shared .align 4 .b8 tile[512];\nmov.u32 %r1, tile;\nshl.b32 %r2, %thread, 2;\nadd.s32 %r2, %r1, %r2;\n\
             st.shared.b32 [%r2], %thread;\nbar.sync 0;\nshl.b32 %r3, %i1, 2;\nadd.s32 %r3, %r1, %r3;\n\
             red.shared.{op} [%r3], %i0;\nbar.sync 0;\nld.shared.b32 %o0, [%r2];\n}}"
        );
        cases.push(Case::new(format!("red.shared.{op}"), &operands, 4).body(body));
    }
    cases
}
