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

mod codes;
mod cuda_cores;
mod epilogue;
mod normalized;
mod operand;
mod pipeline;
mod reduce;
mod tensor_cores;

use crate::device::bfloat::BFloat2;
use crate::device::half::Half2;
use crate::device::vector;
use codes::Widened;
use cuda_cores::CudaCores;
use halfgnn_contract::matmul::MatmulParams;
use normalized::Normalized;
use operand::{AcrossK, AlongK, Pair, Plain};
use tensor_cores::TensorCores;

/// How a form's operands lie: A's layout, then B's.
macro_rules! layouts {
    (Nn) => {
        (AlongK, AcrossK)
    };
    (Nt) => {
        (AlongK, AlongK)
    };
    (Tn) => {
        (AcrossK, AcrossK)
    };
}

/// The code that multiplies elements of a type for a tile of so many columns.
macro_rules! multiplier {
    (F16, 64) => { TensorCores<Half2, 2, 8> };
    (F16, 32) => { TensorCores<Half2, 2, 4> };
    (F16, 16) => { TensorCores<Half2, 2, 2> };
    (BF16, 64) => { TensorCores<BFloat2, 2, 8> };
    (BF16, 32) => { TensorCores<BFloat2, 2, 4> };
    (BF16, 16) => { TensorCores<BFloat2, 2, 2> };
    (F32, 64) => { CudaCores<8, 8> };
    (F32, 32) => { CudaCores<8, 4> };
    (F32, 16) => { CudaCores<4, 4> };
}

/// What A is in memory.
macro_rules! source {
    (Plain, $input:ident) => {
        Plain
    };
    (Normalized, $input:ident) => {
        Normalized<vector::$input>
    };
    (Pair, $input:ident) => {
        Pair
    };
    (Codes, $input:ident) => {
        Widened<vector::$input>
    };
}

macro_rules! entries {
    ($($entry:ident: $form:ident, $operand:ident, $input:ident, $output:ident, $columns:tt;)*) => {$(
        #[doc = concat!("Matrix product: ", stringify!($form, $operand, $input to $output), ", tiles of 128 × ", $columns, ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::matmul`.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: MatmulParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe {
                pipeline::run::<
                    layouts!($form),
                    multiplier!($input, $columns),
                    epilogue::$output,
                    $columns,
                    source!($operand, $input),
                >(&params)
            }
        }
    )*};
}

macro_rules! reduce_entries {
    ($($entry:ident: $output:ident;)*) => {$(
        #[doc = concat!("Sum of the partial sums of a split product, to ", stringify!($output), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::matmul`, after a product with the same parameter.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: MatmulParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { reduce::run::<epilogue::$output>(&params) }
        }
    )*};
}

halfgnn_contract::matmul_entries!(entries);
halfgnn_contract::matmul_coded_entries!(entries);
halfgnn_contract::matmul_reduce_entries!(reduce_entries);
