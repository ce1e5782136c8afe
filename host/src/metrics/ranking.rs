//! What only the order of scores decides.
//!
//! The metrics of scores on the host, which are sorted here by [`ranked`] alone, say what those of [sums on the device](of_ranks) are.

use super::Metric;
use crate::ops::{RankSum, Ranks};

/// The sum over scores in order of which a metric is made; `None` where it is made of none.
pub const fn rank_sum(metric: Metric) -> Option<RankSum> {
    Some(match metric {
        Metric::RocAuc => RankSum::Concordant,
        Metric::AveragePrecision => RankSum::Precisions,
        Metric::MeanReciprocalRank => RankSum::ReciprocalRanks,
        Metric::HitsAt(k) => RankSum::Hits(k),
        _ => return None,
    })
}

/// A metric of its [`rank_sum`] over so many scores: `None` where it is not defined, a NaN where a score is one.
pub fn of_ranks(metric: Metric, ranks: Ranks, scores: usize) -> Option<f64> {
    let positives = ranks.positives as f64;
    let others = scores as f64 - positives;
    if ranks.has_nan {
        return Some(f64::NAN);
    }
    match metric {
        Metric::RocAuc => {
            (positives > 0.0 && others > 0.0).then(|| ranks.sum as f64 / (2.0 * positives * others))
        }
        Metric::HitsAt(_) => (positives > 0.0).then(|| ranks.sum as f64 / positives),
        _ => (positives > 0.0).then(|| f64::from_bits(ranks.sum) / positives),
    }
}

/// Scores that are equal, from the highest on: how many of them are of positives, and how many are not.
fn ranked(scores: &[f64], positive: &[bool]) -> Option<Vec<[u64; 2]>> {
    assert_eq!(scores.len(), positive.len(), "a score for each truth");
    if scores.iter().any(|score| score.is_nan()) {
        return None;
    }
    let mut order: Vec<usize> = (0..scores.len()).collect();
    order.sort_unstable_by(|&a, &b| scores[b].total_cmp(&scores[a]));
    let equal = order.chunk_by(|&a, &b| scores[a] == scores[b]);
    Some(
        equal
            .map(|tied| {
                let positives = tied.iter().filter(|&&at| positive[at]).count() as u64;
                [positives, tied.len() as u64 - positives]
            })
            .collect(),
    )
}

/// The probability that a positive scores higher than another, ties counted half; `None` where there are not both, a NaN where a
/// score is one.
///
/// # Panics
/// Where there is not a truth for each score.
pub fn roc_auc(scores: &[f64], positive: &[bool]) -> Option<f64> {
    let Some(tied) = ranked(scores, positive) else {
        return Some(f64::NAN);
    };
    let [positives, others] = tied.iter().fold([0, 0], |[a, b], [c, d]| [a + c, b + d]);
    if positives == 0 || others == 0 {
        return None;
    }
    let (mut above, mut twice) = (0, 0_u128);
    for [positives, others] in tied {
        // Each of the others is below the positives above it, and beside those that it is tied with.
        twice += u128::from(others) * u128::from(2 * above + positives);
        above += positives;
    }
    Some(twice as f64 / (2.0 * positives as f64 * others as f64))
}

/// The sum over the steps of recall of the precision there; `None` where there are no positives, a NaN where a score is one.
///
/// # Panics
/// Where there is not a truth for each score.
pub fn average_precision(scores: &[f64], positive: &[bool]) -> Option<f64> {
    let Some(tied) = ranked(scores, positive) else {
        return Some(f64::NAN);
    };
    let (mut found, mut seen, mut sum) = (0, 0, 0.0);
    for [positives, others] in tied {
        found += positives;
        seen += positives + others;
        sum += positives as f64 * found as f64 / seen as f64;
    }
    (found > 0).then(|| sum / found as f64)
}

/// The negatives from the lowest on; `None` where a score is a NaN.
fn sorted(positives: &[f64], negatives: &[f64]) -> Option<Vec<f64>> {
    if positives
        .iter()
        .chain(negatives)
        .any(|score| score.is_nan())
    {
        return None;
    }
    let mut sorted = negatives.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    Some(sorted)
}

/// The mean over the positives of one over their rank among all negatives, which counts those above and half of those that are
/// tied with it; a NaN of no positives, and where a score is one.
pub fn mean_reciprocal_rank(positives: &[f64], negatives: &[f64]) -> f64 {
    let Some(negatives) = sorted(positives, negatives) else {
        return f64::NAN;
    };
    let reciprocal = |&score: &f64| {
        let below = negatives.partition_point(|&other| other < score);
        let not_above = negatives.partition_point(|&other| other <= score);
        let above = (negatives.len() - not_above) as f64;
        1.0 / (1.0 + above + 0.5 * (not_above - below) as f64)
    };
    positives.iter().map(reciprocal).sum::<f64>() / positives.len() as f64
}

/// The share of the positives that score above the `k`-th highest of the negatives, all where there are fewer; a NaN of no
/// positives, and where a score is one.
pub fn hits_at(k: u32, positives: &[f64], negatives: &[f64]) -> f64 {
    let Some(negatives) = sorted(positives, negatives) else {
        return f64::NAN;
    };
    let place = negatives.len().checked_sub(k as usize);
    let bar = place.and_then(|at| negatives.get(at));
    let hits = positives
        .iter()
        .filter(|&score| bar.is_none_or(|bar| score > bar));
    hits.count() as f64 / positives.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;
    use halfgnn_contract::rng;

    const TIED: [f64; 10] = [0.1, 0.4, 0.4, 0.4, 0.8, 0.8, 0.2, 0.9, 0.3, 0.3];
    const TRUTHS: [bool; 10] = [
        false, true, true, false, true, false, false, true, true, false,
    ];

    #[test]
    fn ties_are_scikit_learns() {
        // from sklearn.metrics import roc_auc_score, average_precision_score
        // roc_auc_score(TRUTHS, TIED), average_precision_score(TRUTHS, TIED)
        let near = |value: Option<f64>, expected: f64| {
            assert!((value.unwrap() - expected).abs() < 1e-12, "{value:?}");
        };
        near(roc_auc(&TIED, &TRUTHS), 0.76);
        near(average_precision(&TIED, &TRUTHS), 0.7249999999999999);
        assert_eq!(roc_auc(&TIED, &[true; 10]), None);
        assert_eq!(average_precision(&TIED, &[false; 10]), None);
        assert!(roc_auc(&[f64::NAN, 1.0], &[true, false]).unwrap().is_nan());
        assert_eq!(
            roc_auc(&[f64::INFINITY, -0.0, 0.0], &[true, false, true]),
            Some(0.75)
        );
    }

    /// Scores of few values, so that many are tied.
    fn random(seed: u64, len: usize) -> (Vec<f64>, Vec<bool>) {
        let draw = |stream| move |at: usize| rng::uniform_u32(rng::key(seed, stream), at as u64);
        let (score, truth) = (draw(1), draw(2));
        let levels = 1 + score(len) % 9;
        let scores = (0..len).map(|at| f64::from(score(at) % levels) / 4.0 - 1.0);
        let scores: Vec<f64> = scores.collect();
        (scores, (0..len).map(|at| truth(at) % 3 == 0).collect())
    }

    #[test]
    fn areas_are_what_they_are_by_definition() {
        for seed in 0..200 {
            let (scores, truths) = random(seed, 1 + seed as usize % 37);
            let of = |wanted: bool| {
                let chosen = scores
                    .iter()
                    .zip(&truths)
                    .filter(move |(_, truth)| **truth == wanted);
                chosen.map(|(&score, _)| score).collect::<Vec<f64>>()
            };
            let (positives, others) = (of(true), of(false));
            let pairs = positives
                .iter()
                .flat_map(|a| others.iter().map(move |b| (a, b)));
            let won: f64 = pairs
                .map(|(a, b)| match a.total_cmp(b) {
                    std::cmp::Ordering::Greater => 1.0,
                    std::cmp::Ordering::Equal => 0.5,
                    std::cmp::Ordering::Less => 0.0,
                })
                .sum();
            let pairs = (positives.len() * others.len()) as f64;
            let auc = (pairs > 0.0).then_some(won / pairs);
            assert_eq!(roc_auc(&scores, &truths), auc, "seed {seed}");

            // Of each positive the precision among all that score as high.
            let precision = positives.iter().map(|score| {
                let high = |of: &[f64]| of.iter().filter(|&other| other >= score).count() as f64;
                high(&positives) / (high(&positives) + high(&others))
            });
            let expected = precision.sum::<f64>() / positives.len() as f64;
            match average_precision(&scores, &truths) {
                Some(found) => assert!((found - expected).abs() < 1e-12, "seed {seed}"),
                None => assert!(positives.is_empty()),
            }

            if positives.is_empty() {
                assert!(mean_reciprocal_rank(&positives, &others).is_nan());
                continue;
            }
            let rank = |score: &f64| {
                let of = |f: fn(f64, f64) -> bool| {
                    others.iter().filter(|&&other| f(other, *score)).count() as f64
                };
                1.0 + of(|a, b| a > b) + 0.5 * of(|a, b| a == b)
            };
            let expected = positives.iter().map(|score| 1.0 / rank(score)).sum::<f64>()
                / positives.len() as f64;
            let found = mean_reciprocal_rank(&positives, &others);
            assert!((found - expected).abs() < 1e-12, "seed {seed}");
            for k in [1, 3, 20] {
                let hits = positives.iter().filter(|&&score| {
                    others.iter().filter(|&&other| other >= score).count() < k as usize
                });
                let expected = hits.count() as f64 / positives.len() as f64;
                assert_eq!(
                    hits_at(k, &positives, &others),
                    expected,
                    "seed {seed}, hits@{k}"
                );
            }
        }
    }
}
