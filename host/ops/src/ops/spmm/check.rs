//! Which operands an SpMM takes.

use super::{Accumulate, EdgeWeights, NAME, Scaling, SpmmOperands, SpmmPolicy, Write};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{
    expect_bias, expect_columns, expect_edges, expect_epsilon, expect_len, expect_shape,
};
use crate::tensor::Element;

impl<B: Storage, E: Element> Operator for SpmmOperands<'_, B, E> {
    const NAME: &'static str = NAME;

    fn check(&self) -> Result<(), Error> {
        let SpmmOperands { a, op, x, y } = self;
        let what = ["rows of x", "columns of x"];
        expect_shape(NAME, what, (a.columns(), y.columns()), x)?;
        let what = ["rows of y", "columns of y"];
        expect_shape(NAME, what, (a.rows(), x.columns()), y)?;
        expect_arithmetic::<E>(op.policy)?;
        match op.weights {
            EdgeWeights::Ones => {}
            EdgeWeights::Features(weights) => {
                Error::expect(NAME, "edge weights", a.edges(), weights.len())?
            }
            EdgeWeights::Planes { values, heads } => {
                expect_columns::<E>(NAME, heads, x.columns())?;
                expect_edges(NAME, "edge weights", heads, a, values)?;
            }
            EdgeWeights::Columns(scale) => {
                Error::expect(NAME, "column factors", a.columns(), scale.len())?
            }
            EdgeWeights::Attention(of) => {
                expect_columns::<E>(NAME, of.heads, x.columns())?;
                of.check(NAME, a)?;
            }
        }
        expect_len(NAME, "row factors", a.rows(), op.row_scale)?;
        if let Some(addend) = op.epilogue.addend {
            // More rows than the product has are not read.
            let rows = addend.matrix.rows().min(a.rows());
            Error::expect(NAME, "rows of the addend", a.rows(), rows)?;
            let columns = addend.matrix.columns();
            Error::expect(NAME, "columns of the addend", x.columns(), columns)?;
            expect_epsilon(NAME, addend.epsilon)?;
            let what = "row factors of the addend";
            expect_len(NAME, what, a.rows(), addend.row_scale)?;
        }
        expect_bias(NAME, x.columns(), op.epilogue.bias)
    }
}

/// Refuses what would be added up in elements that have no arithmetic.
fn expect_arithmetic<E: Element>(policy: SpmmPolicy) -> Result<(), Error> {
    let wanted = policy.accumulate == Accumulate::Half
        || policy.scaling != Scaling::Discretized
        || policy.write == Write::Atomic;
    match E::PRECISION.without_arithmetic(wanted) {
        Some(reason) => Err(Error::Unsupported {
            operator: NAME,
            reason,
        }),
        None => Ok(()),
    }
}
