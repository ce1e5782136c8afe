//! Which operands a step of the optimiser takes.

use super::{AdamOperands, CheckFiniteOperands};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::expect_shape;
use crate::tensor::Element;

impl<B: Storage> Operator for CheckFiniteOperands<'_, B> {
    const NAME: &'static str = "check_finite";

    fn check(&self) -> Result<(), Error> {
        Ok(())
    }
}

impl<B: Storage, E: Element> Operator for AdamOperands<'_, '_, B, E> {
    const NAME: &'static str = "adam";

    fn check(&self) -> Result<(), Error> {
        for parameter in self.parameters.iter() {
            let shape = parameter.master.shape();
            let what = ["rows of the gradient", "columns of the gradient"];
            expect_shape(Self::NAME, what, shape, parameter.gradient)?;
            let what = ["rows of the first moment", "columns of the first moment"];
            expect_shape(Self::NAME, what, shape, parameter.first_moment)?;
            let what = ["rows of the second moment", "columns of the second moment"];
            expect_shape(Self::NAME, what, shape, parameter.second_moment)?;
            if let Some(rounded) = &parameter.rounded {
                let what = [
                    "rows of the rounded weights",
                    "columns of the rounded weights",
                ];
                expect_shape(Self::NAME, what, shape, rounded)?;
            }
        }
        Ok(())
    }
}
