//! Device memory of one element type.

use crate::backend::{Ledger, MemoryKind, Tracked};
use crate::driver::{DeviceBuffer, Driver};
use crate::error::Error;
use bytemuck::Pod;
use std::fmt;
use std::marker::PhantomData;

/// Memory on the device of a [`Gpu`](super::Gpu), for elements of type `T`.
pub struct Buffer<D: Driver, T> {
    memory: D::Buffer,
    _bytes: Tracked,
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
        driver: &D,
        len: usize,
        ledger: &Ledger,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        let buffer = Self::uninitialised(driver, len, ledger, kind)?;
        driver.fill(&buffer.memory, 0)?;
        Ok(buffer)
    }

    /// `len` elements of any content.
    pub(super) fn uninitialised(
        driver: &D,
        len: usize,
        ledger: &Ledger,
        kind: MemoryKind,
    ) -> Result<Self, Error> {
        // More bytes than an address has are more than the device has, which says so.
        let bytes = len.saturating_mul(size_of::<T>());
        let memory = driver.alloc(bytes)?;
        Ok(Self {
            memory,
            _bytes: ledger.track(bytes as u64, kind),
            element: PhantomData,
        })
    }
}

impl<D: Driver, T> Buffer<D, T> {
    /// The driver's buffer.
    pub(super) fn memory(&self) -> &D::Buffer {
        &self.memory
    }

    /// Address on the device.
    pub(super) fn address(&self) -> u64 {
        self.memory.address()
    }

    /// Length in bytes.
    pub(super) fn bytes(&self) -> usize {
        self.memory.len()
    }
}
