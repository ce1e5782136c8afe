//! Loads, stores and atomics: which memory an address means.

use super::block::Block;
use super::warp::Warp;
use super::{Lanes, Step, Trouble, lanes};
use crate::alu::atomic::{self, Unit as AtomicUnit};
use crate::fault::{AccessKind, FaultKind};
use crate::ir::*;
use crate::shadow::Touch;

/// Elements of the largest access.
const MAX_ELEMENTS: usize = 4;

impl Access {
    /// What it does to memory in addition to a plain access: relaxed and volatile ones count as atomic.
    fn touch(&self, plain: Touch) -> Touch {
        if self.strong { Touch::Atomic } else { plain }
    }

    /// Its elements: which register each belongs to, and where it begins, if the first begins at `start`.
    #[inline(always)]
    pub(super) fn elements(&self, start: u64) -> impl Iterator<Item = (usize, u64)> {
        let bytes = u64::from(self.bytes);
        (0..usize::from(self.count)).map(move |i| (i, start.wrapping_add(i as u64 * bytes)))
    }
}

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
        let touch = access.touch(Touch::Read);
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
        let n = usize::from(access.bytes);
        for (i, from) in access.elements(offset.into()) {
            let mut bytes = [0; 8];
            bytes[..n].copy_from_slice(&self.env.params[from as usize..][..n]);
            let mut values = [u64::from_le_bytes(bytes); 32];
            if access.signed {
                extend_sign(&mut values, access.bytes, width);
            }
            warp.put(d[i], mask, &values);
        }
    }

    pub(super) fn store(
        &mut self,
        warp: &mut Warp,
        mask: u32,
        s: [Row; 4],
        access: Access,
    ) -> Step<()> {
        let touch = access.touch(Touch::Write);
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
                    self.atomic_shared(warp, &request, bytes, &mut old, |lane, v| {
                        atomic::apply(op, ty, AtomicUnit::Shared, v, b[lane], c[lane])
                    })?;
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
}

pub(super) fn access_kind(touch: Touch) -> AccessKind {
    match touch {
        Touch::Read => AccessKind::Read,
        Touch::Write => AccessKind::Write,
        Touch::Atomic => AccessKind::Atomic,
    }
}

/// What an instruction does to memory.
pub(super) fn kind_of(op: &Op) -> AccessKind {
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
