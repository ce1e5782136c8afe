//! Rules on float master weights, the overflow check, and the loss scale.

use crate::device::float::sqrt;
use crate::device::global::{Global, or_u32};
use crate::device::registers::unroll;
use crate::device::thread::{block_idx_x, thread_idx_x};
use crate::device::vector::Vector;
use core::num::NonZeroU64;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::optimizer::{
    AdamStep, EndStepParams, OptimizerParameter, OptimizerParams, PARAMETERS_PER_LAUNCH, Rule,
    SgdStep, StepConstants, factors, state,
};

/// Parameters are looked through in two loops, since [`unroll!`] repeats no more often.
const GROUP: usize = 8;

/// One of two parameters, field by field: LLVM would make one of two addresses, and so a copy in memory.
#[inline(always)]
fn select(first: bool, a: OptimizerParameter, b: OptimizerParameter) -> OptimizerParameter {
    macro_rules! fields {
        ($($field:ident),*) => {
            OptimizerParameter {
                $($field: if first { a.$field } else { b.$field },)*
            }
        };
    }
    fields!(
        gradient,
        master,
        first_moment,
        second_moment,
        rounded,
        rows,
        vectors,
        rounded_stride,
        first_cta,
        reserved
    )
}

/// The parameter that the CTA works on, and the thread's vector of its float matrices, if there is one.
#[inline(always)]
pub(super) fn vector(params: &OptimizerParams) -> Option<(OptimizerParameter, u64)> {
    // Selected one after the other, because parameters of a kernel cannot be indexed by a variable. One without
    // elements has no CTA, so the last that begins here is meant.
    let mut parameter = params.parameters[0];
    unroll!(group in 0..PARAMETERS_PER_LAUNCH / GROUP => {
        unroll!(i in 0..GROUP => {
            let next = params.parameters[group * GROUP + i];
            parameter = select(next.first_cta <= block_idx_x(), next, parameter);
        });
    });
    let cta = block_idx_x() - parameter.first_cta;
    let at = cta as u64 * THREADS_PER_CTA as u64 + thread_idx_x() as u64;
    if at < parameter.rows * parameter.vectors as u64 {
        Some((parameter, at))
    } else {
        None
    }
}

/// # Safety
/// The launch contract of [`OptimizerParams`]: a thread for each vector of each parameter.
#[inline(always)]
pub unsafe fn adam<V: Vector>(params: &OptimizerParams) {
    // SAFETY: the caller's promise.
    unsafe { update::<V, AdamStep<false>>(params) }
}

/// # Safety
/// As [`adam`].
#[inline(always)]
pub unsafe fn adamw<V: Vector>(params: &OptimizerParams) {
    // SAFETY: the caller's promise.
    unsafe { update::<V, AdamStep<true>>(params) }
}

/// # Safety
/// As [`adam`].
#[inline(always)]
pub unsafe fn sgd<V: Vector>(params: &OptimizerParams) {
    // SAFETY: the caller's promise.
    unsafe { update::<V, SgdStep>(params) }
}

/// # Safety
/// As [`adam`].
#[inline(always)]
unsafe fn update<V: Vector, R: Rule>(params: &OptimizerParams) {
    let Some((parameter, at)) = vector(params) else {
        return;
    };
    let words = Global::<u32>::new(params.state);
    let of_step = Global::<u32>::new(params.factors);
    // SAFETY: the state has its words and the factors are there, and nothing writes them during the launch; the vectors are
    // the thread's own.
    unsafe {
        if words.at(state::OVERFLOW as u64).read() != 0 {
            return;
        }
        let constants = StepConstants {
            learning_rate: params.learning_rate,
            beta1: params.beta1,
            beta2: params.beta2,
            epsilon: params.epsilon,
            weight_decay: params.weight_decay,
            clip_value: params.clip_value,
            nesterov: params.nesterov != 0,
            factors: [
                f32::from_bits(of_step.at(factors::LEARNING_RATE as u64).read()),
                f32::from_bits(of_step.at(factors::GRADIENT as u64).read()),
            ],
            loss_scale: f32::from_bits(words.at(state::LOSS_SCALE as u64).read()),
            steps: words.at(state::STEPS as u64).read(),
        };
        let step = R::new(&constants, sqrt);

        let [master, first, second] = [
            parameter.master,
            parameter.first_moment,
            parameter.second_moment,
        ]
        .map(|p| Global::<[u32; 4]>::new(p).at(at));
        let gradient: [u32; 4] = Global::<[u32; 4]>::new(parameter.gradient).at(at).read();
        let kept = R::MOMENTS || !Global::<u32>::new(parameter.first_moment).is_null();
        let mut weights = master.load();
        let mut m = if kept { first.load() } else { [0; 4] };
        let mut v = if R::MOMENTS { second.load() } else { [0; 4] };
        let mut i = 0;
        while i < 4 {
            let before = [weights[i], m[i], v[i]].map(f32::from_bits);
            [weights[i], m[i], v[i]] = step
                .update(before, f32::from_bits(gradient[i]), sqrt)
                .map(|value| value.to_bits());
            i += 1;
        }
        master.store(weights);
        if kept {
            first.store(m);
        }
        if R::MOMENTS {
            second.store(v);
        }
        let copy = Global::<V::Feature>::new(parameter.rounded);
        if let (false, Some(vectors)) = (copy.is_null(), NonZeroU64::new(parameter.vectors as u64))
        {
            let first = at / vectors * parameter.rounded_stride as u64 + at % vectors * 4;
            V::store_features(copy.at(first), weights.map(f32::from_bits));
        }
    }
}

/// # Safety
/// The launch contract of [`OptimizerParams`]: a thread for each vector of each gradient.
#[inline(always)]
pub unsafe fn check_finite(params: &OptimizerParams) {
    let Some((parameter, at)) = vector(params) else {
        return;
    };
    // SAFETY: a vector of the gradient, and a word of the state, which every thread sets to the same.
    unsafe {
        let gradient: [u32; 4] = Global::<[u32; 4]>::new(parameter.gradient).at(at).read();
        // All bits of the exponent set: an infinity or a NaN.
        let overflow = gradient.map(|bits| bits & 0x7f80_0000 == 0x7f80_0000);
        if overflow[0] | overflow[1] | overflow[2] | overflow[3] {
            or_u32(
                Global::<u32>::new(params.state).at(state::OVERFLOW as u64),
                1,
            );
        }
    }
}

/// # Safety
/// The launch contract of [`EndStepParams`]: one thread.
#[inline(always)]
pub unsafe fn end_step(params: &EndStepParams) {
    let words = Global::<u32>::new(params.state);
    let mut all = [0; state::WORDS];
    let mut i = 0;
    // SAFETY: the state has its words, and there is one thread.
    unsafe {
        while i < state::WORDS {
            all[i] = words.at(i as u64).load();
            i += 1;
        }
        all = state::end_step(all, params.growth_interval, params.maximum);
        let mut i = 0;
        while i < state::WORDS {
            words.at(i as u64).store(all[i]);
            i += 1;
        }
    }
}
