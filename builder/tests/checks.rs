//! Every rule of `checks`, broken on purpose: a check that never fired checks nothing.

use halfgnn_builder::checks::{Fault, Rules, check};
use halfgnn_builder::ptx::Module;

fn faults(ptx: &str, exports: &[&str], rules: Rules) -> Vec<Fault> {
    let exports: Vec<String> = exports.iter().map(ToString::to_string).collect();
    let module = Module::parse(ptx).expect("it is PTX");
    check(&module, &exports, |_| rules)
}

/// An entry around `body`, and the line on which the body's first line stands.
fn entry(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry spmm(\n.param .u64 p\n)\n{{ .reg .pred %p<9>; .reg .b32 %r<19>; .reg .b64 %rd<9>;\n{body}\nret;\n}}\n.file 1 \"kernels-gpu/src/spmm.rs\"\n"
    )
}
const FIRST_LINE: usize = 8;

/// The only fault of an entry with this body.
fn fault(body: &str, rules: Rules) -> Fault {
    let found = faults(&entry(body), &["spmm"], rules);
    assert_eq!(found.len(), 1, "{found:?}");
    found.into_iter().next().expect("one fault")
}

#[test]
fn a_clean_entry_passes() {
    let body = ".reg .b32 %r<4>;\n.loc 1 9 3 // spmm.rs:9:3\nld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];\nbar.sync 0;";
    assert_eq!(faults(&entry(body), &["spmm"], Rules::default()), []);
}

#[test]
fn an_export_that_is_missing() {
    let ptx = entry("");
    let found = faults(&ptx, &["spmm", "sddmm"], Rules::default());
    assert_eq!(found.len(), 1);
    assert_eq!(
        found[0].to_string(),
        "sddmm: the crate exports it, but it is not in the PTX"
    );
    let hidden = format!("{ptx}.global .align 8 .b8 CONTRACT[8];\n");
    assert_eq!(
        faults(&hidden, &["CONTRACT"], Rules::default()).len(),
        1,
        "the host cannot find it"
    );
    let visible = format!("{ptx}.visible .global .align 8 .b8 CONTRACT[8];\n");
    assert_eq!(faults(&visible, &["CONTRACT"], Rules::default()), []);
}

#[test]
fn a_call_of_an_entry() {
    let ptx = entry(".loc 1 9 3 // spmm.rs:9:3\ncall.uni carry, (%rd1);")
        + &entry("").replace("spmm(", "carry(");
    let found = faults(
        &ptx,
        &[],
        Rules {
            calls: true,
            ..Rules::default()
        },
    );
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].to_string().contains("spmm: calls the entry carry"),
        "{}",
        found[0]
    );
    assert_eq!(found[0].line, Some(FIRST_LINE + 1));
    assert_eq!(
        found[0].source.as_deref(),
        Some("kernels-gpu/src/spmm.rs:9:3")
    );
}

#[test]
fn a_call_of_a_function_and_of_nothing() {
    let function = ".func helper()\n{\nret;\n}\n";
    let call = entry("call.uni helper, ();");
    let rules = Rules {
        calls: true,
        ..Rules::default()
    };
    let message = |fault: &Fault| fault.message.clone();
    let defined = faults(&format!("{function}{call}"), &[], Rules::default());
    assert!(
        message(&defined[0]).contains("calls helper; mark that function #[inline(always)]"),
        "{defined:?}"
    );
    assert_eq!(faults(&format!("{function}{call}"), &[], rules), []);
    let external = faults(&format!(".extern .func helper\n()\n;\n{call}"), &[], rules);
    assert!(
        message(&external[0]).contains("helper, which is defined nowhere"),
        "{external:?}"
    );
    let pointer = fault("call (%r1), %rd7, (%r2), proto;", rules);
    assert!(message(&pointer).contains("function pointer"), "{pointer}");
}

#[test]
fn a_panic_path() {
    let call = "call.uni _ZN4core9panicking18panic_bounds_check17h0123456789abcdefE, (%rd1);";
    let found = fault(
        call,
        Rules {
            calls: true,
            ..Rules::default()
        },
    );
    assert!(
        found
            .message
            .contains("can panic: it calls core::panicking::panic_bounds_check"),
        "{found}"
    );
}

#[test]
fn local_memory() {
    let body = ".local .align 4 .b8 \t__local_depot0[256];\n.loc 1 9 3 // spmm.rs:9:3\nst.local.b32 [%rd1], 0;";
    let found = fault(body, Rules::default());
    assert!(
        found.message.contains("keeps 256 bytes in local memory"),
        "{found}"
    );
    assert_eq!(found.line, Some(FIRST_LINE + 2));
    assert_eq!(
        faults(
            &entry(body),
            &[],
            Rules {
                local: true,
                ..Rules::default()
            }
        ),
        []
    );
}

#[test]
fn double_precision() {
    let body = "cvt.f64.f32 %rd1, %r1;\nmul.rn.f64 %rd2, %rd1, %rd1;";
    let found = fault(body, Rules::default());
    assert!(
        found.message.contains("double precision (cvt.f64.f32)"),
        "{found}"
    );
    assert_eq!(
        faults(
            &entry(body),
            &[],
            Rules {
                f64: true,
                ..Rules::default()
            }
        ),
        []
    );
}

/// A row's offset that was multiplied in 32 bits.
#[test]
fn an_address_of_a_product_of_32_bits() {
    let offset = "mul.lo.s32 %r3, %r1, %r2;\ncvt.u64.u32 %rd2, %r3;\nadd.s64 %rd3, %rd1, %rd2;";
    let body = format!("{offset}\nld.global.b32 %r4, [%rd3];");
    let found = fault(&body, Rules::default());
    assert!(
        found
            .message
            .contains("makes addresses of 1 products of 32 bits where checks.narrow-products allows 0 (PTX lines 8)"),
        "{found}"
    );
    assert_eq!(found.line, Some(FIRST_LINE));
    let one = Rules {
        narrow_products: 1,
        ..Rules::default()
    };
    assert_eq!(faults(&entry(&body), &[], one), []);
    // One more than declared, whichever.
    let two = format!("{body}\n{body}").replacen("%r3", "%r9", 2);
    assert!(
        fault(&two, one)
            .message
            .contains("2 products of 32 bits where checks.narrow-products allows 1")
    );
    let wide = body.replace(offset, "mad.wide.u32 %rd3, %r1, %r2, %rd1;");
    assert_eq!(faults(&entry(&wide), &[], Rules::default()), []);
}

#[test]
fn counts_other_than_declared() {
    let body = "bar.sync 0;\nshfl.sync.bfly.b32 %r1, %r2, 1, 31, -1;\nbar.sync 0;\nbarrier.sync 1;\nmembar.gl;";
    let rules = |barriers, shuffles| Rules {
        barriers: Some(barriers),
        shuffles: Some(shuffles),
        ..Rules::default()
    };
    assert_eq!(faults(&entry(body), &[], rules(3, 1)), []);
    assert!(
        fault(body, rules(2, 1))
            .message
            .contains("has 3 barriers where checks.barriers declares 2")
    );
    assert!(
        fault(body, rules(3, 4))
            .message
            .contains("has 1 shuffles where checks.shuffles declares 4")
    );
}

/// What LLVM really makes of a barrier in unmarked inline assembly between two branches on one condition.
#[test]
fn a_barrier_that_was_copied_into_both_arms() {
    let ptx = include_str!("fixtures/duplicated_barrier.ptx");
    let found = faults(ptx, &["halves"], Rules::default());
    assert_eq!(found.len(), 1, "{found:?}");
    let message = found[0].to_string();
    assert!(
        message.contains("halves: bar.sync was copied into two arms"),
        "{message}"
    );
    assert!(message.contains("assembly/src/lib.rs:"), "{message}");
    let line = found[0].line.expect("a line");
    assert!(
        ptx.lines()
            .nth(line - 1)
            .is_some_and(|text| text.contains("bar.sync")),
        "line {line}"
    );
    assert_eq!(
        faults(
            ptx,
            &["halves"],
            Rules {
                twins: true,
                ..Rules::default()
            }
        ),
        []
    );
}
