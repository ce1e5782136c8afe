//! Memory that operators use while they run and that holds nothing between them: staging buffers and partial sums.

use super::buffer::{Allocator, Buffer};
use super::retired::Retired;
use crate::backend::{Ledger, MemoryKind};
use crate::driver::Driver;
use crate::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One buffer for all operators: they run one after the other, so each may use it from the start.
#[derive(Debug)]
pub struct Workspace<D: Driver> {
    held: Mutex<Held<D>>,
    retired: Arc<Retired<D>>,
}

/// What a workspace has.
#[derive(Debug)]
pub enum Held<D: Driver> {
    /// A buffer that grows to what the largest operator asked for and stays, so that none allocates after its first
    /// call.
    Grown(Option<Buffer<D, f32>>),
    /// The caller's, which does not grow.
    Lent(Buffer<D, f32>),
    /// The most floats that were asked for: where nothing is launched.
    Counted(u64),
    /// Nothing, and none is needed: where no kernel is launched, and operators of the device that is counted for borrow
    /// nothing.
    Nothing,
}

impl<D: Driver> Held<D> {
    fn buffer(&self) -> Option<&Buffer<D, f32>> {
        match self {
            Held::Grown(buffer) => buffer.as_ref(),
            Held::Lent(buffer) => Some(buffer),
            Held::Counted(_) | Held::Nothing => None,
        }
    }
}

/// The workspace, for one operator. No other operator's launches come between its own while it is held.
#[derive(Debug)]
pub struct Lease<'a, D: Driver>(MutexGuard<'a, Held<D>>);

impl<D: Driver> Lease<'_, D> {
    /// Address on the device; null where nothing was ever asked for.
    pub fn address(&self) -> u64 {
        self.0.buffer().map_or(0, Buffer::address)
    }
}

impl<D: Driver> Workspace<D> {
    /// A workspace of what there is.
    pub fn new(retired: Arc<Retired<D>>, held: Held<D>) -> Self {
        Self {
            held: Mutex::new(held),
            retired,
        }
    }

    /// The workspace as it is.
    pub fn alone(&self) -> Lease<'_, D> {
        Lease(self.held.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Uses `buffer` from now on.
    pub fn lend(&self, buffer: Buffer<D, f32>) {
        *self.alone().0 = Held::Lent(buffer);
    }

    /// The buffer that was borrowed, if one was.
    pub fn reclaim(&self) -> Option<Buffer<D, f32>> {
        let Lease(mut held) = self.alone();
        match std::mem::replace(&mut *held, Held::Grown(None)) {
            Held::Lent(buffer) => Some(buffer),
            other => {
                *held = other;
                None
            }
        }
    }

    /// Gives back what it grew to. Recordings that use it go on using it.
    pub fn give_back(&self) {
        if let Held::Grown(grown) = &mut *self.alone().0 {
            *grown = None;
        }
    }

    /// Forgets what was asked for, where that is counted.
    pub fn count_anew(&self) {
        if let Held::Counted(most) = &mut *self.alone().0 {
            *most = 0;
        }
    }

    /// The most floats that were asked for, where they are counted.
    pub fn counted(&self) -> u64 {
        match *self.alone().0 {
            Held::Counted(most) => most,
            Held::Grown(_) | Held::Lent(_) | Held::Nothing => 0,
        }
    }

    /// At least `floats` floats of any content, until the lease is dropped, which is when all launches that use them
    /// are under way: a stream is in order.
    pub fn floats(&self, driver: &D, ledger: &Ledger, floats: u64) -> Result<Lease<'_, D>, Error> {
        let Lease(mut held) = self.alone();
        match &mut *held {
            Held::Nothing => {}
            Held::Counted(most) => *most = floats.max(*most),
            Held::Lent(buffer) => {
                let lent = (buffer.bytes() / size_of::<f32>()) as u64;
                if lent < floats {
                    return Err(Error::Unsupported {
                        operator: "workspace",
                        reason: format!(
                            "{} bytes are wanted while the operator runs, and {} were lent; lend as many, which \
                             Gpu::workspace_wanted tells beforehand",
                            floats.saturating_mul(size_of::<f32>() as u64),
                            buffer.bytes()
                        ),
                    });
                }
            }
            Held::Grown(grown) => {
                let floats = usize::try_from(floats).unwrap_or(usize::MAX);
                let enough = grown.as_ref().map_or(floats == 0, |buffer| {
                    buffer.bytes() / size_of::<f32>() >= floats
                });
                if !enough {
                    // The old one goes first, so that both need not fit.
                    *grown = None;
                    *grown = Some(Buffer::uninitialised(
                        &Allocator {
                            driver,
                            ledger,
                            retired: &self.retired,
                        },
                        floats,
                        MemoryKind::Workspace,
                    )?);
                }
            }
        }
        Ok(Lease(held))
    }
}
