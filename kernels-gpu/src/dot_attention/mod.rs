//! Attention by dot products, fused: scores, softmax and sums in one walk over the edges, and the same of both gradients.
//!
//! ```text
//!  edges   0 … 255 ║ 256 … 511 ║ 512 …       a warp has a chunk, a group of lanes an edge at a time
//!  rows    aaabbbbbb║bbbbbbbbbbb║bbcc         a: written at once, b: staged in parts, which the follow-up kernel merges
//! ```
//!
//! - [`dots`]: dot products, on tensor cores where elements have 16 bits.
//! - [`lanes`]: which vectors of a row a lane has.
//! - [`part`]: what a lane has of the sums of a row.
//! - [`pass`]: the three policies: forward, gradients of rows, gradients of columns.
//! - [`ring`]: rows of columns that arrive in shared memory while others are computed.
//! - [`walk`]: the walk over the rows of a chunk, and the follow-up.
//!
//! The softmax is online (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), and the gradients compute the
//! scores again, as in FlashAttention (Dao et al., NeurIPS 2022).

mod dots;
mod lanes;
mod part;
mod pass;
mod ring;
mod walk;

/// The functions that the entries are, by name.
pub mod family {
    use super::dots::Dots;
    use super::pass::{Columns, Forward, Rows};
    use super::walk::{follow_up, walk};
    use halfgnn_contract::dot_attention::{DotAttentionParams, VECTORS};

    const LOADS: usize = VECTORS as usize;

    macro_rules! passes {
        ($($pass:ident: $first:ident, $second:ident;)*) => {$(
            /// # Safety
            /// The launch contract of [`DotAttentionParams`].
            #[inline(always)]
            pub unsafe fn $first<V: Dots>(params: &DotAttentionParams) {
                // SAFETY: the caller's promise.
                unsafe { walk::<V, $pass, LOADS>(params) }
            }

            /// # Safety
            /// The launch contract of [`DotAttentionParams`], after the kernel whose rows it completes.
            #[inline(always)]
            pub unsafe fn $second<V: Dots>(params: &DotAttentionParams) {
                // SAFETY: the caller's promise.
                unsafe { follow_up::<V, $pass, LOADS>(params) }
            }
        )*};
    }

    passes! {
        Forward: dot_attention, dot_attention_follow_up;
        Rows: dot_attention_rows, dot_attention_rows_follow_up;
        Columns: dot_attention_columns, dot_attention_columns_follow_up;
    }
}
