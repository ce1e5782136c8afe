//! Segment reductions: one value a row from the values of its edges, without atomics.
//!
//! ```text
//!  edges      0 … 127     │ 128 … 255   │ 256 … 383       a warp has 128 edges, a lane four neighbours
//!  rows       aaabbbbbbbb │ bbbbbbbbbbb │ bbccccdd
//!             a → result    TAIL of 1     END of 2: b     a, c: by their warp
//!             TAIL of 0: b                c → result      b: TAIL of 0, TAIL of 1, END of 2, by the follow-up
//! ```
//!
//! - [`policy`]: what a variant is made of: where an edge's value comes from, and how values are joined.
//! - [`reduce`]: the first kernel, a segmented scan of each warp.
//! - [`follow_up`]: joins the parts of rows that cross warps, and writes the rows without edges.
//!
//! Each row is joined in an order that depends on the graph alone, so results repeat bit for bit.

mod follow_up;
mod policy;
mod reduce;

/// The functions that the entries are, by name.
pub mod family {
    use super::policy::{
        BiasedScores, Elements, Gathered, Max, Named, Plane, Product, Scores, Sum, WeightedNamed,
    };
    use super::reduce::run;
    use crate::device::vector::Vector;
    use halfgnn_contract::attention::Softmax;
    use halfgnn_contract::segment::SegmentParams;

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn segment_max<V: Vector>(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { run::<Plane<V>, Max>(params) }
    }

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn segment_sum<V: Vector>(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { run::<Plane<V>, Sum>(params) }
    }

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn segment_product_sum<V: Vector>(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { run::<Product<V>, Sum>(params) }
    }

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn segment_gathered_sum<V: Vector>(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { run::<Gathered<V>, Sum>(params) }
    }

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn spmv<V: Vector>(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { run::<Named<V>, Elements<V>>(params) }
    }

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn spmv_weighted<V: Vector>(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { run::<WeightedNamed<V>, Elements<V>>(params) }
    }

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn spmv_follow_up<V: Vector>(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { super::follow_up::run::<Elements<V>>(params) }
    }

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn segment_softmax(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { run::<Scores, Softmax>(params) }
    }

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn segment_biased_softmax(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { run::<BiasedScores, Softmax>(params) }
    }

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn segment_follow_up_softmax(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { super::follow_up::run::<Softmax>(params) }
    }

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn segment_follow_up_sum(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { super::follow_up::run::<Sum>(params) }
    }

    /// # Safety
    /// The launch contract of [`SegmentParams`].
    #[inline(always)]
    pub unsafe fn segment_follow_up_max(params: &SegmentParams) {
        // SAFETY: the caller's promise.
        unsafe { super::follow_up::run::<Max>(params) }
    }
}
