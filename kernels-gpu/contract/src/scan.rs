//! Exclusive prefix sums, and what is made of them: positions, lists of rows, ranks of words of starts, edges of what is sampled.
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
/// Items of a lane: a warp takes 32 after 32, each behind the sum of those before. Few, since a scan waits more than it works, and so many that
/// a batch of 1,024 vertices and the end of its edges is one CTA's.
pub const ITEMS_PER_LANE: u32 = 5;
/// Consecutive items of a warp.
pub const ITEMS_PER_WARP: u32 = ITEMS_PER_LANE * WARP;
/// Consecutive items of a CTA.
pub const ITEMS_PER_CTA: u32 = ITEMS_PER_WARP * WARPS_PER_CTA;
/// Sums of CTAs that a thread adds up, at most.
pub const ADDED_PER_THREAD: u32 = 4;
/// The most CTAs of which each adds up the sums of those before it.
pub const MOST_ADDED: u64 = (ADDED_PER_THREAD * THREADS_PER_CTA) as u64;
/// Bytes of dynamic shared memory: a word a warp.
pub const SHARED_BYTES: u32 = WARPS_PER_CTA * 4;

param_struct! {
    /// Parameters of the scans.
    pub struct ScanParams {
        /// `items` words, for the entries of words. For those of neighbours, vertices of which they are drawn: one fewer than items, the
        /// last of which counts nothing, so that its prefix is the sum of all.
        pub words: DevicePtr<u32>,
        /// `items + 1` offsets, for the entries of rows; for those of neighbours where each row of the graph begins, and the end.
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
        /// Rows of the graph, for the entries of neighbours. A vertex that is none has no edges.
        pub graph_rows: u64,
        /// 1 where the partials are prefix sums, 0 where they are sums. Read by the last launch.
        pub added: u32,
        /// [`NeighborParams::fanout`](crate::sampling::NeighborParams::fanout), and the next two by their names, for the entries of neighbours.
        pub fanout: u32,
        /// See there.
        pub replace: u32,
        /// See there.
        pub own: u32,
    }
}

/// CTAs of so many items.
#[inline]
pub const fn ctas(items: u64) -> u64 {
    items.div_ceil(ITEMS_PER_CTA as u64)
}

/// Words of [`ScanParams::partials`].
#[inline]
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
                /// How many edges a CTA's vertices have in a batch; the number of each is the result, which [`scan_words`](self) then adds up.
                scan_sums_of_neighbors(ScanParams);
                /// The first edge of each vertex in a batch, of one CTA.
                scan_neighbors(ScanParams);
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
        let tile = ITEMS_PER_CTA as u64;
        assert_eq!(ctas(1025), 1);
        for items in [1, tile - 1, tile, tile + 1, 1 << 32, (1 << 40) + 1] {
            let last = (ctas(items) - 1) * ITEMS_PER_CTA as u64;
            assert!(last < items && items <= last + ITEMS_PER_CTA as u64);
        }
    }
}
