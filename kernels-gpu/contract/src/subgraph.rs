//! Vertices that walks come to, and the edges between them: the batches of GraphSAINT (Zeng et al., ICLR 2020, §3.4 and its
//! algorithm 2).

use crate::elementwise::THREADS_PER_CTA;
use crate::format::table;
use crate::{DevicePtr, EntrySpec, HalfBits, WARP, param_struct};

/// Tags the random numbers of walks.
const WALKS: u32 = 0x7761_6c6b;
/// Tags those of the walk of a frontier.
const FRONTIER: u32 = 0x6672_6f6e;
/// Vertices of a frontier, at most: so many as three levels of sums over a warp's lanes have.
pub const MOST_FRONTIER: u32 = WARP * WARP * WARP;

param_struct! {
    /// Parameters of `random_walks`.
    ///
    /// Walk `i` begins at one of `roots`, all as likely; where there are none, at the end of an edge, all edges as likely. Then it goes
    /// `length` times to a neighbour, all as likely, or stays where there is none. It is a function of key, step and `i` alone.
    pub struct WalkParams {
        /// Where each row of the graph begins in `columns`, and the end.
        pub offsets: DevicePtr<u64>,
        /// The columns of the graph, all of which are rows.
        pub columns: DevicePtr<u32>,
        /// Where walks begin, or null.
        pub roots: DevicePtr<u32>,
        /// Becomes the vertices of each walk, `length + 1` of them.
        pub vertices: DevicePtr<u32>,
        /// Rows of the graph.
        pub graph_rows: u64,
        /// Edges of the graph, at least 1 where there are no `roots`.
        pub edges: u64,
        /// Number of `roots`.
        pub root_count: u32,
        /// Walks.
        pub walks: u32,
        /// Edges of a walk.
        pub length: u32,
        /// Which batch.
        pub step: u32,
        /// Of the random numbers: [`crate::rng::key`].
        pub key: [u32; 2],
    }
}

/// The counter of the random numbers of the vertex that walk `walk` comes to behind `edges` edges.
#[inline(always)]
pub const fn walk_counter(step: u32, walk: u32, edges: u32) -> [u32; 4] {
    [walk, edges, WALKS, step]
}

param_struct! {
    /// Parameters of `frontier_walk`: a multi-dimensional random walk (Ribeiro and Towsley, IMC 2010), which keeps a frontier of
    /// vertices and moves one of them at a time to a neighbour, a vertex as likely as it has neighbours.
    ///
    /// The frontier begins with `frontier_len` of `roots`, all as likely, which are the first of `vertices`; each move adds the vertex
    /// that is come to. Where nothing of the frontier has a neighbour, the rest are its first vertex.
    pub struct FrontierParams {
        /// Where each row of the graph begins in `columns`, and the end.
        pub offsets: DevicePtr<u64>,
        /// The columns of the graph, all of which are rows.
        pub columns: DevicePtr<u32>,
        /// Where it may begin.
        pub roots: DevicePtr<u32>,
        /// Becomes the vertices that it came to.
        pub vertices: DevicePtr<u32>,
        /// Room for a frontier: its vertices, and behind them their degrees.
        pub frontier: DevicePtr<u32>,
        /// Room for [`frontier_sums`] sums of degrees: of each 32 of the frontier, and behind them of each 32 of those.
        pub sums: DevicePtr<u64>,
        /// Rows of the graph.
        pub graph_rows: u64,
        /// Number of `roots`, at least 1.
        pub root_count: u32,
        /// Vertices of the frontier, at least 1 and [`MOST_FRONTIER`] at most.
        pub frontier_len: u32,
        /// Number of `vertices`, at least as many as the frontier has.
        pub vertex_count: u32,
        /// Which batch.
        pub step: u32,
        /// Of the random numbers: [`crate::rng::key`].
        pub key: [u32; 2],
    }
}

/// The counter of the random numbers of vertex `index` of a frontier's walk: of the first ones the first number chooses a root, of the
/// others the first two choose who moves and the third where to.
#[inline(always)]
pub const fn frontier_counter(step: u32, index: u32) -> [u32; 4] {
    [index, 0, FRONTIER, step]
}

/// Sums of each 32 of a frontier.
#[inline]
pub const fn frontier_groups(frontier_len: u32) -> u32 {
    frontier_len.div_ceil(WARP)
}

/// Sums of each 32, and of each 32 of those.
#[inline]
pub const fn frontier_sums(frontier_len: u32) -> u32 {
    let groups = frontier_groups(frontier_len);
    groups + groups.div_ceil(WARP)
}

/// One of `choices` from 64 random bits, the lower ones first: the upper half of their product.
#[inline(always)]
pub const fn wide_choice(numbers: [u32; 2], choices: u64) -> u64 {
    let [low, high] = [numbers[0] as u64, numbers[1] as u64];
    let (lower, upper) = (choices & 0xffff_ffff, choices >> 32);
    let middle = high * lower + ((low * lower) >> 32);
    let other = low * upper + (middle & 0xffff_ffff);
    high * upper + (middle >> 32) + (other >> 32)
}

param_struct! {
    /// Parameters of `count_within` and `take_within`: the edges of the rows of `vertices` whose columns are known, in the order of
    /// the rows and of the edges in them.
    pub struct WithinParams {
        /// Where each row of the graph begins in `columns`, and the end.
        pub offsets: DevicePtr<u64>,
        /// The columns of the graph.
        pub columns: DevicePtr<u32>,
        /// Whose rows are taken. A number that is no row has no edges.
        pub vertices: DevicePtr<u32>,
        /// A bit for each vertex of the graph: whether it is known.
        pub known: DevicePtr<u32>,
        /// The place of each vertex of the graph that is known.
        pub places: DevicePtr<u32>,
        /// How many edges each vertex has, and a 0 behind them: written by `count_within`. Their prefix sums, read by `take_within`,
        /// which leaves a vertex out whose edges would lie past `edges`.
        pub firsts: DevicePtr<u32>,
        /// Becomes the place among `vertices` of each edge's row. Not written by `count_within`, likewise the next two.
        pub rows: DevicePtr<u32>,
        /// Becomes the place of each edge's column.
        pub neighbors: DevicePtr<u32>,
        /// Becomes the number of each edge in the graph.
        pub edge_ids: DevicePtr<u32>,
        /// Rows of the graph, and its columns.
        pub graph_rows: u64,
        /// Room for edges.
        pub edges: u64,
        /// Number of `vertices`.
        pub vertex_count: u32,
        /// Zero.
        pub unused: u32,
    }
}

/// Draws that are counted together: a bit of a word each.
pub const DRAWS: u32 = u32::BITS;

param_struct! {
    /// Parameters of `mark_draw`, `size_draws` and `tally_draws`, which count in how many of [`DRAWS`] subgraphs vertices and edges are.
    ///
    /// A word of `members` has a bit for each draw. `mark_draw` sets those of `draws` for `vertices`; `size_draws` adds to each of
    /// `sizes` in how many words its bit is; `tally_draws` adds to counts how many of `draws` a vertex is in, and an edge whose row and
    /// column both are.
    pub struct DrawsParams {
        /// Where each row of the graph begins in `columns`, and the end.
        pub offsets: DevicePtr<u64>,
        /// The columns of the graph, all of which are rows.
        pub columns: DevicePtr<u32>,
        /// The draws that each vertex of the graph is in.
        pub members: DevicePtr<u32>,
        /// The vertices of a draw, in any order and any number of times. One that is no row is in none.
        pub vertices: DevicePtr<u32>,
        /// How many vertices each draw has, [`DRAWS`] of them.
        pub sizes: DevicePtr<u32>,
        /// Of each vertex of the graph, in how many draws it is.
        pub vertex_counts: DevicePtr<u32>,
        /// Of each edge of the graph, in how many it is.
        pub edge_counts: DevicePtr<u32>,
        /// Rows of the graph.
        pub graph_rows: u64,
        /// Number of `vertices`.
        pub vertex_count: u64,
        /// The bits of draws.
        pub draws: u32,
        /// Zero.
        pub unused: u32,
    }
}

param_struct! {
    /// Parameters of `edge_norms`: what each edge multiplies in a batch of GraphSAINT's.
    ///
    /// It is `f32(r · w · c) · n`, where `r` is the row's factor, `w` the edge's weight and `c` the column's factor, whose product is made
    /// in double precision, and `n` the edge's [`edge_norm`]. `values` become these over `scale`, each rounded to the nearest element.
    pub struct EdgeNormParams {
        /// Where each row of the graph begins in `columns`, and the end.
        pub offsets: DevicePtr<u64>,
        /// The columns of the graph. Not read where there are no `column_factors`.
        pub columns: DevicePtr<u32>,
        /// In how many draws each vertex of the graph is.
        pub vertex_counts: DevicePtr<u32>,
        /// In how many each edge is.
        pub edge_counts: DevicePtr<u32>,
        /// A weight for each edge, or null for 1.
        pub weights: DevicePtr<f32>,
        /// A factor for each row, or null for 1.
        pub row_factors: DevicePtr<f64>,
        /// A factor for each column, or null for 1.
        pub column_factors: DevicePtr<f64>,
        /// Becomes an element for each edge. Null where only the largest is wanted.
        pub values: DevicePtr<HalfBits>,
        /// Is raised to the bits of the largest magnitude that an edge multiplies, before `scale`; or null.
        pub largest: DevicePtr<u32>,
        /// Rows of the graph.
        pub graph_rows: u64,
        /// What all are divided by.
        pub scale: f32,
        /// Zero.
        pub unused: u32,
    }
}

/// GraphSAINT's norm of an edge, C_v / C_uv (Zeng et al., ICLR 2020, §3.2): in how many draws its row is over in how many it is itself. What
/// was never drawn counts as drawn once.
///
/// In float, on every device. Counts below 2²⁴ are floats themselves, and of those the quotient in double precision, rounded once more, is
/// the same: a quotient of two numbers of p bits that is first rounded to 2p + 2 bits or more is rounded as if it had not been (Figueroa,
/// "When is double rounding innocuous?", SIGNUM Newsletter 30, 1995).
#[inline(always)]
pub const fn edge_norm(vertex_count: u32, edge_count: u32) -> f32 {
    #[inline]
    const fn often(count: u32) -> f32 {
        if count == 0 { 1.0 } else { count as f32 }
    }
    often(vertex_count) / often(edge_count)
}

/// Words of members that a warp sizes.
pub const SIZED_WORDS: u64 = 32 * WARP as u64;

/// CTAs of which each thread has an item.
#[inline]
pub const fn ctas(items: u64) -> u64 {
    items.div_ceil(THREADS_PER_CTA as u64)
}

/// CTAs of which each warp has a vertex.
#[inline]
pub const fn vertex_ctas(vertices: u64) -> u64 {
    vertices.div_ceil((THREADS_PER_CTA / WARP) as u64)
}

/// Calls `$with!` with the entries of this family: see [`crate::format`].
#[macro_export]
macro_rules! subgraph_entries {
    ($with:ident) => {
        $with! {
            formats {
                /// What each edge of GraphSAINT's batches multiplies, and the largest of it.
                edge_norms(EdgeNormParams): F16 = edge_norms_f16, F32 = edge_norms_f32, BF16 = edge_norms_bf16;
            }
            plain {
                /// Random walks, a thread each.
                random_walks(WalkParams);
                /// The walk of a frontier, by one warp.
                frontier_walk(FrontierParams);
                /// How many edges of each row end in known vertices.
                count_within(WithinParams);
                /// The edges that do.
                take_within(WithinParams);
                /// Which vertices a draw has.
                mark_draw(DrawsParams);
                /// How many each draw has.
                size_draws(DrawsParams);
                /// In how many draws vertices and edges are.
                tally_draws(DrawsParams);
            }
        }
    };
}

/// The entries of this family.
pub const ENTRIES: &[&[EntrySpec]] = &[subgraph_entries!(table)];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wide_choices_are_upper_halves_of_products() {
        for choices in [1, 7, 1 << 32, (1 << 33) + 5, u64::MAX] {
            for numbers in [
                [0, 0],
                [!0, 0],
                [0, !0],
                [!0, !0],
                [0x9e37_79b9, 0x7f4a_7c15],
            ] {
                let bits = u128::from(numbers[0]) | u128::from(numbers[1]) << 32;
                let expected = (bits * u128::from(choices)) >> 64;
                let chosen = wide_choice(numbers, choices);
                assert_eq!((u128::from(chosen), chosen < choices), (expected, true));
            }
        }
    }

    #[test]
    fn sums_are_of_thirty_two_each() {
        let sums = [1, 32, 33, 1024, 1025, MOST_FRONTIER].map(frontier_sums);
        assert_eq!(sums, [2, 2, 3, 33, 35, 1056]);
    }

    #[test]
    fn norms_in_float_are_those_of_double_precision() {
        let check = |vertex: u32, edge: u32| {
            let expected = f64::from(vertex.max(1)) / f64::from(edge.max(1));
            let norm = edge_norm(vertex, edge);
            assert_eq!(
                norm.to_bits(),
                (expected as f32).to_bits(),
                "{vertex} {edge}"
            );
        };
        for vertex in 0..1500 {
            (0..=vertex).for_each(|edge| check(vertex, edge));
        }
        let mut bits = 1_u32;
        for _ in 0..100_000 {
            bits = bits.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let other = bits.rotate_left(16).wrapping_mul(0x9e37_79b9);
            check(bits >> 8, other >> 8);
        }
        assert_eq!(
            [edge_norm(u32::MAX, 0), edge_norm(3, 2)],
            [4_294_967_296.0, 1.5]
        );
    }
}
