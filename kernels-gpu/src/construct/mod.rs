//! What a graph on a device is made of, from lists of edges that lie there.
//!
//! - [`rows`]: offsets, rows of edges, starts, and factors of degrees.
//! - [`words`]: picked words, and the largest.

mod rows;
mod words;

/// The functions that the entries are, by name.
pub mod family {
    pub use super::rows::{degree_factors, row_ids, row_offsets, row_starts};
    pub use super::words::{largest_word, longest_row, take_halfwords, take_words};
}
