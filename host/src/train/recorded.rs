//! Work that is the same every time: done once, recorded, and replayed from then on.

use crate::backend::Backend;
use crate::error::Error;

/// Operators that are called in the same order on the same memory whenever they are.
#[derive(Debug, Default)]
pub(super) enum Recorded<B: Backend> {
    /// To be recorded when they have been called once, in which they may allocate.
    #[default]
    NotYet,
    /// Called one by one: nothing would be gained, nobody wants it, or they cannot be recorded.
    Never,
    /// Replayed.
    Ready(B::Recording),
}

impl<B: Backend> Recorded<B> {
    /// To be recorded if that is wanted.
    pub(super) fn new(wanted: bool) -> Self {
        if wanted { Self::NotYet } else { Self::Never }
    }

    /// Does `work`, which calls the operators.
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
            // What it does is right all the same, and was done just now.
            Err(error) => {
                tracing::warn!("steps are launched one by one: {error}");
                Self::Never
            }
        };
        Ok(())
    }
}
