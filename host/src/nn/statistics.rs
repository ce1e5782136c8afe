//! The statistics of a batch normalisation in evaluation.

use serde::{Deserialize, Serialize};

/// The statistics that a batch normalisation uses in evaluation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistics {
    /// Those of all vertices, without dropout. Where training and evaluation see one graph, running statistics have no
    /// use, and dropout changes their variance.
    #[default]
    Batch,
    /// The running ones of training, as PyTorch has them.
    Running,
}
