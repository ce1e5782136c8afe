//! Compiles a crate of Rust GPU kernels to PTX.
