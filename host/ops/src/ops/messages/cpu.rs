//! What sums of messages are: the answer for the kernels.

use super::{
    EdgeOrder, MessageBackwardOperands, MessageGradients, MessageOperands, MessageOperators,
    MessageTerms, Messages,
};
use crate::backend::Adjacency;
use crate::backend::cpu::Cpu;
use crate::backend::cpu::convert::{round, widened};
use crate::backend::cpu::view::{view, view_mut, with_edges};
use crate::error::Error;
use crate::ops::Checked;
use crate::tensor::{Element, Matrix};
use halfgnn_contract::messages::{derivative, value};
use halfgnn_graph::parallel::{self, Items};
use std::borrow::Cow;

/// Rows that are one piece of work at least.
const MIN_ROWS: usize = 8;

/// A matrix in float, if there is one.
struct Floats<'a>(Option<(Cow<'a, [f32]>, usize)>);

impl Floats<'_> {
    /// Adds the first elements of a row.
    fn add_row(&self, row: usize, sum: &mut [f32]) {
        if let Self(Some((values, stride))) = self {
            let row = &values[row * stride..][..sum.len()];
            sum.iter_mut().zip(row).for_each(|(sum, x)| *sum += x);
        }
    }
}

/// The operands of both passes in float.
struct Inputs<'a> {
    /// Destinations, sources and edges of `a` and of `b`.
    terms: [[Floats<'a>; 3]; 2],
    has_value: bool,
    acts: [u32; 2],
    scale: Option<&'a [f32]>,
}

/// Calls `f` with the operands in float.
fn with_inputs<E: Element, T>(op: &Messages<'_, Cpu, E>, f: impl FnOnce(&Inputs<'_>) -> T) -> T {
    let readings = [&op.gate, &op.value].map(|terms| {
        terms
            .each()
            .map(|matrix| matrix.map(|matrix| (matrix, matrix.buffer.read())))
    });
    let terms = readings.each_ref().map(|terms| {
        terms.each_ref().map(|reading| {
            Floats(reading.as_ref().map(|(matrix, values)| {
                let view = view(matrix, values);
                (widened(view.values), view.stride)
            }))
        })
    });
    let scale = op.row_scale.map(|scale| scale.buffer.read());
    f(&Inputs {
        terms,
        has_value: has_value(&op.value),
        acts: op.acts.map(|act| act.number()),
        scale: scale.as_deref(),
    })
}

fn has_value<E: Element>(terms: &MessageTerms<'_, Cpu, E>) -> bool {
    terms.each().iter().any(Option::is_some)
}

impl Inputs<'_> {
    /// `a` and `b` of an edge.
    fn terms(&self, ends: [usize; 3], terms: &mut [Vec<f32>; 2]) {
        for (sum, of) in terms.iter_mut().zip(&self.terms) {
            sum.fill(0.0);
            for (of, row) in of.iter().zip(ends) {
                of.add_row(row, sum);
            }
        }
    }

    /// The message of one column.
    fn message(&self, [a, b]: [f32; 2]) -> f32 {
        let of_b = if self.has_value {
            value(self.acts[1], b)
        } else {
            1.0
        };
        value(self.acts[0], a) * of_b
    }

    /// Its derivatives by `a` and `b`.
    fn derivatives(&self, [a, b]: [f32; 2]) -> [f32; 2] {
        let by_a = derivative(self.acts[0], a);
        if !self.has_value {
            return [by_a, 0.0];
        }
        [
            by_a * value(self.acts[1], b),
            value(self.acts[0], a) * derivative(self.acts[1], b),
        ]
    }

    fn scale(&self, row: usize) -> f32 {
        self.scale.map_or(1.0, |scale| scale[row])
    }
}

/// The row of each edge in the matrices of edges.
fn with_order<T>(
    order: Option<&EdgeOrder<Cpu>>,
    f: impl FnOnce(&(dyn Fn(usize) -> usize + Sync)) -> T,
) -> T {
    match order {
        Some(order) => {
            let order = order.rows().buffer.read();
            f(&|edge| order[edge] as usize)
        }
        None => f(&|edge| edge),
    }
}

impl MessageOperators for Cpu {
    fn message_sums<E: Element>(
        &self,
        operands: Checked<MessageOperands<'_, Self, E>>,
    ) -> Result<(), Error> {
        let MessageOperands { a, op, y } = operands.into_inner();
        let y = view_mut(y);
        let columns = y.columns;
        let rows = parallel::chunks_mut(y.values, y.stride);
        with_inputs(&op, |inputs| {
            with_order(op.order, |order| {
                with_edges(a, |graph| {
                    parallel::pieces(rows, MIN_ROWS, &|first, rows| {
                        let mut terms = [(); 2].map(|()| vec![0.0; columns]);
                        let mut sums = vec![0.0; y.stride];
                        for (row, y) in (first..).zip(rows.each()) {
                            sums.fill(0.0);
                            for edge in graph.of_row(row) {
                                let source = graph.columns[edge] as usize;
                                inputs.terms([row, source, order(edge)], &mut terms);
                                let [a, b] = &terms;
                                for ((sum, &a), &b) in sums.iter_mut().zip(a).zip(b) {
                                    *sum += inputs.message([a, b]);
                                }
                            }
                            let scale = inputs.scale(row);
                            sums.iter_mut().for_each(|sum| *sum *= scale);
                            round(&sums, y);
                        }
                    });
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
            let gradient = Gradient {
                values: widened(view.values),
                stride: view.stride,
                columns: view.columns,
            };
            // Rows of edges first: their order is that of the edges, whatever row each has.
            let pass = Pass {
                inputs,
                gradient: &gradient,
            };
            pass.of_edges(a, op.order, of_edges);
            pass.of_ends((a, op.order), of_destinations, |row, column| [row, column]);
            pass.of_ends(transposed, of_sources, |row, column| [column, row]);
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

/// The gradient of the output in float.
struct Gradient<'a> {
    values: Cow<'a, [f32]>,
    stride: usize,
    columns: usize,
}

struct Pass<'a> {
    inputs: &'a Inputs<'a>,
    gradient: &'a Gradient<'a>,
}

impl Pass<'_> {
    /// What an edge's messages take of the gradient, by `a` and by `b`: `f` gets the column and both.
    fn of_edge(
        &self,
        ends: [usize; 3],
        terms: &mut [Vec<f32>; 2],
        mut f: impl FnMut(usize, [f32; 2]),
    ) {
        let destination = ends[0];
        self.inputs.terms(ends, terms);
        let scale = self.inputs.scale(destination);
        let row = &self.gradient.values[destination * self.gradient.stride..];
        for column in 0..self.gradient.columns {
            let of = self
                .inputs
                .derivatives([terms[0][column], terms[1][column]]);
            f(column, of.map(|of| of * (row[column] * scale)));
        }
    }

    fn terms(&self) -> [Vec<f32>; 2] {
        [(); 2].map(|()| vec![0.0; self.gradient.columns])
    }

    /// The gradients of rows of edges.
    fn of_edges<E: Element>(
        &self,
        a: &Adjacency<Cpu>,
        order: Option<&EdgeOrder<Cpu>>,
        outputs: Both<'_, E>,
    ) {
        for (which, output) in outputs.into_iter().enumerate() {
            let Some(output) = output else { continue };
            let output = view_mut(output);
            let mut terms = self.terms();
            let mut floats = vec![0.0; output.stride];
            with_order(order, |order| {
                with_edges(a, |graph| {
                    for row in 0..a.rows() {
                        for edge in graph.of_row(row) {
                            let ends = [row, graph.columns[edge] as usize, order(edge)];
                            self.of_edge(ends, &mut terms, |column, of| floats[column] = of[which]);
                            let own = &mut output.values[ends[2] * output.stride..];
                            round(&floats, &mut own[..output.stride]);
                        }
                    }
                });
            });
        }
    }

    /// The gradients of rows of destinations, or of sources over the transposed graph: `ends` makes destination and
    /// source of a row and a column.
    fn of_ends<E: Element>(
        &self,
        (a, order): (&Adjacency<Cpu>, Option<&EdgeOrder<Cpu>>),
        outputs: Both<'_, E>,
        ends: impl Fn(usize, usize) -> [usize; 2] + Sync,
    ) {
        for (which, output) in outputs.into_iter().enumerate() {
            let Some(output) = output else { continue };
            let output = view_mut(output);
            let stride = output.stride;
            let rows = parallel::chunks_mut(output.values, stride);
            with_order(order, |order| {
                with_edges(a, |graph| {
                    parallel::pieces(rows, MIN_ROWS, &|first, rows| {
                        let mut terms = self.terms();
                        let mut sums = vec![0.0; stride];
                        for (row, output) in (first..).zip(rows.each()) {
                            sums.fill(0.0);
                            for edge in graph.of_row(row) {
                                let [i, j] = ends(row, graph.columns[edge] as usize);
                                self.of_edge([i, j, order(edge)], &mut terms, |column, of| {
                                    sums[column] += of[which];
                                });
                            }
                            round(&sums, output);
                        }
                    });
                });
            });
        }
    }
}
