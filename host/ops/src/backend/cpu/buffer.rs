//! Host memory that looks like a device's.

use super::nonzeros::Nonzeros;
use super::view::View;
use crate::backend::Tracked;
use crate::driver::DriverError;
use crate::tensor::Element;
use bytemuck::{Pod, Zeroable};
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock, PoisonError, RwLock, RwLockReadGuard};

/// A line of the cache. Rows of a matrix begin at multiples of 16 bytes; those that are whole lines so take no more
/// lines than they fill, and no vector of them lies in two.
#[derive(Clone, Copy, Pod, Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Bytes of a buffer.
enum Memory {
    /// Its own.
    Owned(Vec<Line>),
    /// Those of something that others may have as well, and that is only read.
    Shared(Arc<dyn Words>),
    /// Another program's, which frees them: see [`Buffer::borrowed`].
    Borrowed { start: NonNull<u8>, bytes: usize },
}

/// What is there and may be read as the elements of a buffer.
pub(crate) trait Words: Send + Sync {
    /// Its bytes, the same ones each time, from a multiple of the element's alignment on.
    fn bytes(&self) -> &[u8];
}

// SAFETY: the caller that passed the bytes has promised that they may be used like the buffer's own, from whichever
// thread it is on.
unsafe impl Send for Memory {}
// SAFETY: as above; through a shared reference they are only read.
unsafe impl Sync for Memory {}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Owned(lines) => bytemuck::cast_slice(lines),
            Self::Shared(words) => words.bytes(),
            // SAFETY: by the promise of `Buffer::borrowed` the bytes are there, initialised, and written by no one
            // else.
            Self::Borrowed { start, bytes } => unsafe {
                std::slice::from_raw_parts(start.as_ptr(), *bytes)
            },
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        if let Self::Shared(words) = self {
            let bytes = words.bytes();
            let mut lines = vec![Line::zeroed(); bytes.len().div_ceil(size_of::<Line>())];
            bytemuck::cast_slice_mut(&mut lines)[..bytes.len()].copy_from_slice(bytes);
            *self = Self::Owned(lines);
        }
        match self {
            Self::Owned(lines) => bytemuck::cast_slice_mut(lines),
            Self::Shared(_) => unreachable!("it was copied above"),
            // SAFETY: as above, and no one else reads what an operator writes.
            Self::Borrowed { start, bytes } => unsafe {
                std::slice::from_raw_parts_mut(start.as_ptr(), *bytes)
            },
        }
    }
}

/// Times that the nonzeros of a matrix are asked for, which is not written meanwhile, before that is [kept](Nonzeros):
/// the products of a layer, forward and backward, ask twice of what it is given.
const ASKED_OFTEN: u32 = 3;

/// Memory, and what is known of it until it is written.
struct Contents {
    memory: Memory,
    asked: AtomicU32,
    nonzeros: OnceLock<Option<Nonzeros>>,
}

impl Contents {
    fn new(memory: Memory) -> RwLock<Self> {
        RwLock::new(Self {
            memory,
            asked: AtomicU32::new(0),
            nonzeros: OnceLock::new(),
        })
    }

    /// The bytes, to be written, and what was known to be not zero of them.
    fn write(&mut self) -> (&mut [u8], Option<Nonzeros>) {
        *self.asked.get_mut() = 0;
        let nonzeros = self.nonzeros.take().flatten();
        (self.memory.bytes_mut(), nonzeros)
    }
}

/// Memory of the CPU backend.
///
/// A backend uploads through a shared reference, as a device does, so the bytes lie behind a lock; an operator takes
/// it once for each operand, and needs none for its output, which it has to itself.
pub struct Buffer<T> {
    contents: RwLock<Contents>,
    len: usize,
    _bytes: Tracked,
    element: PhantomData<fn() -> T>,
}

impl<T: Pod> Buffer<T> {
    /// `len` elements, all bytes zero; `track` counts the bytes.
    pub(super) fn zeroed(
        len: usize,
        track: impl FnOnce(u64) -> Tracked,
    ) -> Result<Self, DriverError> {
        const { assert!(align_of::<T>() <= align_of::<Line>()) };
        let asked = len.saturating_mul(size_of::<T>());
        let count = asked.div_ceil(size_of::<Line>());
        let mut lines = Vec::new();
        lines
            .try_reserve_exact(count)
            .map_err(|_| DriverError::Device {
                call: "malloc",
                reason: format!("the machine has no {asked} bytes of memory"),
            })?;
        lines.resize(count, Line::zeroed());
        Ok(Self {
            contents: Contents::new(Memory::Owned(lines)),
            len,
            _bytes: track(asked as u64),
            element: PhantomData,
        })
    }

    /// `len` elements from `start` on, which are another program's; `uncounted` counts no bytes.
    ///
    /// # Safety
    /// From `start` on lie `len` initialised elements, until the buffer is dropped. No one writes them while the buffer
    /// is read, nor reads or writes them while it is written. `start` is a multiple of the element's alignment.
    pub(super) unsafe fn borrowed(start: NonNull<T>, len: usize, uncounted: Tracked) -> Self {
        Self {
            contents: Contents::new(Memory::Borrowed {
                start: start.cast(),
                bytes: len * size_of::<T>(),
            }),
            len,
            _bytes: uncounted,
            element: PhantomData,
        }
    }

    /// The elements of something that is there, which is copied at the first write to the buffer; `uncounted` counts no
    /// bytes.
    pub(super) fn shared(words: Arc<dyn Words>, uncounted: Tracked) -> Self {
        let len = bytemuck::cast_slice::<u8, T>(words.bytes()).len();
        Self {
            contents: Contents::new(Memory::Shared(words)),
            len,
            _bytes: uncounted,
            element: PhantomData,
        }
    }

    /// The elements, as they are now; writers wait.
    pub(crate) fn read(&self) -> Reading<'_, T> {
        Reading {
            contents: self.contents.read().unwrap_or_else(PoisonError::into_inner),
            len: self.len,
            element: PhantomData,
        }
    }

    /// The elements, which no one else can reach.
    pub(crate) fn get_mut(&mut self) -> &mut [T] {
        self.get_mut_and_nonzeros().0
    }

    /// The elements, which no one else can reach, and what was known to be not zero of them.
    pub(crate) fn get_mut_and_nonzeros(&mut self) -> (&mut [T], Option<Nonzeros>) {
        let contents = self.contents.get_mut();
        let contents = contents.unwrap_or_else(PoisonError::into_inner);
        let (bytes, nonzeros) = contents.write();
        (elements_mut(bytes, self.len), nonzeros)
    }

    /// Keeps what is not zero of the elements, which the caller has just written; not of memory that others may write.
    pub(crate) fn keep_nonzeros(&mut self, nonzeros: Nonzeros) {
        let contents = self.contents.get_mut();
        let contents = contents.unwrap_or_else(PoisonError::into_inner);
        if let Memory::Owned(_) = contents.memory {
            contents.nonzeros = OnceLock::from(Some(nonzeros));
        }
    }

    /// Makes all bytes zero.
    pub(super) fn clear(&self) {
        let contents = self.contents.write();
        let mut contents = contents.unwrap_or_else(PoisonError::into_inner);
        contents.write().0.fill(0);
    }

    /// Copies `source` to the elements from `at` on.
    pub(super) fn write_at(&self, at: usize, source: &[T]) -> Result<(), DriverError> {
        self.check(at, source.len())?;
        let contents = self.contents.write();
        let mut contents = contents.unwrap_or_else(PoisonError::into_inner);
        let elements = elements_mut(contents.write().0, self.len);
        elements[at..][..source.len()].copy_from_slice(source);
        Ok(())
    }

    /// Copies from the elements from `at` on.
    pub(super) fn copy_from(&self, at: usize, target: &mut [T]) -> Result<(), DriverError> {
        self.check(at, target.len())?;
        target.copy_from_slice(&self.read()[at..][..target.len()]);
        Ok(())
    }

    fn check(&self, at: usize, count: usize) -> Result<(), DriverError> {
        let bytes = |elements: usize| elements.saturating_mul(size_of::<T>());
        DriverError::check_range(bytes(at), bytes(count), bytes(self.len))
    }
}

fn elements_mut<T: Pod>(bytes: &mut [u8], len: usize) -> &mut [T] {
    bytemuck::cast_slice_mut(&mut bytes[..len * size_of::<T>()])
}

impl<T> fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buffer({} x {} bytes)", self.len, size_of::<T>())
    }
}

/// The elements of a [`Buffer`] while they are being read.
pub(crate) struct Reading<'a, T> {
    contents: RwLockReadGuard<'a, Contents>,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Pod> std::ops::Deref for Reading<'_, T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        bytemuck::cast_slice(&self.contents.memory.bytes()[..self.len * size_of::<T>()])
    }
}

impl<E: Element> Reading<'_, E> {
    /// What is not zero of a matrix of these elements, if it is mostly zeros and was asked for [often](ASKED_OFTEN)
    /// since it was written. Nothing of memory that others may write.
    pub(crate) fn nonzeros(
        &self,
        (rows, columns): (usize, usize),
        stride: usize,
    ) -> Option<&Nonzeros> {
        let Contents {
            memory: Memory::Owned(_),
            asked,
            nonzeros,
        } = &*self.contents
        else {
            return None;
        };
        let found = match nonzeros.get() {
            Some(found) => found,
            None if asked.fetch_add(1, Ordering::Relaxed) + 1 < ASKED_OFTEN => return None,
            // Not made while others wait: a thread that waits for its part might take work of theirs.
            None => {
                let found = Nonzeros::find(View {
                    values: self,
                    rows,
                    columns,
                    stride,
                });
                nonzeros.get_or_init(|| found)
            }
        };
        found.as_ref().filter(|found| found.fits(columns, stride))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::{Ledger, MemoryKind};

    #[test]
    fn copies_stay_inside_the_buffer() {
        let ledger = Ledger::default();
        let mut buffer =
            Buffer::<u16>::zeroed(9, |bytes| ledger.track(bytes, MemoryKind::Graph)).unwrap();
        assert_eq!(ledger.report().current[MemoryKind::Graph as usize], 18);
        buffer.write_at(0, &[1, 2, 3]).unwrap();
        assert_eq!(buffer.get_mut(), [1, 2, 3, 0, 0, 0, 0, 0, 0]);
        let error = buffer.write_at(0, &[7; 10]).unwrap_err().to_string();
        assert_eq!(error, "bytes 0..20 were addressed in a buffer of 18 bytes");
        assert!(buffer.copy_from(0, &mut [0; 10]).is_err());
        assert!(buffer.copy_from(usize::MAX, &mut [0; 1]).is_err());
        let mut start = [9; 2];
        buffer.copy_from(0, &mut start).unwrap();
        assert_eq!(start, [1, 2]);
        buffer.write_at(7, &[5, 6]).unwrap();
        assert!(buffer.write_at(8, &[5, 6]).is_err());
        buffer.copy_from(7, &mut start).unwrap();
        assert_eq!(start, [5, 6]);
        drop(buffer);
        assert_eq!(ledger.report().current[MemoryKind::Graph as usize], 0);
    }

    #[test]
    fn buffers_begin_with_a_line_of_the_cache() {
        let ledger = Ledger::default();
        // Several, since one might by chance; large ones are memory of the system's, which do not.
        for len in [1, 3, 40, 5_000, 300_000, 1 << 20] {
            let track = |bytes| ledger.track(bytes, MemoryKind::Features);
            let mut buffer = Buffer::<u16>::zeroed(len, track).unwrap();
            assert_eq!(buffer.get_mut().as_ptr().addr() % 64, 0, "{len} halves");
        }
    }

    #[test]
    fn what_is_shared_is_copied_before_it_is_written() {
        struct Kept(Vec<u32>);
        impl Words for Kept {
            fn bytes(&self) -> &[u8] {
                bytemuck::cast_slice(&self.0)
            }
        }
        let ledger = Ledger::default();
        let kept = Arc::new(Kept((0..99).collect()));
        let mut buffer = Buffer::<u32>::shared(kept.clone(), ledger.track(0, MemoryKind::Graph));
        assert!(std::ptr::eq(buffer.read().as_ptr(), kept.0.as_ptr()));
        buffer.write_at(97, &[7, 8]).unwrap();
        assert_eq!(buffer.get_mut()[95..], [95, 96, 7, 8]);
        assert_eq!(kept.0[97..], [97, 98]);
        buffer.clear();
        assert!(buffer.get_mut().iter().all(|&word| word == 0));
    }

    #[test]
    fn more_memory_than_there_can_be_is_an_error() {
        let ledger = Ledger::default();
        let track = |bytes| ledger.track(bytes, MemoryKind::Features);
        let error = Buffer::<f32>::zeroed(usize::MAX, track).unwrap_err();
        assert!(error.to_string().contains("malloc"), "{error}");
        assert_eq!(ledger.report().peak_total, 0);
    }
}
