//! What random numbers are sampled from.

use super::OptimizerState;
use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::Array;
use halfgnn_contract::optimizer::state;
use std::sync::Arc;

/// What the random numbers of a run are a function of, in addition to their place: its seed, and a count of steps.
///
/// The count lies on the device, so that operators that were recorded once draw other numbers whenever they are
/// replayed. Clones have the same count.
#[derive(Clone, Debug)]
pub struct RandomState<B: Storage> {
    seed: u64,
    words: Arc<Array<B, u32>>,
    /// Which of the words is the count.
    at: usize,
}

impl<B: Storage> RandomState<B> {
    /// A seed with a count of its own, which stands at `step` until it is [set](RandomState::set_step).
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, seed: u64, step: u32) -> Result<Self, Error> {
        Ok(Self {
            seed,
            words: Arc::new(Array::from_slice(backend, &[step], MemoryKind::Weights)?),
            at: 0,
        })
    }

    /// A seed with a count that lies in `words`, which has one: of the caller's, who sets it on the device.
    ///
    /// # Errors
    /// [`Error::Shape`] where there is not one word.
    pub fn counted_by(seed: u64, words: Array<B, u32>) -> Result<Self, Error> {
        Error::expect("RandomState::counted_by", "words", 1, words.len())?;
        Ok(Self {
            seed,
            words: Arc::new(words),
            at: 0,
        })
    }

    /// Sets the count.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where it is an [optimiser's](OptimizerState::random), whose steps advance it; those of
    /// the device.
    pub fn set_step(&mut self, backend: &B, step: u32) -> Result<(), Error> {
        if self.words.len() > 1 {
            return Err(Error::Unsupported {
                operator: "RandomState::set_step",
                reason: "the count is an optimiser's, whose steps advance it; make a state with RandomState::new".into(),
            });
        }
        backend.upload(&self.words.buffer, &[step])
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The words among which the count lies on the device, and its place.
    pub(crate) fn count(&self) -> (&Array<B, u32>, usize) {
        (&self.words, self.at)
    }
}

impl<B: Storage> OptimizerState<B> {
    /// Random numbers that are new after each step of this optimiser, be it taken or skipped.
    pub fn random(&self, seed: u64) -> RandomState<B> {
        RandomState {
            seed,
            words: Arc::clone(&self.words),
            at: state::ATTEMPTS,
        }
    }
}
