//! Rows without edges: their sum is zero.

use super::epilogue::{InMemory, finish};
use super::lane::Load;
use super::policy::Scaling;
use super::sums::Sums;
use crate::device::global::Global;
use crate::device::thread::{block_idx_y, thread_idx_x};
use crate::device::vector::Vector;
use halfgnn_contract::spmm::{EMPTY_ROWS_PER_CTA, SpmmParams, THREADS_PER_CTA};

/// Writes the lane's load of the `cta`-th part of the rows without edges.
///
/// # Safety
/// The launch contract.
#[inline(always)]
pub unsafe fn clear<V: Vector, S: Scaling, T: Sums<V>>(params: &SpmmParams, cta: u32, load: Load) {
    let first = cta * EMPTY_ROWS_PER_CTA;
    let end = first
        .saturating_add(EMPTY_ROWS_PER_CTA)
        .min(params.empty_count);
    // Of each row one lane of each head.
    let leads = || block_idx_y() == 0 && thread_idx_x() & ((1 << params.lanes_log2) - 1) == 0;
    let mut at = first + (thread_idx_x() >> params.lanes_log2);
    while at < end {
        // SAFETY: `at` is below the number of empty rows, each of which stands once in the list.
        unsafe {
            let row = Global::<u32>::new(params.empty_rows).at(at as u64).read();
            let addend = InMemory {
                params,
                row,
                load: load.index,
            };
            let sums = finish::<V, S, T>(params, load.index, T::zero(), addend);
            sums.write(params, row, load, leads);
        }
        at += THREADS_PER_CTA >> params.lanes_log2;
    }
}
