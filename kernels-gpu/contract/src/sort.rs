//! A stable sort of pairs by a key of 32 bits: radix sort, the least significant digit first; and the same by one count of each key.
//!
//! A pass of one digit is a count of the digits of each CTA's pairs, the prefix sums of the counts ([`crate::scan`]), and a
//! launch that moves each pair to its place. Pairs of one digit keep their order, of CTAs, warps and lanes; nothing is
//! atomic, so a result repeats bit for bit.
//!
//! Groups ([`GroupParams`]) are for keys below some hundred thousand. Who counts first is chance there, and pairs of a group are put in
//! order behind it, so that a result repeats as well.

use crate::format::table;
use crate::{DevicePtr, EntrySpec, WARP, param_struct};

/// Threads of a CTA; each sums one digit's counts of the CTA's warps.
pub const THREADS_PER_CTA: u32 = 256;
/// Warps of a CTA.
pub const WARPS_PER_CTA: u32 = THREADS_PER_CTA / WARP;
/// Pairs of a lane where there are many: a warp takes 32 after 32.
pub const MOST_PAIRS_PER_LANE: u32 = 16;
/// Pairs of a lane where there are few: what takes time then is one lane's pairs after one another, and most of a card has none.
pub const FEWEST_PAIRS_PER_LANE: u32 = 4;
/// The most pairs that are few: with the fewest a lane they are some eight CTAs for each of 128 multiprocessors.
pub const FEW_PAIRS: u32 = 1 << 20;
/// The widest digit, in bits.
pub const MOST_DIGIT_BITS: u32 = THREADS_PER_CTA.trailing_zeros();
/// Bytes of dynamic shared memory: a word a digit and warp.
pub const SHARED_BYTES: u32 = THREADS_PER_CTA * WARPS_PER_CTA * 4;

param_struct! {
    /// Parameters of a pass of a sort.
    pub struct SortParams {
        /// A key a pair.
        pub keys: DevicePtr<u32>,
        /// A value a pair; or null: the value of a pair is its place.
        pub values: DevicePtr<u32>,
        /// The keys in the order of the digit. Not read by the count.
        pub sorted_keys: DevicePtr<u32>,
        /// The values in that order, likewise.
        pub sorted_values: DevicePtr<u32>,
        /// How many pairs of each CTA have each digit, a digit after the other: written by the count; then their prefix
        /// sums, read where pairs are moved. [`count_words`] long.
        pub counts: DevicePtr<u32>,
        /// Number of pairs.
        pub pairs: u32,
        /// CTAs: [`ctas`].
        pub ctas: u32,
        /// The digit's lowest bit, below 32.
        pub shift: u32,
        /// Bits of the digit, [`MOST_DIGIT_BITS`] at most.
        pub digit_bits: u32,
        /// Pairs of a lane: [`pairs_per_lane`].
        pub pairs_per_lane: u32,
        /// Of no meaning.
        pub unused: u32,
    }
}

param_struct! {
    /// Parameters of the kernels that group pairs by keys below a number: stable, as a sort is, but by one count of each key.
    ///
    /// What has another key is no pair; what is in order behind those that are has all bits.
    pub struct GroupParams {
        /// A key a pair.
        pub keys: DevicePtr<u32>,
        /// A value a pair.
        pub values: DevicePtr<u32>,
        /// A word a group, and one, zeros: counted up by `group_count`, or by whoever made the keys, and zeros again behind `group_order`.
        pub tally: DevicePtr<u32>,
        /// The prefix sums of the tally, and behind them the number of pairs; made before `group_place`.
        pub firsts: DevicePtr<u32>,
        /// A word a pair: which of its group it is, in any order. Written by who counts, read by `group_place`.
        pub slots: DevicePtr<u32>,
        /// A word a pair: the pairs of each group, in any order. Written by `group_place`.
        pub members: DevicePtr<u32>,
        /// How many groups have more pairs than a warp has lanes, and which, in any order: [`long_group_words`].
        pub long_groups: DevicePtr<u32>,
        /// Becomes the first pair of each group, and behind them the number of pairs.
        pub offsets: DevicePtr<u64>,
        /// Becomes the keys in order.
        pub sorted_keys: DevicePtr<u32>,
        /// Becomes the values in that order.
        pub sorted_values: DevicePtr<u32>,
        /// Number of pairs, [`MOST_GROUPED_PAIRS`] at most.
        pub pairs: u32,
        /// Number of groups.
        pub groups: u32,
    }
}

/// The most pairs that are grouped by counts: of a long group a bit for each pair lies in shared memory.
pub const MOST_GROUPED_PAIRS: u32 = (48 * 1024 - WARPS_PER_CTA * 4) * 8;

/// CTAs that put long groups in order, which take turns.
pub const LONG_GROUP_CTAS: u32 = 64;

/// Words of the list of long groups.
#[inline]
pub const fn long_group_words(pairs: u32) -> u64 {
    1 + (pairs / (WARP + 1)) as u64
}

/// Words of bits, one for each pair.
#[inline]
pub const fn pair_words(pairs: u32) -> u32 {
    pairs.div_ceil(u32::BITS)
}

/// Bytes of dynamic shared memory of a CTA that puts long groups in order: a bit a pair, and a word a warp.
#[inline]
pub const fn group_shared_bytes(pairs: u32) -> u32 {
    (pair_words(pairs) + WARPS_PER_CTA) * 4
}

/// CTAs of a thread a pair or group.
#[inline]
pub const fn group_ctas(items: u64) -> u64 {
    items.div_ceil(THREADS_PER_CTA as u64)
}

/// Pairs of a lane, of so many in all.
#[inline]
pub const fn pairs_per_lane(pairs: u32) -> u32 {
    if pairs <= FEW_PAIRS {
        FEWEST_PAIRS_PER_LANE
    } else {
        MOST_PAIRS_PER_LANE
    }
}

/// Consecutive pairs of a CTA, of so many in all.
#[inline]
pub const fn pairs_per_cta(pairs: u32) -> u32 {
    pairs_per_lane(pairs) * THREADS_PER_CTA
}

/// CTAs of so many pairs.
#[inline]
pub const fn ctas(pairs: u32) -> u32 {
    pairs.div_ceil(pairs_per_cta(pairs))
}

/// Counts of so many CTAs.
#[inline]
pub const fn count_words(ctas: u32, digit_bits: u32) -> u64 {
    (ctas as u64) << digit_bits
}

/// Passes of a sort by the lowest `bits` bits of keys; at least one, which copies.
#[inline]
pub const fn passes(bits: u32) -> u32 {
    let passes = bits.div_ceil(MOST_DIGIT_BITS);
    if passes == 0 { 1 } else { passes }
}

/// Lowest bit and number of bits of a pass's digit: digits are as even as can be.
#[inline]
pub const fn digit(bits: u32, pass: u32) -> (u32, u32) {
    let passes = passes(bits);
    let begin = bits * pass / passes;
    (begin, bits * (pass + 1) / passes - begin)
}

/// Bits that tell numbers below `end` apart.
#[inline]
pub const fn bits_below(end: u64) -> u32 {
    match end {
        0 | 1 => 0,
        _ => u64::BITS - (end - 1).leading_zeros(),
    }
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! sort_entries {
    ($with:ident) => {
        $with! {
            formats {
            }
            plain {
                /// How many pairs of each CTA have each digit.
                sort_count(SortParams);
                /// Pairs in the order of a digit.
                sort_move(SortParams);
                /// How many pairs each group has.
                group_count(GroupParams);
                /// The pairs of each group, in any order.
                group_place(GroupParams);
                /// Pairs in the order of groups, those of a group in their own, but for long groups.
                group_order(GroupParams);
                /// The pairs of long groups in order.
                group_order_long(GroupParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[sort_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_cover_the_bits_once() {
        for bits in 0..=32 {
            let mut next = 0;
            for pass in 0..passes(bits) {
                let (shift, width) = digit(bits, pass);
                assert_eq!(shift, next, "{bits}");
                assert!(width <= MOST_DIGIT_BITS, "{bits}");
                next += width;
            }
            assert_eq!(next, bits);
        }
        assert_eq!(passes(21), 3);
        assert_eq!(digit(21, 2), (14, 7));
    }

    #[test]
    fn bits_of_all_pairs_that_are_grouped_fit_without_opting_in() {
        assert_eq!(group_shared_bytes(MOST_GROUPED_PAIRS), 48 * 1024);
        assert_eq!(group_shared_bytes(1), 4 + 32);
        // A group of 33 is long, and of 65 pairs there is one at most.
        assert_eq!([32, 33, 65, 66].map(long_group_words), [1, 2, 2, 3]);
    }

    #[test]
    fn bits_tell_numbers_apart() {
        let of = [0, 1, 2, 3, 256, 257, 1 << 32].map(bits_below);
        assert_eq!(of, [0, 0, 1, 2, 8, 9, 32]);
    }

    #[test]
    fn ctas_cover_the_pairs() {
        assert_eq!(ctas(0), 0);
        for pairs in [1, 1024, 1025, FEW_PAIRS, FEW_PAIRS + 1, u32::MAX] {
            let of_cta = pairs_per_cta(pairs) as u64;
            let last = (ctas(pairs) - 1) as u64 * of_cta;
            assert!(last < pairs as u64 && pairs as u64 <= last + of_cta);
        }
        assert_eq!(count_words(ctas(u32::MAX), 8), 1 << 28);
    }
}
