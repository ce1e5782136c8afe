//! Vertices that walks come to, and the edges between them.
//!
//! - [`walks`]: random walks, a thread each, and the walk of a frontier, a warp.
//! - [`within`]: the edges of rows that end in known vertices, a warp a row.
//! - [`tally`]: how often each was taken.

mod tally;
mod walks;
mod within;

use halfgnn_contract::subgraph::{FrontierParams, TallyParams, WalkParams, WithinParams};

/// The functions that the entries are, by name.
mod family {
    pub use super::tally::tally;
    pub use super::walks::{frontier_walk, random_walks};
    pub use super::within::{count_within, take_within};
}

halfgnn_contract::subgraph_entries!(entries);
