//! From the rows of a graph's vertices to one row of the graph: what tells whole graphs (Xu et al., ICLR 2019).

use super::{
    Aggregation, Context, Degrees, Dense, InputGradient, Layer, ModelConfig, Norm, Output,
    OutputGradient, Parameter, Place, Propagation, Stage,
};
use crate::backend::Backend;
use crate::data::GraphIndex;
use crate::error::Error;
use crate::ops::{SpmmEpilogue, SpmmPolicy};
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
}

impl Readout {
    /// The degree norm of the adjacency that pools.
    const fn norm(self) -> Norm {
        match self {
            Self::Sum => Norm::None,
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
            Stage::new(ReadoutLayer::new(self, width, model.policy)),
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
        })
    }
}

/// A layer that makes a row of each graph from the rows of its vertices. Its graph is that of [`Readout::propagation`].
#[derive(Debug)]
pub struct ReadoutLayer {
    readout: Readout,
    width: usize,
    aggregation: Aggregation,
}

impl ReadoutLayer {
    /// Of rows of so many columns.
    pub fn new(readout: Readout, width: usize, policy: SpmmPolicy) -> Self {
        Self {
            readout,
            width,
            aggregation: Aggregation {
                policy,
                factor: 1.0,
            },
        }
    }

    /// What it takes.
    pub fn readout(&self) -> Readout {
        self.readout
    }
}

impl<B: Backend, E: Element> Layer<B, E> for ReadoutLayer {
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
        y.aggregate(at, self.aggregation, false, None, x)
    }

    fn backward(
        &mut self,
        at: &mut Context<'_, B, E>,
        _x: &Matrix<B, E>,
        dy: &mut OutputGradient<'_, B, E>,
        dx: &mut InputGradient<'_, B, E>,
    ) -> Result<(), Error> {
        if !dx.is_wanted() {
            return Ok(());
        }
        let dx = dx.matrix(at)?;
        let plain = SpmmEpilogue::default();
        self.aggregation.backward(at, false, plain, dy.matrix(), dx)
    }

    fn parameters(&self) -> Vec<&Parameter<B, E>> {
        Vec::new()
    }

    fn parameters_mut(&mut self) -> Vec<&mut Parameter<B, E>> {
        Vec::new()
    }
}
