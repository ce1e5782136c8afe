//! One seed, one report, however many threads run the blocks.

use crate::harness::Case;
use ptx_emulator::FaultKind::{OutOfBounds, RaceBetweenBlocks, RaceInBlock};
use ptx_emulator::{Device, DeviceOptions, LaunchError, LaunchOptions, Module};

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

/// Block `k` writes word `k + n`, and launch after launch another one: what a launch leaves behind is no race with the
/// next, also when the launches' numbers have started over; and a race is still found then.
#[test]
fn a_thousand_launches_on_one_device() {
    let body = "setp.ne.u32 p, tid, 0;
        @p bra DONE;
        add.u32 %r1, block, n;
        and.b32 %r1, %r1, 15;
        mul.wide.u32 %d1, %r1, 4;
        add.s64 %d1, a, %d1;
        ld.global.u32 %r2, [%d1];
        add.u32 %r2, %r2, 1;
        st.global.u32 [%d1], %r2;
        DONE:";
    let module = Module::parse(
        &Case {
            body,
            ..Case::default()
        }
        .text(),
    )
    .unwrap();
    let device = Device::new(DeviceOptions::default());
    let a = device.alloc(64).unwrap();
    device.fill(a, 0, 64).unwrap();
    let launch = |blocks: u32, n: u32| {
        let mut params = [a.to_le_bytes(), a.to_le_bytes()].concat();
        params.extend(n.to_le_bytes());
        let options = LaunchOptions::default();
        device.launch(
            &module,
            "kernel",
            [blocks, 1, 1],
            [64, 1, 1],
            0,
            &params,
            &options,
        )
    };
    for n in 0..1100 {
        launch(16, n).unwrap_or_else(|e| panic!("launch {n}: {e}"));
        if n % 100 == 99 {
            match launch(17, n) {
                Err(LaunchError::Fault(fault)) => {
                    assert_eq!(fault.kind, RaceBetweenBlocks, "{fault}")
                }
                other => panic!("launch {n}: block 16 meets block 0, and the answer is {other:?}"),
            }
        }
    }
    let mut words = [0; 64];
    device.read(a, &mut words).unwrap();
    let counts = words
        .chunks_exact(4)
        .map(|w| u32::from_le_bytes(w.try_into().unwrap()));
    assert!(
        counts.clone().all(|c| c >= 1100),
        "{:?}",
        counts.collect::<Vec<_>>()
    );
}
