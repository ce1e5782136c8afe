//! Work that is the same every time: it runs once, is recorded, and is replayed from then on.

use crate::backend::Backend;
use crate::error::Error;

/// Operators that are called in the same order on the same memory every time.
#[derive(Debug, Default)]
pub(super) enum Recorded<B: Backend> {
    /// To be recorded after the first call, in which they may allocate.
    #[default]
    NotYet,
    /// Called one by one: recording has no benefit, is not requested, or is impossible.
    Never,
    /// Recorded, and replayed.
    Ready(B::Recording),
}

impl<B: Backend> Recorded<B> {
    /// To be recorded if `wanted`.
    pub(super) fn new(wanted: bool) -> Self {
        if wanted { Self::NotYet } else { Self::Never }
    }

    /// Runs `work`, which calls the operators.
    pub(super) fn run(
        &mut self,
        backend: &B,
        mut work: impl FnMut() -> Result<(), Error>,
    ) -> Result<(), Error> {
        match self {
            Self::Ready(recording) => return backend.replay(recording),
            Self::Never => return work(),
            Self::NotYet => work()?,
        }
        *self = match backend.record(work) {
            Ok(Some(recording)) => Self::Ready(recording),
            Ok(None) => Self::Never,
            // The work itself is correct, and was done just now.
            Err(error) => {
                tracing::warn!("steps are launched one by one: {error}");
                Self::Never
            }
        };
        Ok(())
    }
}
