//! Which operands a product takes.

use super::{Form, MatmulOperands, QuantizedMatmulOperands};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::check::{expect_bias, expect_len, expect_shape};
use crate::ops::elementwise::check::expect_dropout;
use crate::ops::normalize::check::expect_normalization;
use crate::ops::{CodeFormat, Operator, QuantizedMatrix};
use crate::tensor::{Element, Matrix, Precision};

impl<B: Storage, E: Element, O: Element> Operator for MatmulOperands<'_, B, E, O> {
    const NAME: &'static str = "matmul";

    fn check(&self) -> Result<(), Error> {
        let (form, a, b) = (self.form, self.a, self.b);
        let (epilogue, fusion) = (self.epilogue, &self.fusion);
        let rows = self.rows_of_a();
        let there = a.rows().max(rows);
        Error::expect(Self::NAME, "rows of a", there, a.rows())?;
        let ((m, k), (k_b, n)) = match form {
            Form::NN => ((rows, a.columns()), b.shape()),
            Form::NT => ((rows, a.columns()), (b.columns(), b.rows())),
            Form::TN => ((a.columns(), rows), b.shape()),
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
        if let Some([a, b]) = fusion.second_pair {
            let plain = form == Form::NN && fusion.normalization.is_none();
            if !plain || E::PRECISION != O::PRECISION {
                return Err(Error::Unsupported {
                    operator: Self::NAME,
                    reason: format!(
                        "a product of the form {form:?} of {} in {} is added to no other one; those of the form NN of one type are, without a normalisation",
                        E::PRECISION,
                        O::PRECISION
                    ),
                });
            }
            let what = ["rows of the second a", "columns of the second a"];
            expect_shape(Self::NAME, what, (a.rows().max(m), b.rows()), a)?;
            Error::expect(Self::NAME, "columns of the second b", n, b.columns())?;
        }
        if let Some(positive) = fusion.positive {
            let what = ["rows of the ReLU's output", "columns of the ReLU's output"];
            let rows = positive.rows().max(m);
            expect_shape(Self::NAME, what, (rows, n), positive)?;
        }
        if let Some(codes) = fusion.positive_codes {
            expect_int8(Self::NAME, codes)?;
            let rows = codes.rows().max(m);
            Error::expect(Self::NAME, "rows of the ReLU's codes", rows, codes.rows())?;
            Error::expect(
                Self::NAME,
                "columns of the ReLU's codes",
                n,
                codes.columns(),
            )?;
            let twice = fusion.positive.is_some();
            if twice || form != Form::NT || O::PRECISION == Precision::Float {
                return Err(Error::Unsupported {
                    operator: Self::NAME,
                    reason: format!(
                        "a product of the form {form:?} in {} takes no codes of a ReLU's output; those of the form NT in half and bfloat16 do, in the place of the output itself",
                        O::PRECISION
                    ),
                });
            }
        }
        let is_coded = fusion.coding.is_some() || fusion.dropout.is_some();
        if fusion.sum && (form != Form::NT || is_coded) {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: format!(
                    "a product of the form {form:?} is added to nothing; one of the form NT is, whose elements are neither coded nor dropped"
                ),
            });
        }
        expect_sums(Self::NAME, b, fusion.column_sums.as_deref())?;
        expect_dropout(Self::NAME, fusion.dropout)?;
        if let Some(coding) = &fusion.coding {
            coding.check(Self::NAME, self.c)?;
        }
        Ok(())
    }
}

impl<B: Storage, E: Element> Operator for QuantizedMatmulOperands<'_, B, E> {
    const NAME: &'static str = "quantized_matmul";

    fn check(&self) -> Result<(), Error> {
        let (a, b) = (self.a, self.b);
        expect_int8(Self::NAME, a)?;
        if E::PRECISION == Precision::Float {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "codes are multiplied by half and bfloat16; take one of those".into(),
            });
        }
        if a.rows() < b.rows() {
            Error::expect(Self::NAME, "rows of the codes", b.rows(), a.rows())?;
        }
        let what = ["rows of c", "columns of c"];
        expect_shape(Self::NAME, what, (a.columns(), b.columns()), self.c)?;
        expect_sums(Self::NAME, b, self.column_sums.as_deref())
    }
}

/// That memory is free for the sums of the columns of `b`, where they are wanted.
fn expect_sums<B: Storage, E: Element>(
    operator: &'static str,
    b: &Matrix<B, E>,
    sums: Option<&Matrix<B, f32>>,
) -> Result<(), Error> {
    let what = ["rows of the sums", "columns of the sums"];
    match sums {
        Some(sums) => expect_shape(operator, what, (1, b.columns()), sums),
        None => Ok(()),
    }
}

/// That quantized values are whole numbers, which is what products widen.
fn expect_int8<B: Storage>(
    operator: &'static str,
    codes: &QuantizedMatrix<B>,
) -> Result<(), Error> {
    match codes.format() {
        CodeFormat::Int8 => Ok(()),
        other => Err(Error::Unsupported {
            operator,
            reason: format!("codes of {}; products are of int8", other.name()),
        }),
    }
}
