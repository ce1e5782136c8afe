//! Random numbers for a batch, sampled before the step on it begins.

use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{Dropout, RandomState};

/// The random state for the dropout of a batch's features. It depends on the batch's step, whichever step is in
/// progress when they are gathered. Each step on a batch advances that count.
#[derive(Debug)]
pub(super) struct RandomOfStep<B: Backend>(Option<RandomState<B>>);

impl<B: Backend> Default for RandomOfStep<B> {
    fn default() -> Self {
        Self(None)
    }
}

impl<B: Backend> RandomOfStep<B> {
    /// `dropout` with the random numbers of a step.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn dropout(
        &mut self,
        backend: &B,
        dropout: Option<Dropout<'_, B>>,
        step: u32,
    ) -> Result<Option<Dropout<'_, B>>, Error> {
        let Some(dropout) = dropout else {
            return Ok(None);
        };
        let random = match &mut self.0 {
            Some(random) => {
                random.set_step(backend, step)?;
                random
            }
            none => none.insert(RandomState::new(backend, dropout.random.seed(), step)?),
        };
        Ok(Some(Dropout {
            probability: dropout.probability,
            stream: dropout.stream,
            random,
        }))
    }
}
