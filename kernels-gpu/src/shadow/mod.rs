//! Shadow operators (HalfGNN §4.4): a sub-warp a row.

use crate::device::global::Global;
use crate::device::vector::{Floats, Vector};
use crate::heads::{Item, for_items};
use halfgnn_contract::math::{exp, ln};
use halfgnn_contract::shadow::ShadowParams;

/// The functions that the entries are, by name.
pub mod family {
    pub use super::{exponential as shadow_exp, sum as shadow_sum};
    use crate::device::vector::Vector;
    use halfgnn_contract::shadow::ShadowParams;

    /// # Safety
    /// The launch contract of [`ShadowParams`].
    #[inline(always)]
    pub unsafe fn shadow_softmax<V: Vector>(params: &ShadowParams) {
        // SAFETY: the caller's promise.
        unsafe { super::softmax::<V, false>(params) }
    }

    /// # Safety
    /// The launch contract of [`ShadowParams`].
    #[inline(always)]
    pub unsafe fn shadow_log_softmax<V: Vector>(params: &ShadowParams) {
        // SAFETY: the caller's promise.
        unsafe { super::softmax::<V, true>(params) }
    }
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
pub unsafe fn exponential<V: Vector>(params: &ShadowParams) {
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
pub unsafe fn sum<V: Vector>(params: &ShadowParams) {
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
