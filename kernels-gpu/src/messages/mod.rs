//! Sums of messages of the rows of both ends of an edge and of the edge's own, and their gradients.
//!
//! The walk is that of [`edge_walk`](crate::edge_walk), the three passes are in [`pass`].

mod pass;

/// The functions that the entries are, by name.
pub mod family {
    use super::pass::{Columns, Forward, Rows};
    use crate::device::vector::Vector;
    use crate::edge_walk::{follow_up, walk};
    use halfgnn_contract::messages::{MessageParams, VECTORS};

    const LOADS: usize = VECTORS as usize;

    macro_rules! passes {
        ($($pass:ident: $first:ident, $second:ident;)*) => {$(
            /// # Safety
            /// The launch contract of [`MessageParams`].
            #[inline(always)]
            pub unsafe fn $first<V: Vector<Bits = [u32; 4]>>(params: &MessageParams) {
                // SAFETY: the caller's promise.
                unsafe { walk::<V, $pass, LOADS>(params) }
            }

            /// # Safety
            /// The launch contract of [`MessageParams`], after the kernel whose rows it completes.
            #[inline(always)]
            pub unsafe fn $second<V: Vector<Bits = [u32; 4]>>(params: &MessageParams) {
                // SAFETY: the caller's promise.
                unsafe { follow_up::<V, $pass, LOADS>(params) }
            }
        )*};
    }

    passes! {
        Forward: message_sums, message_sums_follow_up;
        Rows: message_sums_rows, message_sums_rows_follow_up;
        Columns: message_sums_columns, message_sums_columns_follow_up;
    }
}
