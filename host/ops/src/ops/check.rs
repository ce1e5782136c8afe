//! Checks that operators share.

use super::planes::edge_values;
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::tensor::{Array, Element, Matrix};
use bytemuck::Pod;

/// The most heads of an operator: CTAs in y or z of a grid.
pub const MOST_HEADS: usize = 65_535;

pub(crate) fn expect_shape<B: Storage, E: Element>(
    operator: &'static str,
    operands: [&'static str; 2],
    expected: (usize, usize),
    matrix: &Matrix<B, E>,
) -> Result<(), Error> {
    Error::expect(operator, operands[0], expected.0, matrix.rows())?;
    Error::expect(operator, operands[1], expected.1, matrix.columns())
}

/// That `transposed` may be the transpose of `a`.
pub(crate) fn expect_transposed<B: Storage>(
    operator: &'static str,
    a: &Adjacency<B>,
    transposed: &Adjacency<B>,
) -> Result<(), Error> {
    let counts = [
        (
            "rows of the transposed graph",
            a.columns(),
            transposed.rows(),
        ),
        (
            "columns of the transposed graph",
            a.rows(),
            transposed.columns(),
        ),
        (
            "edges of the transposed graph",
            a.edges(),
            transposed.edges(),
        ),
    ];
    counts
        .into_iter()
        .try_for_each(|(what, expected, found)| Error::expect(operator, what, expected, found))
}

pub(crate) fn expect_len<B: Storage, T: Pod + Send + Sync>(
    operator: &'static str,
    operand: &'static str,
    expected: usize,
    array: Option<&Array<B, T>>,
) -> Result<(), Error> {
    array.map_or(Ok(()), |array| {
        Error::expect(operator, operand, expected, array.len())
    })
}

pub(crate) fn expect_bias<B: Storage>(
    operator: &'static str,
    columns: usize,
    bias: Option<&Matrix<B, f32>>,
) -> Result<(), Error> {
    let what = ["rows of the bias", "columns of the bias"];
    bias.map_or(Ok(()), |bias| {
        expect_shape(operator, what, (1, columns), bias)
    })
}

/// A factor less 1 is a matrix of one element.
pub(crate) fn expect_epsilon<B: Storage>(
    operator: &'static str,
    epsilon: Option<&Matrix<B, f32>>,
) -> Result<(), Error> {
    let what = ["rows of epsilon", "columns of epsilon"];
    epsilon.map_or(Ok(()), |epsilon| {
        expect_shape(operator, what, (1, 1), epsilon)
    })
}

/// Numbers of vertices: a plane of `vertices` a head.
pub(crate) fn expect_vertices<B: Storage, T: Pod + Send + Sync>(
    operator: &'static str,
    operand: &'static str,
    heads: usize,
    vertices: usize,
    numbers: &Array<B, T>,
) -> Result<(), Error> {
    let len = heads.saturating_mul(vertices);
    Error::expect(operator, operand, len, numbers.len())
}

/// Numbers of edges: a plane a head, as [`edge_values`] counts them.
pub(crate) fn expect_edges<B: Storage, T: Pod + Send + Sync>(
    operator: &'static str,
    operand: &'static str,
    heads: usize,
    a: &Adjacency<B>,
    numbers: &Array<B, T>,
) -> Result<(), Error> {
    Error::expect(operator, operand, edge_values(a, heads), numbers.len())
}

/// Refuses no heads, and too many.
pub(crate) fn expect_heads(operator: &'static str, heads: usize) -> Result<(), Error> {
    if (1..=MOST_HEADS).contains(&heads) {
        return Ok(());
    }
    Err(Error::Unsupported {
        operator,
        reason: format!("{heads} heads; 1 to {MOST_HEADS} are possible"),
    })
}

/// Refuses columns that are not `heads` heads of whole vectors. One head may have any width.
pub(crate) fn expect_columns<E: Element>(
    operator: &'static str,
    heads: usize,
    columns: usize,
) -> Result<(), Error> {
    expect_heads(operator, heads)?;
    if heads == 1 || columns.is_multiple_of(heads * E::LANES) {
        return Ok(());
    }
    Err(Error::Unsupported {
        operator,
        reason: format!(
            "{columns} columns cannot be cut into {heads} heads of whole vectors of {} elements",
            E::LANES
        ),
    })
}

/// Refuses features that are not `heads` heads of whole vectors, or have no columns.
pub(crate) fn expect_width<B: Storage, E: Element>(
    operator: &'static str,
    heads: usize,
    features: &Matrix<B, E>,
) -> Result<(), Error> {
    expect_columns::<E>(operator, heads, features.columns())?;
    if features.columns() == 0 {
        return Err(Error::Unsupported {
            operator,
            reason: "the features have no columns".into(),
        });
    }
    Ok(())
}
