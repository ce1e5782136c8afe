//! Sums over scores in order, of which the metrics of ranks are made.

use super::MetricsOperators;
use crate::backend::{MemoryKind, Storage};
use crate::error::Error;
use crate::ops::{Checked, SortOperators, sort_pairs};
use crate::tensor::{Array, Element, Matrix};
use halfgnn_contract::metrics::{self as contract, RANK_WORDS, SPLITS};
use halfgnn_contract::sort::bits_below;

/// Items that are put in order at once, if one column has not more: 16 bytes each, and half as much of the workspace.
const ITEMS_AT_ONCE: usize = 1 << 22;

/// What is ranked of the rows of a list: a score of each, and which of them are positives, in one column or several.
#[derive(Debug)]
pub enum Scores<'a, B: Storage, E: Element> {
    /// Elements, a column a label; positive where the target is above a half.
    Labels {
        /// A row a vertex.
        logits: &'a Matrix<B, E>,
        /// Of the same shape.
        targets: &'a Matrix<B, f32>,
    },
    /// Shares by softmax, a column a class; positive where the class is the column. Of two classes there is one column,
    /// that of the second.
    Classes {
        /// A row a vertex.
        logits: &'a Matrix<B, E>,
        /// A class a row.
        labels: &'a Array<B, u32>,
    },
    /// Numbers, in one column; positive where the word is 1.
    Given {
        /// A score a row.
        scores: &'a Array<B, E>,
        /// A word a row.
        positives: &'a Array<B, u32>,
    },
}

impl<B: Storage, E: Element> Clone for Scores<'_, B, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage, E: Element> Copy for Scores<'_, B, E> {}

impl<B: Storage, E: Element> Scores<'_, B, E> {
    /// How many columns are ranked.
    pub fn columns(&self) -> usize {
        match self {
            Self::Classes { logits, .. } if logits.columns() == 2 => 1,
            Self::Classes { logits, .. } | Self::Labels { logits, .. } => logits.columns(),
            Self::Given { .. } => 1,
        }
    }

    /// How many rows there are scores of.
    pub fn rows(&self) -> usize {
        match self {
            Self::Classes { logits, .. } | Self::Labels { logits, .. } => logits.rows(),
            Self::Given { scores, .. } => scores.len(),
        }
    }
}

/// A sum over the scores of a segment, the rows of a split in a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum RankSum {
    /// Twice the pairs of a positive and a negative below it, and once those that are tied: of the area under the
    /// receiver's curve. A count.
    Concordant,
    /// The precision at each positive, of all that score as high: of average precision. A double.
    Precisions,
    /// One over the rank of each positive among the negatives, ties half: of the mean reciprocal rank. A double.
    ReciprocalRanks,
    /// The positives above the so manieth of the negatives, all where there are fewer. A count.
    Hits(u32),
}

/// What [`sum_ranks`] says of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ranks {
    /// The sum: a count, or the bits of a double.
    pub sum: u64,
    /// How many are positives.
    pub positives: u64,
    /// Whether a score is a NaN.
    pub has_nan: bool,
}

impl Ranks {
    /// From the words of a segment.
    pub const fn from_words([sum, positives, nan]: [u64; RANKS]) -> Self {
        Self {
            sum,
            positives,
            has_nan: nan != 0,
        }
    }
}

/// Words of a segment's [`Ranks`].
pub const RANKS: usize = RANK_WORDS as usize;

/// Rows by split, and the memory in which their scores are put in order.
#[derive(Debug)]
pub struct Ranking<B: Storage> {
    /// The rows of the first split, then of the second, then of the third.
    pub(crate) list: Array<B, u32>,
    /// Where in the list the second split begins, and the third.
    pub(crate) begins: [u32; 2],
    /// How many columns are ranked at once.
    pub(crate) columns: usize,
    /// Buffers of a word an item.
    keys: Array<B, u32>,
    segments: Array<B, u32>,
    sorted_keys: Array<B, u32>,
    sorted_segments: Array<B, u32>,
}

impl<B: SortOperators> Ranking<B> {
    /// For the rows of three splits, whose scores have a number of columns.
    ///
    /// # Errors
    /// [`Error::Unsupported`] for 2³¹ rows or more, [`Error::Driver`] where there is not enough memory.
    pub fn new(backend: &B, splits: [&[u32]; 3], columns: usize) -> Result<Self, Error> {
        let rows: usize = splits.iter().map(|rows| rows.len()).sum();
        let at_once = (ITEMS_AT_ONCE / rows.max(1)).min(contract::MOST_COLUMNS as usize);
        Self::of_columns(backend, splits, at_once.max(1).min(columns))
    }

    /// [`Ranking::new`] that takes a number of columns at once of scores that have at least as many.
    ///
    /// # Errors
    /// Those of [`Ranking::new`].
    pub fn of_columns(backend: &B, splits: [&[u32]; 3], columns: usize) -> Result<Self, Error> {
        let list = splits.concat();
        let most = contract::POSITIVE as usize;
        if list.len() >= most {
            return Err(Error::Unsupported {
                operator: "Ranking",
                reason: format!("{} rows; fewer than {most} are told apart", list.len()),
            });
        }
        let room = || Array::zeros(backend, columns * list.len(), MemoryKind::Workspace);
        Ok(Self {
            list: Array::from_slice(backend, &list, MemoryKind::Features)?,
            begins: [
                splits[0].len() as u32,
                (splits[0].len() + splits[1].len()) as u32,
            ],
            columns,
            keys: room()?,
            segments: room()?,
            sorted_keys: room()?,
            sorted_segments: room()?,
        })
    }

    /// Rows of the list.
    pub fn rows(&self) -> usize {
        self.list.len()
    }
}

/// Sums over the scores of each split in order, column by column, ties as one.
///
/// `sums` has of each of `of`, of each column, of each split the [`RANKS`] words of [`Ranks`]. Scores are compared as
/// floats: zeros of either sign are tied. Shares by softmax are compared by their log-odds, so that those next to 0 and
/// 1 stay apart. Counts are exact, and sums in double have one order: the bits are the same on every backend. A row of
/// the list that there is not has a NaN for a score.
///
/// On a GPU it borrows what [`sort_pairs`] does.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit one another or `ranking`.
pub fn sum_ranks<B: MetricsOperators + SortOperators, E: Element>(
    backend: &B,
    scores: Scores<'_, B, E>,
    of: &[RankSum],
    ranking: &mut Ranking<B>,
    sums: &mut Array<B, u64>,
) -> Result<(), Error> {
    let (all_columns, columns) = (scores.columns(), ranking.columns);
    for first in (0..all_columns).step_by(columns.max(1)) {
        // The last ones again, where fewer are left: the buffers stay as long as they are.
        let first_column = first.min(all_columns.saturating_sub(columns));
        backend.rank_keys(Checked::new(RankKeysOperands {
            scores,
            list: &ranking.list,
            begins: ranking.begins,
            first_column,
            columns,
            keys: &mut ranking.keys,
            segments: &mut ranking.segments,
        })?)?;
        let by_score = (&mut ranking.sorted_keys, &mut ranking.sorted_segments);
        let (keys, segments) = (&ranking.keys, &ranking.segments);
        sort_pairs(backend, keys, Some(segments), 32, by_score.0, by_score.1)?;
        let bits = bits_below(columns as u64 * u64::from(SPLITS));
        let (keys, segments) = (&mut ranking.keys, &mut ranking.segments);
        let by_score = (&ranking.sorted_keys, &ranking.sorted_segments);
        sort_pairs(backend, by_score.1, Some(by_score.0), bits, segments, keys)?;
        backend.sum_ranks(Checked::new(SumRanksOperands {
            of,
            keys: &ranking.keys,
            segments: &ranking.segments,
            listed: ranking.rows(),
            begins: ranking.begins,
            first_column,
            columns,
            all_columns,
            sums,
        })?)?;
    }
    Ok(())
}

/// Operands of the first part of [`sum_ranks`]: words that order as scores do.
#[derive(Debug)]
pub struct RankKeysOperands<'a, B: Storage, E: Element> {
    /// What is ranked.
    pub scores: Scores<'a, B, E>,
    /// The rows by split.
    pub list: &'a Array<B, u32>,
    /// Where in the list the second split begins, and the third.
    pub begins: [u32; 2],
    /// The first of the columns that are ranked.
    pub first_column: usize,
    /// How many are.
    pub columns: usize,
    /// Become the keys: of each column, of each of the list.
    pub keys: &'a mut Array<B, u32>,
    /// Become the segments, in the lowest bits, with the highest bit of positives.
    pub segments: &'a mut Array<B, u32>,
}

/// Operands of the last part of [`sum_ranks`]: sums over items in order.
#[derive(Debug)]
pub struct SumRanksOperands<'a, B: Storage> {
    /// Which sums.
    pub of: &'a [RankSum],
    /// The keys in the order of segments, in each of which they ascend.
    pub keys: &'a Array<B, u32>,
    /// The segments of the keys, with the highest bit of positives.
    pub segments: &'a Array<B, u32>,
    /// Items of a column.
    pub listed: usize,
    /// Where in a column the second split begins, and the third.
    pub begins: [u32; 2],
    /// The first of the columns that are ranked.
    pub first_column: usize,
    /// How many are.
    pub columns: usize,
    /// Columns that there are sums of.
    pub all_columns: usize,
    /// Become the sums, of these columns.
    pub sums: &'a mut Array<B, u64>,
}
