//! The crystal graph convolution (Xie and Grossman 2018).

use super::{
    Dense, IN_FLOAT, Layer, LayerKind, LayerSetting, ParameterNames, Reads, WEIGHTS_ARE_FEATURES,
    check_edge_features, is_zero, reads_edge_rows,
};
use crate::nn::architecture::{Architecture, LayerOption, store};
use crate::nn::{Aggregate, ModelConfig, Norm};
use crate::ops::MessageAct;
use crate::program::{Builder, Edges, MessageRows, Value};
use serde::{Deserialize, Serialize};

/// Its names. The rows of a weight are those of the destination, of the source and of the edge.
pub(super) const KIND: LayerKind = LayerKind::of::<Cg>(&[
    ParameterNames::linear("gate.*.weight", &["lin_f.weight"], &[]),
    ParameterNames::same("gate.bias", &["lin_f.bias"], &[]),
    ParameterNames::linear("value.*.weight", &["lin_s.weight"], &[]),
    ParameterNames::same("value.bias", &["lin_s.bias"], &[]),
]);

/// Options of PyG's `CGConv`: three layers of 64. Its layers keep the width of their input, so that a linear map comes before them and
/// one behind them, and [`ModelConfig::layers`] counts the convolutions. Weights of edges count as features.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cg {
    /// What is taken of the messages.
    pub aggregate: Aggregate,
    /// Features of each edge, its weight among them; 0 for none.
    #[serde(skip_serializing_if = "is_zero")]
    pub edge_features: usize,
}

impl Default for Cg {
    fn default() -> Self {
        Self {
            aggregate: Aggregate::Mean,
            edge_features: 0,
        }
    }
}

impl Architecture for Cg {
    const NAME: &'static str = "cg";
    const TITLE: &'static str = "Crystal graph convolutional network (Xie and Grossman)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const EDGE_WEIGHTS: Result<(), &'static str> = WEIGHTS_ARE_FEATURES;
    const OPTIONS: &'static [LayerOption<Self>] = &[LayerOption {
        set: |cg, text| store(&mut cg.aggregate, Ok(Aggregate::of_option(text))),
        ..LayerOption::AGGREGATE
    }];

    fn shape(&self, model: &mut ModelConfig) {
        model.layers = 3;
    }

    fn tell_graphs(&mut self) {
        self.aggregate = Aggregate::Sum;
    }

    fn norm(&self) -> Norm {
        self.aggregate.norm()
    }

    reads_edge_rows!();

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        self.aggregate.expect_sum()?;
        check_edge_features(self.edge_features)?;
        if !model.hidden_by_layer.is_empty() || !model.dropout_by_layer.is_empty() {
            return Err(
                "the layers of a CGConv are of one width and one dropout; give one for all".into(),
            );
        }
        match (model.hidden, model.residual) {
            (0, _) => Err("a layer of width 0 computes nothing; give it at least 1".into()),
            (_, true) => Err("a CGConv has a residual connection of its own".into()),
            _ => Ok(()),
        }
    }

    fn settings(&self, model: &ModelConfig) -> Vec<LayerSetting> {
        let first = LayerSetting {
            is_hidden: true,
            ..LayerSetting::dense(model.hidden, model.dropout)
        };
        let convolution = LayerSetting {
            aggregates: true,
            bias: false,
            is_hidden: true,
            ..LayerSetting::dense(model.hidden, model.dropout)
        };
        let convolutions = std::iter::repeat_n(convolution, model.layers);
        let last = LayerSetting::dense(model.classes, model.dropout);
        std::iter::once(first)
            .chain(convolutions)
            .chain([last])
            .collect()
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        match number {
            0 => Box::new(Dense {
                outputs: model.hidden,
            }),
            last if last > model.layers => Box::new(Dense {
                outputs: model.classes,
            }),
            _ => Box::new(CgLayer {
                edges: reads.edges,
                edge_features: self.edge_features,
            }),
        }
    }
}

/// `y_i = h_i + Σ_j σ(z_ij · W_f + b_f) ⊙ softplus(z_ij · W_s + b_s)`, the sum or the mean, where `z_ij = [h_i ‖ h_j ‖ f_ij]` and `f_ij`
/// are the features of the edge.
#[derive(Clone, Copy, Debug)]
pub struct CgLayer {
    /// The adjacency, with the norm `right` for a mean and none for a sum.
    pub edges: Edges,
    /// Features of each edge; 0 for none.
    pub edge_features: usize,
}

impl Layer for CgLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let width = g.columns(x);
        let own = g.own_rows(self.edges, x);
        let mut widths = vec![width, width];
        widths.extend((self.edge_features > 0).then_some(self.edge_features));
        let factors = ["gate", "value"].map(|name| {
            let weights = g.weights_of_all(name, &widths, width);
            let destination = g.matmul(own, weights[0]);
            let bias = g.bias(&format!("{name}.bias"), width);
            MessageRows {
                destination: Some(g.add_bias(destination, bias)),
                source: Some(g.matmul(x, weights[1])),
                edge: weights.get(2).map(|weight| {
                    let features = g.edge_features(self.edges, self.edge_features);
                    g.matmul(features, *weight)
                }),
            }
        });
        let [gate, value] = factors;
        let factors = [(MessageAct::Sigmoid, gate), (MessageAct::Softplus, value)];
        let sum = g.message_sums(self.edges, factors);
        g.add(sum, own)
    }
}
