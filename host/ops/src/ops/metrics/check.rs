//! Which operands the operators of metrics take.

use super::{
    RANKS, RankKeysOperands, ScorePairsOperands, Scores, SumErrorsOperands, SumRanksOperands,
};
use crate::backend::Storage;
use crate::error::Error;
use crate::ops::Operator;
use crate::ops::check::expect_shape;
use crate::tensor::Element;
use halfgnn_contract::metrics::{COLUMN_SUMS, MOST_COLUMNS, POSITIVE, SPLITS};

impl<B: Storage, E: Element> Operator for SumErrorsOperands<'_, B, E> {
    const NAME: &'static str = "sum_errors";

    fn check(&self) -> Result<(), Error> {
        let predictions = self.predictions;
        let what = ["rows of the targets", "columns of the targets"];
        expect_shape(Self::NAME, what, predictions.shape(), self.targets)?;
        Error::expect(Self::NAME, "splits", predictions.rows(), self.splits.len())?;
        let sums = COLUMN_SUMS as usize * predictions.columns();
        Error::expect(Self::NAME, "sums", sums, self.sums.len())
    }
}

impl<B: Storage, E: Element> Operator for ScorePairsOperands<'_, B, E> {
    const NAME: &'static str = "score_pairs";

    fn check(&self) -> Result<(), Error> {
        Error::expect(
            Self::NAME,
            "columns of b",
            self.a.columns(),
            self.b.columns(),
        )?;
        let pairs = self.firsts.len();
        Error::expect(Self::NAME, "seconds", pairs, self.seconds.len())?;
        Error::expect(Self::NAME, "scores", pairs, self.scores.len())
    }
}

impl<B: Storage, E: Element> Operator for RankKeysOperands<'_, B, E> {
    const NAME: &'static str = "sum_ranks";

    fn check(&self) -> Result<(), Error> {
        match self.scores {
            Scores::Labels { logits, targets } => {
                let what = ["rows of the targets", "columns of the targets"];
                expect_shape(Self::NAME, what, logits.shape(), targets)?;
            }
            Scores::Classes { logits, labels } => {
                Error::expect(Self::NAME, "labels", logits.rows(), labels.len())?;
            }
            Scores::Given { scores, positives } => {
                Error::expect(Self::NAME, "positives", scores.len(), positives.len())?;
            }
        }
        let columns = [self.first_column, self.columns, self.scores.columns()];
        let items = expect_items(Self::NAME, self.list.len(), self.begins, columns)?;
        Error::expect(Self::NAME, "keys", items, self.keys.len())?;
        Error::expect(Self::NAME, "segments", items, self.segments.len())
    }
}

impl<B: Storage> Operator for SumRanksOperands<'_, B> {
    const NAME: &'static str = "sum_ranks";

    fn check(&self) -> Result<(), Error> {
        let columns = [self.first_column, self.columns, self.all_columns];
        let items = expect_items(Self::NAME, self.listed, self.begins, columns)?;
        Error::expect(Self::NAME, "keys", items, self.keys.len())?;
        Error::expect(Self::NAME, "segments", items, self.segments.len())?;
        let sums = self.of.len() * self.all_columns * SPLITS as usize * RANKS;
        Error::expect(Self::NAME, "sums", sums, self.sums.len())
    }
}

/// The items of a number of columns of a list, from a first one on, of all there are.
fn expect_items(
    operator: &'static str,
    listed: usize,
    [second, third]: [u32; 2],
    [first, columns, all]: [usize; 3],
) -> Result<usize, Error> {
    let items = columns.checked_mul(listed);
    let fits = items.filter(|&items| {
        columns <= MOST_COLUMNS as usize
            && first.checked_add(columns).is_some_and(|end| end <= all)
            && listed < POSITIVE as usize
            && u32::try_from(items).is_ok()
            && second <= third
            && third as usize <= listed
    });
    fits.ok_or_else(|| Error::Unsupported {
        operator,
        reason: format!(
            "{columns} columns from column {first} of {all}, and splits that begin at {second} and {third} of {listed} rows"
        ),
    })
}
