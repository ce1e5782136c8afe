//! Adam on float master weights, and the loss scale that follows overflows.

use super::convert::round;
use super::matmul::{View, ViewMut};
use crate::backend::{AdamHyper, LossScaling};
use crate::tensor::Element;
use halfgnn_contract::dense::{AdamStep, state};
use rayon::prelude::*;

/// Rows that are one piece of work at least.
const MIN_ROWS: usize = 64;

/// The loss scale in the words of a state.
pub(super) fn loss_scale(words: &[u32]) -> f32 {
    f32::from_bits(words[state::LOSS_SCALE])
}

/// Sets the overflow flag where a value is infinite or a NaN. Padding is zero, so it may be among the values.
pub(super) fn check_finite(gradient: &[f32], words: &mut [u32]) {
    if !gradient.par_iter().all(|value| value.is_finite()) {
        words[state::OVERFLOW] = 1;
    }
}

/// The matrices of a parameter.
pub(super) struct Parameter<'a, E> {
    pub(super) master: ViewMut<'a, f32>,
    pub(super) first_moment: &'a mut [f32],
    pub(super) second_moment: &'a mut [f32],
    pub(super) rounded: Option<ViewMut<'a, E>>,
}

/// One step of Adam, unless the overflow flag is set.
pub(super) fn adam<E: Element>(
    hyper: &AdamHyper,
    words: &[u32],
    gradient: View<'_, f32>,
    parameter: Parameter<'_, E>,
) {
    let (columns, stride) = (gradient.columns, gradient.stride);
    if words[state::OVERFLOW] != 0 || columns == 0 {
        return;
    }
    let AdamHyper {
        learning_rate,
        beta1,
        beta2,
        epsilon,
        weight_decay,
    } = *hyper;
    let constants = [learning_rate, beta1, beta2, epsilon, weight_decay];
    let steps = words[state::STEPS];
    let step = AdamStep::new(constants, loss_scale(words), steps, f32::sqrt);
    let master = parameter.master.values;
    master
        .par_chunks_exact_mut(stride)
        .with_min_len(MIN_ROWS)
        .zip(parameter.first_moment.par_chunks_exact_mut(stride))
        .zip(parameter.second_moment.par_chunks_exact_mut(stride))
        .zip(gradient.values.par_chunks_exact(stride))
        .for_each(|(((master, m), v), gradient)| {
            for i in 0..columns {
                let before = [master[i], m[i], v[i]];
                [master[i], m[i], v[i]] = step.update(before, gradient[i], f32::sqrt);
            }
        });
    if let Some(rounded) = parameter.rounded {
        let rows = rounded.values.par_chunks_exact_mut(rounded.stride);
        rows.zip(master.par_chunks_exact(stride))
            .for_each(|(rounded, master)| round(&master[..columns], &mut rounded[..columns]));
    }
}

/// Ends a step: see [`crate::backend::Backend::end_step`].
pub(super) fn end_step(scaling: &LossScaling, words: &mut [u32]) {
    let Some(words) = words.first_chunk_mut() else {
        return;
    };
    *words = state::end_step(*words, scaling.growth_interval, scaling.maximum);
}
