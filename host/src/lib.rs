//! Graph neural networks in half precision.

pub mod backend;
pub mod driver;
mod error;
pub mod graph;
pub mod ops;
pub mod tensor;

pub use error::Error;
