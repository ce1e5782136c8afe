//! Loss functions.

use crate::data::{Targets, UNLABELLED};
use crate::error::Error;
use serde::{Deserialize, Serialize};

/// The loss function: the mean over the training vertices, as in torch; see [`crate::ops::cross_entropy`] and
/// [`crate::ops::element_loss`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Loss {
    /// Cross-entropy, for one class per vertex.
    CrossEntropy {
        /// The weight of vertices of each class.
        class_weights: Option<Vec<f32>>,
    },
    /// Binary cross-entropy, for any number of labels per vertex.
    BinaryCrossEntropy {
        /// The weight of a positive label relative to a negative one.
        positive_weights: Option<Vec<f32>>,
    },
    /// The squared errors of values.
    SquaredError,
    /// The absolute errors of values.
    AbsoluteError,
}

impl Loss {
    /// The default loss for targets, without weights: cross-entropy, binary cross-entropy or squared errors.
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

    /// The display name.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::CrossEntropy { .. } => "cross-entropy",
            Self::BinaryCrossEntropy { .. } => "binary cross-entropy",
            Self::SquaredError => "squared error",
            Self::AbsoluteError => "absolute error",
        }
    }

    /// Weights that balance all classes or labels over the vertices of `train`. For classes they are those of
    /// scikit-learn's `class_weight="balanced"`; for a label, the ratio of vertices without it to those with it. A
    /// class or label that lacks either has the weight 1, and unknown labels are not counted. `None` for values.
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

    /// Checks that the loss applies to such targets, and that its weights are valid.
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

    /// The divisor of the sum of losses over `train`, for classes with weights.
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
        // from sklearn.utils.class_weight import compute_class_weight as w
        // w("balanced", classes=[0, 1, 3], y=[0, 0, 1, 3, 3, 3])
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
        // Vertices 0 and 1 have the label, and vertex 2 does not; it is unknown for the others.
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
