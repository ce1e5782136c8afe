//! The layer of a graph transformer (Shi et al., IJCAI 2021).

use super::{Divisor, Layer, LayerKind, LayerSetting, ParameterNames, Reads};
use crate::nn::architecture::{Architecture, LayerOption, number, probability, store};
use crate::nn::{ModelConfig, Norm, check_heads};
use crate::ops::MOST_HEADS;
use crate::program::{Builder, Edges, Value};
use serde::{Deserialize, Serialize};

/// Its names. Without a gate the bias behind the layer is PyG's of the map of the vertex itself. With one there is no bias behind it.
pub(super) const KIND: LayerKind = LayerKind::of::<Transformer>(&[
    ParameterNames::linear("query.weight", &["lin_query.weight"], &[]).of_heads(),
    ParameterNames::same("query.bias", &["lin_query.bias"], &[]).of_heads(),
    ParameterNames::linear("key.weight", &["lin_key.weight"], &[]).of_heads(),
    ParameterNames::same("key.bias", &["lin_key.bias"], &[]).of_heads(),
    ParameterNames::linear("value.weight", &["lin_value.weight"], &[]).of_heads(),
    ParameterNames::same("value.bias", &["lin_value.bias"], &[]).of_heads(),
    ParameterNames::linear("self.weight", &["lin_skip.weight"], &[]),
    ParameterNames::same("self.bias", &["lin_skip.bias"], &[]),
    ParameterNames::linear("beta.*.weight", &["lin_beta.weight"], &[])
        .with_divisor(Divisor::Nothing),
    ParameterNames::same("bias", &["lin_skip.bias"], &[]),
]);

/// Options of PyG's `TransformerConv`: three layers of 64 with one head and dropout 0.5. With several heads a hidden layer has them
/// side by side, so its width must be a multiple of them. The last layer has their mean.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Transformer {
    /// Heads of every layer.
    pub heads: usize,
    /// Probability of an edge to be dropped in training, in [0, 1).
    pub attention_dropout: f32,
    /// Whether a linear map of a vertex's own row is added, PyG's `root_weight`.
    pub root_weight: bool,
    /// Whether a gate that is learnt weighs that map against the attention.
    pub beta: bool,
}

impl Default for Transformer {
    fn default() -> Self {
        Self {
            heads: 1,
            attention_dropout: 0.0,
            root_weight: true,
            beta: false,
        }
    }
}

impl Architecture for Transformer {
    const NAME: &'static str = "transformer";
    const TITLE: &'static str = "Graph transformer, attention by dot products (Shi et al.)";
    const POLICY: Result<(), &'static str> =
        Err("attention by dot products is always summed up in float");
    const EDGE_WEIGHTS: Result<(), &'static str> =
        Err("the scores of a graph transformer have no term for edges here");
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            name: "heads",
            value: "N",
            help: "number of heads [default: 1]",
            set: |it, text| store(&mut it.heads, number(text, 1..=MOST_HEADS)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "attention-dropout",
            value: "P",
            help: "probability of an edge to be dropped in training [default: 0]",
            set: |it, text| store(&mut it.attention_dropout, probability(text)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "no-root-weight",
            help: "no linear map of a vertex's own row",
            set: |it, _| {
                it.root_weight = false;
                Ok(())
            },
            ..LayerOption::NONE
        },
        LayerOption {
            name: "beta",
            help: "a gate that weighs the map of a vertex's own row against the attention",
            set: |it, _| {
                it.beta = true;
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

    fn drops_edges(&self) -> bool {
        self.attention_dropout > 0.0
    }

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        if self.beta && !self.root_weight {
            return Err("the gate weighs the map of a vertex's own row, which is left out; leave one of beta and no-root-weight away".into());
        }
        check_heads(model, self.heads, self.attention_dropout, 0.0)
    }

    fn settings(&self, model: &ModelConfig) -> Vec<LayerSetting> {
        LayerSetting::stack(model, !self.beta)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let (_, outputs) = model.layer(number);
        Box::new(TransformerLayer {
            edges,
            outputs,
            averaged: model.is_last(number),
            options: self.clone(),
        })
    }
}

/// `y_i = Σ_j α(i,j) · v_j + h_i · W_self`, where `α(i, ·)` is the softmax of `q_i · k_j / √D`, `q`, `k` and `v` are linear maps of the
/// rows with biases, and `D` are the columns of a head. Several heads are side by side or, in a last layer, averaged.
///
/// With a gate `β_i = σ(w · [a_i ‖ s_i ‖ a_i − s_i])` of the attention `a` and the map `s` of a vertex itself, which then has a bias,
/// `y_i = β_i · s_i + (1 − β_i) · a_i`.
#[derive(Clone, Debug)]
pub struct TransformerLayer {
    /// The adjacency, without a norm.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// Whether the output is the mean of the heads.
    pub averaged: bool,
    /// Its options.
    pub options: Transformer,
}

impl Layer for TransformerLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let heads = g.heads(self.options.heads, self.outputs, self.averaged);
        let own = g.own_rows(self.edges, x);
        let ends = [
            g.heads_map("query", heads, own),
            g.heads_map("key", heads, x),
            g.heads_map("value", heads, x),
        ];
        let dropout = self.options.attention_dropout;
        let y = g.dot_attention(self.edges, ends, heads, dropout);
        let y = g.join_heads(heads, y);
        if !self.options.root_weight {
            return y;
        }
        let weight = g.weight("self.weight", (g.columns(x), self.outputs));
        let itself = g.matmul(own, weight);
        if !self.options.beta {
            return g.add(y, itself);
        }
        let bias = g.bias("self.bias", self.outputs);
        let itself = g.add_bias(itself, bias);
        let difference = g.combine(&[(1.0, y), (-1.0, itself)]);
        let scores = g.linear_of_all("beta", &[y, itself, difference], 1);
        let half = g.combine(&[(0.5, scores)]);
        let half = g.repeat(half, self.outputs);
        g.gate(half, itself, y)
    }
}
