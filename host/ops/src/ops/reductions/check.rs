//! Which operands reductions of messages take.

use super::{ReducedMessages, ReductionBackwardOperands, ReductionOperands};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::check::{expect_shape, expect_transposed};
use crate::ops::messages::{check_gradients, check_rows, expect_order};
use crate::ops::{EdgeOrder, Operator};
use crate::tensor::Element;

impl<B: Storage, E: Element> Operator for ReductionOperands<'_, B, E> {
    const NAME: &'static str = "reduce_messages";

    fn check(&self) -> Result<(), Error> {
        let Self { a, op, results } = self;
        let shape = (a.rows(), op.check(Self::NAME, a)?);
        let what = ["rows of the output", "columns of the output"];
        expect_shape(Self::NAME, what, shape, results.y)?;
        let what = ["rows of the shares", "columns of the shares"];
        if let Some(share) = &results.share {
            expect_shape(Self::NAME, what, shape, share)?;
        }
        match &results.kept {
            Some(kept) => expect_shape(Self::NAME, KEPT, shape, kept),
            None => Ok(()),
        }
    }
}

const KEPT: [&str; 2] = [
    "rows of the largest messages or means",
    "columns of the largest messages or means",
];

impl<B: Storage, E: Element> Operator for ReductionBackwardOperands<'_, B, E> {
    const NAME: &'static str = "reduce_messages_backward";

    fn check(&self) -> Result<(), Error> {
        let Self {
            a,
            transposed: (transposed, order),
            op,
            d,
            y,
            kept,
            gradients,
        } = self;
        let shape = (a.rows(), op.check(Self::NAME, a)?);
        expect_transposed(Self::NAME, a, transposed)?;
        expect_order(Self::NAME, a, *order, op.rows.edge.is_some())?;
        let what = [
            "rows of the gradient of the output",
            "columns of the gradient of the output",
        ];
        expect_shape(Self::NAME, what, shape, d)?;
        let result = ["rows of the result", "columns of the result"];
        let read = [
            ("result", *y, op.reduction.reads_result(), result),
            (
                "largest messages or means",
                *kept,
                op.reduction.reads_kept(),
                KEPT,
            ),
        ];
        for (name, matrix, is_read, what) in read {
            match matrix {
                Some(matrix) => expect_shape(Self::NAME, what, shape, matrix)?,
                None if is_read => {
                    return Err(Error::Unsupported {
                        operator: Self::NAME,
                        reason: format!(
                            "the gradient of {:?} reads the {name} of its forward pass, which is missing",
                            op.reduction
                        ),
                    });
                }
                None => {}
            }
        }
        check_gradients(Self::NAME, gradients, &op.rows)
    }
}

impl<B: Storage, E: Element> ReducedMessages<'_, B, E> {
    /// Checks the inputs; the columns.
    fn check(&self, operator: &'static str, a: &Adjacency<B>) -> Result<usize, Error> {
        let order = self.order.map(EdgeOrder::rows);
        check_rows(operator, a, &[&self.rows], order)
    }
}
