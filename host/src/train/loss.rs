//! What is made small in training.

use crate::data::{Targets, UNLABELLED};
use crate::error::Error;
use serde::{Deserialize, Serialize};

/// What is made small in training, the mean over the training vertices, as torch has it; see [`crate::ops::cross_entropy`] and
/// [`crate::ops::element_loss`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Loss {
    /// Of one class of each vertex.
    CrossEntropy {
        /// What vertices of each class count.
        class_weights: Option<Vec<f32>>,
    },
    /// Of any number of labels of each vertex.
    BinaryCrossEntropy {
        /// What a label that a vertex has counts, beside one that it has not.
        positive_weights: Option<Vec<f32>>,
    },
    /// Of values: their squared errors.
    SquaredError,
    /// Of values: their absolute errors.
    AbsoluteError,
}

impl Loss {
    /// The customary loss of targets, without weights: cross-entropy, binary cross-entropy, squared errors.
    pub const fn of(targets: &Targets) -> Self {
        match targets {
            Targets::Labels(_) => Self::BinaryCrossEntropy {
                positive_weights: None,
            },
            Targets::Values(_) => Self::SquaredError,
            _ => Self::CrossEntropy {
                class_weights: None,
            },
        }
    }

    /// What it is called.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CrossEntropy { .. } => "cross-entropy",
            Self::BinaryCrossEntropy { .. } => "binary cross-entropy",
            Self::SquaredError => "squared error",
            Self::AbsoluteError => "absolute error",
        }
    }

    /// Weights by which all classes or labels count as much among the vertices of `train`: of classes those of scikit-learn's
    /// `class_weight="balanced"`, of labels the vertices without one over those with it. A class or label without either has the
    /// weight 1, and unknown labels are in no count. `None` of values.
    pub fn balanced_weights(targets: &Targets, outputs: usize, train: &[u32]) -> Option<Vec<f32>> {
        match targets {
            Targets::Classes(classes) => {
                let mut sizes = vec![0_usize; outputs];
                for &vertex in train {
                    if let Some(size) = sizes.get_mut(classes[vertex as usize] as usize) {
                        *size += 1;
                    }
                }
                let (all, present) = (
                    sizes.iter().sum::<usize>() as f64,
                    sizes.iter().filter(|&&size| size > 0).count() as f64,
                );
                let weight = |&size: &usize| match size {
                    0 => 1.0,
                    size => (all / (present * size as f64)) as f32,
                };
                Some(sizes.iter().map(weight).collect())
            }
            Targets::Labels(labels) => {
                let weight = |column| {
                    let count = |truth| {
                        let is = |vertex: &&u32| labels.get(**vertex as usize, column) == truth;
                        train.iter().filter(is).count()
                    };
                    match (count(Some(true)), count(Some(false))) {
                        (0, _) | (_, 0) => 1.0,
                        (with, without) => (without as f64 / with as f64) as f32,
                    }
                };
                Some((0..outputs).map(weight).collect())
            }
            _ => None,
        }
    }

    /// That it is a loss of such targets, and its weights are weights.
    pub(super) fn check(&self, targets: &Targets, outputs: usize) -> Result<(), Error> {
        let refuse = |reason| {
            Err(Error::Unsupported {
                operator: "Objective",
                reason,
            })
        };
        let fits = match self {
            Self::CrossEntropy { .. } => matches!(targets, Targets::Classes(_)),
            Self::BinaryCrossEntropy { .. } => matches!(targets, Targets::Labels(_)),
            Self::SquaredError | Self::AbsoluteError => matches!(targets, Targets::Values(_)),
        };
        if !fits {
            return refuse(format!(
                "{} is no loss of {}; take Loss::of the targets",
                self.name(),
                targets.description()
            ));
        }
        let (Self::CrossEntropy {
            class_weights: weights,
        }
        | Self::BinaryCrossEntropy {
            positive_weights: weights,
        }) = self
        else {
            return Ok(());
        };
        let Some(weights) = weights else {
            return Ok(());
        };
        if weights.len() != outputs {
            return refuse(format!(
                "there are {} weights, and {outputs} {}; give one for each",
                weights.len(),
                targets.unit()
            ));
        }
        match weights
            .iter()
            .find(|weight| !(weight.is_finite() && **weight >= 0.0))
        {
            Some(wrong) => refuse(format!(
                "a weight is {wrong}; give finite numbers from 0 on"
            )),
            None => Ok(()),
        }
    }

    /// What the sum of the losses of `train` is divided by, of classes with weights.
    pub(super) fn total(weights: &[f32], classes: &[u32], train: &[u32]) -> f32 {
        let weight = |&vertex: &u32| match classes[vertex as usize] {
            UNLABELLED => 0.0,
            class => f64::from(weights[class as usize]),
        };
        train.iter().map(weight).sum::<f64>() as f32
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::data::LabelSets;

    #[test]
    fn balanced_weights_are_scikit_learns() {
        // from sklearn.utils.class_weight import compute_class_weight as w; w("balanced", classes=[0, 1, 3], y=[0, 0, 1, 3, 3, 3])
        let targets = Targets::from(vec![0, 0, 1, 3, 3, 3, UNLABELLED, 2]);
        let weights = Loss::balanced_weights(&targets, 4, &[0, 1, 2, 3, 4, 5]).unwrap();
        assert_eq!(weights, [1.0, 2.0, 1.0, 2.0 / 3.0]);
        assert_eq!(
            Loss::total(&weights, targets.classes().unwrap(), &[0, 2, 6]),
            3.0
        );

        let truths = [true, false, true, true, false, false, true, true];
        let labels = LabelSets::new(2, truths.into_iter().map(Some)).unwrap();
        let targets = Targets::Labels(labels);
        assert_eq!(
            Loss::balanced_weights(&targets, 2, &[0, 1, 2, 3]),
            Some(vec![1.0 / 3.0, 1.0])
        );
        assert_eq!(
            Loss::balanced_weights(&targets, 2, &[0, 1]),
            Some(vec![1.0, 1.0])
        );
        // With the label are vertices 0 and 1, without it 2; of the others it is unknown.
        let truths = [Some(true), Some(true), Some(false), None, None];
        let targets = Targets::Labels(LabelSets::new(1, truths.into_iter()).unwrap());
        assert_eq!(
            Loss::balanced_weights(&targets, 1, &[0, 1, 2, 3, 4]),
            Some(vec![0.5])
        );
    }

    #[test]
    fn losses_of_other_targets_are_refused() {
        let classes = Targets::from(vec![0, 1]);
        let message = |loss: Loss| loss.check(&classes, 2).unwrap_err().to_string();
        assert_eq!(
            message(Loss::SquaredError),
            "Objective: squared error is no loss of a class of each vertex; take Loss::of the targets"
        );
        let weighted = |weights: &[f32]| Loss::CrossEntropy {
            class_weights: Some(weights.to_vec()),
        };
        assert!(message(weighted(&[1.0])).contains("1 weights, and 2 classes; give one for each"));
        assert!(message(weighted(&[1.0, -1.0])).contains("a weight is -1"));
        assert!(message(weighted(&[1.0, f32::NAN])).contains("a weight is NaN"));
        assert!(weighted(&[0.0, 2.0]).check(&classes, 2).is_ok());
        assert!(Loss::of(&classes).check(&classes, 2).is_ok());
    }
}
