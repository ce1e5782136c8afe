//! Stage 2 of the dot product: a warp walks its tiles, a step at a time.

use super::policy::Reduction;
use crate::device::global::Global;
use crate::device::registers::recomputed;
use crate::device::thread::{block_idx_x, block_idx_y};
use crate::device::vector::Vector;
use crate::device::warp::{all, lane_id, shuffle_idx, sync_warp, warp_id};
use crate::edges::Tiles;
use halfgnn_contract::WARP;
use halfgnn_contract::sddmm::{STEP_EDGES, SddmmParams, TILE_EDGES, WARPS_PER_CTA};

const _: () = assert!(
    STEP_EDGES == 4 && TILE_EDGES == 4 * WARP,
    "four indices, and four results, are one 16-byte access of shared memory"
);

/// `WIDE` is for rows that one load of each lane of a sub-warp does not read to their end.
///
/// # Safety
/// The launch contract of [`SddmmParams`]: CTAs of `THREADS_PER_CTA` threads, `warps` warps in x and a head each in y.
#[inline(always)]
pub unsafe fn run<V: Vector, R: Reduction<V>, const WIDE: bool>(params: &SddmmParams) {
    // By a shuffle, so that ptxas knows it to be the same in all lanes: it then has uniform registers and plain loops for
    // what depends on it. SAFETY: all lanes come through here.
    let warp = block_idx_x() * WARPS_PER_CTA + unsafe { shuffle_idx(warp_id(), 0) };
    let walk = Walk::<V>::new(params, 0);
    // SAFETY: the launch contract.
    let common = unsafe { R::common(walk.vector, params.slope) };
    let mut kept = Kept {
        first: NO_ROW,
        last: NO_ROW,
        features: R::none(),
    };
    // SAFETY: the launch contract; every lane of the warp comes through here.
    unsafe {
        let mut tiles = Tiles::new(
            params.rows,
            params.columns,
            params.edges,
            warp,
            params.warps,
        );
        while tiles.arrive() {
            let mut edge = STEP_EDGES * (lane_id() >> params.lanes_log2);
            let mut step = 0;
            while step < TILE_EDGES {
                let (rows, columns) = (tiles.rows(edge), tiles.columns(edge));
                let sums = if WIDE {
                    wide_step::<V, R>(params, walk, rows, columns)
                } else {
                    walk.step::<R>(&mut kept, rows, columns, common)
                };
                R::store(sums, params.scale, params.lanes_log2, tiles.result(edge));
                let edges = STEP_EDGES * (WARP >> params.lanes_log2);
                edge += edges;
                step += edges;
            }
            sync_warp();
            write::<V, R>(params, &tiles);
            tiles.advance();
        }
    }
}

/// No row has this number, since there are fewer than 2³² of them.
const NO_ROW: u32 = u32::MAX;

/// The rows of the first and of the last of four edges, and their features: rows ascend, so the next edges often have the
/// same.
struct Kept<Rows> {
    first: u32,
    last: u32,
    features: Rows,
}

/// Sixteen bytes of zeros, for lanes that a row has no load for: no select, no branch, and no 0 · ∞.
#[repr(align(16))]
struct Zeros(#[allow(dead_code)] [u32; 4]); // read by its address

/// A constant and no static: each module has a copy, since modules are not linked with the library.
const ZEROS: &Zeros = &Zeros([0; 4]);

/// Where one lane loads its part of a row.
#[derive(Clone, Copy)]
struct Walk<V: Vector> {
    u: Global<V::Bits>,
    v: Global<V::Bits>,
    vector: Global<V::Bits>,
    /// Distances of two rows in bytes, none for a lane that reads zeros.
    u_stride: u32,
    v_stride: u32,
}

impl<V: Vector> Walk<V> {
    /// The lane's load of a block of a row, which has one for each lane of a sub-warp.
    #[inline(always)]
    fn new(params: &SddmmParams, block: u32) -> Self {
        let lanes = 1 << params.lanes_log2;
        let load = block * lanes + (lane_id() & (lanes - 1));
        if load < params.head_loads {
            let at = block_idx_y() as u64 * params.head_loads as u64 + load as u64;
            Self {
                u: Global::new(params.u).at(at),
                v: Global::new(params.v).at(at),
                vector: Global::new(params.vector).at(at),
                u_stride: params.u_stride,
                v_stride: params.v_stride,
            }
        } else {
            let zeros = Global::at_address(core::ptr::from_ref(ZEROS) as u64);
            Self {
                u: zeros,
                v: zeros,
                vector: zeros,
                u_stride: 0,
                v_stride: 0,
            }
        }
    }

    /// The lane's part of a row of `u`.
    ///
    /// # Safety
    /// There is such a row.
    #[inline(always)]
    unsafe fn row(&self, row: u32) -> V {
        // SAFETY: the caller's promise; the load is one of the row's.
        V::from_bits(unsafe { self.u.row(row, self.u_stride).read() })
    }

    /// The lane's part of a row of `u`, or zeros.
    ///
    /// # Safety
    /// There is such a row if it is wanted.
    #[inline(always)]
    unsafe fn row_if(&self, wanted: bool, row: u32) -> V {
        // SAFETY: the caller's promise; the load is one of the row's.
        V::from_bits(unsafe { self.u.row(row, self.u_stride).load_if(wanted) })
    }

    /// The lane's parts of four rows of `v`. The loads stay where they stand, before all others of a step.
    ///
    /// # Safety
    /// There are such rows.
    #[inline(always)]
    unsafe fn columns(&self, columns: [u32; 4]) -> [V; 4] {
        // SAFETY: the caller's promise; the load is one of the row's.
        columns.map(|column| V::from_bits(unsafe { self.v.row(column, self.v_stride).load() }))
    }

    /// What the lane has of the sums of its sub-warp's four edges.
    ///
    /// Four consecutive edges have one row, mostly, or two: that of the first and that of the last. Only where a sub-warp
    /// of the warp has more, there is a second round.
    ///
    /// # Safety
    /// All lanes make this call, with rows of `u` and `v`.
    #[inline(always)]
    unsafe fn step<R: Reduction<V>>(
        &self,
        kept: &mut Kept<R::Rows>,
        rows: [u32; 4],
        columns: [u32; 4],
        common: R::Common,
    ) -> R::Sums {
        // SAFETY: the caller's promise; the condition around `add` is the same for all lanes.
        unsafe {
            let values = self.columns(columns);
            let moves = rows[0] != kept.first;
            let loads_first = moves && rows[0] != kept.last;
            let loads_last = rows[3] != rows[0] && rows[3] != kept.last;
            // All loads before the first use of one.
            let first = self.row_if(loads_first, rows[0]);
            let last = self.row_if(loads_last, rows[3]);
            if moves {
                kept.first = rows[0];
                R::last_is_first(&mut kept.features);
            }
            if loads_first {
                R::set_first(&mut kept.features, first);
            }
            if loads_last {
                kept.last = rows[3];
                R::set_last(&mut kept.features, last);
            }
            let of_first = rows.map(|row| row == rows[0]);
            let mut sums = R::add(R::zero(), kept.features, values, of_first, common);
            if !all(at_an_end(rows, 1) && at_an_end(rows, 2)) {
                // A loop, so that it stays a branch: predicated, it would cost every step.
                let mut edge = recomputed(1);
                while edge < 3 {
                    let row = if edge == 1 { rows[1] } else { rows[2] };
                    let mut features = R::none();
                    R::set_first(&mut features, self.row(row));
                    let others = R::add(R::zero(), features, values, [true; 4], common);
                    let mut stays = [true; 4];
                    stays[1] = edge != 1 || at_an_end(rows, 1);
                    stays[2] = edge != 2 || at_an_end(rows, 2);
                    sums = R::select(stays, sums, others);
                    edge += 1;
                }
            }
            sums
        }
    }
}

/// Whether the row of one of four edges is that of the first or of the last.
#[inline(always)]
fn at_an_end(rows: [u32; 4], edge: usize) -> bool {
    rows[edge] == rows[0] || rows[edge] == rows[3]
}

/// What [`Walk::step`] is for rows of several blocks, whose features are not kept.
///
/// # Safety
/// As [`Walk::step`].
#[inline(always)]
unsafe fn wide_step<V: Vector, R: Reduction<V>>(
    params: &SddmmParams,
    first: Walk<V>,
    rows: [u32; 4],
    columns: [u32; 4],
) -> R::Sums {
    let sums_of = |[a, b]: [u32; 2], of_first: [bool; 4]| {
        let mut sums = R::zero();
        let mut walk = first;
        let mut block = 0;
        loop {
            // SAFETY: the caller's promise; blocks are the same for all lanes.
            unsafe {
                let values = walk.columns(columns);
                let mut features = R::none();
                R::set_first(&mut features, walk.row(a));
                R::set_last(&mut features, walk.row(b));
                let common = R::common(walk.vector, params.slope);
                sums = R::add(sums, features, values, of_first, common);
            }
            block += 1;
            if block == params.blocks {
                break sums;
            }
            walk = Walk::new(params, block);
        }
    };
    let mut sums = sums_of([rows[0], rows[3]], rows.map(|row| row == rows[0]));
    // SAFETY: the caller's promise.
    if !unsafe { all(at_an_end(rows, 1) && at_an_end(rows, 2)) } {
        sums = R::select(
            [true, at_an_end(rows, 1), at_an_end(rows, 2), true],
            sums,
            sums_of([rows[1], rows[2]], [true, true, false, false]),
        );
    }
    sums
}

/// The results of the present tile go to the output, four a lane, rounded; and zeros to the end of the plane.
///
/// # Safety
/// After the walk and a barrier of the warp.
#[inline(always)]
unsafe fn write<V: Vector, R: Reduction<V>>(params: &SddmmParams, tiles: &Tiles) {
    let edge = recomputed(lane_id() * 4);
    let at = tiles.base() as u64 + edge as u64;
    if at < params.plane {
        let count = tiles.count();
        // SAFETY: the walk stored a result for each edge of the tile, also past the last; the plane has room for four of
        // them, whose place is this lane's alone.
        unsafe {
            let mut results = tiles.result(edge).load_u32x4().map(f32::from_bits);
            for i in 0..4 {
                if edge + i >= count {
                    results[i as usize] = 0.0;
                }
            }
            let plane = block_idx_y() as u64 * params.plane;
            if R::FLOAT_RESULTS {
                let output = Global::<f32>::new(params.output).at(plane + at);
                Global::<[u32; 4]>::cast(output).store(results.map(f32::to_bits));
            } else {
                V::store_features(Global::new(params.output).at(plane + at), results);
            }
        }
    }
}
