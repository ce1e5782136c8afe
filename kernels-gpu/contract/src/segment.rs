//! Segment reductions: one value a row from the values of its edges, by a sum, a maximum or a running softmax. A product with a
//! vector (SpMV) is one: the sum of what the edges' columns name.
//!
//! Edges are dealt out evenly, [`EDGES_PER_LANE`] consecutive ones a lane and [`EDGES_PER_WARP`] a warp, whatever the
//! degrees. A warp writes the rows that lie inside it. What it has of a row that began before it or goes on after it
//! goes to the staging buffer, and a follow-up kernel joins those parts: so no atomics, and one order of joining for
//! one graph. The follow-up also writes the rows without edges, which become what no edge gives: 0 for a sum, −∞ for a
//! maximum, zeros for a softmax. Heads are CTAs in y.

use crate::attention::EdgeAttention;
use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Consecutive edges of a lane: one 16-byte load of indices.
pub const EDGES_PER_LANE: u32 = 4;

/// Edges of a warp.
pub const EDGES_PER_WARP: u32 = EDGES_PER_LANE * WARP;

/// Warps of a CTA.
pub const WARPS_PER_CTA: u32 = 4;

/// Threads of a CTA, in both kernels.
pub const THREADS_PER_CTA: u32 = WARP * WARPS_PER_CTA;

/// CTAs of the follow-up kernel write this many rows without edges each.
pub const EMPTY_ROWS_PER_CTA: u32 = 4 * THREADS_PER_CTA;

/// A row whose parts lie in more warps than this is joined by a whole warp, another by one lane.
pub const FEW_PARTS: u32 = 8;

/// No row: an id that no vertex has.
pub const NO_ROW: u32 = u32::MAX;

param_struct! {
    /// Parameters of both segment kernels.
    pub struct SegmentParams {
        /// Row of each edge, ascending and below [`NO_ROW`]; `edges` long, 16-byte aligned.
        pub rows: DevicePtr<u32>,
        /// Column of each edge; `edges` long, 16-byte aligned. Read by the entries that compute values from vertices.
        pub columns: DevicePtr<u32>,
        /// First edge of each row; read by the follow-up.
        pub offsets: DevicePtr<u64>,
        /// Rows without edges; `empty_count` long.
        pub empty_rows: DevicePtr<u32>,
        /// Planes of edge values, for the entries that reduce them: [`HalfBits`], or floats for float entries; 16-byte
        /// aligned.
        pub values: DevicePtr<HalfBits>,
        /// Planes of what the values are multiplied by, for the entries that reduce products; the vector, an element a column, for a
        /// product with one.
        pub factors: DevicePtr<HalfBits>,
        /// Which value is that of each edge, for the entries that gather: `edges` long, 16-byte aligned, each below it.
        pub map: DevicePtr<u32>,
        /// Output, planes of one float a row; pairs of floats, `m` and `1/z`, of a softmax; an element a row of a product with a
        /// vector.
        pub result: DevicePtr<f32>,
        /// Output of a softmax: the share of the scores above zero in the weights of each row; or null.
        pub positive_share: DevicePtr<f32>,
        /// Parts of rows: [`staging_words`] long.
        pub staging: DevicePtr<u32>,
        /// Distance of two planes of edge values, in values.
        pub plane_stride: u64,
        /// Number of edges.
        pub edges: u32,
        /// Warps of the first kernel, [`warps`]; 0 in the follow-up where nothing was staged.
        pub warps: u32,
        /// Number of rows without edges.
        pub empty_count: u32,
        /// Length of a plane of numbers of rows.
        pub vertices: u32,
        /// What attention is made of, for the entries that compute it.
        pub attention: EdgeAttention,
    }
}

/// Warps that reduce `edges` edges.
#[inline]
pub const fn warps(edges: u32) -> u32 {
    edges.div_ceil(EDGES_PER_WARP)
}

/// CTAs in x of the first kernel.
#[inline]
pub const fn ctas(warps: u32) -> u32 {
    warps.div_ceil(WARPS_PER_CTA)
}

/// CTAs in x of the follow-up kernel: a lane for each warp of the first, then CTAs for the rows without edges.
#[inline]
pub const fn follow_up_ctas(warps: u32, empty_rows: u32) -> u32 {
    warps.div_ceil(THREADS_PER_CTA) + empty_rows.div_ceil(EMPTY_ROWS_PER_CTA)
}

/// Words that a warp stages a head, for values of `words` words: the row that began before it and ends in it
/// ([`NO_ROW`] if none does), what it has of that row, and what it has of the row that goes on after it.
#[inline]
pub const fn staged_words(words: u32) -> u32 {
    1 + 2 * words
}

/// Words of the staging buffer.
#[inline]
pub const fn staging_words(warps: u32, words: u32, heads: u32) -> u64 {
    warps as u64 * staged_words(words) as u64 * heads as u64
}

/// Index of a staged word of a warp; neighbouring warps use neighbouring words.
#[inline]
pub const fn staging_index(warps: u32, words: u32, head: u32, word: u32, warp: u32) -> u64 {
    (head as u64 * staged_words(words) as u64 + word as u64) * warps as u64 + warp as u64
}

/// Index, among the words that a warp stages, of word `word` of its part of the row that ends in it.
#[inline]
pub const fn end_word(word: u32) -> u32 {
    1 + word
}

/// Index, among the words that a warp stages, of word `word` of its part of the row that goes on after it.
#[inline]
pub const fn tail_word(words: u32, word: u32) -> u32 {
    1 + words + word
}

/// Words of a running softmax.
pub const SOFTMAX_WORDS: u32 = 3;
/// Words of a sum or a maximum.
pub const FLOAT_WORDS: u32 = 1;

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! segment_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Largest values of rows.
                segment_max(SegmentParams): F16 = segment_max_half, F32 = segment_max_float, BF16 = segment_max_bfloat;
                /// Sums of values of rows.
                segment_sum(SegmentParams): F16 = segment_sum_half, F32 = segment_sum_float, BF16 = segment_sum_bfloat;
                /// Sums of products of two values.
                segment_product_sum(SegmentParams): F16 = segment_product_sum_half, F32 = segment_product_sum_float, BF16 = segment_product_sum_bfloat;
                /// Sums of values that a map picks.
                segment_gathered_sum(SegmentParams): F16 = segment_gathered_sum_half, F32 = segment_gathered_sum_float, BF16 = segment_gathered_sum_bfloat;
                /// Product with a vector: sums of the elements that columns name.
                spmv(SegmentParams): F16 = spmv_half, F32 = spmv_float, BF16 = spmv_bfloat;
                /// The same, each times the value of its edge.
                spmv_weighted(SegmentParams): F16 = spmv_weighted_half, F32 = spmv_weighted_float, BF16 = spmv_weighted_bfloat;
                /// Follow-up of both.
                spmv_follow_up(SegmentParams): F16 = spmv_follow_up_half, F32 = spmv_follow_up_float, BF16 = spmv_follow_up_bfloat;
            }
            plain {
                /// Running softmax of the scores of the edges, which are the vertices' (attention).
                segment_softmax(SegmentParams);
                /// The same with a bias an edge in the sum of scores: planes of floats in the place of the values.
                segment_biased_softmax(SegmentParams);
                /// Follow-up of the softmax.
                segment_follow_up_softmax(SegmentParams);
                /// Follow-up of the sums.
                segment_follow_up_sum(SegmentParams);
                /// Follow-up of the maxima.
                segment_follow_up_max(SegmentParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[segment_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn warps_cover_the_edges() {
        assert_eq!(warps(0), 0);
        for edges in [1, 127, 128, 129, i32::MAX as u32, 1 << 31, u32::MAX] {
            let last = (warps(edges) - 1) as u64 * EDGES_PER_WARP as u64;
            assert!(last < edges as u64 && edges as u64 <= last + EDGES_PER_WARP as u64);
        }
        assert_eq!(follow_up_ctas(0, 0), 0);
        assert_eq!(follow_up_ctas(1, 1), 2);
    }

    #[test]
    fn staged_words_lie_apart() {
        let (warps, heads) = (3, 2);
        let mut seen = [false; 3 * 2 * 7];
        assert_eq!(
            staging_words(warps, SOFTMAX_WORDS, heads),
            seen.len() as u64
        );
        for head in 0..heads {
            for warp in 0..warps {
                let mut take = |word| {
                    let at = staging_index(warps, SOFTMAX_WORDS, head, word, warp) as usize;
                    assert!(!seen[at]);
                    seen[at] = true;
                };
                take(0);
                for word in 0..SOFTMAX_WORDS {
                    take(end_word(word));
                    take(tail_word(SOFTMAX_WORDS, word));
                }
            }
        }
        assert!(seen.iter().all(|&seen| seen));
        // The last word of the largest buffer is addressed without wrapping around.
        let warps = super::warps(u32::MAX);
        assert_eq!(
            staging_index(warps, 3, 1023, tail_word(3, 2), warps - 1) + 1,
            staging_words(warps, 3, 1024)
        );
    }
}
