//! Integer arithmetic that `core` has no single instruction for.

use core::num::NonZeroU32;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.mulhi.ui"]
    fn mulhi_u32(a: u32, b: u32) -> u32;
}

/// Low and high word of `a · b`: `mul.lo.u32` and `mul.hi.u32`
/// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#integer-arithmetic-instructions-mul)). LLVM makes
/// of `a as u64 * b as u64` a product of 64-bit words where it has forgotten that the high ones are zero.
#[inline(always)]
pub fn wide_product(a: u32, b: u32) -> [u32; 2] {
    // SAFETY: an arithmetic instruction; no preconditions.
    [a.wrapping_mul(b), unsafe { mulhi_u32(a, b) }]
}

/// `a / b`, without the branch to a panic that `/` has for a `b` of 0; then it is `a`.
#[inline(always)]
pub fn divide(a: u32, b: u32) -> u32 {
    a / NonZeroU32::new(b).unwrap_or(NonZeroU32::MIN)
}
