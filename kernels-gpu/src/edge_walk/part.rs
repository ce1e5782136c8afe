//! What a lane has of the sums of a row: vectors of floats.

use super::walk::of_groups;
use crate::device::float::mul_add;
use crate::device::registers::unroll;
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::edge_walk::EdgeWalk;

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

/// What a lane adds up of a row while it walks a chunk: a part, or what becomes one at the end.
pub trait Walked: Copy {
    /// What is staged, merged and written.
    type Part: Part;
    /// Of no edge.
    const NOTHING: Self;
    /// The part of all groups of the warp, in every one of them.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together.
    unsafe fn of_groups(self, walk: &EdgeWalk) -> Self::Part;
}

impl<T: Part> Walked for T {
    type Part = T;
    const NOTHING: T = T::EMPTY;
    #[inline(always)]
    unsafe fn of_groups(self, walk: &EdgeWalk) -> T {
        // SAFETY: the caller's promise.
        unsafe { of_groups(walk, self) }
    }
}

/// Each float of a sum replaced, of which the first has number `first`.
#[inline(always)]
pub fn map_sum<V: Vector, const R: usize>(
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
