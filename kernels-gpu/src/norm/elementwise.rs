//! The normalised matrix, its gradient, and weighted sums of two matrices.

use super::walk::{Columns, Walk, parameters};
use crate::device::global::Global;
use crate::device::vector::{Floats, Vector, without_padding};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::norm::{self, CombineParams, NormalizeParams, RELU};

/// `y = weight · (x − mean) / deviation + bias`, cut off at zero where that is asked for.
///
/// # Safety
/// The launch contract of [`NormalizeParams`].
#[inline(always)]
pub unsafe fn normalize<V: Vector>(params: &NormalizeParams) {
    let walk = Walk::new(params.rows, params.rows_per_cta, params.lanes_log2);
    if walk.vector >= params.vectors {
        return;
    }
    let (x, y) = (
        Global::<V::Bits>::new(params.x).at(walk.vector as u64),
        Global::<V::Bits>::new(params.y).at(walk.vector as u64),
    );
    // SAFETY: the launch contract.
    let columns = unsafe { read_columns::<V>(params, &walk) };
    let relu = params.flags & RELU != 0;
    let mut row = walk.first;
    while row < walk.end {
        let at = row * params.vectors as u64;
        // SAFETY: `row` is a row of the CTA, the vector the thread's own.
        unsafe {
            let mut values = V::from_bits(x.at(at).read()).widen();
            let mut i = 0;
            while i < V::WIDTH as usize {
                let value = columns.get(i).output(values.get(i));
                // Not `max`, which would make a zero of a NaN.
                values = values.with(i, if relu && value < 0.0 { 0.0 } else { value });
                i += 1;
            }
            let values = without_padding::<V>(values, walk.column::<V>(), params.columns);
            y.at(at).store(V::narrow(values).to_bits());
        }
        row += walk.groups as u64;
    }
}

/// The gradient of `x`, times the row's factor, in the place of that of the output.
///
/// # Safety
/// The launch contract of [`NormalizeParams`].
#[inline(always)]
pub unsafe fn normalize_backward<V: Vector>(params: &NormalizeParams) {
    let walk = Walk::new(params.rows, params.rows_per_cta, params.lanes_log2);
    if walk.vector >= params.vectors {
        return;
    }
    let (x, y) = (
        Global::<V::Bits>::new(params.x).at(walk.vector as u64),
        Global::<V::Bits>::new(params.y).at(walk.vector as u64),
    );
    let count = params.rows as f32;
    // SAFETY: the launch contract.
    let (columns, mean_dy, mean_product) = unsafe {
        let mean = |sums| {
            parameters::<V>(Global::new(sums), walk.vector, params.float_vectors)
                .map(|sum| sum / count)
        };
        (
            read_columns::<V>(params, &walk),
            mean(params.bias_gradient),
            mean(params.weight_gradient),
        )
    };
    let relu = params.flags & RELU != 0;
    let mut row = walk.first;
    while row < walk.end {
        let at = row * params.vectors as u64;
        // SAFETY: `row` is a row of the CTA, the vector the thread's own.
        unsafe {
            let values = V::from_bits(x.at(at).read()).widen();
            let mut gradients = V::from_bits(y.at(at).load()).widen();
            let scale = row_factor(params.scale, params.row_scale, row);
            let mut i = 0;
            while i < V::WIDTH as usize {
                let (column, value) = (columns.get(i), values.get(i));
                let mut dy = gradients.get(i);
                if relu && !(column.output(value) > 0.0) {
                    dy = 0.0;
                }
                let means = [mean_dy.get(i), mean_product.get(i)];
                let gradient = scale * column.gradient(value, dy, means);
                gradients = gradients.with(i, gradient);
                i += 1;
            }
            let gradients = without_padding::<V>(gradients, walk.column::<V>(), params.columns);
            y.at(at).store(V::narrow(gradients).to_bits());
        }
        row += walk.groups as u64;
    }
}

/// # Safety
/// The launch contract of [`NormalizeParams`].
#[inline(always)]
unsafe fn read_columns<V: Vector>(params: &NormalizeParams, walk: &Walk) -> Columns<V> {
    let rows = [params.statistics, params.weight, params.bias];
    // SAFETY: the caller's promise.
    unsafe { Columns::read(rows, walk.vector, params.float_vectors) }
}

/// `factor` times that of row `row`, where rows have one.
///
/// # Safety
/// Where it is not null, `of_rows` has a float for the row.
#[inline(always)]
unsafe fn row_factor(factor: f32, of_rows: DevicePtr<f32>, row: u64) -> f32 {
    let of_rows = Global::<f32>::new(of_rows);
    if of_rows.is_null() {
        factor
    } else {
        // SAFETY: the caller's promise.
        factor * unsafe { of_rows.at(row).read() }
    }
}

/// `y = x_factor · (1 + epsilon) · s · x + y_factor · y`, where each row has its own `s`.
///
/// # Safety
/// The launch contract of [`CombineParams`].
#[inline(always)]
pub unsafe fn combine<V: Vector>(params: &CombineParams) {
    let walk = Walk::new(params.rows, params.rows_per_cta, params.lanes_log2);
    if walk.vector >= params.vectors {
        return;
    }
    let (x, y) = (
        Global::<V::Bits>::new(params.x).at(walk.vector as u64),
        Global::<V::Bits>::new(params.y).at(walk.vector as u64),
    );
    let epsilon = Global::<f32>::new(params.epsilon);
    let mut x_factor = params.x_factor;
    if !epsilon.is_null() {
        // SAFETY: where it is not null there is a float.
        x_factor *= 1.0 + unsafe { epsilon.read() };
    }
    let mut row = walk.first;
    while row < walk.end {
        let at = row * params.vectors as u64;
        // SAFETY: `row` is a row of the CTA, the vector the thread's own.
        unsafe {
            let mut values = V::Floats::ZERO;
            if params.y_factor != 0.0 {
                values = V::from_bits(y.at(at).load()).widen();
            }
            let factor = row_factor(x_factor, params.x_scale, row);
            let values = V::from_bits(x.at(at).read())
                .widen()
                .zip(values, |x, y| norm::combine(factor, x, params.y_factor, y));
            let values = without_padding::<V>(values, walk.column::<V>(), params.columns);
            y.at(at).store(V::narrow(values).to_bits());
        }
        row += walk.groups as u64;
    }
}
