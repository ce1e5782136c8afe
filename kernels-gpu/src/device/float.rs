//! Float arithmetic that `core` has no name for.

unsafe extern "C" {
    #[link_name = "llvm.fma.f32"]
    fn fma_f32(a: f32, b: f32, c: f32) -> f32;
    #[link_name = "llvm.maximum.f32"]
    fn maximum_f32(a: f32, b: f32) -> f32;
    #[link_name = "llvm.nvvm.add.rz.f"]
    fn add_rz_f32(a: f32, b: f32) -> f32;
    #[link_name = "llvm.nvvm.sqrt.rn.f"]
    fn sqrt_rn_f32(value: f32) -> f32;
    #[link_name = "llvm.nvvm.sqrt.rn.d"]
    fn sqrt_rn_f64(value: f64) -> f64;
}

/// `fma.rn.f32`: `a · b + c` with one rounding
/// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-fma)).
#[inline(always)]
pub fn mul_add(a: f32, b: f32, c: f32) -> f32 {
    // SAFETY: an arithmetic instruction; no preconditions.
    unsafe { fma_f32(a, b, c) }
}

/// `max.NaN.f32`: the larger, or NaN where either is
/// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-max)).
#[inline(always)]
pub fn max(a: f32, b: f32) -> f32 {
    // SAFETY: an arithmetic instruction; no preconditions on sm_80 and later.
    unsafe { maximum_f32(a, b) }
}

/// The whole part of a number in [0, 2²³), in the low 23 bits of a word: `add.rz.f32` of 2²³, where there is no fraction
/// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-add)).
#[inline(always)]
pub fn whole_part(value: f32) -> u32 {
    // SAFETY: an arithmetic instruction; no preconditions.
    unsafe { add_rz_f32(value, 8_388_608.0) }.to_bits()
}

/// `sqrt.rn.f32`: the correctly rounded square root
/// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-sqrt)).
#[inline(always)]
pub fn sqrt(value: f32) -> f32 {
    // SAFETY: an arithmetic instruction; no preconditions.
    unsafe { sqrt_rn_f32(value) }
}

/// `sqrt.rn.f64`: the correctly rounded square root
/// ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-sqrt)).
#[inline(always)]
pub fn sqrt_f64(value: f64) -> f64 {
    // SAFETY: an arithmetic instruction; no preconditions.
    unsafe { sqrt_rn_f64(value) }
}
