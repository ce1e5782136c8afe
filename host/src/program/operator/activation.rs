//! Bias, ReLU and dropout.

use super::RowFactors;
use crate::program::value::Value;

/// Dropout: which elements are dropped is a function of the run's seed and step, the stream and the place of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of an element to be dropped, in [0, 1).
    pub probability: f32,
    /// Distinguishes the dropouts of a program.
    pub stream: u32,
}

impl Dropout {
    /// The factor of what is kept.
    pub(in crate::program) fn factor(self) -> f32 {
        1.0 / (1.0 - self.probability)
    }
}

/// `dropout(relu(x + add + bias))`, each part where it is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Activate {
    /// What it is of.
    pub x: Value,
    /// A second matrix, added before rounding.
    pub add: Option<Value>,
    /// A float of one row.
    pub bias: Option<Value>,
    /// Whether negative elements become zero.
    pub relu: bool,
    /// Dropout.
    pub drop: Option<Dropout>,
}

/// The gradient of [`Activate`], in place of that of its output where this is not read again.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivateGradient {
    /// The gradient of the output.
    pub d: Value,
    /// The output, where there was a ReLU. Dropout behind a ReLU is undone from it; else it is drawn again.
    pub relu: Option<Value>,
    /// The dropout.
    pub drop: Option<Dropout>,
    /// A factor of each row.
    pub rows: Option<RowFactors>,
}
