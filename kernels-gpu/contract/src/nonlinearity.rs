//! Activation functions other than a ReLU behind a bias, which [`crate::elementwise`] has: each written once, for the kernels
//! and for the CPU.
//!
//! The gradient is had from the output where that tells the slope, of ELU, leaky ReLU and tanh, and of GELU and the sign from the
//! input.

use crate::attention::{leaky_relu, leaky_relu_derivative};
use crate::format::table;
use crate::math::{exp, exp_m1, ln};
use crate::{DevicePtr, EntrySpec, HalfBits, param_struct};

/// `x` where it is positive, else `eˣ − 1` (Clevert et al., ICLR 2016).
pub const ELU: u32 = 0;
/// `x` where it is positive, else `slope · x`.
pub const LEAKY_RELU: u32 = 1;
/// `x · Φ(x)`, with the normal distribution itself and not its approximation by a tanh (Hendrycks and Gimpel, 2016).
pub const GELU: u32 = 2;
/// The hyperbolic tangent.
pub const TANH: u32 = 3;
/// +1 where `x` is zero or more, else −1, as of NaN; its derivative is that of the straight-through estimator, 1 where `x` is in
/// [−1, 1] (Hubara et al., NIPS 2016).
pub const SIGN: u32 = 4;
/// `ln(1 + 1 / x)`, and 0 of what is not positive: the logarithm of a degree and one, of the degree's reciprocal.
pub const LOG_DEGREE: u32 = 5;
/// `1 / x`, and 0 of 0.
pub const RECIPROCAL: u32 = 6;

param_struct! {
    /// Parameters of `nonlinearity` and `nonlinearity_backward`; threads, rows and vectors are those of
    /// [`ActivateParams`](crate::elementwise::ActivateParams).
    ///
    /// - `nonlinearity`: `y = f(x + bias)`; `x` and `y` may be the same.
    /// - `nonlinearity_backward`: `y` holds the gradient of the output and becomes that of the input; `x` is what the function
    ///   gave, of [`GELU`], [`SIGN`] and [`LOG_DEGREE`] what it was given.
    pub struct NonlinearityParams {
        /// Input, or what tells the slope.
        pub x: DevicePtr<HalfBits>,
        /// Output, or gradient.
        pub y: DevicePtr<HalfBits>,
        /// A number for each column, or null; padded as [`ActivateParams::bias`](crate::elementwise::ActivateParams::bias) is.
        /// `nonlinearity_backward` does not use it.
        pub bias: DevicePtr<f32>,
        /// Rows.
        pub rows: u64,
        /// Rows of a CTA.
        pub rows_per_cta: u32,
        /// Columns, padding not counted.
        pub columns: u32,
        /// Distance of two rows in 16-byte vectors.
        pub vectors: u32,
        /// [`ELU`], [`LEAKY_RELU`], [`GELU`], [`TANH`], [`SIGN`], [`LOG_DEGREE`] or [`RECIPROCAL`].
        pub function: u32,
        /// Slope below zero of [`LEAKY_RELU`].
        pub slope: f32,
        /// [`reciprocal`](crate::elementwise::reciprocal) of `vectors`.
        pub reciprocal: u32,
    }
}

/// tanh x within 4 ulp.
#[inline]
const fn tanh(x: f32) -> f32 {
    let size = if x < 0.0 { -x } else { x };
    let m = exp_m1(-2.0 * size);
    // Not `-m`: of zero this is zero, without a sign.
    let y = (0.0 - m) / (m + 2.0);
    if x < 0.0 { -y } else { y }
}

/// The normal distribution within 10⁻⁷ (Abramowitz and Stegun, 7.1.26).
#[inline]
const fn normal_cdf(x: f32) -> f32 {
    let size = if x < 0.0 { -x } else { x } * core::f32::consts::FRAC_1_SQRT_2;
    let t = 1.0 / (1.0 + 0.327_591_1 * size);
    let p = 1.061_405_4;
    let p = p * t - 1.453_152_1;
    let p = p * t + 1.421_413_8;
    let p = p * t - 0.284_496_72;
    let p = p * t + 0.254_829_6;
    let tail = 0.5 * p * t * exp(-(size * size));
    if x < 0.0 { tail } else { 1.0 - tail }
}

/// The function of `x`. A NaN stays one.
#[inline]
pub const fn apply(function: u32, slope: f32, x: f32) -> f32 {
    match function {
        ELU => {
            if x > 0.0 {
                x
            } else {
                exp_m1(x)
            }
        }
        LEAKY_RELU => leaky_relu(x, slope),
        // Of an infinity the other factor is zero.
        GELU => {
            if x < -40.0 {
                0.0
            } else {
                x * normal_cdf(x)
            }
        }
        SIGN => {
            if x >= 0.0 {
                1.0
            } else {
                -1.0
            }
        }
        LOG_DEGREE => {
            if x <= 0.0 {
                0.0
            } else {
                ln(1.0 + 1.0 / x)
            }
        }
        RECIPROCAL => {
            if x == 0.0 {
                0.0
            } else {
                1.0 / x
            }
        }
        _ => tanh(x),
    }
}

/// Its derivative: of [`GELU`], [`SIGN`] and [`LOG_DEGREE`] where it was given `x`, of the others where it gave `x`.
#[inline]
pub const fn derivative(function: u32, slope: f32, x: f32) -> f32 {
    match function {
        ELU => {
            if x > 0.0 {
                1.0
            } else {
                1.0 + x
            }
        }
        LEAKY_RELU => leaky_relu_derivative(x, slope),
        GELU => {
            const FRAC_1_SQRT_2PI: f32 = 0.398_942_3;
            let within = if x < -40.0 {
                -40.0
            } else if x > 40.0 {
                40.0
            } else {
                x
            };
            normal_cdf(within) + within * FRAC_1_SQRT_2PI * exp(-0.5 * within * within)
        }
        SIGN => {
            if x >= -1.0 && x <= 1.0 {
                1.0
            } else {
                0.0
            }
        }
        LOG_DEGREE => {
            if x <= 0.0 {
                0.0
            } else {
                -1.0 / (x * (1.0 + x))
            }
        }
        RECIPROCAL => -x * x,
        _ => 1.0 - x * x,
    }
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! nonlinearity_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Bias and an activation function.
                nonlinearity(NonlinearityParams): F16 = nonlinearity_f16, F32 = nonlinearity_f32, BF16 = nonlinearity_bf16;
                /// The gradient of `nonlinearity`.
                nonlinearity_backward(NonlinearityParams): F16 = nonlinearity_backward_f16, F32 = nonlinearity_backward_f32, BF16 = nonlinearity_backward_bf16;
            }
            plain {
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[nonlinearity_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    /// Φ by its series, in double.
    fn phi(x: f64) -> f64 {
        let (mut term, mut sum, mut n) = (x, x, 1.0);
        while term.abs() > 1e-18 {
            term *= x * x / (2.0 * n + 1.0);
            sum += term;
            n += 1.0;
        }
        0.5 + sum * (-0.5 * x * x).exp() / (2.0 * core::f64::consts::PI).sqrt()
    }

    #[test]
    fn functions_and_their_slopes_are_those_of_double() {
        for step in -160..=160 {
            let x = step as f32 / 32.0 + 0.001;
            let wide = f64::from(x);
            let density = (-0.5 * wide * wide).exp() / (2.0 * core::f64::consts::PI).sqrt();
            let elu = if x > 0.0 { wide } else { wide.exp_m1() };
            let leaky = if x > 0.0 { wide } else { 0.1 * wide };
            let expected = [
                (ELU, elu, if x > 0.0 { 1.0 } else { wide.exp() }),
                (LEAKY_RELU, leaky, if x > 0.0 { 1.0 } else { 0.1 }),
                (GELU, wide * phi(wide), phi(wide) + wide * density),
                (TANH, wide.tanh(), 1.0 - wide.tanh().powi(2)),
            ];
            for (function, value, slope) in expected {
                let y = apply(function, 0.1, x);
                assert!((f64::from(y) - value).abs() < 6e-7, "{function}({x}): {y}");
                let of = if function == GELU { x } else { y };
                let found = f64::from(derivative(function, 0.1, of));
                assert!((found - slope).abs() < 1e-6, "{function}'({x}): {found}");
            }
            let y = apply(RECIPROCAL, 0.0, x);
            assert_eq!((y, derivative(RECIPROCAL, 0.0, y)), (1.0 / x, -y * y));
            let (y, slope) = (apply(LOG_DEGREE, 0.0, x), derivative(LOG_DEGREE, 0.0, x));
            let expected = [(1.0 / wide).ln_1p(), -1.0 / (wide * (1.0 + wide))];
            let expected = expected.map(|it| if x > 0.0 { it } else { 0.0 });
            for (found, expected) in [y, slope].into_iter().zip(expected) {
                let off = (f64::from(found) - expected).abs();
                assert!(
                    off <= 1e-6 * expected.abs().max(1.0),
                    "{x}: {found} {expected}"
                );
            }
        }
    }

    #[test]
    fn far_out_and_no_number() {
        for function in [ELU, LEAKY_RELU, GELU, TANH] {
            assert!(apply(function, 0.1, f32::NAN).is_nan());
            for x in [-1e30, -100.0, 0.0, 100.0, 1e30] {
                let y = apply(function, 0.1, x);
                let of = if function == GELU { x } else { y };
                assert!(y.is_finite() && derivative(function, 0.1, of).is_finite());
            }
        }
        let signs = [
            f32::NAN,
            f32::NEG_INFINITY,
            -1e-40,
            -0.0,
            0.0,
            1e-40,
            f32::INFINITY,
        ];
        let expected = [-1.0, -1.0, -1.0, 1.0, 1.0, 1.0, 1.0];
        assert_eq!(signs.map(|x| apply(SIGN, 0.1, x)), expected);
        let ends = [f32::NAN, -1.001, -1.0, -0.0, 1.0, 1.001, f32::INFINITY];
        let expected = [0.0, 0.0, 1.0, 1.0, 1.0, 0.0, 0.0];
        assert_eq!(ends.map(|x| derivative(SIGN, 0.1, x)), expected);
        assert_eq!(apply(ELU, 0.1, -1e30), -1.0);
        assert_eq!([-1e30, 1e30].map(|x| apply(TANH, 0.1, x)), [-1.0, 1.0]);
        assert_eq!([-1e30, 100.0].map(|x| apply(GELU, 0.1, x)), [0.0, 100.0]);
    }
}
