//! The optimiser: overflow, Adam, and the loss scale.

mod check;
mod cpu;
mod gpu;

use super::Checked;
use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Sets the overflow flag of `state` where one of `gradients` holds an infinity or a NaN.
///
/// # Errors
/// Those of the device.
pub fn check_finite<B: OptimizerOperators>(
    backend: &B,
    gradients: &[&Matrix<B, f32>],
    state: &mut OptimizerState<B>,
) -> Result<(), Error> {
    let operands = CheckFiniteOperands { gradients, state };
    backend.check_finite(Checked::new(operands)?)
}

/// Operands of [`check_finite`].
#[derive(Debug)]
pub struct CheckFiniteOperands<'a, B: Storage> {
    /// What is looked through.
    pub gradients: &'a [&'a Matrix<B, f32>],
    /// Has the overflow flag.
    pub state: &'a mut OptimizerState<B>,
}

/// One step of Adam for all `parameters`; see [`OptimizerOperators::adam`].
///
/// # Errors
/// [`Error::Shape`] where the matrices of a parameter differ in shape; then no parameter is changed.
pub fn adam<B: OptimizerOperators, E: Element>(
    backend: &B,
    hyper: &AdamHyper,
    state: &OptimizerState<B>,
    parameters: &mut [ParameterMut<'_, B, E>],
) -> Result<(), Error> {
    let operands = AdamOperands {
        hyper,
        state,
        parameters,
    };
    backend.adam(Checked::new(operands)?)
}

/// Adam's constants. Weight decay is added to the gradient, as in PyTorch's `Adam`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct AdamHyper {
    /// Learning rate.
    pub learning_rate: f32,
    /// Decay of the first moment.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// L2 penalty.
    pub weight_decay: f32,
}

impl Default for AdamHyper {
    fn default() -> Self {
        Self {
            learning_rate: 0.01,
            beta1: 0.9,
            beta2: 0.999,
            epsilon: 1e-8,
            weight_decay: 0.0,
        }
    }
}

/// A parameter as the optimiser sees it; all matrices have one shape.
#[derive(Debug)]
pub struct ParameterMut<'a, B: Storage, E: Element> {
    /// Gradient, times the loss scale.
    pub gradient: &'a Matrix<B, f32>,
    /// Float master weights.
    pub master: &'a mut Matrix<B, f32>,
    /// First moment.
    pub first_moment: &'a mut Matrix<B, f32>,
    /// Second moment.
    pub second_moment: &'a mut Matrix<B, f32>,
    /// The master weights rounded to what kernels read; absent where they read the master weights.
    pub rounded: Option<&'a mut Matrix<B, E>>,
}

/// Operands of [`adam`].
#[derive(Debug)]
pub struct AdamOperands<'a, 'p, B: Storage, E: Element> {
    /// Its constants.
    pub hyper: &'a AdamHyper,
    /// Steps and overflow.
    pub state: &'a OptimizerState<B>,
    /// What is changed.
    pub parameters: &'a mut [ParameterMut<'p, B, E>],
}

/// Ends an optimiser step; see [`OptimizerOperators::end_step`].
///
/// # Errors
/// Those of the device.
pub fn end_step<B: OptimizerOperators>(
    backend: &B,
    scaling: &LossScaling,
    state: &mut OptimizerState<B>,
) -> Result<(), Error> {
    backend.end_step(scaling, state)
}

/// How the loss scale follows overflows.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossScaling {
    /// Scale of the first step.
    pub initial: f32,
    /// Steps without overflow after which the scale doubles; 0 keeps it as it is.
    pub growth_interval: u32,
    /// The scale never exceeds this.
    pub maximum: f32,
}

/// Loss scale, overflow flag and step count, kept on the device so that a step needs no transfer.
#[derive(Debug)]
pub struct OptimizerState<B: Storage> {
    /// Shared with the [random numbers](OptimizerState::random) that are counted by its steps.
    pub(crate) words: Arc<Array<B, u32>>,
}

impl<B: Storage> OptimizerState<B> {
    /// The state before the first step.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, scaling: &LossScaling) -> Result<Self, Error> {
        let start = OptimizerSnapshot {
            loss_scale: scaling.initial,
            steps: 0,
            skipped: 0,
            since_change: 0,
        };
        Self::resume(backend, &start)
    }

    /// The state after the steps that `snapshot` tells of.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn resume(backend: &B, snapshot: &OptimizerSnapshot) -> Result<Self, Error> {
        let words = [
            snapshot.loss_scale.to_bits(),
            snapshot.steps,
            snapshot.skipped,
            snapshot.since_change,
            0,
            snapshot.steps.wrapping_add(snapshot.skipped),
        ];
        Ok(Self {
            words: Arc::new(Array::from_slice(backend, &words, MemoryKind::Weights)?),
        })
    }

    /// What the state is after all work on the backend is done.
    ///
    /// # Errors
    /// The failure of an earlier operator.
    pub fn snapshot(&self, backend: &B) -> Result<OptimizerSnapshot, Error> {
        let words = self.words.to_vec(backend)?;
        Ok(OptimizerSnapshot {
            loss_scale: f32::from_bits(words[0]),
            steps: words[1],
            skipped: words[2],
            since_change: words[3],
        })
    }
}

/// [`OptimizerState`] as the host reads it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct OptimizerSnapshot {
    /// The present loss scale.
    pub loss_scale: f32,
    /// Steps that were taken, those skipped for an overflow not counted.
    pub steps: u32,
    /// Steps that were skipped for an overflow.
    pub skipped: u32,
    /// Steps since the scale changed.
    pub since_change: u32,
}

/// A step of the optimiser, in the order of the methods.
pub trait OptimizerOperators: Storage {
    /// Sets the overflow flag of `state` where one of `gradients` holds an infinity or a NaN; never clears it.
    ///
    /// # Errors
    /// Those of the device.
    fn check_finite(&self, operands: Checked<CheckFiniteOperands<'_, Self>>) -> Result<(), Error>;

    /// One step of Adam on the float master weights of all `parameters`, and the copies of them that kernels read. Does
    /// nothing where the overflow flag of `state` is set.
    ///
    /// # Errors
    /// Those of the device.
    fn adam<E: Element>(
        &self,
        operands: Checked<AdamOperands<'_, '_, Self, E>>,
    ) -> Result<(), Error>;

    /// Ends an optimiser step: counts it and, where the overflow flag is set, halves the loss scale, clears the flag and
    /// does not count it; doubles the scale after `growth_interval` steps without overflow.
    ///
    /// # Errors
    /// Those of the device.
    fn end_step(
        &self,
        scaling: &LossScaling,
        state: &mut OptimizerState<Self>,
    ) -> Result<(), Error>;
}
