//! The loss, its gradient, and the count of right answers.
//!
//! - [`rows`]: a sub-warp a row, and one that adds up what the CTAs left.

mod rows;

use halfgnn_contract::loss::LossParams;

/// The functions that the entries are, by name.
mod family {
    pub use super::rows::{count_correct, cross_entropy, reduce_counts, reduce_loss};
}

halfgnn_contract::loss_entries!(entries);
