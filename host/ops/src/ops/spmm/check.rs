//! Which operands an SpMM takes.

use super::{
    Accumulate, EdgeWeights, NAME, Scaling, Schedule, Spmm, SpmmOperands, SpmmPolicy, Write,
};
use crate::backend::{Adjacency, Storage};
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{
    expect_bias, expect_columns, expect_edges, expect_epsilon, expect_len, expect_shape,
};
use crate::tensor::{Element, Matrix};

impl<B: Storage, E: Element> Operator for SpmmOperands<'_, B, E> {
    const NAME: &'static str = NAME;

    fn check(&self) -> Result<(), Error> {
        let SpmmOperands { a, op, x, y } = self;
        let what = ["rows of x", "columns of x"];
        expect_shape(NAME, what, (a.columns(), y.columns()), x)?;
        check_op(NAME, a, op, x.columns(), y)
    }
}

/// What does not depend on how the input, of `features` columns, lies in memory.
pub(super) fn check_op<B: Storage, E: Element>(
    operator: &'static str,
    a: &Adjacency<B>,
    op: &Spmm<'_, B, E>,
    features: usize,
    y: &Matrix<B, E>,
) -> Result<(), Error> {
    let what = ["rows of y", "columns of y"];
    expect_shape(operator, what, (a.rows(), features), y)?;
    expect_arithmetic::<E>(operator, op.policy)?;
    if let Schedule::RowIds | Schedule::RowIdsInTurn = op.policy.schedule {
        a.expect_all_edges("are not summed up by row ids, of which the last are no row's")?;
    }
    match op.weights {
        EdgeWeights::Ones => {}
        EdgeWeights::Features(weights) => {
            Error::expect(operator, "edge weights", a.edges(), weights.len())?
        }
        EdgeWeights::Planes { values, heads } => {
            expect_columns::<E>(operator, heads, features)?;
            expect_edges(operator, "edge weights", heads, a, values)?;
        }
        EdgeWeights::Columns(scale) => {
            Error::expect(operator, "column factors", a.columns(), scale.len())?
        }
        EdgeWeights::Attention(of) => {
            expect_columns::<E>(operator, of.heads, features)?;
            of.check(operator, a)?;
        }
    }
    expect_len(operator, "row factors", a.rows(), op.row_scale)?;
    if let Some(addend) = op.epilogue.addend {
        // More rows than the product has are not read.
        let rows = addend.matrix.rows().min(a.rows());
        Error::expect(operator, "rows of the addend", a.rows(), rows)?;
        let columns = addend.matrix.columns();
        Error::expect(operator, "columns of the addend", features, columns)?;
        expect_epsilon(operator, addend.epsilon)?;
        let what = "row factors of the addend";
        expect_len(operator, what, a.rows(), addend.row_scale)?;
    }
    if let Some(positive) = op.epilogue.positive {
        let what = ["rows of the ReLU's output", "columns of the ReLU's output"];
        let rows = positive.rows().max(a.rows());
        expect_shape(operator, what, (rows, features), positive)?;
    }
    expect_bias(operator, features, op.epilogue.bias)
}

/// Refuses what would be added up in elements that have no arithmetic.
fn expect_arithmetic<E: Element>(operator: &'static str, policy: SpmmPolicy) -> Result<(), Error> {
    let wanted = policy.accumulate == Accumulate::Half
        || policy.scaling != Scaling::Discretized
        || policy.write == Write::Atomic;
    match E::PRECISION.without_arithmetic(wanted) {
        Some(reason) => Err(Error::Unsupported { operator, reason }),
        None => Ok(()),
    }
}
