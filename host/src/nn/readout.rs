//! Readouts of whole graphs: from the rows of a graph's vertices to one row of the graph (Xu et al., ICLR 2019).

use super::{Degrees, ModelConfig, Norm, Propagation};
use crate::backend::Backend;
use crate::data::GraphIndex;
use crate::error::Error;
use serde::{Deserialize, Serialize};
use std::fmt;

/// How the rows of a graph's vertices are combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Readout {
    /// Their sum, which differs between graphs of different sizes (PyG's `global_add_pool`).
    Sum,
    /// Their mean (PyG's `global_mean_pool`).
    Mean,
    /// The largest of each column (PyG's `global_max_pool`), whose gradient goes to the first vertex that has it; zeros
    /// for a graph without vertices.
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
}

impl ModelConfig {
    /// Checks that the dataset has many graphs where the model has a readout, and one graph where it has none.
    ///
    /// # Errors
    /// The reason.
    pub fn expect_graphs(&self, graphs: Option<&GraphIndex>) -> Result<(), String> {
        match (self.readout, graphs) {
            (Some(_), Some(_)) | (None, None) => Ok(()),
            (Some(_), None) => Err(
                "it is one graph, and the model predicts whole graphs; give it a dataset of many, or of one with `ptr`"
                    .into(),
            ),
            (None, Some(graphs)) => Err(format!(
                "it is {} graphs, and the model predicts vertices; give it one graph",
                graphs.graphs()
            )),
        }
    }

    /// The graphs that a pass reads: `graph`, unless that is in pieces, and that of the readout behind it.
    ///
    /// # Errors
    /// [`Error::Unsupported`] by [`ModelConfig::expect_graphs`], and those of [`Readout::propagation`].
    pub fn inputs<B: Backend>(
        &self,
        backend: &B,
        graph: Option<Propagation<B>>,
        graphs: Option<&GraphIndex>,
    ) -> Result<Vec<Propagation<B>>, Error> {
        self.expect_graphs(graphs)
            .map_err(|reason| Error::Unsupported {
                operator: "ModelConfig::inputs",
                reason,
            })?;
        let mut all = Vec::from_iter(graph);
        if let (Some(readout), Some(graphs)) = (self.readout, graphs) {
            all.push(readout.propagation(backend, graphs)?);
        }
        Ok(all)
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
