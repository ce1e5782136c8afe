//! Text that is not what the emulator runs: an error that says where and why. What no text may do (panic, hang,
//! allocate without bound) is fuzzed.

use ptx_emulator::Module;

/// Kernels as the compiler wrote them, and one by hand with what they lack.
const CORPUS: [(&str, &str); 5] = [
    ("by_hand", include_str!("corpus/by_hand.ptx")),
    ("end_step", include_str!("corpus/end_step.ptx")),
    ("reduce_loss", include_str!("corpus/reduce_loss.ptx")),
    (
        "spmm_follow_up",
        include_str!("corpus/spmm_follow_up_half8_discretized.ptx"),
    ),
    ("gemm", include_str!("corpus/gemm_nt_f16_to_f32_128x16.ptx")),
];

#[test]
fn the_corpus_is_accepted() {
    for (name, text) in CORPUS {
        let module = Module::parse(text).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(module.entries().count(), 1, "{name}");
        assert_eq!(
            (module.target(), module.version()),
            ("sm_80", (8, 0)),
            "{name}"
        );
    }
}

fn in_kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{\n{body}\nret;\n}}\n"
    )
}

/// A string ends on its line, whatever stands before the line's end; and what is shown of a text is whole characters.
#[test]
fn the_line_and_the_text_of_what_no_token_is() {
    let error = |text: &str| Module::parse(text).expect_err("no PTX");
    let unclosed = error(".version 8.0\n.file 1 \"a\\\nb\"\n");
    assert_eq!(unclosed.line, 2, "{unclosed}");
    assert!(
        unclosed.message.contains("not closed on its line"),
        "{unclosed}"
    );
    let long = error(&format!(".version 8.0\n§x{}\n", "é".repeat(100)));
    assert_eq!(long.text, format!("§x{}", "é".repeat(38)), "{long}");
}

/// A kernel that calls itself, or whose functions do, would need a stack.
#[test]
fn recursion_is_refused() {
    let text = ".version 8.0\n.target sm_80\n.address_size 64
.func a() ;
.func b() { call.uni a, (); ret; }
.func a() { call.uni b, (); ret; }
.visible .entry k() { call.uni a, (); ret; }\n";
    assert!(
        Module::parse(text)
            .unwrap_err()
            .to_string()
            .contains("recursion")
    );
}

/// PTX ISA, "Initializers": of all types but `.f16`, `.f16x2` and `.pred`.
#[test]
fn halves_have_no_initial_values() {
    let variable = |ty: &str, value: &str| {
        Module::parse(&format!(
            ".version 8.0\n.target sm_80\n.address_size 64\n.global .{ty} x = {value};\n"
        ))
    };
    for ty in ["f16", "f16x2"] {
        let error = variable(ty, "1").expect_err(ty);
        assert_eq!(error.line, 4, "{error}");
        assert!(error.message.contains("write its bits as .b16"), "{error}");
    }
    assert!(variable("b16", "15360").is_ok());
    assert!(variable("f32", "0f3F800000").is_ok());
}

#[test]
fn what_is_not_implemented_is_named_with_its_line() {
    for (instruction, named) in [
        ("tex.2d.v4.f32.f32 {%f1, %f1, %f1, %f1}, [%d1];", "tex"),
        ("add.rz.f16 %r1, %r1, %r1;", "rz"),
        (
            "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%f1}, {%f1}, {%f1}, {%f1};",
            "mma",
        ),
        ("frobnicate.b32 %r1, %r1;", "frobnicate"),
        ("add.bf16x2 %r1, %r1, %r1;", "bf16"),
        ("fma.rn.bf16 %r1, %r1, %r1, %r1;", "bf16"),
        ("mov.bf16x2 %r1, %r1;", "bf16"),
        ("cvt.bf16.f32 %r1, %f1;", ".rn or .rz"),
        ("cvt.rp.bf16x2.f32 %r1, %f1, %f1;", ".rn or .rz"),
        ("cvt.rni.bf16x2.f32 %r1, %f1, %f1;", ".rn or .rz"),
        ("cvt.rn.ftz.bf16x2.f32 %r1, %f1, %f1;", ".rn or .rz"),
        ("cvt.rn.sat.bf16x2.f32 %r1, %f1, %f1;", ".rn or .rz"),
        ("cvt.rn.bf16.f16 %r1, %r1;", "from .f32"),
        ("cvt.f32.bf16 %f1, %r1;", "from .f32"),
        (
            "mma.sync.aligned.m16n8k16.row.col.bf16.bf16.bf16.bf16 {%r1}, {%r1}, {%r1}, {%r1};",
            "mma",
        ),
        (
            "mma.sync.aligned.m16n8k16.row.col.f32.bf16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};",
            "mma",
        ),
        (
            "mma.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};",
            "mma of these types",
        ),
        (
            "mma.sync.aligned.m16n8k8.row.col.s32.u8.u8.s32 {%r1}, {%r1}, {%r1}, {%r1};",
            "mma of these types",
        ),
        (
            "mma.sync.aligned.m16n8k32.row.col.s32.u8.f16.s32 {%r1}, {%r1}, {%r1}, {%r1};",
            "mma of these types",
        ),
        ("ld.global.weird.b32 %r1, [%d1];", "weird"),
        ("add.s32 %r1, %r1, %nobody;", "nobody"),
        ("bra $NOWHERE;", "$NOWHERE"),
        ("mov.u32 %r1, %clusterid.x;", "clusterid"),
        ("shfl.bfly.b32 %r1, %r1, 1, 31;", "sync"),
    ] {
        let registers = ".reg .b32 %r<2>; .reg .f32 %f<2>; .reg .b64 %d<2>;";
        let error = Module::parse(&in_kernel(&format!("{registers}\n{instruction}")))
            .expect_err(instruction);
        assert_eq!(error.line, 6, "{error}");
        let shown = error.to_string();
        assert!(shown.contains(named) && shown.contains("line 6"), "{shown}");
        assert!(
            shown.contains(instruction.split(' ').next().unwrap()),
            "{shown}"
        );
    }
}
