//! Loads, stores and atomics of every width, in every space.

use crate::harness::{Random, launch, module, per_thread, words};

#[test]
fn vectors() {
    // Each thread moves 16 bytes of its 32, in another cut each time.
    let cuts = [
        (
            "ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%d1];",
            "st.global.v4.b32 [%d2], {%r1, %r2, %r3, %r4};",
        ),
        (
            "ld.global.nc.v2.b64 {%d3, %d4}, [%d1];",
            "st.global.v2.b64 [%d2], {%d3, %d4};",
        ),
        (
            "ld.global.v2.u32 {%r1, %r2}, [%d1]; ld.global.b64 %d3, [%d1+8];",
            "st.global.v2.b32 [%d2], {%r1, %r2}; st.global.b64 [%d2+8], %d3;",
        ),
        (
            "ld.global.nc.L1::no_allocate.v4.b32 {%r1, %r2, %r3, %r4}, [%d1];",
            "st.v4.b32 [%d2], {%r1, %r2, %r3, %r4};",
        ),
        (
            "ld.v4.f32 {%f1, %f2, %f3, %f4}, [%d1];",
            "st.global.v4.f32 [%d2], {%f1, %f2, %f3, %f4};",
        ),
    ];
    let mut random = Random(1);
    let input: Vec<u8> = (0..64 * 32).map(|_| random.next() as u8).collect();
    for (load, store) in cuts {
        let body = format!(
            "mul.wide.u32 %d5, tid, 32;
            add.s64 %d1, input, %d5;
            add.s64 %d2, output, %d5;
            add.s64 %d2, %d2, 16;
            {load}
            {store}"
        );
        let output = launch(
            &module("", &body),
            [1, 1, 1],
            [64, 1, 1],
            0,
            &input,
            input.len(),
        );
        for (from, to) in input.chunks(32).zip(output.chunks(32)) {
            assert_eq!(
                (&to[..16], &to[16..]),
                (&[0; 16][..], &from[..16]),
                "{load} {store}"
            );
        }
    }
}

#[test]
fn vectors_of_halves() {
    let body = "mul.wide.u32 %d5, tid, 8;
        add.s64 %d1, input, %d5;
        add.s64 %d2, output, %d5;
        ld.global.v4.b16 {%h1, %h2, %h3, %h4}, [%d1];
        st.global.v2.b16 [%d2], {%h4, %h3};
        st.global.b16 [%d2+4], %h2;
        st.global.b16 [%d2+6], %h1;";
    let input: Vec<u8> = (0..=255).collect();
    let output = launch(&module("", body), [1, 1, 1], [32, 1, 1], 0, &input, 256);
    for (from, to) in input.chunks(8).zip(output.chunks(8)) {
        assert_eq!(
            to,
            [
                from[6], from[7], from[4], from[5], from[2], from[3], from[0], from[1]
            ]
        );
    }
}

#[test]
fn narrow_loads_extend() {
    for (ty, bytes, signed) in [
        ("u8", 1, false),
        ("s8", 1, true),
        ("b8", 1, false),
        ("u16", 2, false),
        ("s16", 2, true),
    ] {
        let body = format!(
            "mul.wide.u32 %d1, tid, {bytes};
            add.s64 %d1, input, %d1;
            ld.global.{ty} %r1, [%d1];
            mul.wide.u32 %d2, tid, 4;
            add.s64 %d2, output, %d2;
            st.global.u32 [%d2], %r1;"
        );
        let input: Vec<u8> = (0..64).map(|i| (i * 37 + 100) as u8).collect();
        let threads = 64 / bytes;
        let output = launch(
            &module("", &body),
            [1, 1, 1],
            [threads as u32, 1, 1],
            0,
            &input,
            threads * 4,
        );
        for (from, found) in input.chunks(bytes).zip(words(&output)) {
            let value = from.iter().rev().fold(0u32, |v, b| v << 8 | u32::from(*b));
            let shift = 32 - 8 * bytes as u32;
            assert_eq!(
                found,
                if signed {
                    ((value << shift) as i32 >> shift) as u32
                } else {
                    value
                },
                "{ty}"
            );
        }
    }
}

/// A stack frame as LLVM makes it, used through generic and local addresses.
#[test]
fn local_memory() {
    let body = ".local .align 8 .b8 __local_depot0[40];
        .reg .b64 %SP, %SPL;
        mov.b64 %SPL, __local_depot0;
        cvta.local.u64 %SP, %SPL;
        add.u64 %d1, %SP, 8;
        add.u64 %d2, %SPL, 8;
        mov.u32 %r2, 0;
        FILL:
        mul.wide.u32 %d3, %r2, 4;
        add.s64 %d4, %d1, %d3;
        mad.lo.u32 %r3, %r2, 1000, tid;
        st.b32 [%d4], %r3;
        add.u32 %r2, %r2, 1;
        setp.lt.u32 p, %r2, 8;
        @p bra FILL;
        and.b32 %r4, tid, 7;
        mul.wide.u32 %d3, %r4, 4;
        add.s64 %d4, %d2, %d3;
        ld.local.b32 %r1, [%d4];";
    for (t, found) in per_thread("", body, 64).into_iter().enumerate() {
        assert_eq!(found as usize, t % 8 * 1000 + t);
    }
}

/// Static variables and the dynamic rest lie next to each other, and generic addresses reach both.
#[test]
fn shared_memory() {
    let outside = ".extern .shared .align 16 .b8 dynamic[];\n.shared .align 8 .b8 one[256];\n.shared .align 4 .b8 two[256];";
    let body = "shl.b32 %r2, tid, 2;
        mov.u32 %r3, one; add.u32 %r3, %r3, %r2; st.shared.u32 [%r3], tid;
        mov.u64 %d1, two; cvta.shared.u64 %d1, %d1; cvt.u64.u32 %d2, %r2; add.s64 %d1, %d1, %d2;
        add.u32 %r4, tid, 100; st.u32 [%d1], %r4;
        mov.u64 %d3, dynamic; add.s64 %d3, %d3, %d2; add.u32 %r5, tid, 1000; st.shared.u32 [%d3], %r5;
        bar.sync 0;
        xor.b32 %r6, %r2, 252;
        mov.u32 %r3, one; add.u32 %r3, %r3, %r6; ld.shared.u32 %r7, [%r3];
        mov.u32 %r3, two; add.u32 %r3, %r3, %r6; ld.shared.u32 %r8, [%r3];
        mov.u32 %r3, dynamic; add.u32 %r3, %r3, %r6; ld.shared.u32 %r9, [%r3];
        add.u32 %r1, %r7, %r8; add.u32 %r1, %r1, %r9;
        mul.wide.u32 %d4, tid, 4; add.s64 %d4, output, %d4; st.global.u32 [%d4], %r1;";
    let output = launch(&module(outside, body), [1, 1, 1], [64, 1, 1], 256, &[], 256);
    for (t, found) in words(&output).into_iter().enumerate() {
        assert_eq!(found as usize, 1100 + 3 * (t ^ 63));
    }
}

#[test]
fn constants_and_variables() {
    let outside =
        ".const .align 4 .b8 table[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0};
.global .align 4 .u32 factors[4] = {10, 20, 30, 40};
.visible .global .align 8 .u64 where_factors = factors;";
    let body = "and.b32 %r2, tid, 3;
        mul.wide.u32 %d1, %r2, 4;
        mov.u64 %d2, table;
        add.s64 %d2, %d2, %d1;
        ld.const.u32 %r3, [%d2];
        ld.global.u64 %d3, [where_factors];
        add.s64 %d3, %d3, %d1;
        ld.global.u32 %r4, [%d3];
        ld.global.u32 %r5, [factors+4];
        mad.lo.u32 %r1, %r3, %r4, %r5;";
    for (t, found) in per_thread(outside, body, 32).into_iter().enumerate() {
        let i = t as u32 % 4;
        assert_eq!(found, (i + 1) * 10 * (i + 1) + 20);
    }
}

/// Every thread of four blocks applies its own number to one word; what it got back goes to `output[1 + rank]`.
fn atomics(instruction: &str, initial: u32, space: &str) -> (u32, Vec<u32>) {
    let (blocks, address) = if space == "shared" {
        (1, "[cell]")
    } else {
        (4, "[output]")
    };
    let body = format!(
        "mov.u32 %r5, %ntid.x;
        mad.lo.u32 %r2, block, %r5, tid;
        setp.ne.u32 p, tid, 0;
        @p bra READY;
        st.shared.u32 [cell], {initial};
        READY:
        bar.sync 0;
        atom.{space}.{instruction};
        bar.sync 0;
        mul.wide.u32 %d1, %r2, 4;
        add.s64 %d1, output, %d1;
        st.global.u32 [%d1+4], %r1;
        setp.ne.u32 p, tid, 0;
        @p bra DONE;
        ld.shared.u32 %r3, [cell];
        st.global.u32 [%d1+1028], %r3;
        DONE:"
    )
    .replace("ADDRESS", address);
    let text = module(".shared .align 4 .b32 cell;", &body);
    let module = ptx_emulator::Module::parse(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    let device = ptx_emulator::Device::default();
    let out = device.alloc(4096).unwrap();
    device.fill(out, 0, 4096).unwrap();
    device.write(out, &initial.to_le_bytes()).unwrap();
    let params: Vec<u8> = [out, out].iter().flat_map(|p| p.to_le_bytes()).collect();
    let options = ptx_emulator::LaunchOptions {
        seed: 3,
        ..Default::default()
    };
    device
        .launch(
            &module,
            "kernel",
            [blocks, 1, 1],
            [64, 1, 1],
            0,
            &params,
            &options,
        )
        .unwrap_or_else(|e| panic!("{e}\n{text}"));
    let mut bytes = vec![0; 4096];
    device.read(out, &mut bytes).unwrap();
    let all = words(&bytes);
    let last = if space == "shared" { all[257] } else { all[0] };
    (last, all[1..=64 * blocks as usize].to_vec())
}

#[test]
fn atomics_combine_all_threads() {
    for (space, n) in [("shared", 64u32), ("global", 256)] {
        let ranks = || 0..n;
        for (op, initial, right) in [
            ("add.u32", 5, 5 + ranks().sum::<u32>()),
            ("max.u32", 17, n - 1),
            ("min.s32", 17, 0),
            ("or.b32", 1 << 20, ranks().fold(1 << 20, |a, b| a | b)),
            ("xor.b32", 9, ranks().fold(9, |a, b| a ^ b)),
            ("and.b32", u32::MAX, 0),
        ] {
            let (last, _) = atomics(&format!("{op} %r1, ADDRESS, %r2"), initial, space);
            assert_eq!(last, right, "{op} in {space} memory");
        }
    }
}

/// What the threads get back is what the others left: a count hands out each number once.
#[test]
fn atomics_return_what_was_there() {
    for (space, n) in [("shared", 64u32), ("global", 256)] {
        let (last, mut got) = atomics("add.u32 %r1, ADDRESS, 1", 100, space);
        got.sort_unstable();
        assert_eq!((last, got), (100 + n, (100..100 + n).collect()));
        // Exchanges pass the numbers on: the first value and all but one of the threads' come back.
        let (last, mut got) = atomics("exch.b32 %r1, ADDRESS, %r2", 9999, space);
        got.push(last);
        got.sort_unstable();
        assert_eq!(got, (0..n).chain([9999]).collect::<Vec<_>>());
        // One thread finds 7.
        let (last, got) = atomics("cas.b32 %r1, ADDRESS, 7, 8", 7, space);
        assert_eq!((last, got.iter().filter(|g| **g == 7).count()), (8, 1));
        // Counts up to 9 and starts over; counts down and starts over.
        let (last, got) = atomics("inc.u32 %r1, ADDRESS, 9", 0, space);
        assert_eq!(last, n % 10);
        assert_eq!(got.iter().filter(|g| **g == 9).count() as u32, n / 10);
        let (last, _) = atomics("dec.u32 %r1, ADDRESS, 9", 0, space);
        assert_eq!(last, (10 - n % 10) % 10);
    }
}

#[test]
fn atomics_on_floats() {
    let (last, _) = atomics("add.f32 %r1, ADDRESS, 0f3F000000", 1f32.to_bits(), "global");
    assert_eq!(f32::from_bits(last), 129.0);
    // Halves: 1 and 0.5 to two sums of a pair.
    let (last, _) = atomics("add.noftz.f16x2 %r1, ADDRESS, 0x38003C00", 0, "shared");
    assert_eq!(last, 0x5000_5400);
}

#[test]
fn reductions_return_nothing() {
    let body = "red.global.add.u32 [output], 3;
        red.global.max.u32 [output+4], tid;
        red.relaxed.gpu.global.add.f32 [output+8], 0f3F800000;
        red.add.u64 [output+16], 4294967296;";
    let bytes = launch(&module("", body), [5, 1, 1], [64, 1, 1], 0, &[], 24);
    assert_eq!(words(&bytes), [960, 63, 320f32.to_bits(), 0, 0, 320]);
}

#[test]
fn asynchronous_copies() {
    // Two groups in flight: the first has landed when one is still out.
    let body = "shl.b32 %r2, tid, 4;
        mov.u32 %r3, tile;
        add.u32 %r4, %r3, %r2;
        mul.wide.u32 %d1, tid, 16;
        add.s64 %d2, input, %d1;
        cp.async.cg.shared.global [%r4], [%d2], 16;
        cp.async.commit_group;
        cp.async.ca.shared.global [%r4+1024], [%d2+1024], 8, 4;
        cp.async.ca.shared.global [%r4+1032], [%d2+1032], 4;
        cp.async.ca.shared.global [%r4+1036], [%d2+1036], 4, 0;
        cp.async.commit_group;
        cp.async.wait_group 1;
        bar.sync 0;
        xor.b32 %r5, %r2, 16;
        add.u32 %r6, %r3, %r5;
        ld.shared.v4.u32 {%r10, %r11, %r12, %r13}, [%r6];
        cp.async.wait_all;
        bar.sync 0;
        ld.shared.v4.u32 {%r20, %r21, %r22, %r23}, [%r6+1024];
        add.s64 %d3, output, %d1;
        st.global.v4.u32 [%d3], {%r10, %r11, %r12, %r13};
        st.global.v4.u32 [%d3+1024], {%r20, %r21, %r22, %r23};";
    let mut random = Random(2);
    let input: Vec<u8> = (0..2048).map(|_| random.next() as u8).collect();
    let output = launch(
        &module(".shared .align 16 .b8 tile[2048];", body),
        [1, 1, 1],
        [64, 1, 1],
        0,
        &input,
        2048,
    );
    for t in 0..64 {
        let from = (t ^ 1) * 16;
        assert_eq!(output[t * 16..][..16], input[from..][..16]);
        // Bytes that the source does not have are zero.
        let mut right = [0; 16];
        right[..4].copy_from_slice(&input[1024 + from..][..4]);
        right[8..12].copy_from_slice(&input[1032 + from..][..4]);
        assert_eq!(output[1024 + t * 16..][..16], right);
    }
}
