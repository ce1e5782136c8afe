//! Element-wise operators, and sums of columns.
//!
//! - [`activate`]: bias, ReLU and dropout, and their gradient; dropout of a part of the rows.
//! - [`dropout`]: which elements are dropped.
//! - [`sums`]: sums of columns, and of what several ranks have.
//!
//! Every kernel is generic over what a lane loads, a [`Vector`](crate::device::vector::Vector) of 16 bytes, and computes in float.

mod activate;
mod dropout;
mod sums;

pub use dropout::Dropping;

/// The functions that the entries are, by name.
pub mod family {
    pub use super::activate::{backward as activate_backward, drop_rows, forward as activate};
    pub use super::sums::{columns as column_sums, largest_of_parts, sum_parts};
}
