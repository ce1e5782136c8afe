//! The optimiser: overflow, clipping, the rules by which weights follow gradients, and the loss scale.
//!
//! The words "vector" and "padding" are those of [`crate::elementwise`], as are its rules on pointers.

use crate::elementwise::THREADS_PER_CTA;
use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Parameters of a model that one launch of an optimiser's kernel takes: most models take one launch each. They have to
/// fit the 4 KiB that a kernel's parameters may take.
pub const PARAMETERS_PER_LAUNCH: usize = 32;

const _: () = assert!(size_of::<OptimizerParams>() <= 4096);

param_struct! {
    /// A parameter of a model as the optimiser sees it: float matrices of one shape. Padding takes part: it is zero and
    /// stays so.
    pub struct OptimizerParameter {
        /// Gradient, times the loss scale.
        pub gradient: DevicePtr<f32>,
        /// Master weights. Like the moments and the copy, for the rules only.
        pub master: DevicePtr<f32>,
        /// First moment; null where `sgd` keeps no momentum.
        pub first_moment: DevicePtr<f32>,
        /// Second moment; `sgd` has none.
        pub second_moment: DevicePtr<f32>,
        /// Copy of the master weights, rounded to half by entries in `_f16` and as it is by those in `_f32`, or null for none.
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

impl OptimizerParameter {
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
    /// Parameters of the rules (`adam`, `adamw`, `sgd`), of `check_finite` and of `sum_squares`.
    pub struct OptimizerParams {
        /// The model's parameters in the order of their CTAs, then [`OptimizerParameter::NONE`].
        pub parameters: [OptimizerParameter; PARAMETERS_PER_LAUNCH],
        /// Words of the optimiser's state: see [`state`].
        pub state: DevicePtr<u32>,
        /// Factors of the step: see [`factors`]. For the rules only.
        pub factors: DevicePtr<f32>,
        /// A double for each CTA. For `sum_squares` only.
        pub partials: DevicePtr<u64>,
        /// Learning rate, which is multiplied by its factor.
        pub learning_rate: f32,
        /// Decay of the first moment; of `sgd` the momentum.
        pub beta1: f32,
        /// Decay of the second moment.
        pub beta2: f32,
        /// Added to the root of the second moment.
        pub epsilon: f32,
        /// Weight decay: an L2 penalty that is added to the gradient, but for `adamw`.
        pub weight_decay: f32,
        /// Elements of the gradient are taken to at most this size; infinity for as they are.
        pub clip_value: f32,
        /// Whether `sgd` looks ahead by Nesterov's momentum: 0 or 1.
        pub nesterov: u32,
        /// Zero.
        pub reserved: u32,
    }
}

param_struct! {
    /// Parameters of `clip_norm`: one CTA.
    pub struct ClipNormParams {
        /// Words of the optimiser's state: see [`state`].
        pub state: DevicePtr<u32>,
        /// Factors of the step: see [`factors`].
        pub factors: DevicePtr<f32>,
        /// What `sum_squares` has left, a double for each of its CTAs.
        pub partials: DevicePtr<u64>,
        /// How many there are.
        pub count: u64,
        /// The gradients of a larger norm are scaled down to this one.
        pub maximum: f32,
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

/// Factors of a step, which lie on the device so that a step that was recorded once follows them whenever it is replayed.
pub mod factors {
    /// Of the learning rate: what a schedule makes of it.
    pub const LEARNING_RATE: usize = 0;
    /// Of the gradients: what clipping their norm makes of them.
    pub const GRADIENT: usize = 1;
    /// Number of factors.
    pub const COUNT: usize = 2;
    /// Of a step that changes nothing.
    pub const ONE: [f32; COUNT] = [1.0; COUNT];
}

/// What all weights of a launch share.
#[derive(Clone, Copy, Debug)]
pub struct StepConstants {
    /// Learning rate.
    pub learning_rate: f32,
    /// Decay of the first moment, or the momentum.
    pub beta1: f32,
    /// Decay of the second moment.
    pub beta2: f32,
    /// Added to the root of the second moment.
    pub epsilon: f32,
    /// Weight decay.
    pub weight_decay: f32,
    /// Largest size of an element of the gradient.
    pub clip_value: f32,
    /// Whether momentum is Nesterov's.
    pub nesterov: bool,
    /// See [`factors`].
    pub factors: [f32; factors::COUNT],
    /// The loss scale.
    pub loss_scale: f32,
    /// Steps that were taken before.
    pub steps: u32,
}

impl StepConstants {
    #[inline]
    const fn rate(&self) -> f32 {
        self.learning_rate * self.factors[factors::LEARNING_RATE]
    }

    #[inline]
    const fn gradient_scale(&self) -> GradientScale {
        GradientScale {
            factor: 1.0 / self.loss_scale * self.factors[factors::GRADIENT],
            largest: self.clip_value,
        }
    }
}

/// What makes of an element of the stored gradient that of the loss, clipped.
#[derive(Clone, Copy, Debug)]
struct GradientScale {
    factor: f32,
    largest: f32,
}

impl GradientScale {
    #[inline]
    const fn apply(&self, gradient: f32) -> f32 {
        let gradient = gradient * self.factor;
        if gradient > self.largest {
            self.largest
        } else if gradient < -self.largest {
            -self.largest
        } else {
            gradient
        }
    }
}

/// How a weight follows its gradient.
pub trait Rule: Copy {
    /// Whether there are two moments. Else there is the first alone, or none.
    const MOMENTS: bool;

    /// The step that `constants` tell of. `sqrt` is the correctly rounded square root, which `core` has no name for.
    fn new(constants: &StepConstants, sqrt: impl Fn(f32) -> f32) -> Self;

    /// `[weight, first moment, second moment]` after the step. A moment that is not kept is zero before, and anything after.
    fn update(&self, before: [f32; 3], gradient: f32, sqrt: impl Fn(f32) -> f32) -> [f32; 3];
}

/// One step of Adam for one weight, as PyTorch's `Adam` takes it; where `DECOUPLED` as its `AdamW`, whose weight decay shrinks the
/// weight itself (Loshchilov and Hutter, ICLR 2019).
#[derive(Clone, Copy, Debug)]
pub struct AdamStep<const DECOUPLED: bool> {
    scale: GradientScale,
    step_size: f32,
    beta1: f32,
    beta2: f32,
    epsilon: f32,
    /// Added to the gradient, or what is left of the weight.
    decay: f32,
    root_correction: f32,
}

impl<const DECOUPLED: bool> Rule for AdamStep<DECOUPLED> {
    const MOMENTS: bool = true;

    #[inline]
    fn new(of: &StepConstants, sqrt: impl Fn(f32) -> f32) -> Self {
        let t = of.steps.saturating_add(1);
        Self {
            scale: of.gradient_scale(),
            step_size: of.rate() / crate::math::bias_correction(of.beta1, t),
            beta1: of.beta1,
            beta2: of.beta2,
            epsilon: of.epsilon,
            decay: match DECOUPLED {
                true => 1.0 - of.rate() * of.weight_decay,
                false => of.weight_decay,
            },
            root_correction: sqrt(crate::math::bias_correction(of.beta2, t)),
        }
    }

    #[inline]
    fn update(
        &self,
        [weight, m, v]: [f32; 3],
        gradient: f32,
        sqrt: impl Fn(f32) -> f32,
    ) -> [f32; 3] {
        let g = self.scale.apply(gradient);
        let (weight, g) = match DECOUPLED {
            true => (weight * self.decay, g),
            false => (weight, g + self.decay * weight),
        };
        let m = self.beta1 * m + (1.0 - self.beta1) * g;
        let v = self.beta2 * v + (1.0 - self.beta2) * g * g;
        [
            weight - self.step_size * m / (sqrt(v) / self.root_correction + self.epsilon),
            m,
            v,
        ]
    }
}

/// One step of stochastic gradient descent for one weight, as PyTorch's `SGD` takes it, without dampening. The momentum is the
/// first moment.
#[derive(Clone, Copy, Debug)]
pub struct SgdStep {
    scale: GradientScale,
    learning_rate: f32,
    momentum: f32,
    weight_decay: f32,
    nesterov: bool,
}

impl Rule for SgdStep {
    const MOMENTS: bool = false;

    #[inline]
    fn new(of: &StepConstants, _: impl Fn(f32) -> f32) -> Self {
        Self {
            scale: of.gradient_scale(),
            learning_rate: of.rate(),
            momentum: of.beta1,
            weight_decay: of.weight_decay,
            nesterov: of.nesterov,
        }
    }

    #[inline]
    fn update(&self, [weight, m, v]: [f32; 3], gradient: f32, _: impl Fn(f32) -> f32) -> [f32; 3] {
        let g = self.scale.apply(gradient) + self.weight_decay * weight;
        let m = self.momentum * m + g;
        let direction = match self.nesterov {
            true => g + self.momentum * m,
            false => m,
        };
        [weight - self.learning_rate * direction, m, v]
    }
}

/// The sum of the squares of a vector of a gradient, in double, where no square of a float overflows.
#[inline]
pub fn squares(gradient: [f32; 4]) -> f64 {
    let [a, b, c, d] = gradient.map(|g| g as f64 * g as f64);
    a + b + c + d
}

/// The sum of what the threads of a CTA have, in the order of the kernels: halves of a warp, then warp after warp.
#[inline]
pub fn sum_of_cta(mut threads: [f64; THREADS_PER_CTA as usize]) -> f64 {
    let mut sum = 0.0;
    for warp in threads.chunks_exact_mut(WARP as usize) {
        let mut distance = WARP as usize / 2;
        while distance > 0 {
            for lane in 0..distance {
                warp[lane] += warp[lane + distance];
            }
            distance /= 2;
        }
        sum += warp[0];
    }
    sum
}

/// The factor that takes gradients, whose squares and the loss scale's add up to `squares`, to a norm of at most `maximum`:
/// PyTorch's `clip_grad_norm_`. `sqrt` is the correctly rounded square root.
#[inline]
pub fn clip_factor(squares: f64, loss_scale: f32, maximum: f32, sqrt: impl Fn(f64) -> f64) -> f32 {
    let norm = (sqrt(squares) * (1.0 / loss_scale) as f64) as f32;
    let factor = maximum / (norm + 1e-6);
    if factor < 1.0 { factor } else { 1.0 }
}

/// Bytes of dynamic shared memory of `sum_squares` and `clip_norm`: a double for each warp.
pub const NORM_SHARED_BYTES: u32 = THREADS_PER_CTA / WARP * 8;

/// CTAs of an optimiser's kernel for a parameter: a thread for each of its float vectors.
#[inline]
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
                adam(OptimizerParams): F16 = adam_f16, F32 = adam_f32, BF16 = adam_bf16;
                /// Adam whose weight decay is decoupled from the gradient.
                adamw(OptimizerParams): F16 = adamw_f16, F32 = adamw_f32, BF16 = adamw_bf16;
                /// Stochastic gradient descent.
                sgd(OptimizerParams): F16 = sgd_f16, F32 = sgd_f32, BF16 = sgd_bf16;
            }
            plain {
                /// The overflow flag.
                check_finite(OptimizerParams);
                /// Partial sums of the squares of all gradients.
                sum_squares(OptimizerParams);
                /// What scales gradients down to a norm.
                clip_norm(ClipNormParams);
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

    #[test]
    fn norms_are_clipped_as_pytorch_clips_them() {
        let sqrt = |x: f64| x.sqrt();
        // torch.nn.utils.clip_grad_norm_: min(1, 1 / (5 + 1e-6)) of gradients (3, 4), here times a loss scale of 8.
        let squares = 64.0 * 25.0;
        assert_eq!(clip_factor(squares, 8.0, 1.0, sqrt), 1.0 / 5.000_001);
        assert_eq!(clip_factor(squares, 8.0, 6.0, sqrt), 1.0);
        assert_eq!(clip_factor(0.0, 8.0, 6.0, sqrt), 1.0);
        // No square overflows on the way.
        let huge = super::squares([f32::MAX; 4]);
        assert!(huge.is_finite());
        let factor = clip_factor(huge, f32::exp2(127.0), 1.0, sqrt);
        assert!((factor - 0.25).abs() < 1e-6, "{factor}");
    }

    #[test]
    fn a_cta_adds_up_all_of_its_threads() {
        let mut threads = [0.0; THREADS_PER_CTA as usize];
        for (i, thread) in threads.iter_mut().enumerate() {
            *thread = i as f64;
        }
        assert_eq!(sum_of_cta(threads), 127.0 * 64.0);
    }
}
