//! What is made of the messages of a row.

use crate::device::float::max;
use crate::device::float::sqrt;
use crate::device::registers::unroll;
use crate::device::vector::{Floats, Vector};
use crate::edge_walk::{Part, Sum, Sums, both, map_sum};
use halfgnn_contract::math::exp_nonpositive;
use halfgnn_contract::reductions::{
    COLUMNS_OF_DEVIATIONS, COLUMNS_OF_MAXIMA, COLUMNS_OF_SOFTMAX, LEAST_VARIANCE,
    SUMS_OF_DEVIATIONS, SUMS_OF_MAXIMA, SUMS_OF_SOFTMAX,
};

/// A reduction of messages.
pub trait Reduction {
    /// Matrices of columns of the gradients of columns.
    const COLUMNS: usize;
    /// The part of a row.
    type Part<V: Vector, const R: usize>: ReductionPart<V, R>;
    /// Whether the gradient reads the largest message.
    const READS_LARGEST: bool;

    /// What the gradient of the message `m` is of the row's `d`, with the result `y` and the largest message.
    fn gradient(m: f32, d: f32, y: f32, largest: f32) -> f32;
}

/// A part of a row, message by message.
pub trait ReductionPart<V: Vector, const R: usize>: Part {
    /// With a message more.
    fn with_message(self, m: Sum<V, R>) -> Self;
    /// The result, the share of the gradient, and what else the gradient reads, of a row of `edges` edges.
    fn results(self, edges: f32) -> [Sum<V, R>; 3];
}

/// The largest message and sums that are in its terms.
#[derive(Clone, Copy)]
pub struct InTerms<V: Vector, const R: usize, const N: usize, K> {
    largest: Sum<V, R>,
    sums: [Sum<V, R>; N],
    kind: core::marker::PhantomData<K>,
}

/// How sums change with the largest message.
pub trait Terms: Copy {
    /// What sums in terms of `from` are multiplied by for `to`, which is not smaller.
    fn factor(from: f32, to: f32) -> f32;
}

impl<V: Vector, const R: usize, const N: usize, K: Terms> InTerms<V, R, N, K> {
    /// Of these.
    #[inline(always)]
    pub fn new(largest: Sum<V, R>, sums: [Sum<V, R>; N]) -> Self {
        Self {
            largest,
            sums,
            kind: core::marker::PhantomData,
        }
    }

    /// With another number in the place of each largest message.
    #[inline(always)]
    pub fn with_largest(mut self, f: impl Fn(f32) -> f32) -> Self {
        unroll!(load in 0..R => {
            self.largest[load] = self.largest[load].map(&f);
        });
        self
    }

    /// The same in terms of another largest message.
    #[inline(always)]
    fn rebased(mut self, largest: Sum<V, R>) -> Self {
        unroll!(load in 0..R => {
            let factors = self.largest[load].zip(largest[load], K::factor);
            unroll!(sum in 0..N => {
                self.sums[sum][load] = self.sums[sum][load].zip(factors, |sum, factor| sum * factor);
            });
        });
        self.largest = largest;
        self
    }
}

impl<V: Vector, const R: usize, const N: usize, K: Terms> Part for InTerms<V, R, N, K> {
    const FLOATS: usize = (1 + N) * R * V::WIDTH as usize;
    const EMPTY: Self = Self {
        largest: [V::Floats::LEAST; R],
        sums: [[V::Floats::ZERO; R]; N],
        kind: core::marker::PhantomData,
    };
    #[inline(always)]
    fn merge(self, other: Self) -> Self {
        let mut largest = self.largest;
        unroll!(load in 0..R => {
            largest[load] = largest[load].zip(other.largest[load], max);
        });
        let mut merged = self.rebased(largest);
        let other = other.rebased(largest);
        unroll!(sum in 0..N => {
            unroll!(load in 0..R => {
                merged.sums[sum][load] = merged.sums[sum][load].zip(other.sums[sum][load], |a, b| a + b);
            });
        });
        merged
    }
    #[inline(always)]
    fn map(mut self, mut f: impl FnMut(usize, f32) -> f32) -> Self {
        self.largest = map_sum::<V, R>(self.largest, 0, &mut f);
        unroll!(sum in 0..N => {
            let first = (1 + sum) * R * V::WIDTH as usize;
            self.sums[sum] = map_sum::<V, R>(self.sums[sum], first, &mut f);
        });
        self
    }
    #[inline(always)]
    fn aligned(self, mut largest: impl FnMut(f32) -> f32) -> Self {
        let largest = map_sum::<V, R>(self.largest, 0, &mut |_, value| largest(value));
        self.rebased(largest)
    }
    #[inline(always)]
    fn summed(mut self, mut f: impl FnMut(f32) -> f32) -> Self {
        unroll!(sum in 0..N => {
            self.sums[sum] = map_sum::<V, R>(self.sums[sum], 0, &mut |_, value| f(value));
        });
        self
    }
}

/// The largest message, and how many edges have it.
#[derive(Clone, Copy)]
pub struct Maxima;

impl Terms for Maxima {
    #[inline(always)]
    fn factor(from: f32, to: f32) -> f32 {
        if from == to { 1.0 } else { 0.0 }
    }
}

impl Reduction for Maxima {
    const COLUMNS: usize = COLUMNS_OF_MAXIMA as usize;
    type Part<V: Vector, const R: usize> = InTerms<V, R, { SUMS_OF_MAXIMA as usize }, Self>;
    const READS_LARGEST: bool = false;

    #[inline(always)]
    fn gradient(m: f32, d: f32, y: f32, _: f32) -> f32 {
        if m == y { d } else { 0.0 }
    }
}

impl<V: Vector, const R: usize> ReductionPart<V, R>
    for InTerms<V, R, { SUMS_OF_MAXIMA as usize }, Maxima>
{
    #[inline(always)]
    fn with_message(mut self, m: Sum<V, R>) -> Self {
        unroll!(load in 0..R => {
            let largest = self.largest[load].zip(m[load], max);
            let mut i = 0;
            while i < V::WIDTH as usize {
                let most = largest.get(i);
                let kept = if self.largest[load].get(i) == most { self.sums[0][load].get(i) } else { 0.0 };
                let count = kept + if m[load].get(i) == most { 1.0 } else { 0.0 };
                self.sums[0][load] = self.sums[0][load].with(i, count);
                i += 1;
            }
            self.largest[load] = largest;
        });
        self
    }
    #[inline(always)]
    fn results(self, _: f32) -> [Sum<V, R>; 3] {
        let mut share = self.sums[0];
        unroll!(load in 0..R => {
            share[load] = share[load].map(|count| 1.0 / count);
        });
        [self.largest, share, self.largest]
    }
}

/// The mean of the messages, weighted by their exponentials.
#[derive(Clone, Copy)]
pub struct Softmax;

impl Terms for Softmax {
    #[inline(always)]
    fn factor(from: f32, to: f32) -> f32 {
        // Two that are infinite differ by no number.
        if from == to {
            1.0
        } else {
            exp_nonpositive(from - to)
        }
    }
}

impl Reduction for Softmax {
    const COLUMNS: usize = COLUMNS_OF_SOFTMAX as usize;
    type Part<V: Vector, const R: usize> = InTerms<V, R, { SUMS_OF_SOFTMAX as usize }, Self>;
    const READS_LARGEST: bool = true;

    #[inline(always)]
    fn gradient(m: f32, d: f32, y: f32, largest: f32) -> f32 {
        Softmax::factor(m, largest) * d * (1.0 + (m - y))
    }
}

impl<V: Vector, const R: usize> ReductionPart<V, R>
    for InTerms<V, R, { SUMS_OF_SOFTMAX as usize }, Softmax>
{
    #[inline(always)]
    fn with_message(mut self, m: Sum<V, R>) -> Self {
        unroll!(load in 0..R => {
            let mut i = 0;
            while i < V::WIDTH as usize {
                let (before, m) = (self.largest[load].get(i), m[load].get(i));
                // One of both factors is 1.
                let is_largest = m > before;
                let [less, most] = if is_largest { [before, m] } else { [m, before] };
                let small = Softmax::factor(less, most);
                let [kept, weight] = if is_largest { [small, 1.0] } else { [1.0, small] };
                let [weights, weighted] = self.sums;
                let kept_sum = weighted[load].get(i) * kept;
                self.largest[load] = self.largest[load].with(i, max(before, m));
                self.sums[0][load] = weights[load].with(i, weights[load].get(i) * kept + weight);
                self.sums[1][load] = weighted[load].with(i, kept_sum + weight * m);
                i += 1;
            }
        });
        self
    }
    #[inline(always)]
    fn results(self, _: f32) -> [Sum<V, R>; 3] {
        let [weights, mut y] = self.sums;
        let mut share = weights;
        unroll!(load in 0..R => {
            share[load] = weights[load].map(|weights| 1.0 / weights);
            y[load] = y[load].zip(weights[load], |sum, weights| sum / weights);
        });
        [y, share, self.largest]
    }
}

/// The standard deviation of the messages.
#[derive(Clone, Copy)]
pub struct Deviations;

impl Reduction for Deviations {
    const COLUMNS: usize = COLUMNS_OF_DEVIATIONS as usize;
    type Part<V: Vector, const R: usize> = Sums<V, R, { SUMS_OF_DEVIATIONS as usize }>;
    const READS_LARGEST: bool = false;

    #[inline(always)]
    fn gradient(m: f32, d: f32, mean: f32, _: f32) -> f32 {
        d * (m - mean)
    }
}

impl<V: Vector, const R: usize> ReductionPart<V, R>
    for Sums<V, R, { SUMS_OF_DEVIATIONS as usize }>
{
    #[inline(always)]
    fn with_message(self, m: Sum<V, R>) -> Self {
        let Self([sum, squares]) = self;
        let mut squared = m;
        unroll!(load in 0..R => {
            squared[load] = m[load].map(|m| m * m);
        });
        Self([both::<V, R>(sum, m), both::<V, R>(squares, squared)])
    }
    #[inline(always)]
    fn results(self, edges: f32) -> [Sum<V, R>; 3] {
        let Self([mut mean, mut deviation]) = self;
        let mut share = mean;
        unroll!(load in 0..R => {
            mean[load] = mean[load].map(|sum| sum / edges);
            deviation[load] = deviation[load].zip(mean[load], |squares, mean| {
                let variance = squares / edges - mean * mean;
                // A NaN stays one.
                if variance <= LEAST_VARIANCE { 0.0 } else { sqrt(variance) }
            });
            share[load] = deviation[load].map(|deviation| {
                if deviation == 0.0 { 0.0 } else { 1.0 / (edges * deviation) }
            });
        });
        [deviation, share, mean]
    }
}
