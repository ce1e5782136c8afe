//! The GPU kernels of `halfgnn`, compiled by rustc to PTX.
//!
//! - [`dense`]: element-wise operators, the loss, and the optimiser.
//! - [`device`]: one module per hardware concept (threads, warps, shared memory, global memory, half vectors).
//! - [`gemm`]: matrix products for the linear layers, on tensor cores or in float.
//! - [`spmm`]: the edge-parallel SpMM and its follow-up kernel.
//!
//! What the host must know of a kernel (its name, its parameter, its geometry) stands in `halfgnn_contract`.
#![no_std]
#![feature(
    abi_ptx,
    asm_experimental_arch,
    f16,
    link_llvm_intrinsics,
    stdarch_nvptx
)]
#![allow(internal_features)] // `link_llvm_intrinsics`: shuffles and warp barriers that LLVM keeps convergent

pub mod dense;
pub mod device;
pub mod gemm;
pub mod spmm;

/// Recognises PTX that was built from another version of the contract; see `halfgnn_contract::FINGERPRINT`.
#[unsafe(no_mangle)]
pub static HALFGNN_CONTRACT: u64 = halfgnn_contract::FINGERPRINT;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: `trap` ends the kernel with an error that the host sees.
    unsafe { core::arch::nvptx::trap() }
}
