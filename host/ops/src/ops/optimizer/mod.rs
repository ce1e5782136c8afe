//! The optimiser: overflow, clipping, the rules by which weights follow gradients, and the loss scale.

mod check;
mod cpu;
mod gpu;
mod rule;

pub use rule::{AdamHyper, Optimizer, SgdHyper};

use super::Checked;
use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use halfgnn_contract::optimizer::factors;
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

/// Scales the gradients of this step down to a norm of at most `maximum`, all together: PyTorch's `clip_grad_norm_`.
/// The factor is left in `state`, where the next [`update`] finds it, and only that one should.
///
/// # Errors
/// [`Error::Unsupported`] where `maximum` is not above 0; those of the device.
pub fn clip_norm<B: OptimizerOperators>(
    backend: &B,
    maximum: f32,
    gradients: &[&Matrix<B, f32>],
    state: &mut OptimizerState<B>,
) -> Result<(), Error> {
    let operands = ClipNormOperands {
        maximum,
        gradients,
        state,
    };
    backend.clip_norm(Checked::new(operands)?)
}

/// Operands of [`clip_norm`].
#[derive(Debug)]
pub struct ClipNormOperands<'a, B: Storage> {
    /// The largest norm, above 0.
    pub maximum: f32,
    /// What is measured, times the loss scale.
    pub gradients: &'a [&'a Matrix<B, f32>],
    /// Has the loss scale and takes the factor.
    pub state: &'a mut OptimizerState<B>,
}

/// One step of `optimizer` for all `parameters`, with elements of the gradients taken to at most the size `clip_value`
/// where there is one (PyTorch's `clip_grad_value_`); see [`OptimizerOperators::update`].
///
/// # Errors
/// [`Error::Shape`] where the matrices of a parameter differ in shape, and [`Error::Unsupported`] where it lacks a
/// moment or `clip_value` is not above 0; then no parameter is changed.
pub fn update<B: OptimizerOperators, E: Element>(
    backend: &B,
    optimizer: &Optimizer,
    clip_value: Option<f32>,
    state: &OptimizerState<B>,
    parameters: &mut [ParameterMut<'_, B, E>],
) -> Result<(), Error> {
    let operands = UpdateOperands {
        optimizer,
        clip_value,
        state,
        parameters,
    };
    backend.update(Checked::new(operands)?)
}

/// A parameter as the optimiser sees it; all matrices have one shape.
#[derive(Debug)]
pub struct ParameterMut<'a, B: Storage, E: Element> {
    /// Gradient, times the loss scale.
    pub gradient: &'a Matrix<B, f32>,
    /// Float master weights.
    pub master: &'a mut Matrix<B, f32>,
    /// First moment, or momentum; as many moments as the optimiser [keeps](Optimizer::moments).
    pub first_moment: Option<&'a mut Matrix<B, f32>>,
    /// Second moment.
    pub second_moment: Option<&'a mut Matrix<B, f32>>,
    /// The master weights rounded to what kernels read; absent where they read the master weights.
    pub rounded: Option<&'a mut Matrix<B, E>>,
}

/// Operands of [`update`].
#[derive(Debug)]
pub struct UpdateOperands<'a, 'p, B: Storage, E: Element> {
    /// The rule, and its constants.
    pub optimizer: &'a Optimizer,
    /// Largest size of an element of the gradients, above 0.
    pub clip_value: Option<f32>,
    /// Steps, overflow and the step's factors.
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
    /// As of [`factors`].
    factors: Array<B, f32>,
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

    /// The state after the steps that `snapshot` reports of.
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
            factors: Array::from_slice(backend, &factors::ONE, MemoryKind::Weights)?,
        })
    }

    /// Multiplies the learning rate by `factor` in the steps from now on, also in recorded ones, until it is set again:
    /// what a schedule does. It is 1 at first.
    ///
    /// # Errors
    /// Those of the device.
    pub fn set_rate_factor(&mut self, backend: &B, factor: f32) -> Result<(), Error> {
        let mut all = factors::ONE;
        all[factors::LEARNING_RATE] = factor;
        backend.upload(&self.factors.buffer, &all)
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

    /// Leaves the factor in `state` that scales `gradients` down to a norm of at most `maximum`, of all of them
    /// together. Sums of squares are double, in an order that is the same on every backend.
    ///
    /// # Errors
    /// Those of the device.
    fn clip_norm(&self, operands: Checked<ClipNormOperands<'_, Self>>) -> Result<(), Error>;

    /// One step of the optimiser on the float master weights of all `parameters`, and the copies of them that kernels
    /// read. Does nothing where the overflow flag of `state` is set.
    ///
    /// # Errors
    /// Those of the device.
    fn update<E: Element>(
        &self,
        operands: Checked<UpdateOperands<'_, '_, Self, E>>,
    ) -> Result<(), Error>;

    /// Ends an optimiser step: counts it and, where the overflow flag is set, halves the loss scale, clears the flag
    /// and does not count it; doubles the scale after `growth_interval` steps without overflow.
    ///
    /// # Errors
    /// Those of the device.
    fn end_step(
        &self,
        scaling: &LossScaling,
        state: &mut OptimizerState<Self>,
    ) -> Result<(), Error>;
}
