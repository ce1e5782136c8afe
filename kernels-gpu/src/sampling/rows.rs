//! Rows of a matrix that an order picks: some lanes a row, a 16-byte vector each at a time.

use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::thread::{global_idx_x, grid_dim_x};
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::sampling::{ROWS_UNDER_WAY, TakeRowsParams};

/// The rows whose loads a lane has under way at once: where the grid is short, as for rows that come over the bus, what is under way is all
/// that hides how long they take.
const ROWS: [u64; ROWS_UNDER_WAY] = [0, 1, 2, 3];

/// Where a row is read.
trait Source {
    /// Its first vector, of a row that there is.
    ///
    /// # Safety
    /// The launch contract of [`TakeRowsParams`], and it is a row.
    unsafe fn start(params: &TakeRowsParams, row: u64) -> Global<[u32; 4]>;
}

/// In the matrix.
struct Matrix;

impl Source for Matrix {
    #[inline(always)]
    unsafe fn start(params: &TakeRowsParams, row: u64) -> Global<[u32; 4]> {
        Global::new(params.rows).at(row * params.stride as u64)
    }
}

/// In its copy, if it has one: a bit says so, and the bits before it say which it is.
struct Cached;

impl Source for Cached {
    #[inline(always)]
    unsafe fn start(params: &TakeRowsParams, row: u64) -> Global<[u32; 4]> {
        let marks = Global::<[u32; 2]>::new(params.marks);
        let bit = 1_u32 << (row % 32);
        // SAFETY: the caller's promise: there is a word for each 32 rows, which nothing writes during the launch.
        let [word, before] = unsafe { marks.at(row / 32).read() };
        if word & bit == 0 {
            // SAFETY: the caller's promise.
            return unsafe { Matrix::start(params, row) };
        }
        let place = before + (word & (bit - 1)).count_ones();
        Global::new(params.cached).at(place as u64 * params.vectors as u64)
    }
}

/// # Safety
/// The launch contract of [`TakeRowsParams`].
#[inline(always)]
pub unsafe fn take_rows(params: &TakeRowsParams) {
    // SAFETY: the caller's promise.
    unsafe { take::<Matrix>(params) }
}

/// # Safety
/// The launch contract of [`TakeRowsParams`].
#[inline(always)]
pub unsafe fn take_cached_rows(params: &TakeRowsParams) {
    // SAFETY: the caller's promise.
    unsafe { take::<Cached>(params) }
}

/// # Safety
/// The launch contract of [`TakeRowsParams`]: `lanes` threads a row, and as many CTAs as there may be, which take turns with the order.
#[inline(always)]
unsafe fn take<S: Source>(params: &TakeRowsParams) {
    let thread = global_idx_x();
    let shift = params.lanes.trailing_zeros();
    let order = Global::<u32>::new(params.order);
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
        let starts = numbers.map(|row| {
            if row as u64 >= params.row_count {
                return Global::at_address(0);
            }
            // SAFETY: the caller's promise, of a row that there is.
            unsafe { S::start(params, row as u64) }
        });
        let mut vector = thread & (params.lanes as u64 - 1);
        while vector < params.vectors as u64 {
            // SAFETY: the caller's promise: a row has so many vectors, and one that is not there is not read.
            let values = ROWS.map(|it| unsafe {
                let it = it as usize;
                starts[it].at(vector).load_if(!starts[it].is_null())
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
