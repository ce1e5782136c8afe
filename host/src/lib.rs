//! Graph neural networks in half precision.

pub mod backend;
pub mod data;
pub mod device;
pub mod driver;
mod error;
pub mod graph;
pub mod nn;
pub mod ops;
pub mod ptx;
pub mod tensor;
pub mod train;

pub use error::Error;
