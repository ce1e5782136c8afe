//! Memory that operators use while they run and that holds nothing between them: staging buffers and partial sums.

use super::buffer::{Allocator, Buffer};
use super::retired::Retired;
use crate::backend::{Ledger, MemoryKind};
use crate::driver::Driver;
use crate::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One buffer for all operators: they run one after the other, so each may use it from the start. It grows to what the
/// largest asked for and stays, so that no operator allocates after its first call.
#[derive(Debug)]
pub struct Workspace<D: Driver> {
    held: Mutex<Option<Buffer<D, f32>>>,
    retired: Arc<Retired<D>>,
    lends: bool,
}

/// The workspace, for one operator. No other operator's launches come between its own while it is held.
#[derive(Debug)]
pub struct Lease<'a, D: Driver>(MutexGuard<'a, Option<Buffer<D, f32>>>);

impl<D: Driver> Lease<'_, D> {
    /// Address on the device; null where nothing was ever asked for.
    pub fn address(&self) -> u64 {
        self.0.as_ref().map_or(0, Buffer::address)
    }
}

impl<D: Driver> Workspace<D> {
    /// A workspace of nothing yet.
    pub fn new(retired: Arc<Retired<D>>) -> Self {
        Self {
            held: Mutex::default(),
            retired,
            lends: true,
        }
    }

    /// Lends nothing from now on: where no kernel is launched, and operators of the device that is counted for borrow nothing.
    pub fn lend_nothing(&mut self) {
        self.lends = false;
    }

    /// The workspace as it is.
    pub fn alone(&self) -> Lease<'_, D> {
        Lease(self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// At least `floats` floats of any content, until the lease is dropped, which is when all launches that use them
    /// are under way: a stream is in order.
    pub fn floats(&self, driver: &D, ledger: &Ledger, floats: u64) -> Result<Lease<'_, D>, Error> {
        let Lease(mut held) = self.alone();
        let floats = if self.lends { floats } else { 0 };
        let floats = usize::try_from(floats).unwrap_or(usize::MAX);
        let enough = held.as_ref().map_or(floats == 0, |buffer| {
            buffer.bytes() / size_of::<f32>() >= floats
        });
        if !enough {
            // The old one goes first, so that both need not fit.
            *held = None;
            *held = Some(Buffer::uninitialised(
                &Allocator {
                    driver,
                    ledger,
                    retired: &self.retired,
                },
                floats,
                MemoryKind::Workspace,
            )?);
        }
        Ok(Lease(held))
    }
}
