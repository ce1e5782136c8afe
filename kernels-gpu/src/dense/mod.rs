//! Element-wise operators, the loss, and the optimiser.
//!
//! - [`activate`]: bias, ReLU and dropout, and their gradient.
//! - [`sums`]: sums of columns.
//! - [`loss`]: cross-entropy with its gradient, and the count of right answers.
//! - [`optimizer`]: Adam, the overflow check, the loss scale.
//!
//! Every kernel is generic over what a lane loads, a [`Vector`](crate::device::vector::Vector) of 16 bytes, and computes in float.

mod activate;
mod loss;
mod optimizer;
mod sums;

use halfgnn_contract::dense::{
    ActivateParams, AdamParams, ColumnSumsParams, EndStepParams, LossParams,
};

/// The functions that the entries are, by name.
mod family {
    pub use super::activate::{backward as activate_backward, forward as activate};
    pub use super::loss::{count_correct, cross_entropy, reduce_counts, reduce_loss};
    pub use super::optimizer::{adam, check_finite, end_step};
    pub use super::sums::columns as column_sums;
}

halfgnn_contract::dense_entries!(entries);
