//! Asynchronous copies that are not waited for, or waited for by the wrong thread.

use crate::harness::Case;
use ptx_emulator::FaultKind::{Misaligned, OutOfBounds, RaceInBlock, UninitialisedRead};

/// Every thread copies 16 bytes of `a` to its place in `fixed`, `WAIT`s, and reads the place of thread `tid ^ n`.
fn copy(wait: &str) -> String {
    format!(
        "mov.u32 %r1, fixed;
        shl.b32 %r2, tid, 4;
        add.u32 %r3, %r1, %r2;
        xor.b32 %r4, tid, n;
        shl.b32 %r4, %r4, 4;
        add.u32 %r4, %r1, %r4;
        mul.wide.u32 %d1, tid, 16;
        add.s64 %d1, a, %d1;
        cp.async.cg.shared.global [%r3], [%d1], 16; //@copy
        cp.async.commit_group;
        {wait}
        ld.shared.v4.u32 {{%r5, %r6, %r7, %r8}}, [%r4]; //@read"
    )
}

#[test]
fn a_copy_that_nobody_waits_for() {
    // A group that may still be in flight, and a barrier, which waits for no copy.
    for wait in ["", "cp.async.wait_group 1;", "bar.sync 0;"] {
        for report in (Case {
            body: &copy(wait),
            ..Case::default()
        })
        .reports(UninitialisedRead)
        {
            report.at("read");
        }
    }
    for wait in ["cp.async.wait_group 0;", "cp.async.wait_all;"] {
        Case {
            body: &copy(wait),
            ..Case::default()
        }
        .passes();
    }
}

/// To wait for one's own copies is not to wait for another thread's.
#[test]
fn a_copy_of_another_thread() {
    let first = "st.shared.v4.u32 [%r3], {n, n, n, n};\nbar.sync 0;\ncp.async";
    for (n, barrier) in [(1, "bar.warp.sync -1;"), (32, "bar.sync 0;")] {
        // Written once before, so that a read that comes too early is a race and nothing worse.
        let wrong = copy("cp.async.wait_all;").replacen("cp.async", first, 1);
        for report in (Case {
            body: &wrong,
            n,
            ..Case::default()
        })
        .reports(RaceInBlock)
        {
            let other = report.fault.other.as_ref().unwrap();
            assert_eq!(
                report.fault.thread[0] ^ other.thread[0],
                n,
                "{}",
                report.fault
            );
        }
        Case {
            body: &copy(&format!("cp.async.wait_all;\n{barrier}")),
            n,
            ..Case::default()
        }
        .passes();
    }
}

/// A copy lands when its thread waits for it: bytes that another thread reads meanwhile are old or new, and a barrier
/// behind the copy's issue changes nothing. A barrier between the read and the wait does.
#[test]
fn a_copy_that_lands_where_another_thread_reads() {
    let issue = |after: &str| {
        let body = copy("bar.sync 0;");
        let first = "st.shared.v4.u32 [%r3], {n, n, n, n};\nbar.sync 0;\ncp.async";
        format!("{}\n{after}", body.replacen("cp.async", first, 1))
    };
    let n = 32;
    for wait in ["cp.async.wait_all;", "cp.async.wait_group 0;"] {
        for report in (Case {
            body: &issue(wait),
            n,
            ..Case::default()
        })
        .reports(RaceInBlock)
        {
            let other = report.fault.other.as_ref().unwrap();
            assert_eq!(
                report.fault.thread[0] ^ other.thread[0],
                n,
                "{}",
                report.fault
            );
        }
        Case {
            body: &issue(&format!("bar.sync 0;\n{wait}")),
            n,
            ..Case::default()
        }
        .passes();
    }
}

#[test]
fn a_source_outside_its_allocation() {
    let body = copy("cp.async.wait_all;");
    for report in (Case {
        body: &body,
        bytes: 64 * 16 - 16,
        ..Case::default()
    })
    .reports(OutOfBounds)
    {
        report
            .at("copy")
            .accessing(report.a + 63 * 16, 16)
            .concerning("a");
    }
    Case {
        body: &body,
        bytes: 64 * 16,
        ..Case::default()
    }
    .passes();
    // Bytes that the copy leaves out are not read.
    let shorter = body.replace("[%d1], 16;", "[%d1], 16, 0;");
    Case {
        body: &shorter,
        bytes: 16,
        ..Case::default()
    }
    .passes();
}

#[test]
fn a_misaligned_target() {
    let body = copy("cp.async.wait_all;").replace("[%r3], [%d1]", "[%r3+8], [%d1]");
    for report in (Case {
        body: &body,
        ..Case::default()
    })
    .reports(Misaligned)
    {
        report.at("copy");
    }
}
