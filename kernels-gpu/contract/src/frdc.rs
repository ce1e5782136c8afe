//! Sums of ±1 over the neighbours in a graph of tiles of bits: BitGNN's BSpMM on its own format (Chen et al., ICS 2023, §3.2 and
//! Algorithm 1).
//!
//! The graph is cut into tiles of 4 × 4; those with an edge are 16 bits each, bit `4·row + column`. A warp has a row of tiles, four
//! rows of the graph, and takes [`TILES_PER_TURN`] tiles a turn: a lane brings one neighbour's 64 features, the bits of four rows
//! are stitched into a word of 32 neighbours each, and a transpose leaves lane `f` the bits of feature `f`. What a word of zeros and
//! ones, `a`, and one of ±1 as bits, `b`, multiply to is told in one of three ways, [`trinary`].
//!
//! Matrices of bits are those of [`crate::bits`].

use crate::bits::WARPS_PER_CTA;
use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Rows and columns of a tile.
pub const TILE: u32 = 4;
/// Tiles that a warp takes at once.
pub const TILES_PER_TURN: u32 = WARP / TILE;

/// Three ways to sum up the ±1 of `b` (a bit that is set, one that is not) where `a` has a bit (§3.2.2).
pub mod trinary {
    /// Each bit of `a` is asked for, and that of `b` where it is set: form (1).
    #[inline]
    pub const fn if_else(a: u32, b: u32) -> i32 {
        let (mut left, mut sum) = (a, 0);
        while left != 0 {
            let lowest = left & left.wrapping_neg();
            sum += if b & lowest != 0 { 1 } else { -1 };
            left ^= lowest;
        }
        sum
    }

    /// Those that are +1 less those that are −1: form (2).
    #[inline]
    pub const fn two_counts(a: u32, b: u32) -> i32 {
        (a & b).count_ones() as i32 - (a & !b).count_ones() as i32
    }

    /// Twice those that are +1 less all: form (3).
    #[inline]
    pub const fn one_count(a: u32, b: u32) -> i32 {
        2 * (a & b).count_ones() as i32 - a.count_ones() as i32
    }
}

param_struct! {
    /// Parameters of `frdc_*`: `y = scale · R · A · x`, or the signs of `A · x`.
    pub struct FrdcParams {
        /// First tile of each row of tiles; one more than there are.
        pub tile_offsets: DevicePtr<u32>,
        /// Of each tile how many stand before it.
        pub tile_columns: DevicePtr<u32>,
        /// The bits of each tile.
        pub tiles: DevicePtr<u16>,
        /// Rows of `x_stride` words.
        pub x: DevicePtr<u64>,
        /// Rows of bits (`y_stride` words) or of elements (`y_stride` elements).
        pub y: DevicePtr<HalfBits>,
        /// A factor a row of the graph, for the entries that write elements; or null.
        pub row_scale: DevicePtr<f32>,
        /// Rows of tiles.
        pub tile_rows: u32,
        /// Rows of the graph.
        pub rows: u32,
        /// Rows of `x`.
        pub sources: u32,
        /// Distance of two rows of `x` in words, which are summed up one after the other.
        pub x_stride: u32,
        /// Distance of two rows of `y`.
        pub y_stride: u32,
        /// Columns of `x` and `y`.
        pub features: u32,
        /// Factor of all sums, for the entries that write elements.
        pub scale: f32,
        /// Zero.
        pub reserved: u32,
    }
}

/// CTAs for so many rows of tiles: a warp each.
#[inline]
pub const fn ctas(tile_rows: u32) -> u32 {
    tile_rows.div_ceil(WARPS_PER_CTA)
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! frdc_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// Sums by [`if_else`](trinary::if_else), as elements.
                frdc_if_else(FrdcParams): F16 = frdc_if_else_f16, F32 = frdc_if_else_f32, BF16 = frdc_if_else_bf16;
                /// Sums by [`two_counts`](trinary::two_counts), as elements.
                frdc_two_counts(FrdcParams): F16 = frdc_two_counts_f16, F32 = frdc_two_counts_f32, BF16 = frdc_two_counts_bf16;
                /// Sums by [`one_count`](trinary::one_count), as elements.
                frdc_one_count(FrdcParams): F16 = frdc_one_count_f16, F32 = frdc_one_count_f32, BF16 = frdc_one_count_bf16;
            }
            plain {
                /// Signs of sums by [`if_else`](trinary::if_else).
                frdc_if_else_sign(FrdcParams);
                /// Signs of sums by [`two_counts`](trinary::two_counts).
                frdc_two_counts_sign(FrdcParams);
                /// Signs of sums by [`one_count`](trinary::one_count).
                frdc_one_count_sign(FrdcParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[frdc_entries!(table)];

#[cfg(test)]
mod tests {
    use super::trinary::*;
    use super::*;

    #[test]
    fn the_three_forms_are_one_sum() {
        let mut word = 1_u32;
        let mut next = || {
            word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            word ^ word >> 13
        };
        let corners = [(0, 0), (0, u32::MAX), (u32::MAX, 0), (u32::MAX, u32::MAX)];
        for at in 0..500 {
            let (a, b) = match corners.get(at) {
                Some(corner) => *corner,
                None => (next(), next()),
            };
            let sum = |bit: u32| match (a >> bit & 1, b >> bit & 1) {
                (0, _) => 0,
                (_, 0) => -1,
                _ => 1,
            };
            let expected: i32 = (0..32).map(sum).sum();
            for form in [if_else, two_counts, one_count] {
                assert_eq!(form(a, b), expected, "{a:x} {b:x}");
            }
        }
    }

    #[test]
    fn a_warp_has_a_row_of_tiles() {
        assert_eq!(TILES_PER_TURN, 8);
        assert_eq!([0, 1, 8, 9].map(ctas), [0, 1, 1, 2]);
    }
}
