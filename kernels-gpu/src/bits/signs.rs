//! Bits of elements: a lane looks at a vector, and lanes side by side put 32 bits together.

use crate::device::global::Global;
use crate::device::thread::global_idx_x;
use crate::device::vector::{Floats, Vector};
use crate::device::warp::{lane_id, shuffle_xor};
use halfgnn_contract::WARP;
use halfgnn_contract::bits::BinarizeParams;

/// # Safety
/// The launch contract of [`BinarizeParams`]: a thread for each vector of a row of as many as fill `y_stride` words, rows in y
/// of the grid after the first 2³¹ threads.
#[inline(always)]
pub unsafe fn binarize<V: Vector>(params: &BinarizeParams) {
    let lanes = WARP / V::WIDTH;
    // Lanes that share a word stay together, as a row is a multiple of them.
    let per_row = params.y_stride as u64 * (64 / V::WIDTH) as u64;
    let at = global_idx_x();
    let row = at / per_row.max(1);
    let vector = (at % per_row.max(1)) as u32;
    let mut bits = 0u32;
    // SAFETY: vectors of the row are in the matrix; all lanes of the warp come to the shuffles; a word is one lane's.
    unsafe {
        if row < params.rows && vector < params.x_vectors {
            let place = row * params.x_vectors as u64 + vector as u64;
            let values = V::from_bits(Global::<V::Bits>::new(params.x).at(place).read()).widen();
            let mut i = 0;
            while i < V::WIDTH {
                let is_column = vector * V::WIDTH + i < params.features;
                bits |= ((is_column && values.get(i as usize) >= 0.0) as u32) << i;
                i += 1;
            }
        }
        bits <<= lane_id() % lanes * V::WIDTH;
        let mut distance = 1;
        while distance < lanes {
            bits |= shuffle_xor(bits, distance);
            distance *= 2;
        }
        if row < params.rows && lane_id() % lanes == 0 {
            let word = row * params.y_stride as u64 * 2 + (vector / lanes) as u64;
            Global::<u32>::new(params.y).at(word).store(bits);
        }
    }
}
