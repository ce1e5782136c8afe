//! What metrics are made of, in addition to the counts of [`loss`](super::count_classes): a few numbers, so that
//! nothing as long as the predictions leaves the device.
//!
//! | metric | made of |
//! |---|---|
//! | mean absolute error, root mean squared error, R² | [`sum_errors`] |
//! | area under the receiver's curve | [`sum_ranks`], [`RankSum::Concordant`] |
//! | average precision | [`RankSum::Precisions`] |
//! | mean reciprocal rank | [`RankSum::ReciprocalRanks`] |
//! | hits at K | [`RankSum::Hits`] |

mod check;
mod cpu;
mod errors;
mod gpu;
mod pairs;
mod ranking;

pub use errors::{ERRORS, SumErrorsOperands, sum_errors};
pub use pairs::{ScorePairsOperands, score_pairs};
pub use ranking::{
    RANKS, RankKeysOperands, RankSum, Ranking, Ranks, Scores, SumRanksOperands, sum_ranks,
};

use super::Checked;
use crate::backend::Storage;
use crate::error::Error;
use crate::tensor::Element;

/// What metrics are made of.
pub trait MetricsOperators: Storage {
    /// Sums of errors by column and split: see [`sum_errors`].
    ///
    /// # Errors
    /// Those of the device.
    fn sum_errors<E: Element>(
        &self,
        operands: Checked<SumErrorsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Dot products of pairs of rows: see [`score_pairs`].
    ///
    /// # Errors
    /// Those of the device.
    fn score_pairs<E: Element>(
        &self,
        operands: Checked<ScorePairsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Words that order as scores do: the first part of [`sum_ranks`].
    ///
    /// # Errors
    /// Those of the device.
    fn rank_keys<E: Element>(
        &self,
        operands: Checked<RankKeysOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// Sums over items in order: the last part of [`sum_ranks`].
    ///
    /// # Errors
    /// Those of the device.
    fn sum_ranks(&self, operands: Checked<SumRanksOperands<'_, Self>>) -> Result<(), Error>;
}
