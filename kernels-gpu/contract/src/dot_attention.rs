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
//! The walk over edges is that of [`edge_walk`](crate::edge_walk).

use crate::attention::EdgeAttention;
use crate::edge_walk::EdgeWalk;
use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Vectors of a head that one lane has. With one, each edge had twice as many lanes that compute its exponentials.
pub const VECTORS: u32 = 2;

/// The most 16-byte vectors of a head.
pub const HEAD_VECTORS_MAX: u32 = WARP * VECTORS;

/// Matrices of columns of each pass.
pub const COLUMNS: u32 = 2;

/// Vectors that a lane has of an edge.
pub const EDGE_VECTORS: u32 = COLUMNS * VECTORS;

param_struct! {
    /// Parameters of the kernels of attention by dot products. Rows of all matrices are [`stride`](crate::edge_walk::HeadLanes::stride) vectors apart, aligned to 16 bytes, and zero
    /// in their padding, which stays as it is.
    ///
    /// | entry | `of_rows` | `of_columns` | `outputs` |
    /// |---|---|---|---|
    /// | `dot_attention` | `q` | `k`, `v` | `y` |
    /// | `dot_attention_rows` | `q`, `dy`, `y` | `k`, `v` | `dq` |
    /// | `dot_attention_columns`, of the transposed adjacency | `k`, `v` | `q`, `dy` | `dk`, `dv` |
    pub struct DotAttentionParams {
        /// The graph, and how its rows lie in lanes.
        pub walk: EdgeWalk,
        /// Matrices with a row for each row of the adjacency.
        pub of_rows: [DevicePtr<HalfBits>; 3],
        /// Matrices with a row for each column of the adjacency.
        pub of_columns: [DevicePtr<HalfBits>; 2],
        /// Outputs, with a row for each row of the adjacency; the second may be null.
        pub outputs: [DevicePtr<HalfBits>; 2],
        /// `log₂ Σ exp(s)` and `δ` of each destination and head, heads of a vertex next to each other; aligned to 8 bytes.
        /// `dot_attention` writes the first, `dot_attention_rows` the second.
        pub statistics: DevicePtr<[f32; 2]>,
        /// Factor of the scores.
        pub scale: f32,
        /// Fills 8 bytes.
        pub reserved: u32,
        /// Dropout and the direction of the edges; nothing else of it is read.
        pub dropout: EdgeAttention,
    }
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
