//! Losses, their gradients, and the counts of right and wrong answers.
//!
//! - [`cross_entropy`]: a sub-warp a row.
//! - [`rows`]: counts, likewise a sub-warp a row, and one that adds up what the CTAs left.
//! - [`elements`]: losses of single elements, and counts of labels.
//! - [`policy`]: which loss.

mod cross_entropy;
mod elements;
mod policy;
mod rows;

use crate::device::vector::Vector;
use halfgnn_contract::loss::LossParams;

/// The functions that the entries are, by name.
pub mod family {
    use super::*;
    pub use elements::count_labels;
    pub use rows::{count_classes, count_correct, reduce_counts, reduce_loss};

    /// Makes a function of a loss's name of it.
    macro_rules! losses {
        ($($name:ident = $kernel:path, $policy:ty;)*) => {
            $(
                /// # Safety
                /// The launch contract of [`LossParams`].
                #[inline(always)]
                pub unsafe fn $name<V: Vector<Bits = [u32; 4]>>(params: &LossParams) {
                    // SAFETY: the caller's promise.
                    unsafe { $kernel(<$policy>::default(), core::marker::PhantomData::<V>, params) }
                }
            )*
        };
    }

    losses! {
        cross_entropy = cross_entropy::cross_entropy, policy::Unweighted;
        cross_entropy_weighted = cross_entropy::cross_entropy, policy::WeightedByClass;
        binary_cross_entropy = elements::loss, policy::BinaryCrossEntropy;
        binary_cross_entropy_weighted = elements::loss, policy::WeightedBinaryCrossEntropy;
        squared_error = elements::loss, policy::SquaredError;
        absolute_error = elements::loss, policy::AbsoluteError;
    }
}
