//! Norms between layers.
//!
//! - [`groups`]: of the rows of each group, which are cut into chunks, a CTA each.
//! - [`finish`]: what the chunks of a group left, added up, and what is made of it.
//! - [`rows`]: of each row by itself.
//!
//! Every kernel is generic over what a lane loads, a [`Vector`](crate::device::vector::Vector) of 16 bytes, and computes in float.

mod finish;
mod groups;
mod rows;

/// The functions that the entries are, by name.
pub mod family {
    pub use super::finish::{
        gradients as finish_group_gradients, statistics as finish_group_statistics,
    };
    pub use super::groups::{
        backward as normalize_groups_backward, forward as normalize_groups,
        moments as moments_of_groups, moments_backward as moments_backward_of_groups,
    };
    pub use super::rows::{
        backward as normalize_rows_backward, forward as normalize_rows,
        moments as moments_backward_of_rows,
    };
}
