//! The residual gated graph convolution (Bresson and Laurent 2017).

use super::{
    Divisor, IN_FLOAT, Layer, LayerKind, ParameterNames, Reads, WEIGHTS_ARE_FEATURES,
    check_edge_features, is_zero, reads_edge_rows,
};
use crate::nn::architecture::{Architecture, LayerOption, store};
use crate::nn::{Aggregate, ModelConfig, Norm};
use crate::ops::MessageAct;
use crate::program::{Builder, Edges, MessageRows, Value};
use serde::{Deserialize, Serialize};

/// Its names. Of PyG's weights with features of edges the columns of these are the last.
pub(super) const KIND: LayerKind = LayerKind::of::<ResGated>(&[
    ParameterNames::linear("key.0.weight", &["lin_key.weight"], &[]),
    ParameterNames::linear("key.1.weight", &["lin_key.weight"], &[]).with_divisor(Divisor::Nothing),
    ParameterNames::same("key.bias", &["lin_key.bias"], &[]),
    ParameterNames::linear("query.0.weight", &["lin_query.weight"], &[]),
    ParameterNames::linear("query.1.weight", &["lin_query.weight"], &[])
        .with_divisor(Divisor::Nothing),
    ParameterNames::same("query.bias", &["lin_query.bias"], &[]),
    ParameterNames::linear("value.0.weight", &["lin_value.weight"], &[]),
    ParameterNames::linear("value.1.weight", &["lin_value.weight"], &[])
        .with_divisor(Divisor::Nothing),
    ParameterNames::same("value.bias", &["lin_value.bias"], &[]),
    ParameterNames::linear("self.weight", &["lin_skip.weight"], &[]),
    ParameterNames::same("bias", &["bias"], &[]),
]);

/// Options of PyG's `ResGatedGraphConv`. Weights of edges count as features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ResGated {
    /// What is taken of the messages.
    pub aggregate: Aggregate,
    /// Whether a linear map of a vertex's own row is added, PyG's `root_weight`.
    pub root_weight: bool,
    /// Features of each edge, its weight among them; 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub edge_features: usize,
}

impl Default for ResGated {
    fn default() -> Self {
        Self {
            aggregate: Aggregate::Mean,
            root_weight: true,
            edge_features: 0,
        }
    }
}

impl Architecture for ResGated {
    const NAME: &'static str = "resgated";
    const TITLE: &'static str = "Residual gated graph convolution (Bresson and Laurent)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const EDGE_WEIGHTS: Result<(), &'static str> = WEIGHTS_ARE_FEATURES;
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            set: |it, text| store(&mut it.aggregate, Ok(Aggregate::of_option(text))),
            ..LayerOption::AGGREGATE
        },
        LayerOption {
            name: "no-root-weight",
            help: "no linear map of a vertex's own row",
            set: |it, _| store(&mut it.root_weight, Ok(false)),
            ..LayerOption::NONE
        },
    ];

    fn tell_graphs(&mut self) {
        self.aggregate = Aggregate::Sum;
    }

    fn norm(&self) -> Norm {
        self.aggregate.norm()
    }

    reads_edge_rows!();

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        self.aggregate.expect_sum()?;
        check_edge_features(self.edge_features)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        Box::new(ResGatedLayer {
            edges: reads.edges,
            outputs: model.layer(number).1,
            options: self.clone(),
        })
    }
}

/// `y_i = Σ_j σ(k_ij + q_ij) ⊙ v_ij + h_i · W_self`, the sum or the mean, where `k_ij`, `q_ij` and `v_ij` are linear maps of `[h_i ‖ f_ij]`, `[h_j ‖ f_ij]` and
/// `[h_j ‖ f_ij]` with biases, and `f_ij` are the features of the edge.
#[derive(Clone, Debug)]
pub struct ResGatedLayer {
    /// The adjacency, with the norm `right` for a mean and none for a sum.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// Its options.
    pub options: ResGated,
}

impl Layer for ResGatedLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let (columns, of_edges) = (g.columns(x), self.options.edge_features);
        let widths = match of_edges {
            0 => vec![columns],
            _ => vec![columns, of_edges],
        };
        let own = g.own_rows(self.edges, x);
        // The rows of an end, and the weight of the features of edges.
        let mut map = |name: &str, rows| {
            let weights = g.weights_of_all(name, &widths, self.outputs);
            let product = g.matmul(rows, weights[0]);
            let bias = g.bias(&format!("{name}.bias"), self.outputs);
            (g.add_bias(product, bias), weights.get(1).copied())
        };
        let [key, query, value] = [map("key", own), map("query", x), map("value", x)];
        let mut of_edge = |weights: [Option<Value>; 2]| {
            let weights: Vec<(f32, Value)> =
                weights.into_iter().flatten().map(|it| (1.0, it)).collect();
            let weight = match weights[..] {
                [] => return None,
                [(_, weight)] => weight,
                _ => g.combine(&weights),
            };
            let features = g.edge_features(self.edges, of_edges);
            Some(g.matmul(features, weight))
        };
        let gate = MessageRows {
            destination: Some(key.0),
            source: Some(query.0),
            edge: of_edge([key.1, query.1]),
        };
        let values = MessageRows {
            source: Some(value.0),
            edge: of_edge([value.1, None]),
            ..MessageRows::default()
        };
        let factors = [(MessageAct::Sigmoid, gate), (MessageAct::Identity, values)];
        let y = g.message_sums(self.edges, factors);
        if !self.options.root_weight {
            return y;
        }
        let itself = g.linear("self", self.outputs, own);
        g.add(y, itself)
    }
}
