#![no_std]
//! What the host and the GPU kernels of halfgnn agree on.
