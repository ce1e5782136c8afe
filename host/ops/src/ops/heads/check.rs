//! Which operands the operators on heads take.

use super::{
    HeadDotsOperands, HeadMeanBackwardOperands, HeadMeanOperands, HeadOuterOperands,
    HeadScoresOperands, HeadSumsOperands,
};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{expect_shape, expect_vertices, expect_width};
use crate::tensor::{Array, Element, Matrix};

impl<B: Storage, E: Element> Operator for HeadScoresOperands<'_, B, E> {
    const NAME: &'static str = "head_scores";

    fn check(&self) -> Result<(), Error> {
        let numbers = [&*self.destination, &*self.source];
        let what = ["scores as destination", "scores as source"];
        let planes = (self.heads, self.rows);
        expect_ends(Self::NAME, planes, self.x, self.vectors, what, numbers)
    }
}

impl<B: Storage, E: Element> Operator for HeadDotsOperands<'_, B, E> {
    const NAME: &'static str = "head_dots";

    fn check(&self) -> Result<(), Error> {
        let (op, y) = (self.op, &self.y);
        expect_width(Self::NAME, op.heads, op.a)?;
        let (rows, shape) = (op.a.rows(), op.a.shape());
        expect_shape(Self::NAME, ["rows of b", "columns of b"], shape, op.b.1)?;
        if let Some((_, c)) = op.c {
            expect_shape(Self::NAME, ["rows of c", "columns of c"], shape, c)?;
        }
        for numbers in [op.u.map(|(_, u)| u), op.v].into_iter().flatten() {
            expect_vertices(Self::NAME, "numbers of vertices", op.heads, rows, numbers)?;
        }
        expect_vertices(Self::NAME, "result", op.heads, rows, y)
    }
}

impl<B: Storage, E: Element> Operator for HeadOuterOperands<'_, B, E> {
    const NAME: &'static str = "head_outer";

    fn check(&self) -> Result<(), Error> {
        let numbers = [self.destination, self.source];
        let planes = (self.heads, self.rows);
        expect_ends(Self::NAME, planes, self.x, self.vectors, NUMBERS, numbers)
    }
}

impl<B: Storage, E: Element> Operator for HeadSumsOperands<'_, B, E> {
    const NAME: &'static str = "head_sums";

    fn check(&self) -> Result<(), Error> {
        let numbers = [self.destination, self.source];
        let planes = (self.heads, self.rows);
        expect_ends(Self::NAME, planes, self.x, self.sums, NUMBERS, numbers)
    }
}

impl<B: Storage, E: Element> Operator for HeadMeanOperands<'_, B, E> {
    const NAME: &'static str = "head_mean";

    fn check(&self) -> Result<(), Error> {
        expect_mean(Self::NAME, self.heads, self.x, self.y)
    }
}

impl<B: Storage, E: Element> Operator for HeadMeanBackwardOperands<'_, B, E> {
    const NAME: &'static str = "head_mean_backward";

    fn check(&self) -> Result<(), Error> {
        expect_mean(Self::NAME, self.heads, self.dx, self.dy)
    }
}

const NUMBERS: [&str; 2] = ["numbers as destination", "numbers as source"];

/// The two attention vectors, destination and source, lie in a matrix of two rows; each has a number for each head of each
/// of the first `rows` rows of `x`.
fn expect_ends<B: Storage, E: Element, V: Element>(
    operator: &'static str,
    (heads, rows): (usize, usize),
    x: &Matrix<B, E>,
    vectors: &Matrix<B, V>,
    what: [&'static str; 2],
    numbers: [&Array<B, f32>; 2],
) -> Result<(), Error> {
    expect_width(operator, heads, x)?;
    Error::expect(operator, "rows of x", rows, x.rows().min(rows))?;
    let of_vectors = [
        "rows of the attention vectors",
        "columns of the attention vectors",
    ];
    expect_shape(operator, of_vectors, (2, x.columns()), vectors)?;
    for (what, numbers) in what.into_iter().zip(numbers) {
        expect_vertices(operator, what, heads, rows, numbers)?;
    }
    Ok(())
}

fn expect_mean<B: Storage, E: Element>(
    operator: &'static str,
    heads: usize,
    with_heads: &Matrix<B, E>,
    mean: &Matrix<B, E>,
) -> Result<(), Error> {
    expect_width(operator, heads, with_heads)?;
    Error::expect(operator, "rows of the mean", with_heads.rows(), mean.rows())?;
    let what = "padded columns of the mean";
    Error::expect(operator, what, with_heads.stride() / heads, mean.stride())
}
