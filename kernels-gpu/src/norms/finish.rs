//! The planes of sums that the chunks of a group left, added up in their order, and what is made of the sums.
//!
//! A CTA has a group, and comes to 32 columns at a time: each of its warps has every fourth chunk, and the first has the columns when
//! all are added up.

use crate::device::float::sqrt;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads, thread_idx_x};
use crate::device::vector::Vector;
use crate::device::warp::{self, lane_id, warp_id};
use halfgnn_contract::WARP;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::normalize::{moments, reciprocal_deviation};
use halfgnn_contract::norms::{
    GRAPH, GraphNormColumn, GroupFinishParams, STATISTICS_ROWS, TERMS_ROWS, graph_norm,
};

/// What a CTA works on.
#[derive(Clone, Copy)]
struct Group {
    number: u64,
    first_chunk: u32,
    end_chunk: u32,
    /// Its rows, and 1 of a group without any.
    count: f32,
    first_row: u64,
}

impl Group {
    /// That of this CTA.
    ///
    /// # Safety
    /// The launch contract of [`GroupFinishParams`].
    #[inline(always)]
    unsafe fn of(params: &GroupFinishParams) -> Self {
        let number = block_idx_x() as u64;
        // SAFETY: a CTA for each group.
        let [first_chunk, end_chunk, rows, first_row] =
            unsafe { Global::<[u32; 4]>::new(params.groups).at(number).read() };
        Self {
            number,
            first_chunk,
            end_chunk,
            count: if rows > 0 { rows as f32 } else { 1.0 },
            first_row: first_row as u64,
        }
    }

    /// Row `row` of the group's `rows` of a float matrix.
    #[inline(always)]
    fn row(&self, of: Global<f32>, rows: u32, row: u32, params: &GroupFinishParams) -> Global<f32> {
        of.at((self.number * rows as u64 + row as u64) * params.float_vectors as u64 * 4)
    }

    /// Calls `visit` in the first warp with each column that the lane has, in their order, and its two sums.
    ///
    /// # Safety
    /// The launch contract of [`GroupFinishParams`], and every thread of the CTA calls it.
    #[inline(always)]
    unsafe fn for_each(&self, params: &GroupFinishParams, mut visit: impl FnMut(u64, [f32; 2])) {
        let plane = params.float_vectors as u64 * 4;
        let mut first = 0;
        while first < params.columns {
            let column = first as u64 + lane_id() as u64;
            let known = column < params.columns as u64;
            let mut sums = [0.0; 2];
            if known {
                let partials = Global::<f32>::new(params.partials).at(column);
                let mut chunk = self.first_chunk + warp_id();
                while chunk < self.end_chunk {
                    let at = partials.at(2 * chunk as u64 * plane);
                    // SAFETY: an element of each of the planes that a chunk left.
                    unsafe {
                        sums[0] += at.read();
                        sums[1] += at.at(plane).read();
                    }
                    chunk += THREADS_PER_CTA / WARP;
                }
            }
            // SAFETY: two words for each thread; every thread comes to the barriers.
            unsafe {
                word(0, thread_idx_x()).store_f32(sums[0]);
                word(1, thread_idx_x()).store_f32(sums[1]);
                sync_threads();
            }
            if warp_id() == 0 && known {
                let mut other = thread_idx_x() + WARP;
                while other < THREADS_PER_CTA {
                    // SAFETY: the thread stored them before the barrier.
                    unsafe {
                        sums[0] += word(0, other).load_f32();
                        sums[1] += word(1, other).load_f32();
                    }
                    other += WARP;
                }
                visit(column, sums);
            }
            // SAFETY: as above.
            unsafe { sync_threads() };
            first += WARP;
        }
    }
}

/// The statistics of a group.
///
/// # Safety
/// The launch contract of [`GroupFinishParams`].
#[inline(always)]
pub unsafe fn statistics<V: Vector>(params: &GroupFinishParams) {
    // SAFETY: the launch contract.
    let group = unsafe { Group::of(params) };
    let all = Global::<f32>::new(params.statistics);
    let row = |row| group.row(all, STATISTICS_ROWS, row, params);
    let [shifts, reciprocals, means] = [row(0), row(1), row(2)];
    let x = Global::<[u32; 4]>::new(params.x).at(group.first_row * params.vectors as u64);
    let first = Global::<V::Feature>::cast(x);
    let mut variances = 0.0;
    let visit = |column, [sum, squares]: [f32; 2]| {
        // SAFETY: the launch contract; a group with a column to visit has a row, and the column is the lane's own.
        unsafe {
            let shift = if group.end_chunk > group.first_chunk {
                V::weight_to_f32(V::weight(first.at(column)))
            } else {
                0.0
            };
            let [mean, variance] = moments(sum, squares, shift, group.count);
            means.at(column).store(mean);
            if params.kind == GRAPH {
                let scale = Global::<f32>::new(params.mean_scale).at(column).read();
                let [subtracted, variance] = graph_norm([mean, variance], scale);
                shifts.at(column).store(subtracted);
                let reciprocal = reciprocal_deviation(variance, params.epsilon, sqrt);
                reciprocals.at(column).store(reciprocal);
            } else {
                shifts.at(column).store(mean);
                variances += variance;
            }
        }
    };
    // SAFETY: every thread comes here.
    unsafe { group.for_each(params, visit) };
    if params.kind != GRAPH && warp_id() == 0 {
        // SAFETY: all lanes of the warp are here.
        let variance = unsafe { warp::sum(variances) };
        let reciprocal = reciprocal_deviation(variance, params.epsilon, sqrt);
        let mut column = lane_id();
        while column < params.columns {
            // SAFETY: the lane's own column.
            unsafe { reciprocals.at(column as u64).store(reciprocal) };
            column += WARP;
        }
    }
    for_padding(params, |column| {
        // SAFETY: the thread's own elements of the padding of the group's rows.
        unsafe {
            shifts.at(column).store(0.0);
            reciprocals.at(column).store(0.0);
            means.at(column).store(0.0);
        }
    });
}

/// The terms of a group, and its parts of the gradients of parameters.
///
/// # Safety
/// The launch contract of [`GroupFinishParams`].
#[inline(always)]
pub unsafe fn gradients(params: &GroupFinishParams) {
    // SAFETY: the launch contract.
    let group = unsafe { Group::of(params) };
    let (known, terms) = (
        Global::<f32>::new(params.statistics),
        Global::<f32>::new(params.terms),
    );
    let of = |row, column| group.row(known, STATISTICS_ROWS, row, params).at(column);
    let term = |row, column| group.row(terms, TERMS_ROWS, row, params).at(column);
    let part = |of| group.row(Global::<f32>::new(of), 1, 0, params);
    let mut products = 0.0;
    let visit = |column, [dy, product]: [f32; 2]| {
        let means = [dy / group.count, product / group.count];
        // SAFETY: the launch contract; the column is the lane's own.
        unsafe {
            if params.kind == GRAPH {
                let parameter = |row| Global::<f32>::new(row).at(column).read();
                let known = GraphNormColumn {
                    shift: of(0, column).read(),
                    reciprocal: of(1, column).read(),
                    mean: of(2, column).read(),
                    weight: parameter(params.weight),
                    mean_scale: parameter(params.mean_scale),
                };
                let ([shift, slope], mean_scale) = known.gradients(means, group.count);
                term(0, column).store(shift);
                term(1, column).store(slope);
                part(params.weight_gradient).at(column).store(product);
                part(params.bias_gradient).at(column).store(dy);
                part(params.mean_scale_gradient)
                    .at(column)
                    .store(mean_scale);
            } else {
                term(0, column).store(of(1, column).read() * means[0]);
                products += means[1];
            }
        }
    };
    // SAFETY: every thread comes here.
    unsafe { group.for_each(params, visit) };
    if params.kind != GRAPH && warp_id() == 0 {
        // SAFETY: all lanes of the warp are here.
        let product = unsafe { warp::sum(products) };
        let mut column = lane_id() as u64;
        while column < params.columns as u64 {
            // SAFETY: the lane's own column.
            unsafe { term(1, column).store(of(1, column).read() * product) };
            column += WARP as u64;
        }
    }
    for_padding(params, |column| {
        // SAFETY: the thread's own elements of the padding of the group's rows.
        unsafe {
            term(0, column).store(0.0);
            term(1, column).store(0.0);
            if params.kind == GRAPH {
                part(params.weight_gradient).at(column).store(0.0);
                part(params.bias_gradient).at(column).store(0.0);
                part(params.mean_scale_gradient).at(column).store(0.0);
            }
        }
    });
}

/// Calls `clear` with each column of the padding that the thread has.
#[inline(always)]
fn for_padding(params: &GroupFinishParams, clear: impl Fn(u64)) {
    let mut column = params.columns as u64 + thread_idx_x() as u64;
    while column < params.float_vectors as u64 * 4 {
        clear(column);
        column += THREADS_PER_CTA as u64;
    }
}

/// The shared word of one plane of one thread; consecutive threads use consecutive banks.
#[inline(always)]
fn word(plane: u32, thread: u32) -> Shared {
    Shared::base().offset((plane * THREADS_PER_CTA + thread) * 4)
}
