//! What metrics are made of, beside counts: sums of errors, and sums over scores in order, by column and split.
//!
//! A first kernel leaves sums of each chunk of rows, which a second one adds up. Sums in double have one order, that of
//! the rows: a thread takes every so manieth row of a chunk, and then the threads of a CTA are added up as
//! [`sum_of_cta`](crate::optimizer::sum_of_cta) does.
//!
//! # Ranks
//! Rows are listed by split. A score becomes a word that orders as it does ([`score_key`]), beside a word that says whether it is of a
//! positive and of which *segment*, a column and a split. A sort by the first and a stable one by the second leave each segment in
//! ascending order at a place that is known beforehand; the sums of positives before each item then tell of every group of equal
//! scores what is above and below it ([`Group`]).

use crate::elementwise::THREADS_PER_CTA;
use crate::format::table;
use crate::math::{exp, ln};
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Splits that rows are told apart by.
pub const SPLITS: u32 = 3;
/// Sums of a column and split: of absolute errors, and of squared ones.
pub const ERRORS: u32 = 2;
/// Sums of a column.
pub const COLUMN_SUMS: u32 = SPLITS * ERRORS;
/// Rows of a chunk, which is a CTA's.
pub const ROWS_PER_CHUNK: u32 = 16 * THREADS_PER_CTA;
/// Bytes of a CTA's double for each warp.
pub const SUM_BYTES: u32 = THREADS_PER_CTA / WARP * 8;
/// Bytes of dynamic shared memory of the sums of errors.
pub const ERROR_SHARED_BYTES: u32 = COLUMN_SUMS * SUM_BYTES;

param_struct! {
    /// Parameters of the sums of errors.
    ///
    /// `sum_errors` wants a CTA for each of `chunks`, `reduce_error_sums` a CTA for each of the `COLUMN_SUMS · columns` results.
    pub struct ErrorParams {
        /// What a model gives, a row a vertex.
        pub predictions: DevicePtr<HalfBits>,
        /// What it should give, in float.
        pub targets: DevicePtr<f32>,
        /// 0, 1 or 2 of each row, or another word: the row is not selected.
        pub splits: DevicePtr<u32>,
        /// Doubles, [`COLUMN_SUMS`] of each column of each chunk: written by the first kernel, read by the second.
        pub partials: DevicePtr<u64>,
        /// Doubles, of each column, of each split, the sums of absolute and of squared errors.
        pub result: DevicePtr<u64>,
        /// Rows.
        pub rows: u64,
        /// Chunks of [`ROWS_PER_CHUNK`] rows.
        pub chunks: u64,
        /// Columns.
        pub columns: u32,
        /// Distance of two rows of `predictions` in elements.
        pub stride: u32,
        /// Distance of two rows of `targets` in floats.
        pub target_stride: u32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Absolute and squared error of a prediction, in double.
#[inline(always)]
pub fn error_terms(prediction: f32, target: f32) -> [f64; ERRORS as usize] {
    let error = prediction as f64 - target as f64;
    [if error < 0.0 { -error } else { error }, error * error]
}

param_struct! {
    /// Parameters of `score_pairs`: `1 << lanes_log2` threads for each pair.
    pub struct PairScoreParams {
        /// Rows that pairs begin in.
        pub a: DevicePtr<HalfBits>,
        /// Rows that they end in; may be `a`.
        pub b: DevicePtr<HalfBits>,
        /// A row of `a` for each pair.
        pub firsts: DevicePtr<u32>,
        /// A row of `b` for each pair.
        pub seconds: DevicePtr<u32>,
        /// A score for each pair; a NaN where there is no such row.
        pub scores: DevicePtr<f32>,
        /// Number of pairs.
        pub pairs: u64,
        /// Rows of `a`.
        pub a_rows: u64,
        /// Rows of `b`.
        pub b_rows: u64,
        /// Distance of two rows of either in 16-byte vectors, all of which are multiplied: padding is zero.
        pub vectors: u32,
        /// Base-2 logarithm of the lanes that share a pair: [`lanes_log2`](crate::spmm::lanes_log2) of `vectors`.
        pub lanes_log2: u32,
    }
}

/// What the score of a row in a column is, and what is true.
pub mod scores {
    /// The element, and whether the target is above a half.
    pub const LABELS: u32 = 0;
    /// The second element less the first, and whether the class is the second; of one column.
    pub const TWO_CLASSES: u32 = 1;
    /// The log-odds of the column's share by softmax, which order as the share does, and whether the class is the column.
    pub const CLASSES: u32 = 2;
    /// The element, and whether the class is 1; of one column.
    pub const GIVEN: u32 = 3;
}

/// In a segment's word: a positive.
pub const POSITIVE: u32 = 1 << 31;
/// The most columns that are ranked at once: their segments are a grid's y.
pub const MOST_COLUMNS: u32 = 65_535 / SPLITS;
/// The key of a NaN, above all others.
pub const NAN_KEY: u32 = u32::MAX;
/// Words of a segment's result: the sum, how many are positives, and whether there is a NaN.
pub const RANK_WORDS: u32 = 3;

param_struct! {
    /// Parameters of `rank_keys`: a thread for each row of the list.
    pub struct RankKeysParams {
        /// What a model gives, a row a vertex; of [`scores::GIVEN`] one element after the other.
        pub scores: DevicePtr<HalfBits>,
        /// Targets of [`scores::LABELS`], in float; or null.
        pub targets: DevicePtr<f32>,
        /// A class a row, of the others; or null.
        pub labels: DevicePtr<u32>,
        /// The rows by split: those of the first, then of the second, then of the third. What is no row has a NaN for a score.
        pub list: DevicePtr<u32>,
        /// A key of each item: of each of `columns` columns, of each of the list.
        pub keys: DevicePtr<u32>,
        /// The segment of each item, with [`POSITIVE`].
        pub segments: DevicePtr<u32>,
        /// Rows of `scores`.
        pub rows: u64,
        /// Rows of the list.
        pub listed: u32,
        /// Of the list, where the second split begins.
        pub second: u32,
        /// And the third.
        pub third: u32,
        /// The first column that is ranked.
        pub first_column: u32,
        /// How many are, [`MOST_COLUMNS`] at most.
        pub columns: u32,
        /// Columns of `scores`.
        pub all_columns: u32,
        /// Distance of two rows of `scores` in elements.
        pub stride: u32,
        /// Distance of two rows of `targets` in floats.
        pub target_stride: u32,
        /// One of [`scores`].
        pub kind: u32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of the sums over items in order.
    ///
    /// `rank_truths` wants a thread for each item, the sums over groups a CTA for each chunk in x and each segment in y,
    /// and the reductions a CTA for each segment.
    pub struct RankSumsParams {
        /// Keys in ascending order in each segment.
        pub keys: DevicePtr<u32>,
        /// Segments in ascending order, with [`POSITIVE`].
        pub segments: DevicePtr<u32>,
        /// Of each item 1 if it is of a positive, which `rank_truths` writes; then the positives before it.
        pub positives: DevicePtr<u32>,
        /// 64 bits for each chunk of each segment: written by the sums, read by the reductions.
        pub partials: DevicePtr<u64>,
        /// [`RANK_WORDS`] of each segment.
        pub result: DevicePtr<u64>,
        /// Items, of which each column has `listed`.
        pub items: u32,
        /// Items of a column.
        pub listed: u32,
        /// Of a column, where the second split begins.
        pub second: u32,
        /// And the third.
        pub third: u32,
        /// Chunks of [`RANKS_PER_CHUNK`] items of the longest segment.
        pub chunks: u32,
        /// Of `sum_hits`: how many negatives must not be above a positive, nor beside it.
        pub most: u32,
    }
}

/// Items of a chunk of a segment, which is a CTA's.
pub const RANKS_PER_CHUNK: u32 = 16 * THREADS_PER_CTA;

/// A word that orders as a score does: the larger of two scores has the larger word, zeros of either sign have one, and a NaN is
/// [`NAN_KEY`].
#[inline(always)]
pub const fn score_key(score: f32) -> u32 {
    if score.is_nan() {
        return NAN_KEY;
    }
    let bits = if score == 0.0 { 0 } else { score.to_bits() };
    if bits >> 31 == 1 {
        !bits
    } else {
        bits | 1 << 31
    }
}

/// What the shares of a row by softmax are made of.
#[derive(Clone, Copy, Debug)]
pub struct Shares {
    /// The first column of the largest logit.
    first: u32,
    /// The largest logit.
    largest: f32,
    /// The largest of the others.
    next: f32,
    /// The sum of the others' exponentials, over that of the largest.
    below: f32,
    /// The same sum over the exponential of the largest of the others.
    rest: f32,
}

impl Shares {
    /// Those of the `columns` logits that `logit` gives.
    #[inline(always)]
    pub fn new(columns: u32, logit: impl Fn(u32) -> f32) -> Self {
        let (mut first, mut largest, mut next) = (0, f32::NEG_INFINITY, f32::NEG_INFINITY);
        let mut column = 0;
        while column < columns {
            let value = logit(column);
            // The first of all, or a larger one; of a NaN the sums are one.
            if column == 0 || value > largest {
                (first, next, largest) = (column, largest, value);
            } else if value > next {
                next = value;
            }
            column += 1;
        }
        let (mut below, mut rest) = (0.0, 0.0);
        column = 0;
        while column < columns {
            if column != first {
                let value = logit(column);
                below += exp(value - largest);
                rest += exp(value - next);
            }
            column += 1;
        }
        Self {
            first,
            largest,
            next,
            below,
            rest,
        }
    }

    /// `ln(p / (1 - p))` of the share `p` of a column: as its logit is far below or above the others it does not come to 0
    /// or 1, as the share does. A NaN where softmax is one: where a logit is, or is infinity, or all are minus infinity.
    #[inline(always)]
    pub fn log_odds(&self, column: u32, logit: f32) -> f32 {
        if !(self.largest.is_finite() && self.below >= 0.0) {
            return f32::NAN;
        }
        if column != self.first {
            let over = logit - self.largest;
            // Of all exponentials but its own, 1 of which is the largest's.
            return over - ln(1.0 + self.below - exp(over));
        }
        if self.next == f32::NEG_INFINITY {
            return f32::INFINITY;
        }
        self.largest - self.next - ln(self.rest)
    }
}

/// Items of a segment that have one score, of what there is above and below them.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// Positives of the group.
    pub positives: u32,
    /// Positives of the group and above it.
    pub found: u32,
    /// Items of the group and above it.
    pub seen: u32,
    /// Negatives below it.
    pub below: u32,
    /// Negatives of it.
    pub tied: u32,
    /// Negatives above it.
    pub above: u32,
}

impl Group {
    /// The group of items `begin .. end` of a segment `start .. stop`, of which `before` tells how many positives are before each.
    #[inline(always)]
    pub fn new([start, begin, end, stop]: [u64; 4], before: impl Fn(u64) -> u32) -> Self {
        let [first, from, to, all] = [before(start), before(begin), before(end), before(stop)];
        let (positives, found) = (to - from, all - from);
        Self {
            positives,
            found,
            seen: (stop - begin) as u32,
            below: (begin - start) as u32 - (from - first),
            tied: (end - begin) as u32 - positives,
            above: (stop - end) as u32 - (all - to),
        }
    }

    /// Twice the number of negatives that the positives are above of, half of those that they are tied with: area under the curve.
    #[inline(always)]
    pub fn concordant(&self) -> u64 {
        self.positives as u64 * (2 * self.below as u64 + self.tied as u64)
    }

    /// The positives whose score is above that of the so manieth negative.
    #[inline(always)]
    pub fn hits(&self, most: u32) -> u64 {
        if self.above as u64 + (self.tied as u64) < most as u64 {
            self.positives as u64
        } else {
            0
        }
    }

    /// The sum of the positives' precision: of average precision.
    #[inline(always)]
    pub fn precision(&self) -> f64 {
        self.positives as f64 * self.found as f64 / self.seen as f64
    }

    /// The sum of the positives' reciprocal rank among the negatives; ties count half.
    #[inline(always)]
    pub fn reciprocal_rank(&self) -> f64 {
        self.positives as f64 / (1.0 + self.above as f64 + 0.5 * self.tied as f64)
    }
}

/// Where the segment of a column and split begins and ends.
#[inline(always)]
pub const fn segment(segment: u32, listed: u32, second: u32, third: u32) -> [u64; 2] {
    let column = (segment / SPLITS) as u64 * listed as u64;
    let [begin, end] = match segment % SPLITS {
        0 => [0, second],
        1 => [second, third],
        _ => [third, listed],
    };
    [column + begin as u64, column + end as u64]
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! metrics_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Sums of errors of each chunk of rows.
                sum_errors(ErrorParams): F16 = sum_errors_f16, F32 = sum_errors_f32, BF16 = sum_errors_bf16;
                /// Dot products of pairs of rows, in double.
                score_pairs(PairScoreParams): F16 = score_pairs_f16, F32 = score_pairs_f32, BF16 = score_pairs_bf16;
                /// Words that order as scores do, with their segments.
                rank_keys(RankKeysParams): F16 = rank_keys_f16, F32 = rank_keys_f32, BF16 = rank_keys_bf16;
            }
            plain {
                /// The sums of errors of all rows from those of chunks.
                reduce_error_sums(ErrorParams);
                /// Which items are of positives.
                rank_truths(RankSumsParams);
                /// Twice the pairs that are in order, of each chunk.
                sum_concordant(RankSumsParams);
                /// Positives above the so manieth negative, of each chunk.
                sum_hits(RankSumsParams);
                /// Precisions at the positives, of each chunk.
                sum_precisions(RankSumsParams);
                /// Reciprocal ranks of the positives, of each chunk.
                sum_reciprocal_ranks(RankSumsParams);
                /// Counts of segments from those of chunks.
                reduce_rank_counts(RankSumsParams);
                /// Sums in double of segments from those of chunks.
                reduce_rank_sums(RankSumsParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[metrics_entries!(table)];

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;

    #[test]
    fn errors_are_of_either_sign_and_do_not_overflow() {
        assert_eq!(error_terms(1.0, 3.0), [2.0, 4.0]);
        assert_eq!(error_terms(3.0, 1.0), [2.0, 4.0]);
        let [absolute, squared] = error_terms(f32::MAX, -f32::MAX);
        assert_eq!(absolute, 2.0 * f32::MAX as f64);
        assert!(squared.is_finite());
        assert!(error_terms(f32::NAN, 0.0).iter().all(|term| term.is_nan()));
    }

    #[test]
    fn keys_order_as_scores_do() {
        let rising = [
            f32::NEG_INFINITY,
            f32::MIN,
            -1.0,
            -1e-45,
            0.0,
            1e-45,
            1.0,
            f32::MAX,
            f32::INFINITY,
        ];
        let keys = rising.map(score_key);
        assert!(keys.is_sorted_by(|a, b| a < b), "{keys:?}");
        assert_eq!(score_key(-0.0), score_key(0.0));
        for nan in [f32::NAN, -f32::NAN] {
            assert_eq!(score_key(nan), NAN_KEY);
            assert!(score_key(f32::INFINITY) < NAN_KEY);
        }
    }

    #[test]
    fn log_odds_are_those_of_the_shares() {
        let odds = |row: &[f32]| -> std::vec::Vec<f32> {
            let shares = Shares::new(row.len() as u32, |column| row[column as usize]);
            let of = |(column, &logit)| shares.log_odds(column, logit);
            (0..).zip(row).map(of).collect()
        };
        for row in [
            &[2.0, 0.0, 1.0][..],
            &[1.0, 1.0],
            &[-3.0, 2.5, 2.5, -40.0, 7.0],
            &[0.5, f32::NEG_INFINITY, 0.25],
        ] {
            let sum: f64 = row.iter().map(|&logit| (logit as f64).exp()).sum();
            for (odds, &logit) in odds(row).into_iter().zip(row) {
                let share = (logit as f64).exp();
                let expected = (share / (sum - share)).ln();
                let near = (odds as f64 - expected).abs() <= 1e-6 * (1.0 + expected.abs());
                assert!(
                    near || odds as f64 == expected,
                    "{row:?}: {odds} for {expected}"
                );
            }
        }
        // Shares of 1 and of 0 in double: odds go on.
        let far = odds(&[0.0, 900.0, 100.0]);
        assert_eq!([far[1], far[2]], [800.0, -800.0]);
        assert_eq!(odds(&[3.0]), [f32::INFINITY]);
        assert_eq!(
            odds(&[1.0, f32::NEG_INFINITY]),
            [f32::INFINITY, f32::NEG_INFINITY]
        );
        for row in [
            [0.0, f32::NAN, 1.0],
            [f32::NAN, 0.0, 1.0],
            [0.0, f32::INFINITY, 1.0],
            [f32::INFINITY; 3],
            [f32::NEG_INFINITY; 3],
        ] {
            assert!(odds(&row).iter().all(|odds| odds.is_nan()), "{row:?}");
        }
    }

    #[test]
    fn groups_know_what_is_above_and_below() {
        // Of a segment 2 .. 9 the items 4 .. 7.
        let truths = [1, 1, 0, 1, 1, 0, 1, 0, 1, 1];
        let before = |at: u64| truths[..at as usize].iter().sum();
        let group = Group::new([2, 4, 7, 9], before);
        let Group {
            positives,
            found,
            seen,
            below,
            tied,
            above,
        } = group;
        assert_eq!(
            [positives, found, seen, below, tied, above],
            [2, 3, 5, 1, 1, 1]
        );
        assert_eq!(group.concordant(), 2 * 3);
        assert_eq!([group.hits(2), group.hits(3)], [0, 2]);
        assert_eq!(group.precision(), 2.0 * 3.0 / 5.0);
        assert_eq!(group.reciprocal_rank(), 2.0 / 2.5);
    }

    #[test]
    fn segments_follow_one_another() {
        let segments = [0, 1, 2, 3, 5].map(|at| segment(at, 10, 4, 9));
        assert_eq!(segments, [[0, 4], [4, 9], [9, 10], [10, 14], [19, 20]]);
    }
}
