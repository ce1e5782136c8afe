//! Formulas of several operators and parameters that many layers have.

mod attention;
mod norm;
mod readout;

pub use attention::{Heads, Scores};
pub use norm::BatchNorm;
