//! What sums of messages call.

use crate::backend::Backend;
use crate::error::Error;
use crate::ops::{self, MessageBackwardOperands, MessageGradients, MessageTerms, Messages};
use crate::program::list::refuse;
use crate::program::operator::{MessageGradient, MessageRows, MessageSums, Node};
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
            let mut next = |wanted: [bool; 3]| {
                let [destination, source, edge] =
                    wanted.map(|wanted| wanted.then(|| left.next()).flatten());
                MessageGradients {
                    destination,
                    source,
                    edge,
                }
            };
            let [gate, value] = [next(op.wanted[0]), next(op.wanted[1])];
            let has_rows = op.of.gate.edge.or(op.of.value.edge).is_some();
            let order = match (edges.edge_features(), has_rows) {
                (Some(features), true) => Some(features.order_backward()?),
                (None, true) => return refuse("messages read rows of edges that have none".into()),
                (_, false) => None,
            };
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
