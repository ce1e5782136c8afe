//! Exchanges with lanes that are not there.

use crate::harness::Case;
use ptx_emulator::FaultKind::{Deadlock, InactiveLane};

/// Half a warp exchanges with a mask and a lane distance of its own; the other half goes past.
fn half(mask: &str, distance: u32) -> String {
    format!(
        "setp.ge.u32 p, lane, 16;
        @p bra DONE;
        shfl.sync.bfly.b32 %r1, tid, {distance}, 31, {mask}; //@shuffle
        DONE:"
    )
}

#[test]
fn a_shuffle_from_a_lane_outside_the_mask() {
    for report in (Case {
        body: &half("0x0000ffff", 16),
        blocks: 1,
        threads: 32,
        ..Case::default()
    })
    .reports(InactiveLane)
    {
        report.at("shuffle").by(0, 0);
    }
    Case {
        body: &half("0x0000ffff", 8),
        ..Case::default()
    }
    .passes();
}

/// The mask names lanes that have exited. No lane waits for them, and none may read from them.
#[test]
fn a_shuffle_with_lanes_that_are_gone() {
    fn case(body: &str) -> Case<'_> {
        Case {
            body,
            blocks: 1,
            threads: 32,
            ..Case::default()
        }
    }
    let [from_gone, among_us] = [16, 8].map(|distance| half("0xffffffff", distance));
    for report in case(&from_gone).reports(InactiveLane) {
        report.at("shuffle").by(0, 0);
    }
    case(&among_us).passes();
}

/// The lanes that the mask names are alive and wait for the others somewhere else.
#[test]
fn a_shuffle_whose_lanes_never_come() {
    let body = half("0xffffffff", 8).replace("DONE:", "DONE:\nbar.warp.sync 0xffffffff;");
    for report in (Case {
        body: &body,
        blocks: 1,
        threads: 32,
        ..Case::default()
    })
    .reports(Deadlock)
    {
        assert_eq!(report.fault.block, [0, 0, 0]);
        assert!(
            report.fault.detail.contains("never come"),
            "{}",
            report.fault
        );
    }
}

#[test]
fn a_lane_outside_its_own_mask() {
    let body = "shfl.sync.bfly.b32 %r1, tid, 1, 31, 0x0000ffff; //@shuffle";
    for report in (Case {
        body,
        blocks: 1,
        threads: 32,
        ..Case::default()
    })
    .reports(InactiveLane)
    {
        report.at("shuffle").by(0, 16);
    }
    let votes = [
        "vote.sync.ballot.b32 %r1, p, 0x7fffffff;",
        "redux.sync.add.u32 %r1, tid, 0x7fffffff;",
        "bar.warp.sync 0x7fffffff;",
    ];
    for vote in votes {
        let body = format!("setp.eq.u32 p, tid, 3;\n{vote} //@vote");
        for report in (Case {
            body: &body,
            blocks: 1,
            threads: 32,
            ..Case::default()
        })
        .reports(InactiveLane)
        {
            report.at("vote").by(0, 31);
        }
        Case {
            body: &body.replace("0x7fffffff", "0xffffffff"),
            ..Case::default()
        }
        .passes();
    }
}

/// The last warp of a block has fewer lanes than its mask names.
#[test]
fn a_warp_that_is_not_full() {
    let body = "shfl.sync.idx.b32 %r1, tid, 0, 31, 0xffffffff; //@shuffle";
    // Lanes that the block does not have count as exited, and no lane reads from them.
    let mask = "shfl.sync.idx.b32 %r1, tid, 0, 31, 0x0000ffff; //@shuffle";
    Case {
        body: mask,
        threads: 16,
        ..Case::default()
    }
    .passes();
    let reads = body.replace("tid, 0,", "tid, 20,");
    for report in (Case {
        body: &reads,
        blocks: 1,
        threads: 16,
        ..Case::default()
    })
    .reports(InactiveLane)
    {
        report.at("shuffle").by(0, 0);
    }
}

/// Both arms exchange, each under its own mask; then all lanes together again.
#[test]
fn halves_of_a_warp_apart_and_together() {
    let body = "setp.ge.u32 p, lane, 16;
        @p bra UPPER;
        shfl.sync.bfly.b32 %r1, tid, 1, 31, 0x0000ffff;
        bra JOIN;
        UPPER:
        shfl.sync.bfly.b32 %r1, tid, 1, 31, 0xffff0000;
        shfl.sync.down.b32 %r1, %r1, 1, 31, 0xffff0000;
        JOIN:
        bar.warp.sync 0xffffffff;
        shfl.sync.bfly.b32 %r2, %r1, 16, 31, 0xffffffff;";
    Case {
        body,
        ..Case::default()
    }
    .passes();
}

/// Lanes that reach one exchange by different ways meet there.
#[test]
fn lanes_that_come_late_are_waited_for() {
    let body = "mov.u32 %r1, 0;
        LOOP:
        add.u32 %r1, %r1, 1;
        setp.le.u32 p, %r1, lane;
        @p bra LOOP;
        shfl.sync.bfly.b32 %r2, %r1, 1, 31, 0xffffffff;
        xor.b32 %r3, lane, 1;
        add.u32 %r3, %r3, 1;
        setp.eq.u32 p, %r2, %r3;
        @p bra DONE;
        trap;
        DONE:";
    Case {
        body,
        ..Case::default()
    }
    .passes();
}

#[test]
fn two_masks_that_contradict_each_other() {
    let body = "setp.ge.u32 p, lane, 16;
        selp.b32 %r1, 0xffffffff, 0x0000ffff, p;
        shfl.sync.bfly.b32 %r2, tid, 1, 31, %r1;
        bar.warp.sync 0xffffffff;";
    for report in (Case {
        body,
        blocks: 1,
        threads: 32,
        ..Case::default()
    })
    .reports(Deadlock)
    {
        assert_eq!(report.fault.block, [0, 0, 0]);
    }
    Case {
        body: &body.replace("0xffffffff, 0x0000ffff, p", "0xffff0000, 0x0000ffff, p"),
        ..Case::default()
    }
    .passes();
}
