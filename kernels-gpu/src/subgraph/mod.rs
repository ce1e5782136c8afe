//! Vertices that walks come to, and the edges between them.
//!
//! - [`walks`]: random walks, a thread each, and the walk of a frontier, a warp.
//! - [`within`]: the edges of rows that end in known vertices, a warp a row.
//! - [`draws`]: in how many draws vertices and edges are, 32 draws at a time.
//! - [`norms`]: what edges multiply, made of that.

mod draws;
mod norms;
mod walks;
mod within;

/// The functions that the entries are, by name.
pub mod family {
    pub use super::draws::{mark_draw, size_draws, tally_draws};
    pub use super::norms::edge_norms;
    pub use super::walks::{frontier_walk, random_walks};
    pub use super::within::{count_within, take_within};
}
