//! Operators of graph neural networks in half precision, on the CPU and on GPU kernels.
//!
//! - [`tensor`]: matrices and arrays on a backend, in [`half::f16`] or `f32`.
//! - [`ops`]: the operators, which check shapes once for every backend.
//! - [`backend`]: where operators run: [`backend::cpu::Cpu`], or [`backend::gpu::Gpu`] over any [`driver::Driver`].
//!
//! The crate `halfgnn` has this under the same paths, with models, training and datasets; see there for examples.

pub mod backend;
pub mod error;
pub mod ops;
mod storage;
pub mod tensor;

pub use error::Error;
#[doc(no_inline)]
pub use halfgnn_device as driver;
#[doc(no_inline)]
pub use halfgnn_graph as graph;
