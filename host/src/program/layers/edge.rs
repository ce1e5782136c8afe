//! The edge convolution (Wang et al., ACM Transactions on Graphics 2019).

use super::{IN_FLOAT, Layer, LayerKind, ParameterNames, Reads};
use crate::nn::architecture::{Architecture, LayerOption, store};
use crate::nn::{Aggregate, ModelConfig, Norm};
use crate::ops::MessageAct;
use crate::program::{Builder, Edges, MessageRows, Value};
use serde::{Deserialize, Serialize};

/// Its names. PyG has one map of both side by side. DGL adds a bias of both maps.
pub(super) const KIND: LayerKind = LayerKind::of::<Edge>(&[
    ParameterNames::linear("self.weight", &["nn.0.weight"], &["phi.weight"]),
    ParameterNames::linear("difference.weight", &["nn.0.weight"], &["theta.weight"]),
    ParameterNames::same("bias", &["nn.0.bias"], &["phi.bias"]),
]);

/// Options of DGL's `EdgeConv`, which is PyG's with one linear map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Edge {
    /// What is made of the neighbours.
    pub aggregate: Aggregate,
}

impl Default for Edge {
    fn default() -> Self {
        Self {
            aggregate: Aggregate::Max,
        }
    }
}

impl Architecture for Edge {
    const NAME: &'static str = "edge";
    const TITLE: &'static str = "Edge convolution (Wang et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const EDGE_WEIGHTS: Result<(), &'static str> =
        Err("the differences of its messages have no weights");
    const OPTIONS: &'static [LayerOption<Self>] = &[LayerOption {
        set: |edge, text| store(&mut edge.aggregate, Ok(Aggregate::of_option(text))),
        help: "what is taken of the messages [default: max]",
        ..LayerOption::AGGREGATE_ANY
    }];

    fn norm(&self) -> Norm {
        self.aggregate.norm()
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        Box::new(EdgeConvLayer {
            edges: reads.edges,
            outputs: model.layer(number).1,
            options: self.clone(),
        })
    }
}

/// `y_i = max_j (h_i · W_self + (h_j − h_i) · W_difference)`, or another reduction.
#[derive(Clone, Debug)]
pub struct EdgeConvLayer {
    /// The adjacency, with the norm `right` for a mean and none else.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// Its options.
    pub options: Edge,
}

impl Layer for EdgeConvLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let shape = (g.columns(x), self.outputs);
        let itself = g.weight("self.weight", shape);
        let difference = g.weight("difference.weight", shape);
        let sources = g.matmul(x, difference);
        let own = g.own_rows(self.edges, x);
        let own = g.matmul(own, itself);
        let destinations = g.own_rows(self.edges, sources);
        let destinations = g.combine(&[(1.0, own), (-1.0, destinations)]);
        let rows = MessageRows {
            destination: Some(destinations),
            source: Some(sources),
            edge: None,
        };
        let message = (MessageAct::Identity, rows);
        g.aggregate_messages(self.edges, self.options.aggregate, message)
    }
}
