//! One operand's way from global to shared memory.
//!
//! A step's tile is `EXTENT` rows or columns of C by [`STEP_VECTORS`] 16-byte vectors of `k`, which makes the same
//! number of vectors either way it lies. Vectors outside the matrix arrive as zeros; those that straddle its edge end in
//! the padding, which is zero. So no later stage asks where the matrix ends.

use core::marker::PhantomData;

use halfgnn_contract::matmul::{
    MatmulParams, STEP_VECTORS, THREADS_PER_CTA, Tile, matrix_vector, swizzle,
};
use halfgnn_contract::{DevicePtr, HalfBits, VECTOR_BYTES};

use crate::device::async_copy;
use crate::device::registers::unroll;
use crate::device::shared::Shared;
use crate::device::thread::thread_idx_x;

/// Which way `k` runs in an operand.
pub trait Layout: Clone {
    /// Whether the elements of one sum are neighbours in memory.
    const ALONG_K: bool;

    /// 16-byte vectors in a row of a tile.
    #[inline(always)]
    fn tile_vectors(extent: u32, per_vector: u32) -> u32 {
        if Self::ALONG_K {
            STEP_VECTORS
        } else {
            extent / per_vector
        }
    }
}

/// Rows of the matrix run along `k`: A in `A·B` and `A·Bᵀ`, B in `A·Bᵀ`.
#[derive(Clone)]
pub struct AlongK;

/// Rows of the matrix run across `k`: B in `A·B` and `Aᵀ·B`, A in `Aᵀ·B`.
#[derive(Clone)]
pub struct AcrossK;

impl Layout for AlongK {
    const ALONG_K: bool = true;
}

impl Layout for AcrossK {
    const ALONG_K: bool = false;
}

/// What an operand is in global memory, and what becomes of its tiles when they have come to shared memory.
pub trait Source {
    /// Bytes of a vector in global memory: 16, or 8 of what is to be widened.
    const VECTOR_BYTES: u32 = VECTOR_BYTES;
    /// Whether anything becomes of them.
    const REWRITES: bool;
    /// Whether sums go on over a second pair of operands.
    const PAIR: bool = false;

    /// What is known of the `vector`-th vector of each of A's rows.
    ///
    /// # Safety
    /// The launch contract of a product of such an A.
    unsafe fn read(params: &MatmulParams, vector: u32) -> Self;

    /// What becomes of such a vector.
    fn apply(&self, bits: [u32; 4]) -> [u32; 4];
}

/// The elements themselves; with `PAIR`, behind the last of a sum those of another matrix.
pub struct Elements<const PAIR: bool>;

/// Of one pair of operands.
pub type Plain = Elements<false>;

/// Of two.
pub type Pair = Elements<true>;

impl<const PAIR: bool> Source for Elements<PAIR> {
    const REWRITES: bool = false;
    const PAIR: bool = PAIR;

    #[inline(always)]
    unsafe fn read(_: &MatmulParams, _: u32) -> Self {
        Self
    }

    #[inline(always)]
    fn apply(&self, bits: [u32; 4]) -> [u32; 4] {
        bits
    }
}

/// A matrix in global memory, and how it is cut into tiles.
#[derive(Clone, Copy)]
pub struct Operand {
    /// First element.
    pub data: DevicePtr<HalfBits>,
    /// Distance of two rows in vectors.
    pub stride: u32,
    /// Extent in the direction that is not `k`.
    pub extent: u32,
    /// Extent in the direction of `k`.
    pub k: u32,
    /// Elements of a vector: a constant of the entry.
    pub per_vector: u32,
    /// Bytes of one in global memory, 16 or 8: a constant of the entry. In shared memory it has 16.
    pub vector_bytes: u32,
    /// A word that begins with a one, and has zeros above it: a constant of the entry.
    pub one: u32,
    /// Rows or columns of C in a tile: a constant of the entry.
    pub tile_extent: u32,
    /// Whether each row, which runs across `k`, goes on by a vector that begins with a one, which no copy makes: see
    /// [`TileLoader::fill`].
    pub ones: bool,
    /// Whether of rows that run across `k` and are shorter than a tile only what there is is copied, which is then to be
    /// [filled](TileLoader::fill) up beforehand: a constant of the entry.
    pub narrow: bool,
}

/// Vectors of A's tile that a thread has.
const OWN: usize = (Tile::WIDE.rows * STEP_VECTORS / THREADS_PER_CTA) as usize;

/// Copies tile after tile of an operand; each thread has its vectors of each tile.
#[derive(Clone)]
pub struct TileLoader<L> {
    operand: Operand,
    /// Address of the thread's first vector in the current tile, and the distance of two rows.
    source: u64,
    pitch: u64,
    /// Row of that vector in the matrix, of so many.
    row: u32,
    rows: u32,
    /// Its place in the row, of so many.
    vector: u32,
    vectors: u32,
    /// Row and place of it in the tile, of whose rows `1 << copied_log2` vectors are copied.
    tile_row: u32,
    tile_vector: u32,
    copied_log2: u32,
    /// Whether that vector is the one of ones, which no copy makes.
    constant: bool,
    layout: PhantomData<L>,
}

impl<L: Layout> TileLoader<L> {
    /// A loader of the tiles that begin at row or column `first` of C and at step `step`.
    #[inline(always)]
    pub fn new(operand: Operand, first: u32, step: u32) -> Self {
        let per_vector = operand.per_vector;
        let mut copied_log2 = L::tile_vectors(operand.tile_extent, per_vector).trailing_zeros();
        if !L::ALONG_K && operand.narrow {
            let present = operand.extent.div_ceil(per_vector) - first / per_vector;
            let wanted = u32::BITS - present.wrapping_sub(1).leading_zeros();
            // Threads have no more rows at a time than a tile has.
            let least = (THREADS_PER_CTA / (STEP_VECTORS * per_vector)).trailing_zeros();
            copied_log2 = copied_log2.min(wanted.max(least));
        }
        let tile_row = thread_idx_x() >> copied_log2;
        let tile_vector = thread_idx_x() & ((1 << copied_log2) - 1);
        let (row, vector, rows, vectors) = if L::ALONG_K {
            (
                first + tile_row,
                step * STEP_VECTORS + tile_vector,
                operand.extent,
                operand.k.div_ceil(per_vector),
            )
        } else {
            let row = step * STEP_VECTORS * per_vector + tile_row;
            (
                row,
                first / per_vector + tile_vector,
                operand.k,
                operand.extent.div_ceil(per_vector),
            )
        };
        let source = operand.data.address()
            + matrix_vector(row, vector, operand.stride) * operand.vector_bytes as u64;
        Self {
            operand,
            source,
            pitch: operand.stride as u64 * operand.vector_bytes as u64,
            row,
            rows,
            vector,
            vectors,
            tile_row,
            tile_vector,
            copied_log2,
            constant: !L::ALONG_K && operand.ones && vector == vectors,
            layout: PhantomData,
        }
    }

    /// Writes what no copy makes of a tile: ones, where the operand has them, and zeros where rows are shorter. It is the same at every
    /// step: a copy would ask one place of L2 for it once a row.
    ///
    /// # Safety
    /// `target` has room for a tile, and no thread reads it before a barrier. All threads of the CTA make this call.
    #[inline(always)]
    pub unsafe fn fill(&self, target: Shared) {
        let per_vector = self.operand.per_vector;
        let vectors = L::tile_vectors(self.operand.tile_extent, per_vector);
        let end = self.vectors - (self.vector - self.tile_vector);
        let mut place = thread_idx_x();
        while place < self.operand.tile_extent * STEP_VECTORS {
            let (row, vector) = (place / vectors, place % vectors);
            let is_one = self.operand.ones && vector == end;
            if is_one || vector >> self.copied_log2 != 0 {
                let first = if is_one { self.operand.one } else { 0 };
                let at = target.offset(swizzle(row, vector, vectors) * VECTOR_BYTES);
                // SAFETY: a vector of the tile, which no copy writes.
                unsafe { at.store_u32x4([first, 0, 0, 0]) };
            }
            place += THREADS_PER_CTA;
        }
    }

    /// Starts the copy of the current tile to `target` and goes on to the next step's.
    ///
    /// # Safety
    /// `target` has room for a tile, and no thread touches it before a wait and a barrier. The matrix is as the launch
    /// contract says. All threads of the CTA make this call.
    #[inline(always)]
    pub unsafe fn load(&mut self, target: Shared) {
        let total = self.operand.tile_extent * STEP_VECTORS;
        if (total >= THREADS_PER_CTA || thread_idx_x() < total) && !self.constant {
            let mut i = 0;
            while i < total.div_ceil(THREADS_PER_CTA) && self.has_rows(i) {
                let below = i * self.rows_at_a_time();
                let present = self.has_row(below) && self.vector < self.vectors;
                let source = self.source + below as u64 * self.pitch;
                let target = self.target(target, below);
                // SAFETY: the vector lies in the tile, and in the matrix where `present`; rows are 16-byte aligned.
                unsafe {
                    if self.operand.vector_bytes == VECTOR_BYTES {
                        async_copy::copy_16(target, source, present);
                    } else {
                        async_copy::copy_8(target, source, present);
                    }
                }
                i += 1;
            }
        }
        self.advance();
    }

    /// Which vector of the matrix's rows the thread has in the current tile; the same in every row.
    #[inline(always)]
    pub fn vector(&self) -> u32 {
        self.vector
    }

    /// Makes `change` of each of the thread's vectors of the current tile and goes on to the next step's. What lies outside
    /// the matrix may change in the direction of C, where it is of no use, but stays zero in that of `k`.
    ///
    /// # Safety
    /// The thread's copies to `target` have come, and no other thread touches the tile before a barrier. The tile has
    /// [`OWN`] vectors for each thread.
    #[inline(always)]
    pub unsafe fn rewrite(&mut self, target: Shared, change: impl Fn([u32; 4]) -> [u32; 4]) {
        let outside = !L::ALONG_K && self.vector >= self.vectors;
        // Of a vector of 8 bytes in memory half is missing, outside of the matrix as well.
        let incomplete = self.operand.vector_bytes < VECTOR_BYTES && !self.constant;
        // Along `k`, vectors past the end of a row meet zeros of the other operand.
        if !outside || incomplete {
            let mut bits = [[0; 4]; OWN];
            unroll!(i in 0..OWN => {
                if self.has_rows(i as u32) {
                    let below = i as u32 * self.rows_at_a_time();
                    let place = self.target(target, below);
                    // SAFETY: the caller's promise; of a vector in memory of 8 bytes no more has come.
                    bits[i] = unsafe {
                        if self.operand.vector_bytes == VECTOR_BYTES {
                            place.load_u32x4()
                        } else {
                            let [low, high] = place.load_u32x2();
                            [low, high, 0, 0]
                        }
                    };
                }
            });
            unroll!(i in 0..OWN => {
                if self.has_rows(i as u32) {
                    let below = i as u32 * self.rows_at_a_time();
                    let mut changed = change(bits[i]);
                    if outside || (!L::ALONG_K && !self.has_row(below)) {
                        changed = [0; 4];
                    }
                    // SAFETY: the caller's promise.
                    unsafe { self.target(target, below).store_u32x4(changed) };
                }
            });
        }
        self.advance();
    }

    /// Rows of a tile that the threads together have at a time: whole ones, so that each thread stays in its column.
    #[inline(always)]
    fn rows_at_a_time(&self) -> u32 {
        THREADS_PER_CTA >> self.copied_log2
    }

    /// Whether a tile has rows that the threads have at their `i`-th time.
    #[inline(always)]
    fn has_rows(&self, i: u32) -> bool {
        let narrow = !L::ALONG_K && self.operand.narrow;
        !narrow || i * self.rows_at_a_time() < STEP_VECTORS * self.operand.per_vector
    }

    /// Whether the matrix has the row so far below the thread's first.
    #[inline(always)]
    fn has_row(&self, below: u32) -> bool {
        self.row + below < self.rows
    }

    /// The thread's vector so far below its first, of the tile at `tile`.
    #[inline(always)]
    fn target(&self, tile: Shared, below: u32) -> Shared {
        let vectors = L::tile_vectors(self.operand.tile_extent, self.operand.per_vector);
        tile.offset(swizzle(self.tile_row + below, self.tile_vector, vectors) * VECTOR_BYTES)
    }

    /// Goes on to the next step's tile.
    #[inline(always)]
    fn advance(&mut self) {
        if L::ALONG_K {
            self.vector += STEP_VECTORS;
            self.source += (STEP_VECTORS * self.operand.vector_bytes) as u64;
        } else {
            let rows = STEP_VECTORS * self.operand.per_vector;
            self.row += rows;
            self.source += rows as u64 * self.pitch;
        }
    }
}
