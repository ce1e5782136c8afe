//! The norm of all gradients together, and the factor that takes it to a largest one.
//!
//! Squares are added up in double and in a fixed order: a sum of a CTA, then one CTA that adds up those.

use super::parameters::vector;
use crate::device::float::sqrt_f64;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads, thread_idx_x};
use crate::device::warp::{lane_id, shuffle_xor, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::optimizer::{
    ClipNormParams, OptimizerParams, clip_factor, factors, squares, state,
};

/// The sum of all threads' values in the first thread, in the order of
/// [`sum_of_cta`](halfgnn_contract::optimizer::sum_of_cta).
///
/// # Safety
/// All threads of the CTA reach this call together, which is the only one, with
/// [`NORM_SHARED_BYTES`](halfgnn_contract::optimizer::NORM_SHARED_BYTES) of shared memory.
#[inline(always)]
unsafe fn sum_of_cta(mut value: f64) -> f64 {
    let mut distance = WARP / 2;
    while distance > 0 {
        let bits = value.to_bits();
        // SAFETY: the loop is the same for every thread, and the caller promises that all of them are here.
        let [low, high] =
            unsafe { [bits as u32, (bits >> 32) as u32].map(|half| shuffle_xor(half, distance)) };
        value += f64::from_bits((high as u64) << 32 | low as u64);
        distance /= 2;
    }
    let place = Shared::base().offset(warp_id() * 8);
    let bits = value.to_bits();
    // SAFETY: two words for each warp, written by its first lane before the barrier and read after it.
    unsafe {
        if lane_id() == 0 {
            place.store_u32(bits as u32);
            place.offset(4).store_u32((bits >> 32) as u32);
        }
        sync_threads();
        let mut sum = 0.0;
        let mut warp = 0;
        while warp < THREADS_PER_CTA / WARP {
            let [low, high] = Shared::base().offset(warp * 8).load_u32x2();
            sum += f64::from_bits((high as u64) << 32 | low as u64);
            warp += 1;
        }
        sum
    }
}

/// # Safety
/// The launch contract of [`OptimizerParams`]: a thread for each vector of each gradient.
#[inline(always)]
pub unsafe fn sum_squares(params: &OptimizerParams) {
    // SAFETY: a vector of the gradient; every thread is at the sum; and the CTA's place among the partial sums.
    unsafe {
        let value = match vector(params) {
            Some((parameter, at)) => {
                let gradient: [u32; 4] = Global::<[u32; 4]>::new(parameter.gradient).at(at).read();
                squares(gradient.map(f32::from_bits))
            }
            None => 0.0,
        };
        let sum = sum_of_cta(value);
        if thread_idx_x() == 0 {
            Global::<u64>::new(params.partials)
                .at(block_idx_x() as u64)
                .store(sum.to_bits());
        }
    }
}

/// # Safety
/// The launch contract of [`ClipNormParams`]: one CTA.
#[inline(always)]
pub unsafe fn clip_norm(params: &ClipNormParams) {
    let mut value = 0.0;
    let mut at = thread_idx_x() as u64;
    // SAFETY: there are so many partial sums, which a launch before has written; every thread is at the sum; the state has its
    // words, and one thread writes the factor.
    unsafe {
        while at < params.count {
            value += f64::from_bits(Global::<u64>::new(params.partials).at(at).read());
            at += THREADS_PER_CTA as u64;
        }
        let sum = sum_of_cta(value);
        if thread_idx_x() == 0 {
            let scale = Global::<u32>::new(params.state).at(state::LOSS_SCALE as u64);
            let factor = clip_factor(sum, f32::from_bits(scale.read()), params.maximum, sqrt_f64);
            Global::<u32>::new(params.factors)
                .at(factors::GRADIENT as u64)
                .store(factor.to_bits());
        }
    }
}
