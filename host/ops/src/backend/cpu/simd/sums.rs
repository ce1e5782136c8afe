//! Sums of rows, which stay in registers while the rows are walked: what an SpMM is made of, and a product with a
//! matrix that is mostly zeros.

use super::{Floats, GROWTH, Lanes, Step, load, read, write};
use crate::tensor::{Element, Precision};
use pulp::Simd;

/// Rows ahead of the present one that are asked for: more lie under way than a processor looks ahead by itself, since
/// most of what it holds of a row is the row's arithmetic.
const AHEAD: usize = 32;

/// Bytes that memory is moved in.
const LINE: usize = 64;

/// The sum of the first `count` of the `rows` of `x`, which are `stride` elements apart: batches of at most `batch` are
/// summed up, multiplied by `factor`, and added to what `total` begins with, in their order.
pub(crate) struct RowSums<'a, E, T> {
    pub(crate) x: &'a [E],
    pub(crate) stride: usize,
    /// Those that are summed up, and some that may be next.
    pub(crate) rows: &'a [u32],
    pub(crate) count: usize,
    pub(crate) batch: usize,
    pub(crate) factor: f32,
    pub(crate) total: T,
}

/// What batches are added to, and what becomes of it.
pub(crate) trait Total {
    /// The `N` vectors from element `at` on, before anything is added.
    fn start<L: Lanes, const N: usize>(&self, lanes: L, at: usize) -> [Floats<L>; N];

    /// Takes them, when all has been added.
    fn finish<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize, sums: [Floats<L>; N]);
}

/// Floats that are added to where they lie.
pub(crate) struct InPlace<'a>(pub(crate) &'a mut [f32]);

impl Total for InPlace<'_> {
    #[inline(always)]
    fn start<L: Lanes, const N: usize>(&self, lanes: L, at: usize) -> [Floats<L>; N] {
        let floats = &self.0[at..][..N * L::LANES];
        let mut sums = [lanes.simd().splat_f32s(0.0); N];
        for i in 0..N {
            sums[i] = read(&floats[i * L::LANES..]);
        }
        sums
    }

    #[inline(always)]
    fn finish<L: Lanes, const N: usize>(&mut self, _: L, at: usize, sums: [Floats<L>; N]) {
        let floats = &mut self.0[at..][..N * L::LANES];
        for i in 0..N {
            write(sums[i], &mut floats[i * L::LANES..]);
        }
    }
}

impl<E: Element, T: Total> RowSums<'_, E, T> {
    /// Walks the batches; `add` adds the `N` vectors from `at` of row `number` of `rows` to the sums of a batch, which
    /// `order` puts in the order of the elements.
    #[inline(always)]
    fn walk<L: Lanes, const N: usize>(
        &mut self,
        lanes: L,
        at: usize,
        add: impl Fn(usize, &[E], &mut [Floats<L>; N]),
        order: impl Fn(&mut [Floats<L>; N]),
    ) {
        let (simd, width) = (lanes.simd(), N * L::LANES);
        let (x, stride) = (self.x, self.stride);
        let mut total = self.total.start::<L, N>(lanes, at);
        let factor = simd.splat_f32s(self.factor);
        let rows = &self.rows[..self.count];
        let mut start = 0;
        while start < rows.len() {
            let batch = &rows[start..rows.len().min(start.saturating_add(self.batch))];
            let ahead = self.rows.get(start + AHEAD..).unwrap_or_default();
            let last = x.len().checked_sub(width).expect("rows of such a width");
            let mut sums = [simd.splat_f32s(0.0); N];
            for (i, &row) in batch.iter().enumerate() {
                if let Some(&next) = ahead.get(i) {
                    let next = x.as_ptr().wrapping_add(next as usize * stride + at);
                    for line in 0..(width * size_of::<E>()).div_ceil(LINE) {
                        lanes.prefetch(next.cast::<u8>().wrapping_add(line * LINE));
                    }
                }
                let first = row as usize * stride + at;
                assert!(first <= last, "a row of the matrix");
                // SAFETY: `first + width` is at most `x.len()`, by the assertion and what `last` is.
                let row = unsafe { x.get_unchecked(first..first + width) };
                add(start + i, row, &mut sums);
            }
            order(&mut sums);
            for i in 0..N {
                total[i] = simd.add_f32s(total[i], simd.mul_f32s(factor, sums[i]));
            }
            start += batch.len();
        }
        self.total.finish(lanes, at, total);
    }
}

/// Largest factor of batches of [`ShrunkSums`], whose product with [`GROWTH`] is a float yet.
pub(crate) const LARGEST_FACTOR: f32 = 16_384.0;

/// Of weights that are all one, a factor of at most [`LARGEST_FACTOR`], and halves that are all finite.
pub(crate) struct ShrunkSums<'a, E, T>(pub(crate) PlainSums<'a, E, T>);

impl<E: Element, T: Total> Step for ShrunkSums<'_, E, T> {
    #[inline(always)]
    fn step<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize) {
        let (simd, factor) = (lanes.simd(), self.0.0.factor);
        if !L::SHRINKS || !N.is_multiple_of(2) || E::PRECISION != Precision::Half {
            return self.0.step::<L, N>(lanes, at);
        }
        self.0.0.factor = factor * GROWTH;
        self.0.0.walk::<L, N>(
            lanes,
            at,
            #[inline(always)]
            |_, row, sums| {
                for i in 0..N / 2 {
                    let halves = &row[2 * i * L::LANES..][..2 * L::LANES];
                    let [even, odd] = lanes.shrink_halves(bytemuck::cast_slice(halves));
                    sums[2 * i] = simd.add_f32s(sums[2 * i], even);
                    sums[2 * i + 1] = simd.add_f32s(sums[2 * i + 1], odd);
                }
            },
            #[inline(always)]
            |sums| {
                for i in 0..N / 2 {
                    let [first, second] = lanes.interleave([sums[2 * i], sums[2 * i + 1]]);
                    (sums[2 * i], sums[2 * i + 1]) = (first, second);
                }
            },
        );
        self.0.0.factor = factor;
    }
}

/// Of weights that are all one.
pub(crate) struct PlainSums<'a, E, T>(pub(crate) RowSums<'a, E, T>);

impl<E: Element, T: Total> Step for PlainSums<'_, E, T> {
    #[inline(always)]
    fn step<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize) {
        let simd = lanes.simd();
        self.0.walk::<L, N>(
            lanes,
            at,
            #[inline(always)]
            |_, row, sums| {
                for i in 0..N {
                    sums[i] = simd.add_f32s(sums[i], load(lanes, &row[i * L::LANES..]));
                }
            },
            |_| (),
        );
    }
}

/// Of a weight a row.
pub(crate) struct WeightedSums<'a, E, T> {
    pub(crate) sums: RowSums<'a, E, T>,
    pub(crate) weights: &'a mut [f32],
}

impl<E: Element, T: Total> Step for WeightedSums<'_, E, T> {
    #[inline(always)]
    fn step<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize) {
        let simd = lanes.simd();
        let weights = &self.weights[..self.sums.count];
        self.sums.walk::<L, N>(
            lanes,
            at,
            #[inline(always)]
            |number, row, sums| {
                let weight = simd.splat_f32s(weights[number]);
                for i in 0..N {
                    let product = simd.mul_f32s(weight, load(lanes, &row[i * L::LANES..]));
                    sums[i] = simd.add_f32s(sums[i], product);
                }
            },
            |_| (),
        );
    }
}
