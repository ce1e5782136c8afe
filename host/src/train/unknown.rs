//! Unknown entries of targets: a masked loss, as in OGB.

use crate::backend::{Backend, MemoryKind};
use crate::data::Targets;
use crate::error::Error;
use crate::ops::{self, Activation};
use crate::tensor::{Element, Matrix};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The replacement for the logit of an unknown label, whose target is 0. Its sigmoid, its loss and its gradient are 0
/// in all formats.
const NEVER: f32 = -30_000.0;

/// The unknown entries of a task's targets.
///
/// Losses and sums of metrics read logits whose unknown entries are replaced, so that those entries add nothing. The
/// replacement is the target itself, 0, for values and [`NEVER`] for labels.
#[derive(Debug)]
pub(super) struct Unknown<B: Backend, E: Element> {
    /// 1 where an entry is known, 0 elsewhere.
    known: Matrix<B, E>,
    /// [`NEVER`] where a label is unknown, 0 elsewhere; none for values.
    shift: Option<Matrix<B, E>>,
    /// The buffer of the replaced logits. Its address does not change, so a step can be recorded.
    replaced: Mutex<Matrix<B, E>>,
}

impl<B: Backend, E: Element> Unknown<B, E> {
    /// Makes the buffers for `targets` of the given shape, whose row `row` is vertex `vertex_of(row)`. `None` where no
    /// vertex has both known and unknown entries.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub(super) fn of(
        backend: &B,
        targets: &Targets,
        shape: (usize, usize),
        vertex_of: impl Fn(usize) -> usize + Sync,
    ) -> Result<Option<Self>, Error> {
        if !targets.is_partial() {
            return Ok(None);
        }
        let matrix = |of: fn(bool) -> f32| {
            Matrix::from_rows(backend, shape, MemoryKind::Features, |row, to| {
                let vertex = vertex_of(row);
                let entries = to.iter_mut().enumerate();
                entries.for_each(|(column, to)| *to = of(targets.is_known(vertex, column)));
            })
        };
        let is_of_labels = matches!(targets, Targets::Labels(_));
        let replaced = Matrix::zeros(backend, shape.0, shape.1, MemoryKind::Workspace)?;
        Ok(Some(Self {
            known: matrix(known)?,
            shift: is_of_labels.then(|| matrix(shift)).transpose()?,
            replaced: Mutex::new(replaced),
        }))
    }

    /// The zeroed buffers of such targets, for a backend that only counts memory.
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub(super) fn counted(
        backend: &B,
        targets: &Targets,
        (rows, columns): (usize, usize),
    ) -> Result<Option<Self>, Error> {
        if !targets.is_partial() {
            return Ok(None);
        }
        let matrix = |kind| Matrix::zeros(backend, rows, columns, kind);
        let is_of_labels = matches!(targets, Targets::Labels(_));
        Ok(Some(Self {
            known: matrix(MemoryKind::Features)?,
            shift: is_of_labels
                .then(|| matrix(MemoryKind::Features))
                .transpose()?,
            replaced: Mutex::new(matrix(MemoryKind::Workspace)?),
        }))
    }

    /// Rewrites the buffers for the first rows of other targets of the same task.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn write(&mut self, backend: &B, targets: &Targets) -> Result<(), Error> {
        let (rows, columns) = self.known.shape();
        let vertices = targets.vertices();
        let entries = |of: fn(bool) -> f32| -> Vec<f32> {
            let is_known = |at: usize| {
                let (row, column) = (at / columns, at % columns);
                row >= vertices || targets.is_known(row, column)
            };
            (0..rows * columns).map(|at| of(is_known(at))).collect()
        };
        self.known.write_f32(backend, &entries(known))?;
        match &mut self.shift {
            Some(matrix) => matrix.write_f32(backend, &entries(shift)),
            None => Ok(()),
        }
    }

    /// Logits whose unknown entries are replaced. The buffer is in use until the guard is dropped.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn replaced(
        &self,
        backend: &B,
        logits: &Matrix<B, E>,
    ) -> Result<MutexGuard<'_, Matrix<B, E>>, Error> {
        let as_they_are = Activation::default();
        let where_known = Activation {
            relu: true,
            ..Activation::default()
        };
        let mut replaced = self.replaced.lock().unwrap_or_else(PoisonError::into_inner);
        ops::activate(backend, &as_they_are, Some(logits), &mut replaced)?;
        // The gradient of a ReLU passes values where its output is positive, and replaces the rest by zero, NaN
        // included.
        let known = Some(&self.known);
        ops::activate_backward(backend, &where_known, known, None, &mut replaced)?;
        if let Some(shift) = &self.shift {
            ops::activate_sum(backend, &as_they_are, shift, &mut replaced)?;
        }
        Ok(replaced)
    }
}

fn known(is_known: bool) -> f32 {
    f32::from(is_known)
}

fn shift(is_known: bool) -> f32 {
    if is_known { 0.0 } else { NEVER }
}

#[cfg(test)]
mod tests {
    use super::super::{Goal, Loss, Objective, TrainConfig};
    use crate::backend::MemoryKind;
    use crate::backend::cpu::Cpu;
    use crate::data::{LabelSets, Targets, Values};
    use crate::nn::LinkOperands;
    use crate::ops::OptimizerState;
    use crate::tensor::{Array, Element, Matrix, Precision};
    use half::f16;

    const KIND: MemoryKind = MemoryKind::Features;

    /// The loss of all vertices and its gradient, not scaled.
    fn loss_of<E: Element>(targets: &Targets, loss: &Loss, logits: &[f32]) -> (f32, Vec<f32>) {
        let backend = &Cpu::new();
        let (vertices, outputs) = (targets.vertices(), targets.outputs());
        let train: Vec<u32> = (0..vertices as u32)
            .filter(|&vertex| targets.is_labelled(vertex as usize))
            .collect();
        let goal = Goal {
            targets,
            outputs,
            loss,
            splits: [&train, &[], &[]],
        };
        let features = Matrix::<_, E>::zeros(backend, vertices, 1, KIND).unwrap();
        let objective = Objective::of(backend, Vec::new(), features, &goal).unwrap();
        let logits = Matrix::<_, E>::from_f32(backend, vertices, outputs, logits, KIND).unwrap();
        let mut gradient = Matrix::<_, E>::zeros(backend, vertices, outputs, KIND).unwrap();
        let mut sum = Array::zeros(backend, 1, KIND).unwrap();
        let float = TrainConfig::new(Precision::Float);
        let state = OptimizerState::new(backend, &float.scaling).unwrap();
        let operands = LinkOperands {
            logits: &logits,
            gradient: &mut gradient,
            decoder: None,
        };
        objective.loss(backend, operands, &state, &mut sum).unwrap();
        let scale = float.scaling.initial;
        let gradient = gradient.to_f32(backend).unwrap();
        (
            sum.to_vec(backend).unwrap()[0],
            gradient.iter().map(|slope| slope / scale).collect(),
        )
    }

    /// Entries (0, 1), (1, 0) and all of vertex 2 are unknown. Their logits are NaN and infinite, and must not add to
    /// the loss.
    fn labels() -> Targets {
        let truths = [
            Some(true),
            None,
            None,
            Some(false),
            None,
            None,
            Some(false),
            Some(true),
        ];
        Targets::Labels(LabelSets::new(2, truths.into_iter()).unwrap())
    }

    const LOGITS: [f32; 8] = [0.5, f32::NAN, f32::INFINITY, -1.0, 3.0, 9.0, 2.0, -0.25];

    fn near(found: f32, expected: f64, off: f64) {
        assert!(
            (f64::from(found) - expected).abs() < off,
            "{found} for {expected}"
        );
    }

    /// As in ogbg-molpcba's example: `BCEWithLogitsLoss()(pred[y == y], y[y == y])`.
    #[test]
    fn unknown_labels_cost_nothing() {
        fn check<E: Element>(off: f64) {
            for weight in [1.0_f64, 3.0] {
                let known = [
                    (0, 0.5_f64, true),
                    (3, -1.0, false),
                    (6, 2.0, false),
                    (7, -0.25, true),
                ];
                let term = |&(_, x, y): &(usize, f64, bool)| match y {
                    true => weight * (-x).exp().ln_1p(),
                    false => x.exp().ln_1p(),
                };
                let expected = known.iter().map(term).sum::<f64>() / 4.0;
                let loss = Loss::BinaryCrossEntropy {
                    positive_weights: (weight != 1.0).then(|| vec![weight as f32; 2]),
                };
                let (found, gradient) = loss_of::<E>(&labels(), &loss, &LOGITS);
                near(found, expected, off);
                for (at, &slope) in gradient.iter().enumerate() {
                    let sigmoid = |x: f64| 1.0 / (1.0 + (-x).exp());
                    let expected = match known.iter().find(|(known, ..)| *known == at) {
                        Some(&(_, x, true)) => weight * (sigmoid(x) - 1.0) / 4.0,
                        Some(&(_, x, false)) => sigmoid(x) / 4.0,
                        None => 0.0,
                    };
                    near(slope, expected, off);
                }
            }
        }
        check::<f32>(1e-6);
        check::<f16>(1e-3);
    }

    #[test]
    fn unknown_values_cost_nothing() {
        let y = [1.0, f32::NAN, f32::NAN, 0.0, f32::NAN, f32::NAN, 2.0, -1.0];
        let targets = Targets::Values(Values::new(2, y.to_vec()).unwrap());
        let (squared, gradient) = loss_of::<f32>(&targets, &Loss::SquaredError, &LOGITS);
        near(squared, (0.25 + 1.0 + 0.5625) / 4.0, 1e-6);
        assert_eq!(gradient, [-0.25, 0.0, 0.0, -0.5, 0.0, 0.0, 0.0, 0.375]);
        let (absolute, gradient) = loss_of::<f32>(&targets, &Loss::AbsoluteError, &LOGITS);
        near(absolute, (0.5 + 1.0 + 0.75) / 4.0, 1e-6);
        assert_eq!(gradient, [-0.25, 0.0, 0.0, -0.25, 0.0, 0.0, 0.0, 0.25]);
    }
}
