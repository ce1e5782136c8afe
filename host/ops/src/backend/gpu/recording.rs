//! Operators that are recorded once and replayed.
//!
//! A recording names addresses, so whatever lies at them must stay: while a recording lives, memory that is freed is
//! set aside and not handed out again. That makes replaying safe whatever became of the matrices.

use super::Gpu;
use super::retired::Hold;
use crate::driver::{Driver, DriverError};
use crate::error::Error;
use std::sync::Arc;

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
