//! How good predictions are, by the measures of the field, equal to those of scikit-learn and OGB.
//!
//! | metric | of | as |
//! |---|---|---|
//! | [`Metric::Accuracy`] | classes | `accuracy_score` |
//! | [`Metric::MicroF1`], [`Metric::MacroF1`] | classes, labels | `f1_score` with this average and `zero_division=0` |
//! | [`Metric::RocAuc`] | classes, labels, links | `roc_auc_score`; of more classes or labels than one the mean over them (`ovr`, `macro`) |
//! | [`Metric::AveragePrecision`] | classes, labels, links | `average_precision_score`, likewise |
//! | [`Metric::MeanReciprocalRank`] | links | OGB's `mrr`: of each edge among all negatives; ties count half |
//! | [`Metric::HitsAt`] | links | OGB's `hits@K`: edges above the K-th of the negatives |
//! | [`Metric::MeanAbsoluteError`], [`Metric::RootMeanSquaredError`], [`Metric::R2`] | values | the mean over the values of a vertex |
//!
//! While training they are made of sums on the device ([`Outcomes`], [`ErrorSums`], [`of_ranks`]). Those of predictions on the host, such as
//! [`roc_auc`], say the same of any predictions.
//!
//! Labels of which a split has only positives or only negatives are left out of means over labels, as OGB leaves them out. What is
//! not defined, such as anything of no vertices, is a NaN.

mod errors;
mod outcomes;
mod ranking;

pub use errors::{
    ColumnErrors, ErrorSums, mean_absolute_error, r2, root_mean_squared_error, squared_deviations,
};
pub use outcomes::Outcomes;
pub use ranking::{average_precision, hits_at, mean_reciprocal_rank, of_ranks, rank_sum, roc_auc};

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A measure of predictions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum Metric {
    /// Share of the vertices whose class is right, in percent.
    #[default]
    Accuracy,
    /// F1 of all classes or labels together, in percent.
    MicroF1,
    /// Mean of the F1 of each class or label, in percent.
    MacroF1,
    /// Area under the receiver's operating curve, in percent.
    RocAuc,
    /// Area under precision over recall, as a sum of steps, in percent.
    AveragePrecision,
    /// Mean reciprocal rank of edges among pairs that are none, in percent.
    MeanReciprocalRank,
    /// Share of the edges that score above the so manieth of the pairs that are none, in percent.
    HitsAt(u32),
    /// Mean absolute error, in the unit of the values.
    MeanAbsoluteError,
    /// Root of the mean squared error, in the unit of the values.
    RootMeanSquaredError,
    /// Share of the variance that is told, 1 at most.
    R2,
}

impl Metric {
    /// Whether the better of two is the larger.
    pub const fn larger_is_better(self) -> bool {
        !matches!(self, Self::MeanAbsoluteError | Self::RootMeanSquaredError)
    }

    /// Whether it is in percent.
    pub const fn is_percent(self) -> bool {
        !matches!(
            self,
            Self::MeanAbsoluteError | Self::RootMeanSquaredError | Self::R2
        )
    }

    /// Whether `new` is better than `old`: a NaN is never better than anything, and anything is better than a NaN.
    pub fn is_better(self, new: f64, old: f64) -> bool {
        match self.larger_is_better() {
            _ if old.is_nan() => !new.is_nan(),
            true => new > old,
            false => new < old,
        }
    }

    /// A value with its unit, for people; `undefined` for NaN.
    pub fn shown(self, value: f64) -> String {
        match self.is_percent() {
            _ if value.is_nan() => "undefined".into(),
            true => format!("{value:.2}%"),
            false => format!("{value:.4}"),
        }
    }
}

impl fmt::Display for Metric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Accuracy => "accuracy",
            Self::MicroF1 => "micro-f1",
            Self::MacroF1 => "macro-f1",
            Self::RocAuc => "roc-auc",
            Self::AveragePrecision => "average-precision",
            Self::MeanReciprocalRank => "mrr",
            Self::HitsAt(k) => return f.pad(&format!("hits@{k}")),
            Self::MeanAbsoluteError => "mae",
            Self::RootMeanSquaredError => "rmse",
            Self::R2 => "r2",
        })
    }
}

/// The name is of no metric.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`{}` is no metric; take accuracy, micro-f1, macro-f1, roc-auc, average-precision, mrr, hits@K, mae, rmse or r2",
    crate::message::shortened(.0)
)]
pub struct UnknownMetric(String);

impl FromStr for Metric {
    type Err = UnknownMetric;

    fn from_str(name: &str) -> Result<Self, UnknownMetric> {
        let unknown = || UnknownMetric(name.to_owned());
        Ok(match name {
            "accuracy" => Self::Accuracy,
            "micro-f1" => Self::MicroF1,
            "macro-f1" => Self::MacroF1,
            "roc-auc" | "auc" => Self::RocAuc,
            "average-precision" | "ap" => Self::AveragePrecision,
            "mrr" => Self::MeanReciprocalRank,
            "mae" => Self::MeanAbsoluteError,
            "rmse" => Self::RootMeanSquaredError,
            "r2" => Self::R2,
            _ => {
                let k = name.strip_prefix("hits@").ok_or_else(unknown)?;
                let k = k.parse().ok().filter(|&k: &u32| k > 0);
                Self::HitsAt(k.ok_or_else(unknown)?)
            }
        })
    }
}

impl TryFrom<String> for Metric {
    type Error = UnknownMetric;

    fn try_from(name: String) -> Result<Self, UnknownMetric> {
        name.parse()
    }
}

impl From<Metric> for String {
    fn from(metric: Metric) -> Self {
        metric.to_string()
    }
}

/// The mean of those that are defined; a NaN where none is.
pub(crate) fn mean(values: impl Iterator<Item = Option<f64>>) -> f64 {
    let (sum, count) = values
        .flatten()
        .fold((0.0, 0_u32), |(sum, count), value| (sum + value, count + 1));
    sum / f64::from(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_has_a_name() {
        use Metric::*;
        let all = [
            Accuracy,
            MicroF1,
            MacroF1,
            RocAuc,
            AveragePrecision,
            MeanReciprocalRank,
            HitsAt(20),
            MeanAbsoluteError,
            RootMeanSquaredError,
            R2,
        ];
        for metric in all {
            assert_eq!(metric.to_string().parse(), Ok(metric));
            let json = serde_json::to_string(&metric).unwrap();
            assert_eq!(json, format!("\"{metric}\""));
            assert_eq!(serde_json::from_str::<Metric>(&json).unwrap(), metric);
        }
        for none in ["", "hits", "hits@", "hits@0", "hits@-1", "Accuracy", "f1"] {
            let error = none.parse::<Metric>().unwrap_err().to_string();
            assert!(error.contains("is no metric; take accuracy"), "{error}");
        }
    }

    #[test]
    fn better_is_larger_or_smaller() {
        assert!(Metric::RocAuc.is_better(2.0, 1.0) && !Metric::RocAuc.is_better(1.0, 1.0));
        let mae = Metric::MeanAbsoluteError;
        assert!(mae.is_better(1.0, 2.0) && !mae.is_better(1.0, 1.0));
        assert!(mae.is_better(1.0, f64::NAN) && !mae.is_better(f64::NAN, 1.0));
        assert!(!mae.is_better(f64::NAN, f64::NAN));
    }
}
