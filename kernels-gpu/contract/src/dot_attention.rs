//! Attention by dot products over the edges of a graph, fused: nothing is stored for an edge.
//!
//! With `s(i,j) = scale · q[i] · k[j]` and `α(i,·) = softmax(s(i,·))` over the edges of row `i`, head by head,
//! `y[i] = Σ_j α(i,j) · d(i,j) · v[j]`, where `d` are the factors of dropout. The gradients are
//!
//! ```text
//! δ[i]  = dy[i] · y[i]
//! t(i,j) = α(i,j) · (d(i,j) · dy[i] · v[j] − δ[i]) · scale
//! dq[i] = Σ_j t(i,j) · k[j]
//! dk[j] = Σ_i t(i,j) · q[i]                    over the transposed adjacency
//! dv[j] = Σ_i α(i,j) · d(i,j) · dy[i]          likewise
//! ```
//!
//! Edges lie in CSR order. A warp has `1 << chunk_log2` consecutive edges and walks their rows, a group of lanes for each edge. A row of
//! one chunk is written at once. A row of several leaves a part in the staging buffer for each, which the follow-up kernel
//! merges. So the order of every sum depends on the graph alone.
//!
//! Heads lie next to each other in the lanes of a group, each in a power of two of lanes. Heads that do not fit the lanes of a group are
//! tiles, CTAs in y.

use crate::attention::EdgeAttention;
use crate::format::table;
use crate::spmm::lanes_log2;
use crate::{DevicePtr, EntrySpec, HalfBits, VECTOR_BYTES, WARP, param_struct};

/// Warps of a CTA.
pub const WARPS_PER_CTA: u32 = 4;

/// Threads of a CTA.
pub const THREADS_PER_CTA: u32 = WARPS_PER_CTA * WARP;

/// Base-2 logarithm of the edges of a warp: at least those of one step, at most what hides the start of a row.
pub const CHUNK_LOG2: [u32; 2] = [5, 8];

/// Rows without edges that one CTA clears.
pub const EMPTY_ROWS_PER_CTA: u32 = 128;

/// Vectors of a head that one lane has. With one, each edge had twice as many lanes that compute its exponentials.
pub const VECTORS: u32 = 2;

/// The most 16-byte vectors of a head.
pub const HEAD_VECTORS_MAX: u32 = WARP * VECTORS;

/// Lanes of a group that has all heads: two lines of memory.
const LANES_OF_ALL: u32 = 8;

/// Lanes of a group that has some of the heads: one line of memory.
const LANES_OF_SOME: u32 = 4;

/// The most edges: a warp counts past its chunk by the steps that it sends for ahead and by its windows, in 32 bits.
pub const EDGES_MAX: u32 = u32::MAX - (1 << CHUNK_LOG2[1]) - (RING_STEPS + 2) * WARP;

/// Steps of a chunk in shared memory: one that is computed, and those that arrive.
pub const RING_STEPS: u32 = 3;

/// Bytes of an edge's record of one lane: vectors of two matrices, two statistics, the column. An odd number of vectors, so that lanes
/// that follow one another meet no bank twice.
pub const RECORD_BYTES: u32 = (2 * VECTORS + 1) * VECTOR_BYTES;

/// Bytes of a step.
pub const STEP_BYTES: u32 = WARP * RECORD_BYTES;

/// Shared memory of a warp: its steps, and a record of zeros.
pub const WARP_BYTES: u32 = RING_STEPS * STEP_BYTES + RECORD_BYTES;

/// Shared memory of a CTA of a pass. The follow-up has none.
pub const SHARED_BYTES: u32 = WARPS_PER_CTA * WARP_BYTES;

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
        /// 16-byte vectors of a head, from 1 to [`HEAD_VECTORS_MAX`].
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
    /// The lanes of rows of `heads` heads of `head_vectors` vectors, `stride` vectors apart.
    #[inline]
    pub const fn new(heads: u32, head_vectors: u32, stride: u32) -> Self {
        let head_lanes_log2 = lanes_log2(head_vectors.div_ceil(VECTORS));
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
    /// Parameters of the kernels of attention by dot products. Rows of all matrices are [`HeadLanes::stride`] vectors apart, aligned to 16 bytes, and zero
    /// in their padding, which stays as it is.
    ///
    /// | entry | `of_rows` | `of_columns` | `outputs` |
    /// |---|---|---|---|
    /// | `dot_attention` | `q` | `k`, `v` | `y` |
    /// | `dot_attention_rows` | `q`, `dy`, `y` | `k`, `v` | `dq` |
    /// | `dot_attention_columns`, of the transposed adjacency | `k`, `v` | `q`, `dy` | `dk`, `dv` |
    pub struct DotAttentionParams {
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
        /// Matrices with a row for each row of the adjacency.
        pub of_rows: [DevicePtr<HalfBits>; 3],
        /// Matrices with a row for each column of the adjacency.
        pub of_columns: [DevicePtr<HalfBits>; 2],
        /// Outputs, with a row for each row of the adjacency; the second may be null.
        pub outputs: [DevicePtr<HalfBits>; 2],
        /// `ln Σ exp(s)` and `δ` of each destination and head, heads of a vertex next to each other; aligned to 8 bytes.
        /// `dot_attention` writes the first, `dot_attention_rows` the second.
        pub statistics: DevicePtr<[f32; 2]>,
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
        /// Factor of the scores.
        pub scale: f32,
        /// Columns of a row, padding not counted.
        pub features: u32,
        /// Dropout and the direction of the edges; nothing else of it is read.
        pub dropout: EdgeAttention,
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

/// Floats of a lane's part of a row, of a pass with `outputs` matrices as output, in vectors of `width` elements. `softmax` says whether
/// it has a running softmax.
#[inline]
pub const fn part_floats(outputs: u32, width: u32, softmax: bool) -> u32 {
    outputs * width * VECTORS + if softmax { 2 } else { 0 }
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! dot_attention_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Attention by dot products.
                dot_attention(DotAttentionParams): F16 = dot_attention_f16, F32 = dot_attention_f32, BF16 = dot_attention_bf16;
                /// Completes its rows of several chunks.
                dot_attention_follow_up(DotAttentionParams): F16 = dot_attention_follow_up_f16, F32 = dot_attention_follow_up_f32, BF16 = dot_attention_follow_up_bf16;
                /// Its gradient by the queries.
                dot_attention_rows(DotAttentionParams): F16 = dot_attention_rows_f16, F32 = dot_attention_rows_f32, BF16 = dot_attention_rows_bf16;
                /// Completes its rows of several chunks.
                dot_attention_rows_follow_up(DotAttentionParams): F16 = dot_attention_rows_follow_up_f16, F32 = dot_attention_rows_follow_up_f32, BF16 = dot_attention_rows_follow_up_bf16;
                /// Its gradient by keys and values.
                dot_attention_columns(DotAttentionParams): F16 = dot_attention_columns_f16, F32 = dot_attention_columns_f32, BF16 = dot_attention_columns_bf16;
                /// Completes its rows of several chunks.
                dot_attention_columns_follow_up(DotAttentionParams): F16 = dot_attention_columns_follow_up_f16, F32 = dot_attention_columns_follow_up_f32, BF16 = dot_attention_columns_follow_up_bf16;
            }
            plain {
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[dot_attention_entries!(table)];

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
            let lanes = HeadLanes::new(heads, vectors, heads * vectors);
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
        assert_eq!(chunk_log2(u32::MAX, 132), 8);
        assert_eq!(chunk_log2(u32::MAX, u32::MAX), 5);
        assert_eq!(chunks(0, 8), 0);
        assert_eq!(chunks(u32::MAX, 8), 1 << 24);
    }

    #[test]
    fn staging_of_the_largest_does_not_wrap() {
        let lanes = HeadLanes::new(65_535, 64, 65_535 * 64);
        let floats = staging_floats(1 << 27, &lanes, part_floats(2, 8, false));
        assert_eq!(floats, (1u64 << 28) * 65_535 * 32 * 32);
    }
}
