//! The graph attention network of Brody, Alon and Yahav (ICLR 2022). It is GAT with the score's vector after its
//! LeakyReLU, so that the ranking of the neighbours depends on the destination.
//!
//! `l = H · W_l + b_l`, `r = H · W_r + b_r`, `e(i,j) = a · LeakyReLU(r_i + l_j)`, `α(i, ·) = softmax(e(i, ·))`,
//! `y_i = Σ_j α(i,j) · l_j`, for several heads. The heads are concatenated or, in the last layer, averaged.
//!
//! [`ops::AdditiveAttention`] does what lies between the maps. During a pass it borrows one or two floats an edge and
//! head, and keeps nothing.

use super::architecture::{Architecture, LayerOption, number, probability, store};
use super::{ModelConfig, Norm, heads};
use crate::program::layers::{self as formulas, Layer as Formula, Reads};
use serde::{Deserialize, Serialize};

/// Attention (Brody, Alon and Yahav, ICLR 2022), three layers of 64 with one head and dropout 0.5. A hidden layer
/// concatenates its heads, so its width must be a multiple of their number; the last layer has their mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GatV2 {
    /// Heads of every layer.
    pub heads: usize,
    /// Slope of the LeakyReLU of the scores below zero.
    pub slope: f32,
    /// Probability of an edge to be dropped in training, in [0, 1).
    pub attention_dropout: f32,
    /// Whether destinations and sources have one map, `W_r = W_l`.
    pub share_weights: bool,
}

impl Default for GatV2 {
    fn default() -> Self {
        Self {
            heads: 1,
            slope: 0.2,
            attention_dropout: 0.0,
            share_weights: false,
        }
    }
}

const NO_EDGE_TERM: &str = "GATv2's scores have no term for edges here, as GAT's have";

impl Architecture for GatV2 {
    const NAME: &'static str = "gatv2";
    const TITLE: &'static str = "Graph attention network whose attention is dynamic (Brody et al.)";
    const POLICY: Result<(), &'static str> = Err("GATv2's attention is always summed up in float");
    const EDGE_WEIGHTS: Result<(), &'static str> = Err(NO_EDGE_TERM);
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
        LayerOption {
            name: "share-weights",
            help: "one map for destinations and sources",
            set: |gat, _| {
                gat.share_weights = true;
                Ok(())
            },
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

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        heads::refusal(model, self.heads, self.attention_dropout, self.slope)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Formula> {
        let edges = reads.edges;
        Box::new(formulas::GatV2 {
            edges,
            outputs: model.layer(number).1,
            averaged: model.is_last(number),
            options: self.clone(),
        })
    }
}

impl ModelConfig {
    /// A graph attention network of the second kind: three layers of 64 with one head, dropout 0.5.
    pub fn gatv2(features: usize, classes: usize) -> Self {
        Self::of(GatV2::default(), features, classes)
    }
}
