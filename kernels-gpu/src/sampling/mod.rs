//! Random pairs of vertices: a thread a pair.

mod pairs;

use halfgnn_contract::sampling::SamplePairsParams;

/// The functions that the entries are, by name.
mod family {
    pub use super::pairs::sample_pairs;
}

halfgnn_contract::sampling_entries!(entries);
