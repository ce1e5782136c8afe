//! Scales from the largest magnitudes: a thread a column.

use crate::device::global::Global;
use crate::device::thread::global_idx_x;
use halfgnn_contract::quantize::{CodeFormat, INT8, UpdateScalesParams};

/// # Safety
/// The launch contract of [`UpdateScalesParams`].
#[inline(always)]
pub unsafe fn update_scales(params: &UpdateScalesParams) {
    let column = global_idx_x();
    if column >= params.columns as u64 {
        return;
    }
    let format = if params.format == INT8 {
        CodeFormat::Int8
    } else {
        CodeFormat::E4m3
    };
    let scale = Global::<f32>::new(params.scales).at(column);
    let largest = Global::<u32>::new(params.largest).at(column);
    // SAFETY: the column is one of the arrays', and this thread's alone.
    unsafe {
        let next = format.next_scale(f32::from_bits(largest.load()), params.margin, scale.load());
        scale.store(next);
        largest.store(0);
    }
}
