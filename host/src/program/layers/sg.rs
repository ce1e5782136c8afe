//! Simplified graph convolution (Wu et al., ICML 2019).

use super::{IN_FLOAT, Layer, LayerKind, MOST_HOPS, ParameterNames, Reads, check_hops};
use crate::nn::architecture::{Architecture, LayerOption, norm, norm_option, number, store};
use crate::nn::{ModelConfig, Norm};
use crate::program::{Builder, Edges, Value};
use serde::{Deserialize, Serialize};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<Sg>(&[
    ParameterNames::linear("weight", &["lin.weight"], &["fc.weight"]),
    ParameterNames::same("bias", &["lin.bias"], &["fc.bias"]),
]);

/// Options of PyG's `SGConv`. Edges may have weights. The paper's model is one layer of 2 hops without dropout.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Sg {
    /// The degree norm of the edges. PyG's is `in`, which is `both` on graphs whose edges go both ways.
    pub norm: Norm,
    /// Sums over neighbours, PyG's `K`.
    pub hops: usize,
}

impl Default for Sg {
    fn default() -> Self {
        Self {
            norm: Norm::Both,
            hops: 1,
        }
    }
}

impl Architecture for Sg {
    const NAME: &'static str = "sg";
    const TITLE: &'static str = "Simplified graph convolution (Wu et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const OPTIONS: &'static [LayerOption<Self>] = &[
        norm_option(|sg, text| store(&mut sg.norm, norm(text))),
        LayerOption {
            name: "hops",
            value: "N",
            help: "hops that a layer aggregates over [default: 1]",
            set: |sg, text| store(&mut sg.hops, number(text, 1..=MOST_HOPS)),
            ..LayerOption::NONE
        },
    ];

    fn norm(&self) -> Norm {
        self.norm
    }

    fn wants_self_loops(&self) -> bool {
        true
    }

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        check_hops(self.hops, 1)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let (hops, (_, outputs)) = (self.hops, model.layer(number));
        Box::new(SgLayer {
            edges,
            outputs,
            hops,
        })
    }
}

/// `Âᴷ · H · W`, with the degree norm of the edges.
#[derive(Clone, Copy, Debug)]
pub struct SgLayer {
    /// The adjacency, with self-loops.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// `K`.
    pub hops: usize,
}

impl Layer for SgLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let mut weights = vec![None; self.hops];
        weights.push(Some(g.weight("weight", (g.columns(x), self.outputs))));
        g.polynomial(Sg::NAME, self.edges, x, &weights)
    }
}
