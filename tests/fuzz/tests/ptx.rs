//! Texts that a mutation would hardly find: cut anywhere, of random characters, with absurd sizes and depths.

use halfgnn_fuzz::{Report, Target, allocation, check, ptx, replay};

#[global_allocator]
static ALLOCATOR: allocation::Counting = allocation::Counting;

fn feed(texts: impl IntoIterator<Item = String>) -> Report {
    let target = Target::named("launch").expect("a target");
    let inputs = texts.into_iter().map(String::into_bytes).collect();
    replay(target, inputs).unwrap_or_else(|finding| panic!("{finding:?}"))
}

#[test]
fn texts_that_end_early() {
    for (path, bytes) in Target::named("launch").expect("a target").corpus() {
        let text = String::from_utf8(bytes).expect("a text");
        let step = if text.len() < 8000 { 1 } else { 13 };
        let cuts = (0..text.len())
            .step_by(step)
            .filter(|end| text.is_char_boundary(*end));
        let report = feed(cuts.map(|end| text[..end].to_owned()));
        // Only cuts outside a kernel leave a text that is whole.
        assert!(
            report.refused * 10 > report.executions() * 8,
            "{}: {report:?}",
            path.display()
        );
    }
}

#[test]
fn characters_at_random() {
    let mut random = fastrand::Rng::with_seed(99);
    let alphabets: [&[u8]; 2] = [
        b".,;:{}[]()<>@!|%$_=+-\"/*\\0123456789abcdefxU \n\t",
        b".reg .b32 %r<9>;{}()[],@ bra ret; ld.global.entry .func .param x0",
    ];
    let texts: Vec<String> = (0..5000)
        .map(|i| {
            let begin = [".version 8.0\n.target sm_80\n.address_size 64\n", ""][i % 2];
            let byte = |_| match alphabets.get(i % 3) {
                Some(alphabet) => alphabet[random.usize(..alphabet.len())],
                None => random.u8(..),
            };
            let bytes: Vec<u8> = (0..i % 400).map(byte).collect();
            format!("{begin}{}", String::from_utf8_lossy(&bytes))
        })
        .collect();
    let report = feed(texts);
    assert!(report.refused > 4500, "{report:?}");
}

fn in_kernel(body: &str) -> String {
    format!(
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() {{\n{body}\nret;\n}}\n"
    )
}

#[test]
fn absurd_sizes() {
    let at_top = |text: &str| format!(".version 8.0\n.target sm_80\n.address_size 64\n{text}\n");
    let texts = vec![
        at_top(".global .b8 x[99999999999];"),
        at_top(".global .b64 x[2305843009213693952];"),
        at_top(".global .b8 x[4294967295][4294967295];"),
        at_top(".shared .align 65536 .b8 x[4294967295];"),
        at_top(".global .align 4294967296 .b8 x[4];"),
        at_top(".const .b8 x[18446744073709551615] = {1};"),
        at_top(".visible .entry k(.param .b8 x[4294967295]) { ret; }"),
        at_top(
            &(0..200)
                .map(|i| format!(".global .b8 x{i}[33554432];\n"))
                .collect::<String>(),
        ),
        in_kernel(".local .b8 frame[1099511627776];"),
        in_kernel(
            ".local .align 8 .b8 a[524288]; .local .align 8 .b8 b[524288]; .local .align 8 .b8 c[524288];",
        ),
        in_kernel(".reg .b32 r; mov.u32 r, 99999999999999999999999999;"),
        in_kernel(".loc 99999999999 1 1"),
    ];
    let all = texts.len() as u64;
    assert_eq!(feed(texts).refused, all);
}

/// Names of registers may be declared by the million: those that are used count.
#[test]
fn registers_that_are_not_used_cost_nothing() {
    for registers in [
        ".reg .b32 %r<4294967295>;",
        ".reg .b64 %a<1000000>, %b<1000000>; .reg .pred %p<18446744073709551615>;",
    ] {
        let target = Target {
            memory: 1 << 20,
            run: ptx::parse,
            ..*Target::named("ptx").expect("a target")
        };
        let answer = check(&target, in_kernel(registers).as_bytes());
        assert!(
            matches!(answer, Ok(halfgnn_fuzz::Answer::Accepted(_))),
            "{registers}: {answer:?}"
        );
    }
}

#[test]
fn nesting_without_an_end() {
    let deep = 200_000;
    let texts = vec![
        in_kernel(&"{".repeat(deep)),
        in_kernel(&format!("{}{}", "{".repeat(deep), "}".repeat(deep))),
        in_kernel(&format!("mov.b32 r, {};", "{".repeat(deep))),
        in_kernel(&format!("ld.global.b32 r, {};", "[".repeat(deep))),
        in_kernel(&format!("add.s32 r, {}1;", "-".repeat(deep))),
        in_kernel(&format!("add.s32 r, {}1;", "(".repeat(deep))),
        in_kernel(&format!("add{} r, 1;", ".s32".repeat(deep))),
        in_kernel(&"$L: ".repeat(deep)),
        in_kernel(&format!(".shared .align 16 {};", "M".repeat(deep))),
        in_kernel(&format!("mov.b32 {}, 1;", "r".repeat(deep))),
        "/*".repeat(deep),
        "a".repeat(1 << 20),
        format!(".version 8.0\n.target sm_80{}", ", debug".repeat(deep)),
    ];
    let report = feed(texts);
    assert!(report.accepted <= 2, "{report:?}");
}
