//! The convolution of Cluster-GCN (Chiang et al., KDD 2019).

use super::{IN_FLOAT, Layer, LayerKind, ParameterNames, Reads};
use crate::nn::architecture::{Architecture, LayerOption, finite, store};
use crate::nn::{ModelConfig, Norm};
use crate::program::{Builder, Edges, Value};
use serde::{Deserialize, Serialize};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<ClusterGcn>(&[
    ParameterNames::linear("self.weight", &["lin_root.weight"], &[]),
    ParameterNames::linear("neighbours.weight", &["lin_out.weight"], &[]),
    ParameterNames::same("bias", &["lin_out.bias"], &[]),
]);

/// Options of PyG's `ClusterGCNConv`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClusterGcn {
    /// The multiple of the diagonal that is added, the paper's λ.
    pub diag_lambda: f32,
}

impl Architecture for ClusterGcn {
    const NAME: &'static str = "clustergcn";
    const TITLE: &'static str = "Convolution of Cluster-GCN (Chiang et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const EDGE_WEIGHTS: Result<(), &'static str> =
        Err("the convolution of Cluster-GCN is the mean of neighbours and has no weights of edges");
    const OPTIONS: &'static [LayerOption<Self>] = &[LayerOption {
        name: "diag-lambda",
        value: "X",
        help: "the multiple of the adjacency's diagonal that is added [default: 0]",
        set: |cluster, text| store(&mut cluster.diag_lambda, finite(text)),
        ..LayerOption::NONE
    }];

    fn norm(&self) -> Norm {
        Norm::Right
    }

    fn wants_self_loops(&self) -> bool {
        true
    }

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        match self.diag_lambda.is_finite() {
            true => Ok(()),
            false => Err(format!("λ {} should be finite", self.diag_lambda)),
        }
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let (diag_lambda, (_, outputs)) = (self.diag_lambda, model.layer(number));
        Box::new(ClusterGcnLayer {
            edges,
            outputs,
            diag_lambda,
        })
    }
}

/// `(Â + λ · diag(Â)) · H · W + H · W_self` with `Â = D⁻¹ · (A + I)`.
#[derive(Clone, Copy, Debug)]
pub struct ClusterGcnLayer {
    /// The adjacency, with self-loops and the norm `right`.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// λ.
    pub diag_lambda: f32,
}

impl Layer for ClusterGcnLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let shape = (g.columns(x), self.outputs);
        let itself = g.weight("self.weight", shape);
        let neighbours = g.weight("neighbours.weight", shape);
        let product = g.matmul(x, neighbours);
        let mut terms = vec![(1.0, g.aggregate(self.edges, product))];
        if self.diag_lambda != 0.0 {
            let own = g.own_rows(self.edges, product);
            terms.push((self.diag_lambda, g.scale_rows(self.edges, own)));
        }
        let own = g.own_rows(self.edges, x);
        terms.push((1.0, g.matmul(own, itself)));
        g.combine(&terms)
    }
}
