//! What sums and other reductions of messages call.

use crate::backend::Backend;
use crate::error::Error;
use crate::nn::Propagation;
use crate::ops::{
    self, EdgeOrder, MessageBackwardOperands, MessageGradients, MessageTerms, Messages,
    ReducedMessages, ReductionBackwardOperands, ReductionResults,
};
use crate::program::list::refuse;
use crate::program::operator::{
    MessageGradient, MessageRows, MessageSums, Node, ReduceMessages, ReduceMessagesGradient,
};
use crate::program::run::machine::{Bank, Elements, Typed};
use crate::program::value::Value;
use crate::tensor::{Element, Matrix};

impl<B: Backend, E: Element> Typed<'_, B, E> {
    pub(super) fn message_sums(&mut self, op: &MessageSums, y: Value) -> Result<(), Error> {
        let edges = self.edges[op.edges.0];
        self.write::<Elements>(y, |machine, y| {
            let of = machine.messages(op)?;
            ops::message_sums(&machine.backend, edges.forward(), of, y)
        })
    }

    pub(super) fn message_gradient(
        &mut self,
        op: &MessageGradient,
        node: &Node,
    ) -> Result<(), Error> {
        let edges = self.edges[op.of.edges.0];
        self.with_taken(&node.written(), |machine, taken| {
            let mut left = taken.elements.iter_mut();
            let mut next = |wanted| gradients_of(wanted, &mut left);
            let [gate, value] = [next(op.wanted[0]), next(op.wanted[1])];
            let has_rows = op.of.gate.edge.or(op.of.value.edge).is_some();
            let order = order_of_rows(edges, has_rows)?;
            let of = MessageBackwardOperands {
                a: edges.forward(),
                transposed: (edges.backward(&machine.backend)?, order),
                op: machine.messages(&op.of)?,
                dy: Elements::matrix(machine, op.d)?,
                gate,
                value,
            };
            ops::message_sums_backward(&machine.backend, of)
        })
    }

    pub(super) fn reduce_messages(
        &mut self,
        op: &ReduceMessages,
        node: &Node,
    ) -> Result<(), Error> {
        let edges = self.edges[op.edges.0];
        self.with_taken(&node.results, |machine, taken| {
            let mut results = taken.elements.iter_mut();
            let (Some(y), share, kept) = (results.next(), results.next(), results.next()) else {
                return refuse("a reduction of messages has no result".into());
            };
            let results = ReductionResults { y, share, kept };
            let of = machine.reduced(op)?;
            ops::reduce_messages(&machine.backend, edges.forward(), of, results)
        })
    }

    pub(super) fn reduce_messages_gradient(
        &mut self,
        op: &ReduceMessagesGradient,
        node: &Node,
    ) -> Result<(), Error> {
        let edges = self.edges[op.of.edges.0];
        self.with_taken(&node.results, |machine, taken| {
            let gradients = gradients_of(op.wanted, &mut taken.elements.iter_mut());
            let order = order_of_rows(edges, op.of.rows.edge.is_some())?;
            let read = |value: Option<Value>| {
                let read = value.map(|value| Elements::matrix(machine, value));
                read.transpose()
            };
            let of = ReductionBackwardOperands {
                a: edges.forward(),
                transposed: (edges.backward(&machine.backend)?, order),
                op: machine.reduced(&op.of)?,
                d: Elements::matrix(machine, op.d)?,
                y: read(op.y)?,
                kept: read(op.kept)?,
                gradients,
            };
            ops::reduce_messages_backward(&machine.backend, of)
        })
    }

    fn reduced(&self, op: &ReduceMessages) -> Result<ReducedMessages<'_, B, E>, Error> {
        Ok(ReducedMessages {
            rows: self.message_terms(&op.rows)?,
            act: op.act,
            order: None,
            reduction: op.reduction,
        })
    }

    fn messages(&self, op: &MessageSums) -> Result<Messages<'_, B, E>, Error> {
        Ok(Messages {
            gate: self.message_terms(&op.gate)?,
            value: self.message_terms(&op.value)?,
            acts: op.acts,
            order: None,
            row_scale: self.edges[op.edges.0].row_scale(),
            factor: op.factor,
        })
    }

    fn message_terms(&self, rows: &MessageRows) -> Result<MessageTerms<'_, B, E>, Error> {
        let of = |value: Option<Value>| -> Result<Option<&Matrix<B, E>>, Error> {
            value.map(|value| Elements::matrix(self, value)).transpose()
        };
        Ok(MessageTerms {
            destination: of(rows.destination)?,
            source: of(rows.source)?,
            edge: of(rows.edge)?,
        })
    }
}

/// The next matrices for the gradients that are wanted.
fn gradients_of<'a, B: Backend, E: Element>(
    wanted: [bool; 3],
    left: &mut impl Iterator<Item = &'a mut Matrix<B, E>>,
) -> MessageGradients<'a, B, E> {
    let [destination, source, edge] = wanted.map(|wanted| wanted.then(|| left.next()).flatten());
    MessageGradients {
        destination,
        source,
        edge,
    }
}

/// The rows that the edges of the transposed adjacency have, where messages read rows of edges.
///
/// # Errors
/// [`Error::Unsupported`] where edges have no rows.
fn order_of_rows<B: Backend>(
    edges: &Propagation<B>,
    has_rows: bool,
) -> Result<Option<&EdgeOrder<B>>, Error> {
    match (edges.edge_features(), has_rows) {
        (Some(features), true) => features.order_backward().map(Some),
        (None, true) => refuse("messages read rows of edges that have none".into()),
        (_, false) => Ok(None),
    }
}
