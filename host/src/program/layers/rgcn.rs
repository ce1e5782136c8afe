//! The relational graph convolution (Schlichtkrull et al., ESWC 2018).

use super::types::{OfOneType, OfTypes, TypeReads, TypedLayer, value_of};
use super::{Divisor, IN_FLOAT, Layer, LayerKind, ParameterNames, Reads};
use crate::nn::architecture::{Architecture, LayerOption, number, store};
use crate::nn::{ModelConfig, Norm};
use crate::program::{Builder, Value};
use serde::{Deserialize, Serialize};

/// Its names.
pub(super) const KIND: LayerKind = LayerKind::of::<Rgcn>(&[
    ParameterNames::matrix("root", &["root"], &["loop_weight"]).with_divisor(Divisor::OfRow),
    ParameterNames::stacked("weight.*", &["weight"], &["linear_r.W"]).with_divisor(Divisor::OfRow),
    ParameterNames::stacked("basis.*", &["weight"], &["linear_r.W"]).with_divisor(Divisor::OfRow),
    ParameterNames::numbers("comp.*", &["comp"], &["linear_r.coeff"]),
    ParameterNames::same("bias", &["bias"], &["h_bias"]),
]);

/// Options of PyG's `RGCNConv`: two layers of 64 with dropout 0.5.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Rgcn {
    /// Bases that the weights of all relations are combinations of; 0 for a weight of its own for each relation.
    pub bases: usize,
    /// Blocks along the diagonal of each weight of a hidden layer; 0 for whole weights.
    pub blocks: usize,
}

/// The most bases or blocks of a layer.
const MOST: usize = 1024;

impl Architecture for Rgcn {
    const NAME: &'static str = "rgcn";
    const TITLE: &'static str = "Relational graph convolutional network (Schlichtkrull et al.)";
    const POLICY: Result<(), &'static str> = IN_FLOAT;
    const EDGE_WEIGHTS: Result<(), &'static str> =
        Err("R-GCN takes the mean over the edges of each relation, which have no weights here");
    const OPTIONS: &'static [LayerOption<Self>] = &[
        LayerOption {
            name: "bases",
            value: "N",
            help: "bases that the weights of all relations are combinations of [default: a weight for each relation]",
            set: |it, text| store(&mut it.bases, number(text, 1..=MOST)),
            ..LayerOption::NONE
        },
        LayerOption {
            name: "blocks",
            value: "N",
            help: "blocks along the diagonal of each relation's weight in hidden layers, a divisor of their width [default: whole weights]",
            set: |it, text| store(&mut it.blocks, number(text, 1..=MOST)),
            ..LayerOption::NONE
        },
    ];

    fn norm(&self) -> Norm {
        Norm::Right
    }

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        if self.bases > 0 && self.blocks > 0 {
            return Err("weights of bases are no blocks; leave one of bases and blocks out".into());
        }
        let blocks = self.blocks.max(1);
        let width = |layer| match (layer, &model.types) {
            (0, None) => model.features,
            (0, Some(_)) => model.input_width(),
            (boundary, _) => model.hidden_of(boundary - 1),
        };
        let mut widths = (0..model.layers).map(width);
        match widths.find(|width| model.layers > 1 && !width.is_multiple_of(blocks)) {
            Some(width) => Err(format!(
                "{width} columns are not {blocks} blocks of one size; take a divisor of the features and of the hidden width"
            )),
            None => Ok(()),
        }
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        let edges = reads.edges;
        let layer = self.layer(model, number, TypeReads::of_one_type(edges));
        Box::new(OfOneType { edges, layer })
    }

    const KNOWS_TYPES: bool = true;

    fn formula_of_types(
        &self,
        model: &ModelConfig,
        number: usize,
        reads: TypeReads,
    ) -> Option<Box<dyn TypedLayer>> {
        Some(Box::new(self.layer(model, number, reads)))
    }
}

impl Rgcn {
    fn layer(&self, model: &ModelConfig, number: usize, reads: TypeReads) -> RgcnLayer {
        RgcnLayer {
            reads,
            decomposition: match (self.bases, self.blocks) {
                (0, 0) => Decomposition::None,
                (0, _) if model.is_last(number) => Decomposition::None,
                (0, blocks) => Decomposition::BlockDiagonal(blocks),
                (bases, _) => Decomposition::Basis(bases),
            },
            outputs: model.layer(number).1,
        }
    }
}

/// What the weights of the relations share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decomposition {
    /// Nothing: each relation has a weight of its own.
    None,
    /// Bases: `W_r = Σ_b a_rb · V_b`, with a number `a_rb` for each relation and basis.
    Basis(usize),
    /// Blocks along the diagonal of each weight.
    BlockDiagonal(usize),
}

/// `H_t · W_self + Σ_r A_r · H_s · W_r` for each type `t` of vertices, over the relations `r` that lead to it.
///
/// It has PyG's `RGCNConv` for values that are cut by type: the same mean over each relation, decompositions and self-connection,
/// whose weight all types share. Bias and activation are the network's.
#[derive(Clone, Debug)]
pub struct RgcnLayer {
    /// The types of vertices and edges. Edges have the norm `right` for the mean over the neighbours of a relation.
    pub reads: TypeReads,
    /// What the weights of the relations share.
    pub decomposition: Decomposition,
    /// Columns of the output.
    pub outputs: usize,
}

impl TypedLayer for RgcnLayer {
    /// All values have the same columns.
    fn build(&self, g: &mut Builder, sources: &OfTypes, own: &OfTypes) -> Vec<Option<Value>> {
        let columns = sources.iter().flatten().next().map(|x| g.columns(*x));
        let shape = (columns.unwrap_or(0), self.outputs);
        let relations = &self.reads.relations;
        let mut messages = Vec::with_capacity(relations.len());
        match self.decomposition {
            Decomposition::None | Decomposition::BlockDiagonal(_) => {
                for relation in relations {
                    let name = format!("weight.{}", relation.name);
                    let weight = match self.decomposition {
                        Decomposition::BlockDiagonal(blocks) => {
                            g.block_diagonal(&name, shape, blocks)
                        }
                        _ => g.weight(&name, shape),
                    };
                    let x = value_of(g, sources, relation.source);
                    messages.push(g.matmul(x, weight));
                }
            }
            Decomposition::Basis(bases) => messages = self.with_bases(g, sources, shape, bases),
        }
        let root = g.weight("root", shape);
        let mut y = vec![None; own.len()];
        for of in self.reads.destinations() {
            let itself = value_of(g, own, of);
            let mut terms = vec![g.matmul(itself, root)];
            let messages = relations.iter().zip(&messages);
            for (relation, message) in messages.filter(|(it, _)| it.destination == of) {
                terms.push(g.aggregate(relation.edges, *message));
            }
            y[of] = Some(g.sum(&terms));
        }
        y
    }
}

impl RgcnLayer {
    /// `Σ_b a_rb · (H · V_b)`: a product for each type of vertices and basis, which relations share, and none for a relation.
    fn with_bases(
        &self,
        g: &mut Builder,
        x: &OfTypes,
        shape: (usize, usize),
        bases: usize,
    ) -> Vec<Value> {
        let weights: Vec<Value> = (0..bases)
            .map(|it| g.weight(&format!("basis.{it}"), shape))
            .collect();
        let relations = &self.reads.relations;
        let mut products = vec![Vec::new(); x.len()];
        for (of, products) in products.iter_mut().enumerate() {
            if relations.iter().any(|relation| relation.source == of) {
                let x = value_of(g, x, of);
                products.extend(weights.iter().map(|weight| g.matmul(x, *weight)));
            }
        }
        let message = |relation: &super::Relation| {
            let terms = products[relation.source].iter().enumerate();
            let terms: Vec<Value> = terms
                .map(|(basis, product)| {
                    let name = format!("comp.{}.{basis}", relation.name);
                    let share = g.scalar(&name, 1.0 / bases as f32);
                    g.scale(*product, share)
                })
                .collect();
            g.sum(&terms)
        };
        relations.iter().map(message).collect()
    }
}
