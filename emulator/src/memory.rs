//! The simulated global memory: allocations with gaps between them, and a bit for every byte that was ever written.
//!
//! Words are relaxed atomics, because blocks run side by side and a kernel under test may race; what a racing kernel
//! reads is then any of the values written, never undefined behaviour. Without races the order is given by the launches
//! alone.

use crate::shadow::Shadow;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock};
use thiserror::Error;

/// The pattern that fresh memory shows.
const FRESH: u32 = 0xCDCD_CDCD;
const FIRST_ADDRESS: u64 = 0x2_0000_0000;
/// Addresses between two allocations: an index that runs away lands here rather than in a neighbour.
const GAP: u64 = 64 << 10;
const ALIGNMENT: u64 = 256;
/// Freed allocations that reports can still name.
const REMEMBERED: usize = 4096;

/// Why the host's own access to device memory failed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The device is full.
    #[error(
        "out of device memory: {requested} bytes were asked for and {available} of {limit} are free"
    )]
    OutOfMemory {
        /// Bytes asked for.
        requested: u64,
        /// Bytes left.
        available: u64,
        /// Bytes of the device.
        limit: u64,
    },
    /// No live allocation holds these bytes.
    #[error("{len} bytes at {address:#x} are not inside one live allocation")]
    OutOfBounds {
        /// First address.
        address: u64,
        /// Bytes.
        len: u64,
    },
    /// Not the first address of a live allocation.
    #[error("{address:#x} is not the beginning of a live allocation")]
    NotAllocated {
        /// The address that was given.
        address: u64,
    },
}

pub(crate) struct Allocation {
    pub base: u64,
    pub len: u64,
    words: Box<[AtomicU32]>,
    /// A bit for each byte: whether it was written.
    written: Box<[AtomicU32]>,
    pub shadow: OnceLock<Shadow>,
    name: Mutex<String>,
}

fn atomics(len: usize, value: u32) -> Option<Box<[AtomicU32]>> {
    let mut v = Vec::new();
    v.try_reserve_exact(len).ok()?;
    v.resize_with(len, || AtomicU32::new(value));
    Some(v.into_boxed_slice())
}

impl Allocation {
    fn new(base: u64, len: u64, name: String) -> Option<Self> {
        let words = usize::try_from(len.div_ceil(4)).ok()?;
        let name = Mutex::new(name);
        let (data, written) = (atomics(words, FRESH)?, atomics(words.div_ceil(8), 0)?);
        Some(Self {
            base,
            len,
            words: data,
            written,
            shadow: OnceLock::new(),
            name,
        })
    }

    pub(crate) fn name(&self) -> String {
        self.name
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    pub(crate) fn contains(&self, address: u64, len: u64) -> bool {
        address
            .checked_sub(self.base)
            .is_some_and(|o| o.checked_add(len).is_some_and(|end| end <= self.len))
    }

    /// Reads 1, 2, 4 or 8 aligned bytes at `offset`.
    #[inline(always)]
    pub(crate) fn load(&self, offset: u64, bytes: u32) -> u64 {
        let i = (offset / 4) as usize;
        let word = self.words[i].load(Relaxed);
        match bytes {
            4 => word.into(),
            8 => u64::from(word) | u64::from(self.words[i + 1].load(Relaxed)) << 32,
            2 => u64::from(word >> (offset % 4 * 8)) & 0xFFFF,
            _ => u64::from(word >> (offset % 4 * 8)) & 0xFF,
        }
    }

    /// Writes 1, 2, 4 or 8 aligned bytes at `offset`.
    #[inline(always)]
    pub(crate) fn store(&self, offset: u64, bytes: u32, value: u64) {
        let i = (offset / 4) as usize;
        match bytes {
            4 => self.words[i].store(value as u32, Relaxed),
            8 => {
                self.words[i].store(value as u32, Relaxed);
                self.words[i + 1].store((value >> 32) as u32, Relaxed);
            }
            _ => {
                // Another block may own the rest of the word.
                self.update(offset, bytes, |_| value);
            }
        }
    }

    /// Replaces 1, 2, 4 or 8 aligned bytes by a function of them, and gives the old ones. Up to 4 bytes change at once.
    pub(crate) fn update(&self, offset: u64, bytes: u32, f: impl Fn(u64) -> u64) -> u64 {
        if bytes == 8 {
            let old = self.load(offset, 8);
            self.store(offset, 8, f(old));
            return old;
        }
        let shift = (offset % 4 * 8) as u32;
        let mask = u32::MAX >> (32 - 8 * bytes) << shift;
        let word = &self.words[(offset / 4) as usize];
        let mut current = word.load(Relaxed);
        loop {
            let new =
                (f(u64::from((current & mask) >> shift)) as u32) << shift & mask | current & !mask;
            match word.compare_exchange_weak(current, new, Relaxed, Relaxed) {
                Ok(old) => return u64::from((old & mask) >> shift),
                Err(other) => current = other,
            }
        }
    }

    /// The bits of `written` for up to 16 bytes that do not cross a 32-byte line.
    #[inline(always)]
    fn bits(offset: u64, bytes: u32) -> (usize, u32) {
        (
            (offset / 32) as usize,
            (u32::MAX >> (32 - bytes)) << (offset % 32),
        )
    }

    #[inline(always)]
    pub(crate) fn is_written(&self, offset: u64, bytes: u32) -> bool {
        let (i, bits) = Self::bits(offset, bytes);
        self.written[i].load(Relaxed) & bits == bits
    }

    /// The first of these bytes that nothing wrote.
    pub(crate) fn first_unwritten(&self, offset: u64, bytes: u32) -> u64 {
        let (i, bits) = Self::bits(offset, bytes);
        let missing = bits & !self.written[i].load(Relaxed);
        offset / 32 * 32 + u64::from(missing.trailing_zeros())
    }

    #[inline(always)]
    pub(crate) fn mark_written(&self, offset: u64, bytes: u32) {
        let (i, bits) = Self::bits(offset, bytes);
        if self.written[i].load(Relaxed) & bits != bits {
            self.written[i].fetch_or(bits, Relaxed);
        }
    }

    /// Marks any range.
    fn mark_range(&self, offset: u64, len: u64) {
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let n = (32 - at % 32).min(end - at);
            self.mark_written(at, n as u32);
            at += n;
        }
    }

    fn is_range_written(&self, offset: u64, len: u64) -> bool {
        let end = offset + len;
        let mut at = offset;
        while at < end {
            let n = (32 - at % 32).min(end - at);
            if !self.is_written(at, n as u32) {
                return false;
            }
            at += n;
        }
        true
    }

    /// Writes any range, `byte(i)` at its `i`th place.
    fn write_with(&self, offset: u64, len: u64, byte: impl Fn(u64) -> u8) {
        let mut i = 0;
        while i < len {
            let at = offset + i;
            if at.is_multiple_of(4) && len - i >= 4 {
                let word = u32::from_le_bytes([byte(i), byte(i + 1), byte(i + 2), byte(i + 3)]);
                self.words[(at / 4) as usize].store(word, Relaxed);
                i += 4;
            } else {
                self.store(at, 1, byte(i).into());
                i += 1;
            }
        }
        self.mark_range(offset, len);
    }

    fn read_into(&self, offset: u64, out: &mut [u8]) {
        let mut i = 0;
        while i < out.len() {
            let at = offset + i as u64;
            if at.is_multiple_of(4) && out.len() - i >= 4 {
                out[i..i + 4]
                    .copy_from_slice(&self.words[(at / 4) as usize].load(Relaxed).to_le_bytes());
                i += 4;
            } else {
                out[i] = self.load(at, 1) as u8;
                i += 1;
            }
        }
    }
}

/// A freed allocation, for reports.
#[derive(Debug, Clone)]
pub(crate) struct Freed {
    pub base: u64,
    pub len: u64,
    pub name: String,
}

#[derive(Default)]
struct HeapState {
    /// Ascending by address: addresses are never used twice.
    live: Arc<Vec<Arc<Allocation>>>,
    freed: Arc<VecDeque<Freed>>,
    next: u64,
    in_use: u64,
    peak: u64,
}

pub(crate) struct Heap {
    state: RwLock<HeapState>,
    limit: u64,
}

/// The allocations as a launch sees them.
#[derive(Clone)]
pub(crate) struct Snapshot {
    pub live: Arc<Vec<Arc<Allocation>>>,
    pub freed: Arc<VecDeque<Freed>>,
}

impl Snapshot {
    /// The index of the allocation that begins last before `address`; the caller checks its end.
    pub(crate) fn find(&self, address: u64) -> Option<usize> {
        self.live
            .partition_point(|a| a.base <= address)
            .checked_sub(1)
    }
}

impl Heap {
    pub(crate) fn new(limit: u64) -> Self {
        Self {
            state: RwLock::new(HeapState {
                next: FIRST_ADDRESS,
                ..HeapState::default()
            }),
            limit,
        }
    }

    fn with<T>(&self, f: impl FnOnce(&mut HeapState) -> T) -> T {
        f(&mut self.state.write().unwrap_or_else(PoisonError::into_inner))
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        Snapshot {
            live: state.live.clone(),
            freed: state.freed.clone(),
        }
    }

    pub(crate) fn alloc(&self, bytes: u64, name: Option<String>) -> Result<u64, MemoryError> {
        self.with(|heap| {
            let available = self.limit - heap.in_use;
            let full = || MemoryError::OutOfMemory {
                requested: bytes,
                available,
                limit: self.limit,
            };
            if bytes > available {
                return Err(full());
            }
            let base = heap.next;
            let name = name.unwrap_or_else(|| format!("allocation {base:#x}"));
            let allocation = Allocation::new(base, bytes, name).ok_or_else(full)?;
            Arc::make_mut(&mut heap.live).push(Arc::new(allocation));
            heap.next = (base + bytes + GAP).next_multiple_of(ALIGNMENT);
            heap.in_use += bytes;
            heap.peak = heap.peak.max(heap.in_use);
            Ok(base)
        })
    }

    pub(crate) fn free(&self, address: u64) -> Result<(), MemoryError> {
        self.with(|heap| {
            let i = heap
                .live
                .binary_search_by_key(&address, |a| a.base)
                .map_err(|_| MemoryError::NotAllocated { address })?;
            let gone = Arc::make_mut(&mut heap.live).remove(i);
            heap.in_use -= gone.len;
            let freed = Arc::make_mut(&mut heap.freed);
            if freed.len() == REMEMBERED {
                freed.pop_front();
            }
            freed.push_back(Freed {
                base: gone.base,
                len: gone.len,
                name: gone.name(),
            });
            Ok(())
        })
    }

    /// The allocation that holds all of a range, and the range's offset in it.
    fn locate(&self, address: u64, len: u64) -> Result<(Arc<Allocation>, u64), MemoryError> {
        let state = self.state.read().unwrap_or_else(PoisonError::into_inner);
        let i = state.live.partition_point(|a| a.base <= address);
        match i.checked_sub(1).map(|i| &state.live[i]) {
            Some(a) if a.contains(address, len) => Ok((a.clone(), address - a.base)),
            _ => Err(MemoryError::OutOfBounds { address, len }),
        }
    }

    pub(crate) fn write(&self, address: u64, data: &[u8]) -> Result<(), MemoryError> {
        let (a, offset) = self.locate(address, data.len() as u64)?;
        a.write_with(offset, data.len() as u64, |i| data[i as usize]);
        Ok(())
    }

    pub(crate) fn fill(&self, address: u64, byte: u8, len: u64) -> Result<(), MemoryError> {
        let (a, offset) = self.locate(address, len)?;
        a.write_with(offset, len, |_| byte);
        Ok(())
    }

    pub(crate) fn read(&self, address: u64, out: &mut [u8]) -> Result<(), MemoryError> {
        let (a, offset) = self.locate(address, out.len() as u64)?;
        a.read_into(offset, out);
        Ok(())
    }

    pub(crate) fn is_initialised(&self, address: u64, len: u64) -> Result<bool, MemoryError> {
        let (a, offset) = self.locate(address, len)?;
        Ok(a.is_range_written(offset, len))
    }

    pub(crate) fn name(&self, address: u64, name: &str) -> Result<(), MemoryError> {
        let (a, _) = self.locate(address, 0)?;
        *a.name.lock().unwrap_or_else(PoisonError::into_inner) = name.to_owned();
        Ok(())
    }

    pub(crate) fn in_use(&self) -> u64 {
        self.with(|heap| heap.in_use)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.with(|heap| heap.peak)
    }

    pub(crate) fn reset_peak(&self) {
        self.with(|heap| heap.peak = heap.in_use);
    }

    /// Forgets all race state, when the launches' numbers start over.
    pub(crate) fn clear_shadows(&self) {
        for shadow in self.snapshot().live.iter().filter_map(|a| a.shadow.get()) {
            shadow.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_every_alignment_survive() {
        let heap = Heap::new(1 << 20);
        let a = heap.alloc(101, None).unwrap();
        for offset in 0..9u64 {
            for len in 0..40u64 {
                let data: Vec<u8> = (0..len).map(|i| (i + offset + len) as u8).collect();
                heap.write(a + offset, &data).unwrap();
                let mut back = vec![0; len as usize];
                heap.read(a + offset, &mut back).unwrap();
                assert_eq!(back, data);
            }
        }
        assert!(heap.is_initialised(a, 47).unwrap());
        assert!(!heap.is_initialised(a, 48).unwrap());
    }

    #[test]
    fn fresh_memory_shows_its_pattern_and_gaps_are_nobodys() {
        let heap = Heap::new(1000);
        let a = heap.alloc(600, Some("x".into())).unwrap();
        let mut byte = [0];
        heap.read(a + 599, &mut byte).unwrap();
        assert_eq!(byte, [0xCD]);
        assert_eq!(
            heap.read(a + 600, &mut byte),
            Err(MemoryError::OutOfBounds {
                address: a + 600,
                len: 1
            })
        );
        assert_eq!(
            heap.alloc(500, None),
            Err(MemoryError::OutOfMemory {
                requested: 500,
                available: 400,
                limit: 1000
            })
        );
        heap.free(a).unwrap();
        assert_eq!(heap.free(a), Err(MemoryError::NotAllocated { address: a }));
        assert_eq!((heap.in_use(), heap.peak()), (0, 600));
        let b = heap.alloc(1000, None).unwrap();
        assert!(b > a + 600);
    }

    #[test]
    fn narrow_updates_leave_their_neighbours() {
        let heap = Heap::new(100);
        let base = heap.alloc(8, None).unwrap();
        heap.fill(base, 0, 8).unwrap();
        let (a, _) = heap.locate(base, 8).unwrap();
        a.store(2, 2, 0xBEEF);
        a.store(1, 1, 0x7F);
        assert_eq!(a.load(0, 4), 0xBEEF_7F00);
        assert_eq!(a.update(2, 2, |v| v + 1), 0xBEEF);
        assert_eq!(a.load(0, 8), 0xBEF0_7F00);
        a.store(0, 8, u64::MAX);
        assert_eq!(a.load(4, 4), 0xFFFF_FFFF);
    }
}
