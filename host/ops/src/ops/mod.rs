//! The operators, a folder a family: what they take, which operands fit, and what a CPU and a GPU make of them.
//!
//! Shapes are checked once for every backend, and nothing is launched where they do not fit. In a folder are the types
//! and the function of an operator (`mod.rs`), which operands it takes (`check.rs`), and what it is on either
//! (`cpu.rs`, `gpu.rs`); its parameters and kernels have the same name in `kernels-gpu`.
//!
//! # Layouts
//! - Numbers of vertices lie in planes of floats, one a head: head `h`, vertex `v` at `h · vertices + v`.
//! - Numbers of edges lie in planes of elements, one a head, in the order of the adjacency, [`edge_plane`] apart. What
//!   lies between the last edge and the end of a plane is zero.
//! - Features have their heads side by side, all of one width; with more than one head a width must fill whole 16-byte
//!   vectors (8 halves or 4 floats), so that every head starts at one.

mod additive;
mod attention;
mod bits;
mod check;
mod checked;
mod communities;
mod construct;
mod dot_attention;
mod elementwise;
mod frdc;
mod heads;
pub(crate) mod loops;
mod loss;
mod matmul;
mod maximum;
mod messages;
mod metrics;
mod nonlinearity;
mod normalize;
mod norms;
mod optimizer;
mod partition;
mod planes;
mod quantize;
mod random;
mod reductions;
mod sampling;
mod sddmm;
mod segment;
pub mod shadow;
mod sort;
mod spmm;
mod spmv;
mod subgraph;

pub use additive::*;
pub use attention::*;
pub use bits::*;
pub use check::MOST_HEADS;
pub use checked::{Checked, Operator};
pub use communities::*;
pub use construct::*;
pub use dot_attention::*;
pub use elementwise::*;
pub use frdc::*;
pub use heads::*;
pub use loss::*;
pub use matmul::*;
pub use maximum::*;
pub use messages::*;
pub use metrics::*;
pub use nonlinearity::*;
pub use normalize::*;
pub use norms::*;
pub use optimizer::*;
pub use planes::{edge_plane, edge_values};
pub use quantize::*;
pub use random::RandomState;
pub use reductions::*;
pub use sampling::*;
pub use sddmm::*;
pub use segment::*;
pub use shadow::{Shadow, ShadowOperands, ShadowOperators};
pub use sort::*;
pub use spmm::*;
pub use spmv::*;
pub use subgraph::*;
