//! From the rows of a graph's vertices to one row of the graph: what tells whole graphs (Xu et al., ICLR 2019).

use super::{
    Aggregation, Context, Degrees, Dense, InputGradient, Kept, Layer, ModelConfig, Norm, Output,
    OutputGradient, Parameter, Place, Propagation, Stage,
};
use crate::backend::Backend;
use crate::data::GraphIndex;
use crate::error::Error;
use crate::ops::{self, RowGroups, SpmmEpilogue, SpmmPolicy};
use crate::tensor::{Element, Matrix};
use serde::{Deserialize, Serialize};
use std::fmt;

/// What is taken of the rows of a graph's vertices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readout {
    /// Their sum, which tells graphs of different sizes apart (PyG's `global_add_pool`).
    Sum,
    /// Their mean (PyG's `global_mean_pool`).
    Mean,
    /// The largest of each column (PyG's `global_max_pool`), whose gradient goes to the first vertex that has it; zeros of a graph
    /// without vertices.
    Max,
}

impl Readout {
    /// The degree norm of the adjacency that pools.
    pub(crate) const fn norm(self) -> Norm {
        match self {
            Self::Sum | Self::Max => Norm::None,
            Self::Mean => Norm::Right,
        }
    }

    /// The adjacency that pools, on a backend: the last of [`Inputs::graphs`](super::Inputs::graphs).
    ///
    /// # Errors
    /// [`Error::Driver`] where there is not enough memory.
    pub fn propagation<B: Backend>(
        self,
        backend: &B,
        graphs: &GraphIndex,
    ) -> Result<Propagation<B>, Error> {
        let block = graphs.block()?;
        let pooled = Propagation::of_block(backend, &block, self.norm(), Degrees::OfBlock)?;
        Ok(pooled.of_members(graphs.starts()))
    }

    /// The stages of a model that tells whole graphs: see [`ModelConfig::readout`].
    pub(super) fn stages<B: Backend, E: Element>(
        self,
        backend: &B,
        model: &ModelConfig,
        seed: u64,
    ) -> Result<Vec<Stage<B, E>>, Error> {
        let width = model.hidden_of(model.layers - 1);
        let of_vertices = ModelConfig {
            classes: width,
            readout: None,
            ..model.clone()
        };
        let mut stages = model.convolution.stages(backend, &of_vertices, seed)?;
        let layer = stages.len() + 1;
        let dense = |layer, outputs| Dense::new(backend, Place { layer, seed }, (width, outputs));
        stages.extend([
            Stage::new(Pooling::new(self, model.policy).layer(backend, width)?),
            Stage::new(dense(layer, width)?).bias().relu(),
            Stage::new(dense(layer + 1, model.classes)?)
                .bias()
                .dropout(model.dropout_of(model.layers)),
        ]);
        Ok(stages)
    }
}

impl fmt::Display for Readout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Sum => "sum",
            Self::Mean => "mean",
            Self::Max => "max",
        })
    }
}

/// How rows of vertices become rows of graphs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pooling {
    readout: Readout,
    aggregation: Aggregation,
}

impl Pooling {
    /// `readout`, where it sums up by `policy`.
    pub fn new(readout: Readout, policy: SpmmPolicy) -> Self {
        let factor = 1.0;
        Self {
            readout,
            aggregation: Aggregation { policy, factor },
        }
    }

    /// A layer that does nothing else, of rows of so many columns.
    pub fn layer<B: Backend, E: Element>(
        self,
        backend: &B,
        width: usize,
    ) -> Result<ReadoutLayer<B, E>, Error> {
        Ok(ReadoutLayer {
            pooling: self,
            width,
            largest: match self.readout {
                Readout::Max => Some(Kept::new(backend, width)?),
                Readout::Sum | Readout::Mean => None,
            },
        })
    }

    /// `y` becomes a row of each graph.
    pub fn forward<B: Backend, E: Element>(
        self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        match self.readout {
            Readout::Max => ops::group_maximum(at.backend, groups(at)?, x, y),
            Readout::Sum | Readout::Mean => {
                let plain = SpmmEpilogue::default();
                self.aggregation.forward(at, false, plain, x, y)
            }
        }
    }

    /// `dx` becomes the gradient of `x`, from that of `y`.
    pub fn backward<B: Backend, E: Element>(
        self,
        at: &mut Context<'_, B, E>,
        (x, y): (&Matrix<B, E>, &Matrix<B, E>),
        dy: &Matrix<B, E>,
        dx: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        match self.readout {
            Readout::Max => ops::group_maximum_backward(at.backend, groups(at)?, (x, y), dy, dx),
            Readout::Sum | Readout::Mean => {
                let plain = SpmmEpilogue::default();
                self.aggregation.backward(at, false, plain, dy, dx)
            }
        }
    }
}

/// Which rows are of one graph.
fn groups<'a, B: Backend, E: Element>(at: &Context<'a, B, E>) -> Result<&'a RowGroups<B>, Error> {
    let groups = at.graph()?.row_groups(at.backend)?;
    groups.ok_or_else(|| Error::Unsupported {
        operator: "ReadoutLayer",
        reason: "the largest of the rows of graphs is taken by a graph of Readout::propagation; give that as the last of the graphs".into(),
    })
}

/// A layer that makes a row of each graph from the rows of its vertices. Its graph is that of [`Readout::propagation`].
#[derive(Debug)]
pub struct ReadoutLayer<B: Backend, E: Element> {
    pooling: Pooling,
    width: usize,
    /// What the gradient of a maximum wants to see again.
    largest: Option<Kept<B, E>>,
}

impl<B: Backend, E: Element> ReadoutLayer<B, E> {
    /// Of rows of so many columns.
    ///
    /// # Errors
    /// Those of [`Matrix::zeros`].
    pub fn new(
        backend: &B,
        readout: Readout,
        width: usize,
        policy: SpmmPolicy,
    ) -> Result<Self, Error> {
        Pooling::new(readout, policy).layer(backend, width)
    }

    /// What it takes.
    pub fn readout(&self) -> Readout {
        self.pooling.readout
    }
}

impl<B: Backend, E: Element> Layer<B, E> for ReadoutLayer<B, E> {
    fn widths(&self) -> (usize, usize) {
        (self.width, self.width)
    }

    fn pools(&self) -> bool {
        true
    }

    fn forward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        y: &mut Output<'_, B, E>,
    ) -> Result<(), Error> {
        let Some(largest) = &mut self.largest else {
            return y.aggregate(at, self.pooling.aggregation, false, None, x);
        };
        let largest = largest.room(at.backend, at.rows())?;
        self.pooling.forward(at, x, largest)?;
        y.copy(largest)
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        if !dx.is_wanted() {
            return Ok(());
        }
        let dx = dx.matrix(at)?;
        let y = self.largest.as_ref().map_or(dy.matrix(), Kept::get);
        self.pooling.backward(at, (x, y), dy.matrix(), dx)
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        Vec::new()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        Vec::new()
    }

    fn kept(&self) -> Vec<(&'static str, &Matrix<B, E>)> {
        let largest = self.largest.iter();
        largest.map(|largest| ("largest", largest.get())).collect()
    }
}
