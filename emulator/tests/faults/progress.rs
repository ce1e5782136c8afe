//! Barriers that not all reach, threads that wait for ever, loops without an end, and panics.

use crate::harness::Case;
use ptx_emulator::FaultKind::{Deadlock, DivergentBarrier, InvalidOperand, StepLimit, Trap};

#[test]
fn a_barrier_that_half_a_warp_reaches() {
    let body = "setp.ge.u32 p, lane, 16;
        @p bra DONE;
        bar.sync 0; //@barrier
        DONE:";
    for report in (Case {
        body,
        blocks: 1,
        ..Case::default()
    })
    .reports(DivergentBarrier)
    {
        report.at("barrier");
        assert!(report.fault.thread[0] % 32 < 16, "{}", report.fault);
    }
    Case {
        body: "bar.sync 0;",
        ..Case::default()
    }
    .passes();
}

/// The lanes that do not come are not gone: they run on, and would wait elsewhere.
#[test]
fn the_arms_of_a_branch_have_a_barrier_each() {
    let body = "and.b32 %r1, tid, 1;
        setp.eq.u32 p, %r1, 0;
        @p bra EVEN;
        bar.sync 0; //@odd
        bra DONE;
        EVEN:
        bar.sync 0; //@even
        DONE:";
    for report in (Case {
        body,
        blocks: 1,
        threads: 32,
        ..Case::default()
    })
    .reports(DivergentBarrier)
    {
        assert_eq!(report.fault.block, [0, 0, 0]);
    }
    // A branch that all lanes of a warp take alike.
    Case {
        body: &body.replace("and.b32 %r1, tid, 1", "and.b32 %r1, block, 1"),
        ..Case::default()
    }
    .passes();
}

/// Warps wait at two barriers, each for the other.
#[test]
fn two_barriers_that_never_fill() {
    let body = "setp.ge.u32 p, tid, 32;
        @p bra SECOND;
        bar.sync 1, 64; //@first
        bra DONE;
        SECOND:
        bar.sync 2, 64; //@second
        DONE:";
    for report in (Case {
        body,
        blocks: 1,
        ..Case::default()
    })
    .reports(Deadlock)
    {
        assert_eq!(report.fault.block, [0, 0, 0]);
    }
    Case {
        body: &body.replace("bar.sync 2", "bar.sync 1"),
        ..Case::default()
    }
    .passes();
}

/// Lanes of a warp wait at a barrier of the warp for lanes that wait at a barrier of the block.
#[test]
fn lanes_that_wait_for_each_other() {
    let body = "setp.ge.u32 p, lane, 16;
        @p bra UPPER;
        bar.warp.sync 0xffffffff;
        UPPER:
        bar.sync 0;";
    for report in (Case {
        body,
        blocks: 1,
        ..Case::default()
    })
    .reports(Deadlock)
    {
        assert_eq!(report.fault.block, [0, 0, 0]);
    }
    Case {
        body: &body.replace("0xffffffff", "0x0000ffff"),
        ..Case::default()
    }
    .passes();
}

#[test]
fn a_loop_without_an_end() {
    let body = "mov.u32 %r1, 0;
        LOOP:
        add.u32 %r1, %r1, 1; //@add
        setp.ne.u32 p, %r1, n;
        @p bra LOOP;";
    // Comes round to 7 after four thousand million turns: too many.
    let endless = Case {
        body: &body.replace(", 1; //@add", ", 2;"),
        n: 7,
        step_limit: 20_000,
        ..Case::default()
    };
    for report in endless.reports(StepLimit) {
        assert!(
            (27..40).contains(&report.fault.place.line),
            "{}",
            report.fault
        );
        assert_eq!(report.fault.place.source, Some(("kernel.rs".into(), 7)));
    }
    Case {
        body,
        n: 1000,
        step_limit: 20_000,
        ..Case::default()
    }
    .passes();
}

/// No thread writes the flag that all wait for.
#[test]
fn a_flag_that_never_comes() {
    let body = "LOOP:
        ld.volatile.global.u32 %r1, [a];
        setp.eq.u32 p, %r1, 0;
        @p bra LOOP;";
    Case {
        body,
        step_limit: 50_000,
        ..Case::default()
    }
    .reports(StepLimit);
}

/// One lane waits for another of its warp, which must get its turn: lanes are independent.
#[test]
fn lanes_get_their_turns() {
    let body = "setp.ne.u32 p, tid, 0;
        @p bra OTHERS;
        WAIT:
        atom.shared.add.u32 %r1, [fixed], 0;
        setp.ne.u32 p, %r1, 63;
        @p bra WAIT;
        bra DONE;
        OTHERS:
        atom.shared.add.u32 %r1, [fixed], 1;
        DONE:";
    let body = format!(
        "setp.ne.u32 p, tid, 0;
        @p bra READY;
        st.shared.u32 [fixed], n;
        READY:
        bar.sync 0;
        {body}"
    );
    Case {
        body: &body,
        ..Case::default()
    }
    .passes();
}

#[test]
fn a_panic() {
    let body = "setp.ne.u32 p, rank, n;
        @p bra DONE;
        trap; //@trap
        DONE:";
    for report in (Case {
        body,
        n: 69,
        ..Case::default()
    })
    .reports(Trap)
    {
        report.at("trap").by(1, 5);
    }
    Case {
        body,
        n: 128,
        ..Case::default()
    }
    .passes();
    Case {
        body: &body.replace("trap;", "exit;"),
        n: 69,
        ..Case::default()
    }
    .passes();
}

#[test]
fn a_barrier_that_does_not_exist() {
    let body = "bar.sync n; //@barrier";
    for report in (Case {
        body,
        n: 16,
        ..Case::default()
    })
    .reports(InvalidOperand)
    {
        report.at("barrier");
    }
    Case {
        body,
        n: 15,
        ..Case::default()
    }
    .passes();
}
