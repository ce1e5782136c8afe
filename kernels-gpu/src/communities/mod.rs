//! Communities of vertices.
//!
//! - [`labels`]: a round of label propagation, a warp for 32 vertices.

mod labels;

use halfgnn_contract::communities::PropagateParams;

/// The functions that the entries are, by name.
mod family {
    pub use super::labels::propagate_labels;
}

halfgnn_contract::communities_entries!(entries);
