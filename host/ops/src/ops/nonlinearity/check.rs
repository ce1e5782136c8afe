//! Which operands activation functions take.

use super::{NonlinearityBackwardOperands, NonlinearityOperands};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{expect_bias, expect_shape};
use crate::tensor::Element;

impl<B: Storage, E: Element> Operator for NonlinearityOperands<'_, B, E> {
    const NAME: &'static str = "nonlinearity";

    fn check(&self) -> Result<(), Error> {
        if let Some(x) = self.x {
            expect_shape(Self::NAME, ["rows of y", "columns of y"], x.shape(), self.y)?;
        }
        expect_bias(Self::NAME, self.y.columns(), self.bias)
    }
}

impl<B: Storage, E: Element> Operator for NonlinearityBackwardOperands<'_, B, E> {
    const NAME: &'static str = "nonlinearity_backward";

    fn check(&self) -> Result<(), Error> {
        let what = ["rows of the gradient", "columns of the gradient"];
        expect_shape(Self::NAME, what, self.of.shape(), self.d)
    }
}
