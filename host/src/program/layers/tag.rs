//! The topology adaptive graph convolution (Du et al., 2017).

use super::{IN_FLOAT, Layer, LayerKind, MOST_HOPS, ParameterNames, Reads, check_hops};
use crate::nn::architecture::{Architecture, LayerOption, norm, norm_option, number, store};
use crate::nn::{ModelConfig, Norm};
use crate::program::{Builder, Edges, Value};
use serde::{Deserialize, Serialize};

/// Its names. DGL has the weights of all hops in one.
pub(super) const KIND: LayerKind = LayerKind::of::<Tag>(&[
    ParameterNames::linear("hops.*.weight", &["lins.*.weight"], &["lin.weight"]),
    ParameterNames::same("bias", &["bias"], &["lin.bias"]),
]);

/// Options of PyG's `TAGConv`. Edges may have weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Tag {
    /// The degree norm of the edges. PyG's is `in`, which is `both` on graphs whose edges go both ways.
    pub norm: Norm,
    /// The farthest hop, PyG's `K`.
    pub hops: usize,
}

impl Default for Tag {
    fn default() -> Self {
        Self {
            norm: Norm::Both,
            hops: 3,
        }
    }
}

impl Architecture for Tag {
    const NAME: &'static str = "tag";
    const TITLE: &'static str = "Topology adaptive graph convolution (Du et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const OPTIONS: &'static [LayerOption<Self>] = &[
        norm_option(|tag, text| store(&mut tag.norm, norm(text))),
        LayerOption {
            name: "hops",
            value: "N",
            help: "the farthest hop that a layer aggregates [default: 3]",
            set: |tag, text| store(&mut tag.hops, number(text, 0..=MOST_HOPS)),
            ..LayerOption::NONE
        },
    ];

    fn norm(&self) -> Norm {
        self.norm
    }

    fn check(&self, _model: &ModelConfig) -> Result<(), String> {
        check_hops(self.hops, 0)
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let (hops, (_, outputs)) = (self.hops, model.layer(number));
        Box::new(TagLayer {
            edges,
            outputs,
            hops,
        })
    }
}

/// `Σ_k Âᵏ · H · W_k` for `k` from 0 to `K`, with the degree norm of the edges.
#[derive(Clone, Copy, Debug)]
pub struct TagLayer {
    /// The adjacency, without self-loops.
    pub edges: Edges,
    /// Columns of the output.
    pub outputs: usize,
    /// `K`.
    pub hops: usize,
}

impl Layer for TagLayer {
    fn build(&self, g: &mut Builder, x: Value) -> Value {
        let shape = (g.columns(x), self.outputs);
        let weights: Vec<_> = (0..=self.hops)
            .map(|hop| Some(g.weight(&format!("hops.{hop}.weight"), shape)))
            .collect();
        g.polynomial(Tag::NAME, self.edges, x, &weights)
    }
}
