//! What is trained on: features, labels and splits on a backend.

use crate::backend::{Backend, MemoryKind};
use crate::error::Error;
use crate::graph::GraphCounts;
use crate::nn::{Inputs, Norm, Propagation};
use crate::ops::NO_TARGET;
use crate::tensor::{Array, Element, Matrix};
use std::fmt;
use std::sync::Arc;

const NAME: &str = "Objective";

/// A part of the labelled vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Those whose labels the model learns from.
    Train,
    /// Those that choose the epoch.
    Validation,
    /// Those that tell how good it is.
    Test,
}

impl Split {
    /// Every split, in the order of the backend's split numbers.
    pub const ALL: [Split; 3] = [Split::Train, Split::Validation, Split::Test];
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Split::Train => "training",
            Split::Validation => "validation",
            Split::Test => "test",
        })
    }
}

/// A node classification task on a backend: a handle, whose clones are the same task, so that many models may train on
/// one.
#[derive(Clone, Debug)]
pub struct Objective<B: Backend, E: Element>(pub(super) Arc<Task<B, E>>);

/// What an [`Objective`] stands for.
#[derive(Debug)]
pub(super) struct Task<B: Backend, E: Element> {
    /// As of [`Inputs::graphs`].
    pub(super) graphs: Vec<Propagation<B>>,
    pub(super) features: Matrix<B, E>,
    pub(super) labels: Array<B, u32>,
    pub(super) splits: Array<B, u32>,
    /// The labels of training vertices, [`NO_TARGET`] elsewhere.
    pub(super) targets: Array<B, u32>,
    pub(super) sizes: [usize; 3],
    classes: usize,
}

impl<B: Backend, E: Element> Objective<B, E> {
    /// The task of telling the classes of vertices: `labels` has one a vertex, `splits` the vertices of each split in
    /// the order of [`Split::ALL`], `graph` is the graph as the model wants it.
    ///
    /// # Errors
    /// [`Error::Shape`] where sizes do not agree, [`Error::Unsupported`] where no vertex is trained on, a split names a
    /// vertex that does not exist or that another split has, or such a vertex has a label that is no class, and
    /// [`Error::Driver`] where there is not enough memory.
    pub fn new(
        backend: &B,
        graph: Propagation<B>,
        features: Matrix<B, E>,
        labels: &[u32],
        classes: usize,
        splits: [&[u32]; 3],
    ) -> Result<Self, Error> {
        let graphs = vec![graph];
        Self::on_blocks(backend, graphs, features, labels, classes, splits)
    }

    /// The same of the destinations of the last of `graphs`, of which there is one for each layer that
    /// [hears](crate::nn::Layer::aggregates) from neighbours, as a sampled batch has them: see [`Inputs::graphs`]. Features are
    /// those of the first one's sources; labels and splits number the last one's destinations.
    ///
    /// # Errors
    /// Those of [`Objective::new`].
    pub fn on_blocks(
        backend: &B,
        graphs: Vec<Propagation<B>>,
        features: Matrix<B, E>,
        labels: &[u32],
        classes: usize,
        splits: [&[u32]; 3],
    ) -> Result<Self, Error> {
        let sources = graphs.first().map_or(features.rows(), Propagation::sources);
        let vertices = graphs.last().map_or(sources, Propagation::destinations);
        Error::expect(NAME, "rows of the features", sources, features.rows())?;
        Error::expect(NAME, "labels", vertices, labels.len())?;
        let numbers = number_vertices(labels, classes, splits)?;
        let targets: Vec<u32> = numbers
            .iter()
            .zip(labels)
            .map(|(&split, &label)| {
                if split == Split::Train as u32 {
                    label
                } else {
                    NO_TARGET
                }
            })
            .collect();
        let upload = |values: &[u32]| Array::from_slice(backend, values, MemoryKind::Features);
        Ok(Self(Arc::new(Task {
            graphs,
            features,
            labels: upload(labels)?,
            splits: upload(&numbers)?,
            targets: upload(&targets)?,
            sizes: splits.map(<[u32]>::len),
            classes,
        })))
    }

    /// The task of a graph of `counts` with nothing in its arrays: for a backend that only counts memory.
    pub(super) fn counted(
        backend: &B,
        counts: &GraphCounts,
        norm: Norm,
        [features, classes]: [usize; 2],
    ) -> Result<Self, Error> {
        let (vertices, kind) = (counts.vertices(), MemoryKind::Features);
        let numbers = || Array::zeros(backend, vertices, kind);
        Ok(Self(Arc::new(Task {
            graphs: vec![Propagation::counted::<E>(backend, counts, norm)?],
            features: Matrix::zeros(backend, vertices, features, kind)?,
            labels: numbers()?,
            splits: numbers()?,
            targets: numbers()?,
            sizes: [vertices, 0, 0],
            classes,
        })))
    }

    /// What a model computes on.
    pub fn inputs<'a>(&'a self, backend: &'a B) -> Inputs<'a, B, E> {
        Inputs {
            backend,
            graphs: &self.0.graphs,
            features: &self.0.features,
        }
    }

    /// Number of vertices that have a label.
    pub fn vertices(&self) -> usize {
        self.0.labels.len()
    }

    /// Number of classes.
    pub fn classes(&self) -> usize {
        self.0.classes
    }
}

/// The number of each vertex's split, or [`NO_TARGET`].
fn number_vertices(labels: &[u32], classes: usize, splits: [&[u32]; 3]) -> Result<Vec<u32>, Error> {
    let refuse = |reason: String| {
        Err(Error::Unsupported {
            operator: NAME,
            reason,
        })
    };
    let vertices = labels.len();
    let mut numbers = vec![NO_TARGET; vertices];
    for (list, split) in splits.into_iter().zip(Split::ALL) {
        for &vertex in list {
            let Some(place) = numbers.get_mut(vertex as usize) else {
                return refuse(format!(
                    "the {split} split names vertex {vertex} of {vertices}"
                ));
            };
            if *place != NO_TARGET {
                let other = Split::ALL[*place as usize];
                return refuse(format!(
                    "vertex {vertex} is in the {other} split and again in the {split} split"
                ));
            }
            let label = labels[vertex as usize];
            if label as usize >= classes {
                return refuse(format!(
                    "vertex {vertex} has label {label}, but there are {classes} classes"
                ));
            }
            *place = split as u32;
        }
    }
    if splits[Split::Train as usize].is_empty() {
        return refuse("no vertex is in the training split".into());
    }
    Ok(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_vertex_gets_the_number_of_its_split() {
        let numbers = number_vertices(&[0, 1, 9, 1, 0], 2, [&[3], &[0, 1], &[4]]).unwrap();
        assert_eq!(numbers, [1, 1, NO_TARGET, 0, 2]);
    }

    #[test]
    fn splits_that_are_none_are_refused() {
        let refused =
            |labels: &[u32], splits| number_vertices(labels, 2, splits).unwrap_err().to_string();
        assert!(refused(&[0, 1], [&[], &[0], &[1]]).contains("no vertex is in the training split"));
        assert!(
            refused(&[0, 1], [&[0], &[2], &[]])
                .contains("the validation split names vertex 2 of 2")
        );
        assert!(
            refused(&[0, 1], [&[1], &[], &[1]])
                .contains("vertex 1 is in the training split and again in the test split")
        );
        assert!(
            refused(&[0, 2], [&[0], &[], &[1]])
                .contains("vertex 1 has label 2, but there are 2 classes")
        );
    }
}
