//! What each lane has for itself: local variables, and the parameters of kernels and calls.

use super::access::Request;
use super::block::Block;
use super::warp::Warp;
use super::{Lanes, Step, Trouble, lanes};
use crate::fault::{AccessKind, FaultAccess, FaultKind, MemorySpace};
use crate::ir::*;

/// The same number of bytes for each lane of a warp.
pub(crate) struct Private {
    bytes: Vec<u8>,
    /// Bytes of a lane.
    stride: usize,
    /// A bit for each byte that was written, each lane's from a word of its own; empty where writes are not tracked.
    written: Vec<u32>,
}

impl Private {
    pub(super) fn new(stride: u32, check_written: bool) -> Self {
        let stride = stride as usize;
        let words = if check_written {
            stride.div_ceil(32)
        } else {
            0
        };
        Self {
            bytes: vec![0; stride * 32],
            stride,
            written: vec![0; words * 32],
        }
    }

    /// What the next block finds.
    pub(super) fn reset(&mut self) {
        self.bytes.fill(0);
        self.written.fill(0);
    }

    /// All bytes of a lane.
    pub(super) fn frame(&mut self, lane: usize) -> &mut [u8] {
        &mut self.bytes[lane * self.stride..][..self.stride]
    }

    /// The word of `written`, and the bits in it, of up to 8 aligned bytes of a lane.
    fn bits(&self, lane: usize, offset: usize, bytes: usize) -> (usize, u32) {
        (
            lane * self.stride.div_ceil(32) + offset / 32,
            (u32::MAX >> (32 - bytes)) << (offset % 32),
        )
    }

    fn mark_written(&mut self, lane: usize, offset: usize, bytes: usize) {
        if !self.written.is_empty() {
            let (i, bits) = self.bits(lane, offset, bytes);
            self.written[i] |= bits;
        }
    }

    /// The first of these bytes that nothing wrote.
    fn first_unwritten(&self, lane: usize, offset: usize, bytes: usize) -> Option<usize> {
        if self.written.is_empty() {
            return None;
        }
        let (i, bits) = self.bits(lane, offset, bytes);
        let missing = bits & !self.written[i];
        (missing != 0).then(|| offset / 32 * 32 + missing.trailing_zeros() as usize - offset)
    }
}

impl Warp {
    fn private(&mut self, space: Space) -> &mut Private {
        match space {
            Space::Local => &mut self.local,
            _ => &mut self.arena,
        }
    }
}

impl Block<'_> {
    pub(super) fn load_private(
        &mut self,
        warp: &mut Warp,
        space: Space,
        r: &Request<'_>,
        access: &Access,
        values: &mut [Lanes; 4],
    ) -> Step<()> {
        let n = usize::from(access.bytes);
        for lane in lanes(r.mask) {
            for (i, at) in access.elements(r.addresses[lane]) {
                let mut bytes = [0; 8];
                if space == Space::Param && at < ARENA_BASE.into() {
                    bytes[..n].copy_from_slice(self.kernel_param(lane, at, access.bytes)?);
                } else {
                    let offset = self.private_offset(space, lane, at, n, AccessKind::Read)?;
                    let memory = warp.private(space);
                    bytes[..n].copy_from_slice(&memory.frame(lane)[offset..offset + n]);
                    if let Some(first) = memory.first_unwritten(lane, offset, n) {
                        let detail = format!("byte {first} of the {n} was never written");
                        let kind = FaultKind::UninitialisedRead;
                        let access = private_access(space, at, n, AccessKind::Read);
                        return Err(private_trouble(kind, lane, access, detail));
                    }
                }
                values[i][lane] = u64::from_le_bytes(bytes);
            }
        }
        Ok(())
    }

    pub(super) fn store_private(
        &mut self,
        warp: &mut Warp,
        space: Space,
        r: &Request<'_>,
        access: &Access,
        values: &[Lanes; 4],
    ) -> Step<()> {
        let n = usize::from(access.bytes);
        for lane in lanes(r.mask) {
            for (i, at) in access.elements(r.addresses[lane]) {
                let offset = self.private_offset(space, lane, at, n, AccessKind::Write)?;
                let memory = warp.private(space);
                let to = &mut memory.frame(lane)[offset..offset + n];
                to.copy_from_slice(&values[i][lane].to_le_bytes()[..n]);
                memory.mark_written(lane, offset, n);
            }
        }
        Ok(())
    }

    /// Where an address of a lane's own lies among its bytes.
    fn private_offset(
        &self,
        space: Space,
        lane: usize,
        address: u64,
        bytes: usize,
        kind: AccessKind,
    ) -> Step<usize> {
        let (base, stride) = match space {
            Space::Local => (LOCAL_BASE, self.env.program.local_bytes),
            _ => (ARENA_BASE, self.env.program.arena_bytes),
        };
        let offset = address.wrapping_sub(base.into());
        let fits = offset < stride.into() && offset + bytes as u64 <= stride.into();
        let fault = match fits {
            // Accesses are powers of two.
            true if address & (bytes as u64 - 1) == 0 => return Ok(offset as usize),
            true => FaultKind::Misaligned,
            false => FaultKind::OutOfBounds,
        };
        let access = private_access(space, address, bytes, kind);
        let detail = format!("the thread has {stride} bytes from {base:#x}");
        Err(private_trouble(fault, lane, access, detail))
    }

    fn kernel_param(&self, lane: usize, address: u64, bytes: u8) -> Step<&[u8]> {
        let params = self.env.params;
        let end = address + u64::from(bytes);
        let kind = match address % u64::from(bytes) {
            0 if end <= params.len() as u64 => return Ok(&params[address as usize..end as usize]),
            0 => FaultKind::OutOfBounds,
            _ => FaultKind::Misaligned,
        };
        let access = private_access(Space::Param, address, bytes.into(), AccessKind::Read);
        let detail = format!("the kernel has {} bytes of parameters", params.len());
        Err(private_trouble(kind, lane, access, detail))
    }
}

fn private_access(space: Space, address: u64, bytes: usize, kind: AccessKind) -> FaultAccess {
    let space = match space {
        Space::Local => MemorySpace::Local,
        _ => MemorySpace::Param,
    };
    FaultAccess {
        space,
        address,
        bytes: bytes as u32,
        kind,
    }
}

fn private_trouble(
    kind: FaultKind,
    lane: usize,
    access: FaultAccess,
    detail: String,
) -> Box<Trouble> {
    let mut trouble = Trouble::new(kind, lane as u32, detail);
    trouble.access = Some(access);
    trouble
}
