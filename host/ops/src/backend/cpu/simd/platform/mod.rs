//! The vectors of the processor that this is built for: the one file that asks for which.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86;

use crate::backend::cpu::Instructions;
use crate::backend::cpu::simd::{Call, Kernel};

/// Whether the processor has these instructions.
pub(crate) fn has(instructions: Instructions) -> bool {
    match instructions {
        Instructions::Plain => true,
        #[cfg(target_arch = "aarch64")]
        Instructions::Neon => aarch64::Neon::try_new().is_some(),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => x86::Avx2::try_new().is_some(),
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => x86::Avx512::try_new().is_some(),
        #[allow(unreachable_patterns)] // of another architecture
        _ => false,
    }
}

/// Runs a kernel with these instructions, plain where the processor has not got them.
#[inline]
pub(crate) fn run<K: Kernel>(instructions: Instructions, kernel: K) -> K::Output {
    match instructions {
        #[cfg(target_arch = "aarch64")]
        Instructions::Neon => match aarch64::Neon::try_new() {
            Some(lanes) => lanes.vectorize(Call(kernel, lanes)),
            None => kernel.plain(),
        },
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx2 => match x86::Avx2::try_new() {
            Some(avx2) => avx2.vectorize(Call(kernel, avx2.lanes())),
            None => kernel.plain(),
        },
        #[cfg(target_arch = "x86_64")]
        Instructions::Avx512 => match x86::Avx512::try_new() {
            Some(lanes) => lanes.vectorize(Call(kernel, lanes)),
            None => kernel.plain(),
        },
        _ => kernel.plain(),
    }
}
