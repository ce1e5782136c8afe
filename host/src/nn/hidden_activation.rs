//! The activation function of hidden layers, by name.

use crate::ops::Nonlinearity;
use serde::{Deserialize, Serialize};
use std::fmt;

/// The function that is applied to each element of a hidden layer's output, after its bias. The MLP inside a layer of
/// GIN always has a ReLU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HiddenActivation {
    /// Negative elements become zero. Operators fuse only this one, without a pass of its own.
    #[default]
    Relu,
    /// `x` where it is positive, else `eˣ − 1`: that of the paper of GAT.
    Elu,
    /// `x` where it is positive, else a hundredth of it, as PyTorch's.
    LeakyRelu,
    /// `x · Φ(x)`.
    Gelu,
    /// The hyperbolic tangent.
    Tanh,
    /// Nothing: layers are linear but for what is inside them.
    None,
}

impl HiddenActivation {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Relu,
        Self::Elu,
        Self::LeakyRelu,
        Self::Gelu,
        Self::Tanh,
        Self::None,
    ];

    /// The name, as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Relu => "relu",
            Self::Elu => "elu",
            Self::LeakyRelu => "leaky-relu",
            Self::Gelu => "gelu",
            Self::Tanh => "tanh",
            Self::None => "none",
        }
    }

    /// Whether it is the usual one.
    pub(super) fn is_relu(&self) -> bool {
        *self == Self::Relu
    }

    /// The function, of one that is neither a ReLU nor nothing.
    pub(crate) fn nonlinearity(self) -> Option<Nonlinearity> {
        match self {
            Self::Relu | Self::None => None,
            Self::Elu => Some(Nonlinearity::Elu),
            Self::LeakyRelu => Some(Nonlinearity::LeakyRelu(0.01)),
            Self::Gelu => Some(Nonlinearity::Gelu),
            Self::Tanh => Some(Nonlinearity::Tanh),
        }
    }
}

impl fmt::Display for HiddenActivation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
