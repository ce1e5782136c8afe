//! What a model predicts, as classes, labels, probabilities and values.

use crate::train::{Checkpoint, Loss};
use std::fmt;
use std::sync::Arc;

/// What a model predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Kind {
    /// One class of each vertex or graph.
    Classes,
    /// Any number of labels of each.
    Labels,
    /// Numbers of each.
    Values,
    /// Which pairs of vertices are edges.
    Links,
}

impl Kind {
    /// What the model of a checkpoint predicts.
    pub fn of(checkpoint: &Checkpoint) -> Self {
        match checkpoint.loss {
            _ if checkpoint.links.is_some() => Self::Links,
            Loss::BinaryCrossEntropy { .. } => Self::Labels,
            Loss::SquaredError | Loss::AbsoluteError => Self::Values,
            Loss::CrossEntropy { .. } => Self::Classes,
        }
    }

    /// The name, as predictions are called: `classes`, `labels`, `values` or `links`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Classes => "classes",
            Self::Labels => "labels",
            Self::Values => "values",
            Self::Links => "links",
        }
    }

    /// Whether predictions have probabilities; values have none.
    pub const fn has_probabilities(self) -> bool {
        !matches!(self, Self::Values)
    }

    /// Turns rows of `columns` logits into probabilities: of classes their softmax, else the sigmoid of each.
    pub fn to_probabilities(self, logits: &mut [f32], columns: usize) {
        match self {
            Self::Classes => logits.chunks_exact_mut(columns.max(1)).for_each(softmax),
            _ => logits.iter_mut().for_each(|logit| *logit = sigmoid(*logit)),
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The class with the largest logit, the lowest of equals.
pub fn class(logits: &[f32]) -> u32 {
    let mut best = 0;
    for (class, logit) in logits.iter().enumerate() {
        if *logit > logits[best] || logits[best].is_nan() {
            best = class;
        }
    }
    best as u32
}

/// The probability of a label or a link.
pub fn sigmoid(logit: f32) -> f32 {
    1.0 / (1.0 + (-logit).exp())
}

/// Turns the logits of a row into the probabilities of the classes.
pub fn softmax(row: &mut [f32]) {
    let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let mut sum = 0.0;
    for value in row.iter_mut() {
        *value = (*value - largest).exp();
        sum += *value;
    }
    row.iter_mut().for_each(|value| *value /= sum);
}

/// What a model gave of some vertices or graphs, a row each.
#[derive(Clone, Debug, PartialEq)]
pub struct Predictions {
    pub(super) kind: Kind,
    pub(super) columns: usize,
    pub(super) logits: Vec<f32>,
    pub(super) class_names: Option<Arc<[String]>>,
}

impl Predictions {
    /// What is predicted: classes, labels or values.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Rows.
    pub fn len(&self) -> usize {
        self.logits.len() / self.columns
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.logits.is_empty()
    }

    /// Numbers of a row: classes, labels or values.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The numbers of the model, rows × columns: logits, or the values.
    pub fn logits(&self) -> &[f32] {
        &self.logits
    }

    /// The class of each row; `None` of a model of labels or values.
    pub fn classes(&self) -> Option<Vec<u32>> {
        let rows = self.logits.chunks_exact(self.columns);
        (self.kind == Kind::Classes).then(|| rows.map(class).collect())
    }

    /// What a class is called, where the dataset that the model was trained on has names.
    pub fn class_name(&self, class: u32) -> Option<&str> {
        let name = self.class_names.as_ref()?.get(class as usize)?;
        Some(name.as_str())
    }

    /// Whether each row has each label, rows × columns: those more probable than not. `None` of other models.
    pub fn labels(&self) -> Option<Vec<bool>> {
        let has = |logit: &f32| *logit > 0.0;
        (self.kind == Kind::Labels).then(|| self.logits.iter().map(has).collect())
    }

    /// The probability of each class or label, rows × columns; `None` of values.
    pub fn probabilities(&self) -> Option<Vec<f32>> {
        self.kind.has_probabilities().then(|| {
            let mut values = self.logits.clone();
            self.kind.to_probabilities(&mut values, self.columns);
            values
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_logit_is_the_class() {
        assert_eq!(class(&[0.0, 2.0, 1.0]), 1);
        assert_eq!(class(&[3.0, 3.0]), 0);
        assert_eq!(class(&[f32::NAN, -1.0, 5.0]), 2);
        assert_eq!(class(&[f32::NAN; 2]), 1);
    }

    #[test]
    fn probabilities_add_up_however_large_logits_are() {
        let mut row = [1000.0, 1000.0, -1e9];
        softmax(&mut row);
        assert_eq!(row, [0.5, 0.5, 0.0]);
        assert_eq!([sigmoid(0.0), sigmoid(-1e9), sigmoid(1e9)], [0.5, 0.0, 1.0]);
        let mut row = [0.0, 3.0_f32.ln()];
        softmax(&mut row);
        assert!((row[1] - 0.75).abs() < 1e-6, "{row:?}");
    }

    #[test]
    fn a_row_is_read_by_what_is_predicted() {
        let of = |kind| Predictions {
            kind,
            columns: 2,
            logits: vec![0.0, 3.0_f32.ln(), 2.0, -1.0],
            class_names: Some(["a".to_owned(), "b".to_owned()].into()),
        };
        let classes = of(Kind::Classes);
        assert_eq!((classes.len(), classes.classes()), (2, Some(vec![1, 0])));
        assert_eq!(
            (classes.class_name(1), classes.class_name(2)),
            (Some("b"), None)
        );
        assert_eq!(classes.labels(), None);
        assert!((classes.probabilities().expect("they have some")[0] - 0.25).abs() < 1e-6);
        let labels = of(Kind::Labels);
        assert_eq!(labels.labels(), Some(vec![false, true, true, false]));
        assert_eq!(labels.classes(), None);
        assert_eq!(labels.probabilities().expect("they have some")[0], 0.5);
        let values = of(Kind::Values);
        assert_eq!(
            (values.probabilities(), values.labels(), values.classes()),
            (None, None, None)
        );
    }
}
