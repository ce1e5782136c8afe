//! Matrix products for the linear layers, on tensor cores for elements of 16 bits and on CUDA cores for floats.
//!
//! ```text
//!  global        A, B ──cp.async, 16 bytes a thread, STAGES steps under way──┐
//!  shared        ┌ step 0: A │ B ┐┌ step 1: A │ B ┐┌ step 2 …  swizzled      │
//!  registers     └─ldmatrix, mma (TensorCores) or ld, fma (CudaCores)─┐ ◄────┘
//!  global        C ◄─ epilogue: scale, bias, ReLU, round ◄─ float sums┘─► workspace ─► reduce: sum, epilogue ─► C
//! ```
//!
//! - [`operand`]: one operand's way from global to shared memory, whichever way `k` runs in it.
//! - [`normalized`], [`codes`]: what A's tile becomes there where A is normalised, or widened from 8-bit codes.
//! - [`tensor_cores`], [`cuda_cores`]: the product of one step in shared memory, added to a thread's sums.
//! - [`pipeline`]: the skeleton that all entries share.
//! - [`epilogue`]: what becomes of the sums, and how they are written.
//! - [`reduce`]: the follow-up kernel where several CTAs share a tile.
//!
//! Each element of C is added up in an order that depends on the shape and on the split alone, so results repeat bit
//! for bit.

pub mod codes;
pub mod cuda_cores;
pub mod epilogue;
pub mod normalized;
pub mod operand;
pub mod pipeline;
pub mod reduce;
pub mod tensor_cores;
