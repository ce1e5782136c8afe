//! Exclusive prefix sums, and what is made of them: positions, lists of rows, ranks of words of starts.
//!
//! Three launches: a sum a CTA ([`ITEMS_PER_CTA`] items each), the prefix sums of those by one CTA, and each CTA's items
//! again, with what lies before them. Of [`MOST_ADDED`] CTAs at most the second is left out, since each CTA adds up the sums before its own, and
//! of one CTA the first as well. What an item counts and what is done with its prefix is the entry's. Sums are of
//! 32 bits and wrap around.

use crate::format::table;
use crate::{DevicePtr, EntrySpec, WARP, param_struct};

/// Threads of a CTA, in all three.
pub const THREADS_PER_CTA: u32 = 256;
/// Warps of a CTA.
pub const WARPS_PER_CTA: u32 = THREADS_PER_CTA / WARP;
/// Items of a lane: a warp takes 32 after 32.
pub const ITEMS_PER_LANE: u32 = 16;
/// Consecutive items of a warp.
pub const ITEMS_PER_WARP: u32 = ITEMS_PER_LANE * WARP;
/// Consecutive items of a CTA.
pub const ITEMS_PER_CTA: u32 = ITEMS_PER_WARP * WARPS_PER_CTA;
/// The most CTAs of which each adds up the sums of those before it: a word a thread.
pub const MOST_ADDED: u64 = THREADS_PER_CTA as u64;
/// Bytes of dynamic shared memory: a word a warp.
pub const SHARED_BYTES: u32 = WARPS_PER_CTA * 4;

param_struct! {
    /// Parameters of the scans.
    pub struct ScanParams {
        /// `items` words, for the entries of words.
        pub words: DevicePtr<u32>,
        /// `items + 1` offsets, for the entries of rows.
        pub offsets: DevicePtr<u64>,
        /// `items` pairs of starts and rank, 8-byte aligned, for the entries of starts.
        pub starts: DevicePtr<[u32; 2]>,
        /// A word a CTA, and one for the sum of all. Of one CTA nobody reads them.
        pub partials: DevicePtr<u32>,
        /// The prefix of each word; or the rows that have edges, ascending.
        pub result: DevicePtr<u32>,
        /// The rows without edges, ascending, for the entries of rows.
        pub empty_rows: DevicePtr<u32>,
        /// Number of items.
        pub items: u64,
        /// 1 where the partials are prefix sums, 0 where they are sums. Read by the last launch.
        pub added: u32,
        /// Of no meaning.
        pub unused: u32,
    }
}

/// CTAs of so many items.
pub const fn ctas(items: u64) -> u64 {
    items.div_ceil(ITEMS_PER_CTA as u64)
}

/// Words of [`ScanParams::partials`].
pub const fn partial_words(items: u64) -> u64 {
    ctas(items) + 1
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! scan_entries {
    ($with:ident) => {
        $with! {
            formats {
            }
            plain {
                /// The sum of a CTA's words.
                scan_sums_of_words(ScanParams);
                /// How many of a CTA's rows have edges.
                scan_sums_of_rows(ScanParams);
                /// How many rows start in a CTA's words.
                scan_sums_of_starts(ScanParams);
                /// The prefix sums of the sums of CTAs, in place, and behind them the sum of all: one CTA.
                scan_partials(ScanParams);
                /// The sum of the words before each.
                scan_words(ScanParams);
                /// The lists of rows with and without edges.
                scan_rows(ScanParams);
                /// The rank of each word of starts.
                scan_starts(ScanParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[scan_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ctas_cover_the_items() {
        assert_eq!((ctas(0), partial_words(0)), (0, 1));
        for items in [1, 4095, 4096, 4097, 1 << 32, (1 << 40) + 1] {
            let last = (ctas(items) - 1) * ITEMS_PER_CTA as u64;
            assert!(last < items && items <= last + ITEMS_PER_CTA as u64);
        }
    }
}
