//! Sums of the rows of an edge's ends and of its own, and functions of them.

use crate::device::registers::unroll;
use crate::device::vector::{Floats, Vector};
use crate::edge_walk::{Edge, Lane, Sum};
use halfgnn_contract::edge_walk::EdgeWalk;
use halfgnn_contract::{DevicePtr, HalfBits};

/// The lane's vectors of a row of a matrix; zeros where there is none.
///
/// # Safety
/// The launch contract; it is a row.
#[inline(always)]
pub unsafe fn row_of<V: Vector<Bits = [u32; 4]>, const R: usize>(
    walk: &EdgeWalk,
    lane: Lane<R>,
    matrix: DevicePtr<HalfBits>,
    row: u32,
) -> [V; R] {
    if matrix.is_null() {
        return [V::zero(); R];
    }
    // SAFETY: the caller's promise.
    unsafe { lane.load(walk, matrix, row) }
}

/// The row's vectors, and those of the edge in two matrices of a step: that of the column, and that of the edge.
///
/// # Safety
/// The ring has advanced to the edge's step.
#[inline(always)]
pub unsafe fn sum_of_rows<V: Vector<Bits = [u32; 4]>, const R: usize>(
    of_row: &[V; R],
    edge: &Edge<R>,
    matrices: [usize; 2],
) -> Sum<V, R> {
    let mut sum = [V::Floats::ZERO; R];
    // SAFETY: the caller's promise.
    let [column, own] = matrices.map(|matrix| unsafe { edge.row::<V>(matrix) });
    unroll!(load in 0..R => {
        let [row, column, own] = [of_row[load], column[load], own[load]].map(V::widen);
        sum[load] = row.zip(column, |a, b| a + b).zip(own, |a, b| a + b);
    });
    sum
}

/// What a function of an activation's number makes of each element.
#[inline(always)]
pub fn each<V: Vector, const R: usize, const N: usize>(
    of: Sum<V, R>,
    act: u32,
    f: impl Fn(u32, f32) -> [f32; N],
) -> [Sum<V, R>; N] {
    let mut found = [of; N];
    // A branch for all elements, not for each: the number is then a constant to what is inlined.
    macro_rules! branches {
        ($($number:literal)*) => {
            match act {
                $($number => branches!(@ $number),)*
                _ => branches!(@ 0),
            }
        };
        (@ $number:literal) => {{
            unroll!(load in 0..R => {
                let mut i = 0;
                while i < V::WIDTH as usize {
                    let results = f($number, of[load].get(i));
                    unroll!(result in 0..N => {
                        found[result][load] = found[result][load].with(i, results[result]);
                    });
                    i += 1;
                }
            });
        }};
    }
    branches!(1 2 3 4 5);
    found
}
