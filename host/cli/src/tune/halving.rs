//! Asynchronous successive halving: Li et al., *A System for Massively Parallel Hyperparameter Tuning*, MLSys 2020,
//! algorithm 2, in its form that stops trials instead of pausing them.
//!
//! After `first` epochs, and after each `factor` times as many, a trial goes on if it is among the best `1 / factor` of
//! those that came as far. None waits for the others, so the first ones go on in any case.

use halfgnn::metrics::Metric;
use std::collections::BTreeMap;

/// Scores of trials after the given number of epochs.
#[derive(Debug)]
pub struct Halving {
    factor: u32,
    first: u32,
    scores: BTreeMap<u32, Vec<f64>>,
}

impl Halving {
    /// Compares after `first` epochs, and each `factor` times as many; a factor of 1 never does.
    pub fn new(first: u32, factor: u32) -> Self {
        Self {
            factor,
            first,
            scores: BTreeMap::new(),
        }
    }

    /// Whether trials are compared after `epoch` epochs.
    pub fn is_rung(&self, epoch: u32) -> bool {
        let mut rung = u64::from(self.first);
        while self.factor > 1 && rung < u64::from(epoch) {
            rung *= u64::from(self.factor);
        }
        self.factor > 1 && rung == u64::from(epoch)
    }

    /// Takes note of a score, without a decision.
    pub fn add(&mut self, epoch: u32, score: f64) {
        self.scores.entry(epoch).or_default().push(score);
    }

    /// Whether a trial goes on, which is worse than everything if it has no score.
    pub fn goes_on(&mut self, epoch: u32, metric: Metric, score: Option<f64>) -> bool {
        let score = score.unwrap_or(f64::NAN);
        self.add(epoch, score);
        let scores = &self.scores[&epoch];
        let better = scores
            .iter()
            .filter(|other| metric.is_better(**other, score))
            .count();
        better < scores.len().div_ceil(self.factor as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_third_goes_on() {
        let mut halving = Halving::new(5, 3);
        let rungs: Vec<u32> = (0..200).filter(|&epoch| halving.is_rung(epoch)).collect();
        assert_eq!(rungs, [5, 15, 45, 135]);
        // The first goes on, then what is among the best third of those so far.
        let scores = [50.0, 40.0, 60.0, 55.0, 30.0, 70.0, 58.0];
        let on = scores.map(|score| halving.goes_on(5, Metric::Accuracy, Some(score)));
        assert_eq!(on, [true, false, true, true, false, true, true]);
        assert!(!halving.goes_on(5, Metric::Accuracy, None));
        // Another rung knows nothing of it; an error is better when it is less.
        assert!(halving.goes_on(15, Metric::MeanAbsoluteError, Some(2.0)));
        assert!(halving.goes_on(15, Metric::MeanAbsoluteError, Some(1.0)));
        assert!(!halving.goes_on(15, Metric::MeanAbsoluteError, Some(1.5)));
    }

    #[test]
    fn a_factor_of_one_compares_nothing() {
        let halving = Halving::new(1, 1);
        assert!((0..100).all(|epoch| !halving.is_rung(epoch)));
    }
}
