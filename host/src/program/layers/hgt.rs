//! The heterogeneous graph transformer (Hu et al., WWW 2020).

use super::types::{DenseOfTypes, OfOneType, OfTypes, TypeReads, TypedLayer, value_of};
use super::{Dense, Layer, LayerKind, LayerSetting, ParameterNames, Reads};
use crate::nn::architecture::{Architecture, LayerOption, number, store};
use crate::nn::{HiddenActivation, HiddenNorm, ModelConfig, Norm};
use crate::ops::{MOST_HEADS, Nonlinearity};
use crate::program::{Builder, Heads, Value};
use serde::{Deserialize, Serialize};

/// Its names. PyG has key, query and value of a type in one map.
pub(super) const KIND: LayerKind = LayerKind::of::<Hgt>(&[
    ParameterNames::linear("query.*.weight", &["kqv_lin"], &["q_linears.weight"]),
    ParameterNames::same("query.*.bias", &["kqv_lin"], &["q_linears.bias"]),
    ParameterNames::linear("key.*.weight", &["kqv_lin"], &["k_linears.weight"]),
    ParameterNames::linear("value.*.weight", &["kqv_lin"], &["v_linears.weight"]),
    ParameterNames::same("value.*.bias", &["kqv_lin"], &["v_linears.bias"]),
    ParameterNames::same("attention.*", &["k_rel.weight"], &["relation_att"]),
    ParameterNames::same("message.*", &["v_rel.weight"], &["relation_msg"]),
    ParameterNames::linear(
        "output.*.weight",
        &["out_lin.weight"],
        &["a_linears.weight"],
    ),
    ParameterNames::same("output.*.bias", &["out_lin.bias"], &["a_linears.bias"]),
    ParameterNames::same("skip.*", &["skip"], &["skip"]),
]);

/// Two layers of 64 with 4 heads and dropout 0.5, and a linear map behind them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Hgt {
    /// Heads of every layer.
    pub heads: usize,
}

impl Default for Hgt {
    fn default() -> Self {
        Self { heads: 4 }
    }
}

impl Architecture for Hgt {
    const NAME: &'static str = "hgt";
    const TITLE: &'static str = "Heterogeneous graph transformer (Hu et al.)";
    const POLICY: Result<(), &'static str> =
        Err("attention by dot products is always summed up in float");
    const EDGE_WEIGHTS: Result<(), &'static str> =
        Err("the scores of a heterogeneous graph transformer have no term for weights of edges");
    const OPTIONS: &'static [LayerOption<Self>] = &[LayerOption {
        name: "heads",
        value: "N",
        help: "number of heads, a divisor of the hidden width [default: 4]",
        set: |it, text| store(&mut it.heads, number(text, 1..=MOST_HEADS)),
        ..LayerOption::NONE
    }];

    fn shape(&self, model: &mut ModelConfig) {
        model.hidden = model.hidden.next_multiple_of(self.heads.max(1));
        model.activation = HiddenActivation::Gelu;
    }

    fn norm(&self) -> Norm {
        Norm::None
    }

    fn check(&self, model: &ModelConfig) -> Result<(), String> {
        if self.heads == 0 || self.heads > MOST_HEADS || !model.hidden.is_multiple_of(self.heads) {
            return Err(format!(
                "{} heads of {} hidden columns; take 1 to {MOST_HEADS} heads, and a multiple of them as hidden width",
                self.heads, model.hidden
            ));
        }
        let refused = [
            (model.residual, "a residual input of its own"),
            (model.hidden_norm != HiddenNorm::None, "no norm behind them"),
            (!model.hidden_by_layer.is_empty(), "one width for all"),
            (model.jumping.is_some(), "a linear map behind the last"),
        ];
        match refused.into_iter().find(|(is_so, _)| *is_so) {
            Some((_, what)) => Err(format!(
                "the layers of a heterogeneous graph transformer have {what}; leave what is otherwise out"
            )),
            None => Ok(()),
        }
    }

    fn settings(&self, model: &ModelConfig) -> Vec<LayerSetting> {
        let layer = |number| LayerSetting {
            aggregates: true,
            bias: false,
            ..LayerSetting::dense(model.hidden, model.dropout_of(number))
        };
        let last = LayerSetting::dense(model.classes, 0.0);
        (0..model.layers).map(layer).chain([last]).collect()
    }

    fn formula(&self, model: &ModelConfig, number: usize, reads: Reads) -> Box<dyn Layer> {
        if number >= model.layers {
            let outputs = model.classes;
            return Box::new(Dense { outputs });
        }
        let edges = reads.edges;
        let layer = self.layer(model, TypeReads::of_one_type(edges));
        Box::new(OfOneType { edges, layer })
    }

    const KNOWS_TYPES: bool = true;

    fn formula_of_types(
        &self,
        model: &ModelConfig,
        number: usize,
        reads: TypeReads,
    ) -> Option<Box<dyn TypedLayer>> {
        Some(match number >= model.layers {
            true => Box::new(DenseOfTypes {
                reads,
                outputs: model.classes,
            }),
            false => Box::new(self.layer(model, reads)),
        })
    }
}

impl Hgt {
    fn layer(&self, model: &ModelConfig, reads: TypeReads) -> HgtLayer {
        HgtLayer {
            reads,
            heads: self.heads,
            outputs: model.hidden,
            activation: model.activation,
        }
    }
}

/// For each type `t` of vertices the mean, over the relations `r` that lead to it, of attention by dot products of the queries of `t` with keys
/// and values of the other end, which go through a matrix of each head of `r`:
///
/// ```text
/// a_i = 1/R · Σ_r Σ_j α_r(i, j) · v_j · M_r,  α_r(i, ·) = softmax(q_i · k_j · W_r / √D)
/// y_i = σ(s_t) · (act(a_i) · O_t + b_t) + (1 − σ(s_t)) · h_i
/// ```
///
/// The softmax is over the edges of a relation, as in DGL's layer of the authors. The factor of each relation and head that the paper has
/// is in `W_r`. Where the input has another width, `y` has no share of `h`. A type that no edges lead to keeps its rows, or has a linear map of
/// them.
#[derive(Clone, Debug)]
pub struct HgtLayer {
    /// The types of vertices and edges. Edges have no norm.
    pub reads: TypeReads,
    /// Heads.
    pub heads: usize,
    /// Columns of the output.
    pub outputs: usize,
    /// What is done to sums of messages.
    pub activation: HiddenActivation,
}

impl TypedLayer for HgtLayer {
    fn build(&self, g: &mut Builder, sources: &OfTypes, own: &OfTypes) -> Vec<Option<Value>> {
        let heads = g.heads(self.heads, self.outputs, false);
        // A bias of keys would move all scores of a vertex and a relation alike, which a softmax does not see.
        let keys = self.maps(g, ("key", false), sources);
        let values = self.maps(g, ("value", true), sources);
        let mut y = vec![None; own.len()];
        for of in self.reads.destinations() {
            let (h, name) = (value_of(g, own, of), &self.reads.types[of]);
            let relations: Vec<_> = self.reads.leading_to(of).collect();
            if relations.is_empty() {
                y[of] = Some(self.without_edges(g, name, h));
                continue;
            }
            let queries = g.heads_map(&format!("query.{name}"), heads, h);
            let share = 1.0 / relations.len() as f32;
            let mut terms = Vec::with_capacity(relations.len());
            for relation in relations {
                let ends = [("attention", &keys), ("message", &values)];
                let [keys, values] = ends.map(|(matrix, of)| {
                    let x = value_of(g, of, relation.source);
                    self.through(g, &format!("{matrix}.{}", relation.name), heads, x)
                });
                let messages = g.dot_attention(relation.edges, [queries, keys, values], heads, 0.0);
                terms.push((share, g.join_heads(heads, messages)));
            }
            let sum = match terms[..] {
                [(1.0, only)] => only,
                _ => g.combine(&terms),
            };
            let active = g.hidden_activation(self.activation, sum);
            let a = g.linear_with_bias(&format!("output.{name}"), self.outputs, active);
            y[of] = Some(match g.columns(h) == self.outputs {
                true => skipped(g, &format!("skip.{name}"), a, h),
                false => a,
            });
        }
        y
    }
}

impl HgtLayer {
    /// A linear map of each type that edges start at.
    fn maps(
        &self,
        g: &mut Builder,
        (name, has_bias): (&str, bool),
        x: &OfTypes,
    ) -> Vec<Option<Value>> {
        let mut mapped = vec![None; x.len()];
        for (of, mapped) in mapped.iter_mut().enumerate() {
            if self.reads.relations.iter().any(|it| it.source == of) {
                let name = format!("{name}.{}", self.reads.types[of]);
                let x = value_of(g, x, of);
                *mapped = Some(match has_bias {
                    true => g.linear_with_bias(&name, self.outputs, x),
                    false => g.linear(&name, self.outputs, x),
                });
            }
        }
        mapped
    }

    /// Each head times a matrix of the relation, in the columns that attention reads.
    fn through(&self, g: &mut Builder, name: &str, heads: Heads, x: Value) -> Value {
        let matrix = g.block_diagonal(name, (self.outputs, self.outputs), self.heads);
        let y = g.matmul(x, matrix);
        g.spread_heads(heads, y)
    }

    fn without_edges(&self, g: &mut Builder, name: &str, h: Value) -> Value {
        match g.columns(h) == self.outputs {
            true => h,
            false => g.linear_with_bias(&format!("output.{name}"), self.outputs, h),
        }
    }
}

/// `σ(s) · a + (1 − σ(s)) · h` with a number `s` that is learnt, from 1 on.
fn skipped(g: &mut Builder, name: &str, a: Value, h: Value) -> Value {
    let skip = g.scalar(name, 1.0);
    let half = g.combine(&[(0.5, skip)]);
    let share = g.nonlinearity(Nonlinearity::Tanh, half);
    let difference = g.combine(&[(1.0, a), (-1.0, h)]);
    let moved = g.scale(difference, share);
    g.combine(&[(0.5, a), (0.5, h), (0.5, moved)])
}
