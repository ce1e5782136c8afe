//! The generalized convolution of deep networks (Li et al. 2020).

use super::gin::mlp;
use super::{
    Divisor, IN_FLOAT, Layer, LayerKind, ParameterNames, Reads, WEIGHTS_ARE_FEATURES,
    check_edge_features, is_zero, reads_edge_rows,
};
use crate::nn::architecture::{Architecture, LayerOption, positive, store};
use crate::nn::{Aggregate, ModelConfig, Norm, Statistics};
use crate::ops::MessageAct;
use crate::program::{BatchNorm, Builder, Edges, MessageRows, Value};
use serde::{Deserialize, Serialize};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<Gen>(&[
    ParameterNames::linear("source.weight", &["lin_src.weight"], &[]),
    ParameterNames::linear("self.weight", &["lin_dst.weight"], &[]),
    ParameterNames::linear(
        "edge.weight",
        &["lin_edge.weight"],
        &["edge_encoder.weight"],
    )
    .with_divisor(Divisor::Nothing),
    ParameterNames::linear("mlp.0.weight", &["mlp.0.weight"], &["mlp.0.weight"])
        .with_divisor(Divisor::Nothing),
    ParameterNames::same("norm.weight", &["mlp.1.weight"], &["mlp.1.weight"]),
    ParameterNames::same("norm.bias", &["mlp.1.bias"], &["mlp.1.bias"]),
    ParameterNames::same(
        "norm.running",
        &["mlp.1.running_mean", "mlp.1.running_var"],
        &["mlp.1.running_mean", "mlp.1.running_var"],
    ),
    ParameterNames::linear("mlp.1.weight", &["mlp.4.weight"], &["mlp.4.weight"])
        .with_divisor(Divisor::Nothing),
    ParameterNames::same("bias", &["mlp.4.bias"], &["mlp.4.bias"]),
]);

/// Options of PyG's `GENConv` with an MLP of two maps and batch normalisation. Weights of edges count as features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Gen {
    /// What is made of the messages.
    pub aggregate: Aggregate,
    /// What messages are multiplied by in the softmax, PyG's `t`.
    pub temperature: f32,
    /// How much wider the MLP is in between, PyG's `expansion`.
    pub expansion: usize,
    /// What the batch normalisation evaluates with.
    pub statistics: Statistics,
    /// Features of each edge, its weight among them; 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub edge_features: usize,
}

impl Default for Gen {
    fn default() -> Self {
        Self {
            aggregate: Aggregate::Softmax,
            temperature: 1.0,
            expansion: 2,
            statistics: Statistics::Batch,
            edge_features: 0,
        }
    }
}

/// The widest MLP in between, in outputs.
const MOST_EXPANSION: usize = 64;

impl Architecture for Gen {
    const NAME: &'static str = "gen";
    const TITLE: &'static str = "Generalized graph convolution (Li et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const EDGE_WEIGHTS: Result<(), &'static str> = WEIGHTS_ARE_FEATURES;
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            set: |of, text| store(&mut of.aggregate, Ok(Aggregate::of_option(text))),
            help: "what is taken of the messages [default: softmax]",
            ..LayerOption::AGGREGATE_ANY
        },
        LayerOption {
            name: "temperature",
            value: "T",
            help: "what messages are multiplied by in the softmax [default: 1]",
            set: |of, text| store(&mut of.temperature, positive(text)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "running-statistics",
            help: "evaluate with the running statistics of training, not with those of all vertices; always so for a model of whole graphs",
            set: |of, _| store(&mut of.statistics, Ok(Statistics::Running)),
            ..LayerOption::NONE
        },
    ];

    fn tell_graphs(&mut self) {
        self.statistics = Statistics::Running;
    }

    fn wants_all_vertices(&self) -> Option<&'static str> {
        (self.statistics == Statistics::Batch).then_some(
            "the batch normalisations of GENConv take the statistics of all vertices, unless it is trained with running statistics",
        )
    }

    fn norm(&self) -> Norm {
        self.aggregate.norm()
    }

    reads_edge_rows!();

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        let (temperature, expansion) = (self.temperature, self.expansion);
        if !(temperature > 0.0 && temperature.is_finite()) {
            return Err(format!("the temperature {temperature} should be above 0"));
        }
        if !(1..=MOST_EXPANSION).contains(&expansion) {
            return Err(format!(
                "an expansion of {expansion}; there can be 1 to {MOST_EXPANSION}"
            ));
        }
        check_edge_features(self.edge_features)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        Box::new(GenLayer {
            edges: reads.edges,
            outputs: model.layer(number).1,
            options: self.clone(),
        })
    }
}

/// `MLP(h_i + Σ_j α_ij ⊙ m_ij)` with `m_ij = relu(h_j + f_ij · W_e)`, or another reduction of `m_ij`. `α` is the softmax of
/// `t · m_ij` over the edges, column by column. PyG's `eps` of 10⁻⁷, which is less than a rounding, is left out. Rows that are
/// not as wide as the output are mapped to its width first.
#[derive(Clone, Debug)]
pub struct GenLayer {
    /// The adjacency, with the norm `right` for a mean and none else.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// Its options.
    pub options: Gen,
}

impl Layer for GenLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let of = &self.options;
        let (columns, outputs) = (g.columns(x), self.outputs);
        let own = g.own_rows(self.edges, x);
        let (x, own) = match columns == outputs {
            true => (x, own),
            false => (
                g.linear("source", outputs, x),
                g.linear("self", outputs, own),
            ),
        };
        let mut edge = (of.edge_features > 0).then(|| {
            let features = g.edge_features(self.edges, of.edge_features);
            g.linear("edge", outputs, features)
        });
        // A ReLU keeps a factor, so that the softmax of scaled messages is that with a temperature.
        let is_scaled = of.aggregate == Aggregate::Softmax && of.temperature != 1.0;
        let mut source = x;
        if is_scaled {
            source = g.combine(&[(of.temperature, source)]);
            edge = edge.map(|edge| g.combine(&[(of.temperature, edge)]));
        }
        let rows = MessageRows {
            source: Some(source),
            edge,
            ..MessageRows::default()
        };
        let message = (MessageAct::Relu, rows);
        let reduced = g.aggregate_messages(self.edges, of.aggregate, message);
        let factor = if is_scaled { 1.0 / of.temperature } else { 1.0 };
        let sum = g.combine(&[(factor, reduced), (1.0, own)]);
        let norm = BatchNorm {
            scale: 1.0,
            relu: true,
            evaluate_with: of.statistics,
        };
        mlp(g, sum, norm, [of.expansion * outputs, outputs])
    }
}
