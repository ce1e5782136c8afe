//! Pinned memory through which small uploads go, so that they return at once.
//!
//! The source of an upload may be reused as soon as the call returns, but CUDA may read ordinary memory later than
//! that. A small source is therefore copied to pinned memory, from which the GPU takes it in its own time.

use std::ptr::NonNull;

use super::host::{free_pages, lock_pages};
use crate::DriverError;

/// Bytes of pinned memory.
const CAPACITY: usize = 1 << 20;
/// The longest source that is staged: above it the copy itself outweighs the wait for it.
pub(super) const LONGEST: usize = CAPACITY / 4;
/// What places are rounded to: a cache line.
const GRANULE: usize = 64;

/// Pinned memory, filled from front to back and then from the front again.
#[derive(Debug)]
pub(super) struct Staging {
    base: NonNull<u8>,
    next: usize,
}

// SAFETY: `base` is memory of the process like any other, which this value alone uses; pinned memory may be used and
// freed from any thread.
unsafe impl Send for Staging {}

impl Staging {
    /// Allocates the memory, in the context that is current.
    pub(super) fn new() -> Result<Self, DriverError> {
        let base = lock_pages(CAPACITY)?;
        Ok(Self { base, next: 0 })
    }

    /// Copies `source`, at most [`LONGEST`] bytes, to a place that no copy under way reads, and returns the place.
    /// Calls `wait` first when the memory is used up; after it, no copy from here may be under way.
    pub(super) fn stage(
        &mut self,
        source: &[u8],
        wait: impl FnOnce() -> Result<(), DriverError>,
    ) -> Result<*const u8, DriverError> {
        assert!(
            source.len() <= LONGEST,
            "the caller sends longer sources itself"
        );
        let (start, next) = match place(self.next, source.len()) {
            Some(place) => place,
            None => {
                wait()?;
                (0, source.len().next_multiple_of(GRANULE))
            }
        };
        // SAFETY: `start + source.len()` is at most `CAPACITY`, by `place` or since `LONGEST` is less; the ranges
        // cannot overlap, since there is no other reference to this memory.
        let target = unsafe {
            let target = self.base.as_ptr().add(start);
            target.copy_from_nonoverlapping(source.as_ptr(), source.len());
            target
        };
        self.next = next;
        Ok(target)
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// The context in which it was allocated is current, no copy from it is under way, and it is not used again.
    pub(super) unsafe fn free(&mut self) {
        // SAFETY: what this function asks of its caller.
        unsafe { free_pages(self.base) };
    }
}

/// Where `len` bytes go when `next` is the first free one, and the first free one after them; `None` where they do not
/// fit before the end.
fn place(next: usize, len: usize) -> Option<(usize, usize)> {
    let end = next + len.next_multiple_of(GRANULE);
    (end <= CAPACITY).then_some((next, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_follow_each_other_and_end_at_the_capacity() {
        assert_eq!(place(0, 1), Some((0, 64)));
        assert_eq!(place(64, 64), Some((64, 128)));
        assert_eq!(place(CAPACITY - 64, 64), Some((CAPACITY - 64, CAPACITY)));
        assert_eq!(place(CAPACITY - 64, 65), None);
        assert_eq!(place(CAPACITY, 1), None);
    }
}
