//! Which operands the loss and the counts take.

use super::{
    CountClassesOperands, CountCorrectOperands, CountLabelsOperands, CrossEntropyOperands,
    ElementLoss, ElementLossOperands, OUTCOMES,
};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::{expect_len, expect_shape};
use crate::tensor::{Array, Element, Matrix};

impl<B: Storage, E: Element> Operator for CrossEntropyOperands<'_, B, E> {
    const NAME: &'static str = "cross_entropy";

    fn check(&self) -> Result<(), Error> {
        let logits = self.logits;
        Error::expect(Self::NAME, "targets", logits.rows(), self.targets.len())?;
        let what = ["rows of the gradient", "columns of the gradient"];
        expect_shape(Self::NAME, what, logits.shape(), self.gradient)?;
        Error::expect(Self::NAME, "loss", 1, self.loss.len())?;
        expect_classes(Self::NAME, logits)?;
        let columns = logits.columns();
        expect_len(Self::NAME, "class weights", columns, self.weights)?;
        expect_len(Self::NAME, "row weights", logits.rows(), self.row_weights)?;
        expect_divisor(Self::NAME, self.divisor, self.weights.is_some())
    }
}

impl<B: Storage, E: Element> Operator for ElementLossOperands<'_, B, E> {
    const NAME: &'static str = "element_loss";

    fn check(&self) -> Result<(), Error> {
        let logits = self.logits;
        let what = ["rows of the targets", "columns of the targets"];
        expect_shape(Self::NAME, what, logits.shape(), self.targets)?;
        Error::expect(Self::NAME, "rows", logits.rows(), self.rows.len())?;
        let what = ["rows of the gradient", "columns of the gradient"];
        expect_shape(Self::NAME, what, logits.shape(), self.gradient)?;
        Error::expect(Self::NAME, "loss", 1, self.loss.len())?;
        expect_classes(Self::NAME, logits)?;
        if let ElementLoss::BinaryCrossEntropy { positive_weights } = self.kind {
            let columns = logits.columns();
            expect_len(Self::NAME, "positive weights", columns, positive_weights)?;
        }
        expect_len(Self::NAME, "row weights", logits.rows(), self.row_weights)?;
        expect_divisor(Self::NAME, self.divisor, false)
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

impl<B: Storage, E: Element> Operator for CountClassesOperands<'_, B, E> {
    const NAME: &'static str = "count_classes";

    fn check(&self) -> Result<(), Error> {
        let rows = self.logits.rows();
        Error::expect(Self::NAME, "labels", rows, self.labels.len())?;
        Error::expect(Self::NAME, "splits", rows, self.splits.len())?;
        expect_counts(Self::NAME, self.logits, self.counts)
    }
}

impl<B: Storage, E: Element> Operator for CountLabelsOperands<'_, B, E> {
    const NAME: &'static str = "count_labels";

    fn check(&self) -> Result<(), Error> {
        let what = ["rows of the targets", "columns of the targets"];
        expect_shape(Self::NAME, what, self.logits.shape(), self.targets)?;
        Error::expect(Self::NAME, "splits", self.logits.rows(), self.splits.len())?;
        expect_counts(Self::NAME, self.logits, self.counts)
    }
}

/// Outcomes of three splits, of every column.
fn expect_counts<B: Storage, E: Element>(
    operator: &'static str,
    logits: &Matrix<B, E>,
    counts: &Array<B, u32>,
) -> Result<(), Error> {
    let expected = 3 * OUTCOMES * logits.columns();
    Error::expect(operator, "counts", expected, counts.len())?;
    expect_classes(operator, logits)
}

/// Refuses a mean of nothing.
fn expect_divisor(operator: &'static str, divisor: f32, weighted: bool) -> Result<(), Error> {
    if divisor > 0.0 && divisor.is_finite() {
        return Ok(());
    }
    let reason = match weighted {
        true => format!(
            "the weights of the rows with a target add up to {divisor}, which is not positive"
        ),
        false => "no row has a target".into(),
    };
    Err(Error::Unsupported { operator, reason })
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
