//! What is drawn at random beside dropout: pairs of vertices, which a link predictor learns to tell from edges, and neighbours,
//! which a batch hears from; and what makes a batch of them: places of vertices, and rows of features.

use crate::elementwise::THREADS_PER_CTA;
use crate::format::table;
use crate::{DevicePtr, EntrySpec, WARP, param_struct};

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

/// Stands in lists of vertices, of rows and of columns behind the last, up to what there is room for.
pub const NO_VERTEX: u32 = u32::MAX;

/// The fanout that takes all neighbours.
pub const ALL_NEIGHBORS: u32 = u32::MAX;

param_struct! {
    /// Parameters of `sample_neighbors`.
    ///
    /// A vertex has [`sampled`] of the edges of its row and, where `own` is not 0, before them itself. Without replacement they are
    /// what Floyd's algorithm takes (Bentley and Floyd, "A sample of brilliance", 1987), all sets as likely: of the places
    /// `degree - count + i`, `i` from 0 on, each draws one of those up to it, and where that is taken already takes itself. With
    /// replacement each is drawn of all. Draw `i` is a function of key, step, layer, vertex and `i` alone ([`neighbor_counter`]).
    pub struct NeighborParams {
        /// Where each row of the graph begins in `columns`, and the end.
        pub offsets: DevicePtr<u64>,
        /// The columns of the graph.
        pub columns: DevicePtr<u32>,
        /// Whose neighbours are drawn, `vertex_count` of them. A number that is no row has none.
        pub vertices: DevicePtr<u32>,
        /// The first edge of each vertex, and the number of edges: a scan of neighbours makes them
        /// ([`ScanParams`](crate::scan::ScanParams)). A vertex is left out whose edges would lie past `edges`.
        pub firsts: DevicePtr<u32>,
        /// Becomes the place among `vertices` of each edge, and [`NO_VERTEX`] behind the last of them.
        pub rows: DevicePtr<u32>,
        /// Becomes the neighbour of each edge, and [`NO_VERTEX`] likewise.
        pub neighbors: DevicePtr<u32>,
        /// Becomes the first edge of each vertex, and the number of edges behind them, as far as there is room; or null.
        pub row_offsets: DevicePtr<u64>,
        /// A bit for each vertex of the graph: whether it is known. Not read where there are no `marks`.
        pub known: DevicePtr<u32>,
        /// Pairs as of [`RelabelParams::marks`], in which neighbours are marked that are not known; or null.
        pub marks: DevicePtr<[u32; 2]>,
        /// Becomes the number of edges, room or not; or null.
        pub total: DevicePtr<u32>,
        /// A number that is added to `step`; or null for 0.
        pub steps: DevicePtr<u32>,
        /// Rows of the graph.
        pub graph_rows: u64,
        /// Room for edges.
        pub edges: u64,
        /// Number of `vertices`.
        pub vertex_count: u32,
        /// Neighbours of each, at most; or [`ALL_NEIGHBORS`].
        pub fanout: u32,
        /// Not 0 where a neighbour may be drawn again; 0 beside [`ALL_NEIGHBORS`], which are no draws.
        pub replace: u32,
        /// Not 0 where each vertex hears from itself as well.
        pub own: u32,
        /// Of the random numbers: [`crate::rng::key`].
        pub key: [u32; 2],
        /// Which batch.
        pub step: u32,
        /// Which layer of it.
        pub layer: u32,
    }
}

/// Neighbours that are drawn of `degree`.
#[inline(always)]
pub const fn sampled(degree: u32, fanout: u32, replace: bool) -> u32 {
    if degree == 0 || fanout == ALL_NEIGHBORS || (!replace && degree < fanout) {
        degree
    } else {
        fanout
    }
}

/// The counter of the random numbers of draw `index` of a vertex, of which the first counts.
#[inline(always)]
pub const fn neighbor_counter(step: u32, layer: u32, vertex: u32, index: u32) -> [u32; 4] {
    [index, vertex, layer, step]
}

/// One of `choices` from a random number, [`u32::MAX`] choices at most.
#[inline(always)]
pub const fn choice(number: u32, choices: u32) -> u32 {
    ((number as u64 * choices as u64) >> 32) as u32
}

/// Lanes that draw the neighbours of a vertex, of which there are so many at most: a part of a warp where that is a draw for each.
#[inline(always)]
pub const fn lanes_per_vertex(fanout: u32) -> u32 {
    match fanout {
        0..=8 => 8,
        9..=16 => 16,
        _ => WARP,
    }
}

/// CTAs of `sample_neighbors`.
#[inline]
pub const fn neighbor_ctas(vertices: u64, fanout: u32) -> u64 {
    vertices.div_ceil((THREADS_PER_CTA / lanes_per_vertex(fanout)) as u64)
}

param_struct! {
    /// Parameters of the kernels that number the vertices of a batch.
    ///
    /// Those that are known have their place in `places`. Vertices that are met are marked; then each that is marked gets a place,
    /// in the order of their numbers, behind those that were known. Numbers that are no vertices are passed over.
    pub struct RelabelParams {
        /// Vertices; of `relabel` they become their places; of `place_marked` those that were known before, by place.
        pub vertices: DevicePtr<u32>,
        /// The place of each vertex of the graph that is known.
        pub places: DevicePtr<u32>,
        /// A bit for each vertex of the graph: whether it is known.
        pub known: DevicePtr<u32>,
        /// Of each 32 vertices of the graph a word with a bit for each, whether it was met since and is not known, and how many such
        /// bits are in the words before: a scan of starts makes these ranks. Behind the last a word without bits, whose rank is the number
        /// of all.
        pub marks: DevicePtr<[u32; 2]>,
        /// Becomes the vertices of the batch by place, and [`NO_VERTEX`] behind the last of them, by `place_marked`.
        pub sources: DevicePtr<u32>,
        /// Becomes the number of vertices that were marked, room or not, by `place_marked`; or null.
        pub total: DevicePtr<u32>,
        /// Of `relabel`, which then counts the places that it writes, [`GroupParams::tally`](crate::sort::GroupParams::tally) of `source_count`
        /// groups; or null.
        pub tally: DevicePtr<u32>,
        /// Beside it, [`GroupParams::slots`](crate::sort::GroupParams::slots).
        pub slots: DevicePtr<u32>,
        /// Number of `vertices`.
        pub vertex_count: u64,
        /// Vertices of the graph.
        pub graph_vertices: u64,
        /// Vertices of the batch that were known before.
        pub first_place: u64,
        /// Room in `sources`.
        pub source_count: u64,
    }
}

/// Words of bits of so many vertices. Of [`RelabelParams::marks`] there is one more.
#[inline]
pub const fn mark_words(vertices: u64) -> u64 {
    vertices.div_ceil(32)
}

param_struct! {
    /// Parameters of `take_rows`: `taken[i]` becomes the row `order[i]` of a matrix, or zeros where there is no such row. CTAs, of
    /// which there may be any number, take turns with the order.
    pub struct TakeRowsParams {
        /// Rows of 16-byte vectors.
        pub rows: DevicePtr<[u32; 4]>,
        /// Of `take_cached_rows`: for each word of rows, 32 in the order of their numbers, a bit for each that has a copy, and how many have
        /// one in the words before ([`mark_words`]).
        pub marks: DevicePtr<[u32; 2]>,
        /// Of `take_cached_rows`: the copies, in the order of their numbers, close together.
        pub cached: DevicePtr<[u32; 4]>,
        /// Which of them are taken.
        pub order: DevicePtr<u32>,
        /// Rows that lie close together.
        pub taken: DevicePtr<[u32; 4]>,
        /// Number of `rows`.
        pub row_count: u64,
        /// Number of `order`.
        pub taken_count: u64,
        /// Vectors of a row that is taken.
        pub vectors: u32,
        /// Vectors from one of `rows` to the next.
        pub stride: u32,
        /// Lanes of a row: a power of two, [`WARP`] at most; see [`row_lanes`].
        pub lanes: u32,
        /// Zero.
        pub unused: u32,
    }
}

/// Lanes that take a row of so many vectors.
#[inline]
pub const fn row_lanes(vectors: u32) -> u32 {
    if vectors >= WARP {
        WARP
    } else if vectors == 0 {
        1
    } else {
        vectors.next_power_of_two()
    }
}

/// Rows whose loads a lane of `take_rows` and `take_cached_rows` has under way at once.
pub const ROWS_UNDER_WAY: usize = 4;

/// CTAs that take so many rows in one turn. Fewer take turns.
#[inline]
pub const fn row_ctas(rows: u64, lanes: u32) -> u64 {
    rows.div_ceil((THREADS_PER_CTA / lanes) as u64 * ROWS_UNDER_WAY as u64)
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
                /// Neighbours of each vertex, drawn at random.
                sample_neighbors(NeighborParams);
                /// The places of vertices that are known from now on.
                place_vertices(RelabelParams);
                /// A mark for each vertex that is not known.
                mark_vertices(RelabelParams);
                /// Places of the vertices that are marked, which are known from now on.
                place_marked(RelabelParams);
                /// Vertices to their places.
                relabel(RelabelParams);
                /// Rows of a matrix that an order picks.
                take_rows(TakeRowsParams);
                /// Rows of a matrix in another memory that an order picks, or their copies in this one.
                take_cached_rows(TakeRowsParams);
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

    #[test]
    fn no_more_are_drawn_than_there_are_unless_they_are_drawn_again() {
        assert_eq!(
            [0, 1, 4, 5, 6].map(|degree| sampled(degree, 5, false)),
            [0, 1, 4, 5, 5]
        );
        assert_eq!(
            [0, 1, 4, 5, 6].map(|degree| sampled(degree, 5, true)),
            [0, 5, 5, 5, 5]
        );
        assert_eq!(sampled(7, ALL_NEIGHBORS, false), 7);
    }

    #[test]
    fn choices_are_below_their_number() {
        for choices in [1, 2, 3, 1 << 31, u32::MAX] {
            assert_eq!(choice(0, choices), 0);
            assert_eq!(choice(u32::MAX, choices), choices - 1);
        }
    }

    #[test]
    fn lanes_take_a_row() {
        assert_eq!(
            [0, 1, 2, 3, 13, 32, 33].map(row_lanes),
            [1, 1, 2, 4, 16, 32, 32]
        );
        assert_eq!(
            (row_ctas(33, 16), row_ctas(32, 16), neighbor_ctas(33, 5)),
            (2, 1, 3)
        );
    }
}
