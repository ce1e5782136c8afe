//! The normalised matrix, its gradient, and weighted sums of two matrices.

use super::walk::{Columns, Walk, parameters};
use crate::device::global::Global;
use crate::device::vector::{Floats, Vector, without_padding};
use halfgnn_contract::normalize::{self, CombineParams, NormalizeParams, RELU};
use halfgnn_contract::{DevicePtr, HalfBits};

/// A thread's vectors of the matrix that a kernel writes.
#[derive(Clone, Copy)]
pub struct Output {
    /// That of the first row.
    first: Global<[u32; 4]>,
    /// Distance of two rows in 16-byte vectors.
    vectors: u32,
    /// The vector's first column, and those of the matrix without padding.
    column: u64,
    columns: u32,
}

impl Output {
    /// Those of `matrix`, of `columns` columns, whose rows are `vectors` apart.
    #[inline(always)]
    pub fn of<V: Vector>(
        walk: &Walk,
        matrix: DevicePtr<HalfBits>,
        vectors: u32,
        columns: u32,
    ) -> Self {
        Self {
            first: walk.vectors_of(matrix),
            vectors,
            column: walk.column::<V>(),
            columns,
        }
    }

    /// The thread's vector of the first row.
    #[inline(always)]
    pub fn first(&self) -> Global<[u32; 4]> {
        self.first
    }

    /// Writes what the thread has of a row; padding becomes zero.
    ///
    /// # Safety
    /// `row` is a row of the thread's walk, and the matrix has the thread's vector of it.
    #[inline(always)]
    pub unsafe fn write<V: Vector<Bits = [u32; 4]>>(&self, row: u64, values: V::Floats) {
        let values = without_padding::<V>(values, self.column, self.columns);
        let place = self.first.at(row * self.vectors as u64);
        // SAFETY: the caller's promise.
        unsafe { place.store(V::narrow(values).to_bits()) };
    }
}

/// `y = weight · (x − mean) / deviation + bias`, cut off at zero where that is asked for.
///
/// # Safety
/// The launch contract of [`NormalizeParams`].
#[inline(always)]
pub unsafe fn normalize<V: Vector<Bits = [u32; 4]>>(params: &NormalizeParams) {
    let walk = Walk::new(params.rows, params.rows_per_cta, params.lanes_log2);
    if walk.vector >= params.vectors {
        return;
    }
    let x = walk.vectors_of(params.x);
    let y = Output::of::<V>(&walk, params.y, params.vectors, params.columns);
    // SAFETY: the launch contract.
    let columns = unsafe { read_columns::<V>(params, &walk) };
    let relu = params.flags & RELU != 0;
    let visit = |row, [x]: [[u32; 4]; 1]| {
        let mut values = V::from_bits(x).widen();
        let mut i = 0;
        while i < V::WIDTH as usize {
            let value = columns.get(i).output(values.get(i));
            // Not `max`, which would make a zero of a NaN.
            values = values.with(i, if relu && value < 0.0 { 0.0 } else { value });
            i += 1;
        }
        // SAFETY: the row is of the walk.
        unsafe { y.write::<V>(row, values) };
    };
    // SAFETY: the launch contract.
    unsafe { walk.for_each([x], params.vectors, visit) };
}

/// The gradient of `x`, times the row's factor, in the place of that of the output.
///
/// # Safety
/// The launch contract of [`NormalizeParams`].
#[inline(always)]
pub unsafe fn normalize_backward<V: Vector<Bits = [u32; 4]>>(params: &NormalizeParams) {
    let walk = Walk::new(params.rows, params.rows_per_cta, params.lanes_log2);
    if walk.vector >= params.vectors {
        return;
    }
    let x = walk.vectors_of(params.x);
    let dx = Output::of::<V>(&walk, params.y, params.vectors, params.columns);
    let reciprocal_count = 1.0 / params.rows as f32;
    // SAFETY: the launch contract.
    let (columns, mean_dy, mean_product) = unsafe {
        let mean = |sums| {
            parameters::<V>(Global::new(sums), walk.vector, params.float_vectors)
                .map(|sum| normalize::mean(sum, reciprocal_count))
        };
        (
            read_columns::<V>(params, &walk),
            mean(params.bias_gradient),
            mean(params.weight_gradient),
        )
    };
    let relu = params.flags & RELU != 0;
    let visit = |row, [x, d]: [[u32; 4]; 2]| {
        // SAFETY: the launch contract; the row is of the walk.
        let scale = unsafe { row_factor(params.scale, params.row_scale, row) };
        let (values, mut gradients) = (V::from_bits(x).widen(), V::from_bits(d).widen());
        let mut i = 0;
        while i < V::WIDTH as usize {
            let (column, value) = (columns.get(i), values.get(i));
            let dy = column.before_relu(relu, value, gradients.get(i));
            let means = [mean_dy.get(i), mean_product.get(i)];
            let gradient = scale * column.gradient(value, dy, means);
            gradients = gradients.with(i, gradient);
            i += 1;
        }
        // SAFETY: the row is of the walk.
        unsafe { dx.write::<V>(row, gradients) };
    };
    // SAFETY: the launch contract; a row of `d` is written when it has been visited.
    unsafe { walk.for_each([x, dx.first], params.vectors, visit) };
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
pub unsafe fn combine<V: Vector<Bits = [u32; 4]>>(params: &CombineParams) {
    let walk = Walk::new(params.rows, params.rows_per_cta, params.lanes_log2);
    if walk.vector >= params.vectors {
        return;
    }
    let x = walk.vectors_of(params.x);
    let y = Output::of::<V>(&walk, params.y, params.vectors, params.columns);
    let epsilon = Global::<f32>::new(params.epsilon);
    let mut x_factor = params.x_factor;
    if !epsilon.is_null() {
        // SAFETY: where it is not null there is a float.
        x_factor *= 1.0 + unsafe { epsilon.read() };
    }
    let before = if params.y_factor != 0.0 {
        y.first
    } else {
        Global::at_address(0)
    };
    let visit = |row, [x, before]: [[u32; 4]; 2]| {
        // SAFETY: the launch contract; the row is of the walk.
        let factor = unsafe { row_factor(x_factor, params.x_scale, row) };
        let (x, before) = (V::from_bits(x).widen(), V::from_bits(before).widen());
        let values = x.zip(before, |x, y| {
            normalize::combine(factor, x, params.y_factor, y)
        });
        // SAFETY: the row is of the walk.
        unsafe { y.write::<V>(row, values) };
    };
    // SAFETY: the launch contract; a row of `y` is written when it has been visited.
    unsafe { walk.for_each([x, before], params.vectors, visit) };
}
