//! Norms: batch normalisation, and those of a whole graph.

use super::{Coding, RowFactors};
use crate::nn::Statistics;
use crate::program::value::{Edges, Value};

/// Mean and reciprocal deviation of each column, for [`Operator::Normalize`](super::Operator::Normalize): two rows of floats.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct BatchStatistics {
    /// What they are of.
    pub x: Value,
    /// The running mean and variance: a [buffer](crate::program::Origin::Buffer).
    pub running: Value,
    /// What `x` is multiplied by already. The number that is added to the variance is multiplied by its square, so that the
    /// normalised rows do not depend on it.
    pub scale: f32,
    /// What is read and what is carried on.
    pub take: Take,
    /// What an evaluation reads.
    pub evaluate_with: Statistics,
    /// The part of a graph that a rank has: statistics are then those of the rows of all ranks, put together in their order.
    pub of_rank: Option<Edges>,
    /// The layer, which errors of exchanges name.
    pub layer: u32,
}

/// Where statistics come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The rows of the batch, which the running statistics are carried on by.
    Training,
    /// The rows of the batch. The running statistics stay.
    Batch,
    /// The running statistics.
    Running,
}

/// `relu(weight · (x − mean) / deviation + bias)`, the ReLU where it is there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Normalization {
    /// Mean and reciprocal deviation of each column.
    pub statistics: Value,
    /// Scales of the columns.
    pub weight: Value,
    /// Shifts of the columns.
    pub bias: Value,
    /// Whether negative results become zero.
    pub relu: bool,
}

impl Normalization {
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        let all = [&mut self.statistics, &mut self.weight, &mut self.bias];
        all.into_iter().for_each(visit);
    }
}

/// The gradient of a batch normalisation with the statistics of the batch: of its input, its scales and its shifts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct NormalizeGradient {
    /// The normalisation. Its ReLU is undone as well.
    pub norm: Normalization,
    /// What was normalised.
    pub x: Value,
    /// The gradient of the output, in whose place that of the input is written where it is not read again.
    pub d: Value,
    /// A factor of each row of the input's gradient.
    pub rows: Option<RowFactors>,
    /// Whether the last result is quantized values of the first.
    pub coding: Option<Coding>,
    /// The part of a graph that a rank has: means are then those over the rows of all ranks, and gradients of scales and shifts are
    /// terms of sums over the ranks, as those of every parameter.
    pub of_rank: Option<Edges>,
    /// The layer, which errors of exchanges name.
    pub layer: u32,
}

/// A norm of the columns of each graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupNorm {
    /// Each column less its mean, all divided by one number (Zhao and Akoglu, ICLR 2020).
    Pair,
    /// Each column less a learnt multiple of its mean, by its deviation (Cai et al., ICML 2021).
    Graph(GroupScales),
}

/// What a GraphNorm learns: a float of each column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupScales {
    /// Scales.
    pub weight: Value,
    /// Shifts.
    pub bias: Value,
    /// Multiples of the mean.
    pub mean_scale: Value,
}

impl GroupNorm {
    pub(super) fn name(self) -> &'static str {
        match self {
            GroupNorm::Pair => "pair_norm",
            GroupNorm::Graph(_) => "graph_norm",
        }
    }

    pub(super) fn gradient_name(self) -> &'static str {
        match self {
            GroupNorm::Pair => "pair_norm_gradient",
            GroupNorm::Graph(_) => "graph_norm_gradient",
        }
    }

    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        if let GroupNorm::Graph(of) = self {
            let all = [&mut of.weight, &mut of.bias, &mut of.mean_scale];
            all.into_iter().for_each(visit);
        }
    }
}
