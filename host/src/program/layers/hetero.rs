//! A layer of one kind for each type of edges, summed: PyG's `HeteroConv`.

use super::types::{OfTypes, TypeReads, TypedLayer, value_of};
use super::{
    GatV2, GraphConvLayer, IN_FLOAT, Layer, LayerKind, ParameterNames, Reads, Sage, Transformer,
    TransformerLayer,
};
use crate::nn::architecture::{Architecture, LayerOption, number, store};
use crate::nn::{self, ModelConfig, Norm};
use crate::ops::MOST_HEADS;
use crate::program::{Builder, Edges, Value};
use serde::{Deserialize, Serialize};

/// Its names: in front of them is the type of edges, where there are several.
pub(super) const KIND: LayerKind = LayerKind::of::<Hetero>(&[
    ParameterNames::linear("*self.weight", &["lin_r.weight"], &[]),
    ParameterNames::linear("*neighbours.weight", &["lin_l.weight"], &[]),
    ParameterNames::same("bias", &["lin_l.bias"], &[]),
]);

/// What each type of edges has a layer of. Layers that read rows of destinations among those of sources are none of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EdgeLayer {
    /// GraphSAGE's, with the mean of the neighbours.
    #[default]
    Sage,
    /// GATv2's.
    GatV2,
    /// A graph transformer's.
    Transformer,
    /// GraphConv's, with the sum of the neighbours.
    GraphConv,
}

/// A layer for each type of edges: two layers of 64 with dropout 0.5.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hetero {
    /// Which layer.
    pub layer: EdgeLayer,
    /// Heads of a layer that attends.
    pub heads: usize,
}

impl Default for Hetero {
    fn default() -> Self {
        Self {
            layer: EdgeLayer::default(),
            heads: 1,
        }
    }
}

impl Architecture for Hetero {
    const NAME: &'static str = "hetero";
    const TITLE: &'static str = "A layer for each type of edges, summed (HeteroConv of PyG)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const EDGE_WEIGHTS: Result<(), &'static str> =
        Err("layers of several types of edges read no weights here");
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            name: "layer",
            value: "LAYER",
            choices: &[
                ("sage", "GraphSAGE's, with the mean of the neighbours"),
                ("gatv2", "GATv2's, without self-loops between two types"),
                ("transformer", "A graph transformer's"),
                ("graphconv", "GraphConv's, with the sum of the neighbours"),
            ],
            help: "what each type of edges has a layer of [default: sage]",
            set: |it, text| {
                it.layer = match text {
                    "gatv2" => EdgeLayer::GatV2,
                    "transformer" => EdgeLayer::Transformer,
                    "graphconv" => EdgeLayer::GraphConv,
                    _ => EdgeLayer::Sage,
                };
                Ok(())
            },
        },
        LayerOption {
            name: "heads",
            value: "N",
            help: "number of heads, of gatv2 and transformer [default: 1]",
            set: |it, text| store(&mut it.heads, number(text, 1..=MOST_HEADS)),
            ..LayerOption::NONE
        },
    ];

    fn shape(&self, model: &mut ModelConfig) {
        model.hidden = model.hidden.next_multiple_of(self.heads.max(1));
    }

    fn norm(&self) -> Norm {
        match self.layer {
            EdgeLayer::Sage => Norm::Right,
            EdgeLayer::GatV2 | EdgeLayer::Transformer | EdgeLayer::GraphConv => Norm::None,
        }
    }

    fn wants_self_loops(&self) -> bool {
        self.layer == EdgeLayer::GatV2
    }

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        match self.layer {
            EdgeLayer::GatV2 => self.gatv2().check(model),
            EdgeLayer::Transformer => self.transformer().check(model),
            EdgeLayer::Sage | EdgeLayer::GraphConv if self.heads > 1 => Err(format!(
                "{} heads of a layer that does not attend; take another layer, or leave heads out",
                self.heads
            )),
            EdgeLayer::Sage | EdgeLayer::GraphConv => Ok(()),
        }
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        self.layer_over(model, number, reads.edges)
    }

    const KNOWS_TYPES: bool = true;

    fn formula_of_types(
        &self,
        model: &ModelConfig,
        number: usize,
        reads: TypeReads,
    ) -> Option<Box<dyn TypedLayer>> {
        let of = |relation: &super::Relation| self.layer_over(model, number, relation.edges);
        Some(Box::new(HeteroLayer {
            layers: reads.relations.iter().map(of).collect(),
            reads,
            outputs: model.layer(number).1,
        }))
    }
}

impl Hetero {
    fn gatv2(&self) -> nn::GatV2 {
        nn::GatV2 {
            heads: self.heads,
            ..nn::GatV2::default()
        }
    }

    fn transformer(&self) -> Transformer {
        Transformer {
            heads: self.heads,
            ..Transformer::default()
        }
    }

    fn layer_over(&self, model: &ModelConfig, number: usize, edges: Edges) -> Box<dyn Layer> {
        let (outputs, averaged) = (model.layer(number).1, model.is_last(number));
        match self.layer {
            EdgeLayer::Sage => Box::new(Sage { edges, outputs }),
            EdgeLayer::GraphConv => Box::new(GraphConvLayer {
                edges,
                outputs,
                reduction: None,
            }),
            EdgeLayer::GatV2 => Box::new(GatV2 {
                edges,
                outputs,
                averaged,
                options: self.gatv2(),
            }),
            EdgeLayer::Transformer => Box::new(TransformerLayer {
                edges,
                outputs,
                averaged,
                options: self.transformer(),
            }),
        }
    }
}

/// `Σ_r layer_r(H_s, H_t)` for each type `t` of vertices, over the relations `r` that lead to it. A type that none leads to has a linear map.
#[derive(Debug)]
pub struct HeteroLayer {
    /// The types of vertices and edges.
    pub reads: TypeReads,
    /// A layer for each of these types of edges, which reads own rows by [`Builder::own_rows`] of its input alone.
    pub layers: Vec<Box<dyn Layer>>,
    /// Columns of the output.
    pub outputs: usize,
}

impl TypedLayer for HeteroLayer {
    fn build(&self, g: &mut Builder, sources: &OfTypes, own: &OfTypes) -> Vec<Option<Value>> {
        let mut terms = vec![Vec::new(); own.len()];
        for (relation, layer) in self.reads.relations.iter().zip(&self.layers) {
            let x = value_of(g, sources, relation.source);
            let itself = value_of(g, own, relation.destination);
            let y = g.scope(&relation.name, |g| {
                g.with_own_rows(relation.edges, itself, |g| layer.build(g, x))
            });
            terms[relation.destination].push(y);
        }
        let mut y = vec![None; own.len()];
        for of in self.reads.destinations() {
            y[of] = Some(match &terms[of][..] {
                [] => {
                    let x = value_of(g, own, of);
                    g.linear(&self.reads.types[of], self.outputs, x)
                }
                terms => g.sum(terms),
            });
        }
        y
    }
}
