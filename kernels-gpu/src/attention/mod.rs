//! Attention over the edges of a graph (GAT).
//!
//! - [`weight`]: the weight of an edge from its two ends, for every kernel that computes it on the way.
//! - [`edges`]: the steps of an edge softmax on arrays of edges, unfused.
//! - [`records`]: what an edge wants to know of its destination, side by side.
//!
//! Row maxima, sums and softmax statistics are [`crate::segment`]'s, and what becomes of features [`crate::heads`]'s.

mod edges;
mod records;
pub mod weight;

/// The functions that the entries are, by name.
pub mod family {
    use super::edges::{
        Divide, Dropout, Exp, Scores, ScoresBackward, SoftmaxBackward, bias_gradient, map,
    };
    pub use super::records::pack as attention_records;
    use crate::device::vector::Vector;
    use halfgnn_contract::attention::EdgeMapParams;

    /// # Safety
    /// The launch contract of [`EdgeMapParams`].
    #[inline(always)]
    pub unsafe fn edge_scores<V: Vector>(params: &EdgeMapParams) {
        // SAFETY: the caller's promise.
        unsafe { map::<Scores, V>(params) }
    }

    /// # Safety
    /// The launch contract of [`EdgeMapParams`].
    #[inline(always)]
    pub unsafe fn edge_scores_backward<V: Vector>(params: &EdgeMapParams) {
        // SAFETY: the caller's promise.
        unsafe { map::<ScoresBackward, V>(params) }
    }

    /// # Safety
    /// The launch contract of [`EdgeMapParams`].
    #[inline(always)]
    pub unsafe fn edge_exp<V: Vector>(params: &EdgeMapParams) {
        // SAFETY: the caller's promise.
        unsafe { map::<Exp, V>(params) }
    }

    /// # Safety
    /// The launch contract of [`EdgeMapParams`].
    #[inline(always)]
    pub unsafe fn edge_divide<V: Vector>(params: &EdgeMapParams) {
        // SAFETY: the caller's promise.
        unsafe { map::<Divide, V>(params) }
    }

    /// # Safety
    /// The launch contract of [`EdgeMapParams`].
    #[inline(always)]
    pub unsafe fn edge_softmax_backward<V: Vector>(params: &EdgeMapParams) {
        // SAFETY: the caller's promise.
        unsafe { map::<SoftmaxBackward, V>(params) }
    }

    /// # Safety
    /// The launch contract of [`EdgeMapParams`].
    #[inline(always)]
    pub unsafe fn edge_bias_gradient<V: Vector>(params: &EdgeMapParams) {
        // SAFETY: the caller's promise.
        unsafe { bias_gradient::<V>(params) }
    }

    /// # Safety
    /// The launch contract of [`EdgeMapParams`].
    #[inline(always)]
    pub unsafe fn edge_dropout<V: Vector>(params: &EdgeMapParams) {
        // SAFETY: the caller's promise.
        unsafe { map::<Dropout, V>(params) }
    }
}
