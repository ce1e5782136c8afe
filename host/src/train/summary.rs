//! What a training run reports.

use super::Split;
use crate::ops::OptimizerSnapshot;
use serde::{Deserialize, Serialize};

/// Correct predictions in percent, by split.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accuracy {
    percent: [f64; 3],
}

impl Accuracy {
    /// From counts; a split without vertices has 0 %.
    pub fn new(correct: [u32; 3], sizes: [usize; 3]) -> Self {
        let percent = |split: usize| 100.0 * f64::from(correct[split]) / sizes[split].max(1) as f64;
        Self {
            percent: [percent(0), percent(1), percent(2)],
        }
    }

    /// Percent of the vertices of `split`.
    pub fn of(&self, split: Split) -> f64 {
        self.percent[split as usize]
    }
}

/// One epoch: a training step, and the evaluation after it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// Which epoch, from 1.
    pub epoch: u32,
    /// Mean cross-entropy of the training vertices in the step, with dropout.
    #[serde(with = "super::any_f32")]
    pub loss: f32,
    /// Learning rate of the step.
    #[serde(default)]
    pub learning_rate: f32,
    /// Accuracy after the step, without dropout.
    pub accuracy: Accuracy,
    /// Milliseconds of the step alone, until the device was done.
    pub ms: f64,
    /// The optimiser after the step.
    pub optimizer: OptimizerSnapshot,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// After its last epoch.
    Finished,
    /// It was told to stop.
    Stopped,
    /// The validation accuracy had not become better for as many epochs as were allowed.
    EarlyStopped,
    /// The loss was not finite for too many epochs in a row.
    Diverged {
        /// The first epoch of the row, from 1.
        since: u32,
    },
}

/// A whole run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunSummary {
    /// How it ended.
    pub status: Status,
    /// The first epoch with the best validation accuracy.
    pub best: Option<EpochReport>,
    /// The last epoch.
    pub last: Option<EpochReport>,
    /// Milliseconds of a training step: the mean over all but the first, which allocates; of the first where it is the
    /// only one.
    pub ms_per_epoch: f64,
}

impl RunSummary {
    /// Test accuracy in percent at the epoch of the best validation accuracy; 0 before the first epoch.
    pub fn test_accuracy(&self) -> f64 {
        self.best
            .map_or(0.0, |report| report.accuracy.of(Split::Test))
    }

    /// Test accuracy in percent at the last epoch; 0 before the first.
    pub fn test_accuracy_last(&self) -> f64 {
        self.last
            .map_or(0.0, |report| report.accuracy.of(Split::Test))
    }
}

/// Mean and standard deviation over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The mean; 0 of no values.
    pub mean: f64,
    /// The standard deviation of the values themselves (divided by their number, as `numpy.std` does).
    pub deviation: f64,
}

impl Spread {
    /// Of some values.
    pub fn of(values: impl Iterator<Item = f64> + Clone) -> Self {
        let count = values.clone().count().max(1) as f64;
        let mean = values.clone().sum::<f64>() / count;
        let variance = values.map(|value| (value - mean).powi(2)).sum::<f64>() / count;
        Self {
            mean,
            deviation: variance.sqrt(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accuracy_in_percent_and_without_vertices() {
        let accuracy = Accuracy::new([3, 0, 1], [4, 0, 8]);
        assert_eq!(
            Split::ALL.map(|split| accuracy.of(split)),
            [75.0, 0.0, 12.5]
        );
    }

    #[test]
    fn spread_is_that_of_the_population() {
        let spread = Spread::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter());
        assert_eq!((spread.mean, spread.deviation), (5.0, 2.0));
        assert_eq!(Spread::of(std::iter::empty()), Spread::default());
    }
}
