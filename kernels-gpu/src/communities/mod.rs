//! Communities of vertices.
//!
//! - [`labels`]: a round of label propagation, a warp for 32 vertices.

mod labels;

/// The functions that the entries are, by name.
pub mod family {
    pub use super::labels::propagate_labels;
}
