//! The three passes: what a row has, what an edge adds, and what is written.

use super::policy::{Reduction, ReductionPart};
use crate::device::registers::unroll;
use crate::device::vector::{Floats, Vector};
use crate::edge_walk::{Edge, Lane, Params, Pass, Sum, Sums, both, edges_of};
use crate::messages::rows::{each, row_of, sum_of_rows};
use core::marker::PhantomData;
use halfgnn_contract::edge_walk::EdgeWalk;
use halfgnn_contract::messages::{value, value_and_derivative};
use halfgnn_contract::reductions::{COLUMNS, EDGES, ReductionParams};
use halfgnn_contract::{DevicePtr, HalfBits};

impl Params for ReductionParams {
    #[inline(always)]
    fn walk(&self) -> &EdgeWalk {
        &self.walk
    }
    #[inline(always)]
    fn of_column(&self, matrix: usize) -> DevicePtr<HalfBits> {
        self.of_columns[matrix]
    }
    #[inline(always)]
    fn of_edge(&self, _: usize) -> DevicePtr<HalfBits> {
        self.of_edges
    }
    #[inline(always)]
    fn order(&self) -> DevicePtr<u32> {
        self.order
    }
    #[inline(always)]
    fn outputs(&self) -> [DevicePtr<HalfBits>; 3] {
        self.outputs
    }
}

/// Messages as the format of the matrices has them.
#[inline(always)]
fn rounded<V: Vector, const R: usize>(mut messages: Sum<V, R>) -> Sum<V, R> {
    unroll!(load in 0..R => {
        messages[load] = V::narrow(messages[load]).widen();
    });
    messages
}

/// Each element times 1 or −1.
#[inline(always)]
fn signed<V: Vector, const R: usize>(mut sum: Sum<V, R>, sign: f32) -> Sum<V, R> {
    unroll!(load in 0..R => {
        sum[load] = sum[load].map(|value| value * sign);
    });
    sum
}

/// `y` and what the gradient reads.
pub struct Forward<K>(PhantomData<K>);

impl<V: Vector<Bits = [u32; 4]>, const R: usize, K: Reduction> Pass<V, R> for Forward<K> {
    type Params = ReductionParams;
    const COLUMNS: usize = COLUMNS as usize;
    const EDGES: usize = EDGES as usize;
    const IDS: bool = false;
    type Row = [V; R];
    type Part = K::Part<V, R>;

    #[inline(always)]
    unsafe fn row(params: &ReductionParams, lane: Lane<R>, row: u32, _: bool) -> Self::Row {
        // SAFETY: the caller's promise.
        unsafe { row_of(&params.walk, lane, params.of_rows[0], row) }
    }

    #[inline(always)]
    unsafe fn add(
        params: &ReductionParams,
        _: Lane<R>,
        (_, of_row): (u32, &Self::Row),
        part: Self::Part,
        edge: Edge<R>,
    ) -> Self::Part {
        // SAFETY: the caller's promise.
        let sum = unsafe { sum_of_rows(of_row, &edge, [0, COLUMNS as usize]) };
        let [message] = each::<V, R, 1>(sum, params.act, |act, x| [value(act, x)]);
        let message = signed::<V, R>(rounded::<V, R>(message), params.sign);
        if edge.there {
            part.with_message(message)
        } else {
            part
        }
    }

    #[inline(always)]
    unsafe fn write(params: &ReductionParams, lane: Lane<R>, row: u32, part: Self::Part) {
        // SAFETY: the caller's promise.
        let edges = unsafe { edges_of(&params.walk, row) };
        let [y, share, largest] = part.results(edges as f32);
        let results = [
            signed::<V, R>(y, params.sign),
            share,
            signed::<V, R>(largest, params.sign),
        ];
        unroll!(output in 0..3 => {
            if !params.outputs[output].is_null() {
                // SAFETY: the caller's promise.
                unsafe { lane.store::<V>(&params.walk, params.outputs[output], row, results[output]) }
            }
        });
    }
}

/// The gradient of `a` of an edge: that of its message times the slope of its function. Of the destination come `d`, `y` and the largest message.
#[inline(always)]
fn gradient<V: Vector, const R: usize, K: Reduction>(
    act: u32,
    sum: Sum<V, R>,
    [d, y, largest]: [[V; R]; 3],
) -> Sum<V, R> {
    let [messages, slopes] = each::<V, R, 2>(sum, act, value_and_derivative);
    let messages = rounded::<V, R>(messages);
    let mut found = slopes;
    unroll!(load in 0..R => {
        let [d, y, largest] = [d[load], y[load], largest[load]].map(V::widen);
        let mut i = 0;
        while i < V::WIDTH as usize {
            let of_message = K::gradient(messages[load].get(i), d.get(i), y.get(i), largest.get(i));
            found[load] = found[load].with(i, of_message * slopes[load].get(i));
            i += 1;
        }
    });
    found
}

/// The gradients of the rows of destinations and of edges.
pub struct Rows<K>(PhantomData<K>);

impl<V: Vector<Bits = [u32; 4]>, const R: usize, K: Reduction> Pass<V, R> for Rows<K> {
    type Params = ReductionParams;
    const COLUMNS: usize = COLUMNS as usize;
    const EDGES: usize = EDGES as usize;
    const IDS: bool = true;
    /// `a`, and `d`, `y` and the largest message.
    type Row = ([V; R], [[V; R]; 3]);
    type Part = Sums<V, R, 1>;

    #[inline(always)]
    unsafe fn row(params: &ReductionParams, lane: Lane<R>, row: u32, _: bool) -> Self::Row {
        let of = |matrix: usize| {
            // SAFETY: the caller's promise.
            unsafe { row_of::<V, R>(&params.walk, lane, params.of_rows[matrix], row) }
        };
        let largest = if K::READS_LARGEST {
            of(3)
        } else {
            [V::zero(); R]
        };
        (of(0), [of(1), of(2), largest])
    }

    #[inline(always)]
    unsafe fn add(
        params: &ReductionParams,
        lane: Lane<R>,
        (_, (of_row, kept)): (u32, &Self::Row),
        Sums([sum]): Self::Part,
        edge: Edge<R>,
    ) -> Self::Part {
        // SAFETY: the caller's promise.
        let terms = unsafe { sum_of_rows(of_row, &edge, [0, COLUMNS as usize]) };
        let of_edge = gradient::<V, R, K>(params.act, terms, *kept);
        if !edge.there {
            return Sums([sum]);
        }
        if !params.edge_output.is_null() {
            // SAFETY: the caller's promise: each edge has a row of its own.
            unsafe { lane.store::<V>(&params.walk, params.edge_output, edge.ids()[1], of_edge) }
        }
        Sums([both::<V, R>(sum, of_edge)])
    }

    #[inline(always)]
    unsafe fn write(params: &ReductionParams, lane: Lane<R>, row: u32, Sums([sum]): Self::Part) {
        if !params.outputs[0].is_null() {
            // SAFETY: the caller's promise.
            unsafe { lane.store::<V>(&params.walk, params.outputs[0], row, sum) }
        }
    }
}

/// The gradients of the rows of sources, over the transposed adjacency.
pub struct Columns<K>(PhantomData<K>);

impl<V: Vector<Bits = [u32; 4]>, const R: usize, K: Reduction> Pass<V, R> for Columns<K> {
    type Params = ReductionParams;
    const COLUMNS: usize = K::COLUMNS;
    const EDGES: usize = EDGES as usize;
    const IDS: bool = false;
    type Row = [V; R];
    type Part = Sums<V, R, 1>;

    #[inline(always)]
    unsafe fn row(params: &ReductionParams, lane: Lane<R>, row: u32, begins: bool) -> Self::Row {
        // SAFETY: the caller's promise.
        unsafe { <Forward<K> as Pass<V, R>>::row(params, lane, row, begins) }
    }

    #[inline(always)]
    unsafe fn add(
        params: &ReductionParams,
        _: Lane<R>,
        (_, of_row): (u32, &Self::Row),
        Sums([sum]): Self::Part,
        edge: Edge<R>,
    ) -> Self::Part {
        // SAFETY: the caller's promise.
        let (terms, kept) = unsafe {
            let largest = if K::READS_LARGEST {
                edge.row::<V>(3)
            } else {
                [V::zero(); R]
            };
            (
                sum_of_rows(of_row, &edge, [0, K::COLUMNS]),
                [edge.row::<V>(1), edge.row::<V>(2), largest],
            )
        };
        let of_edge = gradient::<V, R, K>(params.act, terms, kept);
        Sums([if edge.there {
            both::<V, R>(sum, of_edge)
        } else {
            sum
        }])
    }

    #[inline(always)]
    unsafe fn write(params: &ReductionParams, lane: Lane<R>, row: u32, part: Self::Part) {
        // SAFETY: the caller's promise.
        unsafe { <Rows<K> as Pass<V, R>>::write(params, lane, row, part) }
    }
}
