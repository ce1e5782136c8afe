//! Shadow operators (HalfGNN §4.4): a sub-warp a row.

use crate::attention::heads::{Item, for_items};
use crate::device::global::Global;
use crate::device::vector::{Float4, Floats, HalfVector8 as Half8, Vector};
use halfgnn_contract::math::{exp, ln};
use halfgnn_contract::shadow::ShadowParams;

entries! {
    /// Exponentials of halves.
    shadow_exp_f16(ShadowParams) = exponential::<Half8>;
    /// Exponentials of floats.
    shadow_exp_f32(ShadowParams) = exponential::<Float4>;
    /// Softmax of rows of halves.
    shadow_softmax_f16(ShadowParams) = softmax::<Half8, false>;
    /// Softmax of rows of floats.
    shadow_softmax_f32(ShadowParams) = softmax::<Float4, false>;
    /// Logarithm of the softmax of rows of halves.
    shadow_log_softmax_f16(ShadowParams) = softmax::<Half8, true>;
    /// Logarithm of the softmax of rows of floats.
    shadow_log_softmax_f32(ShadowParams) = softmax::<Float4, true>;
    /// Sums of rows of halves.
    shadow_sum_f16(ShadowParams) = sum::<Half8>;
    /// Sums of rows of floats.
    shadow_sum_f32(ShadowParams) = sum::<Float4>;
}

/// A row, and the matrix that it is of.
struct Row<'a> {
    params: &'a ShadowParams,
    item: &'a Item,
}

impl Row<'_> {
    /// Folds over the lane's elements, in order, then over the lanes.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together.
    #[inline(always)]
    unsafe fn fold<V: Vector>(
        &self,
        start: f32,
        f: impl Fn(f32, f32) -> f32,
        combine: impl Fn(f32, f32) -> f32,
    ) -> f32 {
        let columns = self.params.columns;
        // SAFETY: the caller's promise.
        unsafe {
            self.item.fold(
                start,
                |mut value, at, vector| {
                    let x = Global::<V::Bits>::new(self.params.x).at(at);
                    let x = V::from_bits(x.read()).widen();
                    let mut i = 0;
                    while i < V::WIDTH {
                        if vector as u32 * V::WIDTH + i < columns {
                            value = f(value, x.get(i as usize));
                        }
                        i += 1;
                    }
                    value
                },
                combine,
            )
        }
    }

    /// Writes `f(x)` for each element.
    ///
    /// # Safety
    /// The launch contract.
    #[inline(always)]
    unsafe fn map<V: Vector>(&self, f: impl Fn(f32) -> f32) {
        self.item.for_vectors(|at, vector| {
            // SAFETY: `at` is a vector of both matrices, the lane's own.
            unsafe {
                let x = V::from_bits(Global::<V::Bits>::new(self.params.x).at(at).read()).widen();
                let mut y = V::Floats::ZERO;
                let mut i = 0;
                while i < V::WIDTH {
                    if vector as u32 * V::WIDTH + i < self.params.columns {
                        y = y.with(i as usize, f(x.get(i as usize)));
                    }
                    i += 1;
                }
                Global::<V::Bits>::new(self.params.y)
                    .at(at)
                    .store(V::narrow(y).to_bits());
            }
        });
    }
}

/// # Safety
/// The launch contract of [`ShadowParams`].
#[inline(always)]
unsafe fn exponential<V: Vector>(params: &ShadowParams) {
    for_items(&params.rows, |item| {
        let row = Row {
            params,
            item: &item,
        };
        // SAFETY: the caller's promise.
        unsafe { row.map::<V>(exp) }
    });
}

/// # Safety
/// The launch contract of [`ShadowParams`].
#[inline(always)]
unsafe fn softmax<V: Vector, const LOG: bool>(params: &ShadowParams) {
    for_items(&params.rows, |item| {
        let row = Row {
            params,
            item: &item,
        };
        // SAFETY: the caller's promise; all lanes come here for each row.
        unsafe {
            let max = row.fold::<V>(f32::NEG_INFINITY, f32::max, f32::max);
            let sum = |sum, x| sum + exp(x - max);
            let sum = row.fold::<V>(0.0, sum, |a, b| a + b);
            if LOG {
                let ln = ln(sum);
                row.map::<V>(|x| x - max - ln);
            } else {
                row.map::<V>(|x| exp(x - max) / sum);
            }
        }
    });
}

/// # Safety
/// The launch contract of [`ShadowParams`].
#[inline(always)]
unsafe fn sum<V: Vector>(params: &ShadowParams) {
    for_items(&params.rows, |item| {
        let row = Row {
            params,
            item: &item,
        };
        // SAFETY: the caller's promise; all lanes come here for each row, of which the first writes the row's one vector.
        unsafe {
            let add = |a, b| a + b;
            let sum = row.fold::<V>(0.0, add, add);
            if item.writes() {
                let y = V::Floats::ZERO.with(0, sum * params.scale);
                Global::<V::Bits>::new(params.y)
                    .at(item.at)
                    .store(V::narrow(y).to_bits());
            }
        }
    });
}
