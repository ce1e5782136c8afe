//! Reads of bytes that nothing wrote.

use crate::harness::{Case, State};
use ptx_emulator::FaultKind::UninitialisedRead;

#[test]
fn global_memory() {
    let read = "setp.ne.u32 p, rank, 69;
        @p bra DONE;
        ld.global.u32 %r1, [a+40]; //@read
        DONE:";
    for report in (Case {
        body: read,
        state: State::Unwritten,
        ..Case::default()
    })
    .reports(UninitialisedRead)
    {
        report
            .at("read")
            .by(1, 5)
            .accessing(report.a + 40, 4)
            .concerning("a");
    }
    Case {
        body: read,
        ..Case::default()
    }
    .passes();
}

#[test]
fn every_byte_counts() {
    let body = |written: u32| {
        format!(
            "setp.ne.u32 p, rank, 0;
            @p bra DONE;
            mov.b16 %h1, 1;
            st.global.b16 [a], %h1;
            st.global.u8 [a+2], %h1;
            st.global.u8 [a+{written}], %h1;
            ld.global.u32 %r1, [a]; //@read
            DONE:"
        )
    };
    let case = Case {
        state: State::Unwritten,
        ..Case::default()
    };
    for report in (Case {
        body: &body(5),
        ..case
    })
    .reports(UninitialisedRead)
    {
        report.at("read").by(0, 0).concerning("a");
    }
    Case {
        body: &body(3),
        ..case
    }
    .passes();
}

#[test]
fn what_an_atomic_reads() {
    let body = "setp.ne.u32 p, rank, 0;
        @p bra DONE;
        WRITE
        red.global.add.u32 [a], 1; //@add
        DONE:";
    let case = Case {
        state: State::Unwritten,
        ..Case::default()
    };
    for report in (Case {
        body: &body.replace("WRITE", ""),
        ..case
    })
    .reports(UninitialisedRead)
    {
        report
            .at("add")
            .by(0, 0)
            .accessing(report.a, 4)
            .concerning("a");
    }
    Case {
        body: &body.replace("WRITE", "st.global.u32 [a], n;"),
        ..case
    }
    .passes();
}

#[test]
fn shared_memory_is_not_zero() {
    let body = |index: &str| {
        format!(
            "mov.u32 %r1, fixed;
            shl.b32 %r2, tid, 2;
            add.u32 %r3, %r1, %r2;
            st.shared.u32 [%r3], tid;
            bar.sync 0;
            setp.ne.u32 p, rank, 69;
            @p bra DONE;
            ld.shared.u32 %r4, [fixed+{index}]; //@read
            DONE:"
        )
    };
    for report in (Case {
        body: &body("256"),
        ..Case::default()
    })
    .reports(UninitialisedRead)
    {
        report.at("read").by(1, 5);
    }
    Case {
        body: &body("252"),
        ..Case::default()
    }
    .passes();
}

/// What one block wrote to its shared memory, the next does not find there.
#[test]
fn shared_memory_belongs_to_a_block() {
    let body = "setp.ne.u32 p, tid, 0;
        @p bra DONE;
        setp.eq.u32 p, block, n;
        @p bra READ;
        st.shared.u32 [fixed], n;
        READ:
        ld.shared.u32 %r1, [fixed]; //@read
        DONE:";
    for n in 0..4 {
        for report in (Case {
            body,
            n,
            blocks: 4,
            ..Case::default()
        })
        .reports(UninitialisedRead)
        {
            report.at("read").by(n, 0);
        }
    }
    Case {
        body,
        n: 4,
        blocks: 4,
        ..Case::default()
    }
    .passes();
}

#[test]
fn dynamic_shared_memory() {
    let body = "setp.ne.u32 p, rank, 64;
        @p bra DONE;
        st.shared.v2.u32 [dynamic], {n, n};
        ld.shared.v4.u32 {%r1, %r2, %r3, %r4}, [dynamic]; //@read
        DONE:";
    for report in (Case {
        body,
        dynamic_shared: 64,
        ..Case::default()
    })
    .reports(UninitialisedRead)
    {
        report.at("read").by(1, 0);
    }
    let right = body.replace(
        "st.shared.v2.u32 [dynamic], {n, n};",
        "st.shared.v4.u32 [dynamic], {n, n, n, n};",
    );
    Case {
        body: &right,
        dynamic_shared: 64,
        ..Case::default()
    }
    .passes();
}

#[test]
fn local_memory() {
    let body = |bytes: &str| {
        format!(
            "st.local.b{bytes} [frame+8], 1;
            setp.ne.u32 p, rank, 70;
            @p bra DONE;
            ld.local.b32 %r1, [frame+8]; //@read
            DONE:"
        )
    };
    for report in (Case {
        body: &body("16"),
        ..Case::default()
    })
    .reports(UninitialisedRead)
    {
        report.at("read").by(1, 6);
        assert!(
            report.fault.detail.contains("byte 2 of the 4"),
            "{}",
            report.fault
        );
    }
    Case {
        body: &body("32"),
        ..Case::default()
    }
    .passes();
}

/// Another lane's, or an earlier block's, is not one's own.
#[test]
fn local_memory_of_others() {
    let body = "setp.ne.u32 p, WHO, 0;
        @p bra READ;
        st.local.b32 [frame], 1;
        bra DONE;
        READ:
        ld.local.b32 %r1, [frame]; //@read
        DONE:";
    for (who, blocks, threads, by) in [("lane", 1, 2, (0, 1)), ("block", 2, 1, (1, 0))] {
        let case = Case {
            body: &body.replace("WHO", who),
            blocks,
            threads,
            ..Case::default()
        };
        for report in case.reports(UninitialisedRead) {
            report.at("read").by(by.0, by.1);
        }
    }
}
