//! Memory that operators use while they run and that holds nothing between them: staging buffers and partial sums.

use super::buffer::Buffer;
use crate::backend::{Ledger, MemoryKind};
use crate::driver::Driver;
use crate::error::Error;
use std::sync::{Arc, Mutex, PoisonError};

/// One buffer for all operators: they run one after the other, so each may use it from the start. It grows to what the
/// largest asked for and stays, so that no operator allocates after its first call.
#[derive(Debug)]
pub struct Workspace<D: Driver>(Mutex<Option<Arc<Buffer<D, f32>>>>);

impl<D: Driver> Default for Workspace<D> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<D: Driver> Workspace<D> {
    /// At least `floats` floats of any content.
    pub fn floats(&self, driver: &D, ledger: &Ledger, floats: u64) -> Result<Arc<Buffer<D, f32>>, Error> {
        let mut held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let floats = usize::try_from(floats).unwrap_or(usize::MAX);
        match &*held {
            Some(buffer) if buffer.bytes() / size_of::<f32>() >= floats => Ok(Arc::clone(buffer)),
            _ => {
                // The old one goes first, so that both need not fit.
                *held = None;
                let buffer = Arc::new(Buffer::uninitialised(driver, floats, ledger, MemoryKind::Workspace)?);
                *held = Some(Arc::clone(&buffer));
                Ok(buffer)
            }
        }
    }
}
