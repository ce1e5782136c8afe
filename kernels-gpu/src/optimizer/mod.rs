//! The optimiser.
//!
//! - [`parameters`]: the rules by which weights follow gradients, the overflow check, the loss scale.
//! - [`norm`]: the norm of all gradients, and what clips it.

mod norm;
mod parameters;

/// The functions that the entries are, by name.
pub mod family {
    pub use super::norm::{clip_norm, sum_squares};
    pub use super::parameters::{adam, adamw, check_finite, end_step, sgd};
}
