//! The optimiser: overflow, Adam, and the loss scale.

use super::Storage;
use crate::error::Error;
use crate::ops::{AdamOperands, CheckFiniteOperands, Checked};
use crate::tensor::{Array, Element, Matrix};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

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
