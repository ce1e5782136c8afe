//! A walk over the edges of a graph in CSR order, which sums a message for each into its row. Kernels that compute messages of the rows of
//! both ends share it.
//!
//! A warp has `1 << chunk_log2` consecutive edges and walks their rows, a group of lanes for each edge. A row of
//! one chunk is written at once. A row of several leaves a part in the staging buffer for each, which the follow-up kernel
//! merges. So the order of every sum depends on the graph alone.
//!
//! Heads lie next to each other in the lanes of a group, each in a power of two of lanes. Heads that do not fit the lanes of a group are
//! tiles, CTAs in y.

use crate::spmm::lanes_log2;
use crate::{DevicePtr, VECTOR_BYTES, WARP, param_struct};

/// Warps of a CTA.
pub const WARPS_PER_CTA: u32 = 4;

/// Threads of a CTA.
pub const THREADS_PER_CTA: u32 = WARPS_PER_CTA * WARP;

/// Base-2 logarithm of the edges of a warp: at least those of one step, at most what hides the start of a row.
pub const CHUNK_LOG2: [u32; 2] = [5, 9];

/// Rows without edges that one CTA clears.
pub const EMPTY_ROWS_PER_CTA: u32 = 128;

/// Lanes of a group that has all heads: two lines of memory.
const LANES_OF_ALL: u32 = 8;

/// Lanes of a group that has some of the heads: one line of memory.
const LANES_OF_SOME: u32 = 4;

/// The most edges: a warp counts past its chunk by the steps that it sends for ahead and by its windows, in 32 bits.
pub const EDGES_MAX: u32 = u32::MAX - (1 << CHUNK_LOG2[1]) - (RING_STEPS + 2) * WARP;

/// Steps of a chunk in shared memory: one that is computed, and those that arrive.
pub const RING_STEPS: u32 = 3;

/// Bytes of a step in shared memory: a plane of the lanes' values for each of some vectors, and one for statistics and ids. What lies side
/// by side in a row of a matrix does so in a plane: copies write 32 bytes of each row at once.
#[inline]
pub const fn step_bytes(vectors: u32) -> u32 {
    (vectors + 1) * PLANE_BYTES
}

/// Bytes of a plane: a vector of each lane.
pub const PLANE_BYTES: u32 = WARP * VECTOR_BYTES;

/// Shared memory of a warp: its steps, and a vector of zeros.
#[inline]
pub const fn warp_bytes(vectors: u32) -> u32 {
    RING_STEPS * step_bytes(vectors) + VECTOR_BYTES
}

/// Shared memory of a CTA of a pass in which a lane has that many vectors of an edge. The follow-up has none.
#[inline]
pub const fn shared_bytes(vectors: u32) -> u32 {
    WARPS_PER_CTA * warp_bytes(vectors)
}

/// Slot of a chunk for the row that began before it and ends in it.
pub const STAGED_END: u32 = 0;
/// Slot for the row that goes on behind the chunk.
pub const STAGED_TAIL: u32 = 1;
/// Slots of a chunk.
pub const STAGED_SLOTS: u64 = 2;

param_struct! {
    /// How the heads of a row lie in the lanes of a warp.
    pub struct HeadLanes {
        /// Heads, at least 1.
        pub heads: u32,
        /// 16-byte vectors of a head, at least 1 and at most those of 32 lanes.
        pub head_vectors: u32,
        /// Distance of two rows of every matrix in 16-byte vectors.
        pub stride: u32,
        /// Base-2 logarithm of the lanes of a head.
        pub head_lanes_log2: u32,
        /// Base-2 logarithm of the lanes of a group: of a tile of heads.
        pub lanes_log2: u32,
        /// Tiles of heads.
        pub tiles: u32,
    }
}

impl HeadLanes {
    /// The lanes of rows of `heads` heads of `head_vectors` vectors, `stride` vectors apart, of which a lane has `vectors` at most.
    #[inline]
    pub const fn new(heads: u32, head_vectors: u32, stride: u32, vectors: u32) -> Self {
        let head_lanes_log2 = lanes_log2(head_vectors.div_ceil(vectors));
        let head_lanes = 1 << head_lanes_log2;
        // Without an overflow for any number of heads.
        let all = heads as u64 * head_lanes as u64;
        let lanes_log2 = if all <= LANES_OF_ALL as u64 {
            (all as u32).next_power_of_two().ilog2()
        } else if head_lanes < LANES_OF_SOME {
            LANES_OF_SOME.ilog2()
        } else {
            head_lanes_log2
        };
        Self {
            heads,
            head_vectors,
            stride,
            head_lanes_log2,
            lanes_log2,
            tiles: heads.div_ceil(1 << (lanes_log2 - head_lanes_log2)),
        }
    }
}

param_struct! {
    /// What a walk reads of a graph, and how its rows lie in the lanes of a warp.
    pub struct EdgeWalk {
        /// Column of each edge; `edges` long.
        pub columns: DevicePtr<u32>,
        /// First edge of each row, and `edges` at the end.
        pub offsets: DevicePtr<u64>,
        /// As of [`SpmmParams`](crate::spmm::SpmmParams).
        pub starts: DevicePtr<[u32; 2]>,
        /// Likewise.
        pub filled_rows: DevicePtr<u32>,
        /// Rows without edges; `empty_count` long.
        pub empty_rows: DevicePtr<u32>,
        /// Parts of rows: [`staging_floats`] long.
        pub staging: DevicePtr<f32>,
        /// Number of edges, at most [`EDGES_MAX`].
        pub edges: u32,
        /// Rows without edges.
        pub empty_count: u32,
        /// Base-2 logarithm of the edges of a warp.
        pub chunk_log2: u32,
        /// CTAs that have edges. Those behind them clear rows without edges.
        pub ctas: u32,
        /// How heads lie in lanes.
        pub lanes: HeadLanes,
        /// Columns of a row, padding not counted.
        pub features: u32,
        /// 16-byte vectors of a row: those of the last head may be fewer.
        pub row_vectors: u32,
    }
}

/// Chunks of `edges` edges.
#[inline]
pub const fn chunks(edges: u32, chunk_log2: u32) -> u32 {
    edges.div_ceil(1 << chunk_log2)
}

/// Base-2 logarithm of the edges of a warp, for a graph of `edges` on a GPU of `multiprocessors`. A small graph has fewer edges a warp, so that
/// every multiprocessor has enough warps.
#[inline]
pub const fn chunk_log2(edges: u32, multiprocessors: u32) -> u32 {
    let [least, most] = CHUNK_LOG2;
    let enough = multiprocessors as u64 * 64;
    let mut log2 = most;
    while log2 > least && (edges >> log2) as u64 <= enough {
        log2 -= 1;
    }
    log2
}

/// Floats of the staging buffer, for `floats` floats of a lane.
#[inline]
pub const fn staging_floats(chunks: u32, lanes: &HeadLanes, floats: u32) -> u64 {
    chunks as u64 * STAGED_SLOTS * staged_row(lanes, floats)
}

/// Floats of a staged row.
#[inline]
pub const fn staged_row(lanes: &HeadLanes, floats: u32) -> u64 {
    (lanes.tiles as u64 * floats as u64) << lanes.lanes_log2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_fill_groups_of_lanes() {
        // (heads, vectors of a head) -> (lanes of a head, of a group, tiles)
        for ((heads, vectors), expected) in [
            ((1, 1), (1, 1, 1)),
            ((1, 8), (4, 4, 1)),
            ((4, 2), (1, 4, 1)),
            ((3, 2), (1, 4, 1)),
            ((2, 8), (4, 8, 1)),
            ((3, 8), (4, 4, 3)),
            ((8, 8), (4, 4, 8)),
            ((20, 1), (1, 4, 5)),
            ((1, 5), (4, 4, 1)),
            ((1, 64), (32, 32, 1)),
            ((2, 50), (32, 32, 2)),
            ((65_535, 64), (32, 32, 65_535)),
        ] {
            let lanes = HeadLanes::new(heads, vectors, heads * vectors, 2);
            let found = (
                1 << lanes.head_lanes_log2,
                1 << lanes.lanes_log2,
                lanes.tiles,
            );
            assert_eq!(found, expected, "{heads} heads of {vectors} vectors");
        }
    }

    #[test]
    fn chunks_are_short_where_edges_are_few() {
        assert_eq!(chunk_log2(0, 132), 5);
        assert_eq!(chunk_log2(1_000, 132), 5);
        assert_eq!(chunk_log2(1_000_000, 132), 6);
        assert_eq!(chunk_log2(u32::MAX, 132), 9);
        assert_eq!(chunk_log2(u32::MAX, u32::MAX), 5);
        assert_eq!(chunks(0, 8), 0);
        assert_eq!(chunks(u32::MAX, 9), 1 << 23);
    }

    #[test]
    fn staging_of_the_largest_does_not_wrap() {
        let lanes = HeadLanes::new(65_535, 64, 65_535 * 64, 2);
        let floats = staging_floats(1 << 27, &lanes, 32);
        assert_eq!(floats, (1u64 << 28) * 65_535 * 32 * 32);
    }
}
