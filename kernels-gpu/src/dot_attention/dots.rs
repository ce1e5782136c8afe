//! Dot products of a row with the columns of a step's edges, head by head.
//!
//! ```text
//!               lanes of a quad: an edge's vectors of one head of 64 columns; or of two, or of four heads
//!   B  16 × 8   ┌──┬──┬──┬──┐
//!               │  │  │  │  │ …   a column for each quad, as its lanes loaded it
//!   A  16 × 16  ├──┴──┴──┴──┤
//!     row 0     │ q         │     one head: the row's vectors, the next four lanes' in the next row of A
//!     rows 0, 1 │ q₀  0     │     two heads in a quad: zeros where the other head lies
//!               │ 0     q₁  │
//!               └───────────┘
//! ```
//!
//! The order of the columns within a sum is that of the lanes, the same in A and in B.

use crate::device::mma::Product;
use crate::device::registers::unroll;
use crate::device::vector::{self, Float4, Packed, Vector};
use crate::device::warp::{lane_id, shuffle_idx};
use crate::edge_walk::{Lane, QUAD};
use halfgnn_contract::edge_walk::EdgeWalk;
use halfgnn_contract::{DevicePtr, HalfBits};

/// Vectors that have such products.
pub trait Dots: Vector<Bits = [u32; 4]> {
    /// What a lane has of row `row` of a matrix for [`Dots::dots`].
    ///
    /// # Safety
    /// The launch contract; the matrix has the row.
    #[inline(always)]
    unsafe fn of_row<const R: usize>(
        walk: &EdgeWalk,
        lane: Lane<R>,
        matrix: DevicePtr<HalfBits>,
        row: u32,
    ) -> [Self; R] {
        // SAFETY: the caller's promise.
        unsafe { lane.load(walk, matrix, row) }
    }

    /// The products of `N` rows with as many columns, in each lane of the head.
    ///
    /// # Safety
    /// The launch contract; all lanes of the warp come together.
    unsafe fn dots<const R: usize, const N: usize>(
        walk: &EdgeWalk,
        lane: Lane<R>,
        rows: [&[Self; R]; N],
        columns: [&[Self; R]; N],
    ) -> [f32; N];
}

/// The lane's part of a dot product. Each vector has a sum of its own, so that the additions overlap.
#[inline(always)]
pub fn dot<V: Vector, const R: usize>(a: &[V; R], b: &[V; R]) -> f32 {
    let mut sum = 0.0;
    unroll!(load in 0..R => {
        sum += vector::dot::<V>(0.0, a[load].widen(), b[load].widen());
    });
    sum
}

impl Dots for Float4 {
    #[inline(always)]
    unsafe fn dots<const R: usize, const N: usize>(
        walk: &EdgeWalk,
        lane: Lane<R>,
        rows: [&[Self; R]; N],
        columns: [&[Self; R]; N],
    ) -> [f32; N] {
        let mut dots = [0.0; N];
        unroll!(i in 0..N => {
            dots[i] = dot(rows[i], columns[i]);
        });
        // SAFETY: the caller's promise.
        unsafe { lane.sum(walk, dots, 1) }
    }
}

impl<P: Product> Dots for Packed<P, 4> {
    #[inline(always)]
    unsafe fn of_row<const R: usize>(
        walk: &EdgeWalk,
        lane: Lane<R>,
        matrix: DevicePtr<HalfBits>,
        row: u32,
    ) -> [Self; R] {
        // SAFETY: the caller's promise.
        unsafe { lane.load_for_product(walk, matrix, row) }
    }

    #[inline(always)]
    unsafe fn dots<const R: usize, const N: usize>(
        walk: &EdgeWalk,
        lane: Lane<R>,
        rows: [&[Self; R]; N],
        columns: [&[Self; R]; N],
    ) -> [f32; N] {
        let mut dots = [0.0; N];
        unroll!(i in 0..N => {
            let mut sums = [0.0; 4];
            unroll!(load in 0..R => {
                let a = rows[i][load].to_bits();
                let b = columns[i][load].to_bits();
                // SAFETY: the caller's promise.
                unsafe {
                    P::multiply_add(&mut sums, [a[0], 0, a[1], 0], [b[0], b[1]]);
                    P::multiply_add(&mut sums, [a[2], 0, a[3], 0], [b[2], b[3]]);
                }
            });
            // SAFETY: likewise.
            let [even, odd] = unsafe {
                [
                    shuffle_idx(sums[0], lane.from),
                    shuffle_idx(sums[1], lane.from),
                ]
            };
            dots[i] = if lane_id() / QUAD % 2 == 0 { even } else { odd };
        });
        // SAFETY: likewise.
        unsafe { lane.sum(walk, dots, QUAD) }
    }
}
