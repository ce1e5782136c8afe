//! Reports of a training run.

use super::Split;
use crate::metrics::Metric;
use crate::ops::OptimizerSnapshot;
use serde::{Deserialize, Serialize};

/// The value of a metric on each split.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Score {
    /// The metric; accuracy in checkpoints that name none.
    #[serde(default)]
    pub metric: Metric,
    #[serde(alias = "percent", with = "any_f64s")]
    values: [f64; 3],
}

impl Score {
    /// Takes values in the order of [`Split::ALL`], in the metric's unit.
    pub fn new(metric: Metric, values: [f64; 3]) -> Self {
        Self { metric, values }
    }

    /// Accuracy from counts. It is undefined for a split without vertices, and then NaN.
    pub fn accuracy(correct: [u32; 3], sizes: [usize; 3]) -> Self {
        let percent = |split: usize| 100.0 * f64::from(correct[split]) / sizes[split] as f64;
        Self::new(Metric::Accuracy, [percent(0), percent(1), percent(2)])
    }

    /// The value on the vertices of `split`; NaN where the metric is undefined there.
    pub fn of(&self, split: Split) -> f64 {
        self.values[split as usize]
    }
}

/// A few values, stored inline so that their owner is `Copy`.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Vec<T>", into = "Vec<T>")]
#[serde(bound(
    serialize = "T: Copy + Serialize",
    deserialize = "T: Copy + Deserialize<'de>"
))]
pub struct Few<T: Copy>([Option<T>; MOST_OTHERS]);

/// The largest number of metrics in addition to the one that chooses the epoch.
pub const MOST_OTHERS: usize = 8;

impl<T: Copy> Few<T> {
    /// The values in their order.
    pub fn iter(&self) -> impl Iterator<Item = T> + use<'_, T> {
        self.0.iter().copied().flatten()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0[0].is_none()
    }
}

impl<T: Copy> Default for Few<T> {
    fn default() -> Self {
        Self([None; MOST_OTHERS])
    }
}

impl<T: Copy> TryFrom<Vec<T>> for Few<T> {
    type Error = String;

    /// # Errors
    /// What to do where there are more than [`MOST_OTHERS`].
    fn try_from(values: Vec<T>) -> Result<Self, String> {
        if values.len() > MOST_OTHERS {
            let count = values.len();
            return Err(format!(
                "{count} metrics are shown beside the one that chooses; take at most {MOST_OTHERS}"
            ));
        }
        let mut few = Self::default();
        few.0
            .iter_mut()
            .zip(values)
            .for_each(|(place, value)| *place = Some(value));
        Ok(few)
    }
}

impl<T: Copy> From<Few<T>> for Vec<T> {
    fn from(few: Few<T>) -> Self {
        few.iter().collect()
    }
}

/// Floats in JSON, which has only `null` for a NaN.
mod any_f64s {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<S: Serializer>(values: &[f64; 3], serializer: S) -> Result<S::Ok, S::Error> {
        values
            .map(|value| value.is_finite().then_some(value))
            .serialize(serializer)
    }

    pub fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<[f64; 3], D::Error> {
        let values = <[Option<f64>; 3]>::deserialize(deserializer)?;
        Ok(values.map(|value| value.unwrap_or(f64::NAN)))
    }
}

/// One epoch: a training step, and the evaluation after it.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct EpochReport {
    /// The number of the epoch, from 1.
    pub epoch: u32,
    /// The loss of the training vertices in the step, with dropout.
    #[serde(with = "super::any_f32")]
    pub loss: f32,
    /// Learning rate of the step.
    #[serde(default)]
    pub learning_rate: f32,
    /// The metric that chooses the epoch, after the step, without dropout.
    #[serde(alias = "accuracy")]
    pub score: Score,
    /// The other metrics.
    #[serde(default, skip_serializing_if = "Few::is_empty")]
    pub others: Few<Score>,
    /// Milliseconds of the step alone, until the device is done.
    pub ms: f64,
    /// The optimiser after the step.
    pub optimizer: OptimizerSnapshot,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// After its last epoch.
    Finished,
    /// It was stopped by the caller.
    Stopped,
    /// Validation had not improved for as many epochs as were allowed.
    EarlyStopped,
    /// The loss was not finite for too many consecutive epochs.
    Diverged {
        /// The first of these epochs, from 1.
        since: u32,
    },
}

/// A whole run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RunSummary {
    /// How it ended.
    pub status: Status,
    /// The first epoch with the best validation score; none where no epoch has one.
    pub best: Option<EpochReport>,
    /// The last epoch.
    pub last: Option<EpochReport>,
    /// Milliseconds of a training step: the mean over all but the first, which allocates, or the first where it is the
    /// only one.
    pub ms_per_epoch: f64,
}

impl RunSummary {
    /// The epoch whose weights are kept: the best one, or the last one where no epoch has a validation score. None
    /// before the first.
    pub fn kept(&self) -> Option<EpochReport> {
        self.best.or(self.last)
    }

    /// Whether epochs were evaluated and none has a validation score, so the last one is kept.
    pub fn lacks_validation(&self) -> bool {
        self.best.is_none() && self.last.is_some()
    }

    /// The metric on the test vertices at the [kept](RunSummary::kept) epoch; NaN where it is undefined and before the
    /// first epoch.
    pub fn test_score(&self) -> f64 {
        test_score(self.kept())
    }

    /// The metric on the test vertices at the last epoch; NaN where it is undefined and before the first epoch.
    pub fn test_score_last(&self) -> f64 {
        test_score(self.last)
    }
}

fn test_score(report: Option<EpochReport>) -> f64 {
    report.map_or(f64::NAN, |report| report.score.of(Split::Test))
}

/// Mean and standard deviation over runs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Spread {
    /// The mean; 0 for no values.
    pub mean: f64,
    /// The population standard deviation (divided by the number of values, as in `numpy.std`).
    pub deviation: f64,
}

impl Spread {
    /// The mean and deviation of some values.
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
    fn accuracy_in_percent_and_undefined_without_vertices() {
        let accuracy = Score::accuracy([3, 0, 1], [4, 0, 8]);
        assert_eq!(
            [Split::Train, Split::Test].map(|split| accuracy.of(split)),
            [75.0, 12.5]
        );
        assert!(accuracy.of(Split::Validation).is_nan());
    }

    #[test]
    fn scores_are_read_as_they_were_written_and_as_before() {
        let score = Score::new(Metric::HitsAt(20), [50.25, f64::NAN, 1.0]);
        let json = serde_json::to_string(&score).unwrap();
        assert_eq!(json, r#"{"metric":"hits@20","values":[50.25,null,1.0]}"#);
        let read: Score = serde_json::from_str(&json).unwrap();
        assert_eq!(read.metric, score.metric);
        assert_eq!((read.of(Split::Train), read.of(Split::Test)), (50.25, 1.0));
        assert!(read.of(Split::Validation).is_nan());
        let before: Score = serde_json::from_str(r#"{"percent":[1.0,2.0,3.0]}"#).unwrap();
        assert_eq!(before, Score::new(Metric::Accuracy, [1.0, 2.0, 3.0]));
    }

    #[test]
    fn few_are_few() {
        let few = Few::try_from(vec![1, 2]).unwrap();
        assert_eq!(few.iter().collect::<Vec<_>>(), [1, 2]);
        assert!(Few::<u8>::default().is_empty() && !few.is_empty());
        assert!(Few::try_from(vec![0; MOST_OTHERS]).is_ok());
        let error = Few::try_from(vec![0; MOST_OTHERS + 1]).unwrap_err();
        assert!(error.contains("take at most 8"), "{error}");
        assert!(serde_json::from_str::<Few<u8>>("[1,2,3,4,5,6,7,8,9]").is_err());
    }

    #[test]
    fn spread_is_that_of_the_population() {
        let spread = Spread::of([2.0, 4.0, 4.0, 4.0, 5.0, 5.0, 7.0, 9.0].into_iter());
        assert_eq!((spread.mean, spread.deviation), (5.0, 2.0));
        assert_eq!(Spread::of(std::iter::empty()), Spread::default());
    }
}
