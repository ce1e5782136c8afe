//! Products and sums over edges, with what their epilogues do.

use super::{Dropout, Normalization};
use crate::ops::{CodeFormat, Form, SpmmPolicy};
use crate::program::value::{Edges, Value};

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
    pub(in crate::program) fn reversed(self) -> Self {
        match self {
            Direction::Forward => Direction::Backward,
            Direction::Backward => Direction::Forward,
        }
    }

    /// The end whose rows a sum in this direction reads.
    pub(in crate::program) fn read(self) -> End {
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

/// `dropout(relu(alpha · rows · (a · b + a₂ · b₂) + bias))`, each part where it is there; where `positive` holds no positive
/// number, zero; plus `sum`.
#[derive(Clone, Debug, PartialEq)]
pub struct Matmul {
    /// Which operand is transposed. [`Form::TN`] is the gradient of a weight, whose result is float.
    pub form: Form,
    /// Factor of the product.
    pub alpha: f32,
    /// The first operand. Of [`Form::TN`] it may be [stored](super::Operator::Store) in 8 bits.
    pub a: Value,
    /// The batch normalisation that `a` goes through where it is read.
    pub norm: Option<Normalization>,
    /// The second operand.
    pub b: Value,
    /// Two more operands, whose product is added before rounding.
    pub second: Option<[Value; 2]>,
    /// A factor of each row of the result.
    pub rows: Option<RowFactors>,
    /// The same from an array of numbers, in its place.
    pub row_scale: Option<Value>,
    /// A float of one row.
    pub bias: Option<Value>,
    /// Whether negative results become zero.
    pub relu: bool,
    /// Dropout of the result.
    pub drop: Option<Dropout>,
    /// The output of a ReLU that is undone. Of [`Form::NT`] it may be [stored](super::Operator::Store) in 8 bits.
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
    /// Whether the last result is quantized values of the first.
    pub coding: Option<Coding>,
    /// Whether the result is float, as that of [`Form::TN`] always is.
    pub to_float: bool,
}

impl Matmul {
    /// Calls `visit` with each operand.
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        visit(&mut self.a);
        self.norm.iter_mut().for_each(|norm| norm.visit(visit));
        visit(&mut self.b);
        self.second.iter_mut().flatten().for_each(&mut *visit);
        self.bias.iter_mut().for_each(&mut *visit);
        self.positive.iter_mut().for_each(&mut *visit);
        self.sum.iter_mut().for_each(&mut *visit);
        self.row_scale.iter_mut().for_each(&mut *visit);
    }

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
            row_scale: None,
            bias: None,
            relu: false,
            drop: None,
            positive: None,
            sum: None,
            adds_to_own: None,
            reads_own: [None, None],
            column_sums: false,
            coding: None,
            to_float: false,
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
    /// Whether a sum against the edges of a rank's part is made along them, since all edges of the whole graph go both ways: from rows of all
    /// sources to own rows, with the factors of the other direction.
    pub is_mutual: bool,
    /// Factor of the sum.
    pub factor: f32,
    /// Where the degree norm's factors of the rows that are read are applied.
    pub read_factors: ReadFactors,
    /// What is summed.
    pub x: Value,
    /// Quantized values of `x`, with the degree norm's factors in them, which are read in its place. Where ranks exchange them, `x` has the
    /// own rows alone.
    pub codes: Option<Value>,
    /// The layer whose messages it sums: rounding of gradients by chance is a function of it.
    pub layer: u32,
    /// How it sums.
    pub policy: SpmmPolicy,
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
    /// Calls `visit` with each operand.
    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        // Of a matrix whose quantized values are summed nothing but own rows is read.
        if self.codes.is_none() || self.own().is_some() {
            visit(&mut self.x);
        }
        self.codes.iter_mut().for_each(&mut *visit);
        if let Some(addend) = &mut self.addend {
            visit(&mut addend.value);
            addend.epsilon.iter_mut().for_each(&mut *visit);
        }
        self.bias.iter_mut().for_each(&mut *visit);
        self.positive.iter_mut().for_each(&mut *visit);
    }

    /// A plain sum with its degree norm.
    pub fn new(edges: Edges, direction: Direction, x: Value) -> Self {
        Self {
            edges,
            direction,
            is_mutual: false,
            factor: 1.0,
            read_factors: ReadFactors::InSum,
            x,
            codes: None,
            layer: 0,
            policy: SpmmPolicy::DEFAULT,
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
    pub(in crate::program) fn own(&self) -> Option<Addend> {
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

/// How a matrix is quantized: to values of 8 bits with a scale for each column, which follows the largest magnitude of the step before.
/// In a first step it is that of the matrix itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Coding {
    /// A factor of each row.
    pub rows: Option<RowFactors>,
    /// The format of a value.
    pub format: CodeFormat,
    /// The layer that they are the messages of.
    pub layer: u32,
    /// The stream of random numbers that values are rounded by; none where each is rounded to the nearest.
    pub stream: Option<u32>,
    /// Whether no operator reads the matrix itself, so that its writer need not store it.
    pub alone: bool,
    /// Of several ranks: scales are then those of all, and rounding by chance is by the vertices of the whole graph.
    pub of_rank: Option<RankPart>,
}

impl Coding {
    /// The part of a graph whose ranks exchange the values.
    pub(in crate::program) fn exchanged(&self) -> Option<Edges> {
        let of_rank = self.of_rank.filter(|of| of.exchanged);
        of_rank.map(|of| of.edges)
    }
}

/// The part of a graph whose vertices quantized values are of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RankPart {
    /// The adjacency of the part.
    pub edges: Edges,
    /// Whether the matrix has own rows alone, and behind their values come those that other ranks have of theirs.
    pub exchanged: bool,
}
