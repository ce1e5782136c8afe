//! The operators of a program: what each reads, writes and may overwrite.
//!
//! An operator names its operands in its own fields, so that a pass says `bias: Some(b)` and counts no positions. What an
//! operator does besides its own formula (a bias, a ReLU, row factors) is a field too: [`fuse`](super::passes::fuse) fills
//! those in. The shape rule of each is in `shape.rs`, its gradient in `gradient.rs`, its kernels in `run/execute.rs`.

mod attention;
mod norm;

use super::value::{Edges, Value};
use crate::ops::{Form, Nonlinearity};

pub use attention::{AdditiveAttention, AdditiveGradient, Attention, AttentionGradient, EdgeTerms};
pub use norm::{BatchStatistics, GroupNorm, GroupScales, Normalization, NormalizeGradient, Take};

/// Which end of the edges a factor of a degree norm belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The vertices that are read along the edges: `C`.
    Sources,
    /// The vertices that are written: `R`.
    Destinations,
}

/// Along the edges, or against them as gradients flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From sources to destinations.
    Forward,
    /// From destinations to sources, by the transposed adjacency.
    Backward,
}

impl Direction {
    /// The other one.
    pub(super) fn reversed(self) -> Self {
        match self {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        }
    }

    /// The end whose rows a sum in this direction reads.
    pub(super) fn read(self) -> End {
        match self {
            Direction::Forward => End::Sources,
            Direction::Backward => End::Destinations,
        }
    }
}

/// A factor of each row, from the degree norm of an adjacency.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowFactors {
    /// The adjacency.
    pub edges: Edges,
    /// Which of its two factors.
    pub end: End,
    /// Whether each is multiplied by the power of two next to the root of the adjacency's largest degree, so that rows of hubs and of
    /// leaves are equally far from the middle of half's range.
    pub balanced: bool,
}

/// Where the degree norm's factors of the rows that a sum reads are applied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadFactors {
    /// In the sum.
    InSum,
    /// In its operand.
    InOperand,
    /// In its operand, [balanced](RowFactors::balanced). The sum divides by the power of two.
    Balanced,
}

/// Dropout: which elements are dropped is a function of the run's seed and step, the stream and the place of an element.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Dropout {
    /// Probability of an element to be dropped, in [0, 1).
    pub probability: f32,
    /// Distinguishes the dropouts of a program.
    pub stream: u32,
}

impl Dropout {
    /// The factor of what is kept.
    pub(super) fn factor(self) -> f32 {
        1.0 / (1.0 - self.probability)
    }
}

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
    /// PairNorm or GraphNorm of all rows as one graph. The second result is its statistics.
    NormalizeGroups {
        /// Which of them.
        norm: GroupNorm,
        /// What is normalised.
        x: Value,
    },
    /// Its gradient: of its input and, of GraphNorm, of scales, shifts and multiples of the mean.
    NormalizeGroupsGradient {
        /// Which of them.
        norm: GroupNorm,
        /// What was normalised.
        x: Value,
        /// The statistics of the forward pass.
        statistics: Value,
        /// The gradient of the output.
        d: Value,
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
}

/// `dropout(relu(alpha · rows · (a · b + a₂ · b₂) + bias))`, each part where it is there; where `positive` holds no positive
/// number, zero; plus `sum`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matmul {
    /// Which operand is transposed. [`Form::TN`] is the gradient of a weight, whose result is float.
    pub form: Form,
    /// Factor of the product.
    pub alpha: f32,
    /// The first operand.
    pub a: Value,
    /// The batch normalisation that `a` goes through where it is read.
    pub norm: Option<Normalization>,
    /// The second operand.
    pub b: Value,
    /// Two more operands, whose product is added before rounding.
    pub second: Option<[Value; 2]>,
    /// A factor of each row of the result.
    pub rows: Option<RowFactors>,
    /// A float of one row.
    pub bias: Option<Value>,
    /// Whether negative results become zero.
    pub relu: bool,
    /// Dropout of the result.
    pub drop: Option<Dropout>,
    /// The output of a ReLU that is undone.
    pub positive: Option<Value>,
    /// What the rounded product is added to, in place where that is not read again.
    pub sum: Option<Value>,
    /// The adjacency of a sampled block whose sources `sum` has rows for, where the product has those of its destinations alone.
    /// The other rows stay.
    pub adds_to_own: Option<Edges>,
    /// The same of `a` and of the second one: where they have a row for each source, those of the destinations are read.
    pub reads_own: [Option<Edges>; 2],
    /// Whether the second result is the sums of the columns of `b`.
    pub column_sums: bool,
}

impl Matmul {
    /// A plain product.
    pub fn new(form: Form, a: Value, b: Value) -> Self {
        Self {
            form,
            alpha: 1.0,
            a,
            norm: None,
            b,
            second: None,
            rows: None,
            bias: None,
            relu: false,
            drop: None,
            positive: None,
            sum: None,
            adds_to_own: None,
            reads_own: [None, None],
            column_sums: false,
        }
    }

    /// Whether it is `alpha · a · b` and nothing else.
    pub fn is_plain(&self) -> bool {
        let plain = Self {
            alpha: self.alpha,
            ..Self::new(self.form, self.a, self.b)
        };
        *self == plain
    }
}

/// `relu(factor · R · A · C · x + α · addend + bias)`, or against the edges `factor · C · Aᵀ · R · x`; where `positive` holds no
/// positive number, zero.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// The adjacency.
    pub edges: Edges,
    /// Along its edges or against them.
    pub direction: Direction,
    /// Factor of the sum.
    pub factor: f32,
    /// Where the degree norm's factors of the rows that are read are applied.
    pub read_factors: ReadFactors,
    /// What is summed.
    pub x: Value,
    /// A multiple of another matrix, added before rounding.
    pub addend: Option<Addend>,
    /// A float of one row.
    pub bias: Option<Value>,
    /// Whether negative results become zero.
    pub relu: bool,
    /// The output of a ReLU that is undone.
    pub positive: Option<Value>,
}

impl Aggregate {
    /// A plain sum with its degree norm.
    pub fn new(edges: Edges, direction: Direction, x: Value) -> Self {
        Self {
            edges,
            direction,
            factor: 1.0,
            read_factors: ReadFactors::InSum,
            x,
            addend: None,
            bias: None,
            relu: false,
            positive: None,
        }
    }

    /// Whether nothing follows the sum.
    pub fn is_plain(&self) -> bool {
        self.addend.is_none() && self.is_linear()
    }

    /// Whether it is linear in `x` and reads no other matrix: the sum, with a multiple of own rows or without.
    pub fn is_linear(&self) -> bool {
        let own = self.addend.is_none_or(|addend| addend.value == self.x);
        own && self.bias.is_none() && !self.relu && self.positive.is_none()
    }

    /// What it adds of its operand's own rows.
    pub(super) fn own(&self) -> Option<Addend> {
        self.addend.filter(|addend| addend.value == self.x)
    }
}

/// `factor · (1 + epsilon) · value`, added to a sum over edges. Where `value` is what is summed, its own rows are added: those of
/// the destinations along the edges, and to those of the destinations against them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Addend {
    /// The factor.
    pub factor: f32,
    /// The matrix.
    pub value: Value,
    /// A float of one row and one column that is learnt.
    pub epsilon: Option<Value>,
}

/// `dropout(relu(x + add + bias))`, each part where it is there.
#[derive(Clone, Debug, PartialEq)]
pub struct Activate {
    /// What it is of.
    pub x: Value,
    /// A second matrix, added before rounding.
    pub add: Option<Value>,
    /// A float of one row.
    pub bias: Option<Value>,
    /// Whether negative elements become zero.
    pub relu: bool,
    /// Dropout.
    pub drop: Option<Dropout>,
}

/// The gradient of [`Activate`], in place of that of its output where this is not read again.
#[derive(Clone, Debug, PartialEq)]
pub struct ActivateGradient {
    /// The gradient of the output.
    pub d: Value,
    /// The output, where there was a ReLU. Dropout behind a ReLU is undone from it; else it is drawn again.
    pub relu: Option<Value>,
    /// The dropout.
    pub drop: Option<Dropout>,
    /// A factor of each row.
    pub rows: Option<RowFactors>,
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

impl Operator {
    /// The name in the text of a program.
    pub fn name(&self) -> &'static str {
        match self {
            Operator::Matmul(_) => "matmul",
            Operator::Attention(_) => "attention",
            Operator::AttentionGradient(_) => "attention_gradient",
            Operator::AdditiveAttention(_) => "additive_attention",
            Operator::AdditiveGradient(_) => "additive_attention_gradient",
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
            Operator::Aggregate(_) => "aggregate",
            Operator::Activate(_) => "activate",
            Operator::ActivateGradient(_) => "activate_gradient",
            Operator::Nonlinearity { .. } => "nonlinearity",
            Operator::NonlinearityGradient { .. } => "nonlinearity_gradient",
            Operator::Combine { .. } => "combine",
            Operator::Scale { .. } => "scale",
            Operator::Dot { .. } => "dot",
            Operator::ColumnSums { .. } => "column_sums",
            Operator::OwnRows { .. } => "own_rows",
            Operator::OwnRowsGradient { .. } => "own_rows_gradient",
        }
    }

    /// Calls `visit` with each operand. All that reads or renames operands goes through it.
    fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        match self {
            Operator::Matmul(op) => {
                visit(&mut op.a);
                op.norm.iter_mut().for_each(|norm| norm.visit(visit));
                visit(&mut op.b);
                op.second.iter_mut().flatten().for_each(&mut *visit);
                op.bias.iter_mut().for_each(&mut *visit);
                op.positive.iter_mut().for_each(&mut *visit);
                op.sum.iter_mut().for_each(&mut *visit);
            }
            Operator::Aggregate(op) => {
                visit(&mut op.x);
                if let Some(addend) = &mut op.addend {
                    visit(&mut addend.value);
                    addend.epsilon.iter_mut().for_each(&mut *visit);
                }
                op.bias.iter_mut().for_each(&mut *visit);
                op.positive.iter_mut().for_each(&mut *visit);
            }
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
            Operator::EdgeTerms(op) => {
                [&mut op.weight, &mut op.vector].into_iter().for_each(visit);
            }
            Operator::EdgeTermsGradient { of, zeros, d } => {
                let all = [d, zeros, &mut of.weight, &mut of.vector];
                all.into_iter().for_each(visit);
            }
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
            Operator::NormalizeGroups { norm, x } => {
                visit(x);
                norm.visit(visit);
            }
            Operator::NormalizeGroupsGradient {
                norm,
                x,
                statistics,
                d,
            } => {
                [d, x, statistics].into_iter().for_each(&mut *visit);
                norm.visit(visit);
            }
            Operator::Combine { terms } => terms.iter_mut().for_each(|(_, value)| visit(value)),
            Operator::Scale { x, factor, .. } => [x, factor].into_iter().for_each(visit),
            Operator::Dot { x, y, .. } => [x, y].into_iter().for_each(visit),
            Operator::NonlinearityGradient { of, d, .. } => [of, d].into_iter().for_each(visit),
            Operator::Nonlinearity { x, .. }
            | Operator::ColumnSums { x }
            | Operator::OwnRows { x, .. }
            | Operator::OwnRowsGradient { d: x, .. }
            | Operator::HeadMean { x, .. }
            | Operator::HeadMeanGradient { d: x, .. } => visit(x),
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
            | Operator::NormalizeRowsGradient { d, .. }
            | Operator::NormalizeGroupsGradient { d, .. } => vec![*d],
            Operator::NormalizeGradient(op) => vec![op.d],
            // The last term is the newest. One term alone has no second matrix to be computed from.
            Operator::Combine { terms } if terms.len() > 1 => {
                terms.iter().rev().map(|(_, value)| *value).collect()
            }
            _ => Vec::new(),
        }
    }
}
