//! Scores of pairs of rows: a sub-warp a pair, whose lanes take its vectors in turn.

use crate::device::global::Global;
use crate::device::sums::shuffle_xor_64;
use crate::device::thread::global_idx_x;
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::metrics::PairScoreParams;

/// # Safety
/// The launch contract of [`PairScoreParams`]: `1 << lanes_log2` threads for each pair.
#[inline(always)]
pub unsafe fn score_pairs<V: Vector>(params: &PairScoreParams) {
    let thread = global_idx_x();
    let lanes = 1 << params.lanes_log2;
    let (at, lane) = (thread >> params.lanes_log2, thread as u32 & (lanes - 1));
    let exists = at < params.pairs;
    // SAFETY: a pair has two words; rows below `a_rows` and `b_rows` are there; all lanes of the warp come to the shuffles; and the
    // score is one lane's.
    unsafe {
        let first = Global::<u32>::new(params.firsts).at(at).load_if(exists) as u64;
        let second = Global::<u32>::new(params.seconds).at(at).load_if(exists) as u64;
        let there = exists && first < params.a_rows && second < params.b_rows;
        let mut sum = if there { 0.0 } else { f64::NAN };
        let mut vector = if there { lane } else { params.vectors };
        while vector < params.vectors {
            let row = |matrix, row: u64| {
                let at = row * params.vectors as u64 + vector as u64;
                V::from_bits(Global::<V::Bits>::new(matrix).at(at).read()).widen()
            };
            let (a, b) = (row(params.a, first), row(params.b, second));
            let mut i = 0;
            while i < V::WIDTH as usize {
                sum += a.get(i) as f64 * b.get(i) as f64;
                i += 1;
            }
            vector += lanes;
        }
        let mut distance = lanes / 2;
        while distance > 0 {
            sum += shuffle_xor_64(sum, distance);
            distance /= 2;
        }
        if exists && lane == 0 {
            let score = (sum as f32).to_bits();
            Global::<u32>::new(params.scores).at(at).store(score);
        }
    }
}
