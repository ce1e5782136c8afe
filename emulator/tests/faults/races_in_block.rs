//! Two threads of a block, one address, a write, and no barrier between.

use crate::harness::{Case, Report};
use ptx_emulator::FaultKind::RaceInBlock;

/// `%r3` is this thread's word of shared memory, `%r4` that of the thread whose number differs in the bits of `n`.
const WORDS: &str = "mov.u32 %r1, fixed;
    shl.b32 %r2, tid, 2;
    add.u32 %r3, %r1, %r2;
    xor.b32 %r4, tid, n;
    shl.b32 %r4, %r4, 2;
    add.u32 %r4, %r1, %r4;";

fn shared(body: &str) -> String {
    format!("{WORDS}\n{body}")
}

/// The same with words of `a`: `%d3` and `%d4`. Blocks have 256 bytes each, so they do not meet.
fn global(body: &str) -> String {
    format!(
        "mul.wide.u32 %d3, rank, 4;
        add.s64 %d3, a, %d3;
        xor.b32 %r4, rank, n;
        mul.wide.u32 %d4, %r4, 4;
        add.s64 %d4, a, %d4;
        {body}"
    )
}

/// Both are threads of one block, and differ in the bits of `n`.
#[track_caller]
fn partners(report: &Report, n: u32) {
    let f = &report.fault;
    let other = f.other.as_ref().unwrap();
    assert_eq!(f.block, other.block, "{f}");
    assert_eq!(f.thread[0] ^ other.thread[0], n, "{f}");
}

#[test]
fn two_warps_write_one_shared_word() {
    let body = "and.b32 %r1, tid, 31;
        setp.ne.u32 p, %r1, 3;
        @p bra DONE;
        st.shared.u32 [fixed+20], tid; //@write
        DONE:";
    for report in (Case {
        body,
        ..Case::default()
    })
    .reports(RaceInBlock)
    {
        let block = report.fault.block[0];
        report
            .at("write")
            .between((block, 3, "write"), (block, 35, "write"));
    }
    // One of the two warps alone.
    Case {
        body,
        threads: 32,
        ..Case::default()
    }
    .passes();
}

#[test]
fn one_instruction_of_a_warp_writes_one_word_twice() {
    let body = "setp.ge.u32 p, tid, 2;
        @p bra DONE;
        st.shared.u32 [fixed+20], n; //@write
        DONE:";
    for report in (Case {
        body,
        ..Case::default()
    })
    .reports(RaceInBlock)
    {
        let block = report.fault.block[0];
        report
            .at("write")
            .between((block, 0, "write"), (block, 1, "write"));
    }
    Case {
        body: &body.replace("tid, 2", "tid, 1"),
        ..Case::default()
    }
    .passes();
    let global = body.replace("st.shared.u32 [fixed+20]", "st.global.u32 [a+20]");
    for report in (Case {
        body: &global,
        blocks: 1,
        ..Case::default()
    })
    .reports(RaceInBlock)
    {
        report
            .at("write")
            .between((0, 0, "write"), (0, 1, "write"))
            .concerning("a");
    }
}

#[test]
fn a_warp_reads_what_another_wrote() {
    // Written once before, so that a read that comes too early is a race and nothing worse.
    let body = shared(
        "st.shared.u32 [%r3], n;
        bar.sync 0;
        st.shared.u32 [%r3], tid; //@write
        BARRIER
        ld.shared.u32 %r5, [%r4]; //@read",
    );
    let case = Case {
        body: &body.replace("BARRIER", ""),
        n: 32,
        ..Case::default()
    };
    for report in case.reports(RaceInBlock) {
        let f = &report.fault;
        partners(&report, 32);
        // Read after write or write after read: the seed decides.
        let lines = [f.place.line, f.other.as_ref().unwrap().place.line];
        assert_eq!(lines[0].abs_diff(lines[1]), 2, "{f}");
    }
    for barrier in [
        "bar.sync 0;",
        "barrier.sync.aligned 0;",
        "bar.sync 3, 64;",
        "bar.red.popc.u32 %r6, 0, p;",
    ] {
        let with = format!(
            "setp.eq.u32 p, tid, 0;\n{}",
            body.replace("BARRIER", barrier)
        );
        Case {
            body: &with,
            n: 32,
            ..Case::default()
        }
        .passes();
    }
}

#[test]
fn a_write_over_what_another_warp_still_reads() {
    let body = shared(
        "st.shared.u32 [%r3], tid;
        bar.sync 0;
        ld.shared.u32 %r5, [%r4]; //@read
        BARRIER
        st.shared.u32 [%r3], n; //@write",
    );
    for report in (Case {
        body: &body.replace("BARRIER", ""),
        n: 32,
        ..Case::default()
    })
    .reports(RaceInBlock)
    {
        partners(&report, 32);
    }
    Case {
        body: &body.replace("BARRIER", "bar.sync 0;"),
        n: 32,
        ..Case::default()
    }
    .passes();
}

/// A barrier of one half of the block orders nothing for the other.
#[test]
fn a_barrier_that_the_other_warp_does_not_pass() {
    let body = shared(
        "shr.u32 %r5, tid, 6;
        add.u32 %r5, %r5, 1;
        st.shared.u32 [%r3], tid;
        bar.sync %r5, 64;
        ld.shared.u32 %r6, [%r4];",
    );
    for report in (Case {
        body: &body,
        n: 64,
        threads: 128,
        ..Case::default()
    })
    .reports(RaceInBlock)
    {
        partners(&report, 64);
    }
    Case {
        body: &body,
        n: 32,
        threads: 128,
        ..Case::default()
    }
    .passes();
}

/// Producer and consumer: one warp arrives, the other waits.
#[test]
fn an_arrival_orders_what_came_before_it() {
    let body = |producer: &str| {
        shared(&format!(
            "setp.ge.u32 p, tid, 32;
            @p bra CONSUMER;
            {producer}
            bra DONE;
            CONSUMER:
            bar.sync 1, 64;
            ld.shared.u32 %r6, [%r4];
            DONE:"
        ))
    };
    let [write, arrive] = ["st.shared.u32 [%r3], tid;", "bar.arrive 1, 64;"];
    Case {
        body: &body(&format!("{write}\n{arrive}")),
        n: 32,
        ..Case::default()
    }
    .passes();
    // A write that follows the arrival races; a second one, so that no order reads uninitialised memory.
    let late = body(&format!("{write}\n{arrive}\n{write}"));
    for report in (Case {
        body: &late,
        n: 32,
        ..Case::default()
    })
    .reports(RaceInBlock)
    {
        partners(&report, 32);
    }
}

#[test]
fn lanes_of_a_warp_need_a_barrier_too() {
    let body = shared(
        "st.shared.u32 [%r3], tid; //@write
        BARRIER
        ld.shared.u32 %r5, [%r4]; //@read",
    );
    for n in [1, 16] {
        for report in (Case {
            body: &body.replace("BARRIER", ""),
            n,
            ..Case::default()
        })
        .reports(RaceInBlock)
        {
            partners(&report, n);
        }
        for barrier in [
            "bar.warp.sync 0xffffffff;",
            "bar.warp.sync -1;",
            "bar.sync 0;",
        ] {
            Case {
                body: &body.replace("BARRIER", barrier),
                n,
                ..Case::default()
            }
            .passes();
        }
    }
}

/// `bar.warp.sync` of half a warp: inside the half it orders, across it does not.
#[test]
fn a_warp_barrier_orders_the_lanes_of_its_mask() {
    let body = shared(
        "setp.lt.u32 p, lane, 16;
        selp.b32 %r6, 0x0000ffff, 0xffff0000, p;
        st.shared.u32 [%r3], tid;
        bar.warp.sync %r6;
        ld.shared.u32 %r5, [%r4];",
    );
    for report in (Case {
        body: &body,
        n: 16,
        ..Case::default()
    })
    .reports(RaceInBlock)
    {
        partners(&report, 16);
    }
    Case {
        body: &body,
        n: 8,
        ..Case::default()
    }
    .passes();
}

#[test]
fn global_memory_inside_a_block() {
    for (n, right) in [(32, "bar.sync 0;"), (1, "bar.warp.sync -1;")] {
        let body = global(
            "st.global.u32 [%d3], tid; //@write
            BARRIER
            ld.global.u32 %r5, [%d4]; //@read",
        );
        for report in (Case {
            body: &body.replace("BARRIER", ""),
            n,
            ..Case::default()
        })
        .reports(RaceInBlock)
        {
            partners(&report, n);
            report.concerning("a");
        }
        Case {
            body: &body.replace("BARRIER", right),
            n,
            ..Case::default()
        }
        .passes();
    }
}

/// Vectors that overlap in one word.
#[test]
fn wide_accesses_overlap() {
    let body = "setp.ne.u32 p, lane, 0;
        @p bra DONE;
        setp.eq.u32 p, tid, 0;
        @p bra FIRST;
        st.shared.u32 [fixed+WORD], n; //@one
        bra DONE;
        FIRST:
        st.shared.v4.u32 [fixed+16], {n, n, n, n}; //@four
        DONE:";
    for word in ["16", "28"] {
        for report in (Case {
            body: &body.replace("WORD", word),
            ..Case::default()
        })
        .reports(RaceInBlock)
        {
            let block = report.fault.block[0];
            report.between((block, 0, "four"), (block, 32, "one"));
        }
    }
    for word in ["12", "32"] {
        Case {
            body: &body.replace("WORD", word),
            ..Case::default()
        }
        .passes();
    }
}

/// Neighbours in one word are not each other's business.
#[test]
fn halves_and_bytes_of_a_word() {
    for (width, ty, register) in [(2, "b16", "%h1"), (1, "u8", "%h1")] {
        for (space, address) in [("shared", "%r5"), ("global", "%d5")] {
            let body = format!(
                "cvt.u16.u32 %h1, tid;
                mul.lo.u32 %r5, tid, {width};
                mul.wide.u32 %d5, rank, {width};
                add.s64 %d5, a, %d5;
                mov.u32 %r6, fixed;
                add.u32 %r5, %r5, %r6;
                st.{space}.{ty} [{address}], {register};
                ld.{space}.{ty} %h2, [{address}];"
            );
            Case {
                body: &body,
                ..Case::default()
            }
            .passes();
        }
    }
}

#[test]
fn atomics_do_not_race_with_each_other() {
    let body = "setp.ne.u32 p, tid, 0;
        @p bra READY;
        st.shared.u32 [fixed], n;
        READY:
        bar.sync 0;
        atom.shared.add.u32 %r1, [fixed], 1; //@atomic
        red.shared.max.u32 [fixed], tid;
        red.global.add.u32 [a], 1;
        AFTER
        ld.shared.u32 %r2, [fixed]; //@read";
    Case {
        body: &body.replace("AFTER", "bar.sync 0;"),
        ..Case::default()
    }
    .passes();
    for report in (Case {
        body: &body.replace("AFTER", ""),
        ..Case::default()
    })
    .reports(RaceInBlock)
    {
        let other = report.fault.other.as_ref().unwrap();
        assert_ne!(report.fault.thread, other.thread, "{}", report.fault);
    }
}

#[test]
fn all_may_read() {
    let body = "ld.global.u32 %r1, [a];
        ld.global.nc.u32 %r2, [b];
        add.u32 %r3, %r1, %r2;";
    Case {
        body,
        ..Case::default()
    }
    .passes();
    let body = "setp.ne.u32 p, tid, 0;
        @p bra READY;
        st.shared.u32 [fixed], n;
        READY:
        bar.sync 0;
        ld.shared.u32 %r1, [fixed];
        ld.shared.u32 %r2, [fixed];";
    Case {
        body,
        ..Case::default()
    }
    .passes();
}

/// A loop of write, barrier, read, barrier: what kernels with tiles do.
#[test]
fn tiles_in_a_loop() {
    let body = |second: &str| {
        shared(&format!(
            "mov.u32 %r7, 0;
            LOOP:
            st.shared.u32 [%r3], %r7;
            bar.sync 0;
            ld.shared.u32 %r5, [%r4];
            {second}
            add.u32 %r7, %r7, 1;
            setp.lt.u32 p, %r7, 5;
            @p bra LOOP;"
        ))
    };
    Case {
        body: &body("bar.sync 0;"),
        n: 33,
        ..Case::default()
    }
    .passes();
    for report in (Case {
        body: &body(""),
        n: 33,
        ..Case::default()
    })
    .reports(RaceInBlock)
    {
        partners(&report, 33);
    }
}
