//! Sums of rows, which stay in registers while the rows are walked: what an SpMM is made of, and a product with a matrix that
//! is mostly zeros.

use super::{Floats, Lanes, Step, load, store};
use crate::tensor::Element;
use pulp::Simd;

/// Sums of the `rows` of `x`, which are `stride` elements apart, multiplied by `factor` and added to `merged`.
pub(crate) struct RowSums<'a, E> {
    pub(crate) x: &'a [E],
    pub(crate) stride: usize,
    pub(crate) rows: &'a [u32],
    pub(crate) factor: f32,
    pub(crate) merged: &'a mut [f32],
}

impl<E: Element> RowSums<'_, E> {
    /// The `N` vectors from `at` of a row of `x`, as elements.
    #[inline(always)]
    fn row<L: Lanes, const N: usize>(&self, row: u32, at: usize) -> &[E] {
        &self.x[row as usize * self.stride + at..][..N * L::LANES]
    }

    #[inline(always)]
    fn merge<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize, sums: [Floats<L>; N]) {
        let simd = lanes.simd();
        let factor = simd.splat_f32s(self.factor);
        let merged = &mut self.merged[at..][..N * L::LANES];
        for i in 0..N {
            let merged = &mut merged[i * L::LANES..];
            let scaled = simd.mul_f32s(factor, sums[i]);
            store(lanes, simd.add_f32s(load(lanes, merged), scaled), merged);
        }
    }
}

/// Of weights that are all one.
pub(crate) struct PlainSums<'a, E>(pub(crate) RowSums<'a, E>);

impl<E: Element> Step for PlainSums<'_, E> {
    #[inline(always)]
    fn step<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize) {
        let simd = lanes.simd();
        let mut sums = [simd.splat_f32s(0.0); N];
        for &row in self.0.rows {
            let row = self.0.row::<L, N>(row, at);
            for i in 0..N {
                sums[i] = simd.add_f32s(sums[i], load(lanes, &row[i * L::LANES..]));
            }
        }
        self.0.merge(lanes, at, sums);
    }
}

/// Of a weight a row.
pub(crate) struct WeightedSums<'a, E> {
    pub(crate) sums: RowSums<'a, E>,
    pub(crate) weights: &'a mut [f32],
}

impl<E: Element> Step for WeightedSums<'_, E> {
    #[inline(always)]
    fn step<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize) {
        let simd = lanes.simd();
        let mut sums = [simd.splat_f32s(0.0); N];
        let (rows, weights) = (self.sums.rows, &self.weights[..self.sums.rows.len()]);
        for term in 0..rows.len() {
            let weight = simd.splat_f32s(weights[term]);
            let row = self.sums.row::<L, N>(rows[term], at);
            for i in 0..N {
                let product = simd.mul_f32s(weight, load(lanes, &row[i * L::LANES..]));
                sums[i] = simd.add_f32s(sums[i], product);
            }
        }
        self.sums.merge(lanes, at, sums);
    }
}
