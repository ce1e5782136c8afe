//! What sums of messages are: the answer for the kernels.

use super::{
    EdgeOrder, MessageBackwardOperands, MessageGradients, MessageOperands, MessageOperators,
    Messages,
};
use crate::backend::Adjacency;
use crate::backend::cpu::convert::{WIDEST, round, widened};
use crate::backend::cpu::simd::Loop;
use crate::backend::cpu::view::{view, view_mut, with_edges};
use crate::backend::cpu::{Cpu, Reading};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::messages::value_and_derivative;
use halfgnn_graph::parallel::{self, Items};
use std::borrow::Cow;

/// Rows that are one piece of work at least.
pub(in crate::ops) const MIN_ROWS: usize = 8;

/// A matrix with the values that are read of it.
pub(in crate::ops) type Read<'a, E> = (&'a Matrix<Cpu, E>, Reading<'a, E>);

/// Reads matrices, those that there are.
pub(in crate::ops) fn read_each<'a, E: Element>(
    matrices: [Option<&'a Matrix<Cpu, E>>; 3],
) -> [Option<Read<'a, E>>; 3] {
    matrices.map(|matrix| matrix.map(|matrix| (matrix, matrix.buffer.read())))
}

/// A matrix in float, if there is one.
pub(in crate::ops) struct Floats<'a>(Option<(Cow<'a, [f32]>, usize)>);

impl<'a> Floats<'a> {
    /// Those of a matrix that is read, if there is one.
    pub(in crate::ops) fn of<E: Element>(read: &'a Option<Read<'_, E>>) -> Self {
        Self(read.as_ref().map(|(matrix, values)| {
            let view = view(matrix, values);
            (widened(view.values), view.stride)
        }))
    }

    /// The first elements of a row; empty where there is no matrix.
    #[inline(always)]
    pub(in crate::ops) fn row(&self, row: usize, columns: usize) -> &[f32] {
        match self {
            Self(Some((values, stride))) => &values[row * stride..][..columns],
            Self(None) => &[],
        }
    }

    /// Adds the first elements of a row.
    #[inline(always)]
    pub(in crate::ops) fn add_row(&self, row: usize, sum: &mut [f32]) {
        let row = self.row(row, sum.len());
        sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
    }
}

/// The operands of both passes in float.
struct Inputs<'a> {
    /// Destinations, sources and edges of `a` and of `b`.
    terms: [[Floats<'a>; 3]; 2],
    has_value: bool,
    acts: [u32; 2],
    scale: Option<&'a [f32]>,
    factor: f32,
}

/// Calls `f` with the operands in float.
fn with_inputs<E: Element, T>(op: &Messages<'_, Cpu, E>, f: impl FnOnce(&Inputs<'_>) -> T) -> T {
    let readings = [&op.gate, &op.value].map(|terms| read_each(terms.each()));
    let terms = readings
        .each_ref()
        .map(|terms| terms.each_ref().map(Floats::of));
    let scale = op.row_scale.map(|scale| scale.buffer.read());
    f(&Inputs {
        terms,
        has_value: op.value.each().iter().any(Option::is_some),
        acts: op.acts.map(|act| act.number()),
        scale: scale.as_deref(),
        factor: op.factor,
    })
}

impl Inputs<'_> {
    fn scale(&self, row: usize) -> f32 {
        self.factor * self.scale.map_or(1.0, |scale| scale[row])
    }
}

/// Buffers of a thread: `a` and `b` of an edge, then the values of their activations; and the derivatives.
struct Lines {
    values: [Vec<f32>; 2],
    derivatives: [Vec<f32>; 2],
}

impl Lines {
    fn new(columns: usize) -> Self {
        let line = || vec![0.0; columns];
        Self {
            values: [line(), line()],
            derivatives: [line(), line()],
        }
    }

    /// The factors of an edge, with their derivatives where they are wanted.
    #[inline(always)]
    fn fill<const DERIVATIVES: bool>(&mut self, inputs: &Inputs<'_>, ends: [usize; 3]) {
        for which in 0..1 + usize::from(inputs.has_value) {
            let (values, derivatives) = (&mut self.values[which], &mut self.derivatives[which]);
            values.fill(0.0);
            for (of, row) in inputs.terms[which].iter().zip(ends) {
                of.add_row(row, values);
            }
            activate::<DERIVATIVES>(inputs.acts[which], values, derivatives);
        }
    }
}

/// Makes the values of an activation of numbers, and its derivatives where they are wanted.
#[inline(always)]
pub(in crate::ops) fn activate<const DERIVATIVES: bool>(
    act: u32,
    values: &mut [f32],
    derivatives: &mut [f32],
) {
    // A loop for each activation, which the compiler makes vectors of.
    macro_rules! each {
        ($act:expr) => {
            for (x, slope) in values.iter_mut().zip(derivatives) {
                let [value, derivative] = value_and_derivative($act, *x);
                *x = value;
                if DERIVATIVES {
                    *slope = derivative;
                }
            }
        };
    }
    match act {
        1 => each!(1),
        2 => each!(2),
        3 => each!(3),
        4 => each!(4),
        5 => each!(5),
        _ => each!(0),
    }
}

/// The sums of one row.
struct RowSums<'a> {
    inputs: &'a Inputs<'a>,
    row: usize,
    /// The source and the row of each edge.
    edges: Edges<'a>,
    lines: &'a mut Lines,
    sums: &'a mut [f32],
}

/// The edges of a row.
#[derive(Clone, Copy)]
pub(in crate::ops) struct Edges<'a> {
    pub columns: &'a [u32],
    pub first: usize,
    pub order: Option<&'a [u32]>,
}

impl Edges<'_> {
    /// The column of each edge, and its row in the matrices of edges.
    #[inline(always)]
    pub fn each(&self) -> impl Iterator<Item = (usize, usize)> {
        let row = |edge: usize| self.order.map_or(edge, |order| order[edge] as usize);
        let columns = self.columns.iter().enumerate();
        columns.map(move |(at, &column)| (column as usize, row(self.first + at)))
    }
}

impl Loop for RowSums<'_> {
    #[inline(always)]
    fn run(self) {
        for (source, edge) in self.edges.each() {
            self.lines
                .fill::<false>(self.inputs, [self.row, source, edge]);
            let [f, g] = &self.lines.values;
            match self.inputs.has_value {
                true => {
                    let products = f.iter().zip(g).map(|(f, g)| f * g);
                    self.sums
                        .iter_mut()
                        .zip(products)
                        .for_each(|(sum, it)| *sum += it);
                }
                false => self.sums.iter_mut().zip(f).for_each(|(sum, f)| *sum += f),
            }
        }
    }
}

/// The gradients of one row of destinations or of sources: sums over its edges of what is made of `a` and `b`.
struct RowGradients<'a> {
    pass: &'a Pass<'a>,
    row: usize,
    edges: Edges<'a>,
    /// Whether the row is that of a source.
    is_source: bool,
    lines: &'a mut Lines,
    /// Those that are wanted; the others are empty.
    sums: &'a mut [Vec<f32>; 2],
}

impl Loop for RowGradients<'_> {
    #[inline(always)]
    fn run(self) {
        for (column, edge) in self.edges.each() {
            let ends = match self.is_source {
                false => [self.row, column, edge],
                true => [column, self.row, edge],
            };
            self.lines.fill::<true>(self.pass.inputs, ends);
            let [of_a, of_b] = self.sums;
            self.pass
                .each_of(ends[0], self.lines, of_a, |sum, d| *sum += d, 0);
            self.pass
                .each_of(ends[0], self.lines, of_b, |sum, d| *sum += d, 1);
        }
    }
}

/// The gradients of one edge's rows.
struct EdgeGradients<'a> {
    pass: &'a Pass<'a>,
    ends: [usize; 3],
    lines: &'a mut Lines,
    floats: &'a mut [Vec<f32>; 2],
}

impl Loop for EdgeGradients<'_> {
    #[inline(always)]
    fn run(self) {
        self.lines.fill::<true>(self.pass.inputs, self.ends);
        let [of_a, of_b] = self.floats;
        self.pass
            .each_of(self.ends[0], self.lines, of_a, |to, d| *to = d, 0);
        self.pass
            .each_of(self.ends[0], self.lines, of_b, |to, d| *to = d, 1);
    }
}

impl MessageOperators for Cpu {
    fn message_sums<E: Element>(
        &self,
        operands: Checked<MessageOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let MessageOperands { a, op, y } = operands.into_inner();
        let y = view_mut(y);
        let (columns, instructions) = (y.columns, *WIDEST);
        let rows = parallel::chunks_mut(y.values, y.stride);
        let order = op.order.map(|order| order.rows().buffer.read());
        with_inputs(&op, |inputs| {
            with_edges(a, |graph| {
                parallel::pieces(rows, MIN_ROWS, &|first, rows| {
                    let mut lines = Lines::new(columns);
                    let mut sums = vec![0.0; y.stride];
                    for (row, y) in (first..).zip(rows.each()) {
                        sums.fill(0.0);
                        let range = graph.of_row(row);
                        instructions.run(RowSums {
                            inputs,
                            row,
                            edges: Edges {
                                first: range.start,
                                columns: &graph.columns[range],
                                order: order.as_deref(),
                            },
                            lines: &mut lines,
                            sums: &mut sums[..columns],
                        });
                        let scale = inputs.scale(row);
                        sums.iter_mut().for_each(|sum| *sum *= scale);
                        round(&sums, y);
                    }
                });
            });
        });
        Ok(())
    }

    fn message_sums_backward<E: Element>(
        &self,
        operands: Checked<MessageBackwardOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let MessageBackwardOperands {
            a,
            transposed,
            op,
            dy,
            gate,
            value,
        } = operands.into_inner();
        let [gate, value] = [gate, value].map(|of| {
            let MessageGradients {
                destination,
                source,
                edge,
            } = of;
            [destination, source, edge]
        });
        let [of_destinations, of_sources, of_edges] = by_kind(gate, value);
        with_inputs(&op, |inputs| {
            let values = dy.buffer.read();
            let view = view(dy, &values);
            let pass = Pass {
                inputs,
                gradient: widened(view.values),
                stride: view.stride,
                columns: view.columns,
            };
            pass.of_edges(a, op.order, of_edges);
            pass.of_ends((a, op.order), of_destinations, false);
            pass.of_ends(transposed, of_sources, true);
        });
        Ok(())
    }
}

/// Gradients of `a` and of `b`.
type Both<'a, E> = [Option<&'a mut Matrix<Cpu, E>>; 2];

fn by_kind<'a, E: Element>(
    gate: [Option<&'a mut Matrix<Cpu, E>>; 3],
    value: [Option<&'a mut Matrix<Cpu, E>>; 3],
) -> [Both<'a, E>; 3] {
    let [a, b, c] = gate;
    let [d, e, f] = value;
    [[a, d], [b, e], [c, f]]
}

/// The gradient of the output in float, and what it goes back through.
struct Pass<'a> {
    inputs: &'a Inputs<'a>,
    gradient: Cow<'a, [f32]>,
    stride: usize,
    columns: usize,
}

impl Pass<'_> {
    /// The gradient of an edge's message by `a` or by `b`: `f` gets each element of `to` and that of the gradient.
    /// `to` is empty where that is not wanted.
    #[inline(always)]
    fn each_of(
        &self,
        destination: usize,
        lines: &Lines,
        to: &mut [f32],
        f: impl Fn(&mut f32, f32),
        which: usize,
    ) {
        if to.is_empty() {
            return;
        }
        let scale = self.inputs.scale(destination);
        let row = &self.gradient[destination * self.stride..][..self.columns];
        let (slopes, others) = (&lines.derivatives[which], &lines.values[1 - which]);
        let elements = to.iter_mut().zip(row).zip(slopes);
        match self.inputs.has_value {
            true => elements
                .zip(others)
                .for_each(|(((to, dy), slope), other)| f(to, slope * other * (dy * scale))),
            false => elements.for_each(|((to, dy), slope)| f(to, slope * (dy * scale))),
        }
    }

    /// A line for each of `outputs` that is there.
    fn wanted<E: Element>(&self, outputs: &Both<'_, E>) -> [Vec<f32>; 2] {
        let wanted = outputs.each_ref().map(|output| output.as_deref());
        wanted.map(|output| vec![0.0; output.map_or(0, |_| self.columns)])
    }

    /// The gradients of rows of edges.
    fn of_edges<E: Element>(
        &self,
        a: &Adjacency<Cpu>,
        order: Option<&EdgeOrder<Cpu>>,
        outputs: Both<'_, E>,
    ) {
        let wanted = self.wanted(&outputs);
        let mut outputs = outputs.into_iter().flatten();
        let Some(first) = outputs.next() else { return };
        let second = outputs.next();
        let ends = ends_of_rows(a, order);
        let instructions = *WIDEST;
        let write = |edge: usize, lines: &mut Lines, floats: &mut [Vec<f32>; 2]| {
            let [destination, source] = ends[edge].map(|end| end as usize);
            instructions.run(EdgeGradients {
                pass: self,
                ends: [destination, source, edge],
                lines,
                floats,
            });
        };
        let lines = || Lines::new(self.columns);
        write_rows(wanted, (first, second), lines, write);
    }

    /// The gradients of rows of destinations, or of sources over the transposed graph.
    fn of_ends<E: Element>(
        &self,
        (a, order): (&Adjacency<Cpu>, Option<&EdgeOrder<Cpu>>),
        outputs: Both<'_, E>,
        is_source: bool,
    ) {
        let wanted = self.wanted(&outputs);
        let mut outputs = outputs.into_iter().flatten();
        let Some(first) = outputs.next() else { return };
        let second = outputs.next();
        let (order, instructions) = (order.map(|order| order.rows().buffer.read()), *WIDEST);
        with_edges(a, |graph| {
            let write = |row: usize, lines: &mut Lines, sums: &mut [Vec<f32>; 2]| {
                sums.iter_mut().for_each(|sums| sums.fill(0.0));
                let range = graph.of_row(row);
                instructions.run(RowGradients {
                    pass: self,
                    row,
                    edges: Edges {
                        first: range.start,
                        columns: &graph.columns[range],
                        order: order.as_deref(),
                    },
                    is_source,
                    lines,
                    sums,
                });
            };
            let lines = || Lines::new(self.columns);
            write_rows(wanted, (first, second), lines, write);
        });
    }
}

/// The ends of the edge that each row of a matrix of edges is of.
pub(in crate::ops) fn ends_of_rows(
    a: &Adjacency<Cpu>,
    order: Option<&EdgeOrder<Cpu>>,
) -> Vec<[u32; 2]> {
    let mut ends = vec![[0_u32; 2]; a.edges()];
    let order = order.map(|order| order.rows().buffer.read());
    with_edges(a, |graph| {
        for row in 0..a.rows() {
            for edge in graph.of_row(row) {
                let of = order.as_ref().map_or(edge, |order| order[edge] as usize);
                ends[of] = [row as u32, graph.columns[edge]];
            }
        }
    });
    ends
}

/// Rounds a line, which is as long as the columns, to a row, which has padding. `floats` is a buffer.
pub(in crate::ops) fn round_line<E: Element>(line: &[f32], floats: &mut Vec<f32>, row: &mut [E]) {
    floats.clear();
    floats.extend_from_slice(line);
    floats.resize(row.len(), 0.0);
    round(floats, row);
}

/// Calls `write` with each row, the buffers of its thread and a pair of lines like these. Rounds the lines to the rows
/// of one output or both.
pub(in crate::ops) fn write_rows<E: Element, L>(
    lines_of_row: [Vec<f32>; 2],
    (first, second): (&mut Matrix<Cpu, E>, Option<&mut Matrix<Cpu, E>>),
    lines_of_thread: impl Fn() -> L + Sync,
    write: impl Fn(usize, &mut L, &mut [Vec<f32>; 2]) + Sync,
) {
    let first = view_mut(first);
    let rows = parallel::chunks_mut(first.values, first.stride);
    match second {
        None => parallel::pieces(rows, MIN_ROWS, &|start, rows| {
            let mut lines = lines_of_thread();
            let (mut made, mut floats) = (lines_of_row.clone(), Vec::new());
            let which = usize::from(made[0].is_empty());
            for (row, to) in (start..).zip(rows.each()) {
                write(row, &mut lines, &mut made);
                round_line(&made[which], &mut floats, to);
            }
        }),
        Some(second) => {
            let second = view_mut(second);
            let rows = (rows, parallel::chunks_mut(second.values, second.stride));
            parallel::pieces(rows, MIN_ROWS, &|start, rows| {
                let mut lines = lines_of_thread();
                let (mut made, mut floats) = (lines_of_row.clone(), Vec::new());
                for (row, (to_a, to_b)) in (start..).zip(rows.each()) {
                    write(row, &mut lines, &mut made);
                    round_line(&made[0], &mut floats, to_a);
                    round_line(&made[1], &mut floats, to_b);
                }
            });
        }
    }
}
