//! Which operands sums of messages take.

use super::{
    EdgeOrder, MessageBackwardOperands, MessageGradients, MessageOperands, MessageTerms, Messages,
};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{expect_len, expect_shape, expect_transposed};
use crate::tensor::{Array, Element, Matrix};
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
        let has_edges = op.gate.edge.is_some() || op.value.edge.is_some();
        expect_order(Self::NAME, a, *order, has_edges)?;
        let what = [
            "rows of the gradient of the output",
            "columns of the gradient of the output",
        ];
        expect_shape(Self::NAME, what, (a.rows(), columns), dy)?;
        check_gradients(Self::NAME, gate, &op.gate)?;
        check_gradients(Self::NAME, value, &op.value)
    }
}

/// The kinds of rows, as errors name them.
const ROWS: [[&str; 2]; 3] = [
    ["rows of destinations", "columns of destinations"],
    ["rows of sources", "columns of sources"],
    ["rows of edges", "columns of edges"],
];

/// Whether the transposed graph comes with the rows of its edges where edges have rows.
pub(crate) fn expect_order<B: Storage>(
    operator: &'static str,
    a: &Adjacency<B>,
    order: Option<&EdgeOrder<B>>,
    has_edges: bool,
) -> Result<(), Error> {
    if has_edges && order.is_none() {
        return Err(Error::Unsupported {
            operator,
            reason: "edges have rows, and the transposed graph comes without theirs".into(),
        });
    }
    let what = "rows of the transposed graph's edges";
    expect_len(operator, what, a.edges(), order.map(EdgeOrder::rows))
}

/// Whether gradients are of rows that are there, and have their shapes.
pub(crate) fn check_gradients<B: Storage, E: Element>(
    operator: &'static str,
    gradients: &MessageGradients<'_, B, E>,
    of: &MessageTerms<'_, B, E>,
) -> Result<(), Error> {
    for ((gradient, of), what) in gradients.each().into_iter().zip(of.each()).zip(ROWS) {
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

/// Whether the rows of messages fit the graph and each other. The first of `terms` has at least one matrix. Returns
/// their columns.
pub(crate) fn check_rows<B: Storage, E: Element>(
    operator: &'static str,
    a: &Adjacency<B>,
    terms: &[&MessageTerms<'_, B, E>],
    order: Option<&Array<B, u32>>,
) -> Result<usize, Error> {
    let refuse = |reason: String| Err(Error::Unsupported { operator, reason });
    let first = terms.first().map(|terms| terms.each());
    let first: Option<&Matrix<B, E>> = first.into_iter().flatten().flatten().next();
    let Some(first) = first else {
        return refuse("there are no rows to compute messages of".into());
    };
    let columns = first.columns();
    let rows = [a.rows(), a.columns(), a.edges()];
    for terms in terms {
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
    expect_len(operator, "rows of edges", a.edges(), order)?;
    Ok(columns)
}

impl<B: Storage, E: Element> Messages<'_, B, E> {
    /// Checks all but the outputs; the columns.
    fn check(&self, operator: &'static str, a: &Adjacency<B>) -> Result<usize, Error> {
        let order = self.order.map(EdgeOrder::rows);
        let columns = check_rows(operator, a, &[&self.gate, &self.value], order)?;
        if !self.factor.is_finite() {
            let reason = format!("the factor {} of sums is not finite", self.factor);
            return Err(Error::Unsupported { operator, reason });
        }
        let what = "factors of destinations";
        expect_len(operator, what, a.rows(), self.row_scale)?;
        Ok(columns)
    }
}
