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
//! Rows are shared out to threads so that each has as many edges, and a row longer than [`CHUNK_EDGES`] is cut into
//! chunks of that length, whose sums are added in their order. Chunks depend on the row alone, so that the result does
//! not depend on the threads.
//!
//! How the edges of a chunk are summed up is a [`Summation`]: [`plain`] element by element, for every policy, or
//! [`vector`] for discretized sums in float, which are those that are trained with, and for the largest. Both round in
//! the same places, in the same order. 8-bit values are summed up in the plain way alone.

mod plain;
mod vector;

use super::attention::cpu as attention;
use super::{
    Accumulate, Aggregation, AttentionPair, AttentionPairOperands, EdgeWeights,
    QuantizedAttentionPairOperands, QuantizedSpmmOperands, Scaling, SoftmaxGradient, Spmm,
    SpmmOperands, SpmmOperators, SpmmPolicy,
};
use crate::backend::Adjacency;
use crate::backend::cpu::convert::widen;
use crate::backend::cpu::simd::{Kernel, Lanes};
use crate::backend::cpu::view::{read, read_matrix, with_edges};
use crate::backend::cpu::{Cpu, Instructions, Reading};
use crate::error::Error;
use crate::ops::{Checked, QuantizedMatrix};
use crate::tensor::{Element, Matrix, Precision, padded};
use halfgnn_contract::attention::{leaky_relu_derivative, weight};
use halfgnn_contract::spmm::EDGES_PER_WARP;
use halfgnn_graph::parallel;
use std::ops::Range;

/// Most edges of a batch: as many as a warp walks.
const BATCH_EDGES: usize = EDGES_PER_WARP as usize;

/// Edges of a long row that are one piece of work.
const CHUNK_EDGES: usize = 32 * BATCH_EDGES;

/// Fewest edges for each row of `x` of which it is asked whether they are finite: less than a tenth of the time goes
/// into it then.
const EDGES_A_ROW: usize = 16;

/// Halves that are looked at as one piece of work.
const FINITE_AT_A_TIME: usize = 1 << 16;

impl SpmmOperators for Cpu {
    fn spmm<E: Element>(&self, operands: Checked<SpmmOperands<'_, Self, E>>) -> Result<(), Error> {
        let SpmmOperands { a, op, x, y } = operands.into_inner();
        let input = Input::Elements {
            elements: &x.buffer.read(),
            stride: x.stride(),
        };
        self.sum(a, op, input, y);
        Ok(())
    }

    fn quantized_spmm<E: Element>(
        &self,
        operands: Checked<QuantizedSpmmOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let QuantizedSpmmOperands { a, op, x, y } = operands.into_inner();
        with_codes(x, |codes| self.sum(a, op, codes, y));
        Ok(())
    }

    fn attention_pair<E: Element>(
        &self,
        operands: Checked<AttentionPairOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let AttentionPairOperands { a, op, x } = operands.into_inner();
        let elements = Input::Elements {
            elements: &x.buffer.read(),
            stride: x.stride(),
        };
        self.pair(a, op, elements, x.columns());
        Ok(())
    }

    fn quantized_attention_pair<E: Element>(
        &self,
        operands: Checked<QuantizedAttentionPairOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let QuantizedAttentionPairOperands { a, op, x } = operands.into_inner();
        with_codes(x, |codes| self.pair(a, op, codes, x.columns()));
        Ok(())
    }
}

/// Calls `work` with the rows of `x` as what is added up.
fn with_codes<E>(x: &QuantizedMatrix<Cpu>, work: impl FnOnce(Input<'_, E>)) {
    let (words, scales) = (x.codes.buffer.read(), x.scales.scales.buffer.read());
    let numbers = std::array::from_fn(|code| x.format().decode(code as u8));
    work(Input::Codes {
        codes: bytemuck::cast_slice(&words),
        stride: x.stride(),
        numbers: &numbers,
        scales: &scales,
    });
}

impl Cpu {
    /// The two sums of `x`, of a number of columns, that `op` asks for, and the third.
    fn pair<E: Element>(
        &self,
        a: &Adjacency<Self>,
        op: AttentionPair<'_, Self, E>,
        x: Input<'_, E>,
        columns: usize,
    ) {
        let of = op.weights;
        for (positive_only, y) in [(false, op.all), (true, op.positive)] {
            let weights = attention::Weights::new(of, a, positive_only);
            let operands = Operands {
                offsets: &a.row_offsets().buffer.read(),
                columns: &a.column_ids.buffer.read(),
                weights: Weights::Attention(&weights),
                heads: of.heads,
                row_scale: None,
                scale: 1.0,
                aggregation: Aggregation::Sum,
                x,
                width: padded::<E>(columns),
                epilogue: Epilogue::NONE,
            };
            let shape = (columns, y.stride());
            E::sum_rows(self, &operands, op.policy, shape, y.buffer.get_mut());
        }
        let Some(SoftmaxGradient { values, sums }) = op.softmax_gradient else {
            return;
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

/// What is added up.
#[derive(Clone, Copy)]
pub(super) enum Input<'a, E> {
    /// Elements, in rows of `stride`, which may be another than that of the output.
    Elements { elements: &'a [E], stride: usize },
    /// 8-bit values, in rows of `stride`; the number that each stands for; the scales of the columns.
    Codes {
        codes: &'a [u8],
        stride: usize,
        numbers: &'a [f32; 256],
        scales: &'a [f32],
    },
}

impl<E: Element> Input<'_, E> {
    /// Writes row `row` to `floats`, that of quantized values over the scales.
    fn row(&self, row: usize, floats: &mut [f32]) {
        match self {
            Input::Elements { elements, stride } => {
                widen(&elements[row * stride..][..floats.len()], floats)
            }
            Input::Codes {
                codes,
                stride,
                numbers,
                ..
            } => {
                let codes = &codes[row * stride..][..floats.len()];
                for (float, &code) in floats.iter_mut().zip(codes) {
                    *float = numbers[usize::from(code)];
                }
            }
        }
    }

    /// The elements, and how far apart their rows are; none of quantized values.
    #[inline(always)]
    fn elements(&self) -> (&[E], usize) {
        match self {
            Input::Elements { elements, stride } => (elements, *stride),
            Input::Codes { stride, .. } => (&[], *stride),
        }
    }
}

/// The operands of an SpMM but the output, which has rows of `width` elements, padding included.
pub struct Operands<'a, E> {
    pub(super) offsets: &'a [u64],
    pub(super) columns: &'a [u32],
    pub(super) weights: Weights<'a, E>,
    /// Parts of a row of `x`, each with weights of its own.
    pub(super) heads: usize,
    pub(super) row_scale: Option<&'a [f32]>,
    pub(super) scale: f32,
    pub(super) aggregation: Aggregation,
    pub(super) x: Input<'a, E>,
    pub(super) width: usize,
    pub(super) epilogue: Epilogue<'a, E>,
}

impl<E: Element> Operands<'_, E> {
    /// Whether all elements are finite halves, of which enough sums are made that it is worth looking.
    fn are_worth_shrinking(&self) -> bool {
        let Input::Elements { elements, stride } = self.x else {
            return false;
        };
        let is_sum_of_halves = E::PRECISION == Precision::Half
            && self.aggregation != Aggregation::Max
            && matches!(self.weights, Weights::Ones);
        if !is_sum_of_halves || elements.len() > self.columns.len() / EDGES_A_ROW * stride {
            return false;
        }
        let halves: &[u16] = bytemuck::cast_slice(elements);
        // Without a branch, so that it is done in vectors.
        let are_finite = |halves: &[u16]| {
            let finite = |all, half: &u16| all & (half & 0x7c00 != 0x7c00);
            halves.iter().fold(true, finite)
        };
        let pieces = parallel::chunks(halves, FINITE_AT_A_TIME);
        let finite = parallel::map(pieces, |_, piece| are_finite(piece));
        finite.into_iter().all(|finite| finite)
    }
}

/// What becomes of the sum of a row before it is rounded.
pub(super) struct Epilogue<'a, E> {
    pub(super) addend: Option<Addend<'a, E>>,
    pub(super) bias: Option<Reading<'a, f32>>,
    pub(super) relu: bool,
    /// The output of a ReLU, and the elements from one row of it to the next.
    pub(super) positive: Option<(Reading<'a, E>, usize)>,
}

impl<E> Epilogue<'_, E> {
    /// It is rounded as it is.
    pub(super) const NONE: Self = Self {
        addend: None,
        bias: None,
        relu: false,
        positive: None,
    };
}

impl<E: Element> Epilogue<'_, E> {
    /// The row of the ReLU's output, the given number of elements.
    pub(super) fn positive_row(&self, row: usize, width: usize) -> Option<&[E]> {
        let (values, stride) = self.positive.as_ref()?;
        Some(&values[row * stride..][..width])
    }
}

/// A matrix that is added, whose rows are `stride` elements apart, and its factors.
pub(super) struct Addend<'a, E> {
    pub(super) values: Reading<'a, E>,
    pub(super) stride: usize,
    pub(super) factor: f32,
    pub(super) row_scale: Option<Reading<'a, f32>>,
}

impl<E> Addend<'_, E> {
    /// What the addend's row `row` is multiplied by.
    fn factor_of(&self, row: usize) -> f32 {
        let factor = self.factor;
        self.row_scale
            .as_ref()
            .map_or(factor, |scale| factor * scale[row])
    }
}

impl Cpu {
    /// The sums of `x` that `op` asks for.
    fn sum<E: Element>(
        &self,
        a: &Adjacency<Self>,
        op: &Spmm<'_, Self, E>,
        x: Input<'_, E>,
        y: &mut Matrix<Self, E>,
    ) {
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
            offsets: &a.row_offsets().buffer.read(),
            columns: &a.column_ids.buffer.read(),
            weights,
            heads,
            row_scale: row_scale.as_deref(),
            scale: op.scale,
            aggregation: op.aggregation,
            x,
            width: padded::<E>(y.columns()),
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
                positive: op
                    .epilogue
                    .positive
                    .map(|output| (output.buffer.read(), output.stride())),
            },
        };
        let shape = (y.columns(), y.stride());
        E::sum_rows(self, &operands, op.policy, shape, y.buffer.get_mut());
    }
}

/// Writes the product to `y`, whose rows are `features` long and `stride` apart.
pub(crate) fn sum_rows<E: Element>(
    cpu: &Cpu,
    operands: &Operands<'_, E>,
    policy: SpmmPolicy,
    (features, stride): (usize, usize),
    y: &mut [E],
) {
    if operands.width == 0 {
        return;
    }
    let plan = Plan::of::<E>(policy);
    // The largest is found alike under any policy.
    let in_vectors = matches!(operands.x, Input::Elements { .. })
        && (plan.is_discretized_float() || operands.aggregation == Aggregation::Max);
    let instructions = if in_vectors {
        cpu.instructions()
    } else {
        Instructions::Plain
    };
    let plan = Plan {
        shrinks: instructions.shrinks() && operands.are_worth_shrinking(),
        ..plan
    };
    parallel::by_edges(operands.offsets, stride, y, &|rows, y| {
        instructions.run(Rows {
            operands,
            plan,
            instructions,
            features,
            stride,
            rows,
            y,
        });
    });
}

/// A policy, and what it comes to in a precision.
#[derive(Clone, Copy)]
struct Plan {
    scaling: Scaling,
    in_half: bool,
    /// Whether halves may be added up [shrunk](crate::backend::cpu::simd::shrunk).
    shrinks: bool,
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
            shrinks: false,
        }
    }

    /// Whether it is a sum in float that is scaled batch by batch.
    fn is_discretized_float(self) -> bool {
        self.scaling == Scaling::Discretized && !self.in_half
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

/// How the edges of a row are summed up.
trait Summation<E: Element>: Copy {
    /// Memory that a thread computes in.
    type Room;

    /// The memory for operands.
    fn room(self, operands: &Operands<'_, E>) -> Self::Room;

    /// Leaves the scaled sum of `chunk` in `merged`, a row of floats.
    fn chunk(
        self,
        operands: &Operands<'_, E>,
        plan: Plan,
        chunk: Chunk,
        room: &mut Self::Room,
        merged: &mut [f32],
    );

    /// Writes the complete row of `chunk`; `merged` is memory for a row of floats.
    #[inline(always)]
    fn row(
        self,
        operands: &Operands<'_, E>,
        plan: Plan,
        chunk: Chunk,
        room: &mut Self::Room,
        merged: &mut [f32],
        y: &mut [E],
    ) {
        let row = chunk.row;
        self.chunk(operands, plan, chunk, room, merged);
        self.finish(operands, row, room, merged, y);
    }

    /// Leaves the largest product of each column of `chunk`, NaN where one is, times the factor, in `merged`.
    fn largest(
        self,
        operands: &Operands<'_, E>,
        chunk: Chunk,
        room: &mut Self::Room,
        merged: &mut [f32],
    );

    /// Writes row `row`, whose sum is `merged`, after the epilogue.
    fn finish(
        self,
        operands: &Operands<'_, E>,
        row: usize,
        room: &mut Self::Room,
        merged: &mut [f32],
        y: &mut [E],
    );
}

/// Edges of one row, and the factor of the row.
#[derive(Clone)]
struct Chunk {
    row: usize,
    edges: Range<usize>,
    factor: f32,
}

/// Some rows of a product.
struct Rows<'a, E> {
    operands: &'a Operands<'a, E>,
    plan: Plan,
    instructions: Instructions,
    features: usize,
    /// Elements from one row of `y` to the next.
    stride: usize,
    rows: Range<usize>,
    y: &'a mut [E],
}

impl<E: Element> Rows<'_, E> {
    #[inline(always)]
    fn compute(self, summation: impl Summation<E>) {
        let Self {
            operands, features, ..
        } = self;
        let width = operands.width;
        let (mut room, mut merged) = (summation.room(operands), vec![0.0; width]);
        for (row, y) in self.rows.zip(self.y.chunks_exact_mut(self.stride)) {
            let y = &mut y[..width];
            let edges = operands.offsets[row] as usize..operands.offsets[row + 1] as usize;
            let factor = operands.row_scale.map_or(1.0, |scale| scale[row]) * operands.scale;
            let whole = Chunk { row, edges, factor };
            let is_largest = operands.aggregation == Aggregation::Max;
            if !is_largest && whole.edges.len() <= self.plan.chunk() {
                summation.row(operands, self.plan, whole, &mut room, &mut merged, y);
            } else {
                if whole.edges.is_empty() {
                    merged.fill(0.0);
                } else if is_largest {
                    summation.largest(operands, whole, &mut room, &mut merged);
                } else {
                    sum_long_row(operands, self.plan, self.instructions, whole, &mut merged);
                }
                summation.finish(operands, row, &mut room, &mut merged, y);
            }
            if features < width {
                // Infinite factors and NaN weights reach zeros that are not elements.
                y[features..].fill(E::zeroed());
            }
        }
    }
}

impl<E: Element> Kernel for Rows<'_, E> {
    type Output = ();

    fn plain(self) {
        self.compute(plain::Plain);
    }

    #[inline(always)]
    fn vectors<L: Lanes>(self, lanes: L) {
        self.compute(vector::Vectors(lanes));
    }
}

/// Leaves the scaled sum of a row that has several chunks in `merged`. Other threads take chunks of it.
#[inline(never)]
fn sum_long_row<E: Element>(
    operands: &Operands<'_, E>,
    plan: Plan,
    instructions: Instructions,
    whole: Chunk,
    merged: &mut [f32],
) {
    let starts: Vec<usize> = whole.edges.clone().step_by(plan.chunk()).collect();
    let mut sums = vec![0.0; starts.len() * merged.len()];
    let chunks = (parallel::chunks_mut(&mut sums, merged.len()), &*starts);
    parallel::for_each(chunks, |_, (merged, &start)| {
        let edges = start..whole.edges.end.min(start + plan.chunk());
        instructions.run(OneChunk {
            operands,
            plan,
            chunk: Chunk {
                edges,
                ..whole.clone()
            },
            merged,
        });
    });
    merged.fill(0.0);
    for chunk in sums.chunks_exact(merged.len()) {
        plain::add(merged, chunk);
    }
}

/// A chunk of a long row.
struct OneChunk<'a, E> {
    operands: &'a Operands<'a, E>,
    plan: Plan,
    chunk: Chunk,
    merged: &'a mut [f32],
}

impl<E: Element> OneChunk<'_, E> {
    #[inline(always)]
    fn compute(self, summation: impl Summation<E>) {
        let mut room = summation.room(self.operands);
        summation.chunk(self.operands, self.plan, self.chunk, &mut room, self.merged);
    }
}

impl<E: Element> Kernel for OneChunk<'_, E> {
    type Output = ();

    fn plain(self) {
        self.compute(plain::Plain);
    }

    #[inline(always)]
    fn vectors<L: Lanes>(self, lanes: L) {
        self.compute(vector::Vectors(lanes));
    }
}
