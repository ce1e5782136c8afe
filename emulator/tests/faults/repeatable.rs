//! One seed, one report, however many threads run the blocks.

use crate::harness::Case;
use ptx_emulator::FaultKind::{OutOfBounds, RaceBetweenBlocks, RaceInBlock};

fn on_threads<T: Send>(threads: usize, f: impl FnOnce() -> T + Send) -> T {
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(threads)
        .build()
        .unwrap();
    pool.install(f)
}

/// Every report of every seed is the same on one thread and on four.
#[track_caller]
fn same_on_any_number_of_threads(case: &Case<'_>, kind: ptx_emulator::FaultKind) {
    let alone = on_threads(1, || case.reports(kind));
    for _ in 0..3 {
        let together = on_threads(4, || case.reports(kind));
        for (a, b) in alone.iter().zip(&together) {
            assert_eq!(a.fault, b.fault);
        }
    }
}

/// Many blocks do it: the first in the seed's order is reported.
#[test]
fn of_many_faults_the_first() {
    let body = "rem.u32 %r1, block, 7;
        setp.ne.u32 p, %r1, 3;
        @p bra DONE;
        mul.wide.u32 %d1, rank, 4;
        add.s64 %d1, a, %d1;
        ld.global.u32 %r2, [%d1+1048576];
        DONE:";
    let case = Case {
        body,
        blocks: 300,
        ..Case::default()
    };
    same_on_any_number_of_threads(&case, OutOfBounds);
    let reports = case.reports(OutOfBounds);
    assert_eq!(
        reports[0].fault.block,
        [3, 0, 0],
        "seed 0 is the grid's own order"
    );
    assert!(
        reports.iter().any(|r| r.fault.block != [3, 0, 0]),
        "other seeds have other orders"
    );
    assert!(reports.iter().all(|r| r.fault.block[0] % 7 == 3));
}

#[test]
fn races_of_many_blocks() {
    let body = "setp.ne.u32 p, tid, 0;
        @p bra DONE;
        rem.u32 %r1, block, n;
        mul.wide.u32 %d1, %r1, 4;
        add.s64 %d1, a, %d1;
        st.global.u32 [%d1], block;
        DONE:";
    same_on_any_number_of_threads(
        &Case {
            body,
            n: 199,
            blocks: 400,
            ..Case::default()
        },
        RaceBetweenBlocks,
    );
    Case {
        body,
        n: 200,
        blocks: 200,
        ..Case::default()
    }
    .passes();
}

#[test]
fn races_inside_many_blocks() {
    let body = "setp.gt.u32 p, lane, 0;
        @p bra DONE;
        mul.wide.u32 %d1, block, 4;
        add.s64 %d1, a, %d1;
        st.global.u32 [%d1], tid;
        DONE:";
    same_on_any_number_of_threads(
        &Case {
            body,
            blocks: 250,
            ..Case::default()
        },
        RaceInBlock,
    );
    Case {
        body,
        blocks: 250,
        threads: 32,
        ..Case::default()
    }
    .passes();
}
