//! The optimiser: overflow, Adam, and the loss scale.
//!
//! The words "vector" and "padding" are those of [`crate::elementwise`], as are its rules on pointers.

use crate::elementwise::THREADS_PER_CTA;
use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, param_struct};

/// Parameters of a model that one launch of `adam` or `check_finite` takes: most models take one launch each. They have to
/// fit the 4 KiB that a kernel's parameters may take.
pub const PARAMETERS_PER_LAUNCH: usize = 32;

const _: () = assert!(size_of::<AdamParams>() <= 4096);

param_struct! {
    /// A parameter of a model as the optimiser sees it: float matrices of one shape. Padding takes part: it is zero and
    /// stays so.
    pub struct AdamParameter {
        /// Gradient, times the loss scale.
        pub gradient: DevicePtr<f32>,
        /// Master weights. Like the moments and the copy, for `adam` only.
        pub master: DevicePtr<f32>,
        /// First moment.
        pub first_moment: DevicePtr<f32>,
        /// Second moment.
        pub second_moment: DevicePtr<f32>,
        /// Copy of the master weights, rounded to half by `adam_f16` and as it is by `adam_f32`, or null for none.
        /// What lies past the float row's own padding is not written: zero from the allocation on.
        pub rounded: DevicePtr<HalfBits>,
        /// Rows.
        pub rows: u64,
        /// Distance of two float rows in 16-byte vectors.
        pub vectors: u32,
        /// Distance of two rows of `rounded` in its elements, a whole number of 16-byte vectors.
        pub rounded_stride: u32,
        /// The first of the parameter's CTAs; there are [`optimizer_ctas`]. `u32::MAX` where there is no parameter.
        pub first_cta: u32,
        /// Zero.
        pub reserved: u32,
    }
}

impl AdamParameter {
    /// No parameter.
    pub const NONE: Self = Self {
        gradient: DevicePtr::NULL,
        master: DevicePtr::NULL,
        first_moment: DevicePtr::NULL,
        second_moment: DevicePtr::NULL,
        rounded: DevicePtr::NULL,
        rows: 0,
        vectors: 0,
        rounded_stride: 0,
        first_cta: u32::MAX,
        reserved: 0,
    };
}

param_struct! {
    /// Parameters of `adam` and `check_finite`.
    pub struct AdamParams {
        /// The model's parameters in the order of their CTAs, then [`AdamParameter::NONE`].
        pub parameters: [AdamParameter; PARAMETERS_PER_LAUNCH],
        /// Words of the optimiser's state: see [`state`].
        pub state: DevicePtr<u32>,
        /// Learning rate.
        pub learning_rate: f32,
        /// Decay of the first moment.
        pub beta1: f32,
        /// Decay of the second moment.
        pub beta2: f32,
        /// Added to the root of the second moment.
        pub epsilon: f32,
        /// L2 penalty.
        pub weight_decay: f32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of `end_step`: one thread.
    pub struct EndStepParams {
        /// Words of the optimiser's state: see [`state`].
        pub state: DevicePtr<u32>,
        /// Steps without overflow after which the loss scale doubles; 0 for never.
        pub growth_interval: u32,
        /// The loss scale never exceeds this.
        pub maximum: f32,
    }
}

/// Words of the optimiser's state.
pub mod state {
    /// Bits of the loss scale.
    pub const LOSS_SCALE: usize = 0;
    /// Steps that were taken.
    pub const STEPS: usize = 1;
    /// Steps that were skipped for an overflow.
    pub const SKIPPED: usize = 2;
    /// Steps since the loss scale changed.
    pub const SINCE_CHANGE: usize = 3;
    /// Not zero where a gradient of this step holds an infinity or a NaN.
    pub const OVERFLOW: usize = 4;
    /// Steps that were taken or skipped, which tells the dropout of one from that of the next.
    pub const ATTEMPTS: usize = 5;
    /// Number of words.
    pub const WORDS: usize = 6;

    /// The words after a step: an overflow halves the loss scale, down to the smallest normal float; `growth_interval`
    /// steps without one double it, up to `maximum`, and never where that is 0.
    #[inline]
    pub const fn end_step(
        mut words: [u32; WORDS],
        growth_interval: u32,
        maximum: f32,
    ) -> [u32; WORDS] {
        let scale = f32::from_bits(words[LOSS_SCALE]);
        words[ATTEMPTS] = words[ATTEMPTS].wrapping_add(1);
        if words[OVERFLOW] != 0 {
            words[OVERFLOW] = 0;
            words[SKIPPED] = words[SKIPPED].saturating_add(1);
            words[SINCE_CHANGE] = 0;
            let halved = scale * 0.5;
            // Never zero, by which no gradient could be divided again, nor so small that its reciprocal is infinite.
            words[LOSS_SCALE] = if halved > f32::MIN_POSITIVE {
                halved
            } else {
                f32::MIN_POSITIVE
            }
            .to_bits();
        } else {
            words[STEPS] = words[STEPS].saturating_add(1);
            words[SINCE_CHANGE] = words[SINCE_CHANGE].saturating_add(1);
            if words[SINCE_CHANGE] == growth_interval {
                words[SINCE_CHANGE] = 0;
                let doubled = scale * 2.0;
                words[LOSS_SCALE] = if doubled < maximum { doubled } else { maximum }.to_bits();
            }
        }
        words
    }
}

/// One step of Adam for one weight, as PyTorch's `Adam` takes it: constants of the step, then [`AdamStep::update`].
#[derive(Clone, Copy, Debug)]
pub struct AdamStep {
    unscale: f32,
    step_size: f32,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    weight_decay: f32,
    root_correction: f32,
}

impl AdamStep {
    /// The step after `steps` others. `sqrt` is the correctly rounded square root, which `core` has no name for.
    #[inline]
    pub fn new(
        [learning_rate, beta1, beta2, epsilon, weight_decay]: [f32; 5],
        loss_scale: f32,
        steps: u32,
        sqrt: impl Fn(f32) -> f32,
    ) -> Self {
        let t = steps.saturating_add(1);
        Self {
            unscale: 1.0 / loss_scale,
            step_size: learning_rate / crate::math::bias_correction(beta1, t),
            beta1,
            beta2,
            epsilon,
            weight_decay,
            root_correction: sqrt(crate::math::bias_correction(beta2, t)),
        }
    }

    /// `[weight, first moment, second moment]` after the step.
    #[inline]
    pub fn update(
        &self,
        [weight, m, v]: [f32; 3],
        gradient: f32,
        sqrt: impl Fn(f32) -> f32,
    ) -> [f32; 3] {
        let g = gradient * self.unscale + self.weight_decay * weight;
        let m = self.beta1 * m + (1.0 - self.beta1) * g;
        let v = self.beta2 * v + (1.0 - self.beta2) * g * g;
        [
            weight - self.step_size * m / (sqrt(v) / self.root_correction + self.epsilon),
            m,
            v,
        ]
    }
}

/// CTAs of `adam` or `check_finite` for a parameter: a thread for each of its float vectors.
pub const fn optimizer_ctas(rows: u64, vectors: u32) -> u64 {
    rows.saturating_mul(vectors as u64)
        .div_ceil(THREADS_PER_CTA as u64)
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! optimizer_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Adam, and the copy of the weights that kernels read, if any.
                adam(AdamParams): F16 = adam_f16, F32 = adam_f32, BF16 = adam_bf16;
            }
            plain {
                /// The overflow flag.
                check_finite(AdamParams);
                /// The loss scale and the count of steps.
                end_step(EndStepParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[optimizer_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_scale_follows_overflows() {
        let start = [8.0f32.to_bits(), 0, 0, 0, 0, 0];
        let once = state::end_step(start, 2, 16.0);
        assert_eq!(once, [8.0f32.to_bits(), 1, 0, 1, 0, 1]);
        let twice = state::end_step(once, 2, 16.0);
        assert_eq!(twice, [16.0f32.to_bits(), 2, 0, 0, 0, 2]);
        let capped = state::end_step(state::end_step(twice, 2, 16.0), 2, 16.0);
        assert_eq!(capped, [16.0f32.to_bits(), 4, 0, 0, 0, 4]);
        let mut overflowed = capped;
        overflowed[state::OVERFLOW] = 1;
        assert_eq!(
            state::end_step(overflowed, 2, 16.0),
            [8.0f32.to_bits(), 4, 1, 0, 0, 5]
        );
    }

    #[test]
    fn the_loss_scale_stays_positive() {
        let mut words = [1.0f32.to_bits(), 0, 0, 0, 0, 0];
        for _ in 0..1000 {
            words[state::OVERFLOW] = 1;
            words = state::end_step(words, 1, 16.0);
        }
        let scale = f32::from_bits(words[state::LOSS_SCALE]);
        assert_eq!(scale, f32::MIN_POSITIVE);
        assert!((1.0 / scale).is_finite());
        words = state::end_step(words, 1, 16.0);
        assert_eq!(f32::from_bits(words[state::LOSS_SCALE]), 2.0 * scale);
    }

    #[test]
    fn an_interval_of_zero_keeps_the_loss_scale() {
        let mut words = [8.0f32.to_bits(), 0, 0, 0, 0, 0];
        for _ in 0..5 {
            words = state::end_step(words, 0, 16.0);
        }
        assert_eq!(words, [8.0f32.to_bits(), 5, 0, 5, 0, 5]);
        // Not even where the count ends.
        words[state::SINCE_CHANGE] = u32::MAX;
        assert_eq!(
            f32::from_bits(state::end_step(words, 0, 16.0)[state::LOSS_SCALE]),
            8.0
        );
    }
}
