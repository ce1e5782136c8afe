//! Gradient clipping.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How gradients are clipped before a step: after division by the loss scale, and before weight decay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clipping {
    /// No clipping.
    #[default]
    None,
    /// Scales all gradients together to a norm of at most this, as PyTorch's `clip_grad_norm_` does.
    Norm(f32),
    /// Clamps each element to at most this magnitude, as PyTorch's `clip_grad_value_` does.
    Value(f32),
}

impl Clipping {
    pub(super) fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

impl fmt::Display for Clipping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::None => f.pad("none"),
            Self::Norm(maximum) => f.pad(&format!("norm {maximum}")),
            Self::Value(largest) => f.pad(&format!("value {largest}")),
        }
    }
}
