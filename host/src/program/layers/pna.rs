//! Principal neighbourhood aggregation (Corso et al., NeurIPS 2020).

use super::{
    Divisor, IN_FLOAT, Layer, LayerKind, ParameterNames, Reads, WEIGHTS_ARE_FEATURES,
    check_edge_features, is_zero, reads_edge_rows,
};
use crate::nn::architecture::{Architecture, LayerOption, positive, store};
use crate::nn::{Aggregate, ModelConfig, Norm};
use crate::ops::{MessageAct, Nonlinearity};
use crate::program::{Builder, Edges, MessageRows, Value};
use serde::{Deserialize, Serialize};

/// Its names. In PyG what lies apart here is one matrix: the maps of both ends and of the edge, and those of the aggregations.
pub(super) const KIND: LayerKind = LayerKind::of::<Pna>(&[
    ParameterNames::linear("edge.weight", &["edge_encoder.weight"], &[])
        .with_divisor(Divisor::Nothing),
    ParameterNames::same("edge.bias", &["edge_encoder.bias"], &[]),
    ParameterNames::linear("message.0.weight", &["pre_nns.0.0.weight"], &[]),
    ParameterNames::linear("message.1.weight", &["pre_nns.0.0.weight"], &[]),
    ParameterNames::linear("message.2.weight", &["pre_nns.0.0.weight"], &[])
        .with_divisor(Divisor::Nothing),
    ParameterNames::same("message.bias", &["pre_nns.0.0.bias"], &[]),
    ParameterNames::linear("post.0.weight", &["post_nns.0.0.weight"], &[]),
    ParameterNames::linear("post.*.weight", &["post_nns.0.0.weight"], &[])
        .with_divisor(Divisor::Nothing),
    ParameterNames::same("post.bias", &["post_nns.0.0.bias"], &[]),
    ParameterNames::linear("output.weight", &["lin.weight"], &[]).with_divisor(Divisor::Nothing),
    ParameterNames::same("bias", &["lin.bias"], &[]),
]);

/// Options of PyG's `PNAConv` with one tower, the aggregators mean, min, max and std, and the scalers identity, amplification and
/// attenuation. Weights of edges count as features.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pna {
    /// The mean of ln (1 + degree) over the vertices of training, by which scalers divide: that of
    /// [`ModelConfig::read_degrees`], or else 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub log_degree: Option<f32>,
    /// Features of each edge, its weight among them; 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub edge_features: usize,
}

impl Architecture for Pna {
    const NAME: &'static str = "pna";
    const TITLE: &'static str = "Principal neighbourhood aggregation (Corso et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const EDGE_WEIGHTS: Result<(), &'static str> = WEIGHTS_ARE_FEATURES;
    const OPTIONS: &'static [LayerOption<Self>] = &[LayerOption {
        name: "log-degree",
        value: "X",
        help: "the mean of ln (1 + degree), by which scalers divide [default: that of the graph]",
        set: |pna, text| store(&mut pna.log_degree, positive(text).map(Some)),
        ..LayerOption::NONE
    }];

    fn norm(&self) -> Norm {
        Norm::Right
    }

    reads_edge_rows!();

    fn read_log_degree(&mut self, mean: &dyn Fn() -> f32) {
        if self.log_degree.is_none() {
            // A graph without edges has no mean to divide by.
            self.log_degree = Some(mean()).filter(|mean| *mean > 0.0);
        }
    }

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        let mean = self.log_degree.unwrap_or(1.0);
        if !(mean > 0.0 && mean.is_finite()) {
            return Err(format!(
                "a mean of {mean} of ln (1 + degree) should be above 0"
            ));
        }
        check_edge_features(self.edge_features)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        Box::new(PnaLayer {
            edges: reads.edges,
            outputs: model.layer(number).1,
            options: self.clone(),
        })
    }
}

/// `(h_i ‖ s · a) · W_post · W` over all scalers `s` and aggregations `a` of the messages `h_i · W₀ + h_j · W₁ + f_ij · W₂ + b`.
#[derive(Clone, Debug)]
pub struct PnaLayer {
    /// The adjacency, with the norm `right`.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// Its options.
    pub options: Pna,
}

/// PyG's order of aggregators.
const AGGREGATORS: [Aggregate; 4] = [
    Aggregate::Mean,
    Aggregate::Min,
    Aggregate::Max,
    Aggregate::Std,
];

/// Identity, amplification and attenuation.
const SCALERS: usize = 3;

impl PnaLayer {
    /// Each row of messages: the sum of a map of both ends and of the edge.
    fn messages(&self, g: &mut Builder, x: Value) -> MessageRows {
        let (columns, of_edges) = (g.columns(x), self.options.edge_features);
        let widths = vec![columns; 2 + usize::from(of_edges > 0)];
        let weights = g.weights_of_all("message", &widths, columns);
        let own = g.own_rows(self.edges, x);
        let destination = g.matmul(own, weights[0]);
        let bias = g.bias("message.bias", columns);
        let destination = g.add_bias(destination, bias);
        let edge = weights.get(2).map(|weight| {
            let features = g.edge_features(self.edges, of_edges);
            let encoded = g.linear_with_bias("edge", columns, features);
            g.matmul(encoded, *weight)
        });
        MessageRows {
            destination: Some(destination),
            source: Some(g.matmul(x, weights[1])),
            edge,
        }
    }

    /// The factors of amplification and attenuation, a column for each of the outputs.
    fn scales(&self, g: &mut Builder) -> [Value; SCALERS - 1] {
        let degrees = g.reciprocal_degrees(self.edges);
        let logarithms = g.nonlinearity(Nonlinearity::LogDegree, degrees);
        let more = g.combine(&[(1.0 / self.options.log_degree.unwrap_or(1.0), logarithms)]);
        let less = g.nonlinearity(Nonlinearity::Reciprocal, more);
        [more, less].map(|column| g.repeat(column, self.outputs))
    }
}

impl Layer for PnaLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let (columns, outputs) = (g.columns(x), self.outputs);
        let rows = self.messages(g, x);
        let aggregations = AGGREGATORS.map(|aggregate| {
            let message = (MessageAct::Identity, rows);
            g.aggregate_messages(self.edges, aggregate, message)
        });
        let widths = vec![columns; 1 + SCALERS * AGGREGATORS.len()];
        let weights = g.weights_of_all("post", &widths, outputs);
        let (itself, weights) = weights.split_at(1);
        let sums: Vec<Value> = weights
            .chunks(AGGREGATORS.len())
            .map(|weights| {
                let pairs = aggregations.iter().zip(weights);
                let products: Vec<Value> =
                    pairs.map(|(of, weight)| g.matmul(*of, *weight)).collect();
                g.sum(&products)
            })
            .collect();
        // A factor of rows comes behind the product, which is narrower than what it is of.
        let scales = self.scales(g);
        let own = g.own_rows(self.edges, x);
        let mut parts = vec![g.matmul(own, itself[0]), sums[0]];
        for (scale, sum) in scales.into_iter().zip(&sums[1..]) {
            parts.push(g.multiply(scale, *sum));
        }
        let post = g.sum(&parts);
        let bias = g.bias("post.bias", outputs);
        let post = g.add_bias(post, bias);
        g.linear("output", outputs, post)
    }
}
