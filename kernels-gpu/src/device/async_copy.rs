//! Copies from global to shared memory that go on while the thread computes: `cp.async`
//! ([PTX ISA](https://docs.nvidia.com/cuda/parallel-thread-execution/#data-movement-and-conversion-instructions-cp-async)).
//!
//! A thread's copies are gathered into groups by [`commit`]; [`wait`] waits for all but the newest groups of the same
//! thread. What other threads copied is visible only after a barrier that follows their wait.

use core::arch::asm;

use super::shared::Shared;

/// Starts a copy of 16 bytes past L1, or fills them with zeros where `present` is false; nothing is read then.
///
/// # Safety
/// Both addresses are aligned to 16 bytes. The target lies in the launch's shared memory; nobody touches it before the thread's
/// [`wait`], and no other thread before a barrier after that. The source is readable if `present`, and nothing writes it before
/// the wait.
#[inline(always)]
pub unsafe fn copy_16(target: Shared, source: u64, present: bool) {
    let bytes = if present { 16u32 } else { 0 };
    // SAFETY: the caller's promise; the block is taken to read and write memory, so no access moves across it.
    unsafe {
        asm!("cp.async.cg.shared.global [{}], [{}], 16, {};",
            in(reg32) target.address(), in(reg64) source, in(reg32) bytes, options(nostack, preserves_flags));
    }
}

/// Starts a copy of 8 bytes, or fills them with zeros where `present` is false; nothing is read then.
///
/// # Safety
/// As [`copy_16`], with both addresses aligned to 8 bytes.
#[inline(always)]
pub unsafe fn copy_8(target: Shared, source: u64, present: bool) {
    let bytes = if present { 8u32 } else { 0 };
    // SAFETY: the caller's promise; the block is taken to read and write memory, so no access moves across it.
    unsafe {
        asm!("cp.async.ca.shared.global [{}], [{}], 8, {};",
            in(reg32) target.address(), in(reg64) source, in(reg32) bytes, options(nostack, preserves_flags));
    }
}

/// Starts a copy of 4 bytes.
///
/// # Safety
/// As [`copy_16`], with both addresses aligned to 4 bytes, and the source readable.
#[inline(always)]
pub unsafe fn copy_4(target: Shared, source: u64) {
    // SAFETY: the caller's promise; the block is taken to read and write memory, so no access moves across it.
    unsafe {
        asm!("cp.async.ca.shared.global [{}], [{}], 4;",
            in(reg32) target.address(), in(reg64) source, options(nostack, preserves_flags));
    }
}

/// `cp.async.commit_group`: the copies since the last commit, perhaps none, are one group.
#[inline(always)]
pub fn commit() {
    // SAFETY: no preconditions.
    unsafe {
        asm!("cp.async.commit_group;", options(nostack, preserves_flags));
    }
}

/// `cp.async.wait_group`: waits until at most the `NEWEST` last groups of this thread are under way.
#[inline(always)]
pub fn wait<const NEWEST: u32>() {
    // SAFETY: no preconditions.
    unsafe {
        asm!("cp.async.wait_group {};", const NEWEST, options(nostack, preserves_flags));
    }
}
