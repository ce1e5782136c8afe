//! Memory of the driver's, and where it waits when it is freed while a recording may still use it.

use crate::backend::{Ledger, MemoryKind, Tracked};
use crate::driver::Driver;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Memory of the driver's, counted.
#[derive(Debug)]
pub(super) struct Memory<D: Driver> {
    buffer: D::Buffer,
    _bytes: Tracked,
}

impl<D: Driver> Memory<D> {
    /// `buffer`, of which the given number of bytes count.
    pub(super) fn new(buffer: D::Buffer, counted: u64, ledger: &Ledger, kind: MemoryKind) -> Self {
        Self {
            buffer,
            _bytes: ledger.track(counted, kind),
        }
    }

    pub(super) fn buffer(&self) -> &D::Buffer {
        &self.buffer
    }
}

/// Where freed memory waits while a recording may still use it.
#[derive(Debug)]
pub(super) struct Retired<D: Driver>(Mutex<Waiting<D>>);

#[derive(Debug)]
struct Waiting<D: Driver> {
    recordings: usize,
    memory: Vec<Memory<D>>,
}

impl<D: Driver> Default for Retired<D> {
    fn default() -> Self {
        Self(Mutex::new(Waiting {
            recordings: 0,
            memory: Vec::new(),
        }))
    }
}

impl<D: Driver> Retired<D> {
    /// Frees `memory`, now or when the last recording has gone.
    pub(super) fn retire(&self, memory: Memory<D>) {
        let mut waiting = self.lock();
        if waiting.recordings > 0 {
            waiting.memory.push(memory);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting<D>> {
        // Each change is whole before anything can panic.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Keeps what is freed from now on.
#[derive(Debug)]
pub(super) struct Hold<D: Driver>(Arc<Retired<D>>);

impl<D: Driver> Hold<D> {
    pub(super) fn new(retired: &Arc<Retired<D>>) -> Self {
        retired.lock().recordings += 1;
        Self(Arc::clone(retired))
    }
}

impl<D: Driver> Drop for Hold<D> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.recordings -= 1;
        if waiting.recordings == 0 {
            let memory = std::mem::take(&mut waiting.memory);
            drop(waiting);
            drop(memory);
        }
    }
}
