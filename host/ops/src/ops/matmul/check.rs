//! Which operands a product takes.

use super::{Form, MatmulOperands};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{expect_bias, expect_len, expect_shape};
use crate::ops::normalize::check::expect_normalization;
use crate::tensor::{Element, Precision};

impl<B: Storage, E: Element, O: Element> Operator for MatmulOperands<'_, B, E, O> {
    const NAME: &'static str = "matmul";

    fn check(&self) -> Result<(), Error> {
        let (form, a, b) = (self.form, self.a, self.b);
        let (epilogue, fusion) = (self.epilogue, &self.fusion);
        let ((m, k), (k_b, n)) = match form {
            Form::NN => (a.shape(), b.shape()),
            Form::NT => (a.shape(), (b.columns(), b.rows())),
            Form::TN => ((a.columns(), a.rows()), b.shape()),
        };
        Error::expect(Self::NAME, "inner dimension of b", k, k_b)?;
        expect_shape(Self::NAME, ["rows of c", "columns of c"], (m, n), self.c)?;
        expect_len(Self::NAME, "row factors", m, epilogue.row_scale)?;
        expect_bias(Self::NAME, n, epilogue.bias)?;
        if let Some(normalization) = fusion.normalization {
            expect_normalization(Self::NAME, normalization, a.columns())?;
            let output = match form {
                Form::NN => Some(E::PRECISION),
                Form::NT => None,
                Form::TN => Some(Precision::Float),
            };
            if output != Some(O::PRECISION) {
                return Err(Error::Unsupported {
                    operator: Self::NAME,
                    reason: format!(
                        "a product of the form {form:?} in {} takes no normalised operand; normalise it before",
                        O::PRECISION
                    ),
                });
            }
        }
        if let Some(positive) = fusion.positive {
            let what = ["rows of the ReLU's output", "columns of the ReLU's output"];
            let rows = positive.rows().max(m);
            expect_shape(Self::NAME, what, (rows, n), positive)?;
        }
        if let Some(sums) = &fusion.column_sums {
            let what = ["rows of the sums", "columns of the sums"];
            expect_shape(Self::NAME, what, (1, b.columns()), sums)?;
        }
        if let Some(coding) = &fusion.coding {
            coding.check(Self::NAME, self.c)?;
        }
        Ok(())
    }
}
