//! The three passes: what a row has, what an edge adds, and what is written.

use super::dots::{Dots, dot};
use super::softmax::{Softmax, exp2};
use crate::attention::weight::Ends;
use crate::device::float::mul_add;
use crate::device::global::Global;
use crate::device::vector::Vector;
use crate::edge_walk::{Edge, Lane, Params, Pass, Sums, add, scaled};
use core::f32::consts::LOG2_E;
use halfgnn_contract::attention::DROPOUT;
use halfgnn_contract::dot_attention::{COLUMNS, DotAttentionParams};
use halfgnn_contract::edge_walk::EdgeWalk;
use halfgnn_contract::math::ln;
use halfgnn_contract::{DevicePtr, HalfBits};

impl Params for DotAttentionParams {
    #[inline(always)]
    fn walk(&self) -> &EdgeWalk {
        &self.walk
    }
    #[inline(always)]
    fn of_column(&self, matrix: usize) -> DevicePtr<HalfBits> {
        self.of_columns[matrix]
    }
    #[inline(always)]
    fn outputs(&self) -> [DevicePtr<HalfBits>; 3] {
        [self.outputs[0], self.outputs[1], DevicePtr::NULL]
    }
}

/// The statistics of a destination and head.
#[inline(always)]
fn statistics_at(params: &DotAttentionParams, destination: u32, head: u32) -> Global<[u32; 2]> {
    let at = destination as u64 * params.walk.lanes.heads as u64 + head as u64;
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
        let ends = Ends::new(&params.dropout, lane.head, row, edge.ids()[0]);
        ends.dropout(&params.dropout, weight)
    }
}

/// The weight of an edge. As the forward pass rounds a score before it compares, so does this: the largest score of a row may be far greater
/// than its distance to the next.
#[inline(always)]
fn weight(params: &DotAttentionParams, dot: f32, normalizer: f32) -> f32 {
    let above = dot * scale_of_2(params) - normalizer;
    exp2(if above > 0.0 { 0.0 } else { above })
}

/// The factor of a dot product that makes a score of base 2 of it.
#[inline(always)]
fn scale_of_2(params: &DotAttentionParams) -> f32 {
    params.scale * LOG2_E
}

/// `y` and the first statistic.
pub struct Forward;

impl<V: Dots, const R: usize> Pass<V, R> for Forward {
    type Params = DotAttentionParams;
    const COLUMNS: usize = COLUMNS as usize;
    // Dropout draws by the column.
    const IDS: bool = true;
    /// The query.
    type Row = [V; R];
    type Part = Softmax<V, R>;

    #[inline(always)]
    unsafe fn row(params: &DotAttentionParams, lane: Lane<R>, row: u32, _: bool) -> Self::Row {
        // SAFETY: the caller's promise.
        unsafe { V::of_row(&params.walk, lane, params.of_rows[0], row) }
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
            let [score] = V::dots(&params.walk, lane, [query], [&edge.row(0)]);
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
            lane.store::<V>(&params.walk, params.outputs[0], row, values);
            if lane.leads_head(&params.walk) {
                let statistics = [mul_add(ln(part.z), LOG2_E, part.m).to_bits(), 0];
                statistics_at(params, row, lane.head).store(statistics);
            }
        }
    }

    #[inline(always)]
    unsafe fn clear(params: &DotAttentionParams, row: u32, first: u32) {
        let mut head = first;
        while head < params.walk.lanes.heads {
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
    type Params = DotAttentionParams;
    const COLUMNS: usize = COLUMNS as usize;
    // Dropout draws by the column.
    const IDS: bool = true;
    type Row = OfDestination<V, R>;
    type Part = Sums<V, R, 1>;

    #[inline(always)]
    unsafe fn row(params: &DotAttentionParams, lane: Lane<R>, row: u32, begins: bool) -> Self::Row {
        // SAFETY: the caller's promise. The second statistic is not read here, and written by the one chunk where the row begins.
        unsafe {
            let query = V::of_row(&params.walk, lane, params.of_rows[0], row);
            let gradient = V::of_row(&params.walk, lane, params.of_rows[1], row);
            let [own, output] =
                [1, 2].map(|i| lane.load::<V>(&params.walk, params.of_rows[i], row));
            let [delta] = lane.sum(&params.walk, [dot(&own, &output)], 1);
            // Of a lane without a head it is that of the first.
            let head = if lane.head < params.walk.lanes.heads {
                lane.head
            } else {
                0
            };
            let statistics = Global::<f32>::cast(statistics_at(params, row, head));
            if begins && lane.group == 0 && lane.leads_head(&params.walk) {
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
        edge: Edge<R>,
    ) -> Self::Part {
        // SAFETY: the caller's promise.
        unsafe {
            let key = edge.row::<V>(0);
            let rows = [&of.query, &of.gradient];
            let [score, d] = V::dots(&params.walk, lane, rows, [&key, &edge.row(1)]);
            let weight = weight(params, score, of.normalizer);
            let d = dropped(params, lane, (row, &edge), d);
            let d = weight * (d - of.delta) * params.scale;
            sum = add(sum, if edge.there { d } else { 0.0 }, &key);
        }
        Sums([sum])
    }

    #[inline(always)]
    unsafe fn write(params: &DotAttentionParams, lane: Lane<R>, row: u32, Sums([sum]): Self::Part) {
        // SAFETY: the caller's promise.
        unsafe { lane.store::<V>(&params.walk, params.outputs[0], row, sum) }
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
    type Params = DotAttentionParams;
    const COLUMNS: usize = COLUMNS as usize;
    // Dropout draws by the column.
    const IDS: bool = true;
    const STATISTICS: bool = true;
    type Row = OfSource<V, R>;
    type Part = Sums<V, R, 2>;

    #[inline(always)]
    fn statistics(params: &DotAttentionParams, column: u32, head: u32) -> Global<[u32; 2]> {
        statistics_at(params, column, head)
    }

    #[inline(always)]
    unsafe fn row(params: &DotAttentionParams, lane: Lane<R>, row: u32, _: bool) -> Self::Row {
        // SAFETY: the caller's promise.
        unsafe {
            OfSource {
                key: V::of_row(&params.walk, lane, params.of_rows[0], row),
                value: V::of_row(&params.walk, lane, params.of_rows[1], row),
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
            let [score, d] = V::dots(&params.walk, lane, rows, [&query, &gradient]);
            let weight = weight(params, score, normalizer);
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
            lane.store::<V>(&params.walk, params.outputs[0], row, of_keys);
            lane.store::<V>(&params.walk, params.outputs[1], row, of_values);
        }
    }
}
