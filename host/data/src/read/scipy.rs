//! scipy's sparse matrices, as `scipy.sparse.save_npz` writes them: an archive of the arrays of one matrix.
//!
//! | `format` | arrays other than `shape` |
//! |---|---|
//! | `csr`, `csc` | `indptr`, `indices`, `data` |
//! | `coo` | `row`, `col`, `data` |
//!
//! Entry (i, j) is an edge from j to i. `data` is not read: an explicit zero is an edge, and an entry that `coo` lists
//! twice is two edges.

use crate::WEIGHTS_LEFT_OUT;
use crate::error::DataProblem;
use crate::input::Progress;
use crate::row_order::RowWalk;
#[cfg(feature = "write")]
use crate::stream::{SpillWriter, SpilledEdges};
use halfgnn_graph::index::MAX_VERTICES;
use halfgnn_graph::{Csr, Direction, EdgeBlocks, Graph};

use super::arrays::{Arrays, expect_len};
use super::npz::Npz;
use super::{EdgeStore, OF_VERTEX, brought_into_order};

/// Whether an archive has the arrays of a matrix.
pub(crate) fn recognises(npz: &Npz<'_>) -> bool {
    npz.has("shape") && (npz.has("indptr") || npz.has("row") || npz.has("format"))
}

/// Reads a matrix as a graph.
pub(crate) fn read(npz: &mut Npz<'_>, progress: &dyn Progress) -> Result<Graph, DataProblem> {
    let vertices = square(npz, "shape")?;
    match layout(npz)? {
        Layout::Rows => compressed(npz, vertices),
        // The columns of a matrix are the rows of its transpose.
        Layout::Columns => compressed(npz, vertices).and_then(|columns| {
            Graph::new(columns.transposed().clone())
                .map_err(|error| DataProblem::graph("indptr", error))
        }),
        Layout::Coordinates => coordinates(npz, vertices, progress),
    }
}

/// How a matrix lies there.
#[derive(Clone, Copy, PartialEq)]
enum Layout {
    Rows,
    Columns,
    Coordinates,
}

fn layout(npz: &mut Npz<'_>) -> Result<Layout, DataProblem> {
    let format = if npz.has("format") {
        npz.word("format")?
    } else if npz.has("row") {
        "coo".into()
    } else {
        "csr".into()
    };
    match format.as_str() {
        "csr" => Ok(Layout::Rows),
        "csc" => Ok(Layout::Columns),
        "coo" => Ok(Layout::Coordinates),
        _ => Err(DataProblem::value(
            "format",
            0,
            format.escape_debug(),
            "where csr, csc or coo is wanted; save the matrix by scipy.sparse.save_npz(file, matrix.tocsr())",
        )),
    }
}

/// Puts every edge into a file; how many vertices there are.
#[cfg(feature = "write")]
pub(crate) fn spill(npz: &mut Npz<'_>, into: &mut SpilledEdges<'_>) -> Result<usize, DataProblem> {
    let vertices = square(npz, "shape")?;
    into.expect_space(vertices * OF_VERTEX)?;
    if npz.has("data") {
        // What is no number is no 1 either.
        let are_ones = npz.are_ones("data").unwrap_or(false);
        if !are_ones {
            into.leave_out(WEIGHTS_LEFT_OUT);
        }
    }
    let layout = layout(npz)?;
    if layout == Layout::Coordinates {
        spill_coordinates(npz, vertices, into)?;
        return Ok(vertices as usize);
    }
    let offsets = offsets(npz, vertices)?;
    let edges = line_len(npz, "indices")?;
    Csr::check_offsets(&offsets, edges).map_err(|error| DataProblem::graph("indptr", error))?;
    let mut rows = RowWalk::new(&offsets);
    npz.each_id("indices", vertices, "vertices", |index, id| {
        let row = rows.row_of(index)?;
        into.push(match layout {
            Layout::Columns => [id, row],
            _ => [row, id],
        })
    })?;
    Ok(vertices as usize)
}

#[cfg(feature = "write")]
fn spill_coordinates(
    npz: &mut Npz<'_>,
    vertices: u64,
    into: &mut SpilledEdges<'_>,
) -> Result<(), DataProblem> {
    check_promise(npz, vertices)?;
    let count = line_len(npz, "row")?;
    expect_len("col", line_len(npz, "col")?, count, "one for each of row")?;
    let mut rows = SpillWriter::create(into.folder()).map_err(DataProblem::CannotWrite)?;
    npz.each_id("row", vertices, "vertices", |_, id| {
        rows.push(id).map_err(DataProblem::CannotWrite)
    })?;
    let rows = rows.finish().map_err(DataProblem::CannotWrite)?;
    let mut row = rows.reader();
    npz.each_id("col", vertices, "vertices", |_, id| {
        // As many as were written: the lengths of both were compared.
        let row = row.next(&rows)?.ok_or(std::io::ErrorKind::UnexpectedEof);
        into.push([row.map_err(std::io::Error::from)?, id])
    })
}

/// The length of an array of one dimension.
#[cfg(feature = "write")]
fn line_len(npz: &mut Npz<'_>, key: &str) -> Result<usize, DataProblem> {
    match npz.kind(key)?.1[..] {
        [len] | [len, 1] => Ok(len as usize),
        ref shape => Err(DataProblem::shape(key, shape, "one dimension")),
    }
}

/// The side of a square matrix, from an array that holds its shape.
pub(crate) fn square(npz: &mut Npz<'_>, key: &str) -> Result<u64, DataProblem> {
    let [vertices, columns] = npz.shape(key)?;
    if vertices != columns || vertices > MAX_VERTICES {
        return Err(DataProblem::value(
            key,
            0,
            format!("{vertices} of ({vertices}, {columns})"),
            format!("but an adjacency is square, of at most {MAX_VERTICES} vertices"),
        ));
    }
    Ok(vertices)
}

fn offsets(npz: &mut Npz<'_>, vertices: u64) -> Result<Vec<u64>, DataProblem> {
    let offsets = npz.counts("indptr")?.line("indptr")?;
    let wanted = vertices as usize + 1;
    expect_len(
        "indptr",
        offsets.len(),
        wanted,
        "one more than the matrix has rows",
    )?;
    Ok(offsets)
}

fn compressed(npz: &mut Npz<'_>, vertices: u64) -> Result<Graph, DataProblem> {
    let offsets = offsets(npz, vertices)?;
    let indices = npz.ids("indices", vertices, "vertices")?.line("indices")?;
    Graph::from_offsets(offsets, indices).map_err(|error| DataProblem::graph("indptr", error))
}

/// Of coordinates, which need not name a vertex.
fn check_promise(npz: &Npz<'_>, vertices: u64) -> Result<(), DataProblem> {
    let most = npz.most_vertices();
    match vertices > most {
        true => Err(DataProblem::TooManyPromised {
            promised: vertices,
            most,
        }),
        false => Ok(()),
    }
}

fn coordinates(
    npz: &mut Npz<'_>,
    vertices: u64,
    progress: &dyn Progress,
) -> Result<Graph, DataProblem> {
    check_promise(npz, vertices)?;
    let mut edges = EdgeBlocks::default();
    {
        let rows = npz.ids("row", vertices, "vertices")?.line("row")?;
        let cols = npz.ids("col", vertices, "vertices")?.line("col")?;
        expect_len("col", cols.len(), rows.len(), "one for each of row")?;
        edges.push(
            rows.into_iter()
                .zip(cols)
                .map(|(row, col)| [row, col])
                .collect(),
        );
    }
    brought_into_order(edges, vertices as usize, Direction::AsListed, progress)
}

#[cfg(test)]
mod tests {
    use crate::OpenGraph;
    use std::io::Cursor;

    use proptest::prelude::*;

    use crate::testing::{Array, archive};
    use crate::{DataProblem, OpenOptions};
    use halfgnn_graph::Graph;

    type Entries = Vec<(&'static str, Array)>;

    fn word(descr: &'static str, data: &[u8]) -> Array {
        Array {
            descr,
            fortran_order: false,
            shape: vec![],
            data: data.to_vec(),
        }
    }

    /// What `save_npz` writes of [[1, 0, 2], [0, 0, 3], [0, 0, 0]] as a `csr_matrix`, in its order.
    fn csr() -> Entries {
        vec![
            ("indices", Array::i32(&[0, 2, 2])),
            ("indptr", Array::i32(&[0, 2, 3, 3])),
            ("format", word("|S3", b"csr")),
            ("shape", Array::i64(&[3, 3])),
            ("data", Array::f32(&[1.0, 2.0, 3.0])),
        ]
    }

    fn csc() -> Entries {
        vec![
            ("indices", Array::i32(&[0, 0, 1])),
            ("indptr", Array::i32(&[0, 1, 1, 3])),
            ("format", word("|S3", b"csc")),
            ("shape", Array::i64(&[3, 3])),
            ("data", Array::f32(&[1.0, 2.0, 3.0])),
        ]
    }

    fn coo() -> Entries {
        vec![
            ("row", Array::i32(&[1, 0, 0])),
            ("col", Array::i64(&[2, 0, 2])),
            ("format", word("<U3", b"c\0\0\0o\0\0\0o\0\0\0")),
            ("shape", Array::i64(&[3, 3])),
            ("data", Array::f32(&[3.0, 1.0, 2.0])),
        ]
    }

    fn bytes(entries: &Entries, compressed: bool) -> Vec<u8> {
        let entries: Vec<_> = entries
            .iter()
            .map(|(key, array)| (*key, array.npy()))
            .collect();
        archive(&entries, compressed)
    }

    fn open(bytes: &[u8]) -> Result<Graph, DataProblem> {
        Graph::read_from(Cursor::new(bytes), &OpenOptions::default())
    }

    fn with(key: &'static str, array: Option<Array>) -> Result<Graph, DataProblem> {
        let mut entries = if ["row", "col"].contains(&key) {
            coo()
        } else {
            csr()
        };
        entries.retain(|(name, _)| *name != key);
        entries.extend(array.map(|array| (key, array)));
        open(&bytes(&entries, true))
    }

    #[test]
    fn every_layout_is_the_same_matrix() {
        let expected = Graph::from_edges(3, &[0, 0, 1], &[0, 2, 2]).unwrap();
        for entries in [csr(), csc(), coo()] {
            for compressed in [true, false] {
                assert_eq!(open(&bytes(&entries, compressed)).unwrap(), expected);
            }
            // Older files have no `format`, those of arrays `_is_array`; `data` may be of any type.
            let mut bare = entries.clone();
            if !entries.iter().any(|(_, array)| array.data == b"csc") {
                bare.retain(|(key, _)| *key != "format");
            }
            bare.retain(|(key, _)| *key != "data");
            bare.push((
                "data",
                Array {
                    descr: "<c16",
                    ..Array::bool(&[true; 3])
                },
            ));
            bare.push(("_is_array", Array::bool(&[true]).shaped(&[])));
            assert_eq!(open(&bytes(&bare, true)).unwrap(), expected);
        }
    }

    #[test]
    fn what_is_refused() {
        let message = |key, array| with(key, array).unwrap_err().to_string();
        for (key, array, expected) in [
            (
                "format",
                Some(word("|S3", b"bsr")),
                "format[0] is bsr, where csr, csc or coo is wanted",
            ),
            (
                "format",
                Some(Array::i32(&[1])),
                "format: the type is <i4, where letters",
            ),
            (
                "format",
                Some(word("|S999999999", b"")),
                "format: the type is |S999999999, where letters",
            ),
            (
                "format",
                Some(word("|S3", b"cs")),
                "is not a whole zip archive (format: ",
            ),
            (
                "format",
                Some(word("|S3", b"csr").shaped(&[7])),
                "format: the shape is [7], where ()",
            ),
            (
                "shape",
                Some(Array::i64(&[3, 4])),
                "shape[0] is 3 of (3, 4), but an adjacency is square",
            ),
            (
                "shape",
                Some(Array::i64(&[3])),
                "shape: the shape is [1], where (2)",
            ),
            (
                "shape",
                Some(Array::i64(&[-3, -3])),
                "shape[0] is -3, which is negative",
            ),
            (
                "shape",
                Some(Array::i64(&[1 << 31, 1 << 31])),
                "indptr: the shape is [4], where (2147483649)",
            ),
            (
                "indptr",
                None,
                "has no array indptr; it has data, format, indices, shape",
            ),
            (
                "indptr",
                Some(Array::i32(&[0, 2, 1, 3])),
                "indptr: offsets[2] is 1, but row offsets never decrease",
            ),
            (
                "indptr",
                Some(Array::i32(&[0, 2, -3, 3])),
                "indptr[2] is -3, which is negative",
            ),
            (
                "indices",
                Some(Array::i32(&[0, 2, 3])),
                "indices[2] is 3, but there are 3 vertices",
            ),
            (
                "indices",
                Some(Array::i32(&[0, -2, 2])),
                "indices[1] is -2, but there are 3 vertices",
            ),
            (
                "indices",
                Some(Array::f32(&[0.0; 3])),
                "indices: the type is <f4, where whole numbers",
            ),
            (
                "indices",
                Some(Array::i32(&[0, 2, 2]).shaped(&[1 << 60])),
                "indices: the header promises 4611686018427387904 bytes",
            ),
            (
                "row",
                Some(Array::i32(&[0, 0])),
                "col: the shape is [3], where (2), one for each of row",
            ),
            (
                "row",
                Some(Array::i32(&[0, 0, 3])),
                "row[2] is 3, but there are 3 vertices",
            ),
            (
                "col",
                None,
                "has no array col; it has data, format, row, shape",
            ),
        ] {
            let found = message(key, array);
            assert!(found.starts_with(expected), "{key}: {found}");
        }
        let mut huge = coo();
        huge.retain(|(key, _)| *key != "shape");
        huge.push(("shape", Array::i64(&[4_000_000_000, 4_000_000_000])));
        let found = open(&bytes(&huge, true)).unwrap_err().to_string();
        assert!(
            found.starts_with("the header promises 4000000000 vertices, more than"),
            "{found}"
        );
    }

    #[test]
    fn a_file_cut_anywhere_is_refused() {
        let whole = bytes(&csr(), true);
        for len in 0..whole.len() {
            assert!(open(&whole[..len]).is_err(), "{len} bytes");
        }
    }

    proptest! {
        #[test]
        fn bytes_changed_at_random_never_panic(changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
            for entries in [csr(), csc(), coo()] {
                let mut file = bytes(&entries, false);
                for (at, byte) in &changes {
                    let at = at.index(file.len());
                    file[at] = *byte;
                }
                let _ = open(&file);
            }
        }
    }
}
