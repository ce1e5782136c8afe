//! Which operands SDDMMs take.

use super::{CombineEdgesOperands, EdgeOperand, SddmmOperands};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::check::{
    expect_columns, expect_edges, expect_heads, expect_shape, expect_vertices,
};
use crate::ops::{Accumulate, Operator};
use crate::tensor::Element;

impl<B: Storage, E: Element> Operator for SddmmOperands<'_, B, E> {
    const NAME: &'static str = "sddmm";

    fn check(&self) -> Result<(), Error> {
        let SddmmOperands { a, op, u, v, e } = self;
        let what = ["rows of u", "columns of u"];
        expect_shape(Self::NAME, what, (a.rows(), u.columns()), u)?;
        let what = ["rows of v", "columns of v"];
        expect_shape(Self::NAME, what, (a.columns(), u.columns()), v)?;
        expect_columns::<E>(Self::NAME, op.heads, u.columns())?;
        let in_half = op.policy.accumulate == Accumulate::Half;
        if let Some(reason) = E::PRECISION.without_arithmetic(in_half) {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason,
            });
        }
        if op.policy.hybrid && op.policy.ctas_per_multiprocessor.is_some() {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "CTAs for each multiprocessor, and the hybrid partition, whose inequality says how many; leave one of the two away"
                    .into(),
            });
        }
        expect_edges(Self::NAME, "edge values", op.heads, a, e)
    }
}

impl<B: Storage, E: Element> Operator for CombineEdgesOperands<'_, B, E> {
    const NAME: &'static str = "combine_edges";

    fn check(&self) -> Result<(), Error> {
        let (a, heads) = (self.a, self.heads);
        expect_heads(Self::NAME, heads)?;
        let expect = |name: &'static str, operand: &EdgeOperand<'_, B, E>| match operand {
            EdgeOperand::Row(values) => expect_vertices(Self::NAME, name, heads, a.rows(), values),
            EdgeOperand::Column(values) => {
                expect_vertices(Self::NAME, name, heads, a.columns(), values)
            }
            EdgeOperand::Edge(values) => expect_edges(Self::NAME, name, heads, a, values),
        };
        let (left, right) = self.op.operands();
        expect("the first operand", left)?;
        right.map_or(Ok(()), |right| expect("the second operand", right))?;
        expect_edges(Self::NAME, "edge values", heads, a, self.e)
    }
}
