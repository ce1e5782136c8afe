//! Edge lists as text, as SNAP and many others publish graphs: an edge a line.
//!
//! ```text
//! # Directed graph: web-Google.txt
//! # Nodes: 875713 Edges: 5105039
//! # FromNodeId    ToNodeId
//! 0       11342
//! 0       824020
//! ```
//! Lines that start with `#` or `%` are comments. Ids are whole numbers below 2⁶⁴, separated by blanks, tabs or commas.
//! The rest of a line (a weight, a time) is ignored. A first line of words is taken for the names of columns.
//!
//! `a b` is an edge from a to b, which b's row lists. Vertices are numbered from 0 by ascending id, so ids that are 0
//! to n - 1 stay what they are. Where a comment says `Nodes: n` and all ids are below n, they stay too, and vertices
//! without edges exist.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rayon::prelude::*;
use rustc_hash::FxHashMap;

use super::{EdgeStore, brought_into_order};
use crate::COLUMNS_LEFT_OUT;
use crate::error::DataProblem;
use crate::input::{Input, Progress};
use crate::text::{Cursor, LineError, Text};
use halfgnn_graph::index::MAX_VERTICES;
use halfgnn_graph::{Direction, EdgeBlocks, Graph, GraphError};

/// Reads a text, packed or not.
pub(crate) fn read(
    input: Input<'_>,
    undirected: bool,
    progress: &dyn Progress,
) -> Result<Graph, DataProblem> {
    let mut edges = EdgeBlocks::default();
    let vertices = read_into(input, &mut edges)?;
    brought_into_order(edges, vertices, direction(undirected), progress)
}

/// What a line stands for.
pub(crate) fn direction(undirected: bool) -> Direction {
    match undirected {
        true => Direction::BothOnce,
        false => Direction::AsListed,
    }
}

/// Reads the edges of a text; how many vertices there are.
pub(crate) fn read_into(
    input: Input<'_>,
    edges: &mut impl EdgeStore,
) -> Result<usize, DataProblem> {
    if input.len() == 0 {
        return Err(DataProblem::Empty);
    }
    let mut text = input.text()?;
    let promised = header(&mut text)?;
    let most_vertices = text.most_vertices();

    let interner = Interner::new();
    let mut interned = Vec::new();
    text.for_each_block(
        |block| {
            let mut cursor = Cursor::new(block);
            let ids = parse(&mut cursor)?;
            Ok((ids.settle(&interner), cursor.has_more))
        },
        |(settled, has_more)| {
            let Settled {
                pairs,
                are_interned,
            } = settled;
            interned.push(are_interned);
            if has_more {
                edges.leave_out(COLUMNS_LEFT_OUT);
            }
            edges.expect_space(interner.bytes())?;
            edges.add(pairs)
        },
    )?;

    let narrow_limit = edges.edges().saturating_mul(64).max(1 << 20);
    let largest = largest_plain(edges, &interned)?;
    let vertices = match largest {
        _ if interned.contains(&true) => number_interned(edges, &interned, interner)?,
        Some(largest) if u64::from(largest) > narrow_limit => {
            number_interned(edges, &interned, interner)?
        }
        None => promised.unwrap_or(0).min(most_vertices),
        Some(largest) => match promised {
            Some(promised) if u64::from(largest) < promised && promised <= most_vertices => {
                promised
            }
            _ => number_plain(edges, largest)?,
        },
    };
    if vertices > MAX_VERTICES {
        return Err(DataProblem::graph(
            "ids",
            GraphError::TooManyVertices { vertices },
        ));
    }
    Ok(vertices as usize)
}

/// The largest id of the blocks that were not interned.
fn largest_plain(
    edges: &mut impl EdgeStore,
    interned: &[bool],
) -> Result<Option<u32>, DataProblem> {
    // One more than it, and so 0 of none.
    let beyond = AtomicU64::new(0);
    edges.each_block(|at, block| {
        let ids = block.iter().flatten().copied();
        if let (false, Some(largest)) = (interned[at], ids.max()) {
            beyond.fetch_max(u64::from(largest) + 1, Ordering::Relaxed);
        }
    })?;
    Ok(beyond
        .into_inner()
        .checked_sub(1)
        .map(|largest| largest as u32))
}

/// Reads the comments at the beginning, and the names of columns if there are any. Returns the number of vertices where
/// a comment has it.
fn header(text: &mut Text<'_>) -> Result<Option<u64>, DataProblem> {
    let mut promised = None;
    while let Some(line) = text.peek_line()? {
        let line = line.trim_start();
        if line.starts_with(['#', '%']) {
            promised = promised.or_else(|| nodes_in(line));
        } else if !line.is_empty() {
            if is_names(line) {
                text.line()?;
            }
            break;
        }
        text.line()?;
    }
    Ok(promised)
}

/// The n of `Nodes: n`.
fn nodes_in(comment: &str) -> Option<u64> {
    let (_, after) = comment.split_once("Nodes:")?;
    after
        .split_whitespace()
        .next()?
        .trim_end_matches(',')
        .parse()
        .ok()
}

/// Whether a line has names of columns, as `source,target`.
pub(crate) fn is_names(line: &str) -> bool {
    line.starts_with(|first: char| first.is_ascii_alphabetic() || first == '"' || first == '_')
}

/// The edges of a block, as (to, from).
enum Ids {
    /// All below 2³².
    Narrow(Vec<[u32; 2]>),
    Wide(Vec<[u64; 2]>),
}

/// The edges of a block, whose ids are names that an [`Interner`] gave, or themselves.
struct Settled {
    pairs: Vec<[u32; 2]>,
    are_interned: bool,
}

impl Ids {
    fn settle(self, interner: &Interner) -> Settled {
        match self {
            Self::Narrow(pairs) => Settled {
                pairs,
                are_interned: false,
            },
            Self::Wide(pairs) => Settled {
                pairs: pairs
                    .iter()
                    .map(|ids| ids.map(|id| interner.name(id)))
                    .collect(),
                are_interned: true,
            },
        }
    }
}

fn parse(cursor: &mut Cursor<'_>) -> Result<Ids, LineError> {
    /// What a line takes at least, about.
    const LINE: usize = 8;
    let mut narrow: Vec<[u32; 2]> = Vec::with_capacity(cursor.len() / LINE);
    while let Some((to, from, _)) = next_edge(cursor)? {
        match (u32::try_from(to), u32::try_from(from)) {
            (Ok(to), Ok(from)) => narrow.push([to, from]),
            _ => {
                let mut wide: Vec<[u64; 2]> = narrow.iter().map(|ids| ids.map(u64::from)).collect();
                wide.push([to, from]);
                while let Some((to, from, _)) = next_edge(cursor)? {
                    wide.push([to, from]);
                }
                return Ok(Ids::Wide(wide));
            }
        }
    }
    Ok(Ids::Narrow(narrow))
}

/// What an id must be, and what to do where ids are names.
const VERTEX_ID: &str =
    "vertex id, a whole number from 0; if vertices have names, number them first";

/// The ends (to, from) of the next edge of a block, and where it stands.
#[inline]
pub(super) fn next_edge(cursor: &mut Cursor<'_>) -> Result<Option<(u64, u64, usize)>, LineError> {
    loop {
        cursor.skip_blanks(b' ');
        match cursor.peek() {
            None => return Ok(None),
            Some(b'\n' | b'#' | b'%') => cursor.skip_line(),
            Some(_) => break,
        }
    }
    let start = cursor.at;
    let from = cursor.whole(b',', VERTEX_ID)?;
    cursor.skip_blanks(b',');
    if cursor.at_line_end() {
        return Err(cursor.error(start, "an edge has two vertex ids, and one is there"));
    }
    let to = cursor.whole(b',', VERTEX_ID)?;
    cursor.skip_blanks(b',');
    cursor.has_more |= !matches!(cursor.peek(), None | Some(b'\n' | b'#' | b'%'));
    cursor.skip_line();
    Ok(Some((to, from, start)))
}

/// Numbers the vertices by ascending id, where the largest is not far above the number of edges; how many there are.
fn number_plain(edges: &mut impl EdgeStore, largest: u32) -> Result<u64, DataProblem> {
    let words = largest as usize / 64 + 1;
    edges.expect_space(words as u64 * 20)?; // `seen` of both kinds, and `before`
    let seen: Vec<AtomicU64> = (0..words).map(|_| AtomicU64::new(0)).collect();
    edges.each_block(|_, block| {
        for &id in block.iter().flatten() {
            let (word, bit) = (&seen[id as usize / 64], 1 << (id % 64));
            // Most ids were seen before, and reading is cheaper.
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Relaxed);
            }
        }
    })?;
    let seen: Vec<u64> = seen.into_iter().map(AtomicU64::into_inner).collect();
    let mut before = Vec::with_capacity(words);
    let mut vertices = 0_u64;
    for word in &seen {
        before.push(vertices as u32);
        vertices += u64::from(word.count_ones());
    }
    if vertices <= u64::from(largest) {
        edges.rename(|_, id| {
            let (word, bit) = (id as usize / 64, 1_u64 << (id % 64));
            before[word] + (seen[word] & (bit - 1)).count_ones()
        })?;
    }
    Ok(vertices)
}

/// Maps ids of any size to names of 32 bits.
struct Interner {
    /// By the lowest bits of the id, so that threads seldom wait for each other.
    shards: Vec<Mutex<FxHashMap<u64, u32>>>,
    next: AtomicU32,
    /// Names given after the last that there is: these wrapped around.
    overflowed: AtomicBool,
}

impl Interner {
    const SHARDS: u64 = 64;

    /// Bytes of an id, at most. While a map grows there are the old one and one of twice the size; afterwards there are
    /// the map, `names` and `number`.
    const OF_ID: u64 = 60;

    fn new() -> Self {
        Self {
            shards: (0..Self::SHARDS).map(|_| Mutex::default()).collect(),
            next: AtomicU32::new(0),
            overflowed: false.into(),
        }
    }

    fn bytes(&self) -> u64 {
        u64::from(self.next.load(Ordering::Relaxed)) * Self::OF_ID
    }

    fn name(&self, id: u64) -> u32 {
        let shard = &self.shards[(id % Self::SHARDS) as usize];
        // A map is whole even where a thread that held it panicked.
        let mut shard = shard.lock().unwrap_or_else(PoisonError::into_inner);
        *shard.entry(id).or_insert_with(|| {
            let name = self.next.fetch_add(1, Ordering::Relaxed);
            if name == u32::MAX {
                self.overflowed.store(true, Ordering::Relaxed);
            }
            name
        })
    }
}

/// Numbers the vertices by ascending id, from names, which blocks that have none yet get first; how many there are.
fn number_interned(
    edges: &mut impl EdgeStore,
    interned: &[bool],
    interner: Interner,
) -> Result<u64, DataProblem> {
    if interned.contains(&false) {
        edges.rename(|at, id| match interned[at] {
            true => id,
            false => interner.name(id.into()),
        })?;
        edges.expect_space(interner.bytes())?;
    }
    if interner.overflowed.into_inner() {
        let vertices = MAX_VERTICES + 1;
        return Err(DataProblem::graph(
            "ids",
            GraphError::TooManyVertices { vertices },
        ));
    }
    let mut names: Vec<(u64, u32)> = Vec::with_capacity(interner.next.into_inner() as usize);
    for shard in interner.shards {
        names.extend(shard.into_inner().unwrap_or_else(PoisonError::into_inner));
    }
    names.par_sort_unstable();
    let mut number = vec![0_u32; names.len()];
    for (at, &(_, name)) in (0..).zip(&names) {
        number[name as usize] = at;
    }
    edges.rename(|_, id| number[id as usize])?;
    Ok(number.len() as u64)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor as Bytes;

    use proptest::prelude::*;

    use super::*;
    use crate::input::Silent;
    use crate::testing::gzip;

    fn read_bytes(bytes: &[u8]) -> Result<Graph, DataProblem> {
        read(Input::new(Bytes::new(bytes), &Silent)?, false, &Silent)
    }

    fn edges(graph: &Graph) -> Vec<(u32, u32)> {
        graph
            .cols()
            .iter()
            .copied()
            .zip(graph.rows().iter().copied())
            .collect()
    }

    #[test]
    fn as_snap_publishes_graphs() {
        let text = b"# Directed graph (each unordered pair of nodes is saved once): p2p.txt \n\
            # Nodes: 6 Edges: 4\n# FromNodeId\tToNodeId\n0\t1\n0\t2\n3\t0\n\n# the end\n4 4 0.5\r\n";
        for bytes in [text.to_vec(), gzip(text)] {
            let graph = read_bytes(&bytes).unwrap();
            assert_eq!(graph.vertices(), 6);
            assert_eq!(edges(&graph), [(3, 0), (0, 1), (0, 2), (4, 4)]);
        }
    }

    #[test]
    fn ids_are_numbered_by_size() {
        for (far, note) in [
            (70, "near"),
            (4_294_967_295, "32 bits"),
            (u64::MAX, "64 bits"),
        ] {
            let text = format!("source,target\n7,{far}\n{far},7\n7,30\n");
            let graph = read_bytes(text.as_bytes()).unwrap();
            assert_eq!(graph.vertices(), 3, "{note}");
            assert_eq!(edges(&graph), [(2, 0), (0, 1), (0, 2)], "{note}");
        }
        // More than a comment promises: numbered anew.
        assert_eq!(read_bytes(b"# Nodes: 3\n5 9\n").unwrap().vertices(), 2);
        assert_eq!(
            read_bytes(b"# Nodes: 3\n# nothing\n").unwrap().vertices(),
            3
        );
        assert_eq!(
            read_bytes(b"# Nodes: 4000000000\n0 1\n")
                .unwrap()
                .vertices(),
            2
        );
    }

    #[test]
    fn undirected_adds_what_is_missing() {
        let input = Input::new(Bytes::new(b"0 1\n1 0\n1 2\n2 2\n"), &Silent).unwrap();
        let graph = read(input, true, &Silent).unwrap();
        assert_eq!(edges(&graph), [(1, 0), (0, 1), (2, 1), (1, 2), (2, 2)]);
    }

    #[test]
    fn lines_that_are_no_edges() {
        for (text, message) in [
            (
                "0 1\n2\n",
                "line 2: an edge has two vertex ids, and one is there",
            ),
            (
                "0 1\n# x\n1 b\n",
                "line 3: 'b' is no vertex id, a whole number from 0; if vertices have names, number them first",
            ),
            (
                "0 -1\n",
                "line 1: '-1' is no vertex id, a whole number from 0; if vertices have names, number them first",
            ),
            (
                "# a\na b\n0 nan",
                "line 3: 'nan' is no vertex id, a whole number from 0; if vertices have names, number them first",
            ),
            (
                "0 18446744073709551616",
                "line 1: '18446744073709551616' is no vertex id, a whole number from 0; if vertices have names, number them first",
            ),
        ] {
            assert_eq!(
                read_bytes(text.as_bytes()).unwrap_err().to_string(),
                message
            );
        }
    }

    #[test]
    fn packed_texts_that_are_broken() {
        let mut whole = gzip(b"0 1\n1 2\n2 3\n");
        for len in 2..whole.len() {
            let error = read_bytes(&whole[..len]).unwrap_err().to_string();
            assert!(
                error.starts_with("cannot be unpacked: "),
                "{len} bytes: {error}"
            );
        }
        let at = whole.len() - 6; // in the checksum
        whole[at] ^= 1;
        assert!(
            read_bytes(&whole)
                .unwrap_err()
                .to_string()
                .starts_with("cannot be unpacked: ")
        );
        // 80 MiB of one edge in 80 kB.
        let error = read_bytes(&gzip(&b"0 1\n".repeat(20 << 20)))
            .unwrap_err()
            .to_string();
        assert!(error.contains("more than 200 times its size"), "{error}");
    }

    proptest! {
        #[test]
        fn any_ids_and_separators(
            list in prop::collection::vec((0..5_usize, any::<[u64; 2]>(), "[ \t,]"), 1..60),
        ) {
            let bits = [3, 10, 31, 33, 63];
            let list: Vec<_> = list.iter().map(|(width, ids, by)| (ids.map(|id| id >> (63 - bits[*width])), by)).collect();
            let text: String = list.iter().map(|([from, to], by)| format!("{from}{by}{to}\n")).collect();
            let graph = read_bytes(text.as_bytes()).unwrap();
            let mut ids: Vec<u64> = list.iter().flat_map(|(ids, _)| *ids).collect();
            ids.sort();
            ids.dedup();
            let number = |id| ids.binary_search(&id).unwrap() as u32;
            let mut expected: Vec<_> = list.iter().map(|([from, to], _)| (number(*to), number(*from))).collect();
            expected.sort();
            prop_assert_eq!(graph.vertices(), ids.len());
            let found: Vec<_> = graph.rows().iter().copied().zip(graph.cols().iter().copied()).collect();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9 ,#\\n\\-a\u{e9}]{0,80}") {
            let _ = read_bytes(text.as_bytes());
        }
    }
}
