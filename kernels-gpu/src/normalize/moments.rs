//! Sums over columns, a block of rows a CTA: of elements and their squares, or of gradients and their products.

use super::walk::{Columns, Walk};
use crate::device::float::mul_add;
use crate::device::global::Global;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, sync_threads, thread_idx_x};
use crate::device::vector::{Floats, Vector};
use halfgnn_contract::elementwise::THREADS_PER_CTA;
use halfgnn_contract::normalize::{MomentsParams, NORMALIZED, RELU};

/// Sums of `x - x[0]` and of its square.
///
/// # Safety
/// The launch contract of [`MomentsParams`].
#[inline(always)]
pub unsafe fn forward<V: Vector<Bits = [u32; 4]>>(params: &MomentsParams) {
    let walk = Walk::new(params.rows, params.rows_per_cta, params.lanes_log2);
    let mut sums = [V::Floats::ZERO; 2];
    if walk.vector < params.vectors {
        let x = walk.vectors_of(params.x);
        // SAFETY: a vector of the first row; a CTA without rows is not launched.
        let shift = V::from_bits(unsafe { x.read() }).widen();
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
    unsafe { leave::<V>(params, &walk, sums) }
}

/// Sums of `d`, where the output was not cut off, and of its product with `x` as it is or normalised.
///
/// # Safety
/// The launch contract of [`MomentsParams`].
#[inline(always)]
pub unsafe fn backward<V: Vector<Bits = [u32; 4]>>(params: &MomentsParams) {
    let walk = Walk::new(params.rows, params.rows_per_cta, params.lanes_log2);
    let mut sums = [V::Floats::ZERO; 2];
    if walk.vector < params.vectors {
        let x = walk.vectors_of(params.x);
        let d = walk.vectors_of(params.d);
        let columns = if params.flags & NORMALIZED != 0 {
            let rows = [params.statistics, params.weight, params.bias];
            // SAFETY: the launch contract.
            unsafe { Columns::<V>::read(rows, walk.vector, params.float_vectors) }
        } else {
            Columns::IDENTITY
        };
        let relu = params.flags & RELU != 0;
        let visit = |_, [x, d]: [[u32; 4]; 2]| {
            let (values, gradients) = (V::from_bits(x).widen(), V::from_bits(d).widen());
            let mut i = 0;
            while i < V::WIDTH as usize {
                let (column, value) = (columns.get(i), values.get(i));
                let dy = column.before_relu(relu, value, gradients.get(i));
                sums[0] = sums[0].with(i, sums[0].get(i) + dy);
                let sum = mul_add(dy, column.normalized(value), sums[1].get(i));
                sums[1] = sums[1].with(i, sum);
                i += 1;
            }
        };
        // SAFETY: as in `forward`.
        unsafe { walk.for_each([x, d], params.vectors, visit) };
    }
    // SAFETY: every thread of the CTA comes through here.
    unsafe { leave::<V>(params, &walk, sums) }
}

/// Adds up what the threads of a vector have, in their order, and writes the CTA's two planes.
///
/// # Safety
/// The launch contract of [`MomentsParams`], and every thread of the CTA calls it.
#[inline(always)]
pub unsafe fn leave<V: Vector>(params: &MomentsParams, walk: &Walk, mut sums: [V::Floats; 2]) {
    // SAFETY: the caller's promise. From here on shared memory is no longer the walk's.
    unsafe { sync_threads() };
    let mut i = 0;
    while i < V::WIDTH {
        // SAFETY: two words for each element of each thread.
        unsafe {
            word(i, thread_idx_x()).store_f32(sums[0].get(i as usize));
            word(V::WIDTH + i, thread_idx_x()).store_f32(sums[1].get(i as usize));
        }
        i += 1;
    }
    // SAFETY: the caller's promise.
    unsafe { sync_threads() };
    if walk.group > 0 || walk.vector >= params.vectors {
        return;
    }
    let lanes = 1 << params.lanes_log2;
    let mut other = thread_idx_x() + lanes;
    while other < THREADS_PER_CTA {
        let mut i = 0;
        while i < V::WIDTH {
            let at = i as usize;
            // SAFETY: the thread stored them before the barrier.
            let [first, second] = unsafe {
                [
                    word(i, other).load_f32(),
                    word(V::WIDTH + i, other).load_f32(),
                ]
            };
            sums[0] = sums[0].with(at, sums[0].get(at) + first);
            sums[1] = sums[1].with(at, sums[1].get(at) + second);
            i += 1;
        }
        other += lanes;
    }
    let plane = params.float_vectors as u64 * 4;
    let out = Global::<f32>::new(params.partials).at(2 * block_idx_x() as u64 * plane);
    let mut i = 0;
    while i < V::WIDTH {
        let column = walk.column::<V>() + i as u64;
        // A float row may be shorter than a half row's padding, which is zero in every operand.
        if column < plane {
            let known = column < params.columns as u64;
            let [first, second] = [0, 1].map(|plane: usize| {
                if known {
                    sums[plane].get(i as usize)
                } else {
                    0.0
                }
            });
            // SAFETY: the thread's own elements of the CTA's planes.
            unsafe {
                out.at(column).store(first);
                out.at(plane + column).store(second);
            }
        }
        i += 1;
    }
}

/// The shared word of one element of one thread; consecutive threads use consecutive banks.
#[inline(always)]
fn word(element: u32, thread: u32) -> Shared {
    Shared::base().offset((element * THREADS_PER_CTA + thread) * 4)
}
