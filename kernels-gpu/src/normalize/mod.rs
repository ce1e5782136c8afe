//! Batch normalisation, and weighted sums of two matrices.
//!
//! - [`moments`]: sums over columns, a block of rows a CTA.
//! - [`finish`]: what the blocks left, added up, and what is made of it.
//! - [`elementwise`]: the normalised matrix, its gradient, and weighted sums.
//! - [`walk`]: which elements a thread visits.
//!
//! Every kernel is generic over what a lane loads, a [`Vector`](crate::device::vector::Vector) of 16 bytes, and computes in float.

mod elementwise;
mod finish;
mod moments;
mod walk;

pub use elementwise::Output;
pub use moments::leave;
pub use walk::{Columns, Walk, parameters};

/// The functions that the entries are, by name.
pub mod family {
    pub use super::elementwise::{
        combine, normalize, normalize_backward, normalize_backward_coded,
    };
    pub use super::finish::{
        dot as finish_dot, gradients as finish_gradients, merge as merge_statistics,
        running as running_statistics, statistics as finish_statistics,
    };
    pub use super::moments::{backward as moments_backward, forward as moments};
}
