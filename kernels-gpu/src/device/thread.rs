//! Where a thread stands in its CTA and its grid, and the barrier of a CTA.

use core::arch::{asm, nvptx};

/// `%tid.x`: the thread in its CTA ([PTX ISA, special registers](https://docs.nvidia.com/cuda/parallel-thread-execution/#special-registers-tid)).
#[inline(always)]
pub fn thread_idx_x() -> u32 {
    // SAFETY: reads a special register; no preconditions.
    unsafe { nvptx::_thread_idx_x() as u32 }
}

/// [`thread_idx_x`], read anew: where it is seldom wanted, so that no register holds it in between.
#[inline(always)]
pub fn thread_idx_x_anew() -> u32 {
    let index: u32;
    // SAFETY: reads a special register; no preconditions. Not `pure`, so that it is not read earlier.
    unsafe {
        asm!("mov.u32 {}, %tid.x;", out(reg32) index, options(nomem, nostack, preserves_flags));
    }
    index
}

/// `%ctaid.x`: the CTA in its grid, first dimension.
#[inline(always)]
pub fn block_idx_x() -> u32 {
    // SAFETY: reads a special register; no preconditions.
    unsafe { nvptx::_block_idx_x() as u32 }
}

/// `%ctaid.y`: the CTA in its grid, second dimension.
#[inline(always)]
pub fn block_idx_y() -> u32 {
    // SAFETY: reads a special register; no preconditions.
    unsafe { nvptx::_block_idx_y() as u32 }
}

/// `%ctaid.z`: the CTA in its grid, third dimension.
#[inline(always)]
pub fn block_idx_z() -> u32 {
    // SAFETY: reads a special register; no preconditions.
    unsafe { nvptx::_block_idx_z() as u32 }
}

/// `%ntid.x`: threads of a CTA.
#[inline(always)]
pub fn block_dim_x() -> u32 {
    // SAFETY: reads a special register; no preconditions.
    unsafe { nvptx::_block_dim_x() as u32 }
}

/// `%nctaid.x`: CTAs of the grid, first dimension.
#[inline(always)]
pub fn grid_dim_x() -> u32 {
    // SAFETY: reads a special register; no preconditions.
    unsafe { nvptx::_grid_dim_x() as u32 }
}

/// The thread in the whole grid, first dimension. 64 bits, because a grid may have more than 2³² threads.
#[inline(always)]
pub fn global_idx_x() -> u64 {
    block_idx_x() as u64 * block_dim_x() as u64 + thread_idx_x() as u64
}

/// `bar.sync 0`: waits for all threads of the CTA and orders their memory accesses
/// ([PTX ISA, `bar`](https://docs.nvidia.com/cuda/parallel-thread-execution/#parallel-synchronization-and-communication-instructions-bar)).
///
/// # Safety
/// Every thread of the CTA reaches this call.
#[inline(always)]
pub unsafe fn sync_threads() {
    // SAFETY: the caller promises that no thread stays away.
    unsafe { nvptx::_syncthreads() }
}
