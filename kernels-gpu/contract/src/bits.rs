//! Matrices of bits: a bit set is +1, one that is not −1. Made of numbers by their sign, summed up over neighbours (BitGNN's
//! BSpMM), multiplied (its BMM).
//!
//! Element `f` of a row is bit `f % 64` of word `f / 64`. Rows of more than one word start at multiples of 16 bytes. Bits
//! past the last column are zero.
//!
//! # Sums over neighbours
//! A warp has [`EDGES_PER_WARP`] consecutive edges, or twice as many ([`are_long`]), whatever the degrees, and keeps the rows of 32 of them in its lanes. A transpose of 32 × 32 bits leaves a lane the bits that
//! all 32 have in its columns, and what lies between two starts of rows is counted under a mask. Signs of rows that are not long ([`are_counted`]) are made otherwise: each lane counts
//! some edges that lie side by side in vertical counters of a word of columns, and what lanes counted of a row is added up from lane to lane. Rows that begin and end in a warp's edges are written at once. Of others there are
//! parts, which a CTA puts together in shared memory; what crosses CTAs is staged, and a follow-up kernel adds up the parts. Sums are integers, so that no order is another
//! result.
//!
//! On small graphs of short rows a launch is what takes time. There a word of a row is a warp's, whatever the degree, and nothing is
//! staged: one launch, [`vertex_ctas`] CTAs for each word.
//!
//! With a factor a column, in 8 bits, `Σ q · (±1) = 2 · Σ q · bit − Σ q`, and tensor cores multiply: bytes of which each is one bit of an edge's row, times bytes that are the factors of
//! the edges of one row of the graph. A warp has [`FEW_WARPS_EDGES_PER_WARP`] edges, whose rows and factors are copied to shared memory some groups of 32 ahead, and sums eight rows up at once.
//!
//! # Products
//! The second operand is given by its columns, each a row of bits. Tensor cores count bits that are set in both; what two rows of ±1
//! multiply to follows from that and from how many each has: `K − 2·p(a) − 2·p(b) + 4·p(a ∧ b)`. A warp makes
//! [`BMM_TILE_ROWS`] rows of [`BMM_COLUMNS`] columns at once, and lays the columns out over fragments so that what the four lanes of a row
//! store at once lies side by side. It has some such tiles, one after the other, whose rows are on their way while those before are written, and of
//! columns of at most [`BMM_STEP`] bits the words stay in registers.

use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Columns of a word.
pub const WORD_BITS: u32 = 64;

/// Threads of a CTA, in every kernel.
pub const THREADS_PER_CTA: u32 = 256;
/// Warps of a CTA.
pub const WARPS_PER_CTA: u32 = THREADS_PER_CTA / WARP;

/// Edges of a warp of the sums over neighbours.
pub const EDGES_PER_WARP: u32 = 256;
/// Edges of a CTA.
pub const EDGES_PER_CTA: u32 = WARPS_PER_CTA * EDGES_PER_WARP;
/// Warps of a CTA of `bspmm_factored_*` and `bspmm_long_*`, which has as many edges: what a warp does once is for more of them.
pub const FEW_WARPS_PER_CTA: u32 = 4;
/// Threads of such a CTA.
pub const FEW_WARPS_THREADS_PER_CTA: u32 = FEW_WARPS_PER_CTA * WARP;
/// Edges of such a warp.
pub const FEW_WARPS_EDGES_PER_WARP: u32 = EDGES_PER_CTA / FEW_WARPS_PER_CTA;
/// Groups of 32 edges of a warp of `bspmm_factored_*` whose rows and factors are in shared memory or on their way, the one that is added up included.
pub const FACTORED_STAGES: u32 = 4;
/// Most words of a row that a launch sums up; of more the next launch takes the rest.
pub const MOST_WORDS: u32 = 4;
/// Bits of a factor of a column.
pub const CODE_BITS: u32 = 8;
/// Factors of a word.
pub const CODES_PER_WORD: u32 = 32 / CODE_BITS;
/// The largest factor.
pub const LARGEST_CODE: u32 = (1 << CODE_BITS) - 1;
/// Of no more edges in a row sums with factors fit 32 bits, whatever they are.
pub const MOST_FACTORED_EDGES: u32 = i32::MAX as u32 / LARGEST_CODE;
/// No row: an id that no vertex has.
pub const NO_ROW: u32 = u32::MAX;
/// CTAs of the follow-up write this many rows without edges each.
pub const EMPTY_ROWS_PER_CTA: u32 = 4 * THREADS_PER_CTA;

/// Words between the starts of two rows of so many columns.
#[inline]
pub const fn row_words(columns: u64) -> u64 {
    let words = columns.div_ceil(WORD_BITS as u64);
    if words > 1 {
        words.next_multiple_of(2)
    } else {
        words
    }
}

param_struct! {
    /// Parameters of `bspmm_*` and their follow-ups: `y = scale · A · x`, of `words` words of each row from `first_word` on.
    /// `bspmm_vertex_*` take a row's words one by one, as CTAs in y: `first_word` is 0 for them, and they read neither `words` nor starts nor lists of rows.
    pub struct BspmmParams {
        /// Column of each edge; `edges` long.
        pub columns: DevicePtr<u32>,
        /// Where rows start, as the edge-parallel SpMM has it: pairs of bits and rank, a word for each 32 edges and the end.
        pub starts: DevicePtr<[u32; 2]>,
        /// The rows that have edges, ascending.
        pub filled_rows: DevicePtr<u32>,
        /// First edge of each row, and the end; read by the follow-up and by `bspmm_vertex_*`.
        pub offsets: DevicePtr<u64>,
        /// Rows without edges; `empty_count` long. Read by the follow-up.
        pub empty_rows: DevicePtr<u32>,
        /// Rows of `x_stride` words; 16-byte aligned where a row has more than one.
        pub x: DevicePtr<u64>,
        /// Rows of bits (`y_stride` words), or of elements or integers of 32 bits (`y_stride` of them).
        pub y: DevicePtr<HalfBits>,
        /// A factor a row of the graph, for the entries that write elements; or null.
        pub row_scale: DevicePtr<f32>,
        /// Parts of rows: [`staging_words`] long, a number a word where there are `codes`, else two.
        pub staging: DevicePtr<u32>,
        /// A factor a column of the graph, [`CODES_PER_WORD`] a word, the first in the lowest bits, for the entries that have them; or
        /// null.
        pub codes: DevicePtr<u32>,
        /// Number of edges.
        pub edges: u32,
        /// CTAs of the first kernel: [`ctas`], or those that have edges of the rows that are written.
        pub ctas: u32,
        /// The CTAs before them, which are not launched.
        pub first_cta: u32,
        /// Number of rows without edges.
        pub empty_count: u32,
        /// Distance of two rows of `x` in words.
        pub x_stride: u32,
        /// Distance of two rows of `y`.
        pub y_stride: u32,
        /// Columns of `x` and `y`.
        pub features: u32,
        /// First word of each row that this launch sums up; even.
        pub first_word: u32,
        /// Words that it sums up: 1, 2 or [`MOST_WORDS`]; one of a row that has one.
        pub words: u32,
        /// Factor of all sums, for the entries that write elements.
        pub scale: f32,
        /// The first row that is written, and the first of `y`. Zero for the entries that write signs.
        pub first_row: u32,
        /// Rows that are written: all by the entries that write signs, and by `bspmm_vertex_*`.
        pub rows: u32,
    }
}

param_struct! {
    /// Parameters of `binarize_*`: a bit where an element is zero or more, or what a normalisation makes of it.
    pub struct BinarizeParams {
        /// Elements.
        pub x: DevicePtr<HalfBits>,
        /// Bits.
        pub y: DevicePtr<u64>,
        /// Mean and reciprocal deviation of each column, a row each, of a normalisation; or null.
        pub statistics: DevicePtr<f32>,
        /// Its scale of each column.
        pub weight: DevicePtr<f32>,
        /// Its shift of each column.
        pub bias: DevicePtr<f32>,
        /// Number of rows.
        pub rows: u64,
        /// Columns of both.
        pub features: u32,
        /// Distance of two rows of `x` in 16-byte vectors.
        pub x_vectors: u32,
        /// Distance of two rows of `y` in words.
        pub y_stride: u32,
        /// Distance of two rows of parameters of columns in 16-byte vectors.
        pub float_vectors: u32,
    }
}

/// Rows of a thread of `binarize_*`, which looks at the parameters of its columns once.
pub const BINARIZE_ROWS: u32 = 8;

param_struct! {
    /// Parameters of `bmm*`: `y = scale · R · a · bᵀ · C + bias`, of rows of ±1; of `bmm_add_*` that is added to `y`, and of
    /// `bmm_add_signs_*` its signs are, times `share`.
    pub struct BmmParams {
        /// `rows` rows of `inner` bits, `a_stride` words apart.
        pub a: DevicePtr<u64>,
        /// `columns` rows of `inner` bits, `b_stride` words apart.
        pub b: DevicePtr<u64>,
        /// Rows of elements (`y_stride` elements) or of bits (`y_stride` words). `bmm_add*` read it, and write it in place.
        pub y: DevicePtr<HalfBits>,
        /// A factor a row of `y`; or null.
        pub row_scale: DevicePtr<f32>,
        /// A factor a column of `y`; or null.
        pub column_scale: DevicePtr<f32>,
        /// Added to each row; or null.
        pub bias: DevicePtr<f32>,
        /// Rows of `a` and `y`.
        pub rows: u32,
        /// Columns of `y`.
        pub columns: u32,
        /// Bits of a row of `a` and of `b`.
        pub inner: u32,
        /// Distance of two rows of `a` in words.
        pub a_stride: u32,
        /// Distance of two rows of `b` in words.
        pub b_stride: u32,
        /// Distance of two rows of `y`.
        pub y_stride: u32,
        /// Factor of all products.
        pub scale: f32,
        /// Rows of a warp: [`bmm_rows_per_warp`].
        pub rows_per_warp: u32,
        /// What `bmm_add_signs_*` add where the product is zero or more, and take away elsewhere.
        pub share: f32,
        /// Zero.
        pub reserved: u32,
    }
}

/// Columns of a CTA of `bmm*`: a word of signs.
pub const BMM_COLUMNS: u32 = WORD_BITS;
/// Rows that a warp of `bmm*` multiplies at once.
pub const BMM_TILE_ROWS: u32 = 16;
/// The most rows of a warp of `bmm*`, which looks at the columns once.
pub const BMM_MOST_ROWS: u32 = 256;
/// Warps of `bmm*` that rows are dealt out to for each multiprocessor, where there are enough: some four times as many as it holds.
pub const BMM_WARPS_PER_MULTIPROCESSOR: u32 = 96;
/// Bits that are multiplied at once.
pub const BMM_STEP: u32 = 128;
/// Bytes of dynamic shared memory of `bmm*`: what follows from how many bits each column has, then the factors of columns, then what is
/// added.
pub const BMM_SHARED_BYTES: u32 = 3 * BMM_COLUMNS * 4;

/// Rows of a warp of `bmm*`, of so many: whole tiles.
#[inline]
pub const fn bmm_rows_per_warp(rows: u32, multiprocessors: u32) -> u32 {
    let share = rows / (multiprocessors * BMM_WARPS_PER_MULTIPROCESSOR);
    if share >= BMM_MOST_ROWS {
        BMM_MOST_ROWS
    } else if share > BMM_TILE_ROWS {
        share.next_multiple_of(BMM_TILE_ROWS)
    } else {
        BMM_TILE_ROWS
    }
}

/// CTAs of `bmm*`, in x and y.
#[inline]
pub const fn bmm_ctas(rows: u32, rows_per_warp: u32, columns: u32) -> (u32, u32) {
    (
        rows.div_ceil(rows_per_warp).div_ceil(WARPS_PER_CTA),
        columns.div_ceil(BMM_COLUMNS),
    )
}

/// CTAs that sum up so many edges.
#[inline]
pub const fn ctas(edges: u32) -> u32 {
    edges.div_ceil(EDGES_PER_CTA)
}

/// CTAs in x of `bspmm_vertex_*`, a warp a row.
#[inline]
pub const fn vertex_ctas(rows: u32) -> u32 {
    rows.div_ceil(WARPS_PER_CTA)
}

/// CTAs of the follow-up: a warp for each CTA of the first, then CTAs for the rows without edges.
#[inline]
pub const fn follow_up_ctas(ctas: u32, empty_rows: u32) -> u32 {
    ctas.div_ceil(WARPS_PER_CTA) + empty_rows.div_ceil(EMPTY_ROWS_PER_CTA)
}

/// Words before the parts that a CTA stages: the row that began before it and ends in it, [`NO_ROW`] if none does, and one that keeps
/// the parts aligned.
pub const STAGED_PARTS: u32 = 2;

/// Words of a part that is staged, a number a column: of 32 bits where columns of the graph have factors, else of 16, since no sum of a CTA's edges is larger.
#[inline]
pub const fn staged_part(words: u32, factored: bool) -> u32 {
    words * if factored { WORD_BITS } else { WORD_BITS / 2 }
}
const _: () = assert!(EDGES_PER_CTA < 1 << 15);

/// Words that a CTA stages: those before its parts, its part of the row that ends in it, and its part of the row that goes on after it.
#[inline]
pub const fn staged_words(words: u32, factored: bool) -> u32 {
    STAGED_PARTS + 2 * staged_part(words, factored)
}

/// Words of the staging buffer.
#[inline]
pub const fn staging_words(ctas: u32, words: u32, factored: bool) -> u64 {
    ctas as u64 * staged_words(words, factored) as u64
}

/// Bytes of a part of a row of so many words: a number a column.
#[inline]
pub const fn part_bytes(words: u32) -> u32 {
    words * WORD_BITS * 4
}

/// Bytes of dynamic shared memory of `bspmm_*`, but `bspmm_counted_*` and `bspmm_factored_*`, of so many warps a CTA: for each two words, the part that began before it and the one
/// that goes on.
#[inline]
pub const fn shared_bytes(warps: u32, words: u32) -> u32 {
    warps * (8 + 2 * part_bytes(words))
}

/// Bytes of a group of 32 edges in the shared memory of `bspmm_factored_*`: the words of their rows, and a word with the factor of each.
#[inline]
pub const fn stage_bytes(words: u32) -> u32 {
    WARP * (words * (WORD_BITS / 8) + 4)
}

/// Where the columns of a CTA's edges are in the shared memory of `bspmm_factored_*`: behind the parts.
#[inline]
pub const fn factored_columns(words: u32) -> u32 {
    shared_bytes(FEW_WARPS_PER_CTA, words)
}

/// Where the stages of its warps are.
#[inline]
pub const fn factored_stages(words: u32) -> u32 {
    factored_columns(words) + EDGES_PER_CTA * 4
}

/// Bytes of dynamic shared memory of `bspmm_factored_*`.
#[inline]
pub const fn factored_shared_bytes(words: u32) -> u32 {
    factored_stages(words) + FEW_WARPS_PER_CTA * FACTORED_STAGES * stage_bytes(words)
}

/// Whether signs of rows of so many edges in the mean are made in vertical counters, `words` words of each at once. Measured: of one word a mean of 16 is faster so and 50 as fast, of
/// two 50 and not 490, of four 490.
#[inline]
pub const fn are_counted(words: u32, edges: u32, filled_rows: u32) -> bool {
    words == MOST_WORDS || (edges as u64) < filled_rows as u64 * (32 * words * words) as u64
}

/// Whether rows of so many edges in the mean are long: of more words than one their sums have CTAs of few warps. Measured: of a mean of 16 these take 9 to 10 % more, of 50 and of 490 2 to 8 % less.
#[inline]
pub const fn are_long(edges: u32, filled_rows: u32) -> bool {
    edges as u64 >= filled_rows as u64 * 32
}

/// Planes of vertical counters of so many edges.
#[inline]
pub const fn planes(edges: u32) -> u32 {
    edges.ilog2() + 1
}

/// Bytes of a part of a row of so many words in vertical counters of a warp's edges: a word a plane, and how many edges it has.
#[inline]
pub const fn counters_bytes(words: u32) -> u32 {
    (planes(EDGES_PER_WARP) * words + 1) * (WORD_BITS / 8)
}

/// Bytes of dynamic shared memory of `bspmm_counted_*`: as [`shared_bytes`], and for each lane a word for each plane of the edges that it looks at.
#[inline]
pub const fn counters_shared_bytes(words: u32) -> u32 {
    let of_lane = planes(words * EDGES_PER_WARP / WARP) * (WORD_BITS / 8);
    WARPS_PER_CTA * (8 + 2 * counters_bytes(words) + WARP * of_lane)
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! bits_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Bits of elements.
                binarize(BinarizeParams): F16 = binarize_f16, F32 = binarize_f32, BF16 = binarize_bf16;
                /// Sums of rows of one word, as elements.
                bspmm_1(BspmmParams): F16 = bspmm_1_f16, F32 = bspmm_1_f32, BF16 = bspmm_1_bf16;
                /// Sums of two words of rows, as elements.
                bspmm_2(BspmmParams): F16 = bspmm_2_f16, F32 = bspmm_2_f32, BF16 = bspmm_2_bf16;
                /// Sums of four words of rows, as elements.
                bspmm_4(BspmmParams): F16 = bspmm_4_f16, F32 = bspmm_4_f32, BF16 = bspmm_4_bf16;
                /// Sums of two words of long rows, as elements.
                bspmm_long_2(BspmmParams): F16 = bspmm_long_2_f16, F32 = bspmm_long_2_f32, BF16 = bspmm_long_2_bf16;
                /// Of four words.
                bspmm_long_4(BspmmParams): F16 = bspmm_long_4_f16, F32 = bspmm_long_4_f32, BF16 = bspmm_long_4_bf16;
                /// The same with a factor a column, of one word.
                bspmm_factored_1(BspmmParams): F16 = bspmm_factored_1_f16, F32 = bspmm_factored_1_f32, BF16 = bspmm_factored_1_bf16;
                /// Of two words.
                bspmm_factored_2(BspmmParams): F16 = bspmm_factored_2_f16, F32 = bspmm_factored_2_f32, BF16 = bspmm_factored_2_bf16;
                /// Of four words.
                bspmm_factored_4(BspmmParams): F16 = bspmm_factored_4_f16, F32 = bspmm_factored_4_f32, BF16 = bspmm_factored_4_bf16;
                /// Sums of all words of rows in one launch, as elements.
                bspmm_vertex(BspmmParams): F16 = bspmm_vertex_f16, F32 = bspmm_vertex_f32, BF16 = bspmm_vertex_bf16;
                /// Their follow-up.
                bspmm_follow_up(BspmmParams): F16 = bspmm_follow_up_f16, F32 = bspmm_follow_up_f32, BF16 = bspmm_follow_up_bf16;
                /// Products, as elements.
                bmm(BmmParams): F16 = bmm_f16, F32 = bmm_f32, BF16 = bmm_bf16;
                /// Products, added to elements.
                bmm_add(BmmParams): F16 = bmm_add_f16, F32 = bmm_add_f32, BF16 = bmm_add_bf16;
                /// A share with the sign of each product, added to elements.
                bmm_add_signs(BmmParams): F16 = bmm_add_signs_f16, F32 = bmm_add_signs_f32, BF16 = bmm_add_signs_bf16;
            }
            plain {
                /// Signs of sums of rows of one word.
                bspmm_1_sign(BspmmParams);
                /// Signs of sums of two words of long rows.
                bspmm_long_2_sign(BspmmParams);
                /// Signs of sums of rows of one word, in vertical counters.
                bspmm_counted_1_sign(BspmmParams);
                /// Of two words.
                bspmm_counted_2_sign(BspmmParams);
                /// Of four words.
                bspmm_counted_4_sign(BspmmParams);
                /// Signs of sums with a factor a column, of one word.
                bspmm_factored_1_sign(BspmmParams);
                /// Of two words.
                bspmm_factored_2_sign(BspmmParams);
                /// Of four words.
                bspmm_factored_4_sign(BspmmParams);
                /// Signs of sums of all words of rows in one launch.
                bspmm_vertex_sign(BspmmParams);
                /// Their follow-up.
                bspmm_follow_up_sign(BspmmParams);
                /// Sums of rows of one word, as integers.
                bspmm_1_i32(BspmmParams);
                /// Of two words.
                bspmm_2_i32(BspmmParams);
                /// Of four words.
                bspmm_4_i32(BspmmParams);
                /// Of two words of long rows.
                bspmm_long_2_i32(BspmmParams);
                /// Of four words.
                bspmm_long_4_i32(BspmmParams);
                /// Sums with a factor a column, of one word, as integers.
                bspmm_factored_1_i32(BspmmParams);
                /// Of two words.
                bspmm_factored_2_i32(BspmmParams);
                /// Of four words.
                bspmm_factored_4_i32(BspmmParams);
                /// Sums of all words of rows in one launch, as integers.
                bspmm_vertex_i32(BspmmParams);
                /// Their follow-up.
                bspmm_follow_up_i32(BspmmParams);
                /// Signs of products.
                bmm_sign(BmmParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[bits_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_words_are_aligned() {
        let of = [0, 1, 64, 65, 128, 129, 602].map(row_words);
        assert_eq!(of, [0, 1, 1, 2, 2, 4, 10]);
    }

    #[test]
    fn parts_are_aligned_and_fit() {
        for words in [1, 2, MOST_WORDS] {
            assert_eq!(staged_words(words, false) % 2, 0);
            assert_eq!(staged_words(words, true) % 2, 0);
            assert!(shared_bytes(WARPS_PER_CTA, words) <= 48 * 1024);
            assert!(counters_shared_bytes(words) <= 48 * 1024);
            assert!(factored_shared_bytes(words) <= 48 * 1024);
            assert_eq!(factored_columns(words) % 16, 0);
            assert_eq!(factored_stages(words) % 16, 0);
            assert_eq!(stage_bytes(words) % 16, 0);
            assert_eq!(counters_bytes(words) % 8, 0);
        }
    }

    #[test]
    fn rows_are_long_from_a_mean_of_32_edges_on() {
        let of = [(0, 0), (31, 1), (32, 1), (u32::MAX, 1 << 27)];
        let long = of.map(|(edges, rows)| are_long(edges, rows));
        assert_eq!(long, [true, false, true, false]);
    }

    #[test]
    fn signs_of_long_rows_are_not_counted() {
        let of = [(1, 31), (1, 32), (2, 127), (2, 128), (4, u32::MAX)];
        let counted = of.map(|(words, edges)| are_counted(words, edges, 1));
        assert_eq!(counted, [true, false, true, false, true]);
        assert!(!are_counted(1, 0, 0));
    }

    #[test]
    fn warps_cover_the_rows_of_a_product() {
        let of = [0, 16, 200_000, 2_449_029, u32::MAX];
        assert_eq!(
            of.map(|rows| bmm_rows_per_warp(rows, 132)),
            [16, 16, 16, 208, 256]
        );
        assert_eq!(bmm_ctas(257, 16, 65), (3, 2));
        assert_eq!(bmm_ctas(2_449_029, 208, 64), (1472, 1));
    }

    #[test]
    fn ctas_cover_the_edges() {
        assert_eq!((ctas(0), ctas(2048), ctas(2049)), (0, 1, 2));
        assert_eq!([0, 8, 9, u32::MAX].map(vertex_ctas), [0, 1, 2, 1 << 29]);
        assert_eq!(ctas(u32::MAX), 1 << 21);
        assert_eq!((follow_up_ctas(9, 1), follow_up_ctas(0, 0)), (3, 0));
        assert_eq!(staging_words(1 << 21, 4, true), (1 << 21) * 514);
        assert_eq!(staging_words(1 << 21, 4, false), (1 << 21) * 258);
    }
}
