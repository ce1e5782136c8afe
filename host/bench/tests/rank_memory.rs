//! What ranks learn of the memory that each takes.

use halfgnn::backend::MemoryKind;
use halfgnn::distributed::{Group, in_process};
use halfgnn::train::Footprint;
use halfgnn_bench::rank_memory::{Devices, RankMemory};
use std::time::Duration;

/// What each of the ranks learns that take and have the given numbers of bytes.
fn agreed(
    ranks: &[(u64, Option<(u64, u64)>)],
    devices: Devices,
) -> Vec<Result<RankMemory, String>> {
    let group = in_process(ranks.len(), "test", Duration::from_secs(60), &[]);
    std::thread::scope(|scope| {
        let threads = group.into_iter().zip(ranks);
        let threads: Vec<_> = threads
            .map(|(rank, &(takes, memory))| {
                scope.spawn(move || {
                    let mut own = Footprint::default();
                    own.add(MemoryKind::Graph, takes);
                    own.add(MemoryKind::HostFeatures, 1 << 40);
                    let told = RankMemory::agree(&Group::new(rank), &own, memory, devices);
                    told.map_err(|failure| failure.to_string())
                })
            })
            .collect();
        let threads = threads.into_iter();
        threads.map(|it| it.join().expect("a rank")).collect()
    })
}

#[test]
fn all_are_told_who_takes_what() {
    let room = Some((4096, 8192));
    for told in agreed(&[(1024, room), (4096, room), (4096, None)], Devices::Own) {
        let memory = told.expect("room");
        assert_eq!(memory.totals(), [1024, 4096, 4096]);
        assert_eq!(memory.of(MemoryKind::Graph), [1024, 4096, 4096]);
        assert_eq!(memory.of(MemoryKind::Weights), [0; 3]);
        assert_eq!(memory.largest(), (1, 4096));
        let line = memory.line();
        assert!(
            line.contains("1.0 KiB to 4.0 KiB; rank 1 takes the most: graph 4.0 KiB"),
            "{line}"
        );
    }
}

#[test]
fn one_without_room_refuses_all_by_its_name() {
    let (small, large) = (Some((2048, 4096)), Some((1 << 20, 1 << 20)));
    for told in agreed(&[(8192, large), (3072, small), (6144, small)], Devices::Own) {
        let told = told.expect_err("no room");
        let words = [
            "out of device memory",
            "rank 2 of 3 takes 6.0 KiB",
            "2.0 KiB of 4.0 KiB are free on its device, and 1 more",
        ];
        assert!(words.iter().all(|words| told.contains(words)), "{told}");
    }
}

#[test]
fn threads_share_what_there_is() {
    let room = Some((4096, 8192));
    let fits = agreed(&[(2048, room), (2048, room)], Devices::Shared);
    assert!(fits.iter().all(Result::is_ok), "{fits:?}");
    for told in agreed(&[(2048, room), (3072, room)], Devices::Shared) {
        let told = told.expect_err("no room");
        let words = [
            "2 ranks take 5.0 KiB of one device together",
            "rank 1 the most with 3.0 KiB",
            "4.0 KiB of 8.0 KiB are free",
        ];
        assert!(words.iter().all(|words| told.contains(words)), "{told}");
    }
    // Each its own: they fit.
    let own = agreed(&[(2048, room), (3072, room)], Devices::Own);
    assert!(own.iter().all(Result::is_ok), "{own:?}");
}
