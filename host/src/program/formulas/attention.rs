//! Attention with its parameters.

use crate::ops::{MOST_HEADS, SpmmPolicy};
use crate::program::builder::Builder;
use crate::program::operator::{
    AdditiveAttention, Attention, Direction, DotAttention, Dropout, EdgeTerms, Operator,
};
use crate::program::value::{Constant, Edges, Format, HeadValues, Initial, Value, head_distance};
use crate::tensor::padded;

/// Heads of a layer, whose columns are side by side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heads {
    /// How many there are.
    pub count: usize,
    /// Columns of each.
    pub columns: usize,
    /// Whether the output is their mean, and not all of them.
    pub averaged: bool,
}

/// How attention takes its scores.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scores {
    /// Slope of a score below zero.
    pub slope: f32,
    /// Probability of an edge to be dropped in training, in [0, 1).
    pub dropout: f32,
    /// Features of each edge that a score has a term of; 0 for none.
    pub edge_features: usize,
}

impl Builder {
    /// The heads of a layer of `outputs` columns. More than one side by side are as many parts of them.
    pub fn heads(&mut self, count: usize, outputs: usize, averaged: bool) -> Heads {
        let averaged = averaged && count > 1;
        if count == 0 || count > MOST_HEADS || (!averaged && !outputs.is_multiple_of(count)) {
            self.fail(format!(
                "{count} heads of {outputs} columns; take 1 to {MOST_HEADS} heads, and a multiple of them as columns where heads are side by side"
            ));
        }
        let columns = match averaged {
            true => outputs,
            false => outputs / count.max(1),
        };
        Heads {
            count,
            columns,
            averaged,
        }
    }

    /// The weights of a linear map to all heads.
    pub fn heads_weight(&mut self, name: &str, rows: usize, heads: Heads) -> Value {
        let initial = self.head_values((rows, false), heads);
        self.parameter(name, (rows, self.width(heads)), Format::Element, initial)
    }

    /// Vectors of scores: `rows` of them for each head.
    pub fn heads_vectors(&mut self, name: &str, rows: usize, heads: Heads) -> Value {
        let initial = self.head_values((rows, true), heads);
        self.parameter(name, (rows, self.width(heads)), Format::Element, initial)
    }

    /// A bias of zeros for the columns of all heads.
    pub fn heads_bias(&mut self, name: &str, heads: Heads) -> Value {
        self.bias(name, self.width(heads))
    }

    /// A linear map to all heads, with the parameters `NAME.weight` and `NAME.bias`.
    pub fn heads_map(&mut self, name: &str, heads: Heads, x: Value) -> Value {
        let weight = self.heads_weight(&format!("{name}.weight"), self.columns(x), heads);
        let bias = self.heads_bias(&format!("{name}.bias"), heads);
        let product = self.matmul(x, weight);
        self.add_bias(product, bias)
    }

    /// The attention of GAT over `h`, which has the columns of all heads, with a row of `vectors` for destinations and one for sources.
    /// With features of edges it has the parameters `edge.weight` and `edge.attention`.
    pub fn attention(
        &mut self,
        edges: Edges,
        (h, vectors): (Value, Value),
        heads: Heads,
        scores: Scores,
    ) -> Value {
        let biases = match scores.edge_features {
            0 => None,
            features => Some(self.edge_terms(edges, heads, features)),
        };
        let drop = self.edge_dropout(scores.dropout);
        self.push(Operator::Attention(Attention {
            edges,
            heads: heads.count,
            slope: scores.slope,
            h,
            codes: None,
            layer: self.layer_number(),
            vectors,
            biases,
            drop,
            policy: SpmmPolicy::DEFAULT,
            trains: true,
            keeps_scores: false,
        }))
    }

    /// The attention of GATv2, from the rows of `sources` to those of `destinations`.
    pub fn additive_attention(
        &mut self,
        edges: Edges,
        [destinations, sources]: [Value; 2],
        vector: Value,
        heads: Heads,
        scores: Scores,
    ) -> Value {
        if scores.edge_features != 0 {
            return self.fail("the scores of GATv2 have no term for edges, as those of GAT".into());
        }
        let drop = self.edge_dropout(scores.dropout);
        self.push(Operator::AdditiveAttention(AdditiveAttention {
            edges,
            heads: heads.count,
            slope: scores.slope,
            sources,
            destinations,
            vector,
            drop,
            policy: SpmmPolicy::DEFAULT,
        }))
    }

    /// Attention by dot products, from the rows of `keys` and `values` to those of `queries`, with the scores divided by the root of the
    /// columns of a head.
    pub fn dot_attention(
        &mut self,
        edges: Edges,
        [queries, keys, values]: [Value; 3],
        heads: Heads,
        dropout: f32,
    ) -> Value {
        let drop = self.edge_dropout(dropout);
        self.push(Operator::DotAttention(DotAttention {
            edges,
            heads: heads.count,
            scale: (1.0 / (heads.columns as f64).sqrt()) as f32,
            queries,
            keys,
            values,
            drop,
        }))
    }

    /// The output of a layer from the columns of all heads: their mean, or all of them without padding.
    pub fn join_heads(&mut self, heads: Heads, y: Value) -> Value {
        let (count, columns) = (heads.count, heads.columns);
        if heads.averaged {
            return self.push(Operator::HeadMean {
                heads: count,
                columns,
                x: y,
            });
        }
        let distance = head_distance(self.precision(), count, columns);
        if distance == columns {
            return y;
        }
        let packing = self.constant(Constant::Packing {
            heads: count,
            columns,
            distance,
        });
        self.matmul(y, packing)
    }

    /// The columns of all heads with the padding behind each that attention reads, from those without: the reverse of
    /// [`join_heads`](Builder::join_heads).
    pub fn spread_heads(&mut self, heads: Heads, x: Value) -> Value {
        let (count, columns) = (heads.count, heads.columns);
        let distance = head_distance(self.precision(), count, columns);
        if distance == columns {
            return x;
        }
        let packing = self.constant(Constant::Packing {
            heads: count,
            columns,
            distance,
        });
        self.matmul_transposed(x, packing)
    }

    fn edge_terms(&mut self, edges: Edges, heads: Heads, features: usize) -> Value {
        let (rows, width) = (padded::<f32>(features), self.width(heads));
        let initial = self.head_values((features, false), heads);
        let weight = self.parameter("edge.weight", (rows, width), Format::Float, initial);
        let initial = self.head_values((1, true), heads);
        let vector = self.parameter("edge.attention", (2, width), Format::Float, initial);
        self.push(Operator::EdgeTerms(EdgeTerms {
            edges,
            direction: Direction::Forward,
            features,
            heads: heads.count,
            weight,
            vector,
        }))
    }

    fn head_values(&mut self, (rows, are_vectors): (usize, bool), heads: Heads) -> Initial {
        let number = self.number_of_weights();
        // Each vector has a number of its own.
        if are_vectors {
            for _ in 1..rows {
                self.number_of_weights();
            }
        }
        Initial::Heads(HeadValues {
            number,
            heads: heads.count,
            columns: heads.columns,
            rows,
            are_vectors,
        })
    }

    fn width(&self, heads: Heads) -> usize {
        heads.count * head_distance(self.precision(), heads.count, heads.columns)
    }

    /// The dropout of edges: the second of its layer, also where the input has none. Ranks number edges each for itself, and have none.
    fn edge_dropout(&mut self, probability: f32) -> Option<Dropout> {
        if probability > 0.0 && self.rank_part().is_some() {
            self.fail("edges are not dropped by several ranks; leave the attention dropout out, or train with one".into());
        }
        self.skip_input_dropout();
        self.drop_with(probability)
    }
}
