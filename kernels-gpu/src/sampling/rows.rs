//! Rows of a matrix that an order picks: some lanes a row, a 16-byte vector each at a time.

use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::thread::{global_idx_x, grid_dim_x};
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::sampling::{ROWS_UNDER_WAY, TakeRowsParams};

/// The rows whose loads a lane has under way at once: where the grid is short, as for rows that come over the bus, what is under way is all
/// that hides how long they take.
const ROWS: [u64; ROWS_UNDER_WAY] = [0, 1, 2, 3];

/// # Safety
/// The launch contract of [`TakeRowsParams`]: `lanes` threads a row, and as many CTAs as there may be, which take turns with the order.
#[inline(always)]
pub unsafe fn take_rows(params: &TakeRowsParams) {
    let thread = global_idx_x();
    let shift = params.lanes.trailing_zeros();
    let order = Global::<u32>::new(params.order);
    let rows = Global::<[u32; 4]>::new(params.rows);
    let taken = Global::<[u32; 4]>::new(params.taken);
    // Rows that the grid takes at once.
    let turn = (grid_dim_x() as u64 * THREADS_PER_CTA as u64) >> shift;
    let mut first = thread >> shift;
    while first < params.taken_count {
        let places = ROWS.map(|number| first + number * turn);
        let is_taken = places.map(|at| at < params.taken_count);
        // SAFETY: the order has a number for each row that is taken.
        let numbers = ROWS.map(|it| unsafe {
            let it = it as usize;
            order.at(places[it]).load_or(is_taken[it], u32::MAX)
        });
        let mut vector = thread & (params.lanes as u64 - 1);
        while vector < params.vectors as u64 {
            // SAFETY: the caller's promise: rows are `stride` vectors apart, and one that is not there is not read.
            let values = numbers.map(|row| unsafe {
                let row = row as u64;
                let from = rows.at(row * params.stride as u64 + vector);
                from.load_if(row < params.row_count)
            });
            unroll!(it in 0..ROWS_UNDER_WAY => {
                if is_taken[it] {
                    // SAFETY: a row that is taken is these lanes' own.
                    unsafe { taken.at(places[it] * params.vectors as u64 + vector).store(values[it]) };
                }
            });
            vector += params.lanes as u64;
        }
        first += ROWS.len() as u64 * turn;
    }
}
