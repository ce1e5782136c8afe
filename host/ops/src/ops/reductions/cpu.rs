//! What reductions of messages are: the answer for the kernels.

use super::{
    MessageReduction, ReducedMessages, ReductionBackwardOperands, ReductionOperands,
    ReductionOperators, ReductionResults,
};
use crate::backend::Adjacency;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{WIDEST, round, widen};
use crate::backend::cpu::simd::Loop;
use crate::backend::cpu::view::{view_mut, with_edges};
use crate::error::Error;
use crate::ops::messages::cpu::{
    Edges, Floats, MIN_ROWS, activate, ends_of_rows, read_each, round_line, write_rows,
};
use crate::ops::{Checked, EdgeOrder, MessageAct, MessageGradients};
use crate::tensor::{Element, Matrix, Precision};
use halfgnn_contract::math::exp_nonpositive;
use halfgnn_contract::reductions::LEAST_VARIANCE;
use halfgnn_graph::parallel::{self, Items};

/// The inputs of both passes in float.
struct Inputs<'a> {
    /// Destinations, sources and edges.
    terms: [Floats<'a>; 3],
    act: u32,
    /// 1, or −1 for a minimum.
    sign: f32,
    reduction: MessageReduction,
    /// Whether a message is a number of the matrices' format in any case.
    is_exact: bool,
}

/// Calls `f` with the inputs in float.
fn with_inputs<E: Element, T>(
    op: &ReducedMessages<'_, Cpu, E>,
    f: impl FnOnce(&Inputs<'_>) -> T,
) -> T {
    let terms = op.rows.each();
    let is_one = terms.iter().flatten().count() == 1;
    let keeps = matches!(op.act, MessageAct::Identity | MessageAct::Relu);
    let readings = read_each(terms);
    f(&Inputs {
        terms: readings.each_ref().map(Floats::of),
        act: op.act.number(),
        sign: if op.reduction == MessageReduction::Min {
            -1.0
        } else {
            1.0
        },
        reduction: op.reduction,
        is_exact: E::PRECISION == Precision::Float || (is_one && keeps),
    })
}

/// Buffers of a thread.
struct Lines<E> {
    message: Vec<f32>,
    slope: Vec<f32>,
    rounded: Vec<E>,
    largest: Vec<f32>,
    weights: Vec<f32>,
    sums: Vec<f32>,
}

impl<E: Element> Lines<E> {
    fn new(columns: usize) -> Self {
        let line = || vec![0.0; columns];
        Self {
            message: line(),
            slope: line(),
            rounded: vec![E::from_f32(0.0); columns],
            largest: line(),
            weights: line(),
            sums: line(),
        }
    }

    /// The message of an edge, with its slope where that is wanted.
    #[inline(always)]
    fn fill<const SLOPE: bool>(&mut self, inputs: &Inputs<'_>, ends: [usize; 3]) {
        self.message.fill(0.0);
        for (of, row) in inputs.terms.iter().zip(ends) {
            of.add_row(row, &mut self.message);
        }
        activate::<SLOPE>(inputs.act, &mut self.message, &mut self.slope);
        if !inputs.is_exact {
            round(&self.message, &mut self.rounded);
            widen(&self.rounded, &mut self.message);
        }
    }
}

/// What sums in terms of `from` are multiplied by for `to`, which is not smaller.
#[inline(always)]
fn factor(reduction: MessageReduction, from: f32, to: f32) -> f32 {
    match (from == to, reduction) {
        (true, _) => 1.0,
        (false, MessageReduction::Softmax) => exp_nonpositive(from - to),
        (false, _) => 0.0,
    }
}

/// The reduction of one row, in the thread's lines.
struct RowReduction<'a, E> {
    inputs: &'a Inputs<'a>,
    row: usize,
    edges: Edges<'a>,
    lines: &'a mut Lines<E>,
}

impl<E: Element> Loop for RowReduction<'_, E> {
    #[inline(always)]
    fn run(self) {
        let Self {
            inputs,
            row,
            edges,
            lines,
        } = self;
        let sign = inputs.sign;
        lines.weights.fill(0.0);
        lines.sums.fill(0.0);
        if inputs.reduction == MessageReduction::Deviation {
            for (source, edge) in edges.each() {
                lines.fill::<false>(inputs, [row, source, edge]);
                let sums = lines.weights.iter_mut().zip(&mut lines.sums);
                for ((squares, sum), m) in sums.zip(&lines.message) {
                    *squares += m * m;
                    *sum += m;
                }
            }
            return;
        }
        lines.largest.fill(f32::NEG_INFINITY);
        for (source, edge) in edges.each() {
            lines.fill::<false>(inputs, [row, source, edge]);
            for (largest, m) in lines.largest.iter_mut().zip(&lines.message) {
                let m = m * sign;
                if m > *largest || m.is_nan() {
                    *largest = m;
                }
            }
        }
        for (source, edge) in edges.each() {
            lines.fill::<false>(inputs, [row, source, edge]);
            let sums = lines.weights.iter_mut().zip(&mut lines.sums);
            let messages = lines.message.iter().zip(&lines.largest);
            for ((weights, sum), (m, largest)) in sums.zip(messages) {
                let weight = factor(inputs.reduction, m * sign, *largest);
                *weights += weight;
                *sum += weight * m;
            }
        }
    }
}

impl<E: Element> Lines<E> {
    /// Writes the result, the share and what is kept of a row to the lines of sums, weights and largest messages.
    fn finish(&mut self, inputs: &Inputs<'_>, edges: usize) {
        let (sign, edges) = (inputs.sign, edges as f32);
        let rest = self.sums.iter_mut().zip(&mut self.largest);
        for (weights, (sum, largest)) in self.weights.iter_mut().zip(rest) {
            let [y, share, kept] = match inputs.reduction {
                MessageReduction::Max | MessageReduction::Min => {
                    [*largest * sign, 1.0 / *weights, *largest * sign]
                }
                MessageReduction::Softmax => [*sum / *weights, 1.0 / *weights, *largest],
                MessageReduction::Deviation => {
                    let mean = *sum / edges;
                    let variance = *weights / edges - mean * mean;
                    match variance <= LEAST_VARIANCE {
                        true => [0.0, 0.0, mean],
                        false => {
                            let deviation = variance.sqrt();
                            [deviation, 1.0 / (edges * deviation), mean]
                        }
                    }
                }
            };
            (*sum, *weights, *largest) = (y, share, kept);
        }
    }
}

/// The gradient of one edge's message by its rows, in the slope's place.
struct EdgeGradient<'a, 'b, E> {
    pass: &'a Pass<'b>,
    ends: [usize; 3],
    lines: &'a mut Lines<E>,
}

impl<E: Element> Loop for EdgeGradient<'_, '_, E> {
    #[inline(always)]
    fn run(self) {
        let Self { pass, ends, lines } = self;
        lines.fill::<true>(pass.inputs, ends);
        let [d, y, kept] = pass.read.each_ref().map(|of| of.row(ends[0], pass.columns));
        let messages = lines.message.iter().zip(&mut lines.slope).zip(d);
        let reduction = pass.inputs.reduction;
        match reduction {
            MessageReduction::Softmax => {
                for (((m, slope), d), (y, largest)) in messages.zip(y.iter().zip(kept)) {
                    *slope *= factor(reduction, *m, *largest) * d * (1.0 + (m - y));
                }
            }
            MessageReduction::Deviation => {
                for (((m, slope), d), mean) in messages.zip(kept) {
                    *slope *= d * (m - mean);
                }
            }
            MessageReduction::Max | MessageReduction::Min => {
                for (((m, slope), d), y) in messages.zip(y) {
                    *slope *= if m == y { *d } else { 0.0 };
                }
            }
        }
    }
}

impl ReductionOperators for Cpu {
    fn reduce_messages<E: Element>(
        &self,
        operands: Checked<ReductionOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ReductionOperands { a, op, results } = operands.into_inner();
        let ReductionResults { y, share, kept } = results;
        let columns = y.columns();
        let order = op.order.map(|order| order.rows().buffer.read());
        let of_matrix = |matrix| {
            let view = view_mut(matrix);
            parallel::chunks_mut(view.values, view.stride)
        };
        let rows = (of_matrix(y), (share.map(of_matrix), kept.map(of_matrix)));
        let instructions = *WIDEST;
        with_inputs(&op, |inputs| {
            with_edges(a, |graph| {
                parallel::pieces(rows, MIN_ROWS, &|first, rows| {
                    let mut lines = Lines::<E>::new(columns);
                    let mut floats = Vec::new();
                    for (row, (y, (share, kept))) in (first..).zip(rows.each()) {
                        let range = graph.of_row(row);
                        let outputs = [Some(y), share, kept];
                        if range.is_empty() {
                            let outputs = outputs.into_iter().flatten();
                            outputs.for_each(|row| row.fill(E::from_f32(0.0)));
                            continue;
                        }
                        instructions.run(RowReduction {
                            inputs,
                            row,
                            edges: Edges {
                                first: range.start,
                                columns: &graph.columns[range.clone()],
                                order: order.as_deref(),
                            },
                            lines: &mut lines,
                        });
                        lines.finish(inputs, range.len());
                        let made = [&lines.sums, &lines.weights, &lines.largest];
                        for (line, output) in made.into_iter().zip(outputs) {
                            if let Some(output) = output {
                                round_line(line, &mut floats, output);
                            }
                        }
                    }
                });
            });
        });
        Ok(())
    }

    fn reduce_messages_backward<E: Element>(
        &self,
        operands: Checked<ReductionBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let ReductionBackwardOperands {
            a,
            transposed,
            op,
            d,
            y,
            kept,
            gradients,
        } = operands.into_inner();
        let MessageGradients {
            destination,
            source,
            edge,
        } = gradients;
        let readings = read_each([Some(d), y, kept]);
        let read = readings.each_ref().map(Floats::of);
        with_inputs(&op, |inputs| {
            let pass = Pass {
                inputs,
                read,
                columns: d.columns(),
            };
            pass.of_edges(a, op.order, edge);
            pass.of_ends((a, op.order), destination, false);
            pass.of_ends(transposed, source, true);
        });
        Ok(())
    }
}

/// What gradients are made of.
struct Pass<'a> {
    inputs: &'a Inputs<'a>,
    /// `d`, `y` and what the forward pass kept.
    read: [Floats<'a>; 3],
    columns: usize,
}

impl Pass<'_> {
    /// One line, for [`write_rows`].
    fn line(&self) -> [Vec<f32>; 2] {
        [vec![0.0; self.columns], Vec::new()]
    }

    /// The gradients of rows of edges.
    fn of_edges<E: Element>(
        &self,
        a: &Adjacency<Cpu>,
        order: Option<&EdgeOrder<Cpu>>,
        output: Option<&mut Matrix<Cpu, E>>,
    ) {
        let Some(output) = output else { return };
        let (ends, instructions) = (ends_of_rows(a, order), *WIDEST);
        let lines = || Lines::<E>::new(self.columns);
        write_rows(self.line(), (output, None), lines, |edge, lines, made| {
            let [destination, source] = ends[edge].map(|end| end as usize);
            instructions.run(EdgeGradient {
                pass: self,
                ends: [destination, source, edge],
                lines,
            });
            made[0].copy_from_slice(&lines.slope);
        });
    }

    /// The gradients of rows of destinations, or of sources over the transposed graph.
    fn of_ends<E: Element>(
        &self,
        (a, order): (&Adjacency<Cpu>, Option<&EdgeOrder<Cpu>>),
        output: Option<&mut Matrix<Cpu, E>>,
        is_source: bool,
    ) {
        let Some(output) = output else { return };
        let (order, instructions) = (order.map(|order| order.rows().buffer.read()), *WIDEST);
        let lines = || Lines::<E>::new(self.columns);
        with_edges(a, |graph| {
            write_rows(self.line(), (output, None), lines, |row, lines, made| {
                let range = graph.of_row(row);
                made[0].fill(0.0);
                let edges = Edges {
                    first: range.start,
                    columns: &graph.columns[range],
                    order: order.as_deref(),
                };
                for (column, edge) in edges.each() {
                    let ends = match is_source {
                        false => [row, column, edge],
                        true => [column, row, edge],
                    };
                    instructions.run(EdgeGradient {
                        pass: self,
                        ends,
                        lines,
                    });
                    let sums = made[0].iter_mut().zip(&lines.slope);
                    sums.for_each(|(sum, d)| *sum += d);
                }
            });
        });
    }
}
