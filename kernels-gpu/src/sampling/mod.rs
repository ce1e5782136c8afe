//! What is drawn at random beside dropout, and what a batch is made of.
//!
//! - [`pairs`]: random pairs of vertices, a thread a pair.
//! - [`neighbors`]: neighbours of vertices, a warp a vertex.
//! - [`relabel`]: places of the vertices of a batch, by a bit a vertex and the sums of the bits.
//! - [`rows`]: rows of features.

mod neighbors;
mod pairs;
mod relabel;
mod rows;

/// The functions that the entries are, by name.
pub mod family {
    pub use super::neighbors::sample_neighbors;
    pub use super::pairs::sample_pairs;
    pub use super::relabel::{mark_vertices, place_marked, place_vertices, relabel};
    pub use super::rows::{take_cached_rows, take_rows};
}
