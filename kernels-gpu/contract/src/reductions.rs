//! Maxima, softmax sums and deviations of messages over the edges of each row, column by column, and their gradients. Nothing is stored for an edge.
//!
//! A message is `m(e) = f(a(e))`, rounded to the matrices' format, where `a(e)` adds up to three rows: of the destination `i`, the source
//! `j` and the edge `e` ([`Act`](crate::messages::Act) has the functions `f`). With `d[i] = dy[i] · share[i]`:
//!
//! ```text
//! maximum   y[i] = max m(e)                 share[i] = 1 / (edges that have it)       dm(e) = d[i] if m(e) = y[i], else 0
//! softmax   y[i] = Σ exp(m(e) − M) m(e) / Z   M = max m(e), Z = Σ exp(m(e) − M), share[i] = 1 / Z
//!                                           dm(e) = d[i] · exp(m(e) − M) · (1 + m(e) − y[i])
//! deviation y[i] = √(Σ m(e)² / n − M²)      M = Σ m(e) / n, share[i] = 1 / (n y[i])         dm(e) = d[i] · (m(e) − M)
//! ```
//!
//! A variance of at most [`LEAST_VARIANCE`] counts as none: deviation and share are then 0.
//!
//! The gradient of a row of a destination or a source is the sum over its edges, that of an edge's row is the value itself. A minimum is the
//! maximum of what has the other sign.
//!
//! The walk over edges is that of [`edge_walk`](crate::edge_walk), with one head.

use crate::edge_walk::EdgeWalk;
use crate::format::table;
use crate::messages::VECTORS;
use crate::{DevicePtr, EntrySpec, HalfBits, param_struct};

/// Matrices of columns of the forward pass and of the gradients of rows: `a`.
pub const COLUMNS: u32 = 1;

/// Matrices of columns of the gradients of columns of a maximum: `a`, `d` and `y`.
pub const COLUMNS_OF_MAXIMA: u32 = 3;

/// Those of a maximum of rows of sources as they are: `d` and `y`.
pub const COLUMNS_OF_COPIED_MAXIMA: u32 = 2;

/// Those of a deviation: `a`, `d` and `M`.
pub const COLUMNS_OF_DEVIATIONS: u32 = 3;

/// Those of a softmax: `M` as well.
pub const COLUMNS_OF_SOFTMAX: u32 = 4;

/// Matrices of edges.
pub const EDGES: u32 = 1;

/// Sums of a part of a row, besides the largest message: of a maximum how many edges have it.
pub const SUMS_OF_MAXIMA: u32 = 1;

/// Those of a softmax: of the weights, and of the weighted messages.
pub const SUMS_OF_SOFTMAX: u32 = 2;

/// The variance up to which a deviation is 0, as PyG has it.
pub const LEAST_VARIANCE: f32 = 1e-5;

/// Sums of a part of a row of a deviation, which has no largest message: of the messages and of their squares.
pub const SUMS_OF_DEVIATIONS: u32 = 2;

param_struct! {
    /// Parameters of the kernels. Rows of all matrices are [`stride`](crate::edge_walk::HeadLanes::stride) vectors apart, aligned to 16 bytes,
    /// and zero in their padding. Null rows of `a` are zero everywhere; a null output is not written.
    ///
    /// | entries | `of_rows` | `of_columns` | `outputs` | `edge_output` |
    /// |---|---|---|---|---|
    /// | forward | `a` of destinations | `a` of sources | `y`, `share`, `M` | |
    /// | rows | `a`, `d`, `y` (of a deviation `M`), `M` of destinations | `a` of sources | `da` of destinations | `da` of edges |
    /// | columns, of the transposed adjacency | `a` of sources | likewise of destinations | `da` of sources | |
    /// | columns of copied rows, likewise | `a` of sources | `d`, `y` of destinations | `da` of sources | |
    pub struct ReductionParams {
        /// The graph, and how its rows lie in lanes.
        pub walk: EdgeWalk,
        /// Matrices with a row for each row of the adjacency.
        pub of_rows: [DevicePtr<HalfBits>; 4],
        /// Matrices with a row for each column of the adjacency.
        pub of_columns: [DevicePtr<HalfBits>; 4],
        /// `a` of edges, a row for each.
        pub of_edges: DevicePtr<HalfBits>,
        /// Outputs, with a row for each row of the adjacency.
        pub outputs: [DevicePtr<HalfBits>; 3],
        /// The output with a row for each edge.
        pub edge_output: DevicePtr<HalfBits>,
        /// The row of each edge in the matrices of edges; null for the order of the edges.
        pub order: DevicePtr<u32>,
        /// The function `f`, by [`Act::number`](crate::messages::Act::number).
        pub act: u32,
        /// 1, or −1 for a minimum.
        pub sign: f32,
    }
}

/// Floats of a lane's part of a row of `matrices` matrices, in vectors of `width` elements.
#[inline]
pub const fn part_floats(matrices: u32, width: u32) -> u32 {
    matrices * width * VECTORS
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! reductions_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Maxima of messages.
                message_maxima(ReductionParams): F16 = message_maxima_f16, F32 = message_maxima_f32, BF16 = message_maxima_bf16;
                /// Completes its rows of several chunks.
                message_maxima_follow_up(ReductionParams): F16 = message_maxima_follow_up_f16, F32 = message_maxima_follow_up_f32, BF16 = message_maxima_follow_up_bf16;
                /// Their gradients by rows of destinations and of edges.
                message_maxima_rows(ReductionParams): F16 = message_maxima_rows_f16, F32 = message_maxima_rows_f32, BF16 = message_maxima_rows_bf16;
                /// Completes its rows of several chunks.
                message_maxima_rows_follow_up(ReductionParams): F16 = message_maxima_rows_follow_up_f16, F32 = message_maxima_rows_follow_up_f32, BF16 = message_maxima_rows_follow_up_bf16;
                /// Their gradients by rows of sources.
                message_maxima_columns(ReductionParams): F16 = message_maxima_columns_f16, F32 = message_maxima_columns_f32, BF16 = message_maxima_columns_bf16;
                /// Completes its rows of several chunks.
                message_maxima_columns_follow_up(ReductionParams): F16 = message_maxima_columns_follow_up_f16, F32 = message_maxima_columns_follow_up_f32, BF16 = message_maxima_columns_follow_up_bf16;
                /// Maxima of messages that are rows of sources as they are: of the identity, without rows of destinations or edges.
                message_maxima_copied(ReductionParams): F16 = message_maxima_copied_f16, F32 = message_maxima_copied_f32, BF16 = message_maxima_copied_bf16;
                /// Their gradients by rows of sources.
                message_maxima_copied_columns(ReductionParams): F16 = message_maxima_copied_columns_f16, F32 = message_maxima_copied_columns_f32, BF16 = message_maxima_copied_columns_bf16;
                /// Softmax sums of messages.
                message_softmax(ReductionParams): F16 = message_softmax_f16, F32 = message_softmax_f32, BF16 = message_softmax_bf16;
                /// Completes its rows of several chunks.
                message_softmax_follow_up(ReductionParams): F16 = message_softmax_follow_up_f16, F32 = message_softmax_follow_up_f32, BF16 = message_softmax_follow_up_bf16;
                /// Their gradients by rows of destinations and of edges.
                message_softmax_rows(ReductionParams): F16 = message_softmax_rows_f16, F32 = message_softmax_rows_f32, BF16 = message_softmax_rows_bf16;
                /// Completes its rows of several chunks.
                message_softmax_rows_follow_up(ReductionParams): F16 = message_softmax_rows_follow_up_f16, F32 = message_softmax_rows_follow_up_f32, BF16 = message_softmax_rows_follow_up_bf16;
                /// Their gradients by rows of sources.
                message_softmax_columns(ReductionParams): F16 = message_softmax_columns_f16, F32 = message_softmax_columns_f32, BF16 = message_softmax_columns_bf16;
                /// Completes its rows of several chunks.
                message_softmax_columns_follow_up(ReductionParams): F16 = message_softmax_columns_follow_up_f16, F32 = message_softmax_columns_follow_up_f32, BF16 = message_softmax_columns_follow_up_bf16;
                /// Deviations of messages.
                message_deviations(ReductionParams): F16 = message_deviations_f16, F32 = message_deviations_f32, BF16 = message_deviations_bf16;
                /// Completes its rows of several chunks.
                message_deviations_follow_up(ReductionParams): F16 = message_deviations_follow_up_f16, F32 = message_deviations_follow_up_f32, BF16 = message_deviations_follow_up_bf16;
                /// Their gradients by rows of destinations and of edges.
                message_deviations_rows(ReductionParams): F16 = message_deviations_rows_f16, F32 = message_deviations_rows_f32, BF16 = message_deviations_rows_bf16;
                /// Completes its rows of several chunks.
                message_deviations_rows_follow_up(ReductionParams): F16 = message_deviations_rows_follow_up_f16, F32 = message_deviations_rows_follow_up_f32, BF16 = message_deviations_rows_follow_up_bf16;
                /// Their gradients by rows of sources.
                message_deviations_columns(ReductionParams): F16 = message_deviations_columns_f16, F32 = message_deviations_columns_f32, BF16 = message_deviations_columns_bf16;
                /// Completes its rows of several chunks.
                message_deviations_columns_follow_up(ReductionParams): F16 = message_deviations_columns_follow_up_f16, F32 = message_deviations_columns_follow_up_f32, BF16 = message_deviations_columns_follow_up_bf16;
            }
            plain {
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[reductions_entries!(table)];
