//! The operators of a program: what each reads, writes and may overwrite.
//!
//! An operator names its operands in its own fields, so that a pass says `bias: Some(b)` and counts no positions. What an
//! operator does besides its own formula (a bias, a ReLU, row factors) is a field too: [`fuse`](super::passes::fuse) fills
//! those in. The shape rule of each is in `shape`, its gradient in `gradient.rs`, its kernels in `run/execute`.

mod activation;
mod attention;
mod binary;
mod messages;
mod norm;
mod own;
mod product;

use super::value::{Edges, Value};
use crate::ops::Nonlinearity;

pub use activation::{Activate, ActivateGradient, Dropout};
pub use attention::{
    AdditiveAttention, AdditiveGradient, Attention, AttentionGradient, DotAttention,
    DotAttentionGradient, EdgeTerms,
};
pub use binary::{AggregateSigns, AggregateSignsMatmul, BinaryMatmul};
pub use messages::{
    MessageGradient, MessageRows, MessageSums, ReduceMessages, ReduceMessagesGradient,
};
pub use norm::{BatchStatistics, GroupNorm, GroupScales, Normalization, NormalizeGradient, Take};
pub use own::{Own, OwnCall, OwnOperands, OwnOperator};
pub use product::{
    Addend, Aggregate, Coding, Direction, End, Matmul, RankPart, ReadFactors, RowFactors,
};

/// An operator with its operands. A [`Node`] lists its results.
#[derive(Clone, Debug, PartialEq)]
pub enum Operator {
    /// A dense product.
    Matmul(Matmul),
    /// The attention of GAT.
    Attention(Attention),
    /// Its gradient.
    AttentionGradient(AttentionGradient),
    /// The attention of GATv2.
    AdditiveAttention(AdditiveAttention),
    /// Its gradient.
    AdditiveGradient(AdditiveGradient),
    /// Attention by dot products.
    DotAttention(DotAttention),
    /// Its gradient.
    DotAttentionGradient(DotAttentionGradient),
    /// Sums of messages of both ends of an edge and of the edge.
    MessageSums(MessageSums),
    /// Their gradient.
    MessageGradient(MessageGradient),
    /// Maxima, minima, softmax sums or deviations of such messages.
    ReduceMessages(ReduceMessages),
    /// Their gradient.
    ReduceMessagesGradient(ReduceMessagesGradient),
    /// Terms of scores that features of edges give.
    EdgeTerms(EdgeTerms),
    /// The gradient of weight and vector.
    EdgeTermsGradient {
        /// The forward pass, along the edges.
        of: EdgeTerms,
        /// Its second result.
        zeros: Value,
        /// The gradient of its first result.
        d: Value,
    },
    /// The mean of the heads of each row.
    HeadMean {
        /// Heads of `x`.
        heads: usize,
        /// Columns of the mean.
        columns: usize,
        /// The rows.
        x: Value,
    },
    /// Its gradient.
    HeadMeanGradient {
        /// Heads of the result.
        heads: usize,
        /// The gradient of the mean.
        d: Value,
    },
    /// Mean and reciprocal deviation of each column.
    BatchStatistics(BatchStatistics),
    /// Batch normalisation with statistics that are there.
    Normalize {
        /// Statistics, scales and shifts.
        norm: Normalization,
        /// What is normalised.
        x: Value,
    },
    /// The gradient of batch normalisation and of its statistics.
    NormalizeGradient(NormalizeGradient),
    /// Layer normalisation: each row by its own mean and deviation, which are the second result.
    NormalizeRows {
        /// What is normalised.
        x: Value,
        /// Scales of the columns.
        weight: Value,
        /// Shifts of the columns.
        bias: Value,
    },
    /// The gradient of layer normalisation: of its input, its scales and its shifts.
    NormalizeRowsGradient {
        /// What was normalised.
        x: Value,
        /// Scales of the columns.
        weight: Value,
        /// Mean and reciprocal deviation of each row.
        statistics: Value,
        /// The gradient of the output.
        d: Value,
    },
    /// PairNorm or GraphNorm of each graph. The second result is its statistics.
    NormalizeGroups {
        /// Which of them.
        norm: GroupNorm,
        /// The adjacency that pools, from vertices to graphs; none where all rows are one graph.
        groups: Option<Edges>,
        /// What is normalised.
        x: Value,
    },
    /// Its gradient: of its input and, of GraphNorm, of scales, shifts and multiples of the mean.
    NormalizeGroupsGradient {
        /// Which of them.
        norm: GroupNorm,
        /// The adjacency that pools, if any.
        groups: Option<Edges>,
        /// What was normalised.
        x: Value,
        /// The statistics of the forward pass.
        statistics: Value,
        /// The gradient of the output.
        d: Value,
    },
    /// Quantized values of a matrix.
    Quantize {
        /// The matrix.
        x: Value,
        /// How.
        coding: Coding,
    },
    /// Quantized values of a matrix for the backward pass, with a scale for each column from the matrix itself. What is positive stays so.
    Store {
        /// The matrix.
        x: Value,
    },
    /// The numbers of quantized values.
    Dequantize {
        /// The quantized values.
        x: Value,
    },
    /// A weighted sum over the edges of each row.
    Aggregate(Aggregate),
    /// Bias, ReLU and dropout.
    Activate(Activate),
    /// The gradient of ReLU and dropout, and a factor of each row.
    ActivateGradient(ActivateGradient),
    /// An activation function other than a ReLU.
    Nonlinearity {
        /// The function.
        function: Nonlinearity,
        /// What it is of.
        x: Value,
    },
    /// Its gradient.
    NonlinearityGradient {
        /// The function.
        function: Nonlinearity,
        /// Its output, or its input where the gradient [reads that](Nonlinearity::wants_input).
        of: Value,
        /// The gradient of its output.
        d: Value,
    },
    /// A sum of multiples: `Σ factor · value`.
    Combine {
        /// The multiples, at least one.
        terms: Vec<(f32, Value)>,
    },
    /// `x ⊙ y`: the product element by element.
    Multiply {
        /// One matrix.
        x: Value,
        /// The other, which may be the same.
        y: Value,
    },
    /// `factor · x` with a factor that is learnt, or `(1 + factor) · x`.
    Scale {
        /// The matrix.
        x: Value,
        /// A float of one row and one column.
        factor: Value,
        /// Whether 1 is added to the factor.
        plus_one: bool,
    },
    /// `alpha · Σ x · y` over all elements: the gradient of a factor.
    Dot {
        /// Factor of the sum.
        alpha: f32,
        /// One matrix.
        x: Value,
        /// The other, of the same shape.
        y: Value,
    },
    /// The largest of each element of several matrices.
    Maximum {
        /// The matrices, at least one.
        terms: Vec<Value>,
    },
    /// Its gradient: of each matrix, behind what is left of `d`. Where several elements are largest, it is that of the first.
    MaximumGradient {
        /// The matrices.
        terms: Vec<Value>,
        /// Their maximum.
        y: Value,
        /// The gradient of that.
        d: Value,
    },
    /// The largest of each column of the rows of each group: of the vertices of each graph.
    GroupMaximum {
        /// The adjacency that pools, from vertices to graphs.
        edges: Edges,
        /// A row for each vertex.
        x: Value,
    },
    /// Its gradient, which is that of the first of the largest.
    GroupMaximumGradient {
        /// The adjacency that pools.
        edges: Edges,
        /// A row for each vertex.
        x: Value,
        /// A row for each graph: the largest.
        y: Value,
        /// The gradient of that.
        d: Value,
    },
    /// Sums of columns in float: the gradient of a bias.
    ColumnSums {
        /// What is summed.
        x: Value,
    },
    /// The rows of the destinations, of a matrix with a row for each source.
    OwnRows {
        /// The adjacency.
        edges: Edges,
        /// A row for each source.
        x: Value,
    },
    /// Its gradient: zero in all other rows.
    OwnRowsGradient {
        /// The adjacency.
        edges: Edges,
        /// A row for each destination.
        d: Value,
    },
    /// The rows of all sources of a rank's part: its own, and behind them those that other ranks send.
    Extend {
        /// The adjacency of the part.
        edges: Edges,
        /// The layer that reads them, which errors name.
        layer: u32,
        /// The own rows: those of the destinations.
        x: Value,
    },
    /// Its gradient: that of the own rows, with what other ranks have of theirs added.
    Fold {
        /// The adjacency of the part.
        edges: Edges,
        /// The layer.
        layer: u32,
        /// A row for each source.
        d: Value,
    },
    /// Dropout of a rank's rows by the vertices of the whole graph that they are of, so that it drops what one rank would drop.
    DropRows {
        /// The adjacency of the part.
        edges: Edges,
        /// The dropout.
        drop: Dropout,
        /// A row for each destination or source.
        x: Value,
    },
    /// Features normalized by mean and deviation of each column over all vertices, without scale and shift. They have no gradient.
    Standardize {
        /// The features.
        x: Value,
        /// Whether statistics are always those of `x`. In training they are those of the features that the network has seen, if it has.
        evaluates: bool,
    },
    /// The sign of each element, with +1 for zero; and the mean magnitude of each row, which counts as a constant. The gradient passes
    /// through a sign where its operand is in [−1, 1].
    Binarize {
        /// The matrix.
        x: Value,
    },
    /// Signs of a weight times the mean magnitude of each row; the magnitudes; the signs.
    BinarizeWeight {
        /// The weight, outputs × inputs.
        weight: Value,
    },
    /// Its gradient: through the signs and through the magnitudes.
    BinarizeWeightGradient {
        /// The weight.
        weight: Value,
        /// The mean magnitude of each of its rows.
        magnitudes: Value,
        /// The gradient of the signs times the magnitudes.
        d: Value,
    },
    /// Rows times numbers that count as constants.
    ScaleRows {
        /// The rows.
        x: Value,
        /// A number for each row.
        factors: Value,
    },
    /// The sign of each element of `sums`, of which `of` is a multiple of each row with rounding. The gradient passes where `of` is in
    /// [−1, 1].
    SignOf {
        /// What has the sign.
        sums: Value,
        /// What the gradient is of.
        of: Value,
    },
    /// Signs as bits.
    Pack {
        /// The matrix.
        x: Value,
        /// Whether it is [standardized](Operator::Standardize) first.
        standardized: bool,
    },
    /// The signs of a product of bits, as bits.
    BinarySigns {
        /// Bits, a row for each row of the result.
        a: Value,
        /// Bits, a row for each column of the result.
        b: Value,
    },
    /// A product of bits.
    BinaryMatmul(BinaryMatmul),
    /// A sum of bits over edges.
    AggregateSigns(AggregateSigns),
    /// A sum of bits over edges and a product behind it.
    AggregateSignsMatmul(AggregateSignsMatmul),
    /// An operator of the caller's own.
    Own(Own),
}

/// An operator and what it writes.
#[derive(Clone, Debug, PartialEq)]
pub struct Node {
    /// The operator.
    pub operator: Operator,
    /// What it writes: the result first, then what comes with it, such as sums of columns, statistics or gradients of parameters.
    pub results: Vec<Value>,
    /// Memory that it computes in.
    pub scratch: Vec<Value>,
}

impl Node {
    /// The quantized values that it writes, and how.
    pub(super) fn coded(&self) -> Option<(Coding, Value)> {
        Some((self.operator.coding()?, *self.results.last()?))
    }

    /// Memory for the quantized values that it packs for other ranks.
    pub(super) fn packed(&self) -> Option<Value> {
        self.operator.coding()?.exchanged()?;
        self.scratch.last().copied()
    }

    /// What it writes: its results, and behind them what it computes in.
    pub(super) fn written(&self) -> Vec<Value> {
        [&self.results[..], &self.scratch[..]].concat()
    }

    /// The features that it normalizes over all vertices.
    pub(super) fn standardizes(&self) -> Option<Value> {
        match self.operator {
            Operator::Standardize { x, .. }
            | Operator::Pack {
                x,
                standardized: true,
            } => Some(x),
            _ => None,
        }
    }

    /// The quantized values of a forward value that it writes for the backward pass.
    pub(super) fn stored(&self) -> Option<Value> {
        match self.operator {
            Operator::Store { .. } => self.results.first().copied(),
            _ => None,
        }
    }
}

impl Operator {
    /// The name in the text of a program.
    pub fn name(&self) -> &str {
        match self {
            Operator::Own(own) => own.operator.name(),
            Operator::Matmul(_) => "matmul",
            Operator::Attention(_) => "attention",
            Operator::AttentionGradient(_) => "attention_gradient",
            Operator::AdditiveAttention(_) => "additive_attention",
            Operator::AdditiveGradient(_) => "additive_attention_gradient",
            Operator::DotAttention(_) => "dot_attention",
            Operator::DotAttentionGradient(_) => "dot_attention_gradient",
            Operator::MessageSums(_) => "message_sums",
            Operator::MessageGradient(_) => "message_sums_gradient",
            Operator::ReduceMessages(_) => "reduce_messages",
            Operator::ReduceMessagesGradient(_) => "reduce_messages_gradient",
            Operator::EdgeTerms(_) => "edge_terms",
            Operator::EdgeTermsGradient { .. } => "edge_terms_gradient",
            Operator::HeadMean { .. } => "head_mean",
            Operator::HeadMeanGradient { .. } => "head_mean_gradient",
            Operator::BatchStatistics(_) => "batch_statistics",
            Operator::Normalize { .. } => "normalize",
            Operator::NormalizeGradient(_) => "normalize_gradient",
            Operator::NormalizeRows { .. } => "normalize_rows",
            Operator::NormalizeRowsGradient { .. } => "normalize_rows_gradient",
            Operator::NormalizeGroups { norm, .. } => norm.name(),
            Operator::NormalizeGroupsGradient { norm, .. } => norm.gradient_name(),
            Operator::Quantize { .. } => "quantize",
            Operator::Store { .. } => "store",
            Operator::Dequantize { .. } => "dequantize",
            Operator::Aggregate(_) => "aggregate",
            Operator::Activate(_) => "activate",
            Operator::ActivateGradient(_) => "activate_gradient",
            Operator::Nonlinearity { .. } => "nonlinearity",
            Operator::NonlinearityGradient { .. } => "nonlinearity_gradient",
            Operator::Combine { .. } => "combine",
            Operator::Multiply { .. } => "multiply",
            Operator::Scale { .. } => "scale",
            Operator::Dot { .. } => "dot",
            Operator::Maximum { .. } => "maximum",
            Operator::MaximumGradient { .. } => "maximum_gradient",
            Operator::GroupMaximum { .. } => "group_maximum",
            Operator::GroupMaximumGradient { .. } => "group_maximum_gradient",
            Operator::ColumnSums { .. } => "column_sums",
            Operator::OwnRows { .. } => "own_rows",
            Operator::OwnRowsGradient { .. } => "own_rows_gradient",
            Operator::Extend { .. } => "extend",
            Operator::Fold { .. } => "fold",
            Operator::DropRows { .. } => "drop_rows",
            Operator::Standardize { .. } => "standardize",
            Operator::Binarize { .. } => "binarize",
            Operator::BinarizeWeight { .. } => "binarize_weight",
            Operator::BinarizeWeightGradient { .. } => "binarize_weight_gradient",
            Operator::ScaleRows { .. } => "scale_rows",
            Operator::SignOf { .. } => "sign_of",
            Operator::Pack { .. } => "pack",
            Operator::BinarySigns { .. } => "binary_signs",
            Operator::BinaryMatmul(_) => "binary_matmul",
            Operator::AggregateSigns(_) => "aggregate_signs",
            Operator::AggregateSignsMatmul(_) => "aggregate_signs_matmul",
        }
    }

    /// How it quantizes what it writes.
    pub(super) fn coding(&self) -> Option<Coding> {
        match self {
            Operator::Quantize { coding, .. } => Some(*coding),
            Operator::Matmul(op) => op.coding,
            Operator::NormalizeGradient(op) => op.coding,
            _ => None,
        }
    }

    /// Calls `visit` with each operand. All that reads or renames operands goes through it.
    fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        match self {
            Operator::Matmul(op) => op.visit(visit),
            Operator::Aggregate(op) => op.visit(visit),
            Operator::Activate(op) => {
                visit(&mut op.x);
                op.add.iter_mut().for_each(&mut *visit);
                op.bias.iter_mut().for_each(&mut *visit);
            }
            Operator::ActivateGradient(op) => {
                visit(&mut op.d);
                op.relu.iter_mut().for_each(&mut *visit);
            }
            Operator::Attention(op) => op.visit(visit),
            Operator::AttentionGradient(op) => op.visit(visit),
            Operator::AdditiveAttention(op) => op.visit(visit),
            Operator::AdditiveGradient(op) => op.visit(visit),
            Operator::DotAttention(op) => op.visit(visit),
            Operator::DotAttentionGradient(op) => op.visit(visit),
            Operator::MessageSums(op) => op.visit(visit),
            Operator::MessageGradient(op) => op.visit(visit),
            Operator::ReduceMessages(op) => op.visit(visit),
            Operator::ReduceMessagesGradient(op) => op.visit(visit),
            Operator::EdgeTerms(op) => {
                [&mut op.weight, &mut op.vector].into_iter().for_each(visit);
            }
            Operator::EdgeTermsGradient { of, zeros, d } => {
                let all = [d, zeros, &mut of.weight, &mut of.vector];
                all.into_iter().for_each(visit);
            }
            Operator::BatchStatistics(_)
            | Operator::Normalize { .. }
            | Operator::NormalizeGradient(_)
            | Operator::NormalizeRows { .. }
            | Operator::NormalizeRowsGradient { .. }
            | Operator::NormalizeGroups { .. }
            | Operator::NormalizeGroupsGradient { .. } => self.visit_norm(visit),
            Operator::Maximum { terms } => terms.iter_mut().for_each(visit),
            Operator::MaximumGradient { terms, y, d } => {
                [d, y].into_iter().for_each(&mut *visit);
                terms.iter_mut().for_each(visit);
            }
            Operator::GroupMaximumGradient { x, y, d, .. } => {
                [d, x, y].into_iter().for_each(visit);
            }
            Operator::Combine { terms } => terms.iter_mut().for_each(|(_, value)| visit(value)),
            Operator::Scale { x, factor, .. } => [x, factor].into_iter().for_each(visit),
            Operator::Multiply { x, y } | Operator::Dot { x, y, .. } => {
                [x, y].into_iter().for_each(visit)
            }
            Operator::NonlinearityGradient { of, d, .. } => [of, d].into_iter().for_each(visit),
            Operator::BinarizeWeightGradient { .. }
            | Operator::ScaleRows { .. }
            | Operator::SignOf { .. }
            | Operator::BinarySigns { .. } => self.visit_binary(visit),
            Operator::BinaryMatmul(op) => op.visit(visit),
            Operator::AggregateSigns(op) => visit(&mut op.signs),
            Operator::Own(own) => own.operands.iter_mut().for_each(visit),
            Operator::AggregateSignsMatmul(op) => {
                [&mut op.signs, &mut op.weight]
                    .into_iter()
                    .for_each(&mut *visit);
                op.bias.iter_mut().for_each(visit);
            }
            Operator::Nonlinearity { x, .. }
            | Operator::Standardize { x, .. }
            | Operator::Binarize { x }
            | Operator::BinarizeWeight { weight: x }
            | Operator::Pack { x, .. }
            | Operator::Quantize { x, .. }
            | Operator::Store { x }
            | Operator::Dequantize { x }
            | Operator::ColumnSums { x }
            | Operator::OwnRows { x, .. }
            | Operator::OwnRowsGradient { d: x, .. }
            | Operator::Extend { x, .. }
            | Operator::Fold { d: x, .. }
            | Operator::DropRows { x, .. }
            | Operator::GroupMaximum { x, .. }
            | Operator::HeadMean { x, .. }
            | Operator::HeadMeanGradient { d: x, .. } => visit(x),
        }
    }

    /// The same of networks of one bit.
    fn visit_binary(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        match self {
            Operator::BinarizeWeightGradient {
                weight,
                magnitudes,
                d,
            } => [d, weight, magnitudes].into_iter().for_each(visit),
            Operator::ScaleRows { x, factors } => [x, factors].into_iter().for_each(visit),
            Operator::SignOf { sums, of } => [sums, of].into_iter().for_each(visit),
            Operator::BinarySigns { a, b } => [a, b].into_iter().for_each(visit),
            _ => {}
        }
    }

    /// The same of norms.
    fn visit_norm(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        match self {
            Operator::BatchStatistics(op) => {
                [&mut op.x, &mut op.running].into_iter().for_each(visit)
            }
            Operator::Normalize { norm, x } => {
                visit(x);
                norm.visit(visit);
            }
            Operator::NormalizeGradient(op) => {
                [&mut op.d, &mut op.x].into_iter().for_each(&mut *visit);
                op.norm.visit(visit);
            }
            Operator::NormalizeRows { x, weight, bias } => {
                [x, weight, bias].into_iter().for_each(visit);
            }
            Operator::NormalizeRowsGradient {
                x,
                weight,
                statistics,
                d,
            } => [d, x, weight, statistics].into_iter().for_each(visit),
            Operator::NormalizeGroups { norm, x, .. } => {
                visit(x);
                norm.visit(visit);
            }
            Operator::NormalizeGroupsGradient {
                norm,
                x,
                statistics,
                d,
                ..
            } => {
                [d, x, statistics].into_iter().for_each(&mut *visit);
                norm.visit(visit);
            }
            _ => {}
        }
    }

    /// The operands, in a fixed order; one that is read twice comes twice.
    pub fn operands(&self) -> Vec<Value> {
        let mut operands = Vec::new();
        self.clone().visit(&mut |value| operands.push(*value));
        operands
    }

    /// Reads `to` where it read `from`.
    pub(super) fn rename(&mut self, from: Value, to: Value) {
        self.visit(&mut |value| {
            if *value == from {
                *value = to;
            }
        });
    }

    /// Operands in whose memory it can write its first result, best first. The plan gives it that of one that is not read
    /// again; else it makes a copy.
    pub(super) fn overwrites(&self) -> Vec<Value> {
        match self {
            Operator::Matmul(op) => op.sum.into_iter().collect(),
            Operator::Activate(op) => match op.add {
                Some(add) => vec![add, op.x],
                None => vec![op.x],
            },
            Operator::ActivateGradient(op) => vec![op.d],
            Operator::NonlinearityGradient { d, .. }
            | Operator::MaximumGradient { d, .. }
            | Operator::NormalizeRowsGradient { d, .. }
            | Operator::NormalizeGroupsGradient { d, .. } => vec![*d],
            Operator::NormalizeGradient(op) => vec![op.d],
            Operator::DropRows { x, .. } | Operator::ScaleRows { x, .. } => vec![*x],
            Operator::BinarizeWeightGradient { d, .. } => vec![*d],
            Operator::BinaryMatmul(op) => op.sum.into_iter().collect(),
            Operator::Multiply { x, y } => vec![*x, *y],
            // The last term is the newest. One term alone has no second matrix to be computed from.
            Operator::Combine { terms } if terms.len() > 1 => {
                terms.iter().rev().map(|(_, value)| *value).collect()
            }
            _ => Vec::new(),
        }
    }
}
