//! How an SpMM is distributed to the warps of a GPU: which kernel, and how many edges a CTA has.

use super::{NAME, Schedule, Slices, SpmmPolicy};
use crate::error::Error;
use crate::ops::partition;
use crate::tensor::LINE_BYTES;
use halfgnn_contract::WARP;
use halfgnn_contract::spmm::{self as contract, Schedule as Built, Sums};

/// What an SpMM has to share out: the edges, once for each tile of the columns.
#[derive(Clone, Copy, Debug)]
pub(super) struct Work {
    pub(super) rows: Rows,
    pub(super) columns: Columns,
    /// What a row adds up to.
    pub(super) sums: Sums,
}

/// The rows of an adjacency.
#[derive(Clone, Copy, Debug)]
pub struct Rows {
    pub(super) edges: u32,
    pub(super) vertices: u32,
    /// Rows that have edges.
    pub(super) filled: u32,
    /// Edges of the longest row.
    pub(super) longest: u32,
    /// Whether there are lists of the rows that have edges, which the edge-parallel kernels read.
    pub(super) indexed: bool,
    /// Whether there is nothing but the row of each edge, and a kernel that needs no more.
    pub(super) by_ids: bool,
}

/// Most rows among which a launch by row ids finds those without edges, a thread a row, in addition to the CTAs that
/// walk edges. Of more the whole output is cleared before: a launch more, of the speed of memory.
const SEARCHED_ROWS: u32 = 1 << 17;

impl Rows {
    /// Whether rows that have edges have at least [`LONG_ROWS`] in the mean.
    fn are_long(&self) -> bool {
        u64::from(self.edges) >= LONG_ROWS * u64::from(self.filled)
    }

    /// Whether a launch by row ids is to find those without edges.
    pub(super) fn are_searched(&self) -> bool {
        self.vertices <= SEARCHED_ROWS
    }
}

/// The columns of an operand, as lanes load them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Columns {
    /// Loads of a row, to the end of its padding.
    pub(super) loads: u32,
    /// Those of one head.
    pub(super) head_loads: u32,
    pub(super) heads: u32,
    /// Base-2 logarithm of the lanes of a sub-warp.
    pub(super) lanes_log2: u32,
    /// Tiles of the columns of a head.
    pub(super) tiles: u32,
}

/// The rows that edges read, as they lie in memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Operand {
    /// Bytes of one load.
    pub(super) load_bytes: u32,
    /// Bytes of a row.
    pub(super) row_bytes: u64,
    /// Bytes of the GPU's second-level cache; 0 where they are not known.
    pub(super) cache: u64,
}

impl Columns {
    /// `loads` loads a row, of all its `heads` together.
    pub(super) fn new(loads: u32, heads: u32) -> Self {
        let head_loads = loads / heads;
        Self {
            loads,
            head_loads,
            heads,
            lanes_log2: contract::lanes_log2(head_loads),
            tiles: contract::feature_tiles(head_loads),
        }
    }

    /// The same with a cache line of columns in a tile, where a policy asks for it or it is faster.
    ///
    /// The tile is the slowest dimension of the grid, so that one slice of all rows is read before the next. The
    /// second-level cache then holds more of the rows that many edges read. Each slice costs one more walk over the
    /// edges. It does not pay where rows fit the cache anyway, have few edges or are all read equally often.
    pub(super) fn sliced(self, slices: Slices, rows: &Rows, operand: Operand) -> Self {
        let line = LINE_BYTES as u32 / operand.load_bytes;
        let is_faster = || {
            let are_skewed =
                u64::from(rows.longest) * u64::from(rows.filled) >= SKEW * u64::from(rows.edges);
            // Of edges that go both ways a row with edges is one that is read.
            let bytes = u64::from(rows.filled) * operand.row_bytes;
            let is_large = operand.cache > 0 && bytes > SLICED_CACHES * operand.cache;
            rows.are_long()
                && are_skewed
                && is_large
                && self.heads == 1
                && self.head_loads.is_multiple_of(line)
        };
        let is_sliced = match slices {
            Slices::Auto => is_faster(),
            Slices::Whole => false,
            Slices::Lines => true,
        };
        if !is_sliced || self.head_loads <= line {
            return self;
        }
        Self {
            lanes_log2: line.ilog2(),
            tiles: self.head_loads.div_ceil(line),
            ..self
        }
    }

    /// Whether a tile has as many columns as lanes of a warp can have.
    fn are_whole(self) -> bool {
        self.tiles == contract::feature_tiles(self.head_loads)
    }

    /// How often the edges are walked.
    fn passes(self) -> u64 {
        u64::from(self.tiles) * u64::from(self.heads)
    }
}

/// How an SpMM is launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) schedule: Built,
    /// Edges of a CTA as a base-2 logarithm, and CTAs that edges are distributed to; zeros in the vertex-parallel
    /// schedule, which has neither, and so no staging buffer.
    pub(super) cta_edges_log2: u32,
    pub(super) ctas: u32,
    /// Whether a warp of the vertex-parallel schedule has several rows.
    pub(super) many_rows: bool,
}

impl Plan {
    /// The same on packed lanes, where a row of these columns has some and CTAs are large enough.
    pub(super) fn packed(self, columns: Columns) -> Self {
        let are_some = self.schedule == Built::EdgeParallel
            && columns.heads == 1
            && columns.are_whole()
            && contract::packed_lanes(columns.loads).is_some()
            && self.cta_edges_log2 >= contract::PACKED_CTA_EDGES_LOG2_MIN;
        Self {
            schedule: if are_some {
                Built::Packed
            } else {
                self.schedule
            },
            ..self
        }
    }

    /// What a policy asks for, or what is faster; `built` says whether there is a vertex-parallel kernel.
    pub(super) fn of(
        policy: &SpmmPolicy,
        work: &Work,
        multiprocessors: u32,
        built: bool,
    ) -> Result<Self, Error> {
        let schedule = schedule(policy, work, multiprocessors, built)?;
        let (cta_edges_log2, ctas) = match schedule {
            Built::EdgeParallel | Built::Packed | Built::RowIds | Built::RowIdsInTurn => {
                let log2 = cta_edges_log2(policy, work, multiprocessors)?;
                (log2, contract::ctas(work.rows.edges, log2))
            }
            Built::VertexParallel => (0, 0),
        };
        Ok(Self {
            schedule,
            cta_edges_log2,
            ctas,
            many_rows: schedule == Built::VertexParallel && are_many(work, multiprocessors),
        })
    }
}

/// CTAs of the edge-parallel kernel that a multiprocessor holds at once, of 48 registers a thread.
const CTAS_PER_MULTIPROCESSOR: u64 = 10;

/// A launch has at least one in this number of the CTAs that a GPU holds at once: with fewer, multiprocessors are idle.
/// With many more it pays for what each CTA waits for before it has rows to add up. Measured on graphs of 2¹⁷, 2¹⁸ and
/// 2¹⁹ edges, on which 512 to 1,024 CTAs are best.
const SHARE_OF_WAVE: u64 = 2;

/// Mean edges of a row, of those that have some, under which a CTA has no more than [`contract::EDGES_PER_CTA`]. In
/// shorter rows there is little to merge, and the gathered rows of fewer edges fit the first-level cache.
const LONG_ROWS: u64 = 12;

/// Rows that are read have at least this number of times the bytes of the second-level cache where slices are faster.
const SLICED_CACHES: u64 = 8;

/// And the longest row has at least this number of times the edges of the mean.
const SKEW: u64 = 32;

/// CTAs of the vertex-parallel kernel that a multiprocessor holds at once, of 80 registers a thread.
const VERTEX_CTAS_PER_MULTIPROCESSOR: u64 = 6;

/// Most waves of a vertex-parallel launch that is taken by itself. A wave costs some four round trips to memory,
/// whatever it does, and what it has to repay is one launch and the gap before it.
const VERTEX_WAVES: u64 = 2;

/// Most edges of a row in such a launch. A CTA walks 128 of them at a time, so its longest row is four times as long
/// under way as the others, at most.
const VERTEX_LONGEST_ROW: u32 = 512;

/// The schedule of a policy: what it asks for, or what is faster where `built` says that there is a vertex-parallel
/// kernel.
///
/// The vertex-parallel kernel takes one launch where the edge-parallel one takes two; but a warp a row leaves lanes
/// idle in short rows and has others wait for long ones. So it is taken where the GPU is not filled anyway, and no row
/// is much longer than a launch: on graphs of Cora's size, where a launch is what takes time. And of rows that were
/// sampled and have no index: as many edges each as the fanout has, and to make the index takes longer than the sum.
fn schedule(
    policy: &SpmmPolicy,
    work: &Work,
    multiprocessors: u32,
    built: bool,
) -> Result<Built, Error> {
    match (policy.schedule, policy.edges_per_warp) {
        (Schedule::Vertex, None) => Ok(Built::VertexParallel),
        (Schedule::Vertex, Some(edges)) => Err(Error::Unsupported {
            operator: NAME,
            reason: format!(
                "{edges} edges a warp in the vertex-parallel schedule, where a warp has a row; leave one of the two away"
            ),
        }),
        (Schedule::Hybrid, Some(edges)) => Err(Error::Unsupported {
            operator: NAME,
            reason: format!(
                "{edges} edges a warp in the hybrid schedule, whose inequality says how many; leave one of the two away"
            ),
        }),
        (Schedule::RowIds, _) => Ok(Built::RowIds),
        (Schedule::RowIdsInTurn, _) => Ok(Built::RowIdsInTurn),
        (Schedule::Auto, _) if work.rows.by_ids => Ok(Built::RowIds),
        (Schedule::Auto, None) if built && suits_vertices(work, multiprocessors) => {
            Ok(Built::VertexParallel)
        }
        (Schedule::Auto | Schedule::Edge, _) | (Schedule::Hybrid, None) => Ok(Built::EdgeParallel),
    }
}

/// CTAs of a vertex-parallel launch of a warp a row, and how many of them a GPU holds at once.
fn vertex_ctas(work: &Work, multiprocessors: u32) -> (u64, u64) {
    let ctas = u64::from(contract::vertex_ctas(work.rows.vertices)) * work.columns.passes();
    let at_once = VERTEX_CTAS_PER_MULTIPROCESSOR * u64::from(multiprocessors);
    (ctas, at_once)
}

/// Whether all rows are under way at once, and none for long.
fn suits_vertices(work: &Work, multiprocessors: u32) -> bool {
    if !work.rows.indexed {
        return true;
    }
    let (ctas, at_once) = vertex_ctas(work, multiprocessors);
    one_launch_suits(ctas, at_once, work.rows.longest)
}

/// Whether there are enough rows that a GPU has them in waves, and most of them so short that a warp has all edges of
/// each under way at once: then it takes four.
fn are_many(work: &Work, multiprocessors: u32) -> bool {
    let Rows {
        vertices,
        edges,
        longest,
        ..
    } = work.rows;
    let (ctas, at_once) = vertex_ctas(work, multiprocessors);
    let in_flight = contract::VERTEX_IN_FLIGHT * (WARP >> work.columns.lanes_log2);
    // A lane has the column of an edge, of all rows of the warp.
    let short = in_flight.min(WARP / contract::VERTEX_ROWS);
    // Of the mean half is asked for, since rows differ.
    let are_short =
        longest <= short || u64::from(edges) * 2 <= u64::from(vertices) * u64::from(short);
    ctas > VERTEX_WAVES * at_once && are_short
}

/// Whether a launch of a warp a row is short, of a number of CTAs, of which a GPU holds a number at once, and of a
/// longest row: what it takes longer than shares of the edges is then less than the launch that it saves.
pub(in crate::ops) fn one_launch_suits(ctas: u64, at_once: u64, longest: u32) -> bool {
    ctas <= VERTEX_WAVES * at_once && longest <= VERTEX_LONGEST_ROW
}

/// Edges of an edge-parallel CTA as a base-2 logarithm: what the policy asks for, or what is faster.
fn cta_edges_log2(policy: &SpmmPolicy, work: &Work, multiprocessors: u32) -> Result<u32, Error> {
    match policy.edges_per_warp {
        Some(edges) => forced(edges, work.columns.lanes_log2),
        None if policy.schedule == Schedule::Hybrid => hybrid(work, multiprocessors),
        None => Ok(choose(work, multiprocessors)),
    }
}

/// CTAs from which on more of them do not make a launch faster: half of what a GPU holds at once.
fn enough(multiprocessors: u32) -> u64 {
    CTAS_PER_MULTIPROCESSOR * u64::from(multiprocessors) / SHARE_OF_WAVE
}

/// The most edges of a CTA, as a base-2 logarithm.
///
/// Merging two sums takes twice the shared memory, which the first-level cache then has no more: with
/// [`contract::CTA_EDGES_LOG2_MAX`] GAT's step was up to 30 % slower on an H200.
fn most_cta_edges_log2(rows: Rows, sums: Sums) -> u32 {
    if sums.are_two() || !rows.are_long() {
        contract::EDGES_PER_CTA.ilog2()
    } else {
        contract::CTA_EDGES_LOG2_MAX
    }
}

/// Edges of a CTA as a base-2 logarithm: the most that still make [`enough`] CTAs on a GPU of the given number of
/// multiprocessors (HP-SpMM's dynamic task partition). The more edges a CTA has the fewer rows cross CTAs and the less
/// the merge costs an edge; but too few CTAs leave multiprocessors idle at the end, or from the start on.
fn choose(work: &Work, multiprocessors: u32) -> u32 {
    let fewest = contract::cta_edges_log2_min(work.columns.lanes_log2);
    let most = most_cta_edges_log2(work.rows, work.sums);
    (fewest..=most)
        .rev()
        .find(|&log2| {
            let ctas = contract::ctas(work.rows.edges, log2);
            u64::from(ctas) * work.columns.passes() >= enough(multiprocessors)
        })
        .unwrap_or(fewest)
}

/// Edges of a CTA as a base-2 logarithm, by HP-SpMM's inequality.
fn hybrid(work: &Work, multiprocessors: u32) -> Result<u32, Error> {
    let launch = partition::Launch {
        edges: work.rows.edges,
        loads: work.columns.loads,
        full_wave: CTAS_PER_MULTIPROCESSOR * u64::from(multiprocessors),
        warps_per_cta: contract::WARPS_PER_CTA,
    };
    let lanes_log2 = work.columns.lanes_log2;
    let smallest = 1 << contract::cta_edges_log2_min(lanes_log2);
    let edges = launch
        .edges_per_warp(|edges| forced(edges, lanes_log2).is_ok())
        .unwrap_or(smallest / contract::WARPS_PER_CTA);
    forced(edges, lanes_log2)
}

/// Edges of a CTA as a base-2 logarithm, for warps of the size that a caller needs.
fn forced(edges_per_warp: u32, lanes_log2: u32) -> Result<u32, Error> {
    let fewest = contract::cta_edges_log2_min(lanes_log2);
    let most = contract::CTA_EDGES_LOG2_MAX;
    let log2 = edges_per_warp
        .max(1)
        .saturating_mul(contract::WARPS_PER_CTA)
        .ilog2();
    if edges_per_warp.is_power_of_two() && (fewest..=most).contains(&log2) {
        return Ok(log2);
    }
    let warp = |log2: u32| (1 << log2) / contract::WARPS_PER_CTA;
    Err(Error::Unsupported {
        operator: NAME,
        reason: format!(
            "{edges_per_warp} edges a warp; rows of this length want a power of two from {} to {}",
            warp(fewest),
            warp(most)
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes of a sub-warp of a number of lanes over rows of 100 edges at most.
    fn work(edges: u32, filled: u32, lanes_log2: u32, passes: u32) -> Work {
        Work {
            rows: Rows {
                edges,
                vertices: filled,
                filled,
                longest: 100,
                indexed: true,
                by_ids: false,
            },
            columns: Columns::new(passes << lanes_log2, passes),
            sums: Sums::One,
        }
    }

    fn chosen(edges: u32, lanes_log2: u32, passes: u32) -> u32 {
        choose(&work(edges, edges / 32, lanes_log2, passes), 132)
    }

    fn scheduled(policy: SpmmPolicy, work: &Work) -> Built {
        schedule(&policy, work, 132, true).expect("a legal schedule")
    }

    /// Cora, whose 64 features take 8 loads of half8.
    fn cora() -> Work {
        let rows = Rows {
            edges: 10_556,
            vertices: 2_708,
            filled: 2_708,
            longest: 168,
            indexed: true,
            by_ids: false,
        };
        Work {
            rows,
            columns: Columns::new(8, 1),
            sums: Sums::One,
        }
    }

    #[test]
    fn small_graphs_of_short_rows_are_vertex_parallel() {
        let auto = |work: Work| scheduled(SpmmPolicy::DEFAULT, &work);
        assert_eq!(auto(cora()), Built::VertexParallel);
        // A star has one long row, and the GPU waits for it.
        let mut star = cora();
        star.rows.longest = 2_707;
        assert_eq!(auto(star), Built::EdgeParallel);
        // That many rows, or passes over them, that they come in waves.
        let waves = |vertices: u32, passes: u32| {
            let mut work = cora();
            work.rows.vertices = vertices;
            work.columns = Columns::new(8 * passes, passes);
            work
        };
        assert_eq!(auto(waves(6_336, 1)), Built::VertexParallel);
        assert_eq!(auto(waves(6_337, 1)), Built::EdgeParallel);
        assert_eq!(auto(waves(2_708, 4)), Built::EdgeParallel);
        assert_eq!(auto(waves(u32::MAX, 1)), Built::EdgeParallel);
        // On a GPU of so few multiprocessors it is no small graph.
        assert_eq!(
            schedule(&SpmmPolicy::DEFAULT, &cora(), 16, true).expect("a legal schedule"),
            Built::EdgeParallel
        );
        // Of rows without an index it is the one that can be, however many they are.
        let mut drawn = cora();
        drawn.rows.vertices = 1 << 20;
        assert_eq!(auto(drawn), Built::EdgeParallel);
        drawn.rows.indexed = false;
        assert_eq!(auto(drawn), Built::VertexParallel);
        // What is not built is not chosen.
        assert_eq!(
            schedule(&SpmmPolicy::DEFAULT, &cora(), 132, false).expect("a legal schedule"),
            Built::EdgeParallel
        );
    }

    #[test]
    fn many_short_rows_are_four_a_warp() {
        let many = |vertices: u32, edges: u32, longest: u32, loads: u32| {
            let mut work = cora();
            work.rows = Rows {
                vertices,
                edges,
                longest,
                indexed: false,
                ..work.rows
            };
            work.columns = Columns::new(loads, 1);
            let plan = Plan::of(&SpmmPolicy::DEFAULT, &work, 132, true);
            plan.expect("a legal schedule").many_rows
        };
        // Of a fanout of 5, 13 loads a row: two sub-warps with four edges each.
        assert!(many(127_000, 548_000, 5, 13));
        // As wide as a warp, whose sub-warp has four: of most rows, or of all.
        assert!(!many(127_000, 548_000, 5, 32));
        assert!(many(127_000, 137_000, 3_000, 32) && many(127_000, 500_000, 4, 32));
        // Fifteen edges a row are more than a warp has lanes for, in four rows.
        assert!(!many(127_000, 127_000 * 15, 15, 8) && many(127_000, 127_000 * 8, 8, 8));
        // No more rows than there are warps at once, twice.
        assert!(!many(6_336, 6_336, 2, 13) && many(6_337, 6_337, 2, 13));
    }

    #[test]
    fn wide_rows_that_fit_no_cache_are_read_in_slices() {
        let rows = Rows {
            edges: 1 << 20,
            vertices: 1 << 14,
            filled: 1 << 14,
            longest: 2_048,
            indexed: true,
            by_ids: false,
        };
        let operand = Operand {
            load_bytes: 16,
            row_bytes: 512,
            cache: (1 << 20) - 1,
        };
        let tiles = |columns: Columns, rows: &Rows, operand| {
            let sliced = columns.sliced(Slices::Auto, rows, operand);
            (sliced.tiles, 1 << sliced.lanes_log2)
        };
        assert_eq!(tiles(Columns::new(32, 1), &rows, operand), (4, 8));
        assert_eq!(tiles(Columns::new(16, 1), &rows, operand), (2, 8));
        // A line, part of a line, several heads.
        assert_eq!(tiles(Columns::new(8, 1), &rows, operand), (1, 8));
        assert_eq!(tiles(Columns::new(12, 1), &rows, operand), (1, 16));
        assert_eq!(tiles(Columns::new(32, 2), &rows, operand), (1, 16));
        // Rows that fit the cache, or a cache of which nothing is known, and rows of few edges.
        let wide = Columns::new(32, 1);
        for cache in [0, 1 << 20] {
            let other = Operand { cache, ..operand };
            assert_eq!(tiles(wide, &rows, other), (1, 32));
        }
        let short = Rows {
            filled: 1 << 17,
            ..rows
        };
        // And rows of which none is read much more often than others.
        let alike = Rows {
            longest: 2_047,
            ..rows
        };
        for other in [short, alike] {
            assert_eq!(tiles(wide, &other, operand), (1, 32));
        }
        let forced = |slices| wide.sliced(slices, &short, operand).tiles;
        assert_eq!((forced(Slices::Whole), forced(Slices::Lines)), (1, 4));
        assert_eq!(wide.sliced(Slices::Whole, &rows, operand).tiles, 1);
    }

    #[test]
    fn every_schedule_can_be_forced() {
        let policy = |schedule, edges_per_warp| SpmmPolicy {
            schedule,
            edges_per_warp,
            ..SpmmPolicy::DEFAULT
        };
        let large = work(1 << 27, 1 << 20, 3, 1);
        for work in [cora(), large] {
            assert_eq!(
                scheduled(policy(Schedule::Vertex, None), &work),
                Built::VertexParallel
            );
            assert_eq!(
                scheduled(policy(Schedule::Edge, None), &work),
                Built::EdgeParallel
            );
            assert_eq!(
                scheduled(policy(Schedule::Auto, Some(64)), &work),
                Built::EdgeParallel
            );
        }
        let both = schedule(&policy(Schedule::Vertex, Some(64)), &cora(), 132, true);
        let message = both.expect_err("no legal schedule").to_string();
        assert!(message.contains("64 edges a warp"), "{message}");
        for edges in [None, Some(64)] {
            let of = |schedule| scheduled(policy(schedule, edges), &large);
            assert_eq!(of(Schedule::RowIds), Built::RowIds);
            assert_eq!(of(Schedule::RowIdsInTurn), Built::RowIdsInTurn);
            // By itself, of rows that are known from ids alone.
            let mut plain = large;
            plain.rows.by_ids = true;
            plain.rows.indexed = false;
            assert_eq!(
                scheduled(policy(Schedule::Auto, edges), &plain),
                Built::RowIds
            );
            assert_eq!(
                scheduled(policy(Schedule::Edge, edges), &plain),
                Built::EdgeParallel
            );
        }
        let both = schedule(&policy(Schedule::Hybrid, Some(64)), &cora(), 132, true);
        let message = both.expect_err("no legal schedule").to_string();
        assert!(message.contains("inequality"), "{message}");
    }

    #[test]
    fn large_graphs_get_large_ctas_and_small_ones_enough_of_them() {
        assert_eq!(chosen(u32::MAX, 3, 1), contract::CTA_EDGES_LOG2_MAX);
        assert_eq!(chosen(67_108_864, 2, 1), contract::CTA_EDGES_LOG2_MAX);
        // A graph that a GPU cannot be filled with.
        assert_eq!(chosen(13_264, 3, 1), contract::cta_edges_log2_min(3));
        assert_eq!(chosen(0, 5, 1), contract::cta_edges_log2_min(5));
        assert_eq!(chosen(13_264, 0, 1), contract::cta_edges_log2_min(0));
        // 32, 64 and 128 edges a warp, or within a tenth of what is best there, where these were timed.
        assert_eq!([17, 18, 19].map(|log2| chosen(1 << log2, 3, 1)), [7, 8, 9]);
        for edges in [1 << 16, 3 << 16, 1 << 18, 5 << 16] {
            let log2 = chosen(edges, 3, 1);
            assert!(u64::from(contract::ctas(edges, log2)) >= enough(132));
            assert!(u64::from(contract::ctas(edges, log2 + 1)) < enough(132));
            // Every further pass is as good as further edges.
            assert_eq!(chosen(edges, 3, 2), log2 + 1);
        }
    }

    /// CTAs times passes are counted in 64 bits: 2³² of them are many, and not none.
    #[test]
    fn ctas_of_many_passes_are_not_cut_to_32_bits() {
        let passes = 1 << contract::CTA_EDGES_LOG2_MAX;
        assert_eq!(chosen(u32::MAX, 3, passes), contract::CTA_EDGES_LOG2_MAX);
        let mut work = cora();
        work.rows.vertices = u32::MAX;
        for passes in [1, 4, 1 << 20] {
            work.columns = Columns::new(8 * passes, passes);
            let schedule = scheduled(SpmmPolicy::DEFAULT, &work);
            assert_eq!(schedule, Built::EdgeParallel, "{passes} passes");
        }
    }

    /// 4 · 1,320 · n · 4 · 32 ≤ NNZ · 8 at F = 64 in half: n ≤ NNZ / 84,480.
    #[test]
    fn hybrid_ctas_follow_the_inequality() {
        let policy = SpmmPolicy {
            schedule: Schedule::Hybrid,
            ..SpmmPolicy::DEFAULT
        };
        let edges_of = |edges: u32, lanes_log2: u32| {
            let work = work(edges, edges / 32, lanes_log2, 1);
            assert_eq!(scheduled(policy, &work), Built::EdgeParallel);
            let plan = Plan::of(&policy, &work, 132, true).expect("a legal schedule");
            (1 << plan.cta_edges_log2) / contract::WARPS_PER_CTA
        };
        assert_eq!(edges_of(84_480 * 128, 3), 128);
        assert_eq!(edges_of(84_480 * 128 - 1, 3), 64);
        assert_eq!(edges_of(84_480 * 256, 3), 256);
        assert_eq!(edges_of(u32::MAX, 3), 256);
        assert_eq!(edges_of(1, 3), 32);
        // One lane a row needs more edges a warp than the inequality's least.
        assert_eq!(edges_of(1, 0), 128);
        // Our own choice is another: it has short rows keep small CTAs.
        let short = work(1 << 27, 1 << 25, 3, 1);
        assert_ne!(hybrid(&short, 132).expect("legal"), choose(&short, 132));
    }

    #[test]
    fn short_rows_get_no_large_ctas() {
        let work = work(1 << 27, 1 << 25, 3, 1);
        assert_eq!(1 << choose(&work, 132), contract::EDGES_PER_CTA);
    }

    #[test]
    fn two_sums_get_no_large_ctas() {
        let work = Work {
            sums: Sums::Both,
            ..work(1 << 27, 1 << 20, 3, 1)
        };
        assert_eq!(1 << choose(&work, 132), contract::EDGES_PER_CTA);
    }

    #[test]
    fn what_is_forced_is_checked() {
        assert_eq!(forced(128, 0).expect("legal"), 9);
        assert_eq!(forced(256, 0).expect("legal"), 10);
        assert_eq!(forced(16, 3).expect("legal"), 6);
        for (edges, lanes_log2) in [
            (0, 3),
            (8, 5),
            (16, 2),
            (100, 3),
            (512, 3),
            (1 << 30, 3),
            (1 << 31, 3),
            (u32::MAX, 3),
        ] {
            let message = forced(edges, lanes_log2)
                .expect_err("no legal size")
                .to_string();
            assert!(message.contains("edges a warp"), "{message}");
        }
    }
}
