//! The normalised matrix, its gradient, and weighted sums of two matrices.

use super::walk::{Columns, Walk, parameters};
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::block_idx_y;
use crate::device::vector::{Floats, Vector, without_padding};
use crate::quantize::Coder;
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::normalize::{self, CombineParams, NormalizeParams, RELU, walk_shared_bytes};
use halfgnn_contract::quantize::{CodeFormat, INT8};
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
    let [x, d] = [params.x, params.y].map(|matrix| walk.vectors_of(matrix));
    let dx = Output::of::<V>(&walk, params.y, params.vectors, params.columns);
    let visit = |row, gradient: V::Floats| {
        // SAFETY: the row is of the walk.
        unsafe { dx.write::<V>(row, gradient) };
    };
    // SAFETY: the launch contract; a row of `d` is written when it has been visited.
    unsafe { for_each_gradient::<V>(params, &walk, [x, d], visit) };
}

/// [`normalize_backward`], and codes of what it stores.
///
/// # Safety
/// The launch contract of [`NormalizeParams`].
#[inline(always)]
pub unsafe fn normalize_backward_coded<V: Vector<Bits = [u32; 4]>>(params: &NormalizeParams) {
    // SAFETY: the caller's promise.
    unsafe {
        if params.codes.format == INT8 {
            coded::<V, true>(params)
        } else {
            coded::<V, false>(params)
        }
    }
}

/// Of either format: a type of its own for what visits rows, or it would be a function that two call.
///
/// # Safety
/// The launch contract; all threads of a CTA come together.
#[inline(always)]
unsafe fn coded<V: Vector<Bits = [u32; 4]>, const IS_INT8: bool>(params: &NormalizeParams) {
    let format = if IS_INT8 {
        CodeFormat::Int8
    } else {
        CodeFormat::E4m3
    };
    let mut walk = Walk::new(params.rows, params.rows_per_cta, params.lanes_log2);
    let codes = &params.codes;
    // SAFETY: the launch contract.
    let mut coder = unsafe { Coder::<V>::new(codes, format, walk.vector, params.columns) };
    let has_elements = walk.vector < params.vectors;
    if !has_elements && !coder.has_codes(codes) {
        // Nothing to do but to come to the barrier.
        walk.end = 0;
    }
    let matrices = [params.x, params.y].map(|matrix| {
        if has_elements {
            walk.vectors_of(matrix)
        } else {
            Global::at_address(0)
        }
    });
    let dx = Output::of::<V>(&walk, params.y, params.vectors, params.columns);
    let has_codes = coder.has_codes(codes);
    let visit = |row, gradient: V::Floats| {
        let stored = V::narrow(without_padding::<V>(gradient, dx.column, params.columns));
        // SAFETY: the row is of the walk, and has the vector.
        unsafe {
            if has_elements {
                let place = dx.first.at(row * params.vectors as u64);
                place.store(stored.to_bits());
            }
            if has_codes {
                coder.code(codes, row, stored.widen());
            }
        }
    };
    let room = Shared::base().offset(walk_shared_bytes(2));
    // SAFETY: the launch contract; a row of `d` is written when it has been visited. The room lies behind that of the walk.
    unsafe {
        for_each_gradient::<V>(params, &walk, matrices, visit);
        let first_vector = block_idx_y() << params.lanes_log2;
        coder.finish::<THREADS_PER_CTA>(codes, room, params.lanes_log2, first_vector);
    }
}

/// Calls `visit` with what a thread has of the gradient of `x`, times the row's factor, of each of its rows.
///
/// # Safety
/// The launch contract of [`NormalizeParams`]; `matrices` are the thread's vectors of the first rows of `x` and `d`, or null, and
/// nothing writes a row before it is visited.
#[inline(always)]
unsafe fn for_each_gradient<V: Vector<Bits = [u32; 4]>>(
    params: &NormalizeParams,
    walk: &Walk,
    matrices: [Global<[u32; 4]>; 2],
    mut visit: impl FnMut(u64, V::Floats),
) {
    let reciprocal_count = 1.0 / params.rows as f32;
    // SAFETY: the launch contract.
    let (columns, mean_dy, mean_product) = unsafe {
        let mean = |sums| {
            parameters::<V>(Global::new(sums), walk.vector, params.float_vectors)
                .map(|sum| normalize::mean(sum, reciprocal_count))
        };
        (
            read_columns::<V>(params, walk),
            mean(params.bias_gradient),
            mean(params.weight_gradient),
        )
    };
    let relu = params.flags & RELU != 0;
    let each = |row, [x, d]: [[u32; 4]; 2]| {
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
        visit(row, gradients);
    };
    // SAFETY: the caller's promise.
    unsafe { walk.for_each(matrices, params.vectors, each) };
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
