//! The gradient of additive attention's scores `Σ_f a[f] · LeakyReLU(u[i, f] + x[j, f])`, where a weight is the gradient of the score
//! of the edge from `j` to `i`: the LeakyReLU's derivative is computed again from the two rows, so that no row an edge is stored.

use super::policy::{Accumulate, Weights};
use super::sums::{Both, One, Sums};
use crate::device::float::mul_add;
use crate::device::global::Global;
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::VECTOR_BYTES;
use halfgnn_contract::attention::leaky_relu_derivative;
use halfgnn_contract::spmm::SpmmParams;

/// What a lane has of a row, beside its sums.
#[derive(Clone, Copy)]
pub struct Row<V: Vector> {
    /// Of `u[i]`.
    features: V,
    /// Of `a`.
    vector: V,
    slope: f32,
}

impl<V: Vector> Row<V> {
    #[inline(always)]
    fn zero() -> Self {
        Self {
            features: V::zero(),
            vector: V::zero(),
            slope: 0.0,
        }
    }

    /// # Safety
    /// As [`Accumulate::start`].
    #[inline(always)]
    unsafe fn load(params: &SpmmParams, row: u32, load: u32) -> Self {
        let rows = Global::<V::Bits>::new(params.row_features).at(load as u64);
        // SAFETY: the caller's promise: rows and vector are laid out as `x`, of which the lane has this load.
        unsafe {
            Self {
                features: V::from_bits(rows.row(row, params.x_stride * VECTOR_BYTES).read()),
                vector: V::from_bits(Global::<V::Bits>::new(params.vector).at(load as u64).read()),
                slope: params.attention.slope,
            }
        }
    }

    /// The sums with one more edge: of what the LeakyReLU is given, and where it is there of the vector.
    #[inline(always)]
    fn add(
        &self,
        (mut of_given, mut of_vector): (V::Floats, Option<V::Floats>),
        weight: u32,
        x: V,
    ) -> (V::Floats, Option<V::Floats>) {
        let (u, x, a) = (self.features.widen(), x.widen(), self.vector.widen());
        let mut i = 0;
        while i < V::WIDTH as usize {
            let given = u.get(i) + x.get(i);
            let d = leaky_relu_derivative(given, self.slope) * f32::from_bits(weight);
            of_given = of_given.with(i, mul_add(a.get(i), d, of_given.get(i)));
            of_vector = of_vector.map(|sum| sum.with(i, mul_add(given, d, sum.get(i))));
            i += 1;
        }
        (of_given, of_vector)
    }
}

/// The gradient of the rows.
pub struct Additive;

impl<V: Vector> Accumulate<V> for Additive {
    type Input = V;
    type Sum = (Row<V>, V::Floats);
    type Sums = One<V>;
    #[inline(always)]
    fn zero() -> Self::Sum {
        (Row::zero(), V::Floats::ZERO)
    }
    #[inline(always)]
    unsafe fn start(params: &SpmmParams, row: u32, load: u32) -> Self::Sum {
        // SAFETY: the caller's promise.
        (unsafe { Row::load(params, row, load) }, V::Floats::ZERO)
    }
    #[inline(always)]
    fn add(sum: Self::Sum, x: V) -> Self::Sum {
        <Self as Accumulate<V>>::add_weighted::<super::policy::EdgeFloats>(sum, 1.0f32.to_bits(), x)
    }
    #[inline(always)]
    fn add_weighted<W: Weights>((row, sum): Self::Sum, weight: u32, x: V) -> Self::Sum {
        const { assert!(W::IN_FLOAT, "gradients of scores are floats") };
        (row, row.add((sum, None), weight, x).0)
    }
    #[inline(always)]
    fn add_scaled<W: Weights>(sum: Self::Sum, weight: u32, scale: f32, x: V) -> Self::Sum {
        let weight = f32::from_bits(weight) * scale;
        <Self as Accumulate<V>>::add_weighted::<W>(sum, weight.to_bits(), x)
    }
    #[inline(always)]
    fn finish((_, sum): Self::Sum) -> One<V> {
        One(sum)
    }
}

/// The gradient of the rows, and that of the vector: what a row's edges have of it.
pub struct BothAdditive;

impl<V: Vector> Accumulate<V> for BothAdditive {
    type Input = V;
    type Sum = (Row<V>, Both<V>);
    type Sums = Both<V>;
    #[inline(always)]
    fn zero() -> Self::Sum {
        (Row::zero(), Sums::zero())
    }
    #[inline(always)]
    unsafe fn start(params: &SpmmParams, row: u32, load: u32) -> Self::Sum {
        // SAFETY: the caller's promise.
        (unsafe { Row::load(params, row, load) }, Sums::zero())
    }
    #[inline(always)]
    fn add(sum: Self::Sum, x: V) -> Self::Sum {
        <Self as Accumulate<V>>::add_weighted::<super::policy::EdgeFloats>(sum, 1.0f32.to_bits(), x)
    }
    #[inline(always)]
    fn add_weighted<W: Weights>((row, sum): Self::Sum, weight: u32, x: V) -> Self::Sum {
        const { assert!(W::IN_FLOAT, "gradients of scores are floats") };
        let sums = (sum.vector(0), Some(sum.vector(1)));
        let (of_given, of_vector) = row.add(sums, weight, x);
        let sum = sum.with_vector(0, of_given);
        (
            row,
            sum.with_vector(1, of_vector.unwrap_or(V::Floats::ZERO)),
        )
    }
    #[inline(always)]
    fn add_scaled<W: Weights>(sum: Self::Sum, weight: u32, scale: f32, x: V) -> Self::Sum {
        let weight = f32::from_bits(weight) * scale;
        <Self as Accumulate<V>>::add_weighted::<W>(sum, weight.to_bits(), x)
    }
    #[inline(always)]
    fn finish((_, sum): Self::Sum) -> Both<V> {
        sum
    }
}
