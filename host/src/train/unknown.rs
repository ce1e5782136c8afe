//! Entries of targets that are unknown: a masked loss, as OGB's.

use crate::backend::{Backend, MemoryKind};
use crate::data::Targets;
use crate::error::Error;
use crate::ops::{self, Activation};
use crate::tensor::{Element, Matrix};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// What stands for the logit of an unknown label, whose target is 0: its sigmoid, its loss and its slope are 0 in all formats.
const NEVER: f32 = -30_000.0;

/// Which entries of a task's targets are unknown.
///
/// Losses and sums of metrics read logits whose unknown entries are replaced, so that those entries add nothing: by the target
/// itself, 0, of values, and by [`NEVER`] of labels.
#[derive(Debug)]
pub(super) struct Unknown<B: Backend, E: Element> {
    /// 1 where an entry is known, 0 elsewhere.
    known: Matrix<B, E>,
    /// [`NEVER`] where a label is unknown, 0 elsewhere; none of values.
    shift: Option<Matrix<B, E>>,
    /// A buffer of the replaced logits. It stays where it is, so that a step can be recorded.
    replaced: Mutex<Matrix<B, E>>,
}

impl<B: Backend, E: Element> Unknown<B, E> {
    /// For rows × columns of `targets`, of which row `row` is vertex `vertex_of(row)`; `None` where no vertex of theirs has both
    /// known and unknown entries.
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

    /// The same buffers for the first rows of other targets of the same task.
    ///
    /// # Errors
    /// Those of the device.
    pub(super) fn write(&mut self, backend: &B, targets: &Targets) -> Result<(), Error> {
        let (rows, columns) = self.known.shape();
        let vertices = targets.vertices();
        let entries = |of: fn(bool) -> f32| -> Vec<f32> {
            let is_known = |at| {
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
        // The gradient of a ReLU keeps what its output is positive for, and makes zeros of the rest, NaN included.
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
