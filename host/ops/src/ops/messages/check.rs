//! Which operands sums of messages take.

use super::{
    EdgeOrder, MessageBackwardOperands, MessageGradients, MessageOperands, MessageTerms, Messages,
};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{expect_len, expect_shape, expect_transposed};
use crate::tensor::{Element, Matrix};
use halfgnn_contract::edge_walk::EDGES_MAX;

impl<B: Storage, E: Element> Operator for MessageOperands<'_, B, E> {
    const NAME: &'static str = "message_sums";

    fn check(&self) -> Result<(), Error> {
        let columns = self.op.check(Self::NAME, self.a)?;
        let what = ["rows of the output", "columns of the output"];
        expect_shape(Self::NAME, what, (self.a.rows(), columns), self.y)
    }
}

impl<B: Storage, E: Element> Operator for MessageBackwardOperands<'_, B, E> {
    const NAME: &'static str = "message_sums_backward";

    fn check(&self) -> Result<(), Error> {
        let Self {
            a,
            transposed: (transposed, order),
            op,
            dy,
            gate,
            value,
        } = self;
        let columns = op.check(Self::NAME, a)?;
        expect_transposed(Self::NAME, a, transposed)?;
        expect_len(
            Self::NAME,
            "rows of the transposed graph's edges",
            a.edges(),
            order.map(EdgeOrder::rows),
        )?;
        let has_edges = op.gate.edge.is_some() || op.value.edge.is_some();
        if has_edges && order.is_none() {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "edges have rows, and the transposed graph comes without theirs".into(),
            });
        }
        let what = [
            "rows of the gradient of the output",
            "columns of the gradient of the output",
        ];
        expect_shape(Self::NAME, what, (a.rows(), columns), dy)?;
        gate.check(&op.gate)?;
        value.check(&op.value)
    }
}

/// The kinds of rows, as errors name them.
const ROWS: [[&str; 2]; 3] = [
    ["rows of destinations", "columns of destinations"],
    ["rows of sources", "columns of sources"],
    ["rows of edges", "columns of edges"],
];

impl<B: Storage, E: Element> MessageGradients<'_, B, E> {
    fn check(&self, of: &MessageTerms<'_, B, E>) -> Result<(), Error> {
        let operator = <MessageBackwardOperands<'_, B, E> as Operator>::NAME;
        for ((gradient, of), what) in self.each().into_iter().zip(of.each()).zip(ROWS) {
            let Some(gradient) = gradient else { continue };
            let Some(of) = of else {
                return Err(Error::Unsupported {
                    operator,
                    reason: format!("a gradient of {} that are not there", what[0]),
                });
            };
            expect_shape(operator, what, of.shape(), gradient)?;
        }
        Ok(())
    }
}

impl<B: Storage, E: Element> Messages<'_, B, E> {
    /// Checks all but the outputs; the columns.
    fn check(&self, operator: &'static str, a: &Adjacency<B>) -> Result<usize, Error> {
        let refuse = |reason: String| Err(Error::Unsupported { operator, reason });
        let gates: Vec<&Matrix<B, E>> = self.gate.each().into_iter().flatten().collect();
        let Some(first) = gates.first() else {
            return refuse("there are no rows to compute messages of".into());
        };
        let columns = first.columns();
        if !self.factor.is_finite() {
            return refuse(format!("the factor {} of sums is not finite", self.factor));
        }
        let rows = [a.rows(), a.columns(), a.edges()];
        for terms in [&self.gate, &self.value] {
            for ((matrix, rows), what) in terms.each().into_iter().zip(rows).zip(ROWS) {
                if let Some(matrix) = matrix {
                    expect_shape(operator, what, (rows, columns), matrix)?;
                }
            }
        }
        if a.edges() > EDGES_MAX as usize {
            return refuse(format!(
                "{} edges; at most {EDGES_MAX} are possible",
                a.edges()
            ));
        }
        expect_len(
            operator,
            "rows of edges",
            a.edges(),
            self.order.map(EdgeOrder::rows),
        )?;
        let what = "factors of destinations";
        expect_len(operator, what, a.rows(), self.row_scale)?;
        Ok(columns)
    }
}
