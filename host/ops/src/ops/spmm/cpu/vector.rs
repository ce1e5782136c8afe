//! Discretized sums in float, and largest products, in vectors along the features: a batch's sums stay in registers
//! while its edges are walked.

use super::{BATCH_EDGES, Chunk, Operands, Plan, Summation, Weights};
use crate::backend::cpu::simd::{
    self, Floats, InPlace, LARGEST_FACTOR, Lanes, MOST_LANES, PlainSums, RowSums, ShrunkSums, Step,
    Total, WeightedSums, load, store, sweep,
};
use crate::ops::edge_plane;
use crate::tensor::Element;
use pulp::Simd;
use std::ops::Range;

/// Sums in vectors.
#[derive(Clone, Copy)]
pub(super) struct Vectors<L>(pub(super) L);

impl<E: Element, L: Lanes> Summation<E> for Vectors<L> {
    /// The weights of a chunk's edges.
    type Room = Vec<f32>;

    #[inline(always)]
    fn room(self, _: &Operands<'_, E>) -> Vec<f32> {
        Vec::new()
    }

    #[inline(always)]
    fn chunk(
        self,
        operands: &Operands<'_, E>,
        plan: Plan,
        chunk: Chunk,
        weights: &mut Vec<f32>,
        merged: &mut [f32],
    ) {
        merged.fill(0.0);
        self.sums(operands, plan, chunk, weights, InPlace(merged));
    }

    /// What is summed up does not leave the registers before it is complete.
    #[inline(always)]
    fn row(
        self,
        operands: &Operands<'_, E>,
        plan: Plan,
        chunk: Chunk,
        weights: &mut Vec<f32>,
        _: &mut [f32],
        y: &mut [E],
    ) {
        let complete = Complete(Finish::new(operands, chunk.row, y));
        self.sums(operands, plan, chunk, weights, complete);
    }

    #[inline(always)]
    fn largest(
        self,
        operands: &Operands<'_, E>,
        chunk: Chunk,
        weights: &mut Vec<f32>,
        merged: &mut [f32],
    ) {
        let Chunk { row, edges, factor } = chunk;
        let width = operands.width / operands.heads;
        let (x, stride) = operands.x.elements();
        merged.fill(f32::NEG_INFINITY);
        weights.resize(BATCH_EDGES, 0.0);
        let mut start = edges.start;
        while start < edges.end {
            let batch = start..edges.end.min(start + BATCH_EDGES);
            start = batch.end;
            let mut largest = Largest {
                x,
                stride,
                columns: &operands.columns[batch.clone()],
                weights: &mut weights[..batch.len()],
                merged: &mut *merged,
            };
            for head in 0..operands.heads {
                operands.weigh(self.0, row, batch.clone(), head, largest.weights);
                sweep(self.0, head * width, (head + 1) * width, &mut largest);
            }
        }
        for largest in merged {
            *largest *= factor;
        }
    }

    #[inline(always)]
    fn finish(
        self,
        operands: &Operands<'_, E>,
        row: usize,
        _: &mut Vec<f32>,
        merged: &mut [f32],
        y: &mut [E],
    ) {
        let mut finish = FinishMerged {
            finish: Finish::new(operands, row, y),
            merged,
        };
        sweep(self.0, 0, operands.width, &mut finish);
    }
}

impl<L: Lanes> Vectors<L> {
    /// Adds the scaled sum of a chunk to what `total` begins with.
    #[inline(always)]
    fn sums<E: Element, T: Total>(
        self,
        operands: &Operands<'_, E>,
        plan: Plan,
        chunk: Chunk,
        weights: &mut Vec<f32>,
        total: T,
    ) {
        let Chunk { row, edges, factor } = chunk;
        let (x, stride) = operands.x.elements();
        let sums = RowSums {
            x,
            stride,
            rows: &operands.columns[edges.start..],
            count: edges.len(),
            batch: BATCH_EDGES,
            factor,
            total,
        };
        if let Weights::Ones = operands.weights {
            if plan.shrinks && factor.abs() <= LARGEST_FACTOR {
                sweep(self.0, 0, operands.width, &mut ShrunkSums(PlainSums(sums)));
            } else {
                sweep(self.0, 0, operands.width, &mut PlainSums(sums));
            }
            return;
        }
        if weights.len() < edges.len() {
            weights.resize(edges.len(), 0.0);
        }
        let mut sums = WeightedSums { sums, weights };
        let width = operands.width / operands.heads;
        for head in 0..operands.heads {
            for start in edges.clone().step_by(BATCH_EDGES) {
                let batch = start..edges.end.min(start + BATCH_EDGES);
                let weights = &mut sums.weights[start - edges.start..][..batch.len()];
                operands.weigh(self.0, row, batch, head, weights);
            }
            sweep(self.0, head * width, (head + 1) * width, &mut sums);
        }
    }
}

impl<E: Element> Operands<'_, E> {
    /// The weights of a batch of a row's edges, for one head.
    #[inline(always)]
    fn weigh<L: Lanes>(
        &self,
        lanes: L,
        row: usize,
        batch: Range<usize>,
        head: usize,
        weights: &mut [f32],
    ) {
        let columns = &self.columns[batch.clone()];
        match &self.weights {
            Weights::Ones => weights.fill(1.0),
            Weights::Edges(values) => {
                let first = head * edge_plane(self.columns.len());
                simd::widen(
                    lanes,
                    &values[first + batch.start..first + batch.end],
                    weights,
                );
            }
            Weights::Columns(scale) => {
                for i in 0..columns.len() {
                    weights[i] = scale[columns[i] as usize];
                }
            }
            Weights::Attention(attention) => {
                attention.of_edges(batch.start, row, columns, head, weights)
            }
        }
    }
}

/// The largest products of the rows of `x` that are a batch's `columns`, and of what is in `merged`.
struct Largest<'a, E> {
    x: &'a [E],
    stride: usize,
    columns: &'a [u32],
    weights: &'a mut [f32],
    merged: &'a mut [f32],
}

impl<E: Element> Step for Largest<'_, E> {
    #[inline(always)]
    fn step<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize) {
        let simd = lanes.simd();
        for i in 0..N {
            let at = at + i * L::LANES;
            let mut largest = load(lanes, &self.merged[at..]);
            for edge in 0..self.columns.len() {
                let row = &self.x[self.columns[edge] as usize * self.stride + at..];
                let weight = simd.splat_f32s(self.weights[edge]);
                // Rounded as the product of two elements is.
                let mut product = [E::zeroed(); MOST_LANES];
                store(lanes, simd.mul_f32s(weight, load(lanes, row)), &mut product);
                let product = load(lanes, &product);
                let larger = simd.greater_than_f32s(product, largest);
                largest = simd.select_f32s(larger, product, largest);
                // A NaN is not equal to itself.
                let is_number = simd.equal_f32s(product, product);
                largest = simd.select_f32s(is_number, largest, product);
            }
            store(lanes, largest, &mut self.merged[at..]);
        }
    }
}

/// The floats from `at`, zero past the end: a row of floats may have less padding than one of halves.
#[inline(always)]
fn load_padded<L: Lanes>(lanes: L, floats: &[f32], at: usize) -> Floats<L> {
    if at + L::LANES <= floats.len() {
        return load(lanes, &floats[at..]);
    }
    let mut padded = lanes.simd().splat_f32s(0.0);
    let floats = floats.get(at..).unwrap_or_default();
    bytemuck::cast_slice_mut(std::slice::from_mut(&mut padded))[..floats.len()]
        .copy_from_slice(floats);
    padded
}

/// The epilogue of a row.
struct Finish<'a, E> {
    /// Its factor, and the row that is added.
    addend: Option<(f32, &'a [E])>,
    bias: Option<&'a [f32]>,
    relu: bool,
    /// The row of a ReLU's output.
    positive: Option<&'a [E]>,
    y: &'a mut [E],
}

impl<'a, E: Element> Finish<'a, E> {
    #[inline(always)]
    fn new(operands: &'a Operands<'_, E>, row: usize, y: &'a mut [E]) -> Self {
        let epilogue = &operands.epilogue;
        Self {
            addend: epilogue.addend.as_ref().map(|addend| {
                let values = &addend.values[row * addend.stride..][..operands.width];
                (addend.factor_of(row), values)
            }),
            bias: epilogue.bias.as_deref(),
            relu: epilogue.relu,
            positive: epilogue.positive_row(row, operands.width),
            y,
        }
    }

    /// Whether sums are only rounded.
    #[inline(always)]
    fn is_none(&self) -> bool {
        let sums = self.addend.is_none() && self.bias.is_none();
        sums && !self.relu && self.positive.is_none()
    }

    /// Writes the elements from `at` on, whose sums are `sum`.
    #[inline(always)]
    fn write<L: Lanes>(&mut self, lanes: L, at: usize, mut sum: Floats<L>) {
        let simd = lanes.simd();
        if let Some((factor, row)) = self.addend {
            let product = simd.mul_f32s(simd.splat_f32s(factor), load(lanes, &row[at..]));
            sum = simd.add_f32s(product, sum);
        }
        if let Some(bias) = self.bias {
            sum = simd.add_f32s(sum, load_padded(lanes, bias, at));
        }
        if self.relu {
            let zero = simd.splat_f32s(0.0);
            // Not `max`, which would make a zero of a NaN.
            sum = simd.select_f32s(simd.less_than_f32s(sum, zero), zero, sum);
        }
        if let Some(output) = self.positive {
            let zero = simd.splat_f32s(0.0);
            let output = load(lanes, &output[at..]);
            sum = simd.select_f32s(simd.less_than_f32s(zero, output), sum, zero);
        }
        store(lanes, sum, &mut self.y[at..]);
    }
}

/// A row that is complete when it has been summed up.
struct Complete<'a, E>(Finish<'a, E>);

impl<E: Element> Total for Complete<'_, E> {
    #[inline(always)]
    fn start<L: Lanes, const N: usize>(&self, lanes: L, _: usize) -> [Floats<L>; N] {
        [lanes.simd().splat_f32s(0.0); N]
    }

    #[inline(always)]
    fn finish<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize, sums: [Floats<L>; N]) {
        if self.0.is_none() {
            let y = &mut self.0.y[at..][..N * L::LANES];
            for (i, &sum) in sums.iter().enumerate() {
                store(lanes, sum, &mut y[i * L::LANES..]);
            }
            return;
        }
        for (i, &sum) in sums.iter().enumerate() {
            self.0.write(lanes, at + i * L::LANES, sum);
        }
    }
}

/// A row whose sums are `merged`.
struct FinishMerged<'a, E> {
    finish: Finish<'a, E>,
    merged: &'a [f32],
}

impl<E: Element> Step for FinishMerged<'_, E> {
    #[inline(always)]
    fn step<L: Lanes, const N: usize>(&mut self, lanes: L, at: usize) {
        for i in 0..N {
            let at = at + i * L::LANES;
            self.finish
                .write(lanes, at, load(lanes, &self.merged[at..]));
        }
    }
}
