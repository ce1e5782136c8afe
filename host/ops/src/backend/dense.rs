//! Dense operators: matrix products, what follows them element by element, and sums of columns.

use super::{Normalization, RandomState, Storage};
use crate::error::Error;
use crate::ops::{
    ActivateBackwardOperands, ActivateOperands, Checked, ColumnSumsOperands, MatmulOperands,
};
use crate::tensor::{Array, Element, Matrix};

/// Operators on dense matrices.
pub trait DenseOperators: Storage {
    /// `c = epilogue(a · b)` in one of three forms, accumulated in float and rounded once, and what is wanted beside it.
    ///
    /// # Errors
    /// Those of the device.
    fn matmul<E: Element, O: Element>(
        &self,
        operands: Checked<MatmulOperands<'_, Self, E, O>>,
    ) -> Result<(), Error>;

    /// `y = dropout(relu(x + bias))`, each part where `op` has it, element by element. `x` absent means in place.
    ///
    /// # Errors
    /// Those of the device.
    fn activate<E: Element>(
        &self,
        operands: Checked<ActivateOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// The gradient of [`DenseOperators::activate`] in place: `d` holds dL/dy and becomes dL/dx, times `row_scale` where it is
    /// given. `y` is the stored output, wanted where the activation has a ReLU.
    ///
    /// # Errors
    /// Those of the device.
    fn activate_backward<E: Element>(
        &self,
        operands: Checked<ActivateBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error>;

    /// `sums[0, c] = Σ_r x[r, c]` in float, in a fixed order.
    ///
    /// # Errors
    /// Those of the device.
    fn column_sums<E: Element>(
        &self,
        operands: Checked<ColumnSumsOperands<'_, Self, E>>,
    ) -> Result<(), Error>;
}

/// Which operand of a product is transposed. Sizes are those of the product: `c` is M × N, the sum runs over K.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// `a` is M × K, `b` is K × N: the forward product of a linear layer.
    NN,
    /// `a` is M × K, `b` is N × K: the gradient of its input.
    NT,
    /// `a` is K × M, `b` is K × N: the gradient of its weights.
    TN,
}

/// What becomes of the sums of a matrix product before they are rounded: `relu(alpha · row_scale[m] · sum + bias[n])`.
#[derive(Debug)]
pub struct Epilogue<'a, B: Storage> {
    /// Factor of everything.
    pub alpha: f32,
    /// Factor of each row of the result.
    pub row_scale: Option<&'a Array<B, f32>>,
    /// Added to each row: 1 × N.
    pub bias: Option<&'a Matrix<B, f32>>,
    /// Whether negative results become zero.
    pub relu: bool,
}

impl<B: Storage> Default for Epilogue<'_, B> {
    /// The sums as they are.
    fn default() -> Self {
        Self {
            alpha: 1.0,
            row_scale: None,
            bias: None,
            relu: false,
        }
    }
}

/// What a product does beside `c = epilogue(a · b)`, so that it takes no pass of its own over `a`, `b` or `c`.
#[derive(Debug)]
pub struct Beside<'a, B: Storage, O: Element> {
    /// The product is not of `a` but of what [`normalize`](crate::ops::normalize) would make of it: its columns are the
    /// features. Of [`Form::NN`] with a result of the type of `a`, and of [`Form::TN`] with one in float.
    pub normalization: Option<&'a Normalization<'a, B>>,
    /// The output of a ReLU, of the shape of `c`: where it holds no positive number `c` becomes zero. So `c` is the gradient
    /// of what the ReLU was given.
    pub positive: Option<&'a Matrix<B, O>>,
    /// Becomes the sums of the columns of `b`, in float and in a fixed order: 1 × columns of `b`. With [`Form::TN`], where `b`
    /// is the gradient of a layer's output, those are the gradient of its bias.
    pub column_sums: Option<&'a mut Matrix<B, f32>>,
}

impl<B: Storage, O: Element> Default for Beside<'_, B, O> {
    /// Nothing.
    fn default() -> Self {
        Self {
            normalization: None,
            positive: None,
            column_sums: None,
        }
    }
}

/// Dropout: which elements are kept is a function of seed, stream, step and the element's place alone, so that every
/// backend keeps the same.
#[derive(Debug)]
pub struct Dropout<'a, B: Storage> {
    /// Probability of an element to be dropped, in [0, 1).
    pub probability: f32,
    /// Tells the dropouts of one model apart.
    pub stream: u32,
    /// Seed and step: no two steps drop alike, and the forward and the backward pass of one do.
    pub random: &'a RandomState<B>,
}

impl<B: Storage> Clone for Dropout<'_, B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B: Storage> Copy for Dropout<'_, B> {}

/// Bias, ReLU and dropout, in this order.
#[derive(Debug)]
pub struct Activation<'a, B: Storage> {
    /// Added to each row: 1 × N.
    pub bias: Option<&'a Matrix<B, f32>>,
    /// Whether negative elements become zero.
    pub relu: bool,
    /// Which elements are dropped; the others are divided by `1 − probability`.
    pub dropout: Option<Dropout<'a, B>>,
}

impl<B: Storage> Activation<'_, B> {
    /// The factor of the gradient where the output is positive, if it is zero everywhere else: behind a ReLU.
    pub fn through(&self) -> Option<f32> {
        let kept = |dropout: Dropout<'_, B>| 1.0 / (1.0 - dropout.probability);
        self.relu.then(|| self.dropout.map_or(1.0, kept))
    }
}
