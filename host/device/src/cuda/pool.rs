//! Freed device memory, kept by size, so that a second epoch allocates nothing.
//!
//! An epoch asks for the same sizes in the same order each time; `cuMemAlloc` and `cuMemFree` cost tens of
//! microseconds each and `cuMemFree` waits for the GPU. So a freed block waits here for the next request of its class,
//! and of its class only: then an epoch needs of each class no more blocks than the one before it had at its peak.

use std::collections::HashMap;

use super::stream::Mark;
use crate::MemoryUse;

/// Bytes of the smallest block, and what small sizes are rounded to; at least the alignment that buffers promise.
const GRANULE: usize = 512;
/// Above this a block is a multiple of [`LARGE_GRANULE`], which is what the driver hands out anyway.
const LARGE: usize = 16 << 20;
/// What large sizes are rounded to.
const LARGE_GRANULE: usize = 2 << 20;

/// A piece of device memory as it came from the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Block {
    /// Address on the device.
    pub(super) address: u64,
    /// Length in bytes, a [`size_class`].
    pub(super) bytes: usize,
}

/// The size of the block that serves a request for `bytes`: at most an eighth more than asked, above 4 KiB.
/// `None` where no memory is that large.
pub(super) fn size_class(bytes: usize) -> Option<usize> {
    let step = if bytes > LARGE {
        LARGE_GRANULE
    } else {
        // An eighth of the power of two below, so that eight classes lie between one power of two and the next.
        (bytes
            .max(1)
            .ilog2()
            .checked_sub(3)
            .map_or(1, |log| 1_usize << log))
        .max(GRANULE)
    };
    bytes.max(1).checked_next_multiple_of(step)
}

/// The free blocks, and the count of what is in use.
#[derive(Debug)]
pub(super) struct Pool<M = Mark> {
    /// Addresses of free blocks by class, and what the next owner's stream waits for.
    free: HashMap<usize, Vec<(u64, Vec<M>)>>,
    used: MemoryUse,
}

impl<M> Default for Pool<M> {
    fn default() -> Self {
        Self {
            free: HashMap::new(),
            used: MemoryUse::default(),
        }
    }
}

impl<M> Pool<M> {
    /// A free block of class `class`, the one that was freed last, and what its next owner's stream waits for.
    pub(super) fn take(&mut self, class: usize) -> Option<(Block, Vec<M>)> {
        let (address, marks) = self.free.get_mut(&class)?.pop()?;
        let block = Block {
            address,
            bytes: class,
        };
        Some((block, marks))
    }

    /// Keeps `block` for reuse behind `marks`.
    pub(super) fn give(&mut self, block: Block, marks: Vec<M>) {
        self.free
            .entry(block.bytes)
            .or_default()
            .push((block.address, marks));
    }

    /// All free blocks, which the pool forgets.
    pub(super) fn drain(&mut self) -> impl Iterator<Item = Block> + use<M> {
        std::mem::take(&mut self.free)
            .into_iter()
            .flat_map(|(bytes, addresses)| {
                addresses
                    .into_iter()
                    .map(move |(address, _)| Block { address, bytes })
            })
    }

    /// Counts a buffer of `len` bytes that came to life.
    pub(super) fn count_in(&mut self, len: usize) {
        self.used.current += len as u64;
        self.used.peak = self.used.peak.max(self.used.current);
    }

    /// Counts a buffer of `len` bytes that went.
    pub(super) fn count_out(&mut self, len: usize) {
        self.used.current -= len as u64;
    }

    /// Bytes in use.
    pub(super) fn used(&self) -> MemoryUse {
        self.used
    }

    /// Makes the present use the peak.
    pub(super) fn reset_peak(&mut self) {
        self.used.peak = self.used.current;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_hold_the_request_and_waste_little() {
        for bytes in (0..20_000).chain([
            1 << 20,
            (1 << 20) + 1,
            LARGE - 1,
            LARGE,
            LARGE + 1,
            123_456_789,
        ]) {
            let class = size_class(bytes).expect("it is small enough");
            assert!(
                class >= bytes.max(1) && class.is_multiple_of(GRANULE),
                "{bytes}: {class}"
            );
            assert!(
                class - bytes <= (bytes / 8).max(GRANULE),
                "{bytes}: {class}"
            );
            assert_eq!(size_class(class), Some(class), "a class is its own class");
        }
        assert_eq!(size_class(usize::MAX), None);
    }

    #[test]
    fn classes_grow_with_the_request() {
        let classes: Vec<_> = (0..200)
            .map(|k| size_class(k * 1_000_003).expect("it is small enough"))
            .collect();
        assert!(classes.is_sorted());
    }

    #[test]
    fn a_block_is_reused_for_its_class_only_and_once() {
        let mut pool = Pool::<u8>::default();
        let block = Block {
            address: 7,
            bytes: 9 << 10,
        };
        pool.give(block, vec![1, 2]);
        assert_eq!(pool.take(10 << 10), None, "too small");
        assert_eq!(pool.take(8 << 10), None, "another class");
        assert_eq!(
            pool.take(9 << 10),
            Some((block, vec![1, 2])),
            "with what it waits for"
        );
        assert_eq!(pool.take(9 << 10), None, "taken");
    }

    /// The same requests and returns a second time are served without a new block.
    #[test]
    fn a_second_epoch_needs_no_new_block() {
        let mut pool = Pool::<()>::default();
        let mut made = 0;
        for epoch in 0..3 {
            let mut alive = Vec::new();
            for step in 0..40_usize {
                let class = size_class(step * 37 % 5_000).expect("it is small enough");
                alive.push(pool.take(class).map(|(block, _)| block).unwrap_or_else(|| {
                    assert_eq!(epoch, 0, "step {step} found no block");
                    made += 1;
                    Block {
                        address: made,
                        bytes: class,
                    }
                }));
                if step % 3 == 0 {
                    pool.give(alive.swap_remove(step % alive.len()), Vec::new());
                }
            }
            alive
                .into_iter()
                .for_each(|block| pool.give(block, Vec::new()));
        }
        assert_eq!(pool.drain().count() as u64, made);
    }

    #[test]
    fn draining_returns_every_free_block_once() {
        let mut pool = Pool::<()>::default();
        for address in 0..6 {
            let bytes = 512 << (address % 3);
            pool.give(Block { address, bytes }, Vec::new());
        }
        let mut addresses: Vec<_> = pool.drain().map(|block| block.address).collect();
        addresses.sort_unstable();
        assert_eq!(addresses, [0, 1, 2, 3, 4, 5]);
        assert_eq!(pool.drain().count(), 0);
    }

    #[test]
    fn the_peak_stays_until_it_is_reset() {
        let mut pool = Pool::<()>::default();
        pool.count_in(100);
        pool.count_in(50);
        pool.count_out(100);
        assert_eq!(
            pool.used(),
            MemoryUse {
                current: 50,
                peak: 150
            }
        );
        pool.reset_peak();
        assert_eq!(
            pool.used(),
            MemoryUse {
                current: 50,
                peak: 50
            }
        );
    }
}
