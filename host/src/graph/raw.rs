//! Raw CSR files: `i64 vertices, i64 edges, i32 offsets[vertices + 1], i32 columns[edges]`, little-endian, nothing else.

use super::{Graph, GraphError};
use std::io::{self, Read};
use std::path::Path;

/// Why a raw CSR file cannot be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RawError {
    /// The system refused.
    #[error("{file}: {error}")]
    Io {
        /// The file.
        file: String,
        /// The system's words.
        error: io::Error,
    },
    /// The header and the file's length do not agree.
    #[error(
        "{file}: the header says {vertices} vertices and {edges} edges, which is not a file of {bytes} bytes; is it raw CSR?"
    )]
    Header {
        /// The file.
        file: String,
        /// Vertices that the header tells of.
        vertices: i64,
        /// Edges that the header tells of.
        edges: i64,
        /// Length of the file.
        bytes: u64,
    },
    /// What was read is no graph.
    #[error("{file}: {error}")]
    Graph {
        /// The file.
        file: String,
        /// What is wrong with it.
        error: GraphError,
    },
}

const HEADER_BYTES: u64 = 16;

impl Graph {
    /// Reads a raw CSR file. Nothing is allocated before the header is found to fit the file's length.
    ///
    /// # Errors
    /// [`RawError`], which names the file.
    pub fn read_raw(path: &Path) -> Result<Self, RawError> {
        let file = || path.display().to_string();
        let io = |error| RawError::Io {
            file: file(),
            error,
        };
        let mut source = std::fs::File::open(path).map_err(io)?;
        let bytes = source.metadata().map_err(io)?.len();
        let mut header = [0; HEADER_BYTES as usize];
        source.read_exact(&mut header).map_err(io)?;
        let [vertices, edges] =
            [0, 8].map(|at| i64::from_le_bytes(std::array::from_fn(|i| header[at + i])));
        let expected = u64::try_from(vertices)
            .ok()
            .zip(u64::try_from(edges).ok())
            .and_then(|(vertices, edges)| {
                vertices
                    .checked_add(1)?
                    .checked_add(edges)?
                    .checked_mul(4)?
                    .checked_add(HEADER_BYTES)
            });
        if expected != Some(bytes) {
            return Err(RawError::Header {
                file: file(),
                vertices,
                edges,
                bytes,
            });
        }
        let mut words = |count: usize| -> io::Result<Vec<u32>> {
            let mut words = vec![0u32; count];
            source.read_exact(bytemuck::cast_slice_mut(&mut words))?;
            words
                .iter_mut()
                .for_each(|word| *word = u32::from_le(*word));
            Ok(words)
        };
        let offsets = words(vertices as usize + 1).map_err(io)?;
        let columns = words(edges as usize).map_err(io)?;
        Graph::from_offsets(offsets.into_iter().map(u64::from).collect(), columns).map_err(
            |error| RawError::Graph {
                file: file(),
                error,
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(bytes: &[u8]) -> Result<Graph, RawError> {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        std::fs::write(file.path(), bytes).expect("the file takes bytes");
        Graph::read_raw(file.path())
    }

    fn bytes(vertices: i64, edges: i64, words: &[i32]) -> Vec<u8> {
        let header = [vertices, edges].into_iter().flat_map(i64::to_le_bytes);
        header
            .chain(words.iter().flat_map(|word| word.to_le_bytes()))
            .collect()
    }

    #[test]
    fn a_graph_is_read() {
        let graph = read(&bytes(3, 4, &[0, 2, 2, 4, 1, 2, 0, 1])).expect("a whole file");
        assert_eq!(graph.offsets(), [0, 2, 2, 4]);
        assert_eq!(graph.cols(), [1, 2, 0, 1]);
    }

    #[test]
    fn broken_files_are_refused() {
        assert!(matches!(read(&[]), Err(RawError::Io { .. })));
        assert!(matches!(
            read(&bytes(3, 4, &[0, 2, 2])),
            Err(RawError::Header { bytes: 28, .. })
        ));
        assert!(matches!(
            read(&bytes(-1, 4, &[])),
            Err(RawError::Header { .. })
        ));
        assert!(matches!(
            read(&bytes(i64::MAX, i64::MAX, &[])),
            Err(RawError::Header { .. })
        ));
        assert!(matches!(
            read(&bytes(1, 1, &[0, 1, 1])),
            Err(RawError::Graph { .. })
        ));
        assert!(matches!(
            read(&bytes(1, 1, &[1, 0, 0])),
            Err(RawError::Graph { .. })
        ));
        let missing =
            Graph::read_raw(Path::new("/no/such/file")).expect_err("there is no such file");
        assert!(missing.to_string().starts_with("/no/such/file: "));
    }
}
