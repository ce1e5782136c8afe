//! The shapes of sums of messages.

use super::Result_;
use crate::error::Error;
use crate::program::list::{Program, refuse};
use crate::program::operator::{MessageSums, Operator};
use crate::program::value::{Format, Rows, Shape, Value};

impl Program {
    /// What sums of messages write; none of any other operator.
    pub(super) fn message_results(
        &self,
        operator: &Operator,
    ) -> Result<Option<Vec<Result_>>, Error> {
        let name = operator.name();
        match operator {
            Operator::MessageSums(op) => Ok(Some(vec![self.result_of_messages(name, op)?])),
            Operator::MessageGradient(op) => {
                let y = self.result_of_messages(name, &op.of)?;
                self.expect_same(name, op.d, y)?;
                let of = |value: Value| (self.values[value.0].shape, Format::Element);
                let results: Vec<Result_> = op.differentiated().map(of).collect();
                match results.is_empty() {
                    true => refuse(format!("{name}: no gradient is wanted")),
                    false => Ok(Some(results)),
                }
            }
            _ => Ok(None),
        }
    }

    fn result_of_messages(&self, name: &str, op: &MessageSums) -> Result<Result_, Error> {
        let set = &self.edges[op.edges.0];
        let Some(first) = op.gate.each().into_iter().flatten().next() else {
            return refuse(format!("{name}: the first factor of a message has no rows"));
        };
        let columns = self.values[first.0].shape.columns;
        let ends = [
            Rows::Of(set.destinations),
            Rows::Of(set.sources),
            Rows::EachEdge(op.edges),
        ];
        for of in op.rows() {
            for (value, rows) in of.into_iter().zip(ends) {
                let Some(value) = value else { continue };
                self.expect_same(name, value, (Shape { rows, columns }, Format::Element))?;
            }
        }
        let rows = Rows::Of(set.destinations);
        Ok((Shape { rows, columns }, Format::Element))
    }
}
