//! What a model is: its shape, and the kind of its layers.

use super::ModelTypes;
use super::{
    Binary, ConvolutionConfig, HiddenActivation, HiddenNorm, Jumping, LinkDecoder, Norm, Readout,
    binary, jumping, rounds_by_default,
};
use crate::error::Error;
use crate::graph::{AddedWeight, Graph, GraphError};
use crate::ops::{AdamHyper, CodeFormat, SpmmPolicy};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;

/// A graph, and a weight for each of its edges where they have some.
pub type WeightedGraph<'a> = (Cow<'a, Graph>, Option<Cow<'a, [f32]>>);

/// The shape of a model, and how it computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ModelConfig {
    /// Input features of a vertex.
    pub features: usize,
    /// Width of every layer but the last.
    pub hidden: usize,
    /// Widths of the hidden layers one by one, in place of [`ModelConfig::hidden`]: one less than there are layers.
    /// Empty where all have that width.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hidden_by_layer: Vec<usize>,
    /// Classes, the width of the last layer.
    pub classes: usize,
    /// Number of layers, at least 1.
    pub layers: usize,
    /// Probability of an input of a layer to be dropped in training, in [0, 1).
    pub dropout: f32,
    /// The same for the layers one by one, in place of [`ModelConfig::dropout`]: as many as there are layers. Empty
    /// where all have that probability.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dropout_by_layer: Vec<f32>,
    /// Whether a layer whose input is as wide as its output adds the one to the other, before ReLU and dropout.
    pub residual: bool,
    /// What is done to the outputs of hidden layers.
    #[serde(default, skip_serializing_if = "HiddenActivation::is_relu")]
    pub activation: HiddenActivation,
    /// What normalises the outputs of hidden layers, before a residual input and the activation.
    #[serde(default, skip_serializing_if = "HiddenNorm::is_none")]
    pub hidden_norm: HiddenNorm,
    /// Whether outputs of layers that the backward pass can recompute by one product are not stored. Those are outputs
    /// of GIN's layers, other than the last and residual ones. This changes no bit of the results.
    #[serde(default)]
    pub recompute: bool,
    /// The 8-bit format of what is aggregated over neighbours in training, forward and backward. Where absent it is in
    /// the precision of the model. Only for models that aggregate with degrees and weights alone.
    #[serde(default, skip_serializing_if = "Option::is_none", with = "by_name")]
    pub messages: Option<CodeFormat>,
    /// The format in which the backward pass' inputs are stored, where it is not the precision of the model: the
    /// outputs of hidden layers and, for GIN, what its layers normalise. For GCN, GraphSAGE, GIN, GAT and networks of
    /// [formulas](crate::program::layers), in half and bfloat16.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<Store>,
    /// Which parts are binary; none where absent. See [`ModelConfig::of_bits`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub binary: Option<Binary>,
    /// Which parts of each layer are, where layers differ; all are as [`ModelConfig::binary`] says where it is empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub binary_layers: Vec<Binary>,
    /// How the aggregations sum up.
    pub policy: SpmmPolicy,
    /// The readout over a graph's vertices, of a model that predicts whole graphs. The layers, all of them hidden, come
    /// before it. Two linear maps with a ReLU and a dropout between them follow, as in PyG's examples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub readout: Option<Readout>,
    /// How the outputs of all layers are combined, where the last alone is not enough. Each layer is then a hidden one,
    /// and a linear map follows them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jumping: Option<Jumping>,
    /// How scores of pairs are made of the model's outputs, for link prediction.
    #[serde(default, skip_serializing_if = "LinkDecoder::is_dot")]
    pub decoder: LinkDecoder,
    /// What a layer does with the graph.
    pub convolution: ConvolutionConfig,
    /// The types of vertices and edges, of a model that reads several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub types: Option<ModelTypes>,
}

impl ModelConfig {
    /// The most layers of a model that the program and the package take.
    pub const MOST_LAYERS: usize = 1000;

    /// The most columns of a hidden layer that the program and the package take. Memory is estimated before a model is
    /// made.
    pub const MOST_HIDDEN: usize = u32::MAX as usize;

    /// The usual model of a kind: see its documentation.
    pub fn of(kind: impl Into<ConvolutionConfig>, features: usize, classes: usize) -> Self {
        let convolution = kind.into();
        let mut model = Self {
            features,
            hidden: 64,
            hidden_by_layer: Vec::new(),
            classes,
            layers: 2,
            dropout: 0.5,
            dropout_by_layer: Vec::new(),
            residual: false,
            activation: HiddenActivation::default(),
            hidden_norm: HiddenNorm::None,
            recompute: false,
            messages: None,
            store: None,
            binary: None,
            binary_layers: Vec::new(),
            policy: SpmmPolicy::default(),
            readout: None,
            jumping: None,
            decoder: LinkDecoder::Dot,
            convolution: convolution.clone(),
            types: None,
        };
        convolution.shape(&mut model);
        model
    }

    /// [`ModelConfig::of`] for a model that predicts whole graphs. A GIN is then the paper's: the sum of the
    /// neighbours, and running statistics in evaluation, since one graph has few vertices to take them of.
    pub fn of_graphs(
        kind: impl Into<ConvolutionConfig>,
        readout: Readout,
        features: usize,
        classes: usize,
    ) -> Self {
        let mut convolution = kind.into();
        convolution.tell_graphs();
        Self {
            readout: Some(readout),
            ..Self::of(convolution, features, classes)
        }
    }

    /// The readout.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for a model that predicts vertices.
    pub(crate) fn expect_readout(&self, operator: &'static str) -> Result<Readout, Error> {
        self.readout.ok_or_else(|| Error::Unsupported {
            operator,
            reason:
                "the model has no readout, so that it predicts vertices and not graphs; give it one"
                    .into(),
        })
    }

    /// The usual L2 penalty of models of this kind.
    pub fn weight_decay(&self) -> f32 {
        // It would pull weights over zero and back, and their signs with them.
        match self.binary {
            Some(_) => 0.0,
            None => self.convolution.weight_decay(),
        }
    }

    /// The usual learning rate of models of this kind, by Adam.
    pub fn learning_rate(&self) -> f32 {
        // Where signs are all that counts, a larger one changes too many of them at a time.
        match self.binary {
            Some(Binary::Full) => 3e-3,
            Some(Binary::Bin) => 1e-3,
            None => AdamHyper::default().learning_rate,
        }
    }

    /// The degree norm that the model's [`Propagation`](super::Propagation) has to have.
    pub fn norm(&self) -> Norm {
        self.convolution.norm()
    }

    /// Whether [`ModelConfig::prepare`] adds self-loops.
    pub fn wants_self_loops(&self) -> bool {
        self.convolution.wants_self_loops()
    }

    /// The graph as the model requires it: with self-loops where layers read a vertex' own row in no other way.
    ///
    /// # Errors
    /// [`GraphError`] where there is not enough memory for the loops, or for the transpose that a backward pass
    /// requires of edges in memory.
    pub fn prepare<'a>(&self, graph: &'a Graph) -> Result<Cow<'a, Graph>, GraphError> {
        let prepared = match self.wants_self_loops() {
            true => Cow::Owned(graph.with_self_loops()?),
            false => Cow::Borrowed(graph),
        };
        // The rows of edges on disk are read. A transpose is made only for a device that holds all edges, on request.
        if !prepared.csr().is_on_disk() {
            prepared.check_room_for_transpose()?;
        }
        Ok(prepared)
    }

    /// Whether edges may have weights, or why not.
    ///
    /// # Errors
    /// The reason.
    pub fn edge_weights(&self) -> Result<(), &'static str> {
        match self.sums_signs() {
            true => Err("sums of signs have no weights of edges"),
            false => self.convolution.edge_weights(),
        }
    }

    /// Whether edges of sampled subgraphs are normalised by how often they are sampled, so that sums over neighbours
    /// are unbiased. This is so for every model whose edges may have weights, except a binary network whose edges have
    /// none. Products of signs share an offset that is larger than the differences between vertices, and normalised
    /// sums scatter it.
    pub fn normalizes_drawn_edges(&self, are_weighted: bool) -> bool {
        self.edge_weights().is_ok() && (self.binary.is_none() || are_weighted)
    }

    /// Numbers of each edge that the model reads as features, its weight among them; 0 of one that reads none. See
    /// [`ModelConfig::prepare_edges`].
    pub fn edge_features(&self) -> usize {
        self.convolution.edge_features()
    }

    /// Whether it reads features of edges as a row of elements for each edge, and not as columns of floats.
    pub fn reads_edge_rows(&self) -> bool {
        self.convolution.reads_edge_rows()
    }

    /// Makes the model read `columns` numbers of each edge, where its kind can; returns whether it does.
    pub fn read_edge_features(&mut self, columns: usize) -> bool {
        self.convolution.read_edge_features(columns)
    }

    /// Gives a model whose layers scale by degrees, such as [`Pna`](super::Pna), the mean of ln (1 + degree) of this
    /// graph, unless it has one.
    pub fn read_degrees(&mut self, graph: &Graph) {
        self.convolution.read_log_degree(&|| {
            let degrees = (0..graph.vertices()).map(|vertex| graph.csr().row_range(vertex).len());
            let sum: f64 = degrees.map(|degree| (degree as f64).ln_1p()).sum();
            (sum / graph.vertices().max(1) as f64) as f32
        });
    }

    /// [`ModelConfig::prepare`] for a graph whose edges may have weights, in its order. Added self-loops have the
    /// weight 1, as in PyG.
    ///
    /// # Errors
    /// Those of [`ModelConfig::prepare`], [`Error::Shape`] where there is not a weight for each edge, and
    /// [`Error::Unsupported`] where the model has no use for them: nothing is left out in silence.
    pub fn prepare_weighted<'a>(
        &self,
        graph: &'a Graph,
        weights: Option<&'a [f32]>,
    ) -> Result<WeightedGraph<'a>, Error> {
        let Some(weights) = weights else {
            return Ok((self.prepare(graph)?, None));
        };
        if let Err(reason) = self.edge_weights() {
            return Err(Error::Unsupported {
                operator: "ModelConfig::prepare_weighted",
                reason: format!("{reason}; leave them out, or take another model"),
            });
        }
        Error::expect(
            "ModelConfig::prepare_weighted",
            "edge weights",
            graph.edges(),
            weights.len(),
        )?;
        let prepared = self.prepare(graph)?;
        let weights = match &prepared {
            Cow::Borrowed(_) => Cow::Borrowed(weights),
            Cow::Owned(edited) => {
                let one = AddedWeight::Value(1.0);
                Cow::Owned(graph.carry_weights(weights, edited, one)?)
            }
        };
        Ok((prepared, Some(weights)))
    }

    /// Layers that aggregate, of a model whose layers are formulas: adjacencies of a sampled batch.
    pub(crate) fn hops(&self) -> usize {
        let settings = self.convolution.settings(self).into_iter();
        settings.filter(|layer| layer.aggregates).count()
    }

    /// Whether layer `layer` is the last, and its output is the prediction.
    pub fn is_last(&self, layer: usize) -> bool {
        layer >= self.hidden_layers()
    }

    /// Layers that are hidden: all but the last or, with jumping knowledge, all.
    pub fn hidden_layers(&self) -> usize {
        match self.jumping {
            Some(_) => self.layers,
            None => self.layers.saturating_sub(1),
        }
    }

    /// Inputs and outputs of layer `layer`.
    pub fn layer(&self, layer: usize) -> (usize, usize) {
        let width = |boundary| match boundary {
            0 => self.features,
            last if last == self.layers => self.classes,
            hidden => self.hidden_of(hidden - 1),
        };
        (width(layer), width(layer + 1))
    }

    /// The hidden width of layer `layer`: that of its output or, of the last one, of its input.
    pub fn hidden_of(&self, layer: usize) -> usize {
        let all = &self.hidden_by_layer;
        let width = all.get(layer).or(all.last());
        width.copied().unwrap_or(self.hidden)
    }

    /// Probability of an input of layer `layer` to be dropped in training.
    pub fn dropout_of(&self, layer: usize) -> f32 {
        let own = self.dropout_by_layer.get(layer);
        own.copied().unwrap_or(self.dropout)
    }

    /// Checks that there is such a model.
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
        let (widths, dropouts) = (&self.hidden_by_layer, &self.dropout_by_layer);
        if !widths.is_empty() && widths.len() != self.layers - 1 {
            return refuse(format!(
                "{} hidden widths, and {} layers have {} in between; give one for each of those, or one for all",
                widths.len(),
                self.layers,
                self.layers - 1
            ));
        }
        if !dropouts.is_empty() && dropouts.len() != self.layers {
            return refuse(format!(
                "{} dropout probabilities, and the model has {} layers; give one for each, or one for all",
                dropouts.len(),
                self.layers
            ));
        }
        let hidden = (0..self.layers.min(1 + widths.len())).map(|layer| self.hidden_of(layer));
        if self.classes == 0 || (self.layers > 1 && hidden.clone().any(|width| width == 0)) {
            return refuse("a layer of width 0 computes nothing; give it at least 1".into());
        }
        let widths = [
            ("features", self.features),
            ("a hidden width", hidden.max().unwrap_or(0)),
            ("classes", self.classes),
        ];
        if let Some((what, width)) = widths.iter().find(|(_, width)| *width > u32::MAX as usize) {
            return refuse(format!(
                "{what} of {width} columns; kernels count them in 32 bits"
            ));
        }
        if self.messages.is_some() && !rounds_by_default(self.policy) {
            return refuse(
                "messages of 8 bits are added up in one way; leave the policy's scaling, sums, write and load as they are"
                    .into(),
            );
        }
        if self.store.is_some() {
            self.check_store().or_else(|reason| refuse(reason.into()))?;
        }
        let mut dropouts = std::iter::once(&self.dropout).chain(dropouts);
        if let Some(dropout) = dropouts.find(|dropout| !(0.0..1.0).contains(*dropout)) {
            return refuse(format!("dropout probability {dropout} is not in [0, 1)"));
        }
        if let Some(jumping) = self.jumping {
            jumping::check(self, jumping).or_else(refuse)?;
        }
        if self.binary.is_some() || !self.binary_layers.is_empty() {
            binary::check(self).or_else(refuse)?;
        }
        if let Some(types) = &self.types {
            types.check(self).or_else(refuse)?;
        }
        self.convolution.check(self).or_else(refuse)
    }
}

impl ModelConfig {
    /// Checks that the activations that it stores can be stored in 8 bits.
    fn check_store(&self) -> Result<(), &'static str> {
        let refused = [
            (
                self.binary.is_some() || !self.binary_layers.is_empty(),
                "layers of one bit read activations as they are; leave store out",
            ),
            (
                !self.activation.is_relu(),
                "of another activation than relu a backward pass reads what has no codes; leave store out",
            ),
        ];
        let refused = refused.into_iter().find(|(is_so, _)| *is_so);
        refused.map_or(Ok(()), |(_, reason)| Err(reason))
    }
}

/// The format of stored activations that the backward pass reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Store {
    /// In int8 with a float scale a column, found in the same pass.
    EightBit,
}

impl Store {
    /// The name, as it is typed.
    pub const fn name(self) -> &'static str {
        match self {
            Self::EightBit => "eight-bit",
        }
    }
}

/// A quantized format by its name.
mod by_name {
    use crate::ops::CodeFormat;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(
        format: &Option<CodeFormat>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        format.map(CodeFormat::name).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<CodeFormat>, D::Error> {
        let Some(name) = Option::<String>::deserialize(from)? else {
            return Ok(None);
        };
        let mut all = CodeFormat::ALL.into_iter();
        match all.find(|format| format.name() == name) {
            Some(format) => Ok(Some(format)),
            None => Err(D::Error::custom(format!(
                "{name:?} is no format of 8-bit codes; int8 and e4m3 are"
            ))),
        }
    }
}
