//! The operators, a folder a family: what they take, which operands fit, and what a CPU and a card make of them.
//!
//! Shapes are checked once for every backend, and nothing is launched where they do not fit.

mod attention;
mod check;
mod checked;
mod elementwise;
mod heads;
mod loss;
mod matmul;
mod normalize;
mod optimizer;
mod planes;
mod random;
mod sddmm;
mod segment;
pub mod shadow;
mod spmm;

pub use attention::*;
pub use check::MOST_HEADS;
pub use checked::{Checked, Operator};
pub use elementwise::*;
pub use heads::*;
pub use loss::*;
pub use matmul::*;
pub use normalize::*;
pub use optimizer::*;
pub use planes::{edge_plane, edge_values};
pub use random::RandomState;
pub use sddmm::*;
pub use segment::*;
pub use shadow::{Shadow, ShadowOperands, ShadowOperators};
pub use spmm::*;
