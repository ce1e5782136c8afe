//! Raw compressed rows: `i64 vertices, i64 edges, i32 offsets[vertices + 1], i32 columns[edges]`, little-endian,
//! nothing else. The header gives the length of the file, by which the format is recognised.

use std::io::Read;

use super::{EdgeStore, OF_VERTEX, PIECE, words};
use crate::error::DataProblem;
use crate::input::Input;
use crate::row_order::RowWalk;
#[cfg(feature = "write")]
use crate::stream::SpilledEdges;
use halfgnn_graph::{Csr, Graph, GraphError};

pub(crate) const HEADER_BYTES: u64 = 16;

/// What the arrays are called in messages.
const WHAT: &str = "raw CSR";

/// Reads a file. Nothing is allocated before the header is found to fit the file's length.
pub(crate) fn read(mut input: Input<'_>) -> Result<Graph, DataProblem> {
    let (vertices, edges) = header(&mut input)?;
    let offsets = offsets(&mut input, vertices)?;
    let columns = words(&mut input, WHAT, edges, u32::from_le)?;
    Graph::from_offsets(offsets, columns).map_err(|error| DataProblem::graph(WHAT, error))
}

/// Puts every edge into a file; how many vertices there are.
#[cfg(feature = "write")]
pub(crate) fn spill(
    mut input: Input<'_>,
    into: &mut SpilledEdges<'_>,
) -> Result<usize, DataProblem> {
    let (vertices, edges) = header(&mut input)?;
    into.expect_space(vertices as u64 * OF_VERTEX)?;
    let offsets = offsets(&mut input, vertices)?;
    Csr::check_offsets(&offsets, edges).map_err(|error| DataProblem::graph(WHAT, error))?;
    let mut rows = RowWalk::new(&offsets);
    let mut index = 0;
    while index < edges as u64 {
        let count = PIECE.min(edges - index as usize);
        let piece = words(&mut input, WHAT, count, u32::from_le)?;
        for column in piece {
            if column as usize >= vertices {
                let error = GraphError::VertexOutOfRange {
                    field: "columns",
                    index,
                    value: column.into(),
                    vertices: vertices as u64,
                };
                return Err(DataProblem::graph(WHAT, error));
            }
            into.push([rows.row_of(index)?, column])?;
            index += 1;
        }
    }
    Ok(vertices)
}

/// Vertices and edges, of a file that is as long as they say.
fn header(input: &mut Input<'_>) -> Result<(usize, usize), DataProblem> {
    let bytes = input.len();
    if bytes == 0 {
        return Err(DataProblem::Empty);
    }
    let mut header = [0; HEADER_BYTES as usize];
    input.read_exact(&mut header)?;
    let (vertices, edges) = counts(&header);
    match file_bytes(&header) == Some(bytes) {
        true => Ok((vertices as usize, edges as usize)),
        false => Err(DataProblem::RawHeader {
            vertices,
            edges,
            bytes,
        }),
    }
}

fn offsets(input: &mut Input<'_>, vertices: usize) -> Result<Vec<u64>, DataProblem> {
    let offsets = words(input, WHAT, vertices + 1, u32::from_le)?;
    Ok(offsets.into_iter().map(u64::from).collect())
}

/// Whether a file of `bytes` bytes that starts with `head` is raw CSR.
pub(crate) fn recognises(head: &[u8], bytes: u64) -> bool {
    head.first_chunk().and_then(file_bytes) == Some(bytes)
}

/// Vertices and edges.
fn counts(header: &[u8; HEADER_BYTES as usize]) -> (i64, i64) {
    let [vertices, edges] =
        [0, 8].map(|at| i64::from_le_bytes(std::array::from_fn(|i| header[at + i])));
    (vertices, edges)
}

/// How long the file should be; `None` where no file could be.
fn file_bytes(header: &[u8; HEADER_BYTES as usize]) -> Option<u64> {
    let (vertices, edges) = counts(header);
    let (vertices, edges) = (u64::try_from(vertices).ok()?, u64::try_from(edges).ok()?);
    let words = vertices.checked_add(1)?.checked_add(edges)?;
    words.checked_mul(4)?.checked_add(HEADER_BYTES)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::input::Silent;

    fn read_bytes(bytes: &[u8]) -> Result<Graph, DataProblem> {
        read(Input::new(Cursor::new(bytes), &Silent)?)
    }

    fn bytes(vertices: i64, edges: i64, words: &[i32]) -> Vec<u8> {
        let header = [vertices, edges].into_iter().flat_map(i64::to_le_bytes);
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        header.chain(words).collect()
    }

    #[test]
    fn a_graph_is_read() {
        let bytes = bytes(3, 4, &[0, 2, 2, 4, 1, 2, 0, 1]);
        assert!(recognises(&bytes, bytes.len() as u64));
        let graph = read_bytes(&bytes).unwrap();
        assert_eq!(graph.offsets(), [0, 2, 2, 4]);
        assert_eq!(graph.cols(), [1, 2, 0, 1]);
    }

    #[test]
    fn broken_files_are_refused() {
        let whole = bytes(3, 4, &[0, 2, 2, 4, 1, 2, 0, 1]);
        for len in 0..whole.len() {
            let error = read_bytes(&whole[..len]).unwrap_err();
            match len {
                0 => assert!(matches!(error, DataProblem::Empty)),
                1..16 => assert!(matches!(error, DataProblem::Io(_)), "{len} bytes: {error}"),
                _ => assert!(
                    matches!(
                        error,
                        DataProblem::RawHeader {
                            vertices: 3,
                            edges: 4,
                            ..
                        }
                    ),
                    "{len} bytes: {error}"
                ),
            }
            assert!(!recognises(&whole[..len], len as u64));
        }
        for (vertices, edges) in [
            (-1, 4),
            (i64::MAX, i64::MAX),
            (i64::MIN, i64::MIN),
            (1 << 33, 1 << 33),
        ] {
            let error = read_bytes(&bytes(vertices, edges, &[])).unwrap_err();
            assert!(matches!(error, DataProblem::RawHeader { .. }), "{error}");
        }
        for words in [[0, 1, 1], [1, 0, 0], [0, -1, 0], [0, 1, -1]] {
            let error = read_bytes(&bytes(1, 1, &words)).unwrap_err();
            assert!(
                matches!(error, DataProblem::Graph { .. }),
                "{words:?}: {error}"
            );
        }
    }
}
