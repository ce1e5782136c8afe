//! Tasks on graphs of several types of vertices and edges.

use super::{Goal, Objective};
use crate::backend::{Backend, MemoryKind};
use crate::data::{Dataset, UploadFeatures};
use crate::error::Error;
use crate::nn::{ModelConfig, ModelTypes};
use crate::tensor::Element;
use std::sync::Arc;

const NAME: &str = "Objective::of_types";

impl<B: Backend, E: Element> Objective<B, E> {
    /// The task of predicting `goal` for the labelled vertices of a dataset of several types by a model of these types.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where the model is of other types, and those of [`Objective::of`].
    pub fn of_types(
        backend: &B,
        (dataset, model): (&Dataset, &ModelConfig),
        goal: &Goal<'_>,
    ) -> Result<Self, Error> {
        let (Some(types), Some(of_model)) = (&dataset.types, &model.types) else {
            return Err(Error::Unsupported {
                operator: NAME,
                reason: format!(
                    "the model or {} has one type of vertices; take Objective::of",
                    dataset.name
                ),
            });
        };
        of_model.expect(dataset)?;
        let graphs = ModelTypes::graphs(backend, types, model.norm())?;
        let features = dataset.upload_features_as(backend, MemoryKind::Features)?;
        let vertices = dataset.graph.vertices();
        Error::expect(NAME, "labels", vertices, goal.targets.vertices())?;
        let all: Vec<u32> = (0..vertices as u32).collect();
        let features = Arc::new(features.into());
        let mut task = Self::of_vertices(backend, graphs, features, goal, &all, None)?;
        task.task_mut().of_types = of_model.features(backend, dataset)?;
        Ok(task)
    }
}
