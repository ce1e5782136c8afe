//! Sums and other reductions of messages that are computed of the rows of both ends of an edge and of the edge's own.

use crate::ops::{MessageAct, MessageReduction};
use crate::program::value::{Edges, Value};

/// The rows that are added up for an edge. Those that are missing are zero.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct MessageRows {
    /// A row for each destination.
    pub destination: Option<Value>,
    /// A row for each source.
    pub source: Option<Value>,
    /// A row for each edge.
    pub edge: Option<Value>,
}

impl MessageRows {
    /// Rows of destinations, of sources and of edges.
    pub(in crate::program) fn each(&self) -> [Option<Value>; 3] {
        [self.destination, self.source, self.edge]
    }

    fn each_mut(&mut self) -> [&mut Option<Value>; 3] {
        [&mut self.destination, &mut self.source, &mut self.edge]
    }
}

/// `y_i = factor · r_i · Σ_e f(a_e) ⊙ g(b_e)`, where `a_e` and `b_e` add up rows of the destination, the source and the edge, and `r` are
/// the factors of rows that the degree norm of the edges has.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MessageSums {
    /// The adjacency.
    pub edges: Edges,
    /// `a`: at least one of the three.
    pub gate: MessageRows,
    /// `b`. With no rows, a message is `f(a)` alone.
    pub value: MessageRows,
    /// `f` and `g`.
    pub acts: [MessageAct; 2],
    /// What is multiplied with the sums before they are rounded.
    pub factor: f32,
}

/// The gradient of [`MessageSums`]: of the rows that are wanted, in the order of its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MessageGradient {
    /// The forward pass.
    pub of: MessageSums,
    /// Whose gradients it makes: of the rows of `a`, then of those of `b`.
    pub wanted: [[bool; 3]; 2],
    /// The gradient of its result.
    pub d: Value,
}

impl MessageSums {
    /// The rows of `a` and of `b`.
    pub(in crate::program) fn rows(&self) -> [[Option<Value>; 3]; 2] {
        [self.gate.each(), self.value.each()]
    }

    /// What is read for each edge by the index of an end: rows of sources.
    pub(in crate::program) fn gathered(&self) -> impl Iterator<Item = Value> {
        [self.gate.source, self.value.source].into_iter().flatten()
    }

    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        for rows in [&mut self.gate, &mut self.value] {
            rows.each_mut().into_iter().flatten().for_each(&mut *visit);
        }
    }
}

impl MessageGradient {
    /// The rows whose gradients it makes, in the order of its results.
    pub(in crate::program) fn differentiated(&self) -> impl Iterator<Item = Value> {
        let rows = self.of.rows().into_iter().flatten();
        rows.zip(self.wanted.into_iter().flatten())
            .filter_map(|(value, wanted)| value.filter(|_| wanted))
    }

    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        visit(&mut self.d);
        self.of.visit(visit);
    }
}

/// A reduction of `f(a_e)` over the edges of each destination, column by column. `a_e` adds up rows of the destination, the
/// source and the edge. The second result is what the gradient of the first is multiplied by. The third is what else the
/// gradient [reads](MessageReduction::reads_kept), where there is that.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReduceMessages {
    /// The adjacency.
    pub edges: Edges,
    /// `a`: at least one of the three.
    pub rows: MessageRows,
    /// `f`.
    pub act: MessageAct,
    /// What is made of the messages.
    pub reduction: MessageReduction,
}

/// The gradient of [`ReduceMessages`]: of the rows that are wanted, in the order of its operands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ReduceMessagesGradient {
    /// The forward pass.
    pub of: ReduceMessages,
    /// Whose gradients it makes.
    pub wanted: [bool; 3],
    /// The gradient of its result, times its second result.
    pub d: Value,
    /// Its result, where the gradient [reads](MessageReduction::reads_result) it.
    pub y: Option<Value>,
    /// Its third result, where the gradient [reads](MessageReduction::reads_kept) it.
    pub kept: Option<Value>,
}

impl ReduceMessages {
    /// How many results it has.
    pub(in crate::program) fn results(&self) -> usize {
        2 + usize::from(self.reduction.reads_kept())
    }

    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        let rows = self.rows.each_mut();
        rows.into_iter().flatten().for_each(visit);
    }
}

impl ReduceMessagesGradient {
    /// The rows whose gradients it makes, in the order of its results.
    pub(in crate::program) fn differentiated(&self) -> impl Iterator<Item = Value> {
        let rows = self.of.rows.each().into_iter().zip(self.wanted);
        rows.filter_map(|(value, wanted)| value.filter(|_| wanted))
    }

    pub(super) fn visit(&mut self, visit: &mut dyn FnMut(&mut Value)) {
        visit(&mut self.d);
        [&mut self.y, &mut self.kept]
            .into_iter()
            .flatten()
            .for_each(&mut *visit);
        self.of.visit(visit);
    }
}
