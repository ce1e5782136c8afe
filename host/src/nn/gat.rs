//! The graph attention network of Veličković et al. (ICLR 2018). Each vertex takes the mean of its neighbours, weighted
//! by a softmax of scores that two learnt vectors give to destination and source.
//!
//! `h = H · W`, `e(i,j) = LeakyReLU(a_d · h_i + a_s · h_j)`, `α(i, ·) = softmax(e(i, ·))`, `y_i = Σ_j α(i,j) · h_j`,
//! for several heads. The heads are concatenated or, in the last layer, averaged.
//!
//! Edges that have weights or vectors of features `f` have a third term in their scores, `a_e · (W_e · f(i,j))`, as in
//! PyG's `GATConv(edge_dim=…)`.

use super::architecture::{Architecture, LayerOption, number, probability, store};
use super::{ModelConfig, Norm, heads};
use crate::program::layers::{
    self as formulas, Layer as Formula, Reads, check_edge_features, is_zero,
};
use serde::{Deserialize, Serialize};

/// Attention (Veličković et al., ICLR 2018), three layers of 64 with one head and dropout 0.5. A hidden layer
/// concatenates its heads, so its width must be a multiple of their number; the last layer has their mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Gat {
    /// Heads of every layer.
    pub heads: usize,
    /// Slope of the LeakyReLU of the scores below zero.
    pub slope: f32,
    /// Probability of an edge to be dropped in training, in [0, 1).
    pub attention_dropout: f32,
    /// Numbers of each edge, its weight among them, that its score has a term of (PyG's `edge_dim`); 0 for none.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub edge_features: usize,
}

impl Default for Gat {
    fn default() -> Self {
        Self {
            heads: 1,
            slope: 0.2,
            attention_dropout: 0.0,
            edge_features: 0,
        }
    }
}

const EDGE_WEIGHTS_ARE_FEATURES: &str = "this GAT was made without a term for weights of edges (Gat::edge_features, ModelConfig::prepare_edges)";

impl Architecture for Gat {
    const NAME: &'static str = "gat";
    const TITLE: &'static str = "Graph attention network (Veličković et al.)";
    const POLICY: Result<(), &'static str> = Err("GAT's attention is always summed up in float");
    const EDGE_WEIGHTS: Result<(), &'static str> = Err(EDGE_WEIGHTS_ARE_FEATURES);
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            name: "heads",
            value: "N",
            help: "number of heads [default: 1]",
            set: |gat, text| store(&mut gat.heads, number(text, 1..=65535)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "attention-dropout",
            value: "P",
            help: "probability of an edge to be dropped in training [default: 0]",
            set: |gat, text| store(&mut gat.attention_dropout, probability(text)),
            ..LayerOption::NONE
        },
    ];

    fn shape(&self, model: &mut ModelConfig) {
        model.layers = 3;
        model.hidden = model.hidden.next_multiple_of(self.heads.max(1));
    }

    fn norm(&self) -> Norm {
        Norm::None
    }

    fn wants_self_loops(&self) -> bool {
        true
    }

    fn drops_edges(&self) -> bool {
        self.attention_dropout > 0.0
    }

    fn edge_features(&self) -> usize {
        self.edge_features
    }

    fn read_edge_features(&mut self, columns: usize) -> bool {
        self.edge_features = columns;
        true
    }

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        heads::refusal(model, self.heads, self.attention_dropout, self.slope)?;
        check_edge_features(self.edge_features)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Formula> {
        let edges = reads.edges;
        Box::new(formulas::Gat {
            edges,
            outputs: model.layer(number).1,
            averaged: model.is_last(number),
            options: self.clone(),
        })
    }
}

impl ModelConfig {
    /// A graph attention network: three layers of 64 with one head, dropout 0.5.
    pub fn gat(features: usize, classes: usize) -> Self {
        Self::of(Gat::default(), features, classes)
    }
}
