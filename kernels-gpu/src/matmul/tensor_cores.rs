//! Operands of 16 bits, float sums: `ldmatrix` and `mma.sync`.
//!
//! The four warps of a CTA lie below one another; each has `M_TILES` × `N_TILES` tiles of 16 × 8 sums.

use core::marker::PhantomData;

use halfgnn_contract::VECTOR_BYTES;
use halfgnn_contract::matmul::{STEP_VECTORS, Tile, WARPS_PER_CTA, swizzle};

use super::operand::Layout;
use super::pipeline::{Layouts, Multiplier};
use crate::device::mma::{self, FragmentB, FragmentC, Product};
use crate::device::registers::{recomputed, unroll};
use crate::device::shared::Shared;
use crate::device::vector::Packed;
use crate::device::warp::{lane_id, warp_id};

/// Elements of a 16-byte vector.
const PER_VECTOR: u32 = 8;

/// A warp's sums.
pub struct TensorCores<P, const M_TILES: usize, const N_TILES: usize> {
    sums: [[FragmentC; N_TILES]; M_TILES],
    elements: PhantomData<P>,
}

/// Which operand of the product a block is for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Registers 0 and 1 are neighbours along the rows of C, 0 and 2 along `k`.
    A,
    /// Two fragments: registers 0 and 1 are neighbours along `k`, 0 and 2 along the columns of C.
    B,
}

/// How a lane finds its part of the 16 × 16 blocks of an operand's tile.
#[derive(Clone, Copy)]
struct Lane {
    /// First byte of the tile.
    tile: Shared,
    /// Offset in bytes of the row of an 8 × 8 tile that the lane names, in the block at the tile's beginning.
    offset: u32,
    /// 16-byte vectors in a row of the tile.
    tile_vectors: u32,
}

impl Lane {
    #[inline(always)]
    fn new<L: Layout>(tile: Shared, role: Role, extent: u32) -> Self {
        let tile_vectors = L::tile_vectors(extent, PER_VECTOR);
        // The second of the four 8 × 8 tiles lies below the first if A's rows are rows of memory or B's `k` is.
        let (quarter, half) = (lane_id() / 8 % 2, lane_id() / 16);
        let (down, right) = if L::ALONG_K == (role == Role::A) {
            (quarter, half)
        } else {
            (half, quarter)
        };
        let offset = swizzle(lane_id() % 8 + 8 * down, right, tile_vectors) * VECTOR_BYTES;
        Self {
            tile,
            offset: recomputed(offset),
            tile_vectors,
        }
    }

    /// The block that begins at `row` of the tile, a multiple of 16, and at `vector` of the row, an even number.
    ///
    /// What `swizzle` adds for it: 16 rows change no mask, and an even vector has no bit in common with the lane's own.
    #[inline(always)]
    fn block(self, row: u32, vector: u32) -> Shared {
        self.tile.offset(
            (self.offset ^ (vector * VECTOR_BYTES)) + row * self.tile_vectors * VECTOR_BYTES,
        )
    }

    /// The block at `outer`, a row or column of the tile, and `depth`, a vector of `k`.
    ///
    /// # Safety
    /// All lanes make this call, after a barrier that follows the tile's arrival.
    #[inline(always)]
    unsafe fn load<L: Layout>(self, outer: u32, depth: u32) -> [u32; 4] {
        // SAFETY: the caller's promise; the address lies in the tile and is aligned to 16 bytes.
        unsafe {
            if L::ALONG_K {
                mma::load_tiles(self.block(outer, depth))
            } else {
                mma::load_tiles_transposed(self.block(depth * PER_VECTOR, outer / PER_VECTOR))
            }
        }
    }
}

impl<P: Product, const M_TILES: usize, const N_TILES: usize> Multiplier
    for TensorCores<P, M_TILES, N_TILES>
{
    type Vector = Packed<P, 4>;
    const TILE: Tile = Tile {
        rows: WARPS_PER_CTA * 16 * M_TILES as u32,
        columns: 8 * N_TILES as u32,
    };
    const ROWS: u32 = 2 * M_TILES as u32;
    const COLUMNS: u32 = 2 * N_TILES as u32;

    #[inline(always)]
    fn zero() -> Self {
        const { assert!(N_TILES % 2 == 0, "B is loaded two fragments at a time") };
        Self {
            sums: [[[0.0; 4]; N_TILES]; M_TILES],
            elements: PhantomData,
        }
    }

    #[inline(always)]
    unsafe fn step<L: Layouts>(&mut self, a: Shared, b: Shared) {
        let first_row = warp_id() * 16 * M_TILES as u32;
        let a = Lane::new::<L::A>(a, Role::A, Self::TILE.rows);
        let b = Lane::new::<L::B>(b, Role::B, Self::TILE.columns);
        let mut depth = 0;
        while depth < STEP_VECTORS {
            // Loops over indices: iterators would leave the arrays in local memory.
            let mut a_fragments = [[0; 4]; M_TILES];
            for i in 0..M_TILES {
                // SAFETY: the caller's promise; the loops are the same for all lanes.
                a_fragments[i] = unsafe { a.load::<L::A>(first_row + 16 * i as u32, depth) };
            }
            let mut b_fragments: [FragmentB; N_TILES] = [[0; 2]; N_TILES];
            for j in 0..N_TILES / 2 {
                // SAFETY: as above.
                let pair = unsafe { b.load::<L::B>(16 * j as u32, depth) };
                b_fragments[2 * j] = [pair[0], pair[1]];
                b_fragments[2 * j + 1] = [pair[2], pair[3]];
            }
            unroll!(i in 0..M_TILES => {
                for j in 0..N_TILES {
                    // SAFETY: as above.
                    unsafe { P::multiply_add(&mut self.sums[i][j], a_fragments[i], b_fragments[j]) };
                }
            });
            depth += 2;
        }
    }

    #[inline(always)]
    fn run<L: Layouts>() -> u32 {
        2
    }

    #[inline(always)]
    fn row<L: Layouts>(i: u32) -> u32 {
        warp_id() * 16 * M_TILES as u32 + i * 8 + lane_id() / 4
    }

    #[inline(always)]
    fn column<L: Layouts>(j: u32) -> u32 {
        j / 2 * 8 + lane_id() % 4 * 2 + j % 2
    }

    #[inline(always)]
    fn sum(&mut self, i: u32, j: u32) -> &mut f32 {
        &mut self.sums[i as usize / 2][j as usize / 2][(i % 2 * 2 + j % 2) as usize]
    }
}
