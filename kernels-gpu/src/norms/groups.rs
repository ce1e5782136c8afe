//! Rows of groups, a chunk a CTA: sums over columns, the normalised matrix and its gradient.

use crate::device::float::mul_add;
use crate::device::global::Global;
use crate::device::thread::block_idx_x;
use crate::device::vector::{Floats, Vector};
use crate::normalize::{Columns, Output, Walk, leave, parameters};
use halfgnn_contract::DevicePtr;
use halfgnn_contract::normalize::{MomentsParams, RELU};
use halfgnn_contract::norms::{GroupsParams, STATISTICS_ROWS, TERMS_ROWS, gradient};

/// What a CTA works on.
#[derive(Clone, Copy)]
struct Chunk {
    first: u64,
    end: u64,
    group: u64,
    first_of_group: u64,
}

impl Chunk {
    /// That of this CTA.
    ///
    /// # Safety
    /// The launch contract of [`GroupsParams`].
    #[inline(always)]
    unsafe fn of(params: &GroupsParams) -> Self {
        let chunk = Global::<[u32; 4]>::new(params.chunks).at(block_idx_x() as u64);
        // SAFETY: a CTA for each chunk.
        let [first, end, group, first_of_group] = unsafe { chunk.read() };
        Self {
            first: first as u64,
            end: end as u64,
            group: group as u64,
            first_of_group: first_of_group as u64,
        }
    }

    #[inline(always)]
    fn walk(&self, params: &GroupsParams) -> Walk {
        Walk::of_rows(self.first, self.end, params.lanes_log2)
    }

    /// # Safety
    /// The launch contract of [`GroupsParams`], of a kernel that has statistics.
    #[inline(always)]
    unsafe fn columns<V: Vector>(&self, params: &GroupsParams, walk: &Walk) -> Columns<V> {
        let rows = self.group * STATISTICS_ROWS as u64;
        let statistics =
            Global::<[u32; 4]>::new(params.statistics).at(rows * params.float_vectors as u64);
        let affine = [params.weight, params.bias];
        // SAFETY: the caller's promise.
        unsafe { Columns::of_group(statistics, affine, walk.vector, params.float_vectors) }
    }
}

/// The parameters of [`leave`].
#[inline(always)]
fn planes(params: &GroupsParams) -> MomentsParams {
    MomentsParams {
        x: params.x,
        d: params.y,
        partials: params.partials,
        statistics: DevicePtr::NULL,
        weight: DevicePtr::NULL,
        bias: DevicePtr::NULL,
        rows: 0,
        rows_per_cta: 0,
        columns: params.columns,
        vectors: params.vectors,
        float_vectors: params.float_vectors,
        flags: 0,
        lanes_log2: params.lanes_log2,
    }
}

/// Sums of `x` less the first row of the group, and of its square.
///
/// # Safety
/// The launch contract of [`GroupsParams`].
#[inline(always)]
pub unsafe fn moments<V: Vector<Bits = [u32; 4]>>(params: &GroupsParams) {
    // SAFETY: the launch contract.
    let chunk = unsafe { Chunk::of(params) };
    let walk = chunk.walk(params);
    let mut sums = [V::Floats::ZERO; 2];
    if walk.vector < params.vectors {
        let x = walk.vectors_of(params.x);
        let first = x.at(chunk.first_of_group * params.vectors as u64);
        // SAFETY: a vector of a row of the matrix.
        let shift = V::from_bits(unsafe { first.read() }).widen();
        let visit = |_, [x]: [[u32; 4]; 1]| {
            let values = V::from_bits(x).widen();
            let values = values.zip(shift, |value, shift| value - shift);
            sums[0] = sums[0].zip(values, |sum, value| sum + value);
            sums[1] = sums[1].zip(values, |sum, value| mul_add(value, value, sum));
        };
        // SAFETY: the launch contract; the merging of sums waits for all threads.
        unsafe { walk.for_each([x], params.vectors, visit) };
    }
    // SAFETY: every thread of the CTA comes through here.
    unsafe { leave::<V>(&planes(params), &walk, sums) }
}

/// Sums of the gradient of the output, and of its product with the normalised `x`.
///
/// # Safety
/// The launch contract of [`GroupsParams`].
#[inline(always)]
pub unsafe fn moments_backward<V: Vector<Bits = [u32; 4]>>(params: &GroupsParams) {
    // SAFETY: the launch contract.
    let chunk = unsafe { Chunk::of(params) };
    let walk = chunk.walk(params);
    let mut sums = [V::Floats::ZERO; 2];
    if walk.vector < params.vectors {
        let (x, d) = (walk.vectors_of(params.x), walk.vectors_of(params.y));
        // SAFETY: the launch contract.
        let columns = unsafe { chunk.columns::<V>(params, &walk) };
        let visit = |_, [x, d]: [[u32; 4]; 2]| {
            let (values, gradients) = (V::from_bits(x).widen(), V::from_bits(d).widen());
            let mut i = 0;
            while i < V::WIDTH as usize {
                let dy = gradients.get(i);
                sums[0] = sums[0].with(i, sums[0].get(i) + dy);
                let normalized = columns.get(i).normalized(values.get(i));
                sums[1] = sums[1].with(i, mul_add(dy, normalized, sums[1].get(i)));
                i += 1;
            }
        };
        // SAFETY: as in `moments`.
        unsafe { walk.for_each([x, d], params.vectors, visit) };
    }
    // SAFETY: every thread of the CTA comes through here.
    unsafe { leave::<V>(&planes(params), &walk, sums) }
}

/// `y = weight · (x − shift) · reciprocal + bias`, cut off at zero where that is asked for.
///
/// # Safety
/// The launch contract of [`GroupsParams`].
#[inline(always)]
pub unsafe fn forward<V: Vector<Bits = [u32; 4]>>(params: &GroupsParams) {
    // SAFETY: the launch contract.
    let chunk = unsafe { Chunk::of(params) };
    let walk = chunk.walk(params);
    if walk.vector >= params.vectors {
        return;
    }
    let x = walk.vectors_of(params.x);
    let y = Output::of::<V>(&walk, params.y, params.vectors, params.columns);
    // SAFETY: the launch contract.
    let columns = unsafe { chunk.columns::<V>(params, &walk) };
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

/// The gradient of `x` in the place of that of the output.
///
/// # Safety
/// The launch contract of [`GroupsParams`].
#[inline(always)]
pub unsafe fn backward<V: Vector<Bits = [u32; 4]>>(params: &GroupsParams) {
    // SAFETY: the launch contract.
    let chunk = unsafe { Chunk::of(params) };
    let walk = chunk.walk(params);
    if walk.vector >= params.vectors {
        return;
    }
    let x = walk.vectors_of(params.x);
    let dx = Output::of::<V>(&walk, params.y, params.vectors, params.columns);
    let row = params.float_vectors as u64;
    let terms = Global::<[u32; 4]>::new(params.terms).at(chunk.group * TERMS_ROWS as u64 * row);
    // SAFETY: the launch contract.
    let (columns, shift, slope) = unsafe {
        (
            chunk.columns::<V>(params, &walk),
            parameters::<V>(terms, walk.vector, params.float_vectors),
            parameters::<V>(terms.at(row), walk.vector, params.float_vectors),
        )
    };
    let visit = |row, [x, d]: [[u32; 4]; 2]| {
        let (values, mut gradients) = (V::from_bits(x).widen(), V::from_bits(d).widen());
        let mut i = 0;
        while i < V::WIDTH as usize {
            let column = columns.get(i);
            let factor = column.weight * column.reciprocal;
            let normalized = column.normalized(values.get(i));
            let terms = [shift.get(i), slope.get(i)];
            gradients = gradients.with(i, gradient(factor, gradients.get(i), normalized, terms));
            i += 1;
        }
        // SAFETY: the row is of the walk.
        unsafe { dx.write::<V>(row, gradients) };
    };
    // SAFETY: the launch contract; a row of `d` is written when it has been visited.
    unsafe { walk.for_each([x, dx.first()], params.vectors, visit) };
}
