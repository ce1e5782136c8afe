//! What belongs in registers, and what does not.
//!
//! Registers have no addresses: an array lives in them only if every index into it is a constant when LLVM splits it up.
//! LLVM unrolls a small loop by itself; a nest of them soon exceeds what it is willing to copy, and the array goes to
//! local memory, in DRAM. `builder` refuses such PTX. That is [`unroll!`].
//!
//! The other way round, LLVM moves every address that stays the same out of a loop, and then there are more of them than
//! registers. [`recomputed`] keeps a few instructions inside.

use core::arch::asm;

/// `value`, in a way that hides from the compiler that it is the same at every call: what is computed from it stays in the
/// loop where it stands.
#[inline(always)]
pub fn recomputed(value: u32) -> u32 {
    let same: u32;
    // SAFETY: copies a register. Not `pure`, which is the point.
    unsafe {
        asm!("mov.b32 {}, {};", out(reg32) same, in(reg32) value, options(nomem, nostack, preserves_flags));
    }
    same
}

/// Repeats a block for each `i` below a constant of at most 16: `unroll!(i in 0..N => { … })`.
macro_rules! unroll {
    ($i:ident in 0..$n:expr => $body:block) => {
        const { assert!($n <= 16) };
        unroll!(@ $i, $n, $body, 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
    };
    (@ $i:ident, $n:expr, $body:block, $($index:literal)*) => {
        $(if $index < $n {
            let $i = $index;
            $body
        })*
    };
}

pub(crate) use unroll;
