//! The running softmax of a row.

use crate::device::float::mul_add;
use crate::device::vector::{Floats, Vector};
use crate::edge_walk::{Part, Sum, both, map_sum, scaled};
use halfgnn_contract::math::exp2_by;

/// A running softmax in base 2, and the weighted sum by it.
#[derive(Clone, Copy)]
pub struct Softmax<V: Vector, const R: usize> {
    /// A score that others exceed by at most [`SLACK`].
    pub m: f32,
    /// Sum of 2ˢ⁻ᵐ.
    pub z: f32,
    /// Sum of the rows, each multiplied by it.
    pub sum: Sum<V, R>,
}

/// How far a score may exceed `m` before the sums are scaled down: most rows then scale once. The powers stay below 2⁸.
const SLACK: f32 = 8.0;

/// 2ˣ.
#[inline(always)]
pub fn exp2(x: f32) -> f32 {
    exp2_by(x, mul_add)
}

impl<V: Vector, const R: usize> Softmax<V, R> {
    /// In terms of another score.
    #[inline(always)]
    fn rebased(self, m: f32) -> Self {
        let factor = exp2(self.m - m);
        Self {
            m,
            z: self.z * factor,
            sum: scaled::<V, R>(self.sum, factor),
        }
    }

    /// In terms that allow for `score`.
    #[inline(always)]
    pub fn before(self, score: f32) -> Self {
        if score > self.m + SLACK {
            self.rebased(score)
        } else {
            self
        }
    }
}

impl<V: Vector, const R: usize> Part for Softmax<V, R> {
    const FLOATS: usize = R * V::WIDTH as usize + 2;
    // The largest score is finite, so that two of them can be merged.
    const EMPTY: Self = Self {
        m: f32::MIN,
        z: 0.0,
        sum: [V::Floats::ZERO; R],
    };
    #[inline(always)]
    fn merge(self, other: Self) -> Self {
        let m = if other.m > self.m { other.m } else { self.m };
        let [own, other] = [self.rebased(m), other.rebased(m)];
        Self {
            m,
            z: own.z + other.z,
            sum: both::<V, R>(own.sum, other.sum),
        }
    }
    #[inline(always)]
    fn map(self, mut f: impl FnMut(usize, f32) -> f32) -> Self {
        let sum = map_sum::<V, R>(self.sum, 0, &mut f);
        let first = R * V::WIDTH as usize;
        Self {
            sum,
            m: f(first, self.m),
            z: f(first + 1, self.z),
        }
    }
    #[inline(always)]
    fn aligned(self, mut largest: impl FnMut(f32) -> f32) -> Self {
        self.rebased(largest(self.m))
    }
    #[inline(always)]
    fn summed(self, mut f: impl FnMut(f32) -> f32) -> Self {
        Self {
            m: self.m,
            z: f(self.z),
            sum: map_sum::<V, R>(self.sum, 0, &mut |_, value| f(value)),
        }
    }
}
