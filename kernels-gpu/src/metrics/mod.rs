//! What metrics are made of, beside counts.
//!
//! - [`errors`]: sums of errors by column and split.
//! - [`keys`]: words that order as scores do.
//! - [`pairs`]: scores of pairs of rows.
//! - [`ranks`]: sums over scores in order.

mod errors;
mod keys;
mod pairs;
mod ranks;

use crate::device::vector::Vector;
use halfgnn_contract::metrics::{ErrorParams, PairScoreParams, RankKeysParams, RankSumsParams};

/// The functions that the entries are, by name.
pub mod family {
    use super::*;
    pub use errors::reduce_error_sums;
    pub use ranks::rank_truths;

    /// # Safety
    /// The launch contract of [`ErrorParams`].
    #[inline(always)]
    pub unsafe fn sum_errors<V: Vector>(params: &ErrorParams) {
        // SAFETY: the caller's promise.
        unsafe { errors::sum_errors::<V>(params) }
    }

    /// # Safety
    /// The launch contract of [`PairScoreParams`].
    #[inline(always)]
    pub unsafe fn score_pairs<V: Vector>(params: &PairScoreParams) {
        // SAFETY: the caller's promise.
        unsafe { pairs::score_pairs::<V>(params) }
    }

    /// # Safety
    /// The launch contract of [`RankKeysParams`].
    #[inline(always)]
    pub unsafe fn rank_keys<V: Vector>(params: &RankKeysParams) {
        // SAFETY: the caller's promise.
        unsafe { keys::rank_keys::<V>(params) }
    }

    /// Makes a function of a sum's name of it.
    macro_rules! sums {
        ($($name:ident = $kernel:expr;)*) => {
            $(
                /// # Safety
                /// The launch contract of [`RankSumsParams`].
                #[inline(always)]
                pub unsafe fn $name(params: &RankSumsParams) {
                    // SAFETY: the caller's promise.
                    unsafe { $kernel(params) }
                }
            )*
        };
    }

    sums! {
        sum_concordant = |params| ranks::sum(params, |group| group.concordant());
        sum_hits = |params: &RankSumsParams| ranks::sum(params, |group| group.hits(params.most));
        sum_precisions = |params| ranks::sum(params, |group| group.precision());
        sum_reciprocal_ranks = |params| ranks::sum(params, |group| group.reciprocal_rank());
        reduce_rank_counts = ranks::reduce::<u64>;
        reduce_rank_sums = ranks::reduce::<f64>;
    }
}
