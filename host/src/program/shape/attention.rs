//! The shapes of attention, and of what operators compute in.

use super::{Result_, items, numbers};
use crate::error::Error;
use crate::program::list::{Program, refuse};
use crate::program::operator::{
    AdditiveAttention, AdditiveGradient, Attention, AttentionGradient, Direction, DotAttention,
    GroupNorm, Operator,
};
use crate::program::value::{Edges, Format, Rows, Shape, Value, head_distance};
use crate::tensor::padded;
use crate::with_element;
use halfgnn_contract::dot_attention::HEAD_VECTORS_MAX;

impl Program {
    /// What `operator` computes in: memory for its length.
    pub(in crate::program) fn scratch_of(&self, operator: &Operator) -> Vec<Result_> {
        let of = |value: Value| {
            let description = &self.values[value.0];
            (description.shape, description.format)
        };
        let ends = |edges: Edges, heads| {
            let edges = &self.edges[edges.0];
            [edges.destinations, edges.sources].map(|it| numbers(Rows::Of(it), heads))
        };
        match operator {
            Operator::Attention(op) if op.keeps_scores => {
                vec![numbers(Rows::Edges(op.edges), op.heads)]
            }
            Operator::AttentionGradient(AttentionGradient { of: op, .. }) => {
                let [destinations, sources] = ends(op.edges, op.heads);
                let mut scratch = vec![of(op.h), destinations, destinations, sources, sources];
                if op.biases.is_some() {
                    scratch.push(items(Rows::Edges(op.edges), op.heads));
                }
                scratch
            }
            Operator::AdditiveAttention(op) => vec![numbers(Rows::Edges(op.edges), op.heads)],
            Operator::AdditiveGradient(AdditiveGradient { of: op, .. }) => {
                let [inner, _] = ends(op.edges, op.heads);
                let plane = numbers(Rows::Edges(op.edges), op.heads);
                vec![
                    inner,
                    plane,
                    plane,
                    items(Rows::Edges(op.edges), op.heads),
                    of(op.destinations),
                    of(op.sources),
                ]
            }
            Operator::EdgeTerms(op) | Operator::EdgeTermsGradient { of: op, .. } => {
                let rows = Rows::Fixed(padded::<f32>(op.features));
                vec![numbers(rows, op.heads)]
            }
            // What each graph adds to the gradients of scales, shifts and multiples of the mean.
            Operator::NormalizeGroupsGradient {
                norm: GroupNorm::Graph(_),
                groups: Some(edges),
                x,
                ..
            } => {
                let rows = Rows::Of(self.edges[edges.0].destinations);
                let columns = of(*x).0.columns;
                vec![(Shape { rows, columns }, Format::Float); 3]
            }
            operator => {
                let mut scratch = self.scratch_of_ranks(operator);
                scratch.extend(self.scratch_of_binary(operator));
                scratch
            }
        }
    }

    pub(super) fn results_of_attention(&self, op: &Attention) -> Result<Vec<Result_>, Error> {
        let y = self.along((op.edges, Direction::Forward), op.h, "attention")?;
        let vectors = (
            Shape {
                rows: Rows::Fixed(2),
                columns: y.0.columns,
            },
            Format::Element,
        );
        self.expect_same("attention", op.vectors, vectors)?;
        self.expect_heads("attention", op.heads, y.0.columns)?;
        if let Some(codes) = op.codes {
            let h = self.values[op.h.0].shape;
            self.expect_same("attention", codes, (h, Format::Codes))?;
        }
        if let Some(biases) = op.biases {
            let plane = numbers(Rows::Edges(op.edges), op.heads);
            self.expect_same("attention", biases, plane)?;
        }
        Ok(match op.trains {
            true => vec![y, y],
            false => vec![y],
        })
    }

    pub(super) fn result_of_additive(&self, op: &AdditiveAttention) -> Result<Result_, Error> {
        let name = "additive_attention";
        let y = self.along((op.edges, Direction::Forward), op.sources, name)?;
        self.expect_same(name, op.destinations, y)?;
        let vector = (
            Shape {
                rows: Rows::Fixed(1),
                columns: y.0.columns,
            },
            Format::Element,
        );
        self.expect_same(name, op.vector, vector)?;
        self.expect_heads(name, op.heads, y.0.columns)?;
        Ok(y)
    }

    pub(super) fn result_of_dot(&self, op: &DotAttention) -> Result<Result_, Error> {
        let name = "dot_attention";
        let y = self.along((op.edges, Direction::Forward), op.keys, name)?;
        self.expect_same(name, op.queries, y)?;
        let keys = self.values[op.keys.0].shape;
        self.expect_same(name, op.values, (keys, Format::Element))?;
        self.expect_heads(name, op.heads, keys.columns)?;
        let head = keys.columns / op.heads;
        if head != head_distance(self.precision, op.heads, head) {
            return refuse(format!(
                "{name}: a head of {head} columns among {} does not fill whole vectors; make it by Builder::heads_weight",
                op.heads
            ));
        }
        let most = with_element!(self.precision, E => HEAD_VECTORS_MAX as usize * padded::<E>(1));
        match head <= most && op.scale.is_finite() {
            true => Ok(y),
            false => refuse(format!(
                "{name}: heads of {head} columns with the factor {}; take at most {most} columns a head, and a finite factor",
                op.scale
            )),
        }
    }

    fn expect_heads(&self, name: &str, heads: usize, columns: usize) -> Result<(), Error> {
        match heads != 0 && columns.is_multiple_of(heads) {
            true => Ok(()),
            false => refuse(format!("{name}: {columns} columns are not {heads} heads")),
        }
    }
}
