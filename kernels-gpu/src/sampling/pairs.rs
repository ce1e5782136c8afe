//! The kernel of a thread a pair.

use crate::device::global::Global;
use crate::device::integer::wide_product;
use crate::device::thread::{block_idx_x, thread_idx_x};
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::rng::philox_by;
use halfgnn_contract::sampling::{ATTEMPTS, SamplePairsParams, pair, pair_counter};

/// # Safety
/// The launch contract of [`SamplePairsParams`]: a thread for each pair.
#[inline(always)]
pub unsafe fn sample_pairs(params: &SamplePairsParams) {
    let at = block_idx_x() as u64 * THREADS_PER_CTA as u64 + thread_idx_x() as u64;
    if at >= params.pairs {
        return;
    }
    let mut found = [0; 2];
    let mut attempt = 0;
    while attempt < ATTEMPTS {
        let counter = pair_counter(params.step, attempt, at);
        let numbers = philox_by(params.key, counter, wide_product);
        found = pair(numbers, params.vertices);
        // SAFETY: both are vertices.
        if !unsafe { is_edge(params, found) } {
            break;
        }
        attempt += 1;
    }
    // SAFETY: `at` is a pair, the thread's own.
    unsafe {
        Global::<u32>::new(params.firsts).at(at).store(found[0]);
        Global::<u32>::new(params.seconds).at(at).store(found[1]);
    }
}

/// Whether a row of the graph, where there is one, has a column.
///
/// # Safety
/// The launch contract of [`SamplePairsParams`]; both are vertices.
#[inline(always)]
unsafe fn is_edge(params: &SamplePairsParams, [row, column]: [u32; 2]) -> bool {
    let offsets = Global::<u64>::new(params.offsets);
    if offsets.is_null() {
        return false;
    }
    let columns = Global::<u32>::new(params.columns);
    // SAFETY: offsets of the row and the next, and columns between them.
    unsafe {
        let mut begin = offsets.at(row as u64).read();
        let end = offsets.at(row as u64 + 1).read();
        let mut past = end;
        while begin < past {
            let middle = begin + (past - begin) / 2;
            if columns.at(middle).read() < column {
                begin = middle + 1;
            } else {
                past = middle;
            }
        }
        begin < end && columns.at(begin).read() == column
    }
}
