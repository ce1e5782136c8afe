//! What a model is: its shape, and the kind of its graph convolutions.

use super::Norm;
use crate::backend::SpmmPolicy;
use crate::error::Error;
use crate::graph::{Graph, GraphError};
use crate::ops::MOST_HEADS;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;

/// The shape of a model, and how it computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Input features of a vertex.
    pub features: usize,
    /// Width of every layer but the last.
    pub hidden: usize,
    /// Classes, the width of the last layer.
    pub classes: usize,
    /// Number of layers, at least 1.
    pub layers: usize,
    /// Probability of an input of a layer to be dropped in training, in [0, 1).
    pub dropout: f32,
    /// Whether a layer whose input is as wide as its output adds the one to the other, before ReLU and dropout.
    pub residual: bool,
    /// Whether outputs of layers that the backward pass can make again by one product are not stored: those of GIN, but the
    /// last's and residual ones. Changes no bit of the results.
    #[serde(default)]
    pub recompute: bool,
    /// How the aggregations sum up.
    pub policy: SpmmPolicy,
    /// What a layer does with the graph.
    pub convolution: ConvolutionConfig,
}

/// The kind of a model's graph convolutions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ConvolutionConfig {
    /// `R · A · C · H · W` (Kipf and Welling, ICLR 2017).
    Gcn {
        /// The degree norms `R` and `C`.
        norm: Norm,
    },
    /// `MLP((1 + ε) · H + λ · aggregate(H))` (Xu et al., ICLR 2019; HalfGNN eq. 4), the MLP with one batch normalisation.
    Gin {
        /// What is taken of the neighbours.
        aggregate: Aggregate,
        /// How much of it.
        lambda: f32,
        /// How much more than once a vertex counts itself.
        epsilon: f32,
        /// Whether `epsilon` is learnt, one a layer, from that value on.
        learn_epsilon: bool,
        /// What the batch normalisation evaluates with.
        statistics: Statistics,
    },
    /// Attention (Veličković et al., ICLR 2018). With several heads a hidden layer has them side by side, so its width must
    /// be that many heads of a multiple of 8; the last layer has their mean.
    Gat {
        /// Heads of every layer.
        heads: usize,
        /// Slope of the LeakyReLU of the scores below zero.
        slope: f32,
        /// Probability of an edge to be dropped in training, in [0, 1).
        attention_dropout: f32,
    },
    /// `H · W_self + mean(H) · W` (Hamilton, Ying and Leskovec, NeurIPS 2017).
    Sage,
}

/// The statistics that a batch normalisation evaluates with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistics {
    /// Those of all vertices, without dropout: where training and evaluation see one graph, there is nothing to
    /// remember. Dropout changes the variance that running statistics are of.
    #[default]
    Batch,
    /// The running ones of training, as PyTorch has them.
    Running,
}

/// What is taken of the rows of a vertex's neighbours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Aggregate {
    /// Their mean, which is never larger than they are.
    #[default]
    Mean,
    /// Their sum, kept in the range of half by a power of two that the batch normalisation takes out again.
    Sum,
}

impl ConvolutionConfig {
    /// The name, in lower case, such as `gcn`.
    pub fn name(&self) -> &'static str {
        match self {
            ConvolutionConfig::Gcn { .. } => "gcn",
            ConvolutionConfig::Gin { .. } => "gin",
            ConvolutionConfig::Gat { .. } => "gat",
            ConvolutionConfig::Sage => "sage",
        }
    }
}

impl fmt::Display for ConvolutionConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl ModelConfig {
    /// A graph convolutional network: two layers of 64 with dropout 0.5 and symmetric degree norms.
    pub fn gcn(features: usize, classes: usize) -> Self {
        Self {
            features,
            hidden: 64,
            classes,
            layers: 2,
            dropout: 0.5,
            residual: false,
            recompute: false,
            policy: SpmmPolicy::default(),
            convolution: ConvolutionConfig::Gcn { norm: Norm::Both },
        }
    }

    /// A graph isomorphism network: five layers of 128, dropout 0.5, the mean of the neighbours with λ = 0.1, and ε = −0.95,
    /// so that a vertex counts itself half as much as its neighbours.
    ///
    /// Half as wide it learns Cora as well, and Citeseer four points worse.
    pub fn gin(features: usize, classes: usize) -> Self {
        Self {
            hidden: 128,
            layers: 5,
            convolution: ConvolutionConfig::Gin {
                aggregate: Aggregate::Mean,
                lambda: 0.1,
                epsilon: -0.95,
                learn_epsilon: false,
                statistics: Statistics::Batch,
            },
            ..Self::gcn(features, classes)
        }
    }

    /// A graph attention network: three layers of 64 with one head, dropout 0.5.
    pub fn gat(features: usize, classes: usize) -> Self {
        Self {
            layers: 3,
            convolution: ConvolutionConfig::Gat {
                heads: 1,
                slope: 0.2,
                attention_dropout: 0.0,
            },
            ..Self::gcn(features, classes)
        }
    }

    /// GraphSAGE with the mean of the neighbours: two layers of 64 with dropout 0.5.
    pub fn sage(features: usize, classes: usize) -> Self {
        Self {
            convolution: ConvolutionConfig::Sage,
            ..Self::gcn(features, classes)
        }
    }

    /// The L2 penalty that models of this kind are customarily trained with. A GIN, which has four times the parameters a
    /// layer, learns few labels by heart without a larger one.
    pub fn weight_decay(&self) -> f32 {
        match self.convolution {
            ConvolutionConfig::Gin { .. } => 1e-2,
            _ => 5e-4,
        }
    }

    /// The degree norm that the model's [`Propagation`](super::Propagation) has to have.
    pub fn norm(&self) -> Norm {
        match self.convolution {
            ConvolutionConfig::Gcn { norm } => norm,
            ConvolutionConfig::Gin { aggregate, .. } => match aggregate {
                Aggregate::Mean => Norm::Right,
                Aggregate::Sum => Norm::None,
            },
            ConvolutionConfig::Gat { .. } => Norm::None,
            ConvolutionConfig::Sage => Norm::Right,
        }
    }

    /// The graph as the model wants it: with self-loops where a vertex has no other way to hear of itself.
    ///
    /// # Errors
    /// [`GraphError`] where there is no room for the loops.
    pub fn prepare<'a>(&self, graph: &'a Graph) -> Result<Cow<'a, Graph>, GraphError> {
        match self.convolution {
            ConvolutionConfig::Gcn { .. } | ConvolutionConfig::Gat { .. } => {
                graph.with_self_loops().map(Cow::Owned)
            }
            ConvolutionConfig::Gin { .. } | ConvolutionConfig::Sage => Ok(Cow::Borrowed(graph)),
        }
    }

    /// Inputs and outputs of layer `layer`.
    pub(super) fn layer(&self, layer: usize) -> (usize, usize) {
        let width = |boundary| match boundary {
            0 => self.features,
            last if last == self.layers => self.classes,
            _ => self.hidden,
        };
        (width(layer), width(layer + 1))
    }

    /// Whether a layer of this many inputs and outputs adds the ones to the others.
    pub(super) fn is_residual(&self, (inputs, outputs): (usize, usize)) -> bool {
        self.residual && inputs == outputs
    }

    /// That there is such a model.
    ///
    /// # Errors
    /// [`Error::Unsupported`] with what is wrong.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let refuse = |reason: String| {
            Err(Error::Unsupported {
                operator: "Network",
                reason,
            })
        };
        if self.layers == 0 {
            return refuse("a model of 0 layers computes nothing; give it at least 1".into());
        }
        if self.classes == 0 || (self.layers > 1 && self.hidden == 0) {
            return refuse("a layer of width 0 computes nothing; give it at least 1".into());
        }
        let widths = [
            ("features", self.features),
            ("a hidden width", self.hidden),
            ("classes", self.classes),
        ];
        if let Some((what, width)) = widths.iter().find(|(_, width)| *width > u32::MAX as usize) {
            return refuse(format!(
                "{what} of {width} columns; kernels count them in 32 bits"
            ));
        }
        if !(0.0..1.0).contains(&self.dropout) {
            return refuse(format!(
                "dropout probability {} is not in [0, 1)",
                self.dropout
            ));
        }
        match self.convolution {
            ConvolutionConfig::Gin {
                lambda, epsilon, ..
            } if !lambda.is_finite() || !epsilon.is_finite() => {
                refuse(format!("λ {lambda} and ε {epsilon} should be finite"))
            }
            ConvolutionConfig::Gat { heads: 0, .. } => {
                refuse("attention without heads computes nothing; give it at least 1".into())
            }
            ConvolutionConfig::Gat { heads, .. } if heads > MOST_HEADS => refuse(format!(
                "{heads} heads of attention; there can be {MOST_HEADS} at most"
            )),
            ConvolutionConfig::Gat { heads, .. }
                if heads > 1 && self.layers > 1 && !self.hidden.is_multiple_of(8 * heads) =>
            {
                refuse(format!(
                    "{heads} heads want a hidden width that is a multiple of {}, and it is {}",
                    8 * heads,
                    self.hidden
                ))
            }
            ConvolutionConfig::Gat {
                attention_dropout, ..
            } if !(0.0..1.0).contains(&attention_dropout) => refuse(format!(
                "attention dropout {attention_dropout} is not in [0, 1)"
            )),
            ConvolutionConfig::Gat { slope, .. } if !slope.is_finite() => {
                refuse(format!("the slope {slope} of the scores should be finite"))
            }
            _ => Ok(()),
        }
    }
}
