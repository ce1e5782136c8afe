//! One module per hardware concept. The names are those of Rust-CUDA's `cuda_std` where it has the same thing.

pub mod async_copy;
pub mod bfloat;
pub mod code;
pub mod float;
pub mod global;
pub mod half;
pub mod integer;
pub mod mma;
pub mod registers;
pub mod shared;
pub mod sums;
pub mod thread;
pub mod ties;
pub mod vector;
pub mod warp;
