//! Rows, normalised each by itself: lanes of a warp share a row, and what they read again is in the first cache.

use crate::device::float::{mul_add, sqrt};
use crate::device::global::Global;
use crate::device::thread::{block_idx_x, thread_idx_x};
use crate::device::vector::{Floats, Vector, without_padding};
use crate::device::warp::shuffle_xor;
use crate::normalize::{Walk, leave, parameters};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::normalize::{MomentsParams, RELU, reciprocal_deviation};
use halfgnn_contract::norms::{RowMomentsParams, RowsParams, gradient, rows_per_cta};

/// A row, and the lane's part of it.
#[derive(Clone, Copy)]
struct Row {
    row: u64,
    lane: u32,
    /// Vectors that the lane comes to: none past the last row.
    vectors: u32,
}

impl Row {
    /// That of this thread.
    #[inline(always)]
    fn of(params: &RowsParams) -> Self {
        let first = block_idx_x() as u64 * rows_per_cta(params.lanes_log2) as u64;
        let row = first + (thread_idx_x() >> params.lanes_log2) as u64;
        Self {
            row,
            lane: thread_idx_x() & ((1 << params.lanes_log2) - 1),
            vectors: if row < params.rows { params.vectors } else { 0 },
        }
    }

    /// The sum of what the lanes of the row have, the same in each of them.
    ///
    /// # Safety
    /// All 32 lanes of the warp reach this call together.
    #[inline(always)]
    unsafe fn sum(params: &RowsParams, mut value: f32) -> f32 {
        let mut distance = (1_u32 << params.lanes_log2) / 2;
        while distance > 0 {
            // SAFETY: the loop is the same for every lane, and the caller promises that all of them are here.
            value += unsafe { shuffle_xor(value, distance) };
            distance /= 2;
        }
        value
    }

    /// The lane's vectors of the row, in their order.
    #[inline(always)]
    fn for_each(&self, params: &RowsParams, mut visit: impl FnMut(u32)) {
        let mut vector = self.lane;
        while vector < self.vectors {
            visit(vector);
            vector += 1 << params.lanes_log2;
        }
    }

    /// Vector `vector` of the row.
    #[inline(always)]
    fn place<T>(&self, params: &RowsParams, matrix: DevicePtr<T>, vector: u32) -> Global<[u32; 4]> {
        let at = self.row * params.vectors as u64 + vector as u64;
        Global::<[u32; 4]>::new(matrix).at(at)
    }
}

/// `y = weight · (x − mean) · reciprocal + bias`, cut off at zero where that is asked for.
///
/// # Safety
/// The launch contract of [`RowsParams`].
#[inline(always)]
pub unsafe fn forward<V: Vector<Bits = [u32; 4]>>(params: &RowsParams) {
    let row = Row::of(params);
    let width = 1.0 / params.columns as f32;
    // SAFETY: a vector of a row of the matrix, which nothing writes.
    let load = |vector| unsafe { V::from_bits(row.place(params, params.x, vector).read()) };
    let mut sum = 0.0;
    row.for_each(params, |vector| {
        let values = load(vector).widen();
        let mut i = 0;
        while i < V::WIDTH as usize {
            sum += values.get(i);
            i += 1;
        }
    });
    // SAFETY: every lane comes here.
    let mean = unsafe { Row::sum(params, sum) } * width;
    let mut squares = 0.0;
    row.for_each(params, |vector| {
        let values = load(vector).widen().map(|value| value - mean);
        let first = vector as u64 * V::WIDTH as u64;
        let values = without_padding::<V>(values, first, params.columns);
        let mut i = 0;
        while i < V::WIDTH as usize {
            squares = mul_add(values.get(i), values.get(i), squares);
            i += 1;
        }
    });
    // SAFETY: every lane comes here.
    let variance = unsafe { Row::sum(params, squares) } * width;
    let reciprocal = reciprocal_deviation(variance, params.epsilon, sqrt);
    if row.lane == 0 && row.row < params.rows {
        let known = [mean.to_bits(), reciprocal.to_bits(), 0, 0];
        // SAFETY: the row's own vector.
        unsafe {
            Global::<[u32; 4]>::new(params.statistics)
                .at(row.row)
                .store(known);
        }
    }
    let relu = params.flags & RELU != 0;
    row.for_each(params, |vector| {
        // SAFETY: the launch contract.
        let [weight, bias] = [params.weight, params.bias]
            .map(|of| unsafe { parameters::<V>(Global::new(of), vector, params.float_vectors) });
        let mut values = load(vector).widen();
        let mut i = 0;
        while i < V::WIDTH as usize {
            let normalized = (values.get(i) - mean) * reciprocal;
            let value = normalized * weight.get(i) + bias.get(i);
            // Not `max`, which would make a zero of a NaN.
            values = values.with(i, if relu && value < 0.0 { 0.0 } else { value });
            i += 1;
        }
        let values = without_padding::<V>(values, vector as u64 * V::WIDTH as u64, params.columns);
        // SAFETY: the thread's own vector.
        unsafe {
            row.place(params, params.y, vector)
                .store(V::narrow(values).to_bits());
        }
    });
}

/// The gradient of `x` in the place of that of the output.
///
/// # Safety
/// The launch contract of [`RowsParams`].
#[inline(always)]
pub unsafe fn backward<V: Vector<Bits = [u32; 4]>>(params: &RowsParams) {
    let row = Row::of(params);
    let width = 1.0 / params.columns as f32;
    let (mut mean, mut reciprocal) = (0.0, 0.0);
    if row.row < params.rows {
        let known = Global::<[u32; 4]>::new(params.statistics).at(row.row);
        // SAFETY: the row's vector.
        let known = unsafe { known.read() };
        mean = f32::from_bits(known[0]);
        reciprocal = f32::from_bits(known[1]);
    }
    // The gradient times the scale, and the normalised element. Both rows were padded with zeros.
    let load = |vector| {
        // SAFETY: the launch contract; a vector of the gradient is written by the thread that reads it.
        let (x, d, weight) = unsafe {
            (
                V::from_bits(row.place(params, params.x, vector).read()).widen(),
                V::from_bits(row.place(params, params.y, vector).load()).widen(),
                parameters::<V>(Global::new(params.weight), vector, params.float_vectors),
            )
        };
        let normalized = x.map(|x| (x - mean) * reciprocal);
        (d.zip(weight, |d, weight| d * weight), normalized)
    };
    let mut sums = [0.0; 2];
    row.for_each(params, |vector| {
        let (d, normalized) = load(vector);
        let mut i = 0;
        while i < V::WIDTH as usize {
            sums[0] += d.get(i);
            sums[1] = mul_add(d.get(i), normalized.get(i), sums[1]);
            i += 1;
        }
    });
    // SAFETY: every lane comes here.
    let [shift, slope] = sums.map(|sum| unsafe { Row::sum(params, sum) } * width * reciprocal);
    row.for_each(params, |vector| {
        let (d, normalized) = load(vector);
        let values = d.zip(normalized, |d, normalized| {
            gradient(reciprocal, d, normalized, [shift, slope])
        });
        let values = without_padding::<V>(values, vector as u64 * V::WIDTH as u64, params.columns);
        // SAFETY: the thread's own vector.
        unsafe {
            row.place(params, params.y, vector)
                .store(V::narrow(values).to_bits());
        }
    });
}

/// Sums of the gradient of the output, and of its product with the normalised `x`, for those of scales and shifts.
///
/// # Safety
/// The launch contract of [`RowMomentsParams`].
#[inline(always)]
pub unsafe fn moments<V: Vector<Bits = [u32; 4]>>(params: &RowMomentsParams) {
    let walk = Walk::new(params.rows, params.rows_per_cta, params.lanes_log2);
    let mut sums = [V::Floats::ZERO; 2];
    if walk.vector < params.vectors {
        let (x, d) = (walk.vectors_of(params.x), walk.vectors_of(params.d));
        let visit = |row, [x, d]: [[u32; 4]; 2]| {
            let known = Global::<[u32; 4]>::new(params.statistics).at(row);
            // SAFETY: a vector for each row.
            let [mean, reciprocal, ..] = unsafe { known.read() }.map(f32::from_bits);
            let (values, gradients) = (V::from_bits(x).widen(), V::from_bits(d).widen());
            sums[0] = sums[0].zip(gradients, |sum, d| sum + d);
            let products = values.zip(gradients, |x, d| d * ((x - mean) * reciprocal));
            sums[1] = sums[1].zip(products, |sum, product| sum + product);
        };
        // SAFETY: the launch contract; the merging of sums waits for all threads.
        unsafe { walk.for_each([x, d], params.vectors, visit) };
    }
    let planes = MomentsParams {
        x: params.x,
        d: params.d,
        partials: params.partials,
        statistics: DevicePtr::NULL,
        weight: DevicePtr::NULL,
        bias: DevicePtr::NULL,
        rows: params.rows,
        rows_per_cta: params.rows_per_cta,
        columns: params.columns,
        vectors: params.vectors,
        float_vectors: params.float_vectors,
        flags: 0,
        lanes_log2: params.lanes_log2,
    };
    // SAFETY: every thread of the CTA comes through here.
    unsafe { leave::<V>(&planes, &walk, sums) }
}
