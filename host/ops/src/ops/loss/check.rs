//! Which operands the loss and the counts take.

use super::{CountCorrectOperands, CrossEntropyOperands};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::expect_shape;
use crate::tensor::{Element, Matrix};

impl<B: Storage, E: Element> Operator for CrossEntropyOperands<'_, B, E> {
    const NAME: &'static str = "cross_entropy";

    fn check(&self) -> Result<(), Error> {
        let logits = self.logits;
        Error::expect(Self::NAME, "targets", logits.rows(), self.targets.len())?;
        let what = ["rows of the gradient", "columns of the gradient"];
        expect_shape(Self::NAME, what, logits.shape(), self.gradient)?;
        Error::expect(Self::NAME, "loss", 1, self.loss.len())?;
        expect_classes(Self::NAME, logits)?;
        if self.count == 0 {
            return Err(Error::Unsupported {
                operator: Self::NAME,
                reason: "no row has a target".into(),
            });
        }
        Ok(())
    }
}

impl<B: Storage, E: Element> Operator for CountCorrectOperands<'_, B, E> {
    const NAME: &'static str = "count_correct";

    fn check(&self) -> Result<(), Error> {
        let rows = self.logits.rows();
        Error::expect(Self::NAME, "labels", rows, self.labels.len())?;
        Error::expect(Self::NAME, "splits", rows, self.splits.len())?;
        Error::expect(Self::NAME, "counts", 3, self.correct.len())?;
        expect_classes(Self::NAME, self.logits)
    }
}

/// Refuses logits without a class: nothing could be right, and a loss has no meaning.
fn expect_classes<B: Storage, E: Element>(
    operator: &'static str,
    logits: &Matrix<B, E>,
) -> Result<(), Error> {
    if logits.columns() == 0 {
        return Err(Error::Unsupported {
            operator,
            reason: "the logits have no columns, one a class".into(),
        });
    }
    Ok(())
}
