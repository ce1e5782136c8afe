//! Float operands, float sums: `fma.rn.f32`, one after the other along `k`.
//!
//! The threads of a CTA form a grid over the tile, and each has `ROWS` × `COLUMNS` sums, so that a value read from
//! shared memory serves that many products.

use halfgnn_contract::VECTOR_BYTES;
use halfgnn_contract::matmul::{STEP_VECTORS, THREADS_PER_CTA, Tile, swizzle};

use super::operand::Layout;
use super::pipeline::{Layouts, Multiplier};
use crate::device::float::mul_add;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::thread::thread_idx_x;
use crate::device::vector::Float4;

/// Floats of a 16-byte vector.
const PER_VECTOR: u32 = 4;

/// Rows of a CTA's tile.
const TILE_ROWS: u32 = 128;

/// A thread's sums.
pub struct CudaCores<const ROWS: usize, const COLUMNS: usize> {
    sums: [[f32; COLUMNS]; ROWS],
}

impl<const ROWS: usize, const COLUMNS: usize> CudaCores<ROWS, COLUMNS> {
    /// Threads below one another.
    const DOWN: u32 = TILE_ROWS / ROWS as u32;
    /// Threads side by side: neighbours in a warp, which write neighbouring columns.
    const ACROSS: u32 = THREADS_PER_CTA / Self::DOWN;

    #[inline(always)]
    fn thread_row() -> u32 {
        thread_idx_x() / Self::ACROSS
    }

    #[inline(always)]
    fn thread_column() -> u32 {
        thread_idx_x() % Self::ACROSS
    }
}

/// Row or column of the tile that a thread has as its `i`-th, `thread` being its place among `threads`: every
/// `threads`-th where a vector runs along `k`, and every `threads`-th group of four where it runs across.
#[inline(always)]
fn owned<L: Layout>(i: u32, thread: u32, threads: u32) -> u32 {
    if L::ALONG_K {
        thread + threads * i
    } else {
        (thread + threads * (i / PER_VECTOR)) * PER_VECTOR + i % PER_VECTOR
    }
}

/// A vector of an operand's tile.
///
/// # Safety
/// A barrier follows the tile's arrival; row and vector lie in it.
#[inline(always)]
unsafe fn vector<L: Layout>(tile: Shared, row: u32, vector: u32, extent: u32) -> [f32; 4] {
    let place = swizzle(row, vector, L::tile_vectors(extent, PER_VECTOR));
    // SAFETY: the caller's promise.
    unsafe { tile.offset(place * VECTOR_BYTES).load_u32x4() }.map(f32::from_bits)
}

/// The thread's `N` values at one `k` of a tile that runs across `k`.
///
/// # Safety
/// As [`vector`].
#[inline(always)]
unsafe fn values_at<const N: usize>(
    tile: Shared,
    k: u32,
    thread: u32,
    threads: u32,
    extent: u32,
) -> [f32; N] {
    let mut values = [0.0; N];
    for i in 0..N / 4 {
        // SAFETY: the caller's promise.
        let four = unsafe {
            vector::<super::operand::AcrossK>(tile, k, thread + threads * i as u32, extent)
        };
        for j in 0..4 {
            values[4 * i + j] = four[j];
        }
    }
    values
}

impl<const ROWS: usize, const COLUMNS: usize> Multiplier for CudaCores<ROWS, COLUMNS> {
    type Vector = Float4;
    const TILE: Tile = Tile {
        rows: TILE_ROWS,
        columns: Self::ACROSS * COLUMNS as u32,
    };
    const ROWS: u32 = ROWS as u32;
    const COLUMNS: u32 = COLUMNS as u32;

    #[inline(always)]
    fn zero() -> Self {
        const {
            assert!(
                ROWS % 4 == 0 && COLUMNS % 4 == 0,
                "operands are loaded four values at a time"
            )
        };
        Self {
            sums: [[0.0; COLUMNS]; ROWS],
        }
    }

    #[inline(always)]
    unsafe fn step<L: Layouts>(&mut self, a: Shared, b: Shared) {
        let mut depth = 0;
        while depth < STEP_VECTORS {
            // A's values at four `k`, in either layout as rows of sums by `k`. Loops over indices: iterators
            // would leave the arrays in local memory.
            let mut a_values = [[0.0; 4]; ROWS];
            if L::A::ALONG_K {
                unroll!(i in 0..ROWS => {
                    let row = owned::<L::A>(i as u32, Self::thread_row(), Self::DOWN);
                    // SAFETY: the caller's promise.
                    a_values[i] = unsafe { vector::<L::A>(a, row, depth, Self::TILE.rows) };
                });
            } else {
                unroll!(k in 0..4 => {
                    // SAFETY: the caller's promise.
                    let column: [f32; ROWS] = unsafe {
                        values_at(a, depth * 4 + k as u32, Self::thread_row(), Self::DOWN, Self::TILE.rows)
                    };
                    for i in 0..ROWS {
                        a_values[i][k] = column[i];
                    }
                });
            }
            if L::B::ALONG_K {
                unroll!(j in 0..COLUMNS => {
                    let column = owned::<L::B>(j as u32, Self::thread_column(), Self::ACROSS);
                    // SAFETY: the caller's promise.
                    let b_values = unsafe { vector::<L::B>(b, column, depth, Self::TILE.columns) };
                    unroll!(k in 0..4 => {
                        for i in 0..ROWS {
                            self.sums[i][j] = mul_add(a_values[i][k], b_values[k], self.sums[i][j]);
                        }
                    });
                });
            } else {
                unroll!(k in 0..4 => {
                    // SAFETY: the caller's promise.
                    let b_values: [f32; COLUMNS] = unsafe {
                        values_at(b, depth * 4 + k as u32, Self::thread_column(), Self::ACROSS, Self::TILE.columns)
                    };
                    unroll!(i in 0..ROWS => {
                        for j in 0..COLUMNS {
                            self.sums[i][j] = mul_add(a_values[i][k], b_values[j], self.sums[i][j]);
                        }
                    });
                });
            }
            depth += 1;
        }
    }

    #[inline(always)]
    fn run<L: Layouts>() -> u32 {
        if L::B::ALONG_K { 1 } else { PER_VECTOR }
    }

    #[inline(always)]
    fn row<L: Layouts>(i: u32) -> u32 {
        owned::<L::A>(i, Self::thread_row(), Self::DOWN)
    }

    #[inline(always)]
    fn column<L: Layouts>(j: u32) -> u32 {
        owned::<L::B>(j, Self::thread_column(), Self::ACROSS)
    }

    #[inline(always)]
    fn sum(&mut self, i: u32, j: u32) -> &mut f32 {
        &mut self.sums[i as usize][j as usize]
    }
}
