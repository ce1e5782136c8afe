//! Text that is not PTX, or not quite: an error or a working kernel, never a panic, a hang or a huge allocation.

use ptx_emulator::{Device, DeviceOptions, LaunchOptions, Module};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

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

/// What a text may cost at once: the variables that it may declare, twice, and some room.
const MEMORY_LIMIT: usize = 192 << 20;

/// The system's allocator, counting what each thread holds.
struct Counting;

thread_local! {
    static HELD: Cell<usize> = const { Cell::new(0) };
    static PEAK: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call goes to the system's allocator unchanged; the counters are plain cells without destructors, so that
// they neither allocate nor are gone when a thread ends.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        HELD.set(HELD.get().wrapping_add(layout.size()));
        PEAK.set(PEAK.get().max(HELD.get()));
        // SAFETY: the caller's promises are those that the system's allocator asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        HELD.set(HELD.get().saturating_sub(layout.size()));
        // SAFETY: `pointer` came from `alloc` above, that is, from the system's allocator, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// SplitMix64.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }
}

/// Parses a text and, if that goes well, runs its kernels: whether it was accepted.
fn feed(text: &str) -> bool {
    let module = match Module::parse(text) {
        Ok(module) => module,
        Err(error) => {
            let shown = error.to_string();
            assert!(
                !shown.contains('\n') && shown.len() < 2000,
                "an error of one short line: {shown}"
            );
            assert!(error.line as usize <= text.lines().count() + 1, "{shown}");
            return false;
        }
    };
    let device = Device::new(DeviceOptions { memory: 128 << 20 });
    let Ok(buffer) = device.alloc(4096) else {
        return true;
    };
    for entry in module.entries() {
        let params: Vec<u8> = buffer
            .to_le_bytes()
            .into_iter()
            .cycle()
            .take(entry.param_bytes())
            .collect();
        let threads = entry.max_threads.unwrap_or(32).min(64);
        let options = LaunchOptions {
            step_limit: 2000,
            ..LaunchOptions::default()
        };
        // One block, so that it runs, and allocates, on this thread. Whatever it answers: it answers.
        let _ = device.launch(
            &module,
            &entry.name,
            [1, 1, 1],
            [threads, 1, 1],
            1024,
            &params,
            &options,
        );
    }
    true
}

/// Feeds all texts on a thread of its own; a text that takes too long, panics or asks for too much memory fails the test.
fn feed_all(texts: impl Iterator<Item = String> + Send + 'static) -> (usize, usize) {
    let (begin, begun) = channel();
    let worker = std::thread::spawn(move || {
        let (mut accepted, mut refused) = (0, 0);
        for text in texts {
            begin.send(text.clone()).unwrap();
            let before = HELD.get();
            PEAK.set(before);
            *(if feed(&text) {
                &mut accepted
            } else {
                &mut refused
            }) += 1;
            let peak = PEAK.get().saturating_sub(before);
            assert!(peak < MEMORY_LIMIT, "{peak} bytes were allocated");
        }
        (accepted, refused)
    });
    let mut last = String::new();
    loop {
        match begun.recv_timeout(Duration::from_secs(20)) {
            Ok(text) => last = text,
            Err(RecvTimeoutError::Timeout) => panic!("20 seconds over this text:\n{last}"),
            Err(RecvTimeoutError::Disconnected) => break,
        }
    }
    worker
        .join()
        .unwrap_or_else(|_| panic!("the text was:\n{last}"))
}

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

#[test]
fn texts_that_end_early() {
    for (name, text) in CORPUS {
        let step = if text.len() < 8000 { 1 } else { 7 };
        let cuts = (0..text.len())
            .step_by(step)
            .filter(|end| text.is_char_boundary(*end));
        let texts: Vec<String> = cuts.map(|end| text[..end].to_owned()).collect();
        let all = texts.len();
        let (_, refused) = feed_all(texts.into_iter());
        // Only cuts outside a kernel leave a text that is whole.
        assert!(refused * 10 > all * 8, "{name}: {refused} of {all} refused");
    }
}

/// Changes one line as an editor, a bad disk or a newer compiler would.
fn mutate_line(line: &str, other: &str, random: &mut Random) -> String {
    const NUMBERS: [&str; 12] = [
        "0",
        "-1",
        "1",
        "16",
        "4294967295",
        "4294967296",
        "18446744073709551615",
        "99999999999999999999",
        "0x",
        "0f3F",
        "1e9",
        "2147483648",
    ];
    const WORDS: [&str; 20] = [
        ".u8",
        ".f16x2",
        ".v4",
        ".global",
        ".shared",
        ".b64",
        "{",
        "}",
        "[",
        "]",
        ";",
        ",",
        "%p1",
        "%r999999",
        "@%p1",
        ".sat",
        "$L__BB0_1:",
        "/*",
        "\"",
        ".param .b8 x[4294967295];",
    ];
    let words: Vec<&str> = line
        .split_inclusive([' ', '\t', ',', '[', ']', '.', ';', '%'])
        .collect();
    let at = random.below(words.len());
    let changed = |new: &[&str], skip: usize| {
        [&words[..at], new, &words[(at + skip).min(words.len())..]]
            .concat()
            .concat()
    };
    match random.below(10) {
        0 => changed(&[], 1),
        1 => changed(&[WORDS[random.below(WORDS.len())]], 1),
        2 => changed(&[WORDS[random.below(WORDS.len())]], 0),
        3 => changed(&[NUMBERS[random.below(NUMBERS.len())]], 1),
        4 => changed(&[words.get(at).copied().unwrap_or("x"); 2], 1),
        5 => other.to_owned(),
        6 => format!("{line}\n{other}"),
        7 => String::new(),
        _ => {
            let mut bytes = line.as_bytes().to_vec();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                if let Some(byte) = bytes.get_mut(at) {
                    *byte = (random.next() % 127) as u8;
                }
            }
            String::from_utf8_lossy(&bytes).into_owned()
        }
    }
}

#[test]
fn lines_that_changed() {
    for (i, (name, text)) in CORPUS.into_iter().enumerate() {
        let mut random = Random(i as u64);
        let texts = (0..800).map(move |_| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            let (at, other) = (random.below(lines.len()), random.below(lines.len()));
            lines[at] = mutate_line(&lines[at], &lines[other].clone(), &mut random);
            lines.join("\n")
        });
        let (accepted, refused) = feed_all(texts);
        // Both happen: a mutation may be harmless, and most are not.
        assert!(
            accepted > 20 && refused > 200,
            "{name}: {accepted} accepted, {refused} refused"
        );
    }
}

#[test]
fn bytes_at_random() {
    let mut random = Random(99);
    let texts: Vec<String> = (0..3000)
        .map(|i| {
            let len = random.below(400);
            let alphabet: &[u8] = match i % 3 {
                0 => b".,;:{}[]()<>@!|%$_=+-\"/*\\0123456789abcdefxU \n\t",
                1 => b".reg .b32 %r<9>;{}()[],@ bra ret; ld.global.entry .func .param x0",
                _ => &[],
            };
            let byte = |r: &mut Random| {
                if alphabet.is_empty() {
                    r.next() as u8
                } else {
                    alphabet[r.below(alphabet.len())]
                }
            };
            let bytes: Vec<u8> = (0..len).map(|_| byte(&mut random)).collect();
            let begin = if i % 2 == 0 {
                ".version 8.0\n.target sm_80\n.address_size 64\n"
            } else {
                ""
            };
            format!("{begin}{}", String::from_utf8_lossy(&bytes))
        })
        .collect();
    let (_, refused) = feed_all(texts.into_iter());
    assert!(refused > 2500, "{refused} refused");
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
    for text in texts {
        let (accepted, _) = feed_all(std::iter::once(text.clone()));
        assert_eq!(accepted, 0, "accepted: {}", &text[..text.len().min(300)]);
    }
}

/// Names of registers may be declared by the million: those that are used count.
#[test]
fn registers_that_are_not_used_cost_nothing() {
    for registers in [
        ".reg .b32 %r<4294967295>;",
        ".reg .b64 %a<1000000>, %b<1000000>; .reg .pred %p<18446744073709551615>;",
    ] {
        let before = HELD.get();
        PEAK.set(before);
        assert!(feed(&in_kernel(registers)));
        assert!(
            PEAK.get() - before < 1 << 20,
            "{} bytes for {registers}",
            PEAK.get() - before
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
        "/*".repeat(deep),
        "a".repeat(1 << 20),
        format!(".version 8.0\n.target sm_80{}", ", debug".repeat(deep)),
    ];
    let all = texts.len();
    let (accepted, refused) = feed_all(texts.into_iter());
    assert_eq!(accepted + refused, all);
    assert!(accepted <= 2, "{accepted} accepted");
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
        ("cvt.rn.bf16.f32 %r1, %f1;", "bf16"),
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
