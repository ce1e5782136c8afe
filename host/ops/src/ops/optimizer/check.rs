//! Which operands a step of the optimiser takes.

use super::{CheckFiniteOperands, ClipNormOperands, UpdateOperands};
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

/// Refuses a limit that nothing can be clipped to.
fn expect_limit(operator: &'static str, limit: f32) -> Result<(), Error> {
    match limit > 0.0 {
        true => Ok(()),
        false => Err(Error::Unsupported {
            operator,
            reason: format!("gradients cannot be clipped to {limit}; take a number above 0"),
        }),
    }
}

impl<B: Storage> Operator for ClipNormOperands<'_, B> {
    const NAME: &'static str = "clip_norm";

    fn check(&self) -> Result<(), Error> {
        expect_limit(Self::NAME, self.maximum)
    }
}

impl<B: Storage, E: Element> Operator for UpdateOperands<'_, '_, B, E> {
    const NAME: &'static str = "update";

    fn check(&self) -> Result<(), Error> {
        if let Some(limit) = self.clip_value {
            expect_limit(Self::NAME, limit)?;
        }
        for parameter in self.parameters.iter() {
            let shape = parameter.master.shape();
            let what = ["rows of the gradient", "columns of the gradient"];
            expect_shape(Self::NAME, what, shape, parameter.gradient)?;
            let moments = [
                (
                    &parameter.first_moment,
                    ["rows of the first moment", "columns of the first moment"],
                ),
                (
                    &parameter.second_moment,
                    ["rows of the second moment", "columns of the second moment"],
                ),
            ];
            for (moment, what) in moments.into_iter().take(self.optimizer.moments()) {
                let Some(moment) = moment else {
                    return Err(Error::Unsupported {
                        operator: Self::NAME,
                        reason: format!(
                            "{} keeps {} moments of a parameter, and one has less",
                            self.optimizer,
                            self.optimizer.moments()
                        ),
                    });
                };
                expect_shape(Self::NAME, what, shape, moment)?;
            }
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
