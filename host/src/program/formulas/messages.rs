//! Sums and other reductions of messages, and what they read of edges.

use crate::nn::Aggregate;
use crate::ops::{MessageAct, MessageReduction};
use crate::program::builder::Builder;
use crate::program::operator::{MessageRows, MessageSums, Operator, ReduceMessages};
use crate::program::value::{Edges, Value};

impl Builder {
    /// The features of the edges of an adjacency, `columns` of each: a row for each edge, which
    /// [`Propagation::with_edge_rows`](crate::nn::Propagation::with_edge_rows) gives.
    pub fn edge_features(&mut self, edges: Edges, columns: usize) -> Value {
        if columns == 0 {
            return self.fail(
                "a row of no features for each edge; edges without features have no rows".into(),
            );
        }
        self.program.edge_features(edges, columns)
    }

    /// `Σ_e f(a_e) ⊙ g(b_e)` over the edges of each destination, in float, or their mean where the edges have the norm `right`. See
    /// [`MessageSums`]. With no rows in `value`, it is `Σ_e f(a_e)`.
    pub fn message_sums(&mut self, edges: Edges, factors: [(MessageAct, MessageRows); 2]) -> Value {
        self.scaled_message_sums(edges, factors, 1.0)
    }

    /// The same times a factor, by which sums over many edges stay in the range of half.
    pub fn scaled_message_sums(
        &mut self,
        edges: Edges,
        [gate, value]: [(MessageAct, MessageRows); 2],
        factor: f32,
    ) -> Value {
        self.push(Operator::MessageSums(MessageSums {
            edges,
            gate: gate.1,
            value: value.1,
            acts: [gate.0, value.0],
            factor,
        }))
    }

    /// The maxima, minima, softmax sums or deviations of `f(a_e)` over the edges of each destination. See [`ReduceMessages`].
    pub fn reduce_messages(
        &mut self,
        edges: Edges,
        reduction: MessageReduction,
        (act, rows): (MessageAct, MessageRows),
    ) -> Value {
        self.push(Operator::ReduceMessages(ReduceMessages {
            edges,
            rows,
            act,
            reduction,
        }))
    }

    /// The mean or sum of `f(a_e)`, or another reduction. A mean wants edges of the norm `right`, and all others none.
    pub fn aggregate_messages(
        &mut self,
        edges: Edges,
        aggregate: Aggregate,
        message: (MessageAct, MessageRows),
    ) -> Value {
        let nothing = (MessageAct::Identity, MessageRows::default());
        match aggregate.reduction() {
            None => self.message_sums(edges, [message, nothing]),
            Some(reduction) => self.reduce_messages(edges, reduction, message),
        }
    }

    /// One over the degree of each destination, in one column. The edges have the norm `right`.
    pub fn reciprocal_degrees(&mut self, edges: Edges) -> Value {
        let Some(set) = self.program.edges.get(edges.0) else {
            return self.fail("degrees name an adjacency that the program has not".into());
        };
        let vertices = set.destinations;
        let ones = self.program.ones(vertices);
        self.scale_rows(edges, ones)
    }
}
