//! Integer arithmetic that `core` has no single instruction for.

use core::arch::asm;
use core::num::NonZeroU32;

unsafe extern "C" {
    #[link_name = "llvm.nvvm.mulhi.ui"]
    fn mulhi_u32(a: u32, b: u32) -> u32;
}

/// `prmt.b32`: four of the bytes of `a`, which are 0 to 3, and of `b`, 4 to 7: one for each of the lower hexadecimal digits of
/// `SELECTOR`, the lowest byte for the lowest digit
/// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-prmt)).
#[inline(always)]
pub fn bytes_of<const SELECTOR: u32>(a: u32, b: u32) -> u32 {
    let bytes: u32;
    // SAFETY: an arithmetic instruction; no preconditions.
    unsafe {
        asm!("prmt.b32 {}, {}, {}, {};", out(reg32) bytes, in(reg32) a, in(reg32) b, const SELECTOR,
            options(pure, nomem, nostack, preserves_flags));
    }
    bytes
}

/// [`bytes_of`] with a selector that is known where it runs.
#[inline(always)]
pub fn bytes_at(a: u32, b: u32, selector: u32) -> u32 {
    let bytes: u32;
    // SAFETY: an arithmetic instruction; no preconditions.
    unsafe {
        asm!("prmt.b32 {}, {}, {}, {};", out(reg32) bytes, in(reg32) a, in(reg32) b, in(reg32) selector,
            options(pure, nomem, nostack, preserves_flags));
    }
    bytes
}

/// `c`, and products of the two halfwords of `a`, which have no sign, with the first two bytes of `b`, which have one: `dp2a.lo.u32.s32`
/// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#integer-arithmetic-instructions-dp2a)).
#[inline(always)]
pub fn dot_of_low(a: u32, b: u32, c: u32) -> u32 {
    let sum: u32;
    // SAFETY: an arithmetic instruction; no preconditions on sm_61 and later.
    unsafe {
        asm!("dp2a.lo.u32.s32 {}, {}, {}, {};", out(reg32) sum, in(reg32) a, in(reg32) b, in(reg32) c,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// As [`dot_of_low`], with the last two bytes: `dp2a.hi.u32.s32`.
#[inline(always)]
pub fn dot_of_high(a: u32, b: u32, c: u32) -> u32 {
    let sum: u32;
    // SAFETY: as above.
    unsafe {
        asm!("dp2a.hi.u32.s32 {}, {}, {}, {};", out(reg32) sum, in(reg32) a, in(reg32) b, in(reg32) c,
            options(pure, nomem, nostack, preserves_flags));
    }
    sum
}

/// Four rows of four bytes as four columns.
#[inline(always)]
pub fn transposed([a, b, c, d]: [u32; 4]) -> [u32; 4] {
    // The first two bytes of two rows in turn, and the last two.
    let (first_ab, first_cd) = (bytes_of::<0x5140>(a, b), bytes_of::<0x5140>(c, d));
    let (last_ab, last_cd) = (bytes_of::<0x7362>(a, b), bytes_of::<0x7362>(c, d));
    [
        bytes_of::<0x5410>(first_ab, first_cd),
        bytes_of::<0x7632>(first_ab, first_cd),
        bytes_of::<0x5410>(last_ab, last_cd),
        bytes_of::<0x7632>(last_ab, last_cd),
    ]
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
