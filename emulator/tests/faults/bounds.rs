//! Accesses outside an allocation, misaligned, or after it was freed.

use crate::harness::{Case, Report, State};
use ptx_emulator::FaultKind::{
    InvalidOperand, Misaligned, OutOfBounds, RaceInBlock, UninitialisedRead, UseAfterFree,
};

/// Thread 5 of block 1 does it.
fn actor(instruction: &str) -> String {
    format!(
        "setp.ne.u32 p, rank, 69;
        @p bra DONE;
        {instruction} //@it
        DONE:"
    )
}

fn check(report: &Report, offset: i64, bytes: u32, name: &str) {
    report
        .at("it")
        .by(1, 5)
        .accessing(report.a.wrapping_add_signed(offset), bytes)
        .concerning(name);
}

#[test]
fn stores_around_an_allocation() {
    let body = actor("st.global.u32 [a], n;");
    for offset in [-4, -64, 1024, 1028, 2048] {
        for report in (Case {
            body: &body,
            offset,
            ..Case::default()
        })
        .reports(OutOfBounds)
        {
            check(&report, offset, 4, "a");
            let allocation = report.fault.allocation.as_ref().unwrap();
            assert_eq!(allocation.len, 1024);
            assert_eq!(allocation.distance < 0, offset < 0);
        }
    }
    for offset in [0, 512, 1020] {
        Case {
            body: &body,
            offset,
            ..Case::default()
        }
        .passes();
    }
}

#[test]
fn loads_and_atomics_around_an_allocation() {
    let instructions = [
        ("ld.global.u8 %r1, [a];", 1),
        ("ld.global.nc.b16 %h1, [a];", 2),
        ("ld.global.u64 %d1, [a];", 8),
        ("ld.global.v2.u32 {%r1, %r2}, [a];", 8),
        ("ld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [a];", 16),
        ("ld.u32 %r1, [a];", 4),
        ("st.global.v4.b32 [a], {n, n, n, n};", 16),
        ("atom.global.add.u32 %r1, [a], 1;", 4),
        ("red.global.add.u32 [a], 1;", 4),
    ];
    for (instruction, bytes) in instructions {
        let body = actor(instruction);
        for offset in [-i64::from(bytes), 1024] {
            if offset % i64::from(bytes) == 0 {
                for report in (Case {
                    body: &body,
                    offset,
                    ..Case::default()
                })
                .reports(OutOfBounds)
                {
                    check(&report, offset, bytes, "a");
                }
            }
        }
        Case {
            body: &body,
            offset: 1024 - i64::from(bytes),
            ..Case::default()
        }
        .passes();
    }
}

#[test]
fn an_access_that_only_begins_inside() {
    let body = actor("ld.global.v4.b32 {%r1, %r2, %r3, %r4}, [a+16];");
    for report in (Case {
        body: &body,
        bytes: 24,
        ..Case::default()
    })
    .reports(OutOfBounds)
    {
        check(&report, 16, 16, "a");
        let said = report.fault.to_string();
        assert!(
            said.contains(", 8 bytes over the end of a (24 bytes"),
            "{said}"
        );
    }
    Case {
        body: &body,
        bytes: 32,
        ..Case::default()
    }
    .passes();
}

#[test]
fn between_two_allocations_the_nearer_is_named() {
    let near_a = actor("ld.global.u32 %r1, [a+1040];");
    for report in (Case {
        body: &near_a,
        ..Case::default()
    })
    .reports(OutOfBounds)
    {
        check(&report, 1040, 4, "a");
    }
    let near_b = actor("ld.global.u32 %r1, [b+-16];");
    for report in (Case {
        body: &near_b,
        ..Case::default()
    })
    .reports(OutOfBounds)
    {
        report
            .at("it")
            .by(1, 5)
            .accessing(report.b - 16, 4)
            .concerning("b");
    }
}

#[test]
fn null_and_wild_pointers() {
    for (value, address) in [
        ("0", 0),
        ("16", 16),
        ("0xffffffffffffff00", 0xffff_ffff_ffff_ff00),
    ] {
        let body = format!("mov.u64 a, {value};\n{}", actor("ld.global.u32 %r1, [a];"));
        for report in (Case {
            body: &body,
            ..Case::default()
        })
        .reports(OutOfBounds)
        {
            report.at("it").by(1, 5).accessing(address, 4);
        }
    }
}

/// Around every power of two, where a sum or a difference of addresses may leave its type: whatever the instruction and
/// the memory, the access works or is a fault with a message.
#[test]
fn addresses_from_end_to_end() {
    let instructions = [
        "ld.u8 %r1, [%d1];",
        "ld.u64 %d2, [%d1+2147483647];",
        "ld.v4.b32 {%r1, %r2, %r3, %r4}, [%d1];",
        "ld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [%d1];",
        "ld.global.u16 %h2, [%d1];",
        "ld.shared.v4.b32 {%r1, %r2, %r3, %r4}, [%d1];",
        "ld.shared.u8 %r1, [%d1+2147483647];",
        "ld.local.v2.u64 {%d2, %d3}, [%d1];",
        "ld.param.u32 %r1, [%d1];",
        "st.v2.b32 [%d1], {n, n};",
        "st.u16 [%d1+-2147483648], %h1;",
        "st.global.u32 [%d1], n;",
        "st.shared.v2.b32 [%d1], {n, n};",
        "st.shared.u8 [%d1+-2147483648], n;",
        "st.local.u64 [%d1], %d1;",
        "atom.add.u32 %r1, [%d1], 1;",
        "atom.shared.add.u32 %r1, [%d1], 1;",
        "red.global.add.u32 [%d1], 1;",
        "cp.async.ca.shared.global [%d1], [a], 16;",
        "cp.async.ca.shared.global [fixed], [%d1], 8, 3;",
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%r1, %r2, %r3, %r4}, [%d1];",
    ];
    let distances = [-16i64, -8, -2, -1, 0, 1, 2, 8, 16];
    let near = |power: u32| 1u64.checked_shl(power).unwrap_or(0);
    let addresses: Vec<u64> = (0..=64)
        .flat_map(|power| distances.map(|d| near(power).wrapping_add_signed(d)))
        .collect();
    for instruction in instructions {
        let mut faults = 0;
        for address in &addresses {
            let body = format!(
                "mov.b16 %h1, 1;\nmov.u64 %d1, {address};\n{instruction} //@it\ncp.async.wait_all;"
            );
            let case = Case {
                body: &body,
                blocks: 1,
                threads: 32,
                ..Case::default()
            };
            let Err(report) = case.run(0) else { continue };
            report.at("it");
            let expected = [
                OutOfBounds,
                Misaligned,
                UninitialisedRead,
                RaceInBlock,
                InvalidOperand,
            ];
            let fault = &report.fault;
            assert!(expected.contains(&fault.kind), "{body}: {fault}");
            faults += 1;
        }
        // The rest are addresses of the block's memory, or of `a` and `b`.
        assert!(faults * 10 > addresses.len() * 9, "{instruction}: {faults}");
    }
}

#[test]
fn shared_memory_ends() {
    let fixed = |offset| actor(&format!("ld.shared.u32 %r1, [fixed+{offset}];"));
    let written = |body: &str| format!("st.shared.u32 [fixed+1020], n;\n{body}");
    for report in (Case {
        body: &fixed(1024),
        threads: 32,
        blocks: 3,
        ..Case::default()
    })
    .reports(OutOfBounds)
    {
        report.at("it").by(2, 5);
    }
    // One warp: the store of all threads to one word would be a race.
    let body = format!(
        "setp.ne.u32 q, tid, 5;\n@q bra DONE;\n{}",
        written(&fixed(1020))
    );
    Case {
        body: &body,
        ..Case::default()
    }
    .passes();

    let dynamic = actor("st.shared.v2.u32 [dynamic+256], {n, n};");
    for report in (Case {
        body: &dynamic,
        dynamic_shared: 256,
        ..Case::default()
    })
    .reports(OutOfBounds)
    {
        report.at("it").by(1, 5);
    }
    Case {
        body: &dynamic,
        dynamic_shared: 264,
        ..Case::default()
    }
    .passes();
}

#[test]
fn local_memory_ends() {
    let body = actor("st.local.u32 [%d1+64], n;");
    let body = format!("mov.u64 %d1, frame;\n{body}");
    for report in (Case {
        body: &body,
        ..Case::default()
    })
    .reports(OutOfBounds)
    {
        report.at("it").by(1, 5);
    }
    Case {
        body: &body.replace("%d1+64", "%d1+60"),
        ..Case::default()
    }
    .passes();
}

#[test]
fn misaligned_accesses() {
    let instructions = [
        ("ld.global.u32 %r1, [a];", 4, [1, 2, 6]),
        ("st.global.b16 [a], %h1;", 2, [1, 3, 5]),
        ("ld.global.u64 %d1, [a];", 8, [4, 1, 12]),
        (
            "ld.global.nc.v4.b32 {%r1, %r2, %r3, %r4}, [a];",
            16,
            [8, 4, 2],
        ),
        ("st.global.v2.b32 [a], {n, n};", 8, [4, 20, 2]),
        ("atom.global.add.u32 %r1, [a], 1;", 4, [2, 1, 3]),
    ];
    for (instruction, bytes, offsets) in instructions {
        let body = format!("mov.b16 %h1, 1;\n{}", actor(instruction));
        for offset in offsets {
            for report in (Case {
                body: &body,
                offset,
                ..Case::default()
            })
            .reports(Misaligned)
            {
                check(&report, offset, bytes, "a");
            }
        }
        Case {
            body: &body,
            offset: 2 * i64::from(bytes),
            ..Case::default()
        }
        .passes();
    }
}

#[test]
fn misaligned_shared_accesses() {
    for (offset, right) in [(2, 4), (8, 16)] {
        let instruction = if right == 4 {
            "st.shared.u32 [fixed+OFFSET], n;"
        } else {
            "st.shared.v4.u32 [fixed+OFFSET], {n, n, n, n};"
        };
        let body = |offset: i32| actor(&instruction.replace("OFFSET", &offset.to_string()));
        for report in (Case {
            body: &body(offset),
            ..Case::default()
        })
        .reports(Misaligned)
        {
            report.at("it").by(1, 5);
        }
        Case {
            body: &body(right),
            ..Case::default()
        }
        .passes();
    }
}

#[test]
fn freed_memory() {
    for instruction in [
        "ld.global.u32 %r1, [a];",
        "st.global.u32 [a], n;",
        "red.global.add.u32 [a], 1;",
    ] {
        let body = actor(instruction);
        for report in (Case {
            body: &body,
            state: State::Freed,
            offset: 32,
            ..Case::default()
        })
        .reports(UseAfterFree)
        {
            check(&report, 32, 4, "a");
        }
        Case {
            body: &body,
            offset: 32,
            ..Case::default()
        }
        .passes();
    }
}
