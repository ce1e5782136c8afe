//! How gradients are clipped.

use serde::{Deserialize, Serialize};
use std::fmt;

/// How gradients are clipped before a step, when the loss scale is taken out of them and before weight decay comes in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Clipping {
    /// Not at all.
    #[default]
    None,
    /// All together are scaled down to a norm of at most this, as by PyTorch's `clip_grad_norm_`.
    Norm(f32),
    /// Each element is taken to at most this size, as by PyTorch's `clip_grad_value_`.
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
