//! Communities of vertices by label propagation (Raghavan, Albert and Kumara, Phys. Rev. E 76, 036106, 2007): each vertex takes
//! the label that most of its neighbours have.
//!
//! A round reads the labels of the round before and writes others, so that a label is a function of the graph and the round
//! alone, on every device and in whatever order vertices come. What would otherwise go to and fro for ever between two sides is
//! stopped by chance: but for the first round, each changes the labels of half of the vertices. Of a vertex of many neighbours a
//! round looks at some, others each time.

use crate::format::table;
use crate::sampling::choice;
use crate::{DevicePtr, EntrySpec, WARP, param_struct};

/// Threads of a CTA.
pub const THREADS_PER_CTA: u32 = 256;
/// Warps of a CTA.
pub const WARPS_PER_CTA: u32 = THREADS_PER_CTA / WARP;
/// Neighbours of a vertex that a round looks at, at most: one a lane.
pub const NEIGHBORS: u32 = WARP;
/// Consecutive vertices of a warp, which takes one after the other: one a lane as well.
pub const VERTICES_PER_WARP: u32 = WARP;

param_struct! {
    /// Parameters of `propagate_labels`: a round.
    pub struct PropagateParams {
        /// First edge of each row, `vertices + 1` of them. A row that goes past `edges` ends there.
        pub offsets: DevicePtr<u64>,
        /// Neighbours of each vertex, `edges` of them. A number that is no vertex has no label, and counts for nothing.
        pub columns: DevicePtr<u32>,
        /// A label a vertex: any words.
        pub labels: DevicePtr<u32>,
        /// Become the labels after the round, in memory of their own.
        pub next: DevicePtr<u32>,
        /// Becomes the number of labels that are others than before, a word for each warp's vertices: [`warps`] of them.
        pub moved: DevicePtr<u32>,
        /// Number of edges.
        pub edges: u64,
        /// Number of vertices.
        pub vertices: u32,
        /// Which round, from 0 on.
        pub round: u32,
    }
}

/// A word that has nothing to do with another's, and is no other word's (Mueller's `lowbias32`).
#[inline(always)]
pub const fn mixed(word: u32) -> u32 {
    let word = (word ^ (word >> 16)).wrapping_mul(0x7feb_352d);
    let word = (word ^ (word >> 15)).wrapping_mul(0x846c_a68b);
    word ^ (word >> 16)
}

/// The random number of a vertex in a round.
#[inline(always)]
pub const fn chance(vertex: u32, round: u32) -> u32 {
    mixed(vertex ^ mixed(round))
}

/// Whether a vertex with that number takes another label in this round.
#[inline(always)]
pub const fn listens(chance: u32, round: u32) -> bool {
    round == 0 || chance & 1 == 1
}

/// The place in its row of the first of the [`NEIGHBORS`] that a vertex of `degree` looks at; the others follow, from the beginning
/// of the row again behind its end.
#[inline(always)]
pub const fn first_place(chance: u32, degree: u32) -> u32 {
    if degree <= NEIGHBORS {
        0
    } else {
        choice(mixed(chance), degree)
    }
}

/// What a label has for it that `votes` of the neighbours have; one's own comes before others of as many.
#[inline(always)]
pub const fn rank(votes: u32, own: bool) -> u32 {
    2 * votes + own as u32
}

/// Whether a label goes before another; of two of one rank neither's number has an advantage that goes beyond this pair.
#[inline(always)]
pub const fn wins((rank, label): (u32, u32), (other_rank, other_label): (u32, u32)) -> bool {
    rank > other_rank || (rank == other_rank && mixed(label) > mixed(other_label))
}

/// Warps that have all vertices.
#[inline]
pub const fn warps(vertices: u32) -> u32 {
    vertices.div_ceil(VERTICES_PER_WARP)
}

/// CTAs of these warps.
#[inline]
pub const fn ctas(vertices: u32) -> u32 {
    warps(vertices).div_ceil(WARPS_PER_CTA)
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! communities_entries {
    ($with:ident) => {
        $with! {
            formats {
            }
            plain {
                /// A round of label propagation.
                propagate_labels(PropagateParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[communities_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_vertices_listen_and_look_elsewhere_each_time() {
        for round in 1..20 {
            let listening = (0..10_000).filter(|&v| listens(chance(v, round), round));
            let count = listening.count();
            assert!((4_800..5_200).contains(&count), "{count} in round {round}");
        }
        assert!((0..100).all(|vertex| listens(chance(vertex, 0), 0)));
        let mut places = [0; 100];
        for round in 0..10_000 {
            places[first_place(chance(7, round), 100) as usize] += 1;
        }
        assert!(
            places.iter().all(|count| (50..150).contains(count)),
            "{places:?}"
        );
        assert_eq!(first_place(u32::MAX, NEIGHBORS), 0);
    }

    #[test]
    fn votes_come_first_then_ones_own_then_chance() {
        assert!(wins((rank(2, false), 5), (rank(1, true), 6)));
        assert!(wins((rank(2, true), 5), (rank(2, false), 6)));
        let (a, b) = ((rank(2, false), 5), (rank(2, false), 6));
        assert!(wins(a, b) != wins(b, a));
        assert!(!wins(a, a));
    }

    #[test]
    fn warps_have_all_vertices() {
        assert_eq!([0, 1, 32, 33].map(warps), [0, 1, 1, 2]);
        assert_eq!([0, 256, 257, u32::MAX].map(ctas), [0, 1, 2, 1 << 24]);
    }
}
