//! Operators that are recorded once and replayed.
//!
//! A recording names addresses, so whatever lies at them must stay: while a recording lives, memory that is freed is set
//! aside and not handed out again. That makes replaying safe whatever became of the matrices.

use super::Gpu;
use super::buffer::Memory;
use crate::driver::{Driver, DriverError};
use crate::error::Error;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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
struct Hold<D: Driver>(Arc<Retired<D>>);

impl<D: Driver> Hold<D> {
    fn new(retired: &Arc<Retired<D>>) -> Self {
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

/// Operators that were recorded on a [`Gpu`].
#[derive(Debug)]
pub struct Recording<D: Driver> {
    // Dropped before what its launches use.
    graph: D::Graph,
    _hold: Hold<D>,
    /// Whose workspace the launches use.
    stream: Gpu<D>,
}

impl<D: Driver> Gpu<D> {
    pub(super) fn record_operators(
        &self,
        work: impl FnOnce() -> Result<(), Error>,
    ) -> Result<Recording<D>, Error> {
        // From before the first launch is recorded: what `work` itself frees is used by the launches as well.
        let hold = Hold::new(&self.retired);
        let graph = self.driver.capture(work)?;
        Ok(Recording {
            graph,
            _hold: hold,
            stream: self.clone(),
        })
    }

    pub(super) fn replay_operators(&self, recording: &Recording<D>) -> Result<(), Error> {
        if !Arc::ptr_eq(&recording.stream.0, &self.0) {
            return Err(DriverError::Device {
                call: "a replay",
                reason: "the operators were recorded on another backend or stream".into(),
            }
            .into());
        }
        // No operator of another thread is between its launches while these use the workspace.
        let _workspace = self.workspace.alone();
        // SAFETY: the operators checked each launch when it was recorded. Buffers that were alive then have not been
        // handed out again since: they live, or `retire` has set them aside because of `hold`.
        Ok(unsafe { self.driver.replay(&recording.graph) }?)
    }
}
