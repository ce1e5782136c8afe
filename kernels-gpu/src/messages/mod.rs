//! Sums of messages of the rows of both ends of an edge and of the edge's own, and their gradients.
//!
//! The walk is that of [`edge_walk`](crate::edge_walk), the three passes are in [`pass`], what an edge reads in [`rows`].

mod pass;
pub(crate) mod rows;

/// The functions that the entries are, by name.
pub mod family {
    use super::pass::{Columns, Forward, Rows};
    use crate::device::vector::Vector;
    use crate::edge_walk::passes;
    use halfgnn_contract::messages::{MessageParams, VECTORS};

    const LOADS: usize = VECTORS as usize;

    passes! {
        MessageParams, LOADS, V: Vector<Bits = [u32; 4]>;
        Forward: message_sums, message_sums_follow_up;
        Rows: message_sums_rows, message_sums_rows_follow_up;
        Columns: message_sums_columns, message_sums_columns_follow_up;
    }
}
