//! Shared memory as lanes see it: bounds, alignment, written bytes, races, and the counting of bank conflicts.

use super::access::{Request, access_kind, kind_of};
use super::block::Block;
use super::warp::Warp;
use super::{Lanes, Seen, Step, Trouble, lanes};
use crate::fault::{AccessKind, FaultAccess, FaultAllocation, FaultKind, MemorySpace};
use crate::ir::*;
use crate::order::Clocks;
use crate::shadow::Touch;
use crate::shared::bank_conflicts;

impl Block<'_> {
    pub(super) fn load_shared(
        &mut self,
        warp: &Warp,
        r: &Request<'_>,
        access: &Access,
        touch: Touch,
        values: &mut [Lanes; 4],
    ) -> Step<()> {
        let total = access.total();
        self.count_shared(r, total);
        for lane in lanes(r.mask) {
            let offset = self.shared_offset(lane, r.addresses[lane], total, AccessKind::Read)?;
            self.check_shared_written(lane, offset, total, AccessKind::Read)?;
            self.touch_shared(warp, lane, offset, total, touch)?;
            for (i, at) in access.elements(offset.into()) {
                values[i][lane] = self.shared.load(at as u32, access.bytes.into());
            }
        }
        Ok(())
    }

    pub(super) fn store_shared(
        &mut self,
        warp: &Warp,
        r: &Request<'_>,
        access: &Access,
        touch: Touch,
        values: &[Lanes; 4],
    ) -> Step<()> {
        let total = access.total();
        self.count_shared(r, total);
        for lane in lanes(r.mask) {
            let offset = self.shared_offset(lane, r.addresses[lane], total, AccessKind::Write)?;
            self.touch_shared(warp, lane, offset, total, touch)?;
            for (i, at) in access.elements(offset.into()) {
                self.shared
                    .store(at as u32, access.bytes.into(), values[i][lane]);
            }
            self.shared.mark_written(offset, total);
        }
        Ok(())
    }

    /// Replaces each lane's bytes by a function of them, and gives the old ones.
    pub(super) fn atomic_shared(
        &mut self,
        warp: &Warp,
        r: &Request<'_>,
        bytes: u32,
        old: &mut Lanes,
        f: impl Fn(usize, u64) -> u64,
    ) -> Step<()> {
        self.count_shared(r, bytes);
        for lane in lanes(r.mask) {
            let offset = self.shared_offset(lane, r.addresses[lane], bytes, AccessKind::Atomic)?;
            self.check_shared_written(lane, offset, bytes, AccessKind::Atomic)?;
            self.touch_shared(warp, lane, offset, bytes, Touch::Atomic)?;
            old[lane] = self.shared.load(offset, bytes);
            self.shared.store(offset, bytes, f(lane, old[lane]));
        }
        Ok(())
    }

    fn count_shared(&mut self, request: &Request<'_>, bytes: u32) {
        self.counts.shared_requests += 1;
        self.counts.shared_bytes += u64::from(bytes * request.mask.count_ones());
        let offsets = std::array::from_fn(|i| request.addresses[i] as u32);
        self.counts.bank_conflicts += bank_conflicts(&offsets, request.mask, bytes);
    }

    /// The offset of an address in shared memory, if all of the access lies there.
    pub(super) fn shared_offset(
        &self,
        lane: usize,
        address: u64,
        bytes: u32,
        kind: AccessKind,
    ) -> Step<u32> {
        let size = self.env.shared_bytes();
        let offset = address.wrapping_sub(SHARED_BASE.into());
        // Accesses are powers of two.
        if address & u64::from(bytes - 1) != 0 {
            return Err(self.shared_trouble(FaultKind::Misaligned, lane, address, bytes, kind));
        }
        if offset >= size.into() || offset + u64::from(bytes) > size.into() {
            return Err(self.shared_trouble(FaultKind::OutOfBounds, lane, address, bytes, kind));
        }
        Ok(offset as u32)
    }

    pub(super) fn check_shared_written(
        &self,
        lane: usize,
        offset: u32,
        bytes: u32,
        kind: AccessKind,
    ) -> Step<()> {
        if !self.env.check_uninitialised || self.shared.is_written(offset, bytes) {
            return Ok(());
        }
        let first = self.shared.first_unwritten(offset, bytes);
        let address = u64::from(SHARED_BASE + offset);
        let mut t = self.shared_trouble(FaultKind::UninitialisedRead, lane, address, bytes, kind);
        t.detail = format!("byte {} of the {bytes} was never written", first - offset);
        Err(t)
    }

    /// Notes an access to shared memory and looks for a race.
    #[inline(always)]
    pub(super) fn touch_shared(
        &mut self,
        warp: &Warp,
        lane: usize,
        offset: u32,
        bytes: u32,
        touch: Touch,
    ) -> Step<()> {
        if !self.env.check_races {
            return Ok(());
        }
        let thread = warp.index * 32 + lane as u32;
        let Some(race) = self
            .shared
            .touch(&self.clocks, offset, bytes, thread, touch, self.pc)
        else {
            return Ok(());
        };
        let kind = access_kind(touch);
        let address = u64::from(SHARED_BASE + offset);
        let mut t = self.shared_trouble(FaultKind::RaceInBlock, lane, address, bytes, kind);
        t.detail = format!(
            "no barrier orders the two; they meet at {:#x}",
            SHARED_BASE + race.offset
        );
        t.other = Clocks::culprit(race.cell).map(|other| Seen {
            block: self.linear,
            thread: other,
            pc: race.pc,
            kind: kind_of(&self.env.program.instructions[race.pc as usize].op),
        });
        Err(t)
    }

    fn shared_trouble(
        &self,
        kind: FaultKind,
        lane: usize,
        address: u64,
        bytes: u32,
        access: AccessKind,
    ) -> Box<Trouble> {
        let mut t = Trouble::new(kind, lane as u32, "");
        t.access = Some(FaultAccess {
            space: MemorySpace::Shared,
            address,
            bytes,
            kind: access,
        });
        let base_of = |offset: u32| u64::from(SHARED_BASE + offset);
        let holds = |v: &&SharedVariable| {
            let base = base_of(v.offset);
            (base..base + u64::from(v.size)).contains(&address)
        };
        let (name, base, len) = match self.env.program.shared.iter().find(holds) {
            Some(v) => (v.name.clone(), base_of(v.offset), v.size),
            None => (
                "shared memory of the block".to_owned(),
                base_of(0),
                self.env.shared_bytes(),
            ),
        };
        t.allocation = Some(FaultAllocation {
            name,
            base,
            len: len.into(),
            distance: FaultAllocation::distance(address, bytes, base, len.into()),
        });
        t
    }
}
