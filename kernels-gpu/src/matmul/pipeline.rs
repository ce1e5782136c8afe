//! The skeleton of every product: tiles of A and B stream through shared memory while the multiplier works on those that
//! have arrived, then the epilogue writes the sums.

use core::num::NonZeroU32;

use halfgnn_contract::matmul::{MatmulParams, STAGES, STEP_VECTORS, Tile, operand_bytes};

use super::epilogue::{Output, write_partial};
use super::operand::{Layout, Operand, Plain, Source, TileLoader};
use crate::device::async_copy;
use crate::device::shared::Shared;
use crate::device::thread::{block_idx_x, block_idx_y, sync_threads};
use crate::device::vector::Vector;

/// Layouts of A and B.
pub trait Layouts {
    /// A's.
    type A: Layout;
    /// B's.
    type B: Layout;
    /// `A·Bᵀ`: the gradient of a layer's input.
    const OF_INPUT: bool = Self::A::ALONG_K && Self::B::ALONG_K;
    /// `Aᵀ·B`: the gradient of its weights.
    const SUM_OVER_ROWS: bool = !Self::A::ALONG_K && !Self::B::ALONG_K;
}

impl<A: Layout, B: Layout> Layouts for (A, B) {
    type A = A;
    type B = B;
}

/// A thread's sums of its elements of C, and how a step is added to them.
///
/// A thread has [`Multiplier::ROWS`] by [`Multiplier::COLUMNS`] sums, whose places in the tile depend on the layouts.
pub trait Multiplier {
    /// 16 bytes of A or B.
    type Vector: Vector<Bits = [u32; 4]>;
    /// Elements of A and B in a 16-byte vector.
    const PER_VECTOR: u32 = <Self::Vector as Vector>::WIDTH;
    /// The CTA's tile.
    const TILE: Tile;
    /// Rows of sums of a thread.
    const ROWS: u32;
    /// Columns of sums of a thread.
    const COLUMNS: u32;

    /// All sums zero.
    fn zero() -> Self;

    /// Adds the product of one step's tiles in shared memory.
    ///
    /// # Safety
    /// All threads of the CTA make this call, after a barrier that follows the tiles' arrival.
    unsafe fn step<L: Layouts>(&mut self, a: Shared, b: Shared);

    /// Neighbouring columns of C in which a thread has sums, a power of two of at most 4.
    fn run<L: Layouts>() -> u32;

    /// Row in the tile of the thread's sums in its row `i`.
    fn row<L: Layouts>(i: u32) -> u32;

    /// Column in the tile of the thread's sums in its column `j`.
    fn column<L: Layouts>(j: u32) -> u32;

    /// The sum in row `i` and column `j` of the thread's.
    fn sum(&mut self, i: u32, j: u32) -> &mut f32;
}

/// Where a CTA's tile lies in C.
#[derive(Clone, Copy)]
pub struct Origin {
    /// Its first row.
    pub row: u32,
    /// Its first column.
    pub column: u32,
}

/// One CTA's part of the product. `COLUMNS` is what the entry's name says of its tile, and `S` what it says of A.
///
/// # Safety
/// The launch contract in `halfgnn_contract::matmul`, C not empty.
#[inline(always)]
pub unsafe fn run<L: Layouts, M: Multiplier, O: Output, const COLUMNS: u32, S: Source>(
    params: &MatmulParams,
) {
    const {
        assert!(
            M::TILE.columns == COLUMNS,
            "the entry's name does not say its tile"
        );
        assert!(
            M::TILE.shared_bytes() <= 48 * 1024,
            "more shared memory than a launch gets without opting in"
        );
        assert!(
            STAGES >= 2 && STAGES.is_power_of_two(),
            "the stage of a step is found by masking"
        );
    }
    let tile = block_idx_x();
    // SAFETY: a launch with tiles has some side by side.
    let across = unsafe { NonZeroU32::new_unchecked(params.column_tiles) };
    let origin = Origin {
        row: tile / across * M::TILE.rows,
        column: tile % across * M::TILE.columns,
    };
    let split = block_idx_y();
    let first_step = split * params.steps_per_split;
    let steps_of = |k: u32| k.div_ceil(STEP_VECTORS * M::PER_VECTOR);
    let left = if S::PAIR {
        params.first_steps + steps_of(params.k2)
    } else {
        steps_of(params.k)
    } - first_step;
    let steps = if left < params.steps_per_split {
        left
    } else {
        params.steps_per_split
    };

    let a = Operand {
        data: params.a,
        stride: params.a_stride,
        extent: params.m,
        k: params.k,
        per_vector: M::PER_VECTOR,
        vector_bytes: S::VECTOR_BYTES,
        one: M::Vector::ONE,
        tile_extent: M::TILE.rows,
        ones: L::SUM_OVER_ROWS && !params.column_sums.is_null(),
        narrow: L::SUM_OVER_ROWS,
    };
    let b = Operand {
        data: params.b,
        stride: params.b_stride,
        extent: params.n,
        k: params.k,
        per_vector: M::PER_VECTOR,
        vector_bytes: Plain::VECTOR_BYTES,
        one: M::Vector::ONE,
        tile_extent: M::TILE.columns,
        ones: false,
        narrow: false,
    };
    // Loaders of the tiles from a step on: those of the second pair of operands come behind those of the first.
    let loaders = |step: u32| {
        let (mut a, mut b, mut step) = (a, b, step);
        if S::PAIR && step >= params.first_steps {
            (a.data, a.stride, a.k) = (params.a2, params.a2_stride, params.k2);
            (b.data, b.stride, b.k) = (params.b2, params.b2_stride, params.k2);
            step -= params.first_steps;
        }
        (
            TileLoader::<L::A>::new(a, origin.row, step),
            TileLoader::<L::B>::new(b, origin.column, step),
        )
    };
    let (mut load_a, mut load_b) = loaders(first_step);
    // Follows the loader, a step's tile at a time, when that has come.
    let mut arrived_a = load_a.clone();
    // Whether a step after the first is the first one of the second pair.
    let turns = |step: u32| S::PAIR && step > 0 && first_step + step == params.first_steps;
    let shared = Shared::base();
    let stage = |step: u32| {
        let a = shared.offset(step % STAGES * M::TILE.stage_bytes());
        (a, a.offset(operand_bytes(M::TILE.rows)))
    };

    if L::SUM_OVER_ROWS {
        let mut each = 0;
        while each < STAGES {
            // SAFETY: nothing has used the stages yet, and a barrier follows before the first is read.
            unsafe { load_a.fill(stage(each).0) };
            each += 1;
        }
    }
    // The half of the stages that the last step leaves alone is the epilogue's. What that wants to see is sent for when
    // nothing else comes to lie there: at once where the other half is enough for all steps.
    let half = STAGES / 2;
    let spare = shared.offset(if steps.wrapping_sub(1) % STAGES < half {
        half * M::TILE.stage_bytes()
    } else {
        0
    });
    let unsplit = params.splits == 1;

    let mut ahead = 0;
    while ahead < STAGES - 1 {
        if ahead < steps {
            if turns(ahead) {
                (load_a, load_b) = loaders(params.first_steps);
            }
            let (a, b) = stage(ahead);
            // SAFETY: a stage that nothing has used yet; the loaders have the extents of its tiles.
            unsafe {
                load_a.load(a);
                load_b.load(b);
            }
        }
        // A group for every step, even an empty one, so that their number says which step has arrived.
        async_copy::commit();
        ahead += 1;
    }

    if unsplit && steps <= half {
        // SAFETY: the steps there are have stages of the other half.
        unsafe { O::prefetch::<L, M>(params, origin, spare) };
    }

    let mut multiplier = M::zero();
    let mut step = 0;
    while step < steps {
        if S::REWRITES {
            // SAFETY: the launch contract; after the wait the thread's own copies of the step's tile are there, and before
            // the barrier below no other thread looks at them.
            unsafe {
                let features = S::read(params, arrived_a.vector());
                async_copy::wait::<{ STAGES - 2 }>();
                arrived_a.rewrite(stage(step).0, |bits| features.apply(bits));
            }
        } else {
            async_copy::wait::<{ STAGES - 2 }>();
        }
        // SAFETY: `steps` is the same for all threads. After the barrier the step's tiles are here for all of them, and
        // none still reads the stage of the step before, which is the next to be filled.
        unsafe { sync_threads() };
        let next = step + (STAGES - 1);
        if next < steps {
            if turns(next) {
                (load_a, load_b) = loaders(params.first_steps);
            }
            let (a, b) = stage(next);
            // SAFETY: as said, the stage is free.
            unsafe {
                load_a.load(a);
                load_b.load(b);
            }
        } else if unsplit && steps > half && step + 1 == steps {
            // SAFETY: after the barrier above only this step's stage is in use.
            unsafe { O::prefetch::<L, M>(params, origin, spare) };
        }
        async_copy::commit();
        let (a, b) = stage(step);
        // SAFETY: the barrier above follows the arrival of this step's tiles.
        unsafe { multiplier.step::<L>(a, b) };
        step += 1;
    }

    if !unsplit {
        // SAFETY: the rows and columns are those of this CTA's tile; the workspace has a part for each split.
        unsafe { write_partial::<L, M>(&mut multiplier, params, origin, split) };
        return;
    }
    async_copy::commit();
    async_copy::wait::<0>();
    // SAFETY: `splits` is the same for all threads. From the barrier on, `spare` is the epilogue's: what was sent there has
    // come for all threads, and no operands are on their way there or read.
    unsafe {
        sync_threads();
        O::write::<L, M, S>(&mut multiplier, params, origin, spare);
    }
}
