//! Tensor cores: `mma.sync` and the loads that feed it, `ldmatrix`.
//!
//! These are inline assembly, unlike the shuffles: LLVM's intrinsics for them take half vectors and pointers into shared
//! memory, which rustc cannot pass to one. None is `pure`, so that none is dropped or sunk, and `builder` marks them
//! convergent, so that none is duplicated.

use core::arch::asm;

use super::bfloat::BFloat2;
use super::half::{Half2, Pair};
use super::shared::Shared;

/// One lane's part of a 16 × 16 tile of A: two elements a register, of row `lane / 4` (registers 0 and 2) or 8 further
/// down (1 and 3), at columns `lane % 4 · 2` and the next (0 and 1) or 8 to the right (2 and 3).
pub type FragmentA = [u32; 4];

/// One lane's part of a 16 × 8 tile of B: rows `lane % 4 · 2` and the next, or 8 further down, of column `lane / 4`.
pub type FragmentB = [u32; 2];

/// One lane's part of a 16 × 8 tile of sums: columns `lane % 4 · 2` and the next of row `lane / 4` (0 and 1) and of 8
/// further down (2 and 3).
pub type FragmentC = [f32; 4];

/// Pairs of elements that tensor cores multiply.
pub trait Product: Pair {
    /// `mma.sync.aligned.m16n8k16`: adds the product of two tiles to float sums
    /// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions-mma)).
    ///
    /// # Safety
    /// All 32 lanes of the warp reach this call together.
    unsafe fn multiply_add(sums: &mut FragmentC, a: FragmentA, b: FragmentB);
}

macro_rules! product {
    ($pair:ty, $ty:literal) => {
        impl Product for $pair {
            #[inline(always)]
            unsafe fn multiply_add(sums: &mut FragmentC, a: FragmentA, b: FragmentB) {
                let [c0, c1, c2, c3] = *sums;
                let (d0, d1, d2, d3): (f32, f32, f32, f32);
                // SAFETY: the caller promises a whole warp; the instruction touches registers only.
                unsafe {
                    asm!(
                        concat!(
                            "mma.sync.aligned.m16n8k16.row.col.f32.", $ty, ".", $ty, ".f32 ",
                            "{{{}, {}, {}, {}}}, {{{}, {}, {}, {}}}, {{{}, {}}}, {{{}, {}, {}, {}}};"
                        ),
                        out(reg32) d0, out(reg32) d1, out(reg32) d2, out(reg32) d3,
                        in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3],
                        in(reg32) b[0], in(reg32) b[1],
                        in(reg32) c0, in(reg32) c1, in(reg32) c2, in(reg32) c3,
                        options(nomem, nostack, preserves_flags)
                    );
                }
                *sums = [d0, d1, d2, d3];
            }
        }
    };
}

product!(Half2, "f16");
product!(BFloat2, "bf16");

/// `mma.sync.aligned.m16n8k128` of bits: adds to each of a lane's four sums (as of [`FragmentC`]) how many of 128 bits are set both in
/// its row of A and in its column of B. The lane has bits `lane % 4 · 32` and the 31 after it of rows `lane / 4` and 8 further down of
/// A, and of column `lane / 4` of B
/// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-fragment-mma-168128)).
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn count_both(sums: &mut [u32; 4], a: [u32; 2], b: u32) {
    let [c0, c1, c2, c3] = *sums;
    let (d0, d1, d2, d3): (u32, u32, u32, u32);
    // SAFETY: the caller promises a whole warp; the instruction touches registers only.
    unsafe {
        asm!(
            "mma.sync.aligned.m16n8k128.row.col.s32.b1.b1.s32.and.popc \
             {{{}, {}, {}, {}}}, {{{}, {}}}, {{{}}}, {{{}, {}, {}, {}}};",
            out(reg32) d0, out(reg32) d1, out(reg32) d2, out(reg32) d3,
            in(reg32) a[0], in(reg32) a[1], in(reg32) b,
            in(reg32) c0, in(reg32) c1, in(reg32) c2, in(reg32) c3,
            options(nomem, nostack, preserves_flags)
        );
    }
    *sums = [d0, d1, d2, d3];
}

/// `mma.sync.aligned.m16n8k32` of bytes without a sign: adds to each of a lane's four sums (as of [`FragmentC`]) the product of its row of A and
/// its column of B. The lane has columns `lane % 4 · 4` and the three after it of row `lane / 4` of A (`a[0]`) and of 8 further down (`a[1]`), and the
/// same 16 to the right (`a[2]`, `a[3]`); of B the same rows of column `lane / 4`
/// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-fragment-mma-16832)).
///
/// # Safety
/// All 32 lanes of the warp reach this call together.
#[inline(always)]
pub unsafe fn multiply_add_bytes(sums: &mut [u32; 4], a: [u32; 4], b: [u32; 2]) {
    let [c0, c1, c2, c3] = *sums;
    let (d0, d1, d2, d3): (u32, u32, u32, u32);
    // SAFETY: the caller promises a whole warp; the instruction touches registers only.
    unsafe {
        asm!(
            "mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 \
             {{{}, {}, {}, {}}}, {{{}, {}, {}, {}}}, {{{}, {}}}, {{{}, {}, {}, {}}};",
            out(reg32) d0, out(reg32) d1, out(reg32) d2, out(reg32) d3,
            in(reg32) a[0], in(reg32) a[1], in(reg32) a[2], in(reg32) a[3],
            in(reg32) b[0], in(reg32) b[1],
            in(reg32) c0, in(reg32) c1, in(reg32) c2, in(reg32) c3,
            options(nomem, nostack, preserves_flags)
        );
    }
    *sums = [d0, d1, d2, d3];
}

/// `ldmatrix.x4`: four 8 × 8 tiles of elements of 16 bits, of which lane `8·i + j` names row `j` of tile `i`. Register `i` of a lane
/// holds columns `lane % 4 · 2` and the next of row `lane / 4` of tile `i`
/// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#warp-level-matrix-instructions-ldmatrix)).
///
/// # Safety
/// All 32 lanes of the warp reach this call together, each with the address of 16 bytes of shared memory, aligned to 16
/// and ordered by a barrier after their store.
#[inline(always)]
pub unsafe fn load_tiles(row: Shared) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) row.address(),
            options(readonly, nostack, preserves_flags));
    }
    [a, b, c, d]
}

/// `ldmatrix.x4.trans`: as [`load_tiles`], each tile transposed: register `i` of a lane holds rows `lane % 4 · 2` and the
/// next of column `lane / 4` of tile `i`.
///
/// # Safety
/// As [`load_tiles`].
#[inline(always)]
pub unsafe fn load_tiles_transposed(row: Shared) -> [u32; 4] {
    let (a, b, c, d): (u32, u32, u32, u32);
    // SAFETY: the caller's promise.
    unsafe {
        asm!("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {{{}, {}, {}, {}}}, [{}];",
            out(reg32) a, out(reg32) b, out(reg32) c, out(reg32) d, in(reg32) row.address(),
            options(readonly, nostack, preserves_flags));
    }
    [a, b, c, d]
}
