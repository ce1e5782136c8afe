//! Which loss: what a row counts, and what an element costs.

use crate::device::global::Global;
use halfgnn_contract::loss::{BinaryTerm, LossParams, binary_term};

/// How much a row counts in a cross-entropy.
pub trait RowWeight: Copy {
    /// The factor of rows of `class`.
    ///
    /// # Safety
    /// The launch contract of [`LossParams`].
    unsafe fn of(self, params: &LossParams, class: u32) -> f32;
}

/// All rows count the same.
#[derive(Clone, Copy, Default)]
pub struct Unweighted;

impl RowWeight for Unweighted {
    #[inline(always)]
    unsafe fn of(self, _params: &LossParams, _class: u32) -> f32 {
        1.0
    }
}

/// A row counts what its class does.
#[derive(Clone, Copy, Default)]
pub struct WeightedByClass;

impl RowWeight for WeightedByClass {
    #[inline(always)]
    unsafe fn of(self, params: &LossParams, class: u32) -> f32 {
        if class >= params.columns {
            return 0.0;
        }
        // SAFETY: the caller's promise; a weight for each column.
        unsafe { Global::<f32>::new(params.weights).at(class as u64).read() }
    }
}

/// What an element costs that should be another.
pub trait ElementLoss: Copy {
    /// Loss and derivative at `x`, which should be `target`.
    ///
    /// # Safety
    /// The launch contract of [`LossParams`]; `column` is one of them.
    unsafe fn of(self, params: &LossParams, column: u32, x: f32, target: f32) -> (f32, f32);
}

/// `-y · ln σ(x) - (1 - y) · ln(1 - σ(x))`.
#[derive(Clone, Copy, Default)]
pub struct BinaryCrossEntropy;

impl ElementLoss for BinaryCrossEntropy {
    #[inline(always)]
    unsafe fn of(self, _: &LossParams, _: u32, x: f32, target: f32) -> (f32, f32) {
        let BinaryTerm { loss, slope } = binary_term(x, target, 1.0);
        (loss, slope)
    }
}

/// [`BinaryCrossEntropy`] with the term of `y` times a weight of the column.
#[derive(Clone, Copy, Default)]
pub struct WeightedBinaryCrossEntropy;

impl ElementLoss for WeightedBinaryCrossEntropy {
    #[inline(always)]
    unsafe fn of(self, params: &LossParams, column: u32, x: f32, target: f32) -> (f32, f32) {
        // SAFETY: the caller's promise; a weight for each column.
        let weight = unsafe { Global::<f32>::new(params.weights).at(column as u64).read() };
        let BinaryTerm { loss, slope } = binary_term(x, target, weight);
        (loss, slope)
    }
}

/// `(x - y)²`.
#[derive(Clone, Copy, Default)]
pub struct SquaredError;

impl ElementLoss for SquaredError {
    #[inline(always)]
    unsafe fn of(self, _: &LossParams, _: u32, x: f32, target: f32) -> (f32, f32) {
        let off = x - target;
        (off * off, 2.0 * off)
    }
}

/// `|x - y|`, whose slope is 0 where they are equal.
#[derive(Clone, Copy, Default)]
pub struct AbsoluteError;

impl ElementLoss for AbsoluteError {
    #[inline(always)]
    unsafe fn of(self, _: &LossParams, _: u32, x: f32, target: f32) -> (f32, f32) {
        let off = x - target;
        let slope = if off > 0.0 {
            1.0
        } else if off < 0.0 {
            -1.0
        } else {
            // 0, or the NaN that one of them is.
            off
        };
        (off.abs(), slope)
    }
}
