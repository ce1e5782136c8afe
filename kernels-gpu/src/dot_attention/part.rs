//! What a lane has of the sums of a row: vectors of floats, and of the forward pass a running softmax.

use crate::device::float::mul_add;
use crate::device::registers::unroll;
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::math::exp2_by;

/// Sums of one output: the lane's vectors of a row.
pub type Sum<V, const R: usize> = [<V as Vector>::Floats; R];

/// `sum + weight · x`.
#[inline(always)]
pub fn add<V: Vector, const R: usize>(sum: Sum<V, R>, weight: f32, x: &[V; R]) -> Sum<V, R> {
    let mut sum = sum;
    unroll!(load in 0..R => {
        sum[load] = sum[load].zip(x[load].widen(), |sum, x| mul_add(weight, x, sum));
    });
    sum
}

/// `factor · sum`.
#[inline(always)]
pub fn scaled<V: Vector, const R: usize>(sum: Sum<V, R>, factor: f32) -> Sum<V, R> {
    let mut sum = sum;
    unroll!(load in 0..R => {
        sum[load] = sum[load].map(|value| value * factor);
    });
    sum
}

/// `a + b`.
#[inline(always)]
pub fn both<V: Vector, const R: usize>(a: Sum<V, R>, b: Sum<V, R>) -> Sum<V, R> {
    let mut sum = a;
    unroll!(load in 0..R => {
        sum[load] = a[load].zip(b[load], |a, b| a + b);
    });
    sum
}

/// A part of a row that can be merged with others, as floats one by one.
pub trait Part: Copy {
    /// Floats of it.
    const FLOATS: usize;
    /// Of no edge.
    const EMPTY: Self;
    /// Of the edges of both.
    fn merge(self, other: Self) -> Self;
    /// The same with each float replaced; `f` gets its number.
    fn map(self, f: impl FnMut(usize, f32) -> f32) -> Self;
    /// The part in terms of the largest score of all lanes that are merged, which `largest` finds.
    fn aligned(self, largest: impl FnMut(f32) -> f32) -> Self;
    /// Each sum of it replaced.
    fn summed(self, f: impl FnMut(f32) -> f32) -> Self;
}

/// Each float of a sum replaced, of which the first has number `first`.
#[inline(always)]
fn map_sum<V: Vector, const R: usize>(
    mut sum: Sum<V, R>,
    first: usize,
    f: &mut impl FnMut(usize, f32) -> f32,
) -> Sum<V, R> {
    unroll!(load in 0..R => {
        sum[load] = map_floats::<V>(sum[load], first + load * V::WIDTH as usize, f);
    });
    sum
}

#[inline(always)]
fn map_floats<V: Vector>(
    mut floats: V::Floats,
    first: usize,
    f: &mut impl FnMut(usize, f32) -> f32,
) -> V::Floats {
    let mut i = 0;
    while i < V::WIDTH as usize {
        floats = floats.with(i, f(first + i, floats.get(i)));
        i += 1;
    }
    floats
}

/// Sums of `N` outputs.
#[derive(Clone, Copy)]
pub struct Sums<V: Vector, const R: usize, const N: usize>(pub [Sum<V, R>; N]);

impl<V: Vector, const R: usize, const N: usize> Part for Sums<V, R, N> {
    const FLOATS: usize = N * R * V::WIDTH as usize;
    const EMPTY: Self = Self([[V::Floats::ZERO; R]; N]);
    #[inline(always)]
    fn merge(mut self, other: Self) -> Self {
        unroll!(output in 0..N => {
            self.0[output] = both::<V, R>(self.0[output], other.0[output]);
        });
        self
    }
    #[inline(always)]
    fn map(mut self, mut f: impl FnMut(usize, f32) -> f32) -> Self {
        unroll!(output in 0..N => {
            let first = output * R * V::WIDTH as usize;
            self.0[output] = map_sum::<V, R>(self.0[output], first, &mut f);
        });
        self
    }
    #[inline(always)]
    fn aligned(self, _: impl FnMut(f32) -> f32) -> Self {
        self
    }
    #[inline(always)]
    fn summed(self, mut f: impl FnMut(f32) -> f32) -> Self {
        self.map(|_, value| f(value))
    }
}

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
