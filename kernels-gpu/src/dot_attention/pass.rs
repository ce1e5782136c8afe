//! The three passes: what a row has, what an edge adds, and what is written.

use super::dots::{Dots, dot};
use super::lanes::Lane;
use super::part::{Part, Softmax, Sums, add, exp2, scaled};
use super::ring::Edge;
use crate::attention::weight::Ends;
use crate::device::float::mul_add;
use crate::device::global::Global;
use crate::device::vector::Vector;
use core::f32::consts::{LN_2, LOG2_E};
use halfgnn_contract::attention::DROPOUT;
use halfgnn_contract::dot_attention::DotAttentionParams;
use halfgnn_contract::math::ln;

/// A policy of the walk.
pub trait Pass<V: Dots, const R: usize> {
    /// Whether an edge brings the statistics of its column.
    const STATISTICS: bool = false;

    /// What a lane keeps of a row while it walks the row's edges.
    type Row: Copy;
    /// What it has of the row's sums.
    type Part: Part;

    /// Loads what belongs to row `row`; `begins` says whether its first edge is in the chunk.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together, and the row has edges.
    unsafe fn row(params: &DotAttentionParams, lane: Lane<R>, row: u32, begins: bool) -> Self::Row;

    /// Adds an edge of row `row`.
    ///
    /// # Safety
    /// As [`Pass::row`]; it is an edge of the row, in the ring's current step, or none.
    unsafe fn add(
        params: &DotAttentionParams,
        lane: Lane<R>,
        row: (u32, &Self::Row),
        part: Self::Part,
        edge: Edge<R>,
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
pub fn statistics_at(params: &DotAttentionParams, destination: u32, head: u32) -> Global<[u32; 2]> {
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
    (row, edge): (u32, &Edge<R>),
    weight: f32,
) -> f32 {
    if params.dropout.flags & DROPOUT == 0 {
        return weight;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let ends = Ends::new(&params.dropout, lane.head, row, edge.column());
        ends.dropout(&params.dropout, weight)
    }
}

/// The factor of a dot product that makes a score of base 2 of it.
#[inline(always)]
fn scale_of_2(params: &DotAttentionParams) -> f32 {
    params.scale * LOG2_E
}

/// `y` and the first statistic.
pub struct Forward;

impl<V: Dots, const R: usize> Pass<V, R> for Forward {
    /// The query.
    type Row = [V; R];
    type Part = Softmax<V, R>;

    #[inline(always)]
    unsafe fn row(params: &DotAttentionParams, lane: Lane<R>, row: u32, _: bool) -> Self::Row {
        // SAFETY: the caller's promise.
        unsafe { V::of_row(params, lane, params.of_rows[0], row) }
    }

    #[inline(always)]
    unsafe fn add(
        params: &DotAttentionParams,
        lane: Lane<R>,
        (row, query): (u32, &Self::Row),
        part: Self::Part,
        edge: Edge<R>,
    ) -> Self::Part {
        // SAFETY: the caller's promise.
        unsafe {
            let [score] = V::dots(params, lane, [query], [&edge.row(0)]);
            let score = score * scale_of_2(params);
            let score = if edge.there { score } else { f32::MIN };
            let mut part = part.before(score);
            let weight = exp2(score - part.m);
            let weight = if edge.there { weight } else { 0.0 };
            part.z += weight;
            let weight = dropped(params, lane, (row, &edge), weight);
            part.sum = add(part.sum, weight, &edge.row::<V>(1));
            part
        }
    }

    #[inline(always)]
    unsafe fn write(params: &DotAttentionParams, lane: Lane<R>, row: u32, part: Self::Part) {
        let values = scaled::<V, R>(part.sum, 1.0 / part.z);
        // SAFETY: the caller's promise.
        unsafe {
            lane.store::<V>(params, params.outputs[0], row, values);
            if lane.leads_head(params) {
                let statistics = [mul_add(part.m, LN_2, ln(part.z)).to_bits(), 0];
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
    /// `log₂ Σ exp(s)`.
    normalizer: f32,
    delta: f32,
}

impl<V: Dots, const R: usize> Pass<V, R> for Rows {
    type Row = OfDestination<V, R>;
    type Part = Sums<V, R, 1>;

    #[inline(always)]
    unsafe fn row(params: &DotAttentionParams, lane: Lane<R>, row: u32, begins: bool) -> Self::Row {
        // SAFETY: the caller's promise. The second statistic is not read here, and written by the one chunk where the row begins.
        unsafe {
            let query = V::of_row(params, lane, params.of_rows[0], row);
            let gradient = V::of_row(params, lane, params.of_rows[1], row);
            let [own, output] = [1, 2].map(|i| lane.load::<V>(params, params.of_rows[i], row));
            let [delta] = lane.sum(params, [dot(&own, &output)], 1);
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
                normalizer: statistics.load() * LOG2_E,
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
        edge: Edge<R>,
    ) -> Self::Part {
        // SAFETY: the caller's promise.
        unsafe {
            let key = edge.row::<V>(0);
            let rows = [&of.query, &of.gradient];
            let [score, d] = V::dots(params, lane, rows, [&key, &edge.row(1)]);
            let weight = exp2(mul_add(score, scale_of_2(params), -of.normalizer));
            let d = dropped(params, lane, (row, &edge), d);
            let d = weight * (d - of.delta) * params.scale;
            sum = add(sum, if edge.there { d } else { 0.0 }, &key);
        }
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

impl<V: Dots, const R: usize> Pass<V, R> for Columns {
    const STATISTICS: bool = true;
    type Row = OfSource<V, R>;
    type Part = Sums<V, R, 2>;

    #[inline(always)]
    unsafe fn row(params: &DotAttentionParams, lane: Lane<R>, row: u32, _: bool) -> Self::Row {
        // SAFETY: the caller's promise.
        unsafe {
            OfSource {
                key: V::of_row(params, lane, params.of_rows[0], row),
                value: V::of_row(params, lane, params.of_rows[1], row),
            }
        }
    }

    #[inline(always)]
    unsafe fn add(
        params: &DotAttentionParams,
        lane: Lane<R>,
        (row, of): (u32, &Self::Row),
        Sums([mut of_keys, mut of_values]): Self::Part,
        edge: Edge<R>,
    ) -> Self::Part {
        // SAFETY: the caller's promise.
        unsafe {
            let [normalizer, delta] = edge.statistics();
            let [query, gradient] = [edge.row::<V>(0), edge.row::<V>(1)];
            let rows = [&of.key, &of.value];
            let [score, d] = V::dots(params, lane, rows, [&query, &gradient]);
            let weight = exp2(mul_add(score, scale_of_2(params), -normalizer * LOG2_E));
            let weight = if edge.there { weight } else { 0.0 };
            let of_value = dropped(params, lane, (row, &edge), weight);
            of_values = add(of_values, of_value, &gradient);
            let d = dropped(params, lane, (row, &edge), d);
            of_keys = add(of_keys, weight * (d - delta) * params.scale, &query);
        }
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
