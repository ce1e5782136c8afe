//! Bits of elements: a lane looks at a vector of some rows, and lanes side by side put 32 bits together.

use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::thread::global_idx_x;
use crate::device::vector::{Floats, Vector};
use crate::device::warp::{lane_id, shuffle_xor};
use crate::normalize::Columns;
use halfgnn_contract::WARP;
use halfgnn_contract::bits::{BINARIZE_ROWS, BinarizeParams};

/// Rows of a thread.
const ROWS: usize = BINARIZE_ROWS as usize;

/// # Safety
/// The launch contract of [`BinarizeParams`]: a thread for each vector of `BINARIZE_ROWS` rows, of as many as fill `y_stride` words.
#[inline(always)]
pub unsafe fn binarize<V: Vector<Bits = [u32; 4]>>(params: &BinarizeParams) {
    let lanes = WARP / V::WIDTH;
    // Lanes that share a word stay together, as a row is a multiple of them.
    let per_row = (params.y_stride as u64 * (64 / V::WIDTH) as u64).max(1);
    let at = global_idx_x();
    let first = at / per_row * ROWS as u64;
    let vector = (at % per_row) as u32;
    let is_there = vector < params.x_vectors;
    let is_normalized = !Global::<f32>::new(params.statistics).is_null();
    // SAFETY: vectors of the rows are in the matrix, and there are parameters of their columns where there are any; all lanes of the warp
    // come to the shuffles; a word is one lane's.
    unsafe {
        let x = Global::<V::Bits>::new(params.x).at(vector as u64);
        let mut loaded = [[0; 4]; ROWS];
        unroll!(i in 0..ROWS => {
            let row = first + i as u64;
            let place = x.at(row * params.x_vectors as u64);
            loaded[i] = place.load_if(is_there && row < params.rows);
        });
        let mut columns = Columns::<V>::IDENTITY;
        if is_normalized && is_there {
            let of = [params.statistics, params.weight, params.bias];
            columns = Columns::read(of, vector, params.float_vectors);
        }
        unroll!(row in 0..ROWS => {
            let mut values = V::from_bits(loaded[row]).widen();
            if is_normalized {
                let mut i = 0;
                while i < V::WIDTH as usize {
                    values = values.with(i, columns.get(i).output(values.get(i)));
                    i += 1;
                }
                // The sign of what would have been stored: the smallest are rounded to zero.
                values = V::narrow(values).widen();
            }
            let mut bits = 0u32;
            let mut i = 0;
            while i < V::WIDTH {
                let is_column = is_there && vector * V::WIDTH + i < params.features;
                bits |= ((is_column && values.get(i as usize) >= 0.0) as u32) << i;
                i += 1;
            }
            bits <<= lane_id() % lanes * V::WIDTH;
            let mut distance = 1;
            while distance < lanes {
                bits |= shuffle_xor(bits, distance);
                distance *= 2;
            }
            let row = first + row as u64;
            if row < params.rows && lane_id() % lanes == 0 {
                let word = row * params.y_stride as u64 * 2 + (vector / lanes) as u64;
                Global::<u32>::new(params.y).at(word).store(bits);
            }
        });
    }
}
