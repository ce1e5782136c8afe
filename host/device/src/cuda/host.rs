//! Memory of the host that kernels read over the bus.

use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use cust::sys::{self, CUresult};

use super::error::check;
use crate::DriverError;

/// `bytes` of page-locked memory with any content, in the context that is current (CUDA driver API, `cuMemHostAlloc`).
pub(super) fn lock_pages(bytes: usize) -> Result<NonNull<u8>, DriverError> {
    const CALL: &str = "cuMemHostAlloc";
    let flags = sys::CU_MEMHOSTALLOC_PORTABLE | sys::CU_MEMHOSTALLOC_DEVICEMAP;
    let mut base = std::ptr::null_mut();
    // SAFETY: writes one pointer.
    let result = unsafe { sys::cuMemHostAlloc(&mut base, bytes.max(1), flags) };
    if result == CUresult::CUDA_ERROR_OUT_OF_MEMORY {
        let asked = bytes as u64;
        return Err(DriverError::OutOfHostMemory { asked });
    }
    check(CALL, result)?;
    NonNull::new(base.cast()).ok_or_else(|| DriverError::Device {
        call: CALL,
        reason: "it gave no memory".into(),
    })
}

/// Frees what [`lock_pages`] gave.
///
/// # Safety
/// Its context is current, no work that uses it is under way, and it is not used again.
pub(super) unsafe fn free_pages(base: NonNull<u8>) {
    // SAFETY: what this function asks of its caller. A failure leaves nothing to do.
    unsafe { sys::cuMemFreeHost(base.as_ptr().cast()) };
}

/// Page-locked memory with an address on the GPU. It is never in the pool: locking pages takes longer than a kernel
/// does, and who needs such memory needs it for a whole run.
#[derive(Debug)]
pub(super) struct HostMemory {
    address: u64,
    bytes: usize,
    /// Held by a thread that reads or writes here, so that threads of the host do not meet.
    base: Mutex<NonNull<u8>>,
}

// SAFETY: `base` is memory of the process like any other, which only this value's methods use, under the lock;
// page-locked memory may be used and freed from any thread.
unsafe impl Send for HostMemory {}
// SAFETY: as above.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// `bytes` with any content, in the context that is current.
    pub(super) fn new(bytes: usize) -> Result<Self, DriverError> {
        let base = lock_pages(bytes)?;
        let mut memory = Self {
            address: 0,
            bytes,
            base: Mutex::new(base),
        };
        // SAFETY: the memory was allocated to have an address on the GPU; writes that.
        let told = check("cuMemHostGetDevicePointer", unsafe {
            sys::cuMemHostGetDevicePointer_v2(&mut memory.address, base.as_ptr().cast(), 0)
        });
        if told.is_err() {
            // SAFETY: there is no other reference to it yet.
            unsafe { memory.free() };
        }
        told.map(|()| memory)
    }

    /// Where the GPU has it.
    pub(super) fn address(&self) -> u64 {
        self.address
    }

    /// Copies `source` to byte `offset` on. What a kernel reads meanwhile is the old bytes or the new ones, as on the
    /// GPU.
    pub(super) fn write(&self, offset: usize, source: &[u8]) {
        self.expect(offset, source.len());
        let base = self.base();
        // SAFETY: the range lies here, as was just looked at, and no other thread of the host uses it while the lock is
        // held.
        unsafe {
            let target = base.as_ptr().add(offset);
            target.copy_from_nonoverlapping(source.as_ptr(), source.len());
        }
    }

    /// Copies from byte `offset` on.
    pub(super) fn read(&self, offset: usize, target: &mut [u8]) {
        self.expect(offset, target.len());
        let base = self.base();
        // SAFETY: as in `write`; memory of a driver's has a content, whichever.
        unsafe {
            let source = base.as_ptr().add(offset);
            target
                .as_mut_ptr()
                .copy_from_nonoverlapping(source, target.len());
        }
    }

    /// Sets every byte.
    pub(super) fn fill(&self, byte: u8) {
        let base = self.base();
        // SAFETY: as in `write`.
        unsafe { base.as_ptr().write_bytes(byte, self.bytes) };
    }

    /// Frees the memory.
    ///
    /// # Safety
    /// Its context is current, no work that uses it is under way, and it is not used again.
    pub(super) unsafe fn free(&mut self) {
        let base = self.base.get_mut().unwrap_or_else(PoisonError::into_inner);
        // SAFETY: what this function asks of its caller.
        unsafe { free_pages(*base) };
    }

    /// Panics unless the bytes lie here: callers have checked.
    fn expect(&self, offset: usize, len: usize) {
        let end = offset.checked_add(len);
        assert!(
            end.is_some_and(|end| end <= self.bytes),
            "a copy past the end"
        );
    }

    fn base(&self) -> MutexGuard<'_, NonNull<u8>> {
        // Nothing panics while the lock is held.
        self.base.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
