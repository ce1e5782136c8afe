//! What the lanes of a warp do together: shuffles, votes, matches, reductions.

use super::Case;
use super::values::Values;

const LANES: u32 = 256;
const ALL: &str = "0xffffffff";

/// Two groups of lanes that run apart. Every lane's neighbour (its number with the lowest bit turned) is in its group.
const GROUP: u32 = 0x33CC_0FF0;

/// `instruction` with `MASK` for the lanes that execute it, once in each group.
fn in_two_groups(instruction: &str) -> String {
    format!(
        "shr.u32 %r8, {GROUP:#x}, %lane;\nand.b32 %r8, %r8, 1;\nsetp.ne.u32 %p3, %r8, 0;\n@%p3 bra IN_GROUP;\n\
         {}\nbra TOGETHER;\nIN_GROUP:\n{}\nTOGETHER:",
        instruction.replace("MASK", &format!("{:#x}", !GROUP)),
        instruction.replace("MASK", &format!("{GROUP:#x}")),
    )
}

pub(super) fn cases() -> Vec<Case> {
    let mut cases = shuffles();
    cases.extend(votes());
    cases.extend(reductions());
    for case in &mut cases {
        case.lanes = LANES;
    }
    cases
}

/// The shuffled value, and above it whether its source lane was in range.
fn shuffles() -> Vec<Case> {
    let word = Values::Integer(32);
    let both = "selp.b32 %r2, 1, 0, %p0;\nmov.b64 %o0, {%r1, %r2};";
    let mut cases = Vec::new();
    for mode in ["up", "down", "bfly", "idx"] {
        let name = format!("shfl.sync.{mode}.b32");
        let body = format!("{name} %r1|%p0, %i0, %i1, %i2, {ALL};\n{both}");
        let whole: &'static [u32] = if mode == "up" { &[0] } else { &[31] };
        for (what, c) in [
            ("whole warp", Values::AnyOf(whole)),
            ("segments", Values::Below(0x2000)),
        ] {
            let operands = [word, Values::Below(64), c];
            cases.push(Case::new(format!("{name}/{what}"), &operands, 8).body(body.clone()));
        }
    }
    for distance in [1, 2, 4, 8, 16] {
        let body = format!("shfl.sync.bfly.b32 %o0, %i0, {distance}, 31, {ALL};");
        cases.push(Case::new(format!("shfl.sync.bfly.b32/{distance}"), &[word], 4).body(body));
    }
    let body = in_two_groups("shfl.sync.bfly.b32 %o0, %i0, 1, 31, MASK;");
    cases.push(Case::new("shfl.sync.bfly.b32/two groups", &[word], 4).body(body));
    cases
}

fn votes() -> Vec<Case> {
    let mut cases = Vec::new();
    for (mode, ty) in [
        ("all", "pred"),
        ("any", "pred"),
        ("uni", "pred"),
        ("ballot", "b32"),
    ] {
        let name = format!("vote.sync.{mode}.{ty}");
        // Rare enough that whole warps are of one mind now and then.
        for (what, compare) in [("often", "ne"), ("rarely", "eq")] {
            for groups in [false, true] {
                let (target, after) = if ty == "pred" {
                    ("%p1", "\nselp.b32 %o0, 1, 0, %p1;")
                } else {
                    ("%o0", "")
                };
                let vote = format!("{name} {target}, %p0, MASK;");
                let vote = if groups {
                    in_two_groups(&vote)
                } else {
                    vote.replace("MASK", ALL)
                };
                let body = format!("setp.{compare}.u32 %p0, %i0, 0;\n{vote}{after}");
                let suffix = if groups { ", two groups" } else { "" };
                cases.push(
                    Case::new(format!("{name}/{what}{suffix}"), &[Values::Below(64)], 4).body(body),
                );
            }
        }
    }
    for ty in ["b32", "b64"] {
        let value = if ty == "b32" {
            "mov.b32 %r1, %i0;"
        } else {
            "mov.b64 %d1, {%i0, %i0};"
        };
        let register = if ty == "b32" { "%r1" } else { "%d1" };
        let body = format!("{value}\nmatch.any.sync.{ty} %o0, {register}, {ALL};");
        cases.push(Case::new(format!("match.any.sync.{ty}"), &[Values::Below(5)], 4).body(body));
        let body = format!(
            "setp.ne.u32 %p1, %i0, 0;\nselp.b32 %i0, 7, 0, %p1;\n{value}\n\
             match.all.sync.{ty} %r2|%p0, {register}, {ALL};\nselp.b32 %r3, 1, 0, %p0;\nmov.b64 %o0, {{%r2, %r3}};"
        );
        cases.push(Case::new(format!("match.all.sync.{ty}"), &[Values::Below(64)], 8).body(body));
    }
    cases
}

fn reductions() -> Vec<Case> {
    let mut cases = Vec::new();
    let word = Values::Integer(32);
    for name in [
        "add.u32", "add.s32", "min.u32", "min.s32", "max.u32", "max.s32", "and.b32", "or.b32",
        "xor.b32",
    ] {
        let (op, ty) = name.split_once('.').expect("an operation and a type");
        let instruction = format!("redux.sync.{op}.{ty}");
        let line = format!("{instruction} %o0, %i0, MASK;");
        cases.push(Case::new(&instruction, &[word], 4).body(line.replace("MASK", ALL)));
        cases.push(
            Case::new(format!("{instruction}/two groups"), &[word], 4).body(in_two_groups(&line)),
        );
    }
    for (op, result) in [("popc.u32", "%o0"), ("and.pred", "%p1"), ("or.pred", "%p1")] {
        let after = if result == "%p1" {
            "\nselp.b32 %o0, 1, 0, %p1;"
        } else {
            ""
        };
        let body = format!("setp.ne.u32 %p0, %i0, 0;\nbar.red.{op} {result}, 0, %p0;{after}");
        cases.push(Case::new(format!("bar.red.{op}"), &[Values::Below(128)], 4).body(body));
    }
    for register in ["tid.x", "ntid.x", "ctaid.x", "nctaid.x", "laneid"] {
        cases.push(
            Case::new(format!("mov.u32/{register}"), &[], 4)
                .body(format!("mov.u32 %o0, %{register};")),
        );
    }
    for relation in ["eq", "lt", "le", "gt", "ge"] {
        let body = format!("mov.u32 %o0, %lanemask_{relation};");
        cases.push(Case::new(format!("mov.u32/lanemask_{relation}"), &[], 4).body(body));
    }
    cases
}
