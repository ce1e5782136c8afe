//! The convolution by local extrema (Ranjan, Sanyal and Talukdar, AAAI 2020).

use super::{IN_FLOAT, Layer, LayerKind, ParameterNames, Reads};
use crate::nn::architecture::Architecture;
use crate::nn::{ModelConfig, Norm};
use crate::program::{Builder, Edges, Value};
use serde::{Deserialize, Serialize};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<Le>(&[
    ParameterNames::linear("source.weight", &["lin1.weight"], &[]),
    ParameterNames::same("source.bias", &["lin1.bias"], &[]),
    ParameterNames::linear("destination.weight", &["lin2.weight"], &[]),
    ParameterNames::linear("self.weight", &["lin3.weight"], &[]),
    ParameterNames::same("bias", &["lin3.bias"], &[]),
]);

/// PyG's `LEConv`. Edges may have weights.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Le;

impl Architecture for Le {
    const NAME: &'static str = "leconv";
    const TITLE: &'static str = "Convolution by local extrema (Ranjan et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;

    fn norm(&self) -> Norm {
        Norm::None
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let (_, outputs) = model.layer(number);
        Box::new(LeLayer { edges, outputs })
    }
}

/// `y_i = h_i · W_self + Σ_j e(i,j) · (h_j · W_s + b_s − h_i · W_d)`, where `e` are the weights of the edges.
///
/// The sum over the edges is `A · (H · W_s + b_s) − D · (H · W_d)`, with the degrees `D`.
#[derive(Clone, Copy, Debug)]
pub struct LeLayer {
    /// The adjacency, without a norm.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
}

impl Layer for LeLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let (edges, shape) = (self.edges, (g.columns(x), self.outputs));
        let source = g.weight("source.weight", shape);
        let bias = g.bias("source.bias", self.outputs);
        let destination = g.weight("destination.weight", shape);
        let itself = g.weight("self.weight", shape);
        let a = g.matmul(x, source);
        let a = g.add_bias(a, bias);
        let sum = g.aggregate(edges, a);
        let own = g.own_rows(edges, x);
        let b = g.matmul(own, destination);
        let degrees = g.degrees(edges);
        let degrees = g.repeat(degrees, self.outputs);
        let times = g.multiply(degrees, b);
        let own = g.matmul(own, itself);
        g.combine(&[(1.0, sum), (-1.0, times), (1.0, own)])
    }
}
