//! Random pairs of vertices: what a link predictor learns to tell from edges.

use crate::format::table;
use crate::{DevicePtr, EntrySpec, param_struct};

/// Pairs that are drawn for one place before the last of them is kept whatever it is: see [`SamplePairsParams`].
pub const ATTEMPTS: u32 = 16;

param_struct! {
    /// Parameters of `sample_pairs`.
    ///
    /// Pair `i` is a function of key, step and `i` alone: the first of [`ATTEMPTS`] pairs of two different vertices that is not
    /// refused, else the last one drawn. A pair is refused where its row of the graph has its column.
    pub struct SamplePairsParams {
        /// Where each row begins in `columns`, and the end; null where no pair is refused for being an edge.
        pub offsets: DevicePtr<u64>,
        /// The columns of each row, ascending.
        pub columns: DevicePtr<u32>,
        /// Become the first vertices of the pairs.
        pub firsts: DevicePtr<u32>,
        /// Become the second ones.
        pub seconds: DevicePtr<u32>,
        /// Pairs.
        pub pairs: u64,
        /// Of the random numbers: [`crate::rng::key`].
        pub key: [u32; 2],
        /// Which step's pairs.
        pub step: u32,
        /// Vertices, at least two.
        pub vertices: u32,
    }
}

/// The counter of the random numbers that pair `index` is drawn from, at an attempt of a step.
#[inline(always)]
pub const fn pair_counter(step: u32, attempt: u32, index: u64) -> [u32; 4] {
    [
        index as u32,
        // Fewer than 2⁵⁶ pairs, so that no two attempts share a counter.
        (index >> 32) as u32 | (attempt << 24),
        0x7061_6972,
        step,
    ]
}

/// Two different vertices of `vertices` from two random numbers.
#[inline(always)]
pub const fn pair(numbers: [u32; 4], vertices: u32) -> [u32; 2] {
    let first = ((numbers[0] as u64 * vertices as u64) >> 32) as u32;
    // Among the others, so that no vertex is drawn with itself.
    let second = ((numbers[1] as u64 * (vertices - 1) as u64) >> 32) as u32;
    [first, second + (second >= first) as u32]
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! sampling_entries {
    ($with:ident) => {
        $with! {
            formats {
            }
            plain {
                /// Random pairs of vertices.
                sample_pairs(SamplePairsParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[sampling_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_of_two_vertices() {
        for vertices in [2, 3, 1 << 31, u32::MAX] {
            for (a, b) in [(0, 0), (0, !0), (!0, 0), (!0, !0), (1 << 31, 1 << 31)] {
                let [first, second] = pair([a, b, 0, 0], vertices);
                assert!(first < vertices && second < vertices && first != second);
            }
        }
        assert_eq!(pair([0, 0, 0, 0], 2), [0, 1]);
        assert_eq!(pair([!0, !0, 0, 0], 2), [1, 0]);
    }
}
