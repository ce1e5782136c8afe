//! Adam on float master weights, and the loss scale that follows overflows.

use super::convert::round;
use super::matmul::{View, ViewMut};
use crate::backend::{AdamHyper, LossScaling};
use crate::tensor::Element;
use rayon::prelude::*;

/// Rows that are one piece of work at least.
const MIN_ROWS: usize = 64;

// Words of an optimizer state.
const LOSS_SCALE: usize = 0;
const STEPS: usize = 1;
const SKIPPED: usize = 2;
const SINCE_CHANGE: usize = 3;
const OVERFLOW: usize = 4;

/// The loss scale in the words of a state.
pub(super) fn loss_scale(words: &[u32]) -> f32 {
    f32::from_bits(words[LOSS_SCALE])
}

/// Sets the overflow flag where a value is infinite or a NaN. Padding is zero, so it may be among the values.
pub(super) fn check_finite(gradient: &[f32], words: &mut [u32]) {
    if !gradient.par_iter().all(|value| value.is_finite()) {
        words[OVERFLOW] = 1;
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
    if words[OVERFLOW] != 0 || columns == 0 {
        return;
    }
    let step = Step::new(hyper, words);
    let master = parameter.master.values;
    master
        .par_chunks_exact_mut(stride)
        .with_min_len(MIN_ROWS)
        .zip(parameter.first_moment.par_chunks_exact_mut(stride))
        .zip(parameter.second_moment.par_chunks_exact_mut(stride))
        .zip(gradient.values.par_chunks_exact(stride))
        .for_each(|(((master, m), v), gradient)| {
            for i in 0..columns {
                step.update(&mut master[i], &mut m[i], &mut v[i], gradient[i]);
            }
        });
    if let Some(rounded) = parameter.rounded {
        let rows = rounded.values.par_chunks_exact_mut(rounded.stride);
        rows.zip(master.par_chunks_exact(stride))
            .for_each(|(rounded, master)| round(&master[..columns], &mut rounded[..columns]));
    }
}

/// Adam's constants at one step.
struct Step {
    hyper: AdamHyper,
    unscale: f32,
    step_size: f32,
    root_correction: f32,
}

impl Step {
    fn new(hyper: &AdamHyper, words: &[u32]) -> Self {
        let steps = words[STEPS].saturating_add(1);
        let correction = |beta: f32| 1.0 - f64::from(beta).powf(f64::from(steps));
        Self {
            hyper: *hyper,
            unscale: 1.0 / loss_scale(words),
            step_size: (f64::from(hyper.learning_rate) / correction(hyper.beta1)) as f32,
            root_correction: correction(hyper.beta2).sqrt() as f32,
        }
    }

    #[inline]
    fn update(&self, master: &mut f32, m: &mut f32, v: &mut f32, gradient: f32) {
        let AdamHyper {
            beta1,
            beta2,
            epsilon,
            weight_decay,
            ..
        } = self.hyper;
        let g = gradient * self.unscale + weight_decay * *master;
        *m = beta1 * *m + (1.0 - beta1) * g;
        *v = beta2 * *v + (1.0 - beta2) * g * g;
        *master -= self.step_size * *m / (v.sqrt() / self.root_correction + epsilon);
    }
}

/// Ends a step: see [`crate::backend::Backend::end_step`].
pub(super) fn end_step(scaling: &LossScaling, words: &mut [u32]) {
    let scale = loss_scale(words);
    let scale = if words[OVERFLOW] != 0 {
        words[OVERFLOW] = 0;
        words[SKIPPED] = words[SKIPPED].saturating_add(1);
        words[SINCE_CHANGE] = 0;
        scale * 0.5
    } else {
        words[STEPS] = words[STEPS].saturating_add(1);
        words[SINCE_CHANGE] = words[SINCE_CHANGE].saturating_add(1);
        if words[SINCE_CHANGE] == scaling.growth_interval {
            words[SINCE_CHANGE] = 0;
            (scale * 2.0).min(scaling.maximum)
        } else {
            scale
        }
    };
    words[LOSS_SCALE] = scale.to_bits();
}
