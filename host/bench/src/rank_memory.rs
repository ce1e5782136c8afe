//! The memory of each of several ranks, reported by all before anything of the graph lies on a device.

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
    /// What all ranks take, of which this one takes `own` and its device has `memory`, free and total bytes, where that
    /// is known. All call it at once, and all are refused where one has no memory.
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
        const INSTEAD: &str = "take more GPUs, or a smaller --hidden or --layers";
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
