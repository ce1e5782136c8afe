//! A trainer's state on the host: read from a device, and written to any.
//!
//! | tensor | holds |
//! |---|---|
//! | `layers.0.weight`, … | parameters and buffers at the best validation epoch, in float |
//! | `resume.layers.0.weight` | the float master weights, and buffers, as they are |
//! | `resume.layers.0.weight.first_moment`, `….second_moment` | what the optimiser keeps of them: Adam both, SGD the first or none |
//!
//! The copies in half that kernels read are rounded from the master weights, so they are not stored.

use super::{Progress, Trainer};
use crate::backend::Backend;
use crate::error::Error;
use crate::nn::Model;
use crate::ops::OptimizerSnapshot;
use crate::tensor::{Element, Matrix};
use std::collections::{BTreeMap, BTreeSet};

/// A matrix on the host, row-major, without padding.
#[derive(Clone, Debug, PartialEq)]
pub struct Tensor {
    /// Rows.
    pub rows: usize,
    /// Columns.
    pub columns: usize,
    /// `rows · columns` values.
    pub values: Vec<f32>,
}

/// Tensors by name.
pub type Tensors = BTreeMap<String, Tensor>;

/// All state that a trainer carries from one epoch to the next. With the same configuration and task, a resumed run
/// gives the same bits.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    /// The progress of the run.
    pub progress: Progress,
    /// Loss scale and step count; the random numbers of dropout depend on the count.
    pub optimizer: OptimizerSnapshot,
    /// Weights, moments, buffers: see the table of this module.
    pub tensors: Tensors,
}

/// The prefix of names that only a resumed run needs.
pub(super) const RESUME: &str = "resume.";
const MOMENTS: [&str; 2] = [".first_moment", ".second_moment"];

fn download<B: Backend>(backend: &B, matrix: &Matrix<B, f32>) -> Result<Tensor, Error> {
    Ok(Tensor {
        rows: matrix.rows(),
        columns: matrix.columns(),
        values: matrix.to_f32(backend)?,
    })
}

fn refuse<T>(reason: String) -> Result<T, Error> {
    Err(Error::Unsupported {
        operator: "checkpoint",
        reason,
    })
}

/// The values of the tensor `name`, which must be `rows` × `columns`.
fn find<'a>(
    tensors: &'a Tensors,
    name: &str,
    (rows, columns): (usize, usize),
) -> Result<&'a [f32], Error> {
    match tensors.get(name) {
        None => refuse(format!(
            "it has no tensor `{name}`, so it is of another model"
        )),
        Some(tensor) if (tensor.rows, tensor.columns) != (rows, columns) => refuse(format!(
            "tensor `{name}` is {} x {} and the model's is {rows} x {columns}, so it is of another shape of model",
            tensor.rows, tensor.columns
        )),
        Some(tensor) => Ok(&tensor.values),
    }
}

/// The parameter or buffer that a tensor of a snapshot belongs to, also for names that only a resumed run reads.
fn owner(name: &str) -> &str {
    let Some(name) = name.strip_prefix(RESUME) else {
        return name;
    };
    let mut moments = MOMENTS.iter();
    let of_moment = moments.find_map(|moment| name.strip_suffix(moment));
    of_moment.unwrap_or(name)
}

/// Refuses a tensor that the model of a checkpoint lacks.
pub(super) fn no_place(name: &str) -> String {
    format!(
        "its tensor `{name}` has no place in the model, whose scores would be others without it; train it anew"
    )
}

/// Refuses tensors that the model does not have, decoders of links among them. Without them its scores would differ.
fn expect_known<'a, B: Backend, E: Element>(
    model: &impl Model<B, E>,
    mut names: impl Iterator<Item = &'a String>,
) -> Result<(), Error> {
    let parameters = model.parameters().into_iter();
    let parameters = parameters.map(|parameter| parameter.name().to_owned());
    let buffers = model.buffers().into_iter().map(|(name, _)| name);
    let known: BTreeSet<String> = parameters.chain(buffers).collect();
    match names.find(|name| !known.contains(owner(name))) {
        Some(name) if name.starts_with("decoder.") => refuse(format!(
            "its tensor `{name}` is of a decoder of links that the model has not; make the model with the decoder of the checkpoint"
        )),
        Some(name) => refuse(no_place(name)),
        None => Ok(()),
    }
}

/// The present parameters and buffers of a model, by name.
pub(super) fn weights<B: Backend, E: Element>(
    backend: &B,
    model: &impl Model<B, E>,
) -> Result<Tensors, Error> {
    let parameters = model.parameters();
    let parameters = parameters
        .iter()
        .map(|parameter| (parameter.name().to_owned(), parameter.master()));
    parameters
        .chain(model.buffers())
        .map(|(name, matrix)| Ok((name, download(backend, matrix)?)))
        .collect()
}

/// Writes the parameters and buffers of `tensors` to a model, by name; the optimiser's moments stay.
///
/// # Errors
/// [`Error::Unsupported`] where one is missing or has another shape, or is of no parameter or buffer of the model. Part
/// of the model may have been written then.
pub fn load_weights<B: Backend, E: Element>(
    backend: &B,
    model: &mut impl Model<B, E>,
    tensors: &Tensors,
) -> Result<(), Error> {
    let names = tensors.keys().filter(|name| !name.starts_with(RESUME));
    expect_known(model, names)?;
    for parameter in model.parameters_mut() {
        let values = find(tensors, parameter.name(), parameter.shape())?;
        parameter.write(backend, values)?;
    }
    for (name, matrix) in model.buffers_mut() {
        let values = find(tensors, &name, matrix.shape())?;
        matrix.write_f32(backend, values)?;
    }
    Ok(())
}

impl<B: Backend, E: Element, M: Model<B, E>> Trainer<B, E, M> {
    /// The state after the last epoch, once all work on the backend is done. It has the weights at the best validation
    /// epoch where [`TrainConfig::keep_best`](super::TrainConfig) is set and an epoch has a validation score. Otherwise
    /// it has the present weights in their place.
    ///
    /// # Errors
    /// The failure of an earlier operator.
    pub fn snapshot(&self) -> Result<Snapshot, Error> {
        let now = weights(&self.backend, &self.model)?;
        let mut tensors = Tensors::new();
        for parameter in self.model.parameters() {
            for (moment, suffix) in parameter.moments().into_iter().zip(MOMENTS) {
                let name = format!("{RESUME}{}{suffix}", parameter.name());
                tensors.insert(name, download(&self.backend, moment)?);
            }
        }
        tensors.extend(self.best.clone().unwrap_or_else(|| now.clone()));
        tensors.extend(
            now.into_iter()
                .map(|(name, tensor)| (format!("{RESUME}{name}"), tensor)),
        );
        Ok(Snapshot {
            progress: self.progress,
            optimizer: self.optimizer()?,
            tensors,
        })
    }

    /// Resumes from `snapshot`.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the snapshot is of another model; then the trainer must not be used any more.
    pub fn restore(&mut self, snapshot: &Snapshot) -> Result<(), Error> {
        let backend = &self.backend.clone();
        let tensors = &snapshot.tensors;
        expect_known(&self.model, tensors.keys())?;
        let mut best = Tensors::new();
        let mut keep = |name: &str, shape: (usize, usize)| {
            find(tensors, name, shape)?;
            best.insert(name.to_owned(), tensors[name].clone());
            Ok::<(), Error>(())
        };
        let kept = self.config.optimizer.moments();
        let model = self.model_mut();
        for parameter in model.parameters_mut() {
            let (name, shape) = (parameter.name().to_owned(), parameter.shape());
            keep(&name, shape)?;
            let of = |suffix: &&str| find(tensors, &format!("{RESUME}{name}{suffix}"), shape);
            let moments = MOMENTS.iter().take(kept).map(of);
            let moments = moments.collect::<Result<Vec<_>, Error>>()?;
            let master = find(tensors, &format!("{RESUME}{name}"), shape)?;
            parameter.keep_moments(backend, kept)?;
            parameter.restore(backend, master, &moments)?;
        }
        for (name, matrix) in model.buffers_mut() {
            keep(&name, matrix.shape())?;
            let values = find(tensors, &format!("{RESUME}{name}"), matrix.shape())?;
            matrix.write_f32(backend, values)?;
        }
        self.resume_optimizer(&snapshot.optimizer)?;
        self.progress = snapshot.progress;
        if self.objective.lacks_validation() {
            // A file of an earlier release may name a best epoch although nothing was validated.
            self.progress.best = None;
        }
        let has_best = self.config.keep_best && self.progress.best.is_some();
        self.best = has_best.then_some(best);
        Ok(())
    }
}
