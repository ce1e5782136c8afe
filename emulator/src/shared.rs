//! A block's shared memory, with its written bytes and last accesses.

use crate::order::{ClockedAccess, Clocks};
use crate::shadow::Touch;
use std::collections::HashMap;

pub(crate) struct Shared {
    bytes: Vec<u8>,
    /// A bit for each byte.
    written: Vec<u32>,
    /// A thread cell, and the instruction of the access it holds, for every two bytes.
    cells: Vec<(u32, u32)>,
    /// The same for bytes that were accessed alone.
    single: HashMap<u32, (u32, u32)>,
}

/// A race inside the block: the first byte, the cell that was found, and its instruction.
pub(crate) struct SharedRace {
    pub offset: u32,
    pub cell: u32,
    pub pc: u32,
}

impl Shared {
    pub(crate) fn new(len: usize, races: bool) -> Self {
        let padded = len.next_multiple_of(32);
        Self {
            bytes: vec![0xCD; padded],
            written: vec![0; padded / 32],
            cells: if races {
                vec![(0, 0); padded / 2]
            } else {
                Vec::new()
            },
            single: HashMap::new(),
        }
    }

    /// What the next block finds: fresh bytes.
    pub(crate) fn reset(&mut self) {
        self.bytes.fill(0xCD);
        self.written.fill(0);
        self.cells.fill((0, 0));
        self.single.clear();
    }

    /// Reads 1, 2, 4 or 8 aligned bytes.
    #[inline(always)]
    pub(crate) fn load(&self, offset: u32, bytes: u32) -> u64 {
        let from = offset as usize;
        let mut out = [0; 8];
        match bytes {
            4 => out[..4].copy_from_slice(&self.bytes[from..from + 4]),
            8 => out.copy_from_slice(&self.bytes[from..from + 8]),
            2 => out[..2].copy_from_slice(&self.bytes[from..from + 2]),
            _ => out[0] = self.bytes[from],
        }
        u64::from_le_bytes(out)
    }

    #[inline(always)]
    pub(crate) fn store(&mut self, offset: u32, bytes: u32, value: u64) {
        let (from, n) = (offset as usize, bytes as usize);
        match bytes {
            4 => self.bytes[from..from + 4].copy_from_slice(&(value as u32).to_le_bytes()),
            _ => self.bytes[from..from + n].copy_from_slice(&value.to_le_bytes()[..n]),
        }
    }

    #[inline(always)]
    fn bits(offset: u32, bytes: u32) -> (usize, u32) {
        (
            (offset / 32) as usize,
            (u32::MAX >> (32 - bytes)) << (offset % 32),
        )
    }

    #[inline(always)]
    pub(crate) fn is_written(&self, offset: u32, bytes: u32) -> bool {
        let (i, bits) = Self::bits(offset, bytes);
        self.written[i] & bits == bits
    }

    pub(crate) fn first_unwritten(&self, offset: u32, bytes: u32) -> u32 {
        let (i, bits) = Self::bits(offset, bytes);
        offset / 32 * 32 + (bits & !self.written[i]).trailing_zeros()
    }

    #[inline(always)]
    pub(crate) fn mark_written(&mut self, offset: u32, bytes: u32) {
        let (i, bits) = Self::bits(offset, bytes);
        self.written[i] |= bits;
    }

    /// Notes an access by `thread` and looks for a race with earlier ones.
    #[inline(always)]
    pub(crate) fn touch(
        &mut self,
        clocks: &Clocks,
        offset: u32,
        bytes: u32,
        thread: u32,
        touch: Touch,
        pc: u32,
    ) -> Option<SharedRace> {
        let mut access = clocks.access(thread, touch);
        if bytes == 1 {
            let entry = self.single.entry(offset).or_default();
            return Self::step(entry, &mut access, offset, pc);
        }
        let cells = &mut self.cells[(offset / 2) as usize..((offset + bytes) / 2) as usize];
        let mut numbered = cells.iter_mut().zip((offset / 2 * 2..).step_by(2));
        numbered.find_map(|(cell, offset)| Self::step(cell, &mut access, offset, pc))
    }

    #[inline(always)]
    fn step(
        entry: &mut (u32, u32),
        access: &mut ClockedAccess<'_>,
        offset: u32,
        pc: u32,
    ) -> Option<SharedRace> {
        match access.next(entry.0) {
            Some(next) => {
                if next != entry.0 {
                    *entry = (next, pc);
                }
                None
            }
            None => Some(SharedRace {
                offset,
                cell: entry.0,
                pc: entry.1,
            }),
        }
    }
}

/// Extra passes of one request: 32 lanes of up to 4 bytes go at once, 16 of 8, 8 of 16; of the distinct words that a
/// pass needs from one of the 32 banks, all but the first cost another.
pub(crate) fn bank_conflicts(offsets: &[u32; 32], mask: u32, bytes: u32) -> u64 {
    // Lanes side by side, or all at one place: nothing to count.
    let first = mask.trailing_zeros().min(31) as usize;
    let strides = |stride: u32| {
        (0..32).all(|l| {
            let at = offsets[first]
                .wrapping_add((l as u32).wrapping_sub(first as u32).wrapping_mul(stride));
            mask >> l & 1 == 0 || offsets[l] == at
        })
    };
    if strides(bytes) || strides(0) {
        return 0;
    }
    let lanes = (128 / bytes.max(4)).min(32) as usize;
    let words = bytes.div_ceil(4);
    let mut extra = 0;
    for pass in (0..32).step_by(lanes) {
        let mut seen: [[u32; 4]; 32] = [[u32::MAX; 4]; 32];
        let mut depth = [0u8; 32];
        let mut overflow: Vec<(usize, u32)> = Vec::new();
        for lane in (pass..pass + lanes).filter(|l| mask >> l & 1 == 1) {
            for word in offsets[lane] / 4..offsets[lane] / 4 + words {
                let bank = (word % 32) as usize;
                let kept = usize::from(depth[bank]).min(4);
                if seen[bank][..kept].contains(&word)
                    || (kept == 4 && overflow.contains(&(bank, word)))
                {
                    continue;
                }
                if kept < 4 {
                    seen[bank][kept] = word;
                } else {
                    overflow.push((bank, word));
                }
                depth[bank] += 1;
            }
        }
        extra += u64::from(depth.iter().max().copied().unwrap_or(0).saturating_sub(1));
    }
    extra
}

#[cfg(test)]
mod tests {
    use super::*;

    fn conflicts(bytes: u32, offset: impl Fn(u32) -> u32) -> u64 {
        bank_conflicts(&std::array::from_fn(|i| offset(i as u32)), u32::MAX, bytes)
    }

    #[test]
    fn banks() {
        assert_eq!(conflicts(4, |i| i * 4), 0);
        assert_eq!(conflicts(4, |_| 64), 0);
        assert_eq!(conflicts(4, |i| i * 8), 1);
        assert_eq!(conflicts(4, |i| i * 128), 31);
        assert_eq!(conflicts(2, |i| i * 2), 0);
        assert_eq!(conflicts(8, |i| i * 8), 0);
        assert_eq!(conflicts(16, |i| i * 16), 0);
        assert_eq!(conflicts(16, |i| i * 32), 4);
        assert_eq!(bank_conflicts(&[0; 32], 0, 4), 0);
    }

    #[test]
    fn bytes_are_fresh_until_written() {
        let mut shared = Shared::new(100, true);
        assert_eq!(shared.load(96, 4), 0xCDCD_CDCD);
        assert!(!shared.is_written(32, 16));
        shared.store(32, 8, u64::MAX);
        shared.mark_written(32, 8);
        assert_eq!(
            (shared.first_unwritten(32, 16), shared.is_written(32, 8)),
            (40, true)
        );
        shared.reset();
        assert!(!shared.is_written(32, 8));
    }
}
