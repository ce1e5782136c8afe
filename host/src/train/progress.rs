//! Progress of a run.

use super::schedule::Plateau;
use super::{EpochReport, RunSummary, Split, Status, TrainConfig};
use serde::{Deserialize, Serialize};

/// The progress of a run: what determines its end and its summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Progress {
    /// Epochs that were trained.
    pub epoch: u32,
    /// The first epoch with the best validation score. None where no epoch has one, because the split is empty or the
    /// metric is undefined there; then the last epoch is kept.
    pub best: Option<EpochReport>,
    /// The last epoch.
    pub last: Option<EpochReport>,
    /// The first of the last consecutive epochs without a finite loss.
    pub non_finite_since: Option<u32>,
    /// The state of a schedule that follows validation.
    #[serde(default, skip_serializing_if = "Plateau::is_default")]
    pub plateau: Plateau,
    /// The progress of the current epoch, in a run that was stopped between two of its batches.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<Part>,
}

/// The progress of an epoch of batches.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Part {
    /// The number of batches whose steps are done.
    pub batches: usize,
    /// The sum of the losses of their vertices; none where it is not finite.
    pub loss: Option<f64>,
    /// The number of their vertices.
    pub vertices: usize,
    /// Their time in milliseconds.
    pub ms: f64,
}

impl Default for Part {
    fn default() -> Self {
        Self {
            batches: 0,
            loss: Some(0.0),
            vertices: 0,
            ms: 0.0,
        }
    }
}

impl Part {
    /// Adds a batch of `vertices` vertices with the mean loss `loss`.
    pub(super) fn add(&mut self, loss: f32, vertices: usize, ms: f64) {
        self.batches += 1;
        self.vertices += vertices;
        self.ms += ms;
        let sum = self.loss.map(|sum| sum + f64::from(loss) * vertices as f64);
        self.loss = sum.filter(|sum| sum.is_finite());
    }

    /// The mean of the losses of the vertices, each before the step on it; NaN where one was not finite.
    pub fn mean_loss(&self) -> f32 {
        self.loss
            .map_or(f32::NAN, |sum| (sum / self.vertices.max(1) as f64) as f32)
    }
}

impl Progress {
    /// Adds an epoch; returns whether it is the best so far.
    pub fn add(&mut self, report: EpochReport) -> bool {
        let validation = |report: &EpochReport| report.score.of(Split::Validation);
        self.epoch = report.epoch;
        self.part = None;
        self.last = Some(report);
        self.non_finite_since = if report.loss.is_finite() {
            None
        } else {
            self.non_finite_since.or(Some(report.epoch))
        };
        let best = match self.best {
            None => !validation(&report).is_nan(),
            Some(best) => {
                let metric = report.score.metric;
                metric.is_better(validation(&report), validation(&best))
            }
        };
        if best {
            self.best = Some(report);
        }
        best
    }

    /// How the run has ended, if it has.
    pub fn end(&self, config: &TrainConfig) -> Option<Status> {
        let since_best = self.best.map(|best| self.epoch - best.epoch);
        match self.non_finite_since {
            Some(since) if self.epoch - since + 1 >= config.patience_non_finite => {
                Some(Status::Diverged { since })
            }
            _ if self.epoch >= config.epochs => Some(Status::Finished),
            _ if config
                .early_stopping
                .zip(since_best)
                .is_some_and(|(patience, since)| since >= patience.max(1)) =>
            {
                Some(Status::EarlyStopped)
            }
            _ => None,
        }
    }
}

/// Times of steps, in milliseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct StepTimes {
    count: u32,
    first: f64,
    later: f64,
}

impl StepTimes {
    /// Adds a step.
    pub(super) fn add(&mut self, ms: f64) {
        if self.count == 0 {
            self.first = ms;
        } else {
            self.later += ms;
        }
        self.count += 1;
    }

    /// See [`RunSummary::ms_per_epoch`].
    pub(super) fn mean(&self) -> f64 {
        match self.count {
            0 | 1 => self.first,
            count => self.later / f64::from(count - 1),
        }
    }
}

/// The summary of a run with this progress.
pub(super) fn summary(progress: &Progress, config: &TrainConfig, times: &StepTimes) -> RunSummary {
    RunSummary {
        status: progress.end(config).unwrap_or(Status::Stopped),
        best: progress.best,
        last: progress.last,
        ms_per_epoch: times.mean(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::OptimizerSnapshot;
    use crate::tensor::Precision;
    use crate::train::{Few, Score};

    fn report(epoch: u32, loss: f32, validation: u32) -> EpochReport {
        EpochReport {
            epoch,
            loss,
            learning_rate: 0.01,
            score: Score::accuracy([0, validation, 0], [1, 100, 1]),
            others: Few::default(),
            ms: 1.0,
            optimizer: OptimizerSnapshot {
                loss_scale: 1.0,
                steps: epoch,
                skipped: 0,
                since_change: 0,
            },
        }
    }

    fn config(epochs: u32, early_stopping: Option<u32>) -> TrainConfig {
        TrainConfig {
            epochs,
            early_stopping,
            patience_non_finite: 2,
            ..TrainConfig::new(Precision::Half)
        }
    }

    /// The epoch after which the run ends, and how.
    fn end(config: &TrainConfig, epochs: &[(f32, u32)]) -> Option<(u32, Status)> {
        let mut progress = Progress::default();
        for (epoch, &(loss, validation)) in (1..).zip(epochs) {
            progress.add(report(epoch, loss, validation));
            if let Some(status) = progress.end(config) {
                return Some((epoch, status));
            }
        }
        None
    }

    #[test]
    fn a_run_ends_with_its_last_epoch_or_when_nothing_gets_better() {
        let falling = [
            (1.0, 50),
            (1.0, 60),
            (1.0, 60),
            (1.0, 59),
            (1.0, 70),
            (1.0, 1),
        ];
        assert_eq!(end(&config(9, None), &falling), None);
        assert_eq!(end(&config(6, None), &falling), Some((6, Status::Finished)));
        assert_eq!(
            end(&config(6, Some(2)), &falling),
            Some((4, Status::EarlyStopped))
        );
        assert_eq!(
            end(&config(6, Some(3)), &falling),
            Some((6, Status::Finished))
        );
        assert_eq!(
            end(&config(4, Some(2)), &falling),
            Some((4, Status::Finished))
        );
        assert_eq!(
            end(&config(6, Some(0)), &falling),
            Some((3, Status::EarlyStopped)),
            "no patience at all is that of one epoch"
        );
    }

    #[test]
    fn only_a_row_of_losses_that_are_no_numbers_ends_a_run() {
        let nan = f32::NAN;
        let status = Status::Diverged { since: 4 };
        let losses = [(1.0, 0), (nan, 0), (1.0, 0), (nan, 0), (nan, 0)];
        assert_eq!(end(&config(9, None), &losses), Some((5, status)));
        assert_eq!(end(&config(9, None), &losses[..4]), None);
    }

    #[test]
    fn the_first_of_equals_is_best() {
        let mut progress = Progress::default();
        let better: Vec<bool> = [10, 30, 30, 20, 31]
            .into_iter()
            .zip(1..)
            .map(|(validation, epoch)| progress.add(report(epoch, 1.0, validation)))
            .collect();
        assert_eq!(better, [true, true, false, false, true]);
    }

    #[test]
    fn the_best_of_an_error_is_the_smallest() {
        let of = |epoch, value| EpochReport {
            score: Score::new(crate::metrics::Metric::MeanAbsoluteError, [0.0, value, 0.0]),
            ..report(epoch, 1.0, 0)
        };
        let mut progress = Progress::default();
        let values = [f64::NAN, 3.0, 2.0, 2.5, f64::NAN, 1.0];
        let better = (1..)
            .zip(values)
            .map(|(epoch, value)| progress.add(of(epoch, value)));
        let better: Vec<bool> = better.collect();
        assert_eq!(better, [false, true, true, false, false, true]);
    }

    #[test]
    fn without_a_validation_score_no_epoch_is_best_and_the_last_is_kept() {
        let config = config(9, Some(2));
        let mut progress = Progress::default();
        for epoch in 1..=9 {
            let score = Score::accuracy([epoch, 0, epoch], [10, 0, 10]);
            let better = progress.add(EpochReport {
                score,
                ..report(epoch, 1.0, 0)
            });
            assert!(!better);
        }
        // Without a validation score, patience does not apply.
        assert_eq!(progress.end(&config), Some(Status::Finished));
        let run = summary(&progress, &config, &StepTimes::default());
        assert_eq!(run.best, None);
        assert_eq!(run.kept().map(|kept| kept.epoch), Some(9));
        assert_eq!((run.test_score(), run.test_score_last()), (90.0, 90.0));
        // The first score counts, however late it comes.
        assert!(progress.add(report(10, 1.0, 1)));
        let run = summary(&progress, &config, &StepTimes::default());
        assert_eq!(run.kept().map(|kept| kept.epoch), Some(10));
    }

    #[test]
    fn a_step_that_allocates_is_no_measure() {
        let mut times = StepTimes::default();
        assert_eq!(times.mean(), 0.0);
        times.add(9.0);
        assert_eq!(times.mean(), 9.0);
        times.add(1.0);
        times.add(2.0);
        assert_eq!(times.mean(), 1.5);
    }
}
