//! The convolution with a weight of its own for each vertex itself (Morris et al., AAAI 2019).

use super::{IN_FLOAT, Layer, LayerKind, ParameterNames, Reads};
use crate::nn::architecture::{Architecture, LayerOption, store};
use crate::nn::{Aggregate, ModelConfig, Norm};
use crate::ops::{MessageAct, MessageReduction};
use crate::program::{Builder, Edges, MessageRows, Value};
use serde::{Deserialize, Serialize};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<GraphConv>(&[
    ParameterNames::linear("self.weight", &["lin_root.weight"], &[]),
    ParameterNames::linear("neighbours.weight", &["lin_rel.weight"], &[]),
    ParameterNames::same("bias", &["lin_rel.bias"], &[]),
]);

/// Options of PyG's `GraphConv`. Edges may have weights where it takes their sum or mean. With the maximum it is GraphSAGE's
/// layer that takes the maximum of the neighbours.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct GraphConv {
    /// What is taken of the neighbours.
    pub aggregate: Aggregate,
}

impl Default for GraphConv {
    fn default() -> Self {
        Self {
            aggregate: Aggregate::Mean,
        }
    }
}

impl Architecture for GraphConv {
    const NAME: &'static str = "graphconv";
    const TITLE: &'static str =
        "Graph convolution with a weight for the vertex itself (Morris et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const OPTIONS: &'static [LayerOption<Self>] = &[LayerOption {
        set: |conv, text| store(&mut conv.aggregate, Ok(Aggregate::of_option(text))),
        ..LayerOption::AGGREGATE_ANY
    }];

    fn tell_graphs(&mut self) {
        self.aggregate = Aggregate::Sum;
    }

    fn norm(&self) -> Norm {
        self.aggregate.norm()
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let (_, outputs) = model.layer(number);
        let reduction = self.aggregate.reduction();
        Box::new(GraphConvLayer {
            edges,
            outputs,
            reduction,
        })
    }
}

/// `H · W_self + A · H · W`, or `H · W_self + reduction(H) · W`. `A` sums neighbours where the edges have no norm, and takes
/// their mean where they have the norm `right`. The mean of weighted edges is divided by the sum of the weights.
#[derive(Clone, Copy, Debug)]
pub struct GraphConvLayer {
    /// The adjacency.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// What is made of the neighbours in place of a sum.
    pub reduction: Option<MessageReduction>,
}

impl Layer for GraphConvLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let shape = (g.columns(x), self.outputs);
        let itself = g.weight("self.weight", shape);
        let neighbours = g.weight("neighbours.weight", shape);
        let sum = match self.reduction {
            None => {
                let product = g.matmul(x, neighbours);
                g.aggregate(self.edges, product)
            }
            Some(reduction) => {
                let rows = MessageRows {
                    source: Some(x),
                    ..MessageRows::default()
                };
                let message = (MessageAct::Identity, rows);
                let reduced = g.reduce_messages(self.edges, reduction, message);
                g.matmul(reduced, neighbours)
            }
        };
        let own = g.own_rows(self.edges, x);
        let own = g.matmul(own, itself);
        g.add(sum, own)
    }
}
