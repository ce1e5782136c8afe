//! Which operands the operators on heads take.

use super::{
    HeadDotsOperands, HeadDotsOuterOperands, HeadDotsPairOperands, HeadMeanBackwardOperands,
    HeadMeanOperands, HeadOuterOperands, HeadScoresOperands, HeadSumsOperands,
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
        let planes = (self.heads, self.destinations);
        expect_ends(Self::NAME, planes, self.x, self.vectors, what, numbers)
    }
}

impl<B: Storage, E: Element> Operator for HeadDotsOperands<'_, B, E> {
    const NAME: &'static str = "head_dots";

    fn check(&self) -> Result<(), Error> {
        let op = self.op;
        let others = [Some((B_SHAPE, op.b.1)), op.c.map(|(_, c)| (C_SHAPE, c))];
        let numbers = [op.u.map(|(_, u)| u), op.v, Some(&*self.y)];
        let (others, numbers) = (others.into_iter().flatten(), numbers.into_iter().flatten());
        expect_dots(Self::NAME, op.heads, op.a, others, numbers)
    }
}

impl<B: Storage, E: Element> Operator for HeadDotsPairOperands<'_, B, E> {
    const NAME: &'static str = "head_dots_pair";

    fn check(&self) -> Result<(), Error> {
        let others = [(B_SHAPE, self.b.1), (D_SHAPE, self.d)];
        let numbers = [self.v.1, &*self.u, &*self.y];
        expect_dots(Self::NAME, self.heads, self.a, others, numbers)
    }
}

impl<B: Storage, E: Element> Operator for HeadDotsOuterOperands<'_, B, E> {
    const NAME: &'static str = "head_dots_outer";

    fn check(&self) -> Result<(), Error> {
        let others = [(B_SHAPE, &*self.b.1), (C_SHAPE, self.c.1)];
        let numbers = [self.u.1, &*self.y];
        expect_dots(Self::NAME, self.heads, self.a, others, numbers)?;
        let planes = (self.heads, self.destinations);
        let numbers = [self.destination, &*self.y];
        expect_ends(Self::NAME, planes, self.a, self.vectors, NUMBERS, numbers)?;
        let what = ["rows of the sums", "columns of the sums"];
        expect_shape(Self::NAME, what, (2, self.a.columns()), self.sums)
    }
}

impl<B: Storage, E: Element> Operator for HeadOuterOperands<'_, B, E> {
    const NAME: &'static str = "head_outer";

    fn check(&self) -> Result<(), Error> {
        let numbers = [self.destination, self.source];
        let planes = (self.heads, self.destinations);
        expect_ends(Self::NAME, planes, self.x, self.vectors, NUMBERS, numbers)
    }
}

impl<B: Storage, E: Element> Operator for HeadSumsOperands<'_, B, E> {
    const NAME: &'static str = "head_sums";

    fn check(&self) -> Result<(), Error> {
        let numbers = [self.destination, self.source];
        let planes = (self.heads, self.destinations);
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

const B_SHAPE: [&str; 2] = ["rows of b", "columns of b"];
const C_SHAPE: [&str; 2] = ["rows of c", "columns of c"];
const D_SHAPE: [&str; 2] = ["rows of d", "columns of d"];

/// Matrices have the shape of `a`, and arrays a number for each head of each of its rows.
fn expect_dots<'a, B: Storage + 'a, E: Element>(
    operator: &'static str,
    heads: usize,
    a: &Matrix<B, E>,
    others: impl IntoIterator<Item = ([&'static str; 2], &'a Matrix<B, E>)>,
    numbers: impl IntoIterator<Item = &'a Array<B, f32>>,
) -> Result<(), Error> {
    expect_width(operator, heads, a)?;
    for (what, other) in others {
        expect_shape(operator, what, a.shape(), other)?;
    }
    for numbers in numbers {
        expect_vertices(operator, "numbers of vertices", heads, a.rows(), numbers)?;
    }
    Ok(())
}

const NUMBERS: [&str; 2] = ["numbers as destination", "numbers as source"];

/// The two attention vectors, destination and source, lie in a matrix of two rows as wide as `x`. There is a number of
/// the first for each head of each of the first `destinations` rows of `x`, and of the second of each row.
fn expect_ends<B: Storage, E: Element, V: Element>(
    operator: &'static str,
    (heads, destinations): (usize, usize),
    x: &Matrix<B, E>,
    vectors: &Matrix<B, V>,
    what: [&'static str; 2],
    numbers: [&Array<B, f32>; 2],
) -> Result<(), Error> {
    expect_width(operator, heads, x)?;
    let most = x.rows().min(destinations);
    Error::expect(operator, "rows that are destinations", destinations, most)?;
    let of_vectors = [
        "rows of the attention vectors",
        "columns of the attention vectors",
    ];
    expect_shape(operator, of_vectors, (2, x.columns()), vectors)?;
    let ends = what.into_iter().zip([destinations, x.rows()]).zip(numbers);
    for ((what, rows), numbers) in ends {
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
