//! Numbers of destinations, side by side.

use crate::device::global::Global;
use crate::device::thread::global_idx_x;
use halfgnn_contract::attention::RecordsParams;

/// # Safety
/// The launch contract of [`RecordsParams`]: a thread for each record.
#[inline(always)]
pub unsafe fn pack(params: &RecordsParams) {
    let at = global_idx_x();
    if at >= params.len {
        return;
    }
    let number = |numbers| Global::<f32>::new(numbers).at(at);
    // SAFETY: `at` is a number of each array, and the record is the thread's own.
    unsafe {
        let [m, reciprocal_z]: [u32; 2] = Global::new(params.statistics).at(at).read();
        let score = number(params.destination).read().to_bits();
        let value = number(params.values).read().to_bits();
        Global::<[u32; 4]>::new(params.records)
            .at(at)
            .store([m, reciprocal_z, score, value]);
    }
}
