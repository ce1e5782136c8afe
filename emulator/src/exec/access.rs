//! Loads, stores and atomics: which memory an address means, and the memories of the block and the lane.

use super::block::Block;
use super::warp::Warp;
use super::{Lanes, Seen, Step, Trouble, lanes};
use crate::alu::atomic::{self, Unit as AtomicUnit};
use crate::fault::{AccessKind, FaultAccess, FaultAllocation, FaultKind, MemorySpace};
use crate::ir::*;
use crate::order::Clocks;
use crate::shadow::Touch;
use crate::shared::bank_conflicts;

/// Bytes of the largest access.
const MAX_ELEMENTS: usize = 4;

/// One request: the addresses of the lanes, in one space.
pub(super) struct Request<'a> {
    pub mask: u32,
    pub addresses: &'a Lanes,
}

/// The addresses of one instruction, each in its own space, and the lanes of each of [`SPACES`].
struct Requests {
    addresses: Lanes,
    masks: [u32; 4],
}

const SPACES: [Space; 4] = [Space::Global, Space::Shared, Space::Local, Space::Param];

impl Requests {
    /// Those that any lane takes part in.
    fn iter(&self) -> impl Iterator<Item = (Space, Request<'_>)> {
        let addresses = &self.addresses;
        let taken = SPACES
            .into_iter()
            .zip(self.masks)
            .filter(|(_, mask)| *mask != 0);
        taken.map(move |(space, mask)| (space, Request { mask, addresses }))
    }
}

impl Block<'_> {
    /// The spaces that the lanes' addresses mean.
    fn requests(&self, warp: &Warp, mask: u32, access: &Access) -> Requests {
        let base = warp.row(&self.env.constants, access.address);
        let mut addresses: Lanes =
            std::array::from_fn(|i| base[i].wrapping_add(access.offset as u64));
        let mut masks = [0u32; 4];
        match access.space {
            Space::Global => masks[0] = mask,
            Space::Shared => masks[1] = mask,
            Space::Local => masks[2] = mask,
            Space::Param => masks[3] = mask,
            Space::Generic => {
                for lane in lanes(mask) {
                    let a = addresses[lane];
                    if !(SHARED_WINDOW..PARAM_WINDOW + WINDOW).contains(&a) {
                        masks[0] |= 1 << lane;
                        continue;
                    }
                    let (i, base) = match a {
                        LOCAL_WINDOW..PARAM_WINDOW => (2, LOCAL_WINDOW),
                        PARAM_WINDOW.. => (3, PARAM_WINDOW),
                        _ => (1, SHARED_WINDOW),
                    };
                    masks[i] |= 1 << lane;
                    addresses[lane] = a - base;
                }
            }
        }
        Requests { addresses, masks }
    }

    pub(super) fn load(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        d: [Row; 4],
        access: Access,
        width: u8,
    ) -> Step<()> {
        let touch = if access.strong {
            Touch::Atomic
        } else {
            Touch::Read
        };
        let mut values = [[0u64; 32]; MAX_ELEMENTS];
        for (space, request) in self.requests(warp, mask, &access).iter() {
            match space {
                Space::Shared => self.load_shared(warp, &request, &access, touch, &mut values)?,
                Space::Local | Space::Param => {
                    self.load_private(warp, space, &request, &access, &mut values)?
                }
                Space::Generic | Space::Global => {
                    self.load_global(warp, &request, &access, touch, &mut values)?
                }
            }
        }
        for (row, values) in d.iter().zip(&mut values).take(access.count.into()) {
            if access.signed {
                extend_sign(values, access.bytes, width);
            }
            warp.put(*row, mask, values);
        }
        Ok(())
    }

    pub(super) fn load_param(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        d: [Row; 4],
        offset: u32,
        access: Access,
        width: u8,
    ) {
        for (i, row) in d.iter().enumerate().take(access.count.into()) {
            let from = offset as usize + i * usize::from(access.bytes);
            let mut bytes = [0; 8];
            bytes[..access.bytes.into()]
                .copy_from_slice(&self.env.params[from..from + usize::from(access.bytes)]);
            let mut values = [u64::from_le_bytes(bytes); 32];
            if access.signed {
                extend_sign(&mut values, access.bytes, width);
            }
            warp.put(*row, mask, &values);
        }
    }

    pub(super) fn store(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        s: [Row; 4],
        access: Access,
    ) -> Step<()> {
        let touch = if access.strong {
            Touch::Atomic
        } else {
            Touch::Write
        };
        let mut values = [[0u64; 32]; MAX_ELEMENTS];
        for (row, values) in s.iter().zip(&mut values).take(access.count.into()) {
            *values = *warp.row(&self.env.constants, *row);
        }
        for (space, request) in self.requests(warp, mask, &access).iter() {
            match space {
                Space::Shared => self.store_shared(warp, &request, &access, touch, &values)?,
                Space::Local | Space::Param => {
                    self.store_private(warp, space, &request, &access, &values)?
                }
                Space::Generic | Space::Global => {
                    self.store_global(warp, &request, &access, touch, &values)?
                }
            }
        }
        Ok(())
    }

    pub(super) fn atomic(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        (op, ty): (AtomicOp, AtomicType),
        d: Row,
        access: Access,
        operands: [Row; 2],
    ) -> Step<()> {
        let [b, c] = operands.map(|r| *warp.row(&self.env.constants, r));
        let bytes = u32::from(access.bytes);
        let mut old = [0u64; 32];
        for (space, request) in self.requests(warp, mask, &access).iter() {
            match space {
                Space::Shared => {
                    self.count_shared(&request, bytes);
                    for lane in lanes(request.mask) {
                        let offset = self.shared_offset(
                            lane,
                            request.addresses[lane],
                            bytes,
                            AccessKind::Atomic,
                        )?;
                        self.check_shared_written(lane, offset, bytes, AccessKind::Atomic)?;
                        self.touch_shared(warp, lane, offset, bytes, Touch::Atomic)?;
                        old[lane] = self.shared.load(offset, bytes);
                        self.shared.store(
                            offset,
                            bytes,
                            atomic::apply(op, ty, AtomicUnit::Shared, old[lane], b[lane], c[lane]),
                        );
                    }
                }
                Space::Generic | Space::Global => {
                    self.atomic_global(warp, &request, bytes, &mut old, |lane, v| {
                        atomic::apply(op, ty, AtomicUnit::Global, v, b[lane], c[lane])
                    })?;
                }
                _ => {
                    return Err(Trouble::new(
                        FaultKind::InvalidOperand,
                        request.mask.trailing_zeros(),
                        "an atomic works on global or shared memory only",
                    ));
                }
            }
        }
        warp.put(d, mask, &old);
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
        let offset = address as i64 - i64::from(SHARED_BASE);
        let inside = |v: &&SharedVariable| {
            offset >= v.offset.into() && offset < i64::from(v.offset) + i64::from(v.size)
        };
        let variable = self.env.program.shared.iter().find(inside);
        let (name, base, len) = match variable {
            Some(v) => (v.name.clone(), v.offset, v.size),
            None => (
                "shared memory of the block".to_owned(),
                0,
                self.env.shared_bytes(),
            ),
        };
        let end = i64::from(base) + i64::from(len);
        let distance = if offset < base.into() {
            offset - i64::from(base)
        } else if offset >= end {
            offset - end
        } else {
            (offset + i64::from(bytes) - end).max(0)
        };
        // An access right at the end starts 0 bytes after it, and still is outside.
        let distance = if kind == FaultKind::OutOfBounds && offset >= end {
            distance.max(1)
        } else {
            distance
        };
        t.allocation = Some(FaultAllocation {
            name,
            base: u64::from(SHARED_BASE + base),
            len: len.into(),
            distance,
        });
        t
    }

    fn load_shared(
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
            for (i, v) in values.iter_mut().enumerate().take(access.count.into()) {
                v[lane] = self.shared.load(
                    offset + i as u32 * u32::from(access.bytes),
                    access.bytes.into(),
                );
            }
        }
        Ok(())
    }

    fn store_shared(
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
            for (i, v) in values.iter().enumerate().take(access.count.into()) {
                self.shared.store(
                    offset + i as u32 * u32::from(access.bytes),
                    access.bytes.into(),
                    v[lane],
                );
            }
            self.shared.mark_written(offset, total);
        }
        Ok(())
    }

    /// Where a lane's own byte lies: in its local variables or its call parameters.
    fn private<'m>(
        &self,
        warp: &'m mut Warp,
        space: Space,
        lane: usize,
        address: u64,
        bytes: u32,
        kind: AccessKind,
    ) -> Step<&'m mut [u8]> {
        let (memory, base, stride, name) = match space {
            Space::Local => (
                &mut warp.local,
                LOCAL_BASE,
                self.env.program.local_bytes,
                MemorySpace::Local,
            ),
            _ => (
                &mut warp.arena,
                ARENA_BASE,
                self.env.program.arena_bytes,
                MemorySpace::Param,
            ),
        };
        let offset = address.wrapping_sub(base.into());
        let fits = offset < stride.into() && offset + u64::from(bytes) <= stride.into();
        if fits && address & u64::from(bytes - 1) == 0 {
            let from = lane * stride as usize + offset as usize;
            return Ok(&mut memory[from..from + bytes as usize]);
        }
        let mut t = Trouble::new(
            if fits {
                FaultKind::Misaligned
            } else {
                FaultKind::OutOfBounds
            },
            lane as u32,
            "",
        );
        t.access = Some(FaultAccess {
            space: name,
            address,
            bytes,
            kind,
        });
        t.detail = format!("the thread has {stride} bytes from {base:#x}");
        Err(t)
    }

    fn load_private(
        &mut self,
        warp: &mut Warp,
        space: Space,
        r: &Request<'_>,
        access: &Access,
        values: &mut [Lanes; 4],
    ) -> Step<()> {
        for lane in lanes(r.mask) {
            let address = r.addresses[lane];
            for (i, v) in values.iter_mut().enumerate().take(access.count.into()) {
                let n = usize::from(access.bytes);
                let at = address.wrapping_add((i * n) as u64);
                let mut bytes = [0; 8];
                if space == Space::Param && at < ARENA_BASE.into() {
                    bytes[..n].copy_from_slice(self.kernel_param(lane, at, access.bytes)?);
                } else {
                    bytes[..n].copy_from_slice(self.private(
                        warp,
                        space,
                        lane,
                        at,
                        n as u32,
                        AccessKind::Read,
                    )?);
                }
                v[lane] = u64::from_le_bytes(bytes);
            }
        }
        Ok(())
    }

    fn kernel_param(&self, lane: usize, address: u64, bytes: u8) -> Step<&[u8]> {
        let params = self.env.params;
        let end = address + u64::from(bytes);
        let kind = match address % u64::from(bytes) {
            0 if end <= params.len() as u64 => return Ok(&params[address as usize..end as usize]),
            0 => FaultKind::OutOfBounds,
            _ => FaultKind::Misaligned,
        };
        let mut t = Trouble::new(
            kind,
            lane as u32,
            format!("the kernel has {} bytes of parameters", params.len()),
        );
        t.access = Some(FaultAccess {
            space: MemorySpace::Param,
            address,
            bytes: bytes.into(),
            kind: AccessKind::Read,
        });
        Err(t)
    }

    fn store_private(
        &mut self,
        warp: &mut Warp,
        space: Space,
        r: &Request<'_>,
        access: &Access,
        values: &[Lanes; 4],
    ) -> Step<()> {
        for lane in lanes(r.mask) {
            for (i, v) in values.iter().enumerate().take(access.count.into()) {
                let n = usize::from(access.bytes);
                let at = r.addresses[lane].wrapping_add((i * n) as u64);
                let to = self.private(warp, space, lane, at, n as u32, AccessKind::Write)?;
                to.copy_from_slice(&v[lane].to_le_bytes()[..n]);
            }
        }
        Ok(())
    }
}

pub(super) fn access_kind(touch: Touch) -> AccessKind {
    match touch {
        Touch::Read => AccessKind::Read,
        Touch::Write => AccessKind::Write,
        Touch::Atomic => AccessKind::Atomic,
    }
}

/// What an instruction does to memory.
fn kind_of(op: &Op) -> AccessKind {
    match op {
        Op::Load { access, .. } | Op::Store { access, .. } if access.strong => AccessKind::Atomic,
        Op::Load { .. } | Op::Collective { .. } => AccessKind::Read,
        Op::Atomic { .. } => AccessKind::Atomic,
        _ => AccessKind::Write,
    }
}

/// Extends the sign of `bytes` bytes to `width` bits.
fn extend_sign(values: &mut Lanes, bytes: u8, width: u8) {
    let unused = 64 - 8 * u32::from(bytes);
    for v in values.iter_mut() {
        *v = ((*v << unused) as i64 >> unused) as u64 & (u64::MAX >> (64 - width));
    }
}
