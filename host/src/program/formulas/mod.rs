//! Formulas of several operators and parameters that many layers have.

mod attention;
mod binary;
mod gate;
mod messages;
mod norm;
mod polynomial;
mod readout;

pub use attention::{Heads, Scores};
pub use gate::GruCell;
pub use norm::BatchNorm;
