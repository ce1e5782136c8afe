//! The GPU kernels of `halfgnn`, compiled by rustc to PTX.
//!
//! - [`attention`]: weights of edges by attention, step by step or fused.
//! - [`bits`]: matrices of bits, summed up over neighbours.
//! - [`construct`]: what a graph is made of, from edges that lie on the device.
//! - [`device`]: one module per hardware concept (threads, warps, shared memory, global memory, half vectors).
//! - [`edges`]: the edges of a warp, cached in shared memory.
//! - [`elementwise`]: bias, ReLU and dropout, and sums of columns.
//! - [`frdc`]: sums of bits over neighbours in a graph of tiles of bits.
//! - [`dot_attention`]: attention by dot products, fused.
//! - [`heads`]: what attention does to heads of features.
//! - [`loss`]: cross-entropy with its gradient, and the count of right answers.
//! - [`matmul`]: matrix products for the linear layers, on tensor cores or in float.
//! - [`maximum`]: maxima of two matrices, and of the rows of each group.
//! - [`metrics`]: what metrics are made of: sums of errors, and over scores in order.
//! - [`nonlinearity`]: activation functions other than a ReLU.
//! - [`normalize`]: batch normalisation, and weighted sums of two matrices.
//! - [`norms`]: norms of each row, and of the rows of each group.
//! - [`optimizer`]: Adam, the overflow check, the loss scale.
//! - [`quantize`]: matrices of 8-bit codes.
//! - [`baselines`]: what other kernels are compared with.
//! - [`scan`]: prefix sums.
//! - [`sddmm`]: a dot product, or another function of two vertices, for each edge.
//! - [`segment`]: sums, maxima and softmax statistics of the edges of each row.
//! - [`shadow`]: functions of rows that stay in the precision of their operand.
//! - [`sort`]: a stable sort by keys.
//! - [`spmm`]: the edge-parallel SpMM and its follow-up kernel.
//! - [`subgraph`]: vertices that walks come to, and the edges between them.
//!
//! Functions are generic over their policies. The entries that instantiate them are a crate root of their own,
//! `entries/lib.rs`, which the builder compiles once for each module.
//!
//! What the host must know of a kernel (its name, its parameter, its geometry) stands in `halfgnn_contract`.
#![no_std]
#![feature(asm_experimental_arch, f16, link_llvm_intrinsics, stdarch_nvptx)]
#![allow(internal_features)] // `link_llvm_intrinsics`: shuffles and warp barriers that LLVM keeps convergent

pub mod attention;
pub mod baselines;
pub mod bits;
pub mod communities;
pub mod construct;
pub mod device;
pub mod dot_attention;
pub mod edge_walk;
pub mod edges;
pub mod elementwise;
pub mod frdc;
pub mod heads;
pub mod loss;
pub mod matmul;
pub mod maximum;
pub mod messages;
pub mod metrics;
pub mod nonlinearity;
pub mod normalize;
pub mod norms;
pub mod optimizer;
pub mod quantize;
pub mod reductions;
pub mod sampling;
pub mod scan;
pub mod sddmm;
pub mod segment;
pub mod shadow;
pub mod sort;
pub mod spmm;
pub mod subgraph;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    // SAFETY: `trap` ends the kernel with an error that the host sees.
    unsafe { core::arch::nvptx::trap() }
}
