//! How often each was taken.

use crate::device::global::Global;
use crate::device::thread::global_idx_x;
use halfgnn_contract::subgraph::TallyParams;

/// # Safety
/// The launch contract of [`TallyParams`]: a thread for each of the order, whose numbers are all different.
#[inline(always)]
pub unsafe fn tally(params: &TallyParams) {
    let at = global_idx_x();
    if at >= params.order_len {
        return;
    }
    // SAFETY: the caller's promise: a count is one thread's.
    unsafe {
        let number = Global::<u32>::new(params.order).at(at).read() as u64;
        if number < params.count_len {
            let count = Global::<u32>::new(params.counts).at(number);
            count.store(count.load() + 1);
        }
    }
}
