//! Global memory as lanes see it: bounds, alignment, written bytes, races, and the counting of sectors.

use super::access::{Request, access_kind};
use super::block::Block;
use super::warp::Warp;
use super::{Lanes, Seen, Step, Trouble, lanes};
use crate::counts::Traffic;
use crate::fault::{AccessKind, FaultAccess, FaultAllocation, FaultKind, MemorySpace};
use crate::ir::Access;
use crate::memory::Allocation;
use crate::order::Clocks;
use crate::shadow::{Shadow, Touch};

/// Distinct 32-byte sectors of one request; an aligned access of up to 16 bytes lies in one.
struct Sectors {
    seen: [u64; 32],
    len: usize,
}

impl Sectors {
    fn new() -> Self {
        Self {
            seen: [0; 32],
            len: 0,
        }
    }

    #[inline(always)]
    fn add(&mut self, address: u64) {
        let sector = address / 32;
        // Neighbours mostly share a sector with the lane before them.
        if !self.seen[..self.len].iter().rev().any(|s| *s == sector) {
            self.seen[self.len] = sector;
            self.len += 1;
        }
    }

    fn traffic(&self, mask: u32, bytes: u32) -> Traffic {
        Traffic {
            requests: 1,
            sectors: self.len as u64,
            bytes: u64::from(bytes * mask.count_ones()),
        }
    }
}

impl<'a> Block<'a> {
    pub(super) fn load_global(
        &mut self,
        warp: &Warp,
        r: &Request<'_>,
        access: &Access,
        touch: Touch,
        values: &mut [Lanes; 4],
    ) -> Step<()> {
        let total = access.total();
        let mut sectors = Sectors::new();
        for lane in lanes(r.mask) {
            let address = r.addresses[lane];
            let (allocation, offset) = self.global(lane, address, total, access_kind(touch))?;
            self.check_written(allocation, lane, offset, total)?;
            self.touch_global(warp, allocation, lane, offset, total, touch)?;
            sectors.add(address);
            for (i, at) in access.elements(offset) {
                values[i][lane] = allocation.load(at, access.bytes.into());
            }
        }
        self.counts.global_loads += sectors.traffic(r.mask, total);
        Ok(())
    }

    pub(super) fn store_global(
        &mut self,
        warp: &Warp,
        r: &Request<'_>,
        access: &Access,
        touch: Touch,
        values: &[Lanes; 4],
    ) -> Step<()> {
        let total = access.total();
        let mut sectors = Sectors::new();
        for lane in lanes(r.mask) {
            let address = r.addresses[lane];
            let (allocation, offset) = self.global(lane, address, total, access_kind(touch))?;
            self.touch_global(warp, allocation, lane, offset, total, touch)?;
            sectors.add(address);
            for (i, at) in access.elements(offset) {
                allocation.store(at, access.bytes.into(), values[i][lane]);
            }
            allocation.mark_written(offset, total);
        }
        self.counts.global_stores += sectors.traffic(r.mask, total);
        Ok(())
    }

    pub(super) fn atomic_global(
        &mut self,
        warp: &Warp,
        r: &Request<'_>,
        bytes: u32,
        old: &mut Lanes,
        f: impl Fn(usize, u64) -> u64,
    ) -> Step<()> {
        let mut sectors = Sectors::new();
        for lane in lanes(r.mask) {
            let address = r.addresses[lane];
            let (allocation, offset) = self.global(lane, address, bytes, AccessKind::Atomic)?;
            self.check_written(allocation, lane, offset, bytes)?;
            self.touch_global(warp, allocation, lane, offset, bytes, Touch::Atomic)?;
            sectors.add(address);
            old[lane] = allocation.update(offset, bytes, |v| f(lane, v));
        }
        self.counts.global_atomics += sectors.traffic(r.mask, bytes);
        Ok(())
    }

    /// A plain read for an asynchronous copy.
    pub(super) fn read_global(
        &mut self,
        warp: &Warp,
        lane: usize,
        address: u64,
        bytes: u32,
        chunk: u32,
    ) -> Step<[u64; 2]> {
        let mut data = [0; 2];
        if bytes == 0 {
            return Ok(data);
        }
        if address & u64::from(chunk - 1) != 0 {
            return Err(self.global_trouble(
                FaultKind::Misaligned,
                lane,
                address,
                bytes,
                AccessKind::Read,
            ));
        }
        // Fewer bytes than the chunk may be asked for, down to single ones.
        let step = if bytes == chunk {
            chunk
        } else {
            [8, 4, 2]
                .into_iter()
                .find(|s| bytes.is_multiple_of(*s))
                .unwrap_or(1)
        };
        let word = step.min(8);
        for at in (0..bytes).step_by(step as usize) {
            let (allocation, offset) =
                self.global(lane, address + u64::from(at), step, AccessKind::Read)?;
            self.check_written(allocation, lane, offset, step)?;
            self.touch_global(warp, allocation, lane, offset, step, Touch::Read)?;
            for part in (0..step).step_by(word as usize) {
                let to = at + part;
                let value = allocation.load(offset + u64::from(part), word);
                data[(to / 8) as usize] |= value << (to % 8 * 8);
            }
        }
        Ok(data)
    }

    pub(super) fn count_global_reads(&mut self, r: &Request<'_>, bytes: &[u32; 32]) {
        let mut sectors = Sectors::new();
        let mut total = 0;
        for lane in lanes(r.mask).filter(|l| bytes[*l] > 0) {
            sectors.add(r.addresses[lane]);
            total += u64::from(bytes[lane]);
        }
        self.counts.global_loads += Traffic {
            requests: 1,
            sectors: sectors.len as u64,
            bytes: total,
        };
    }

    /// The allocation that holds all of an access, and the access's offset in it.
    #[inline(always)]
    fn global(
        &mut self,
        lane: usize,
        address: u64,
        bytes: u32,
        kind: AccessKind,
    ) -> Step<(&'a Allocation, u64)> {
        // Accesses are powers of two.
        if address & u64::from(bytes - 1) != 0 {
            return Err(self.global_trouble(FaultKind::Misaligned, lane, address, bytes, kind));
        }
        let env = self.env;
        // An instruction mostly stays inside one allocation: try the one that it met last.
        let hint = self.hints[self.pc as usize] as usize;
        match env.memory.live.get(hint) {
            Some(a) if a.contains(address, bytes.into()) => return Ok((a, address - a.base)),
            _ => {}
        }
        if let Some(i) = env.memory.find(address) {
            let a = &env.memory.live[i];
            if a.contains(address, bytes.into()) {
                self.hints[self.pc as usize] = i as u32;
                return Ok((a, address - a.base));
            }
        }
        Err(self.global_trouble(FaultKind::OutOfBounds, lane, address, bytes, kind))
    }

    #[inline(always)]
    fn check_written(
        &self,
        allocation: &Allocation,
        lane: usize,
        offset: u64,
        bytes: u32,
    ) -> Step<()> {
        if !self.env.check_uninitialised || allocation.is_written(offset, bytes) {
            return Ok(());
        }
        let first = allocation.first_unwritten(offset, bytes);
        let kind = FaultKind::UninitialisedRead;
        let mut t = self.global_trouble(
            kind,
            lane,
            allocation.base + offset,
            bytes,
            AccessKind::Read,
        );
        t.detail = format!("byte {} of the {bytes} was never written", first - offset);
        Err(t)
    }

    #[inline(always)]
    fn touch_global(
        &mut self,
        warp: &Warp,
        allocation: &Allocation,
        lane: usize,
        offset: u64,
        bytes: u32,
        touch: Touch,
    ) -> Step<()> {
        if !self.env.check_races {
            return Ok(());
        }
        let thread = warp.index * 32 + lane as u32;
        let shadow = allocation
            .shadow
            .get_or_init(|| Shadow::new(allocation.len));
        let mut access = self.clocks.access(thread, touch);
        let mut before = 0;
        let race = shadow.touch(
            self.env.epoch,
            self.linear as u32,
            offset,
            bytes,
            touch,
            |cell| {
                before = cell;
                access.next(cell)
            },
        );
        let address = allocation.base + offset;
        if race.is_none() && self.env.watch.is_none() {
            return Ok(());
        }
        self.race(
            race,
            allocation.base,
            address,
            (lane, thread),
            bytes,
            touch,
            before,
        )
    }

    /// What follows a race, or an access while an address is watched.
    #[allow(clippy::too_many_arguments)]
    #[cold]
    fn race(
        &mut self,
        race: Option<(u64, bool)>,
        base: u64,
        address: u64,
        (lane, thread): (usize, u32),
        bytes: u32,
        touch: Touch,
        before: u32,
    ) -> Step<()> {
        let kind = access_kind(touch);
        let watched = self
            .env
            .watch
            .filter(|w| (address..address + u64::from(bytes)).contains(w));
        let me = Seen {
            block: self.linear,
            thread,
            pc: self.pc,
            kind,
        };
        let Some((offset, between_blocks)) = race else {
            if watched.is_some() {
                self.seen.push(me);
            }
            return Ok(());
        };
        let at = base + offset;
        if between_blocks && watched.is_none() {
            // All blocks run on, so that the report does not depend on which of them came first.
            self.races
                .fetch_min(at, std::sync::atomic::Ordering::Relaxed);
            return Ok(());
        }
        let conflicts = |s: &&Seen| {
            let apart = if between_blocks {
                s.block != me.block
            } else {
                s.block == me.block && s.thread != me.thread
            };
            let reads = (s.kind == AccessKind::Read) & (kind == AccessKind::Read);
            let atomics = (s.kind == AccessKind::Atomic) & (kind == AccessKind::Atomic);
            apart && !reads && !atomics
        };
        let mut t = if between_blocks {
            self.global_trouble(FaultKind::RaceBetweenBlocks, lane, address, bytes, kind)
        } else {
            self.global_trouble(FaultKind::RaceInBlock, lane, address, bytes, kind)
        };
        t.other = self.seen.iter().rev().find(conflicts).copied();
        t.detail = format!("they meet at {at:#x}");
        if !between_blocks {
            self.race_in_block = Some(at);
            if let (None, Some(other)) = (&t.other, Clocks::culprit(before)) {
                let [x, y, z] = self.env.thread_index(other);
                t.detail =
                    format!("no barrier orders it after the access of thread ({x}, {y}, {z})");
            }
        }
        Err(t)
    }

    fn global_trouble(
        &self,
        mut kind: FaultKind,
        lane: usize,
        address: u64,
        bytes: u32,
        access: AccessKind,
    ) -> Box<Trouble> {
        let distance_to =
            |base: u64, len: u64| FaultAllocation::distance(address, bytes, base, len);
        let live = self.env.memory.live.iter().map(|a| (a.base, a.len));
        let nearest = live
            .enumerate()
            .min_by_key(|(_, (base, len))| distance_to(*base, *len).unsigned_abs());
        let mut allocation = nearest.map(|(i, (base, len))| FaultAllocation {
            name: self.env.memory.live[i].name(),
            base,
            len,
            distance: distance_to(base, len),
        });
        if kind == FaultKind::OutOfBounds {
            let freed = self
                .env
                .memory
                .freed
                .iter()
                .find(|f| address >= f.base && address < f.base + f.len);
            if let Some(f) = freed {
                kind = FaultKind::UseAfterFree;
                allocation = Some(FaultAllocation {
                    name: f.name.clone(),
                    base: f.base,
                    len: f.len,
                    distance: 0,
                });
            }
        }
        let mut t = Trouble::new(kind, lane as u32, "");
        t.access = Some(FaultAccess {
            space: MemorySpace::Global,
            address,
            bytes,
            kind: access,
        });
        t.allocation = allocation;
        t
    }
}
