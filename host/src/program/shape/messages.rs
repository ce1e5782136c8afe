//! The shapes of sums and other reductions of messages.

use super::Result_;
use crate::error::Error;
use crate::program::list::{Program, refuse};
use crate::program::operator::Operator;
use crate::program::value::{Edges, Format, Rows, Shape, Value};

impl Program {
    /// What sums and other reductions of messages write; none of any other operator.
    pub(super) fn message_results(
        &self,
        operator: &Operator,
    ) -> Result<Option<Vec<Result_>>, Error> {
        let name = operator.name();
        match operator {
            Operator::MessageSums(op) => Ok(Some(vec![self.result_of_messages(
                name,
                op.edges,
                &op.rows(),
            )?])),
            Operator::ReduceMessages(op) => {
                let y = self.result_of_messages(name, op.edges, &[op.rows.each()])?;
                Ok(Some(vec![y; op.results()]))
            }
            Operator::ReduceMessagesGradient(op) => {
                let y = self.result_of_messages(name, op.of.edges, &[op.of.rows.each()])?;
                let read = [Some(op.d), op.y, op.kept];
                for value in read.into_iter().flatten() {
                    self.expect_same(name, value, y)?;
                }
                self.gradients_of_messages(name, op.differentiated())
            }
            Operator::MessageGradient(op) => {
                let y = self.result_of_messages(name, op.of.edges, &op.of.rows())?;
                self.expect_same(name, op.d, y)?;
                self.gradients_of_messages(name, op.differentiated())
            }
            _ => Ok(None),
        }
    }

    fn gradients_of_messages(
        &self,
        name: &str,
        of: impl Iterator<Item = Value>,
    ) -> Result<Option<Vec<Result_>>, Error> {
        let shape = |value: Value| (self.values[value.0].shape, Format::Element);
        let results: Vec<Result_> = of.map(shape).collect();
        match results.is_empty() {
            true => refuse(format!("{name}: no gradient is wanted")),
            false => Ok(Some(results)),
        }
    }

    /// A row for each destination, of messages of these rows; the first three are not all missing.
    fn result_of_messages(
        &self,
        name: &str,
        edges: Edges,
        terms: &[[Option<Value>; 3]],
    ) -> Result<Result_, Error> {
        let set = &self.edges[edges.0];
        let Some(first) = terms[0].into_iter().flatten().next() else {
            return refuse(format!("{name}: a message has no rows"));
        };
        let columns = self.values[first.0].shape.columns;
        let ends = [
            Rows::Of(set.destinations),
            Rows::Of(set.sources),
            Rows::EachEdge(edges),
        ];
        for of in terms {
            for (value, rows) in of.iter().copied().zip(ends) {
                let Some(value) = value else { continue };
                self.expect_same(name, value, (Shape { rows, columns }, Format::Element))?;
            }
        }
        let rows = Rows::Of(set.destinations);
        Ok((Shape { rows, columns }, Format::Element))
    }
}
