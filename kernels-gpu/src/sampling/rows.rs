//! Rows of a matrix that an order picks: some lanes a row, a 16-byte vector each at a time.

use crate::device::global::Global;
use crate::device::thread::global_idx_x;
use halfgnn_contract::sampling::TakeRowsParams;

/// # Safety
/// The launch contract of [`TakeRowsParams`]: `lanes` threads for each of the order.
#[inline(always)]
pub unsafe fn take_rows(params: &TakeRowsParams) {
    let thread = global_idx_x();
    let shift = params.lanes.trailing_zeros();
    let at = thread >> shift;
    if at >= params.taken_count {
        return;
    }
    // SAFETY: the caller's promise: rows are `stride` vectors apart, and a row that is taken is these lanes' own.
    unsafe {
        let row = Global::<u32>::new(params.order).at(at).read() as u64;
        let there = row < params.row_count;
        let from = Global::<[u32; 4]>::new(params.rows).at(row * params.stride as u64);
        let to = Global::<[u32; 4]>::new(params.taken).at(at * params.vectors as u64);
        let mut vector = thread & (params.lanes as u64 - 1);
        while vector < params.vectors as u64 {
            to.at(vector).store(from.at(vector).load_if(there));
            vector += params.lanes as u64;
        }
    }
}
