//! The columns of a warp's edges, four at once.

use crate::device::global::Global;
use crate::device::registers::unroll;
use halfgnn_contract::bits::BspmmParams;

/// The columns of four edges from edge `at` of a warp on, a multiple of four, of a warp that has `left` from `first` on; zero where there is none. `is_full` says that there are all that a warp
/// may have.
///
/// # Safety
/// The launch contract of [`BspmmParams`]: there are `left` edges from `first` on, a multiple of four, and these four if `is_full`.
#[inline(always)]
pub unsafe fn four_columns(
    params: &BspmmParams,
    first: u32,
    at: u32,
    left: u32,
    is_full: bool,
) -> [u32; 4] {
    let columns = Global::<u32>::new(params.columns).at(first as u64 + at as u64);
    let mut ids = [0; 4];
    // SAFETY: the caller's promise.
    unsafe {
        if is_full {
            ids = Global::<[u32; 4]>::cast(columns).fetch();
        } else {
            unroll!(i in 0..4 => {
                ids[i] = columns.at(i as u64).load_if(at + (i as u32) < left);
            });
        }
    }
    ids
}
