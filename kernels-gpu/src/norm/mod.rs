//! Batch normalisation, and weighted sums of two matrices.
//!
//! - [`moments`]: sums over columns, a block of rows a CTA.
//! - [`finish`]: what the blocks left, added up, and what is made of it.
//! - [`elementwise`]: the normalised matrix, its gradient, and weighted sums.
//! - [`walk`]: which elements a thread visits.
//!
//! Every kernel is generic over what a lane loads, [`Half8`] or [`Float4`], and computes in float.

mod elementwise;
mod finish;
mod moments;
mod walk;

pub use walk::Columns;

use crate::device::vector::{Float4, HalfVector8 as Half8};
use halfgnn_contract::norm::{CombineParams, FinishParams, MomentsParams, NormalizeParams};

entries! {
    /// Sums and sums of squares of columns, in half.
    moments_f16(MomentsParams) = moments::forward::<Half8>;
    /// Sums and sums of squares of columns, in float.
    moments_f32(MomentsParams) = moments::forward::<Float4>;
    /// What the gradients of scale and shift are sums of, in half.
    moments_backward_f16(MomentsParams) = moments::backward::<Half8>;
    /// What the gradients of scale and shift are sums of, in float.
    moments_backward_f32(MomentsParams) = moments::backward::<Float4>;
    /// Mean and deviation of columns of halves, and the running ones.
    finish_statistics_f16(FinishParams) = finish::statistics::<Half8>;
    /// Mean and deviation of columns of floats, and the running ones.
    finish_statistics_f32(FinishParams) = finish::statistics::<Float4>;
    /// The gradients of scale and shift.
    finish_gradients(FinishParams) = finish::gradients;
    /// The sum of all products.
    finish_dot(FinishParams) = finish::dot;
    /// Mean and deviation from the running ones.
    running_statistics(FinishParams) = finish::running;
    /// The normalised matrix, in half.
    normalize_f16(NormalizeParams) = elementwise::normalize::<Half8>;
    /// The normalised matrix, in float.
    normalize_f32(NormalizeParams) = elementwise::normalize::<Float4>;
    /// The gradient of `normalize_f16`.
    normalize_backward_f16(NormalizeParams) = elementwise::normalize_backward::<Half8>;
    /// The gradient of `normalize_f32`.
    normalize_backward_f32(NormalizeParams) = elementwise::normalize_backward::<Float4>;
    /// A weighted sum of two matrices, in half.
    combine_f16(CombineParams) = elementwise::combine::<Half8>;
    /// A weighted sum of two matrices, in float.
    combine_f32(CombineParams) = elementwise::combine::<Float4>;
}
