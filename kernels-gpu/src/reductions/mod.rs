//! Maxima, softmax sums and deviations of messages over the edges of each row, and their gradients.
//!
//! The walk is that of [`edge_walk`](crate::edge_walk). A reduction is a [`Reduction`](policy::Reduction), the three passes are in [`pass`]. Maxima of
//! rows as they are have passes of their own ([`copied`]).

mod copied;
mod pass;
mod policy;

/// The functions that the entries are, by name.
pub mod family {
    use super::copied::{CopiedColumns, CopiedForward};
    use super::pass::{Columns, Forward, Rows};
    use super::policy::{Deviations, Maxima, Softmax};
    use crate::device::ties::Ties;
    use crate::device::vector::Vector;
    use crate::edge_walk::{passes, walk};
    use halfgnn_contract::messages::VECTORS;
    use halfgnn_contract::reductions::ReductionParams;

    const LOADS: usize = VECTORS as usize;

    type MaximaForward = Forward<Maxima>;
    type MaximaRows = Rows<Maxima>;
    type MaximaColumns = Columns<Maxima>;
    type SoftmaxForward = Forward<Softmax>;
    type SoftmaxRows = Rows<Softmax>;
    type SoftmaxColumns = Columns<Softmax>;
    type DeviationsForward = Forward<Deviations>;
    type DeviationsRows = Rows<Deviations>;
    type DeviationsColumns = Columns<Deviations>;

    passes! {
        ReductionParams, LOADS, V: Vector<Bits = [u32; 4]>;
        MaximaForward: message_maxima, message_maxima_follow_up;
        MaximaRows: message_maxima_rows, message_maxima_rows_follow_up;
        MaximaColumns: message_maxima_columns, message_maxima_columns_follow_up;
        SoftmaxForward: message_softmax, message_softmax_follow_up;
        SoftmaxRows: message_softmax_rows, message_softmax_rows_follow_up;
        SoftmaxColumns: message_softmax_columns, message_softmax_columns_follow_up;
        DeviationsForward: message_deviations, message_deviations_follow_up;
        DeviationsRows: message_deviations_rows, message_deviations_rows_follow_up;
        DeviationsColumns: message_deviations_columns, message_deviations_columns_follow_up;
    }

    /// # Safety
    /// The launch contract of [`ReductionParams`]. Its rows of several chunks are completed by those of [`message_maxima_follow_up`].
    #[inline(always)]
    pub unsafe fn message_maxima_copied<V: Ties>(params: &ReductionParams) {
        // SAFETY: the caller's promise.
        unsafe { walk::<V, CopiedForward, LOADS>(params) }
    }

    /// # Safety
    /// Likewise, and [`message_maxima_columns_follow_up`].
    #[inline(always)]
    pub unsafe fn message_maxima_copied_columns<V: Ties>(params: &ReductionParams) {
        // SAFETY: the caller's promise.
        unsafe { walk::<V, CopiedColumns, LOADS>(params) }
    }
}
