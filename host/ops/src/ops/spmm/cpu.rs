//! SpMM row by row: the plain twin of the edge-parallel and the vertex-parallel kernels (HalfGNN §4.3).
//!
//! A row is summed up in the order of its edges. What rounds where is a question of the policy:
//!
//! | scaling | a batch of edges | merging the batches of a row |
//! |---|---|---|
//! | discretized | summed up in half or in float, then scaled in float | in float, rounded once |
//! | post-reduction | the whole row, in half, then scaled | |
//! | pre-reduction | the whole row, in half, of products that are scaled and rounded to half | |
//!
//! Float precision has no half to overflow: every policy is a sum in float that is scaled where the policy says so.
//!
//! Rows are shared out to threads, and a row longer than [`CHUNK_EDGES`] is cut into chunks of that length, whose sums
//! are added in their order. Chunks depend on the row alone, so that the result does not depend on the threads.

use super::attention::cpu as attention;
use super::{
    Accumulate, Aggregation, AttentionPairOperands, EdgeWeights, Scaling, SoftmaxGradient,
    SpmmOperands, SpmmOperators, SpmmPolicy,
};
use crate::backend::cpu::convert::{round, round_in_place, widen};
use crate::backend::cpu::view::{read, read_matrix, with_edges};
use crate::backend::cpu::{Cpu, Reading};
use crate::error::Error;
use crate::ops::{Checked, edge_plane};
use crate::tensor::{Element, Precision};
use half::f16;
use halfgnn_contract::attention::{leaky_relu_derivative, weight};
use halfgnn_contract::normalize::combine;
use halfgnn_contract::spmm::EDGES_PER_WARP;
use rayon::prelude::*;
use std::ops::Range;

/// Most edges of a batch: as many as a warp walks.
const BATCH_EDGES: usize = EDGES_PER_WARP as usize;

/// Edges of a long row that are one piece of work.
const CHUNK_EDGES: usize = 32 * BATCH_EDGES;

impl SpmmOperators for Cpu {
    fn spmm<E: Element>(&self, operands: Checked<SpmmOperands<'_, Self, E>>) -> Result<(), Error> {
        let SpmmOperands { a, op, x, y } = operands.into_inner();
        let (edge_weights, column_scale, by_attention);
        let mut heads = 1;
        let weights = match op.weights {
            EdgeWeights::Ones => Weights::Ones,
            EdgeWeights::Features(array) => {
                edge_weights = array.buffer.read();
                Weights::Edges(&edge_weights)
            }
            EdgeWeights::Planes {
                values,
                heads: planes,
            } => {
                edge_weights = values.buffer.read();
                heads = planes;
                Weights::Edges(&edge_weights)
            }
            EdgeWeights::Columns(array) => {
                column_scale = array.buffer.read();
                Weights::Columns(&column_scale)
            }
            EdgeWeights::Attention(of) => {
                by_attention = attention::Weights::new(of, a, false);
                heads = of.heads;
                Weights::Attention(&by_attention)
            }
        };
        let row_scale = read(op.row_scale);
        let operands = Operands {
            offsets: &a.offsets.buffer.read(),
            columns: &a.column_ids.buffer.read(),
            weights,
            heads,
            row_scale: row_scale.as_deref(),
            scale: op.scale,
            aggregation: op.aggregation,
            x: &x.buffer.read(),
            stride: x.stride(),
            epilogue: Epilogue {
                addend: op.epilogue.addend.map(|addend| {
                    let epsilon = addend.epsilon.map(|epsilon| epsilon.buffer.read()[0]);
                    Addend {
                        values: addend.matrix.buffer.read(),
                        stride: addend.matrix.stride(),
                        factor: epsilon
                            .map_or(addend.factor, |epsilon| addend.factor * (1.0 + epsilon)),
                        row_scale: read(addend.row_scale),
                    }
                }),
                bias: read_matrix(op.epilogue.bias),
                relu: op.epilogue.relu,
            },
        };
        spmm(&operands, op.policy, x.columns(), y.buffer.get_mut());
        Ok(())
    }

    fn attention_pair<E: Element>(
        &self,
        operands: Checked<AttentionPairOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let AttentionPairOperands { a, op, x } = operands.into_inner();
        let of = op.weights;
        for (positive_only, y) in [(false, op.all), (true, op.positive)] {
            let weights = attention::Weights::new(of, a, positive_only);
            let operands = Operands {
                offsets: &a.offsets.buffer.read(),
                columns: &a.column_ids.buffer.read(),
                weights: Weights::Attention(&weights),
                heads: of.heads,
                row_scale: None,
                scale: 1.0,
                aggregation: Aggregation::Sum,
                x: &x.buffer.read(),
                stride: x.stride(),
                epilogue: Epilogue::NONE,
            };
            spmm(&operands, op.policy, x.columns(), y.buffer.get_mut());
        }
        let Some(SoftmaxGradient { values, sums }) = op.softmax_gradient else {
            return Ok(());
        };
        let (statistics, values) = (of.statistics.buffer.read(), values.buffer.read());
        with_edges(a, |edges| {
            attention::with_scores(
                &of.scores(),
                attention::Planes::new(a, of.transposed),
                |scores| {
                    edges.for_rows(sums.buffer.get_mut(), |head, row| {
                        let term = |edge: usize| {
                            let column = edges.columns[edge] as usize;
                            let (sum, at) = scores.of(head, edge, row, column);
                            leaky_relu_derivative(sum, of.slope)
                                * weight(sum, of.slope, statistics[at])
                                * values[at]
                        };
                        edges.of_row(row).map(term).sum()
                    });
                },
            );
        });
        Ok(())
    }
}

/// Weights of the edges, as slices.
pub(super) enum Weights<'a, E> {
    Ones,
    /// One an edge, a plane a head.
    Edges(&'a [E]),
    Columns(&'a [f32]),
    Attention(&'a attention::Weights<'a>),
}

impl<E: Element> Weights<'_, E> {
    #[inline]
    fn of(&self, edge: usize, row: usize, column: usize, head: usize, plane: usize) -> f32 {
        match self {
            Weights::Ones => 1.0,
            Weights::Edges(values) => values[head * plane + edge].to_f32(),
            Weights::Columns(scale) => scale[column],
            Weights::Attention(attention) => attention.of(edge, row, column, head),
        }
    }
}

/// The operands of an SpMM but the output. `x` has rows of `stride` elements.
pub(super) struct Operands<'a, E> {
    pub(super) offsets: &'a [u64],
    pub(super) columns: &'a [u32],
    pub(super) weights: Weights<'a, E>,
    /// Parts of a row of `x`, each with weights of its own.
    pub(super) heads: usize,
    pub(super) row_scale: Option<&'a [f32]>,
    pub(super) scale: f32,
    pub(super) aggregation: Aggregation,
    pub(super) x: &'a [E],
    pub(super) stride: usize,
    pub(super) epilogue: Epilogue<'a, E>,
}

/// What becomes of the sum of a row before it is rounded.
pub(super) struct Epilogue<'a, E> {
    pub(super) addend: Option<Addend<'a, E>>,
    pub(super) bias: Option<Reading<'a, f32>>,
    pub(super) relu: bool,
}

impl<E> Epilogue<'_, E> {
    /// It is rounded as it is.
    pub(super) const NONE: Self = Self {
        addend: None,
        bias: None,
        relu: false,
    };
}

/// A matrix that is added, whose rows are `stride` elements apart, and its factors.
pub(super) struct Addend<'a, E> {
    pub(super) values: Reading<'a, E>,
    pub(super) stride: usize,
    pub(super) factor: f32,
    pub(super) row_scale: Option<Reading<'a, f32>>,
}

/// Writes the product to `y`, whose rows are `stride` elements apart and `features` long.
pub(super) fn spmm<E: Element>(
    operands: &Operands<'_, E>,
    policy: SpmmPolicy,
    features: usize,
    y: &mut [E],
) {
    if operands.stride == 0 {
        return;
    }
    let plan = Plan::of::<E>(policy);
    y.par_chunks_exact_mut(operands.stride)
        .enumerate()
        .for_each_init(
            || Scratch::new(operands.stride),
            |scratch, (row, y)| {
                operands.row(row, plan, scratch, y);
                // Infinite factors and NaN weights reach zeros that are not elements.
                y[features..].fill(E::zeroed());
            },
        );
}

/// A policy, and what it comes to in a precision.
#[derive(Clone, Copy)]
struct Plan {
    scaling: Scaling,
    in_half: bool,
}

impl Plan {
    fn of<E: Element>(policy: SpmmPolicy) -> Self {
        let SpmmPolicy {
            scaling,
            accumulate,
            ..
        } = policy;
        // Frameworks that scale before or after the sum add up in half; that is what these policies show.
        let in_half = scaling != Scaling::Discretized || accumulate == Accumulate::Half;
        Self {
            scaling,
            in_half: in_half && E::PRECISION == Precision::Half,
        }
    }

    /// Edges that are summed up before anything is scaled.
    fn batch(self) -> usize {
        match self.scaling {
            Scaling::Discretized => BATCH_EDGES,
            Scaling::PostReduction | Scaling::PreReduction => usize::MAX,
        }
    }

    /// Edges that are one piece of work. A sum in half that is not discretized has no pieces.
    fn chunk(self) -> usize {
        match self.scaling {
            Scaling::Discretized => CHUNK_EDGES,
            Scaling::PostReduction | Scaling::PreReduction => usize::MAX,
        }
    }
}

/// What a thread computes in: rows of floats.
struct Scratch {
    /// The present row of `x`.
    input: Vec<f32>,
    /// The sum of the present batch.
    batch: Vec<f32>,
    /// The sum of the batches before it, scaled.
    merged: Vec<f32>,
    halves: Vec<f16>,
}

impl Scratch {
    fn new(stride: usize) -> Self {
        Self {
            input: vec![0.0; stride],
            batch: vec![0.0; stride],
            merged: vec![0.0; stride],
            halves: vec![f16::ZERO; stride],
        }
    }
}

impl<E: Element> Operands<'_, E> {
    fn row(&self, row: usize, plan: Plan, scratch: &mut Scratch, y: &mut [E]) {
        let edges = self.offsets[row] as usize..self.offsets[row + 1] as usize;
        if edges.is_empty() {
            scratch.merged.fill(0.0);
            return self.finish(row, scratch, y);
        }
        let factor = self.row_scale.map_or(1.0, |scale| scale[row]) * self.scale;
        if self.aggregation == Aggregation::Max {
            return self.largest(row, edges, factor, scratch, y);
        }
        if edges.len() <= plan.chunk() {
            self.chunk(row, edges, factor, plan, scratch);
        } else {
            let starts = edges.clone().step_by(plan.chunk());
            let chunks: Vec<Vec<f32>> = starts
                .collect::<Vec<_>>()
                .into_par_iter()
                .map(|start| {
                    let mut scratch = Scratch::new(self.stride);
                    let end = edges.end.min(start + plan.chunk());
                    self.chunk(row, start..end, factor, plan, &mut scratch);
                    scratch.merged
                })
                .collect();
            scratch.merged.fill(0.0);
            for chunk in &chunks {
                add(&mut scratch.merged, chunk);
            }
        }
        self.finish(row, scratch, y);
    }

    /// Writes the row whose sum is `scratch.merged`.
    fn finish(&self, row: usize, scratch: &mut Scratch, y: &mut [E]) {
        let Scratch { merged, input, .. } = scratch;
        if let Some(addend) = &self.epilogue.addend {
            let factor = addend
                .row_scale
                .as_ref()
                .map_or(addend.factor, |scale| addend.factor * scale[row]);
            widen(&addend.values[row * addend.stride..][..self.stride], input);
            for (sum, value) in merged.iter_mut().zip(input) {
                *sum = combine(factor, *value, 1.0, *sum);
            }
        }
        if let Some(bias) = &self.epilogue.bias {
            add(merged, bias);
        }
        if self.epilogue.relu {
            for sum in merged.iter_mut() {
                // Not `max`, which would make a zero of a NaN.
                if *sum < 0.0 {
                    *sum = 0.0;
                }
            }
        }
        round(merged, y);
    }

    /// Leaves the scaled sum of `edges`, which are edges of `row`, in `scratch.merged`.
    fn chunk(
        &self,
        row: usize,
        edges: Range<usize>,
        factor: f32,
        plan: Plan,
        scratch: &mut Scratch,
    ) {
        scratch.merged.fill(0.0);
        let mut start = edges.start;
        while start < edges.end {
            let end = edges.end.min(start.saturating_add(plan.batch()));
            scratch.batch.fill(0.0);
            for edge in start..end {
                self.add_edge(row, edge, factor, plan, scratch);
            }
            let scale = match plan.scaling {
                Scaling::Discretized | Scaling::PostReduction => factor,
                Scaling::PreReduction => 1.0,
            };
            for (merged, batch) in scratch.merged.iter_mut().zip(&scratch.batch) {
                *merged += scale * batch;
            }
            start = end;
        }
    }

    /// The largest product of each column, NaN where one is, times the factor.
    fn largest(
        &self,
        row: usize,
        edges: Range<usize>,
        factor: f32,
        scratch: &mut Scratch,
        y: &mut [E],
    ) {
        let Scratch {
            input,
            batch,
            merged,
            ..
        } = &mut *scratch;
        batch.fill(f32::NEG_INFINITY);
        let plane = edge_plane(self.columns.len());
        for edge in edges {
            let column = self.columns[edge] as usize;
            widen(
                &self.x[column * self.stride..(column + 1) * self.stride],
                input,
            );
            for (head, (batch, input)) in batch
                .chunks_exact_mut(self.stride / self.heads)
                .zip(input.chunks_exact(self.stride / self.heads))
                .enumerate()
            {
                let weight = self.weights.of(edge, row, column, head, plane);
                for (largest, value) in batch.iter_mut().zip(input) {
                    // Rounded as the product of two elements is.
                    let value = E::from_f32(weight * value).to_f32();
                    if value > *largest || value.is_nan() {
                        *largest = value;
                    }
                }
            }
        }
        for (merged, largest) in merged.iter_mut().zip(batch) {
            *merged = *largest * factor;
        }
        self.finish(row, scratch, y);
    }

    /// Adds `w · x` of one edge to the batch.
    fn add_edge(&self, row: usize, edge: usize, factor: f32, plan: Plan, scratch: &mut Scratch) {
        let Scratch {
            input,
            batch,
            halves,
            ..
        } = scratch;
        let column = self.columns[edge] as usize;
        widen(
            &self.x[column * self.stride..(column + 1) * self.stride],
            input,
        );
        let width = self.stride / self.heads;
        let plane = edge_plane(self.columns.len());
        let weight = |head| self.weights.of(edge, row, column, head, plane);
        if plan.scaling == Scaling::PreReduction {
            for (head, part) in input.chunks_exact_mut(width).enumerate() {
                let weight = weight(head) * factor;
                part.iter_mut().for_each(|value| *value *= weight);
            }
            if plan.in_half {
                round_in_place(input, halves);
            }
            add(batch, input);
        } else if matches!(self.weights, Weights::Ones) {
            add(batch, input);
        } else {
            let parts = batch.chunks_exact_mut(width).zip(input.chunks_exact(width));
            for (head, (batch, input)) in parts.enumerate() {
                let weight = weight(head);
                for (sum, value) in batch.iter_mut().zip(input) {
                    *sum += weight * value;
                }
            }
        }
        if plan.in_half {
            // Float holds the sum of two halves, so this rounds as an addition in half does.
            round_in_place(batch, halves);
        }
    }
}

fn add(sums: &mut [f32], values: &[f32]) {
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}
