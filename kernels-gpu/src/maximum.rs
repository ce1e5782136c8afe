//! Maxima of two matrices and of the rows of groups, and their gradients.

use crate::device::global::Global;
use crate::device::thread::{block_idx_x, thread_idx_x};
use crate::device::vector::{Floats, Vector, load, store};
use halfgnn_contract::elementwise::{THREADS_PER_CTA, row_in_cta};
use halfgnn_contract::maximum::{
    GroupMaximumParams, MaximumParams, VECTORS_PER_CTA, larger, share,
};

/// The functions that the entries are, by name.
pub mod family {
    pub use super::{
        backward as maximum_backward, forward as maximum, group_backward as group_maximum_backward,
        group_forward as group_maximum,
    };
}

/// # Safety
/// The launch contract of [`MaximumParams`]: a CTA for each [`VECTORS_PER_CTA`] vectors.
#[inline(always)]
pub unsafe fn forward<V: Vector>(params: &MaximumParams) {
    for_vectors(params, |at| {
        // SAFETY: `at` is a vector of the matrices, the thread's own.
        unsafe {
            let largest = load::<V>(params.x, at).zip(load::<V>(params.y, at), larger);
            store::<V>(params.y, at, largest);
        }
    });
}

/// # Safety
/// The launch contract of [`MaximumParams`]: a CTA for each [`VECTORS_PER_CTA`] vectors.
#[inline(always)]
pub unsafe fn backward<V: Vector>(params: &MaximumParams) {
    for_vectors(params, |at| {
        // SAFETY: `at` is a vector of the matrices, the thread's own.
        unsafe {
            let (x, y) = (load::<V>(params.x, at), load::<V>(params.y, at));
            let [dx, left] = shares::<V>(x, y, load::<V>(params.d, at));
            store::<V>(params.dx, at, dx);
            store::<V>(params.d, at, left);
        }
    });
}

/// # Safety
/// The launch contract of [`GroupMaximumParams`]: a CTA for each `groups_per_cta` groups.
#[inline(always)]
pub unsafe fn group_forward<V: Vector>(params: &GroupMaximumParams) {
    // SAFETY: the caller's promise.
    unsafe {
        for_groups(params, |to, first, rows| {
            let mut largest = V::Floats::ZERO;
            if rows > 0 {
                largest = load::<V>(params.x, first);
            }
            let mut row = 1;
            while row < rows {
                let at = first + row as u64 * params.vectors as u64;
                largest = load::<V>(params.x, at).zip(largest, larger);
                row += 1;
            }
            store::<V>(params.y, to, largest);
        });
    }
}

/// # Safety
/// The launch contract of [`GroupMaximumParams`]: a CTA for each `groups_per_cta` groups.
#[inline(always)]
pub unsafe fn group_backward<V: Vector>(params: &GroupMaximumParams) {
    // SAFETY: the caller's promise.
    unsafe {
        for_groups(params, |to, first, rows| {
            let largest = load::<V>(params.y, to);
            let mut left = load::<V>(params.d, to);
            let mut row = 0;
            while row < rows {
                let at = first + row as u64 * params.vectors as u64;
                let [dx, rest] = shares::<V>(load::<V>(params.x, at), largest, left);
                store::<V>(params.dx, at, dx);
                left = rest;
                row += 1;
            }
        });
    }
}

/// What each element takes of a gradient, and what it leaves.
#[inline(always)]
fn shares<V: Vector>(x: V::Floats, largest: V::Floats, d: V::Floats) -> [V::Floats; 2] {
    let (mut taken, mut left) = (d, d);
    let mut i = 0;
    while i < V::WIDTH as usize {
        let [own, rest] = share(x.get(i), largest.get(i), d.get(i));
        taken = taken.with(i, own);
        left = left.with(i, rest);
        i += 1;
    }
    [taken, left]
}

/// Calls `f` with each vector of the CTA, a thread each.
#[inline(always)]
fn for_vectors(params: &MaximumParams, f: impl Fn(u64)) {
    let first = block_idx_x() as u64 * VECTORS_PER_CTA as u64;
    let mut i = thread_idx_x();
    while i < VECTORS_PER_CTA && first + (i as u64) < params.vectors {
        f(first + i as u64);
        i += THREADS_PER_CTA;
    }
}

/// Calls `f` with each vector of the rows of the CTA's groups, a thread each: its place in the row of the group, its place in the
/// group's first row, and the group's rows.
///
/// # Safety
/// The launch contract of [`GroupMaximumParams`].
#[inline(always)]
unsafe fn for_groups(params: &GroupMaximumParams, f: impl Fn(u64, u64, u32)) {
    let first = block_idx_x() as u64 * params.groups_per_cta as u64;
    let groups = (params.count as u64 - first).min(params.groups_per_cta as u64) as u32;
    let mut i = thread_idx_x();
    while i < groups * params.vectors {
        let of_cta = row_in_cta(i, params.reciprocal);
        let (group, vector) = (first + of_cta as u64, i - of_cta * params.vectors);
        // SAFETY: `group` is one.
        let [_, _, rows, start] =
            unsafe { Global::<[u32; 4]>::new(params.groups).at(group).read() };
        let at = |row: u64| row * params.vectors as u64 + vector as u64;
        f(at(group), at(start as u64), rows);
        i += THREADS_PER_CTA;
    }
}
