//! Attention over the edges of a graph (GAT).
//!
//! - [`weight`]: the weight of an edge from its two ends, for every kernel that computes it on the way.
//! - [`edges`]: the steps of an edge softmax on arrays of edges, unfused.
//! - [`records`]: what an edge wants to know of its destination, side by side.
//! - [`heads`]: dots of features with attention vectors, their gradients, and means over heads.
//!
//! Row maxima, sums and softmax statistics are [`crate::segment`]'s.

mod edges;
pub mod heads;
mod records;
pub mod weight;

use crate::device::vector::{Float4, HalfVector8 as Half8};
use edges::{Divide, Dropout, Exp, Scores, ScoresBackward, SoftmaxBackward};
use halfgnn_contract::attention::{EdgeMapParams, RecordsParams};
use halfgnn_contract::heads::{HeadDotsParams, HeadMeanParams, HeadOuterParams, HeadScoresParams};

macro_rules! edge_entries {
    ($($entry:ident: $step:ident, $element:ident;)*) => {$(
        #[doc = concat!("A step of an edge softmax: ", stringify!($step, $element), ".")]
        ///
        /// # Safety
        /// The launch contract in `halfgnn_contract::attention`.
        #[unsafe(no_mangle)]
        pub unsafe extern "ptx-kernel" fn $entry(params: EdgeMapParams) {
            // SAFETY: the host keeps the launch contract.
            unsafe { edges::map::<$step, $element>(&params) }
        }
    )*};
}

halfgnn_contract::edge_map_entries!(edge_entries);

entries! {
    /// Numbers of destinations, side by side.
    attention_records(RecordsParams) = records::pack;
    /// Scores of vertices as destination and as source, from halves.
    head_scores_f16(HeadScoresParams) = heads::scores::<Half8>;
    /// Scores of vertices as destination and as source, from floats.
    head_scores_f32(HeadScoresParams) = heads::scores::<Float4>;
    /// Dots of the heads of two matrices of halves, row by row.
    head_dots_f16(HeadDotsParams) = heads::dots::<Half8>;
    /// Dots of the heads of two matrices of floats, row by row.
    head_dots_f32(HeadDotsParams) = heads::dots::<Float4>;
    /// Adds multiples of two vectors to the heads of each row, in half.
    head_outer_f16(HeadOuterParams) = heads::outer::<Half8>;
    /// Adds multiples of two vectors to the heads of each row, in float.
    head_outer_f32(HeadOuterParams) = heads::outer::<Float4>;
    /// Sums of rows of halves, weighted by two numbers of each head of each.
    head_sums_f16(HeadOuterParams) = heads::sums::<Half8>;
    /// Sums of rows of floats, weighted by two numbers of each head of each.
    head_sums_f32(HeadOuterParams) = heads::sums::<Float4>;
    /// The mean over the heads, in half.
    head_mean_f16(HeadMeanParams) = heads::mean::<Half8>;
    /// The mean over the heads, in float.
    head_mean_f32(HeadMeanParams) = heads::mean::<Float4>;
    /// The gradient of `head_mean_f16`.
    head_mean_backward_f16(HeadMeanParams) = heads::mean_backward::<Half8>;
    /// The gradient of `head_mean_f32`.
    head_mean_backward_f32(HeadMeanParams) = heads::mean_backward::<Float4>;
}
