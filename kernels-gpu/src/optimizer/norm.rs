//! The norm of all gradients together, and the factor that takes it to a largest one.
//!
//! Squares are added up in double and in a fixed order: a sum of a CTA, then one CTA that adds up those.

use super::parameters::vector;
use crate::device::float::sqrt_f64;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::sums::sum_of_cta;
use crate::device::thread::{block_idx_x, thread_idx_x};
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::optimizer::{
    ClipNormParams, OptimizerParams, clip_factor, factors, squares, state,
};

/// # Safety
/// The launch contract of [`OptimizerParams`]: a thread for each vector of each gradient.
#[inline(always)]
pub unsafe fn sum_squares(params: &OptimizerParams) {
    // SAFETY: a vector of the gradient; every thread is at the only sum; and the CTA's place among the partial sums.
    unsafe {
        let value = match vector(params) {
            Some((parameter, at)) => {
                let gradient: [u32; 4] = Global::<[u32; 4]>::new(parameter.gradient).at(at).read();
                squares(gradient.map(f32::from_bits))
            }
            None => 0.0,
        };
        let sum = sum_of_cta(value, Shared::base());
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
        let sum = sum_of_cta(value, Shared::base());
        if thread_idx_x() == 0 {
            let scale = Global::<u32>::new(params.state).at(state::LOSS_SCALE as u64);
            let factor = clip_factor(sum, f32::from_bits(scale.read()), params.maximum, sqrt_f64);
            Global::<u32>::new(params.factors)
                .at(factors::GRADIENT as u64)
                .store(factor.to_bits());
        }
    }
}
