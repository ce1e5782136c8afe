//! Which operands additive attention takes.

use super::{Additive, AdditiveGradientOperands, AdditiveScoresOperands};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{expect_edges, expect_shape, expect_width};
use crate::tensor::Element;

impl<B: Storage, E: Element> Operator for AdditiveScoresOperands<'_, B, E> {
    const NAME: &'static str = "additive_scores";

    fn check(&self) -> Result<(), Error> {
        let AdditiveScoresOperands { a, op, scores } = self;
        op.check(Self::NAME, a)?;
        expect_edges(Self::NAME, "scores", op.heads, a, scores)
    }
}

impl<B: Storage, E: Element> Operator for AdditiveGradientOperands<'_, B, E> {
    const NAME: &'static str = "additive_gradient";

    fn check(&self) -> Result<(), Error> {
        let AdditiveGradientOperands {
            a,
            op,
            d,
            du,
            of_vector,
        } = self;
        op.check(Self::NAME, a)?;
        expect_edges(Self::NAME, "gradient of the scores", op.heads, a, d)?;
        let what = ["rows of the gradient", "columns of the gradient"];
        expect_shape(Self::NAME, what, op.u.shape(), du)?;
        of_vector.as_ref().map_or(Ok(()), |of_vector| {
            expect_shape(Self::NAME, what, op.u.shape(), of_vector)
        })
    }
}

impl<B: Storage, E: Element> Additive<'_, B, E> {
    fn check(&self, operator: &'static str, a: &Adjacency<B>) -> Result<(), Error> {
        let columns = self.u.columns();
        expect_width(operator, self.heads, self.u)?;
        expect_shape(
            operator,
            ["rows of u", "columns of u"],
            (a.rows(), columns),
            self.u,
        )?;
        expect_shape(
            operator,
            ["rows of v", "columns of v"],
            (a.columns(), columns),
            self.v,
        )?;
        let what = ["rows of the vector", "columns of the vector"];
        expect_shape(operator, what, (1, columns), self.vector)
    }
}
