//! The optimiser.
//!
//! - [`parameters`]: Adam, the overflow check, the loss scale.

mod parameters;

use halfgnn_contract::optimizer::{AdamParams, EndStepParams};

/// The functions that the entries are, by name.
mod family {
    pub use super::parameters::{adam, check_finite, end_step};
}

halfgnn_contract::optimizer_entries!(entries);
