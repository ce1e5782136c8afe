//! The steps of an edge softmax, one kernel each: a vector of edges a lane, from planes of edges to planes of edges.

use super::weight::Ends;
use crate::device::global::Global;
use crate::device::thread::{block_idx_x, block_idx_y, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::attention::{
    EDGE_THREADS_PER_CTA, EdgeMapParams, leaky_relu, leaky_relu_derivative,
};
use halfgnn_contract::math::exp;
use halfgnn_contract::{DevicePtr, HalfBits};

/// What a step reads of an edge.
pub struct Edge<'a> {
    params: &'a EdgeMapParams,
    head: u32,
    row: u32,
    column: u32,
    /// Its value of the first plane.
    x: f32,
    /// Its value of the second plane.
    f: f32,
}

impl Edge<'_> {
    #[inline(always)]
    fn ends(&self) -> Ends {
        Ends::new(&self.params.attention, self.head, self.row, self.column)
    }

    /// # Safety
    /// The launch contract: scores are given.
    #[inline(always)]
    unsafe fn sum_of_scores(&self) -> f32 {
        // SAFETY: the caller's promise; row and column are vertices.
        unsafe { self.ends().sum_of_scores(&self.params.attention) }
    }

    /// The number of the edge's row.
    ///
    /// # Safety
    /// The launch contract: numbers of rows are given.
    #[inline(always)]
    unsafe fn of_row(&self) -> f32 {
        let at = self.head as u64 * self.params.vertices as u64 + self.row as u64;
        // SAFETY: the caller's promise.
        unsafe { Global::<f32>::new(self.params.v).at(at).read() }
    }
}

/// A step of an edge softmax.
pub trait Step {
    /// Whether it reads the first plane, the second, and the columns of the edges.
    const READS: [bool; 3];
    /// Its result for an edge.
    ///
    /// # Safety
    /// The launch contract.
    unsafe fn of(edge: &Edge<'_>) -> f32;
}

macro_rules! steps {
    ($($(#[$doc:meta])* $step:ident $reads:expr, |$edge:ident| $result:expr;)*) => {$(
        $(#[$doc])*
        pub struct $step;

        impl Step for $step {
            const READS: [bool; 3] = $reads;
            #[inline(always)]
            unsafe fn of($edge: &Edge<'_>) -> f32 {
                // SAFETY: the caller's promise.
                unsafe { $result }
            }
        }
    )*};
}

steps! {
    /// `LeakyReLU(s)`
    Scores [false, false, true], |edge| {
        leaky_relu(edge.sum_of_scores(), edge.params.attention.slope)
    };
    /// `x · LeakyReLU'(s)`
    ScoresBackward [true, false, true], |edge| {
        edge.x * leaky_relu_derivative(edge.sum_of_scores(), edge.params.attention.slope)
    };
    /// `exp(x − v)`
    Exp [true, false, false], |edge| exp(edge.x - edge.of_row());
    /// `x / v`
    Divide [true, false, false], |edge| {
        let v = edge.of_row();
        if v == 0.0 { 0.0 } else { edge.x / v }
    };
    /// `f · (x − v)`
    SoftmaxBackward [true, true, false], |edge| edge.f * (edge.x - edge.of_row());
    /// `x` after dropout
    Dropout [true, false, true], |edge| edge.ends().dropout(&edge.params.attention, edge.x);
}

/// # Safety
/// The launch contract of [`EdgeMapParams`]: a thread for each number of a plane, and heads in y.
#[inline(always)]
pub unsafe fn bias_gradient<V: Vector>(params: &EdgeMapParams) {
    let edge = block_idx_x() as u64 * EDGE_THREADS_PER_CTA as u64 + thread_idx_x() as u64;
    if edge >= params.plane_stride {
        return;
    }
    let head = block_idx_y();
    let at = head as u64 * params.plane_stride + edge;
    let of = &params.attention;
    let d = if edge < params.edges as u64 {
        // SAFETY: there are a row, a column, and numbers of each plane; rows and columns are vertices.
        unsafe {
            let id = |ids| Global::<u32>::new(ids).at(edge).read();
            let ends = Ends::new(of, head, id(params.rows), id(params.columns));
            let x = V::weight(Global::<V::Feature>::new(params.x).at(at));
            let bias = Global::<f32>::new(params.f).at(at).read();
            let inner = Global::<f32>::new(params.v)
                .at(ends.destination_at(of))
                .read();
            let sum = ends.sum_of_scores(of) + bias;
            let d_weight = ends.dropout(of, V::weight_to_f32(x)) - inner;
            leaky_relu_derivative(sum, of.slope) * ends.weight(of, sum) * d_weight
        }
    } else {
        0.0
    };
    // SAFETY: the number is the thread's own.
    unsafe { Global::<f32>::new(params.y).at(at).store(d) };
}

/// # Safety
/// The launch contract of [`EdgeMapParams`]: `edge_ctas` × heads CTAs of [`EDGE_THREADS_PER_CTA`] threads.
#[inline(always)]
pub unsafe fn map<S: Step, V: Vector>(params: &EdgeMapParams) {
    let vector = block_idx_x() as u64 * EDGE_THREADS_PER_CTA as u64 + thread_idx_x() as u64;
    let first = vector * V::WIDTH as u64;
    let edges = params.edges as u64;
    if first >= edges {
        return;
    }
    let head = block_idx_y();
    let plane = |values: DevicePtr<HalfBits>| {
        Global::<V::Feature>::new(values).at(head as u64 * params.plane_stride + first)
    };
    // SAFETY: planes are whole vectors long and start at 16 bytes; below `edges` there are rows and columns.
    unsafe {
        let read = |reads: bool, values: DevicePtr<HalfBits>| {
            if reads {
                // Not `read`: the output may be the first plane.
                V::from_bits(Global::<V::Bits>::cast(plane(values)).load()).widen()
            } else {
                V::Floats::ZERO
            }
        };
        let (x, f) = (read(S::READS[0], params.x), read(S::READS[1], params.f));
        let (rows, columns) = (
            Global::<u32>::new(params.rows).at(first),
            Global::<u32>::new(params.columns).at(first),
        );
        let mut y = V::Floats::ZERO;
        let mut i = 0;
        while i < V::WIDTH as u64 {
            // Four ids are one load; of the last vector some may be missing.
            let whole = first + i + 4 <= edges;
            let ids = |array: Global<u32>| -> [u32; 4] {
                if whole {
                    Global::cast(array.at(i)).read()
                } else {
                    let mut ids = [0; 4];
                    let mut k = 0;
                    while k < 4 {
                        if first + i + (k as u64) < edges {
                            ids[k] = array.at(i + k as u64).read();
                        }
                        k += 1;
                    }
                    ids
                }
            };
            let rows = ids(rows);
            let columns = if S::READS[2] { ids(columns) } else { [0; 4] };
            let mut k = 0;
            while k < 4 {
                let at = i as usize + k;
                if first + (at as u64) < edges {
                    let edge = Edge {
                        params,
                        head,
                        row: rows[k],
                        column: columns[k],
                        x: x.get(at),
                        f: f.get(at),
                    };
                    y = y.with(at, S::of(&edge));
                }
                k += 1;
            }
            i += 4;
        }
        Global::<V::Bits>::cast(plane(params.y)).store(V::narrow(y).to_bits());
    }
}
