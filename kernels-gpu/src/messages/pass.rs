//! The three passes: what a row has, what an edge adds, and what is written.

use super::rows::{each, row_of, sum_of_rows};
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::vector::{Floats, Vector};
use crate::edge_walk::{Edge, Lane, Params, Pass, Sum, Sums, add, both};
use halfgnn_contract::edge_walk::EdgeWalk;
use halfgnn_contract::messages::{
    COLUMNS, COLUMNS_OF_GRADIENT, EDGES, MessageParams, derivative, value, value_and_derivative,
};
use halfgnn_contract::{DevicePtr, HalfBits};

impl Params for MessageParams {
    #[inline(always)]
    fn walk(&self) -> &EdgeWalk {
        &self.walk
    }
    #[inline(always)]
    fn of_column(&self, matrix: usize) -> DevicePtr<HalfBits> {
        self.of_columns[matrix]
    }
    #[inline(always)]
    fn of_edge(&self, matrix: usize) -> DevicePtr<HalfBits> {
        self.of_edges[matrix]
    }
    #[inline(always)]
    fn order(&self) -> DevicePtr<u32> {
        self.order
    }
    #[inline(always)]
    fn outputs(&self) -> [DevicePtr<HalfBits>; 3] {
        [self.outputs[0], self.outputs[1], DevicePtr::NULL]
    }
}

/// The sums of rows of an edge: `a`, and `b` where there is one.
type Terms<V, const R: usize> = [Sum<V, R>; 2];

/// Adds the edge's rows and the column's to those of the row. Matrices of edges follow `columns` of columns.
///
/// # Safety
/// The ring has advanced to the edge's step.
#[inline(always)]
unsafe fn terms<V: Vector<Bits = [u32; 4]>, const R: usize>(
    of_row: &[[V; R]; 2],
    edge: &Edge<R>,
    columns: u32,
) -> Terms<V, R> {
    let mut terms = [[V::Floats::ZERO; R]; 2];
    unroll!(term in 0..2 => {
        // SAFETY: the caller's promise.
        terms[term] = unsafe { sum_of_rows(&of_row[term], edge, [term, columns as usize + term]) };
    });
    terms
}

/// The product of both, element by element.
#[inline(always)]
fn times<V: Vector, const R: usize>(mut a: Sum<V, R>, b: Sum<V, R>) -> Sum<V, R> {
    unroll!(load in 0..R => {
        a[load] = a[load].zip(b[load], |a, b| a * b);
    });
    a
}

/// The values of both activations; of `g` ones where there is no `b`.
#[inline(always)]
fn values<V: Vector, const R: usize>(params: &MessageParams, [a, b]: Terms<V, R>) -> Terms<V, R> {
    let of = |act, x| [value(act, x)];
    let [of_a] = each::<V, R, 1>(a, params.acts[0], of);
    if params.has_value == 0 {
        return [of_a, [V::Floats::ONE; R]];
    }
    let [of_b] = each::<V, R, 1>(b, params.acts[1], of);
    [of_a, of_b]
}

/// The derivatives of a message by `a` and by `b`.
#[inline(always)]
fn derivatives<V: Vector, const R: usize>(
    params: &MessageParams,
    [a, b]: Terms<V, R>,
) -> Terms<V, R> {
    if params.has_value == 0 {
        let [by_a] = each::<V, R, 1>(a, params.acts[0], |act, x| [derivative(act, x)]);
        return [by_a, [V::Floats::ZERO; R]];
    }
    let [of_a, by_a] = each::<V, R, 2>(a, params.acts[0], value_and_derivative);
    let [of_b, by_b] = each::<V, R, 2>(b, params.acts[1], value_and_derivative);
    [times::<V, R>(by_a, of_b), times::<V, R>(of_a, by_b)]
}

/// What is multiplied with the sum of destination `row`.
///
/// # Safety
/// The launch contract; it is a destination.
#[inline(always)]
unsafe fn scale(params: &MessageParams, row: u32) -> f32 {
    let scale = Global::<f32>::new(params.row_scale);
    if scale.is_null() {
        return params.factor;
    }
    // SAFETY: the caller's promise.
    params.factor * unsafe { scale.at(row as u64).read() }
}

/// `y`.
pub struct Forward;

impl<V: Vector<Bits = [u32; 4]>, const R: usize> Pass<V, R> for Forward {
    type Params = MessageParams;
    const COLUMNS: usize = COLUMNS as usize;
    const EDGES: usize = EDGES as usize;
    const IDS: bool = false;
    type Row = [[V; R]; 2];
    type Part = Sums<V, R, 1>;

    #[inline(always)]
    unsafe fn row(params: &MessageParams, lane: Lane<R>, row: u32, _: bool) -> Self::Row {
        // SAFETY: the caller's promise.
        unsafe {
            [
                row_of(&params.walk, lane, params.of_rows[0], row),
                row_of(&params.walk, lane, params.of_rows[1], row),
            ]
        }
    }

    #[inline(always)]
    unsafe fn add(
        params: &MessageParams,
        _: Lane<R>,
        (_, of_row): (u32, &Self::Row),
        Sums([sum]): Self::Part,
        edge: Edge<R>,
    ) -> Self::Part {
        // SAFETY: the caller's promise.
        let terms = unsafe { terms(of_row, &edge, COLUMNS) };
        let [of_a, of_b] = values::<V, R>(params, terms);
        let message = times::<V, R>(of_a, of_b);
        Sums([if edge.there {
            both::<V, R>(sum, message)
        } else {
            sum
        }])
    }

    #[inline(always)]
    unsafe fn write(params: &MessageParams, lane: Lane<R>, row: u32, Sums([sum]): Self::Part) {
        // SAFETY: the caller's promise.
        unsafe {
            let sum = crate::edge_walk::scaled::<V, R>(sum, scale(params, row));
            lane.store::<V>(&params.walk, params.outputs[0], row, sum);
        }
    }
}

/// Writes what there is of two sums of a row.
///
/// # Safety
/// As [`Pass::write`].
#[inline(always)]
unsafe fn write_both<V: Vector<Bits = [u32; 4]>, const R: usize>(
    params: &MessageParams,
    lane: Lane<R>,
    row: u32,
    sums: [Sum<V, R>; 2],
) {
    unroll!(term in 0..2 => {
        if !params.outputs[term].is_null() {
            // SAFETY: the caller's promise.
            unsafe { lane.store::<V>(&params.walk, params.outputs[term], row, sums[term]) }
        }
    });
}

/// The gradients of the rows of destinations and of edges.
pub struct Rows;

impl<V: Vector<Bits = [u32; 4]>, const R: usize> Pass<V, R> for Rows {
    type Params = MessageParams;
    const COLUMNS: usize = COLUMNS as usize;
    const EDGES: usize = EDGES as usize;
    const IDS: bool = true;
    /// The rows of `a` and `b`, and the gradient of the output, times the row's factor.
    type Row = ([[V; R]; 2], Sum<V, R>);
    type Part = Sums<V, R, 2>;

    #[inline(always)]
    unsafe fn row(params: &MessageParams, lane: Lane<R>, row: u32, begins: bool) -> Self::Row {
        // SAFETY: the caller's promise.
        unsafe {
            let rows = <Forward as Pass<V, R>>::row(params, lane, row, begins);
            let gradient = row_of::<V, R>(&params.walk, lane, params.of_rows[2], row);
            let none = [V::Floats::ZERO; R];
            (rows, add::<V, R>(none, scale(params, row), &gradient))
        }
    }

    #[inline(always)]
    unsafe fn add(
        params: &MessageParams,
        lane: Lane<R>,
        (_, (of_row, gradient)): (u32, &Self::Row),
        Sums(mut sums): Self::Part,
        edge: Edge<R>,
    ) -> Self::Part {
        // SAFETY: the caller's promise.
        let terms = unsafe { terms(of_row, &edge, COLUMNS) };
        let derivatives = derivatives::<V, R>(params, terms);
        if edge.there {
            unroll!(term in 0..2 => {
                let of_edge = times::<V, R>(derivatives[term], *gradient);
                sums[term] = both::<V, R>(sums[term], of_edge);
                let output = params.edge_outputs[term];
                if !output.is_null() {
                    // SAFETY: the caller's promise: each edge has a row of its own.
                    unsafe { lane.store::<V>(&params.walk, output, edge.ids()[1], of_edge) }
                }
            });
        }
        Sums(sums)
    }

    #[inline(always)]
    unsafe fn write(params: &MessageParams, lane: Lane<R>, row: u32, Sums(sums): Self::Part) {
        // SAFETY: the caller's promise.
        unsafe { write_both::<V, R>(params, lane, row, sums) }
    }
}

/// The gradients of the rows of sources, over the transposed adjacency.
pub struct Columns;

impl<V: Vector<Bits = [u32; 4]>, const R: usize> Pass<V, R> for Columns {
    type Params = MessageParams;
    const COLUMNS: usize = COLUMNS_OF_GRADIENT as usize;
    const EDGES: usize = EDGES as usize;
    const IDS: bool = true;
    type Row = [[V; R]; 2];
    type Part = Sums<V, R, 2>;

    #[inline(always)]
    unsafe fn row(params: &MessageParams, lane: Lane<R>, row: u32, begins: bool) -> Self::Row {
        // SAFETY: the caller's promise.
        unsafe { <Forward as Pass<V, R>>::row(params, lane, row, begins) }
    }

    #[inline(always)]
    unsafe fn add(
        params: &MessageParams,
        _: Lane<R>,
        (_, of_row): (u32, &Self::Row),
        Sums(mut sums): Self::Part,
        edge: Edge<R>,
    ) -> Self::Part {
        // SAFETY: the caller's promise; the ids of no edge are zero.
        let (terms, gradient, factor) = unsafe {
            let factor = if params.row_scale.is_null() || !edge.there {
                params.factor
            } else {
                scale(params, edge.ids()[0])
            };
            (
                terms(of_row, &edge, COLUMNS_OF_GRADIENT),
                edge.row::<V>(2),
                factor,
            )
        };
        let derivatives = derivatives::<V, R>(params, terms);
        let gradient = add::<V, R>([V::Floats::ZERO; R], factor, &gradient);
        if edge.there {
            unroll!(term in 0..2 => {
                sums[term] = both::<V, R>(sums[term], times::<V, R>(derivatives[term], gradient));
            });
        }
        Sums(sums)
    }

    #[inline(always)]
    unsafe fn write(params: &MessageParams, lane: Lane<R>, row: u32, Sums(sums): Self::Part) {
        // SAFETY: the caller's promise.
        unsafe { write_both::<V, R>(params, lane, row, sums) }
    }
}
