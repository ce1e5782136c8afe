//! Device memory of one element type.

use super::retired::{Memory, Retired};
use crate::backend::{Ledger, MemoryKind};
use crate::driver::{DeviceBuffer, Driver};
use crate::error::Error;
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

/// What a buffer is allocated from and returns to.
#[derive(Debug)]
pub(super) struct Allocator<'a, D: Driver> {
    pub(super) driver: &'a D,
    pub(super) ledger: &'a Ledger,
    pub(super) retired: &'a Arc<Retired<D>>,
}

/// Memory on the device of a [`Gpu`](super::Gpu), for elements of type `T`.
pub struct Buffer<D: Driver, T> {
    /// There until the buffer is dropped.
    memory: Option<Memory<D>>,
    address: u64,
    bytes: usize,
    on_host: bool,
    retired: Arc<Retired<D>>,
    element: PhantomData<fn() -> T>,
}

impl<D: Driver, T> fmt::Debug for Buffer<D, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.memory.fmt(f)
    }
}

impl<D: Driver, T: Pod> Buffer<D, T> {
    /// `len` elements, all bytes zero.
    pub(super) fn zeroed(
        allocator: &Allocator<'_, D>,
        len: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        let buffer = Self::uninitialised(allocator, len, kind)?;
        allocator.driver.fill(buffer.memory(), 0)?;
        Ok(buffer)
    }

    /// `len` elements of any content.
    pub(super) fn uninitialised(
        allocator: &Allocator<'_, D>,
        len: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        // More bytes than an address has are more than the device has, which says so.
        let bytes = len.saturating_mul(size_of::<T>());
        let buffer = if kind.is_on_host() {
            allocator.driver.alloc_host(bytes)?
        } else {
            allocator.driver.alloc(bytes)?
        };
        Ok(Self {
            address: buffer.address(),
            bytes,
            on_host: kind.is_on_host(),
            memory: Some(Memory::new(buffer, bytes as u64, allocator.ledger, kind)),
            retired: Arc::clone(allocator.retired),
            element: PhantomData,
        })
    }
}

impl<D: Driver, T> Buffer<D, T> {
    /// `len` elements from `address` on, which are another program's.
    ///
    /// # Safety
    /// As of [`Driver::borrow`], for the bytes of a number of elements.
    pub(super) unsafe fn borrowed(
        allocator: &Allocator<'_, D>,
        address: u64,
        len: usize,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        let bytes = len.saturating_mul(size_of::<T>());
        // SAFETY: what this function asks of its caller.
        let buffer = unsafe { allocator.driver.borrow(address, bytes) }?;
        Ok(Self {
            address,
            bytes,
            on_host: kind.is_on_host(),
            // Its owner counts it.
            memory: Some(Memory::new(buffer, 0, allocator.ledger, kind)),
            retired: Arc::clone(allocator.retired),
            element: PhantomData,
        })
    }

    /// The driver's buffer.
    pub(crate) fn memory(&self) -> &D::Buffer {
        match &self.memory {
            Some(memory) => memory.buffer(),
            None => unreachable!("only dropping a buffer takes its memory"),
        }
    }

    /// Address on the device.
    pub(crate) fn address(&self) -> u64 {
        self.address
    }

    /// Whether it was allocated by the backend that frees its memory so.
    pub(super) fn belongs_to(&self, retired: &Arc<Retired<D>>) -> bool {
        Arc::ptr_eq(&self.retired, retired)
    }

    /// Whether it lies in the host's memory.
    pub(super) fn is_on_host(&self) -> bool {
        self.on_host
    }

    /// Length in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<D: Driver, T> Drop for Buffer<D, T> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.retired.retire(memory);
        }
    }
}
