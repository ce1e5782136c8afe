//! Which operands element-wise operators take.

use super::{
    ActivateBackwardOperands, ActivateOperands, Activation, ColumnSumsOperands, DropRowsOperands,
    Dropout, MultiplyOperands, SumPartsOperands,
};
use crate::backend::{Floats, Storage};
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{expect_bias, expect_len, expect_shape};
use crate::tensor::Element;

const Y: [&str; 2] = ["rows of y", "columns of y"];

impl<B: Storage, E: Element> Operator for ActivateOperands<'_, B, E> {
    const NAME: &'static str = "activate";

    fn check(&self) -> Result<(), Error> {
        match (self.x, self.order) {
            (Some(x), Some(order)) if !self.sum => {
                expect_shape(Self::NAME, Y, (order.len(), x.columns()), self.y)?;
                self.y.expect_contiguous(Self::NAME)?;
            }
            (_, Some(_)) => {
                return Err(Error::Unsupported {
                    operator: Self::NAME,
                    reason:
                        "rows that are picked want a matrix to pick them from, and are added to nothing"
                            .into(),
                });
            }
            (Some(x), None) if self.sum => {
                let rows = x.rows().min(self.y.rows());
                expect_shape(Self::NAME, Y, (rows, x.columns()), self.y)?;
            }
            (Some(x), None) => expect_shape(Self::NAME, Y, x.shape(), self.y)?,
            (None, None) if self.sum => {
                return Err(Error::Unsupported {
                    operator: Self::NAME,
                    reason: "a sum of two matrices wants both".into(),
                });
            }
            (None, None) => {}
        }
        expect_activation(Self::NAME, self.op, self.y.columns())
    }
}

impl<B: Storage, E: Element> Operator for MultiplyOperands<'_, B, E> {
    const NAME: &'static str = "multiply";

    fn check(&self) -> Result<(), Error> {
        expect_shape(Self::NAME, Y, self.by.shape(), self.y)?;
        if let Some(x) = self.x {
            let what = ["rows of x", "columns of x"];
            expect_shape(Self::NAME, what, self.by.shape(), x)?;
        }
        let mut all = self.x.into_iter().chain([self.by, &*self.y]);
        all.try_for_each(|matrix| matrix.expect_contiguous(Self::NAME))
    }
}

impl<B: Storage, E: Element> Operator for ActivateBackwardOperands<'_, B, E> {
    const NAME: &'static str = "activate_backward";

    fn check(&self) -> Result<(), Error> {
        expect_activation(Self::NAME, self.op, self.d.columns())?;
        match self.y {
            Some(y) => {
                let rows = y.rows().max(self.d.rows());
                expect_shape(Self::NAME, Y, (rows, self.d.columns()), y)?;
            }
            None if self.op.relu => {
                let reason = "the gradient of a ReLU wants the output of the forward pass".into();
                return Err(Error::Unsupported {
                    operator: Self::NAME,
                    reason,
                });
            }
            None => {}
        }
        expect_len(Self::NAME, "row factors", self.d.rows(), self.row_scale)
    }
}

impl<B: Storage, E: Element> Operator for DropRowsOperands<'_, B, E> {
    const NAME: &'static str = "drop_rows";

    fn check(&self) -> Result<(), Error> {
        let rows = self.y.rows();
        Error::expect(Self::NAME, "numbers of rows", rows, self.vertices.len())?;
        expect_dropout(Self::NAME, Some(self.dropout))
    }
}

impl<B: Storage, E: Element> Operator for ColumnSumsOperands<'_, B, E> {
    const NAME: &'static str = "column_sums";

    fn check(&self) -> Result<(), Error> {
        let what = ["rows of the sums", "columns of the sums"];
        expect_shape(Self::NAME, what, (1, self.x.columns()), self.sums)
    }
}

impl<B: Storage> Operator for SumPartsOperands<'_, B> {
    const NAME: &'static str = "sum_parts";

    fn check(&self) -> Result<(), Error> {
        if let Floats::Matrix(sums) = &self.sums {
            sums.expect_contiguous(Self::NAME)?;
        }
        let len = self.count.saturating_mul(self.sums.len());
        Error::expect(Self::NAME, "floats of the parts", len, self.parts.len())
    }
}

fn expect_activation<B: Storage>(
    operator: &'static str,
    op: &Activation<'_, B>,
    columns: usize,
) -> Result<(), Error> {
    expect_bias(operator, columns, op.bias)?;
    expect_dropout(operator, op.dropout)
}

/// Refuses a probability that is none, and one that leaves nothing.
pub(crate) fn expect_dropout<B: Storage>(
    operator: &'static str,
    dropout: Option<Dropout<'_, B>>,
) -> Result<(), Error> {
    match dropout {
        Some(dropout) if !(0.0..1.0).contains(&dropout.probability) => Err(Error::Unsupported {
            operator,
            reason: format!(
                "dropout probability {} is not in [0, 1)",
                dropout.probability
            ),
        }),
        _ => Ok(()),
    }
}
