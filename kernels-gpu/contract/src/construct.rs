//! What a graph on a device is made of, from lists of edges that lie there: offsets, rows of edges, starts.
//!
//! Lists of rows and ranks of starts are prefix sums: see [`crate::scan`]. Edges are put in order by [`crate::sort`].

use crate::format::table;
use crate::{DevicePtr, EntrySpec, WARP, param_struct};

/// Threads of a CTA.
pub const THREADS_PER_CTA: u32 = 256;
/// Warps of a CTA, and words of starts that it makes.
pub const WARPS_PER_CTA: u32 = THREADS_PER_CTA / WARP;
/// CTAs that look for the largest of many numbers, at most: a word each goes to the host.
pub const MOST_LARGEST_CTAS: u32 = 1024;
/// Bytes of dynamic shared memory of the entries that look for the largest: a word a warp.
pub const LARGEST_SHARED_BYTES: u32 = WARPS_PER_CTA * 4;

param_struct! {
    /// Parameters of the kernels that make a graph.
    pub struct ConstructParams {
        /// Row of each edge: ascending for `row_offsets` and `row_starts`, which read it; written by `row_ids`.
        pub rows: DevicePtr<u32>,
        /// First edge of each row, `row_count + 1` of them: written by `row_offsets`, read by `row_ids` and `longest_row`.
        pub offsets: DevicePtr<u64>,
        /// Pairs of which `row_starts` writes the first words.
        pub starts: DevicePtr<[u32; 2]>,
        /// Numbers: what `take_words` and `take_halfwords` pick from, or of which `largest_word` finds the largest; `words_len` long.
        pub words: DevicePtr<u32>,
        /// For `take_words` and `take_halfwords`: which word each of the results is, `results` long. A number that is no word's gives 0.
        pub order: DevicePtr<u32>,
        /// What they write; for the entries that look for the largest, a word a CTA.
        pub result: DevicePtr<u32>,
        /// Number of rows.
        pub row_count: u64,
        /// Number of edges.
        pub edges: u64,
        /// Number of `words`.
        pub words_len: u64,
        /// Number of results of `take_words`; words of `starts`; CTAs that look for the largest.
        pub results: u64,
    }
}

param_struct! {
    /// Parameters of `degree_factors`.
    pub struct DegreeParams {
        /// First edge of each row, `row_count + 1` of them.
        pub offsets: DevicePtr<u64>,
        /// Becomes the factor of each row.
        pub factors: DevicePtr<f32>,
        /// Number of rows.
        pub row_count: u64,
        /// What of the degree: [`DEGREE`], [`INVERSE`] or [`INVERSE_ROOT`].
        pub power: u32,
        /// Zero.
        pub unused: u32,
    }
}

/// The degree.
pub const DEGREE: u32 = 0;
/// One over the degree.
pub const INVERSE: u32 = 1;
/// One over its square root.
pub const INVERSE_ROOT: u32 = 2;

/// The factor that is made of a degree, of which 0 counts as 1, with `sqrt` for the correctly rounded root.
#[inline(always)]
pub fn degree_factor(degree: u64, power: u32, sqrt: impl Fn(f32) -> f32) -> f32 {
    let degree = if degree == 0 { 1.0 } else { degree as f32 };
    match power {
        DEGREE => degree,
        INVERSE => 1.0 / degree,
        _ => 1.0 / sqrt(degree),
    }
}

/// CTAs of which each thread makes one result.
#[inline]
pub const fn ctas(results: u64) -> u64 {
    results.div_ceil(THREADS_PER_CTA as u64)
}

/// CTAs of which each warp makes a word of starts.
#[inline]
pub const fn start_ctas(words: u64) -> u64 {
    words.div_ceil(WARPS_PER_CTA as u64)
}

/// CTAs that look for the largest of so many numbers.
#[inline]
pub const fn largest_ctas(numbers: u64) -> u64 {
    let wanted = ctas(numbers);
    if wanted < MOST_LARGEST_CTAS as u64 {
        wanted
    } else {
        MOST_LARGEST_CTAS as u64
    }
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! construct_entries {
    ($with:ident) => {
        $with! {
            formats {
            }
            plain {
                /// First edge of each row, from the rows of the edges.
                row_offsets(ConstructParams);
                /// Row of each edge, from the first edges of the rows.
                row_ids(ConstructParams);
                /// A bit for each edge that is the first of its row, and one behind the last edge.
                row_starts(ConstructParams);
                /// Words that an order picks.
                take_words(ConstructParams);
                /// The same of numbers of 16 bits.
                take_halfwords(ConstructParams);
                /// The largest word of each CTA's share.
                largest_word(ConstructParams);
                /// The number of edges of the longest row of each CTA's share.
                longest_row(ConstructParams);
                /// A factor of each row, of its number of edges.
                degree_factors(DegreeParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[construct_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_ctas_look_for_the_largest() {
        assert_eq!([0, 1, 256, 257].map(largest_ctas), [0, 1, 1, 2]);
        assert_eq!(largest_ctas(1 << 40), 1024);
        assert_eq!([0, 1, 8, 9].map(start_ctas), [0, 1, 1, 2]);
    }
}
