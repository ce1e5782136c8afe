//! What a network is made of: a layer, and what comes after it.

use crate::backend::Backend;
use crate::nn::{HiddenActivation, HiddenNorm, Layer, ModelConfig, Store};
use crate::ops::{CodeFormat, Nonlinearity};
use crate::tensor::Element;

/// A layer, and what is around it.
#[derive(Debug)]
pub struct Stage<B: Backend, E: Element> {
    pub(super) layer: Box<dyn Layer<B, E>>,
    pub(super) bias: bool,
    pub(super) relu: bool,
    pub(super) nonlinearity: Option<Nonlinearity>,
    pub(super) norm: HiddenNorm,
    pub(super) dropout: f32,
    pub(super) residual: bool,
    pub(super) initial: bool,
    pub(super) jumps: bool,
    pub(super) recompute: bool,
    pub(super) messages: Option<CodeFormat>,
    pub(super) store: Option<Store>,
    pub(super) decay: f32,
}

impl<B: Backend, E: Element> Stage<B, E> {
    /// A layer, and nothing around it.
    pub fn new(layer: impl Layer<B, E> + 'static) -> Self {
        Self {
            layer: Box::new(layer),
            bias: false,
            relu: false,
            nonlinearity: None,
            norm: HiddenNorm::None,
            dropout: 0.0,
            residual: false,
            initial: false,
            jumps: false,
            recompute: false,
            messages: None,
            store: None,
            decay: 1.0,
        }
    }

    /// With a bias after it, a parameter `bias` of zeros.
    #[must_use]
    pub fn bias(mut self) -> Self {
        self.bias = true;
        self
    }

    /// With a ReLU after the bias.
    #[must_use]
    pub fn relu(self) -> Self {
        self.activation(HiddenActivation::Relu)
    }

    /// With this activation behind the bias, in the place of any other.
    #[must_use]
    pub fn activation(mut self, activation: HiddenActivation) -> Self {
        self.relu = activation.is_relu();
        self.nonlinearity = activation.nonlinearity();
        self
    }

    /// With this norm behind the bias, in the place of any other.
    #[must_use]
    pub fn norm(mut self, norm: HiddenNorm) -> Self {
        self.norm = norm;
        self
    }

    /// As a hidden layer of a model: with its norm and its activation.
    #[must_use]
    pub fn hidden(self, model: &ModelConfig) -> Self {
        self.norm(model.hidden_norm).activation(model.activation)
    }

    /// With its input's elements dropped in training with this probability, in [0, 1).
    #[must_use]
    pub fn dropout(mut self, probability: f32) -> Self {
        self.dropout = probability;
        self
    }

    /// With its input added to its output, behind the norm and before the ReLU: they are of one width.
    #[must_use]
    pub fn residual(mut self) -> Self {
        self.residual = true;
        self
    }

    /// As the stage whose output later layers read as [`Context::initial`](crate::nn::Context::initial); there is one at most.
    #[must_use]
    pub fn initial(mut self) -> Self {
        self.initial = true;
        self
    }

    /// As one of the stages whose output a later layer than the next reads as one of [`Context::jumped`](crate::nn::Context::jumped).
    #[must_use]
    pub fn jumps(mut self) -> Self {
        self.jumps = true;
        self
    }

    /// With its output made again in the backward pass instead of stored, where the layer [repeats](Layer::repeats) it and
    /// nobody else reads it. Changes no bit of the results.
    #[must_use]
    pub fn recompute(mut self) -> Self {
        self.recompute = true;
        self
    }

    /// With what it sums up over neighbours sent as 8-bit codes in training, of a layer that
    /// [tells](Layer::message_columns) how wide it is; in half and bfloat16.
    #[must_use]
    pub fn messages(mut self, format: CodeFormat) -> Self {
        self.messages = Some(format);
        self
    }

    /// With what its backward pass reads of the forward pass kept in 8 bits, of a layer that [can](Layer::store_codes); its output as well,
    /// where the next stage does so too and nobody else reads it. In half and bfloat16.
    #[must_use]
    pub fn store(mut self, store: Store) -> Self {
        self.store = Some(store);
        self
    }

    /// Multiplies the weight decay of the layer's parameters and the bias.
    pub fn decay(&mut self, factor: f32) {
        self.decay *= factor;
    }
}
