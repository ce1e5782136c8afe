//! The memory of each of several ranks, told by all before anything of the graph lies on a device.

use crate::failure::Failure;
use crate::screen::bytes;
use halfgnn::backend::MemoryKind;
use halfgnn::distributed::Group;
use halfgnn::train::Footprint;

const KINDS: usize = MemoryKind::ALL.len();

/// What each rank is going to take of its device, by kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankMemory(Vec<[u64; KINDS]>);

/// Whose device a rank computes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Devices {
    /// Each its own, as processes do.
    Own,
    /// One for all, as threads do.
    Shared,
}

impl RankMemory {
    /// What all ranks take, of which this one takes `own` and its device has `memory`, free and total bytes, where that is known. All call it
    /// at once, and all are refused where one has no room.
    ///
    /// # Errors
    /// With the rank that lacks most, what it takes and what its device has; those of the group.
    pub fn agree(
        group: &Group,
        own: &Footprint,
        memory: Option<(u64, u64)>,
        devices: Devices,
    ) -> Result<Self, Failure> {
        let (free, total) = memory.unwrap_or((u64::MAX, u64::MAX));
        let kinds = MemoryKind::ALL.map(|kind| own.of(kind));
        let said = [&kinds[..], &[free, total]].concat();
        let all = group.gather("memory", &said)?;
        let rooms: Vec<_> = all.iter().map(|of| (of[KINDS], of[KINDS + 1])).collect();
        let kinds = |of: &Vec<u64>| std::array::from_fn(|kind| of[kind]);
        let memory = Self(all.iter().map(kinds).collect());
        memory.check(&rooms, devices)?;
        Ok(memory)
    }

    fn check(&self, rooms: &[(u64, u64)], devices: Devices) -> Result<(), Failure> {
        const INSTEAD: &str = "take more cards, or a smaller --hidden or --layers";
        let (totals, ranks) = (self.totals(), self.0.len());
        let refuse = |text: String| Err(Failure::Input(format!("out of device memory: {text}")));
        if devices == Devices::Shared {
            let all = totals
                .iter()
                .fold(0, |sum: u64, of| sum.saturating_add(*of));
            let ((free, total), (most, of_most)) = (rooms[0], self.largest());
            return match all > free {
                true => refuse(format!(
                    "{ranks} ranks take {} of one device together, rank {most} the most with {}, and {} of {} are free; take a smaller \
                     --hidden or --layers",
                    bytes(all),
                    bytes(of_most),
                    bytes(free),
                    bytes(total)
                )),
                false => Ok(()),
            };
        }
        let lacking = |rank: usize| totals[rank].saturating_sub(rooms[rank].0);
        let without = (0..ranks).filter(|&rank| lacking(rank) > 0).count();
        // The first of several that lack as much.
        match (0..ranks).rev().max_by_key(|&rank| lacking(rank)) {
            Some(rank) if without > 0 => refuse(format!(
                "rank {rank} of {ranks} takes {}, and {} of {} are free on its device{}; {INSTEAD}",
                bytes(totals[rank]),
                bytes(rooms[rank].0),
                bytes(rooms[rank].1),
                match without {
                    1 => String::new(),
                    more => format!(", and {} more have no room", more - 1),
                }
            )),
            _ => Ok(()),
        }
    }

    /// Bytes on its device, of each rank.
    pub fn totals(&self) -> Vec<u64> {
        let on_device = |kind: &MemoryKind| !kind.is_on_host();
        let total = |of: &[u64; KINDS]| {
            let kinds = MemoryKind::ALL.into_iter().filter(on_device);
            kinds.fold(0, |sum: u64, kind| sum.saturating_add(of[kind as usize]))
        };
        self.0.iter().map(total).collect()
    }

    /// Bytes of a kind, of each rank.
    pub fn of(&self, kind: MemoryKind) -> Vec<u64> {
        self.0.iter().map(|of| of[kind as usize]).collect()
    }

    /// The rank that takes most, the first of several, and what it takes.
    pub fn largest(&self) -> (usize, u64) {
        let totals = self.totals().into_iter().enumerate();
        totals
            .rev()
            .max_by_key(|(_, total)| *total)
            .unwrap_or((0, 0))
    }

    /// One line on it, for people.
    pub fn line(&self) -> String {
        let (rank, most) = self.largest();
        let least = self.totals().into_iter().min().unwrap_or(0);
        let kinds = MemoryKind::ALL
            .into_iter()
            .filter(|kind| !kind.is_on_host());
        let kinds: Vec<_> = kinds
            .map(|kind| format!("{kind} {}", bytes(self.0[rank][kind as usize])))
            .collect();
        format!(
            "memory of a rank, foretold: {} to {}; rank {rank} takes the most: {}",
            bytes(least),
            bytes(most),
            kinds.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn::distributed::in_process;
    use std::time::Duration;

    /// What each of the ranks is told that take and have so many bytes.
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
        // Each its own: there is room.
        let own = agreed(&[(2048, room), (3072, room)], Devices::Own);
        assert!(own.iter().all(Result::is_ok), "{own:?}");
    }
}
