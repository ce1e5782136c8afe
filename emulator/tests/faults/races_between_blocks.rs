//! Two blocks of one launch, one address, a write, and not both atomically.

use crate::harness::{Case, Report};
use ptx_emulator::FaultKind::RaceBetweenBlocks;

/// Thread 0 of each block executes the instruction of its block: 0 the first, all others the second.
fn blocks(first: &str, second: &str) -> String {
    format!(
        "setp.ne.u32 p, tid, 0;
        @p bra DONE;
        setp.ne.u32 q, block, 0;
        @q bra SECOND;
        {first} //@first
        bra DONE;
        SECOND:
        {second} //@second
        DONE:"
    )
}

fn check(report: &Report, second: u32) {
    report
        .between((0, 0, "first"), (second, 0, "second"))
        .concerning("a");
    let access = report.fault.access.unwrap();
    assert!(
        (report.a..report.a + 16).contains(&access.address),
        "{}",
        report.fault
    );
}

const READ: &str = "ld.global.u32 %r1, [a+8];";
const WRITE: &str = "st.global.u32 [a+8], n;";
const ADD: &str = "red.global.add.u32 [a+8], 1;";
const SWAP: &str = "atom.global.cas.b32 %r1, [a+8], 0, 1;";
const WRITE_VECTOR: &str = "st.global.v4.u32 [a], {n, n, n, n};";
const WRITE_HALF: &str = "st.global.b16 [a+10], %h1;";
const WRITE_OTHER_HALF: &str = "st.global.b16 [a+8], %h1;";
const READ_CACHED: &str = "ld.global.nc.v2.u32 {%r1, %r2}, [a+8];";

#[test]
fn what_races() {
    let pairs = [
        (READ, WRITE),
        // The same value: a race nevertheless.
        (WRITE, WRITE),
        (ADD, WRITE),
        (READ, ADD),
        (SWAP, WRITE),
        (WRITE_VECTOR, WRITE),
        (READ, WRITE_HALF),
        (READ_CACHED, WRITE_OTHER_HALF),
        (WRITE_VECTOR, WRITE_VECTOR),
    ];
    for (one, other) in pairs {
        for (first, second) in [(one, other), (other, one)] {
            let body = format!("mov.b16 %h1, 1;\n{}", blocks(first, second));
            for report in (Case {
                body: &body,
                ..Case::default()
            })
            .reports(RaceBetweenBlocks)
            {
                check(&report, 1);
            }
        }
    }
}

#[test]
fn what_does_not() {
    let pairs = [
        (READ, READ),
        (READ, READ_CACHED),
        (ADD, ADD),
        (ADD, SWAP),
        (WRITE_HALF, WRITE_OTHER_HALF),
        (WRITE, "st.global.u32 [a+12], n;"),
        (WRITE_VECTOR, "ld.global.u32 %r1, [a+16];"),
        ("st.global.u8 [a+1], %h1;", "st.global.u8 [a+2], %h1;"),
    ];
    for (one, other) in pairs {
        for (first, second) in [(one, other), (other, one)] {
            let body = format!("mov.b16 %h1, 1;\n{}", blocks(first, second));
            Case {
                body: &body,
                ..Case::default()
            }
            .passes();
        }
    }
}

/// Many blocks between the two that race, reading elsewhere.
#[test]
fn two_of_many_blocks() {
    let body = "setp.ne.u32 p, tid, 0;
        @p bra DONE;
        mul.wide.u32 %d1, block, 4;
        add.s64 %d1, a, %d1;
        setp.eq.u32 p, block, n;
        @p bra LATE;
        st.global.u32 [%d1], block; //@first
        bra DONE;
        LATE:
        st.global.u32 [a], block; //@second
        DONE:";
    for n in [1, 99] {
        for report in (Case {
            body,
            n,
            blocks: 100,
            ..Case::default()
        })
        .reports(RaceBetweenBlocks)
        {
            check(&report, n);
        }
    }
    Case {
        body,
        n: 0,
        blocks: 100,
        ..Case::default()
    }
    .passes();
}

/// Every block reads the word, and one writes it.
#[test]
fn a_write_beside_many_readers() {
    let body = "setp.ne.u32 p, tid, 0;
        @p bra DONE;
        ld.global.u32 %r1, [a];
        setp.ne.u32 p, block, n;
        @p bra DONE;
        st.global.u32 [a], block;
        DONE:";
    for report in (Case {
        body,
        n: 3,
        blocks: 8,
        ..Case::default()
    })
    .reports(RaceBetweenBlocks)
    {
        let parties = [
            report.fault.block[0],
            report.fault.other.as_ref().unwrap().block[0],
        ];
        assert!(
            parties.contains(&3) && parties[0] != parties[1],
            "{}",
            report.fault
        );
    }
    Case {
        body,
        n: 8,
        blocks: 8,
        ..Case::default()
    }
    .passes();
}

/// A barrier inside the blocks orders nothing between them.
#[test]
fn barriers_do_not_help() {
    let body = "setp.ne.u32 p, block, 0;
        @p bra SECOND;
        setp.ne.u32 p, tid, 0;
        @p bra MEET;
        st.global.u32 [a], n; //@first
        MEET:
        bar.sync 0;
        bra DONE;
        SECOND:
        bar.sync 0;
        setp.ne.u32 p, tid, 0;
        @p bra DONE;
        ld.global.u32 %r1, [a]; //@second
        DONE:";
    for report in (Case {
        body,
        ..Case::default()
    })
    .reports(RaceBetweenBlocks)
    {
        check(&report, 1);
    }
}
