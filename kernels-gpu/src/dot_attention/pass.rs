//! The three passes: what a row has, what an edge adds, and what is written.

use super::lanes::Lane;
use super::part::{Part, Softmax, Sum, Sums, add, dot, dot_of_elements, exp, scaled, widen};
use crate::attention::weight::Ends;
use crate::device::global::Global;
use crate::device::registers::unroll;
use crate::device::vector::Vector;
use halfgnn_contract::dot_attention::DotAttentionParams;
use halfgnn_contract::math::ln;

/// Edges that a group has in flight at once.
pub const IN_FLIGHT: usize = 1;

/// An edge as a lane has it.
#[derive(Clone, Copy)]
pub struct Edge<V: Vector, const R: usize> {
    /// Its column.
    pub column: u32,
    /// Whether there is one. Else all of it is zero.
    pub there: bool,
    /// The column's row of the two matrices that have one for each column.
    pub of_column: [[V; R]; 2],
}

/// A policy of the walk.
pub trait Pass<V: Vector, const R: usize> {
    /// What a lane keeps of a row while it walks the row's edges.
    type Row: Copy;
    /// What it has of the row's sums.
    type Part: Part;

    /// Loads what belongs to row `row`; `begins` says whether its first edge is in the chunk.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, and the row has edges.
    unsafe fn row(params: &DotAttentionParams, lane: Lane<R>, row: u32, begins: bool) -> Self::Row;

    /// Adds edges of row `row`.
    ///
    /// # Safety
    /// As [`Pass::row`]; they are edges of the row.
    unsafe fn add(
        params: &DotAttentionParams,
        lane: Lane<R>,
        row: (u32, &Self::Row),
        part: Self::Part,
        edges: [Edge<V, R>; IN_FLIGHT],
    ) -> Self::Part;

    /// Writes a row.
    ///
    /// # Safety
    /// The launch contract; no other warp writes the row, and the part is that of all its edges.
    unsafe fn write(params: &DotAttentionParams, lane: Lane<R>, row: u32, part: Self::Part);

    /// Writes what belongs to a row without edges, apart from the outputs: for each head from `first` on, every 32nd.
    ///
    /// # Safety
    /// The launch contract; the row has no edges.
    #[inline(always)]
    unsafe fn clear(_: &DotAttentionParams, _row: u32, _first: u32) {}
}

/// The statistics of a destination and head.
#[inline(always)]
fn statistics_at(params: &DotAttentionParams, destination: u32, head: u32) -> Global<[u32; 2]> {
    let at = destination as u64 * params.lanes.heads as u64 + head as u64;
    Global::new(params.statistics).at(at)
}

/// What dropout makes of a weight.
///
/// # Safety
/// The launch contract.
#[inline(always)]
unsafe fn dropped<const R: usize>(
    params: &DotAttentionParams,
    lane: Lane<R>,
    (row, column): (u32, u32),
    weight: f32,
) -> f32 {
    let ends = Ends::new(&params.dropout, lane.head, row, column);
    // SAFETY: the caller's promise.
    unsafe { ends.dropout(&params.dropout, weight) }
}

/// `y` and the first statistic.
pub struct Forward;

impl<V: Vector, const R: usize> Pass<V, R> for Forward {
    /// The query, multiplied by the scale.
    type Row = Sum<V, R>;
    type Part = Softmax<V, R>;

    #[inline(always)]
    unsafe fn row(params: &DotAttentionParams, lane: Lane<R>, row: u32, _: bool) -> Self::Row {
        // SAFETY: the caller's promise.
        let query = unsafe { lane.load::<V>(params, params.of_rows[0], row, true) };
        widen::<V, R>(query, params.scale)
    }

    #[inline(always)]
    unsafe fn add(
        params: &DotAttentionParams,
        lane: Lane<R>,
        (row, query): (u32, &Self::Row),
        part: Self::Part,
        edges: [Edge<V, R>; IN_FLIGHT],
    ) -> Self::Part {
        let mut scores = [0.0; IN_FLIGHT];
        unroll!(i in 0..IN_FLIGHT => {
            scores[i] = dot::<V, R>(query, &edges[i].of_column[0]);
        });
        // SAFETY: the caller's promise.
        let scores = unsafe { lane.sum(params, scores) };
        let mut m = part.m;
        unroll!(i in 0..IN_FLIGHT => {
            if edges[i].there && scores[i] > m {
                m = scores[i];
            }
        });
        let before = exp(part.m - m);
        let mut z = part.z * before;
        let mut sum = scaled::<V, R>(part.sum, before);
        unroll!(i in 0..IN_FLIGHT => {
            let weight = if edges[i].there { exp(scores[i] - m) } else { 0.0 };
            z += weight;
            // SAFETY: the caller's promise.
            let weight = unsafe { dropped(params, lane, (row, edges[i].column), weight) };
            sum = add::<V, R>(sum, weight, &edges[i].of_column[1]);
        });
        Softmax { m, z, sum }
    }

    #[inline(always)]
    unsafe fn write(params: &DotAttentionParams, lane: Lane<R>, row: u32, part: Self::Part) {
        let values = scaled::<V, R>(part.sum, 1.0 / part.z);
        // SAFETY: the caller's promise.
        unsafe {
            lane.store::<V>(params, params.outputs[0], row, values);
            if lane.leads_head(params) {
                let statistics = [(part.m + ln(part.z)).to_bits(), 0];
                statistics_at(params, row, lane.head).store(statistics);
            }
        }
    }

    #[inline(always)]
    unsafe fn clear(params: &DotAttentionParams, row: u32, first: u32) {
        let mut head = first;
        while head < params.lanes.heads {
            // SAFETY: the caller's promise; there are statistics of each row and head.
            unsafe { statistics_at(params, row, head).store([0, 0]) };
            head += halfgnn_contract::WARP;
        }
    }
}

/// `dq` and the second statistic.
pub struct Rows;

/// What a lane keeps of a row in [`Rows`].
#[derive(Clone, Copy)]
pub struct OfDestination<V: Vector, const R: usize> {
    query: [V; R],
    /// The gradient of the output.
    gradient: [V; R],
    /// `ln Σ exp(s)`.
    normalizer: f32,
    delta: f32,
}

impl<V: Vector, const R: usize> Pass<V, R> for Rows {
    type Row = OfDestination<V, R>;
    type Part = Sums<V, R, 1>;

    #[inline(always)]
    unsafe fn row(params: &DotAttentionParams, lane: Lane<R>, row: u32, begins: bool) -> Self::Row {
        // SAFETY: the caller's promise. The second statistic is not read here, and written by the one chunk where the row begins.
        unsafe {
            let query = lane.load::<V>(params, params.of_rows[0], row, true);
            let gradient = lane.load::<V>(params, params.of_rows[1], row, true);
            let output = lane.load::<V>(params, params.of_rows[2], row, true);
            let [delta] = lane.sum(params, [dot_of_elements::<V, R>(&gradient, &output)]);
            // Of a lane without a head it is that of the first.
            let head = if lane.head < params.lanes.heads {
                lane.head
            } else {
                0
            };
            let statistics = Global::<f32>::cast(statistics_at(params, row, head));
            if begins && lane.group == 0 && lane.leads_head(params) {
                statistics.at(1).store(delta);
            }
            OfDestination {
                query,
                gradient,
                normalizer: statistics.load(),
                delta,
            }
        }
    }

    #[inline(always)]
    unsafe fn add(
        params: &DotAttentionParams,
        lane: Lane<R>,
        (row, of): (u32, &Self::Row),
        Sums([mut sum]): Self::Part,
        edges: [Edge<V, R>; IN_FLIGHT],
    ) -> Self::Part {
        let mut dots = [0.0; 2 * IN_FLIGHT];
        unroll!(i in 0..IN_FLIGHT => {
            dots[2 * i] = dot_of_elements::<V, R>(&of.query, &edges[i].of_column[0]) * params.scale;
            dots[2 * i + 1] = dot_of_elements::<V, R>(&of.gradient, &edges[i].of_column[1]);
        });
        // SAFETY: the caller's promise.
        let dots = unsafe { lane.sum(params, dots) };
        unroll!(i in 0..IN_FLIGHT => {
            let weight = exp(dots[2 * i] - of.normalizer);
            // SAFETY: the caller's promise.
            let d = unsafe { dropped(params, lane, (row, edges[i].column), dots[2 * i + 1]) };
            let d = if edges[i].there { weight * (d - of.delta) * params.scale } else { 0.0 };
            sum = add::<V, R>(sum, d, &edges[i].of_column[0]);
        });
        Sums([sum])
    }

    #[inline(always)]
    unsafe fn write(params: &DotAttentionParams, lane: Lane<R>, row: u32, Sums([sum]): Self::Part) {
        // SAFETY: the caller's promise.
        unsafe { lane.store::<V>(params, params.outputs[0], row, sum) }
    }
}

/// `dk` and `dv`, over the transposed adjacency.
pub struct Columns;

/// What a lane keeps of a row in [`Columns`].
#[derive(Clone, Copy)]
pub struct OfSource<V: Vector, const R: usize> {
    key: [V; R],
    value: [V; R],
}

impl<V: Vector, const R: usize> Pass<V, R> for Columns {
    type Row = OfSource<V, R>;
    type Part = Sums<V, R, 2>;

    #[inline(always)]
    unsafe fn row(params: &DotAttentionParams, lane: Lane<R>, row: u32, _: bool) -> Self::Row {
        // SAFETY: the caller's promise.
        unsafe {
            OfSource {
                key: lane.load::<V>(params, params.of_rows[0], row, true),
                value: lane.load::<V>(params, params.of_rows[1], row, true),
            }
        }
    }

    #[inline(always)]
    unsafe fn add(
        params: &DotAttentionParams,
        lane: Lane<R>,
        (row, of): (u32, &Self::Row),
        Sums([mut of_keys, mut of_values]): Self::Part,
        edges: [Edge<V, R>; IN_FLIGHT],
    ) -> Self::Part {
        let mut statistics = [[0.0; 2]; IN_FLIGHT];
        unroll!(i in 0..IN_FLIGHT => {
            let place = statistics_at(params, edges[i].column, lane.head);
            let is_read = edges[i].there && lane.head < params.lanes.heads;
            // SAFETY: the caller's promise: the column is a destination.
            let [a, b] = unsafe { place.load_if(is_read) };
            statistics[i] = [f32::from_bits(a), f32::from_bits(b)];
        });
        let mut dots = [0.0; 2 * IN_FLIGHT];
        unroll!(i in 0..IN_FLIGHT => {
            dots[2 * i] = dot_of_elements::<V, R>(&of.key, &edges[i].of_column[0]) * params.scale;
            dots[2 * i + 1] = dot_of_elements::<V, R>(&of.value, &edges[i].of_column[1]);
        });
        // SAFETY: the caller's promise.
        let dots = unsafe { lane.sum(params, dots) };
        unroll!(i in 0..IN_FLIGHT => {
            let [normalizer, delta] = statistics[i];
            let weight = if edges[i].there { exp(dots[2 * i] - normalizer) } else { 0.0 };
            let ends = (row, edges[i].column);
            // SAFETY: the caller's promise.
            let (of_value, d) = unsafe {
                (
                    dropped(params, lane, ends, weight),
                    dropped(params, lane, ends, dots[2 * i + 1]),
                )
            };
            of_values = add::<V, R>(of_values, of_value, &edges[i].of_column[1]);
            let of_key = weight * (d - delta) * params.scale;
            of_keys = add::<V, R>(of_keys, of_key, &edges[i].of_column[0]);
        });
        Sums([of_keys, of_values])
    }

    #[inline(always)]
    unsafe fn write(
        params: &DotAttentionParams,
        lane: Lane<R>,
        row: u32,
        Sums([of_keys, of_values]): Self::Part,
    ) {
        // SAFETY: the caller's promise.
        unsafe {
            lane.store::<V>(params, params.outputs[0], row, of_keys);
            lane.store::<V>(params, params.outputs[1], row, of_values);
        }
    }
}
