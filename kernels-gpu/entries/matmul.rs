//! The entries of the matrix products: one for each row of the contract's lists.
#![allow(unused_imports, unused_macros)] // where the build has none of the entries

use halfgnn_contract::matmul::MatmulParams;
use halfgnn_kernels::device::bfloat::BFloat2;
use halfgnn_kernels::device::half::Half2;
use halfgnn_kernels::device::vector;
use halfgnn_kernels::matmul::codes::Widened;
use halfgnn_kernels::matmul::cuda_cores::CudaCores;
use halfgnn_kernels::matmul::normalized::Normalized;
use halfgnn_kernels::matmul::operand::{AcrossK, AlongK, Pair, Plain};
use halfgnn_kernels::matmul::tensor_cores::TensorCores;
use halfgnn_kernels::matmul::{epilogue, pipeline, reduce};

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

macro_rules! product_entries {
    ($($entry:ident: $form:ident, $operand:ident, $input:ident, $output:ident, $columns:tt;)*) => {$(
        #[doc = concat!("Matrix product: ", stringify!($form, $operand, $input to $output), ", tiles of 128 × ", $columns, ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::matmul`.
        #[cfg($entry)]
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
        #[cfg($entry)]
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: MatmulParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { reduce::run::<epilogue::$output>(&params) }
        }
    )*};
}

halfgnn_contract::matmul_entries!(product_entries);
halfgnn_contract::matmul_coded_entries!(product_entries);
halfgnn_contract::matmul_reduce_entries!(reduce_entries);
