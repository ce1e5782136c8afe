//! The rules by which weights follow gradients, and their constants.

use halfgnn_contract::optimizer::{StepConstants, factors};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Constants of [`Optimizer::Adam`] and [`Optimizer::AdamW`].
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
    /// Weight decay.
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

/// Constants of [`Optimizer::Sgd`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SgdHyper {
    /// Learning rate.
    pub learning_rate: f32,
    /// How much of the direction before is kept; 0 for none.
    pub momentum: f32,
    /// Whether a step looks ahead along the momentum.
    pub nesterov: bool,
    /// L2 penalty, added to the gradient.
    pub weight_decay: f32,
}

impl Default for SgdHyper {
    fn default() -> Self {
        Self {
            learning_rate: 0.01,
            momentum: 0.0,
            nesterov: false,
            weight_decay: 0.0,
        }
    }
}

/// How weights follow their gradients: a rule of PyTorch's `torch.optim`, and its constants.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Optimizer {
    /// Adam (Kingma and Ba, ICLR 2015). Weight decay is an L2 penalty, added to the gradient.
    Adam(AdamHyper),
    /// Adam whose weight decay shrinks the weights themselves (Loshchilov and Hutter, ICLR 2019).
    AdamW(AdamHyper),
    /// Stochastic gradient descent, with momentum where that is not 0.
    Sgd(SgdHyper),
}

impl Default for Optimizer {
    fn default() -> Self {
        Self::Adam(AdamHyper::default())
    }
}

impl fmt::Display for Optimizer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Adam(_) => "adam",
            Self::AdamW(_) => "adamw",
            Self::Sgd(_) => "sgd",
        })
    }
}

impl Optimizer {
    /// Moments that it keeps of each weight, in float: two, or one of SGD with momentum, or none.
    pub fn moments(&self) -> usize {
        match self {
            Self::Adam(_) | Self::AdamW(_) => 2,
            Self::Sgd(sgd) => usize::from(sgd.momentum != 0.0),
        }
    }

    /// The learning rate.
    pub fn learning_rate(&self) -> f32 {
        match self {
            Self::Adam(adam) | Self::AdamW(adam) => adam.learning_rate,
            Self::Sgd(sgd) => sgd.learning_rate,
        }
    }

    /// The same rule with another learning rate.
    #[must_use]
    pub fn with_learning_rate(mut self, rate: f32) -> Self {
        match &mut self {
            Self::Adam(adam) | Self::AdamW(adam) => adam.learning_rate = rate,
            Self::Sgd(sgd) => sgd.learning_rate = rate,
        }
        self
    }

    /// The weight decay.
    pub fn weight_decay(&self) -> f32 {
        match self {
            Self::Adam(adam) | Self::AdamW(adam) => adam.weight_decay,
            Self::Sgd(sgd) => sgd.weight_decay,
        }
    }

    /// The same rule with another weight decay.
    #[must_use]
    pub fn with_weight_decay(mut self, decay: f32) -> Self {
        match &mut self {
            Self::Adam(adam) | Self::AdamW(adam) => adam.weight_decay = decay,
            Self::Sgd(sgd) => sgd.weight_decay = decay,
        }
        self
    }

    /// The constants as kernels take them, at the first step.
    pub(super) fn constants(&self, clip_value: Option<f32>) -> StepConstants {
        let plain = AdamHyper::default();
        let (adam, nesterov) = match *self {
            Self::Adam(adam) | Self::AdamW(adam) => (adam, false),
            Self::Sgd(sgd) => {
                let hyper = AdamHyper {
                    learning_rate: sgd.learning_rate,
                    beta1: sgd.momentum,
                    weight_decay: sgd.weight_decay,
                    ..plain
                };
                (hyper, sgd.nesterov)
            }
        };
        StepConstants {
            learning_rate: adam.learning_rate,
            beta1: adam.beta1,
            beta2: adam.beta2,
            epsilon: adam.epsilon,
            weight_decay: adam.weight_decay,
            clip_value: clip_value.unwrap_or(f32::INFINITY),
            nesterov,
            factors: factors::ONE,
            loss_scale: 1.0,
            steps: 0,
        }
    }
}
