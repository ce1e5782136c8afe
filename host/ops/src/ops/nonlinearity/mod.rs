//! Activation functions other than a ReLU: `y = f(x + bias)`, and the gradient.

mod check;
mod cpu;
mod gpu;

use super::Checked;
use crate::backend::Storage;
use crate::error::Error;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::nonlinearity as contract;

/// An activation function other than a ReLU, which [`activate`](super::activate) and the epilogues have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Nonlinearity {
    /// `x` where it is positive, else `eˣ − 1` (Clevert et al., ICLR 2016).
    Elu,
    /// `x` where it is positive, else this multiple of it.
    LeakyRelu(f32),
    /// `x · Φ(x)` with the normal distribution (Hendrycks and Gimpel, 2016), as PyTorch's without an approximation.
    Gelu,
    /// The hyperbolic tangent.
    Tanh,
    /// +1 where `x` is zero or more, −0 included, else −1, as of NaN: the bits that [`binarize`](super::binarize)
    /// makes, as elements. Its gradient is the straight-through estimator's, that of the identity where `x` is in [−1,
    /// 1] and else zero (Hubara et al., NIPS 2016).
    Sign,
    /// `ln(1 + 1 / x)`, and 0 of what is not positive: the logarithm of a degree and one, of the degree's reciprocal.
    LogDegree,
    /// `1 / x`, and 0 of 0.
    Reciprocal,
}

impl Nonlinearity {
    /// Whether its gradient needs what it was given, and not what it gave.
    pub fn wants_input(self) -> bool {
        match self {
            // Below zero it comes back up: one output has two inputs.
            Nonlinearity::Gelu => true,
            // Of the sign alone the size is lost.
            Nonlinearity::Sign => true,
            // The slope of the input is a quotient, that of the output an exponential.
            Nonlinearity::LogDegree => true,
            // Of a slope that is not positive the sign is lost.
            Nonlinearity::LeakyRelu(slope) => slope <= 0.0,
            Nonlinearity::Elu | Nonlinearity::Tanh | Nonlinearity::Reciprocal => false,
        }
    }

    /// As the contract has it: the function and the slope.
    fn code(self) -> (u32, f32) {
        match self {
            Nonlinearity::Elu => (contract::ELU, 0.0),
            Nonlinearity::LeakyRelu(slope) => (contract::LEAKY_RELU, slope),
            Nonlinearity::Gelu => (contract::GELU, 0.0),
            Nonlinearity::Tanh => (contract::TANH, 0.0),
            Nonlinearity::Sign => (contract::SIGN, 0.0),
            Nonlinearity::LogDegree => (contract::LOG_DEGREE, 0.0),
            Nonlinearity::Reciprocal => (contract::RECIPROCAL, 0.0),
        }
    }
}

/// `y = f(x + bias)`, element by element, in float and rounded once; in place where `x` is absent.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn nonlinearity<B: NonlinearityOperators, E: Element>(
    backend: &B,
    function: Nonlinearity,
    bias: Option<&Matrix<B, f32>>,
    x: Option<&Matrix<B, E>>,
    y: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = NonlinearityOperands {
        function,
        bias,
        x,
        y,
    };
    backend.nonlinearity(Checked::new(operands)?)
}

/// The gradient of [`nonlinearity()`] in place: `d` holds dL/dy and becomes dL/dx. `of` is what the function gave or,
/// where it [needs](Nonlinearity::wants_input) that, what it was given, bias included.
///
/// # Errors
/// [`Error::Shape`] where the operands do not fit.
pub fn nonlinearity_backward<B: NonlinearityOperators, E: Element>(
    backend: &B,
    function: Nonlinearity,
    of: &Matrix<B, E>,
    d: &mut Matrix<B, E>,
) -> Result<(), Error> {
    let operands = NonlinearityBackwardOperands { function, of, d };
    backend.nonlinearity_backward(Checked::new(operands)?)
}

/// Operands of [`nonlinearity()`].
#[derive(Debug)]
pub struct NonlinearityOperands<'a, B: Storage, E: Element> {
    /// The function.
    pub function: Nonlinearity,
    /// Added to each row before: 1 × N.
    pub bias: Option<&'a Matrix<B, f32>>,
    /// The input; in place where absent.
    pub x: Option<&'a Matrix<B, E>>,
    /// Becomes the output.
    pub y: &'a mut Matrix<B, E>,
}

/// Operands of [`nonlinearity_backward`].
#[derive(Debug)]
pub struct NonlinearityBackwardOperands<'a, B: Storage, E: Element> {
    /// The function.
    pub function: Nonlinearity,
    /// What it gave, or was given.
    pub of: &'a Matrix<B, E>,
    /// The gradient, in place.
    pub d: &'a mut Matrix<B, E>,
}

/// Activation functions other than a ReLU.
pub trait NonlinearityOperators: Storage {
    /// `y = f(x + bias)`; `x` absent means in place.
    ///
    /// # Errors
    /// Those of the device.
    fn nonlinearity<E: Element>(
        &self,
        operands: Checked<NonlinearityOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of [`NonlinearityOperators::nonlinearity`] in place.
    ///
    /// # Errors
    /// Those of the device.
    fn nonlinearity_backward<E: Element>(
        &self,
        operands: Checked<NonlinearityBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}
