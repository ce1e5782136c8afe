//! What can be wrong with a graph.

use super::index::{MAX_EDGES, MAX_VERTICES};
use crate::parallel;
use std::path::PathBuf;

/// Why arrays, or a generator's parameters, do not describe a graph.
///
/// Every message is one line that names the array, the position and the value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GraphError {
    /// More vertices than ids.
    #[error("{vertices} vertices are more than the {MAX_VERTICES} that 32-bit vertex ids can name")]
    TooManyVertices {
        /// The number asked for.
        vertices: u64,
    },
    /// More edges than ids.
    #[error(
        "{edges} edges are more than the {MAX_EDGES} that 32-bit edge ids can name; split the graph"
    )]
    TooManyEdges {
        /// The number asked for; of a generator, at least this many.
        edges: u64,
    },
    /// An index that names no vertex.
    #[error(
        "{field}[{index}] is {value}, but a graph of {vertices} vertices has ids below {vertices}"
    )]
    VertexOutOfRange {
        /// The array it stands in.
        field: &'static str,
        /// Its position there.
        index: u64,
        /// The index itself.
        value: u64,
        /// How many vertices there are.
        vertices: u64,
    },
    /// Two arrays that belong together differ in length.
    #[error("{field} has {length} entries where {expected} are wanted ({why})")]
    Length {
        /// The array.
        field: &'static str,
        /// Its length.
        length: u64,
        /// The length it should have.
        expected: u64,
        /// What it must agree with.
        why: &'static str,
    },
    /// A rectangular adjacency where one of a graph is wanted.
    #[error("the adjacency of a graph is square, not {rows} x {columns}")]
    NotSquare {
        /// Its rows.
        rows: usize,
        /// Its columns.
        columns: usize,
    },
    /// An adjacency with fewer columns than rows where each row is a column as well.
    #[error(
        "a block of {destinations} destinations has them among its sources, of which there are {sources}"
    )]
    NotABlock {
        /// Its rows.
        destinations: usize,
        /// Its columns.
        sources: usize,
    },
    /// Row offsets that do not start at 0, that decrease, or that do not end at the number of edges.
    #[error("offsets[{index}] is {value}, but row offsets {rule}")]
    Offsets {
        /// The position of the offending entry.
        index: u64,
        /// The entry.
        value: u64,
        /// The rule that it breaks.
        rule: OffsetRule,
    },
    /// Tiles of bits ([`Frdc`](crate::Frdc)) that are not those of a pattern.
    #[error("{field}[{index}] is {value}, but {rule}")]
    Tile {
        /// The array: `tile_offsets`, `tile_columns` or `tiles`.
        field: &'static str,
        /// The position of the offending entry.
        index: u64,
        /// The entry.
        value: u64,
        /// The rule that it breaks.
        rule: TileRule,
    },
    /// A list of edges in order of rows that is not.
    #[error("rows[{index}] is {value}, after {before}; edges come in order of rows, so sort them")]
    RowOrder {
        /// The position of the offending entry.
        index: u64,
        /// The entry.
        value: u32,
        /// The entry before it.
        before: u32,
    },
    /// A relabelling that gives one label twice.
    #[error(
        "permutation[{index}] is {value}, which an earlier vertex already has; each label must occur once"
    )]
    NotAPermutation {
        /// The position of the second occurrence.
        index: u64,
        /// The label that repeats.
        value: u64,
    },
    /// More memory than there is.
    #[error("{what} take {bytes} bytes, and there is no room for them in memory")]
    OutOfMemory {
        /// What was to be made.
        what: &'static str,
        /// The bytes that it takes.
        bytes: u64,
    },
    /// Edges that were to be kept in a file.
    #[error("edges cannot be kept in {}: {reason}; name a folder on a disk that has room", folder.display())]
    Disk {
        /// Where the file was to be.
        folder: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// A generator was asked for something it cannot make.
    #[error("{parameter} = {value} is out of range: {valid}")]
    Parameter {
        /// The parameter's name.
        parameter: &'static str,
        /// Its value.
        value: String,
        /// What it may be.
        valid: &'static str,
    },
}

/// A rule of row offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum OffsetRule {
    /// The first is 0.
    StartAtZero,
    /// Each is at least the one before, which is the value here.
    NeverDecrease(u64),
    /// The last is the number of edges, which is the value here.
    EndAtEdges(u64),
    /// Of rows of tiles: the last is the number of tiles, which is the value here.
    EndAtTiles(u64),
}

impl std::fmt::Display for OffsetRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::StartAtZero => f.write_str("start at 0"),
            Self::NeverDecrease(before) => write!(f, "never decrease (the one before is {before})"),
            Self::EndAtEdges(edges) => write!(f, "end at the number of edges, {edges}"),
            Self::EndAtTiles(tiles) => write!(f, "end at the number of tiles, {tiles}"),
        }
    }
}

/// A rule of tiles of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TileRule {
    /// Rows of tiles start where offsets may.
    Offset(OffsetRule),
    /// A column of tiles is below the number of columns.
    ColumnsBelow(u64),
    /// Columns ascend within a row of tiles; the value here is that of the tile before.
    Ascend(u32),
    /// A tile has an edge.
    HasEdge,
    /// No bit lies past the last row or column of the pattern.
    Within {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
    },
}

impl std::fmt::Display for TileRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Offset(rule) => write!(f, "offsets of rows of tiles {rule}"),
            Self::ColumnsBelow(columns) => {
                write!(f, "columns of tiles are below {columns}, their number")
            }
            Self::Ascend(before) => write!(
                f,
                "columns ascend within a row of tiles (the one before is {before})"
            ),
            Self::HasEdge => f.write_str("a tile has a bit at least"),
            Self::Within { rows, columns } => write!(
                f,
                "no bit of a tile lies past the last of {rows} rows and {columns} columns"
            ),
        }
    }
}

/// The first of offsets that are not those of as many entries as `end`'s rule says: its position, and the rule that it
/// breaks.
pub(crate) fn wrong_offset<T: Copy + Into<u64>>(
    offsets: &[T],
    (end, rule): (u64, fn(u64) -> OffsetRule),
) -> Option<(usize, OffsetRule)> {
    let at = |index: usize| -> Option<u64> { offsets.get(index).map(|&offset| offset.into()) };
    if at(0).is_some_and(|first| first != 0) {
        return Some((0, OffsetRule::StartAtZero));
    }
    let decreases = |pair: &[T]| pair[0].into() > pair[1].into();
    if let Some(row) = offsets.windows(2).position(decreases) {
        return Some((row + 1, OffsetRule::NeverDecrease(offsets[row].into())));
    }
    let last = offsets.len().checked_sub(1)?;
    (at(last) != Some(end)).then(|| (last, rule(end)))
}

/// That `vertices` can be named.
pub(crate) fn check_vertices(vertices: u64) -> Result<(), GraphError> {
    if vertices > MAX_VERTICES {
        Err(GraphError::TooManyVertices { vertices })
    } else {
        Ok(())
    }
}

/// That `edges` can be named.
pub(crate) fn check_edges(edges: u64) -> Result<(), GraphError> {
    if edges > MAX_EDGES {
        Err(GraphError::TooManyEdges { edges })
    } else {
        Ok(())
    }
}

/// That the given number of bytes is free: a lack is found before memory is requested, for a request that fails ends
/// the process.
pub(crate) fn check_room(what: &'static str, bytes: u64) -> Result<(), GraphError> {
    let mut probe = Vec::<u8>::new();
    let has_room = usize::try_from(bytes).is_ok_and(|bytes| probe.try_reserve_exact(bytes).is_ok());
    match has_room {
        true => Ok(()),
        false => Err(GraphError::OutOfMemory { what, bytes }),
    }
}

/// That every entry of `ids` is a vertex; `field` is what the array is called.
pub(crate) fn check_ids(field: &'static str, ids: &[u32], vertices: u64) -> Result<(), GraphError> {
    // The first, so that the message does not depend on the number of threads.
    match parallel::position_first(ids, |&id| u64::from(id) >= vertices) {
        Some(index) => Err(GraphError::VertexOutOfRange {
            field,
            index: index as u64,
            value: ids[index].into(),
            vertices,
        }),
        None => Ok(()),
    }
}

/// That `length` is what `field` should have.
pub(crate) fn check_length(
    field: &'static str,
    length: usize,
    expected: usize,
    why: &'static str,
) -> Result<(), GraphError> {
    if length == expected {
        Ok(())
    } else {
        Err(GraphError::Length {
            field,
            length: length as u64,
            expected: expected as u64,
            why,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_end_where_32_bit_ids_end() {
        assert_eq!(check_edges(u32::MAX.into()), Ok(()));
        assert_eq!(
            check_edges(1 << 32),
            Err(GraphError::TooManyEdges { edges: 1 << 32 })
        );
        assert_eq!(check_vertices(u32::MAX.into()), Ok(()));
        assert_eq!(
            check_vertices(1 << 32),
            Err(GraphError::TooManyVertices { vertices: 1 << 32 })
        );
        assert_eq!(
            check_ids("columns", &[u32::MAX - 1], u32::MAX.into()),
            Ok(())
        );
    }

    #[test]
    fn room_that_there_is_not_is_told() {
        assert_eq!(check_room("edges", 1 << 10), Ok(()));
        let error = check_room("edges", 1 << 60).unwrap_err().to_string();
        assert_eq!(
            error,
            "edges take 1152921504606846976 bytes, and there is no room for them in memory"
        );
        assert!(check_room("edges", u64::MAX).is_err());
    }

    #[test]
    fn messages_name_the_array_the_place_and_the_value() {
        let error = check_ids("columns", &[0, 4, 9], 4).unwrap_err();
        assert_eq!(
            error.to_string(),
            "columns[1] is 4, but a graph of 4 vertices has ids below 4"
        );
        let error = GraphError::Offsets {
            index: 3,
            value: 5,
            rule: OffsetRule::NeverDecrease(7),
        };
        assert_eq!(
            error.to_string(),
            "offsets[3] is 5, but row offsets never decrease (the one before is 7)"
        );
    }
}
