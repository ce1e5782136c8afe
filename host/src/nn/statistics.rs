//! What a batch normalisation evaluates with.

use serde::{Deserialize, Serialize};

/// The statistics that a batch normalisation evaluates with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Statistics {
    /// Those of all vertices, without dropout: where training and evaluation see one graph, there is nothing to
    /// remember. Dropout changes the variance that running statistics are of.
    #[default]
    Batch,
    /// The running ones of training, as PyTorch has them.
    Running,
}
