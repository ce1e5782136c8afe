//! How a layer stands in its network: what comes before it and behind it.

use crate::nn::ModelConfig;
use crate::program::{Edges, Value};

/// What a network puts around a layer, by [`Architecture::settings`](crate::nn::Architecture::settings).
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSetting {
    /// Columns of its output.
    pub outputs: usize,
    /// Whether it aggregates: then a batch has an adjacency for it.
    pub aggregates: bool,
    /// Probability of an element of its input to be dropped in training.
    pub dropout: f32,
    /// Whether a bias follows.
    pub bias: bool,
    /// Whether the network's norm and activation follow.
    pub is_hidden: bool,
    /// Whether its input is added behind the norm.
    pub is_residual: bool,
    /// Whether later layers read what it writes, as [`Reads::initial`].
    pub is_initial: bool,
    /// What the weight decay of its parameters is multiplied by.
    pub decay: f32,
}

impl LayerSetting {
    /// Layer `number` of a stack of equal ones: it aggregates and has a bias, and all but the last are hidden.
    pub fn stacked(model: &ModelConfig, number: usize) -> Self {
        let (inputs, outputs) = model.layer(number);
        Self {
            outputs,
            aggregates: true,
            dropout: model.dropout_of(number),
            bias: true,
            is_hidden: !model.is_last(number),
            is_residual: model.residual && inputs == outputs,
            is_initial: false,
            decay: 1.0,
        }
    }

    /// All layers of such a stack, with biases behind them or without.
    pub(super) fn stack(model: &ModelConfig, bias: bool) -> Vec<Self> {
        let layers = (0..model.layers).map(|number| Self {
            bias,
            ..Self::stacked(model, number)
        });
        layers.collect()
    }

    /// A linear map of each row with a bias.
    pub fn dense(outputs: usize, dropout: f32) -> Self {
        Self {
            outputs,
            aggregates: false,
            dropout,
            bias: true,
            is_hidden: false,
            is_residual: false,
            is_initial: false,
            decay: 1.0,
        }
    }
}

/// What a layer reads besides its input.
#[derive(Clone, Copy, Debug)]
pub struct Reads {
    /// The adjacency. One that does not aggregate has none of its own, and reads none.
    pub edges: Edges,
    /// What the [initial](LayerSetting::is_initial) layer wrote of the vertices that this one computes; its own input where there is none.
    pub initial: Value,
}
