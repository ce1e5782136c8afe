//! Attention by dot products, fused: scores, softmax and sums in one walk over the edges, and the same of both gradients.
//!
//! The walk is that of [`edge_walk`](crate::edge_walk).
//!
//! - [`dots`]: dot products, on tensor cores where elements have 16 bits.
//! - [`softmax`]: the running softmax of a row.
//! - [`pass`]: the three passes: forward, gradients of rows, gradients of columns.
//!
//! The softmax is online (Milakov and Gimelshein, "Online normalizer calculation for softmax", 2018), and the gradients compute the
//! scores again, as in FlashAttention (Dao et al., NeurIPS 2022).

mod dots;
mod pass;
mod softmax;

pub use dots::Dots;

/// The functions that the entries are, by name.
pub mod family {
    use super::dots::Dots;
    use super::pass::{Columns, Forward, Rows};
    use crate::edge_walk::passes;
    use halfgnn_contract::dot_attention::{DotAttentionParams, VECTORS};

    const LOADS: usize = VECTORS as usize;

    passes! {
        DotAttentionParams, LOADS, V: Dots;
        Forward: dot_attention, dot_attention_follow_up;
        Rows: dot_attention_rows, dot_attention_rows_follow_up;
        Columns: dot_attention_columns, dot_attention_columns_follow_up;
    }
}
