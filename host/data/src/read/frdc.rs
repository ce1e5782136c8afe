//! Tiles of 4 × 4 bits, as BitGNN stores a graph: see [`Frdc`].
//!
//! ```text
//! byte 0   HGNNFRDC
//!      8   u32 version, vertices, edges, tiles
//!     24   u32 tile_offsets[⌈vertices / 4⌉ + 1]
//!          u32 tile_columns[tiles]
//!          u16 tiles[tiles]
//! ```
//! Numbers are little-endian, without gaps and without a rest. The header gives the length of the file. The number of
//! edges is that of the bits, so that a changed bit is noticed.

use std::io::{Read, Seek, SeekFrom};

use super::words;
#[cfg(feature = "write")]
use super::{EdgeStore, OF_VERTEX, PIECE};
use crate::error::DataProblem;
use crate::input::Input;
use crate::signature::Signature;
#[cfg(feature = "write")]
use crate::stream::SpilledEdges;
use halfgnn_graph::{Frdc, Graph, GraphError, TileWalk};

const SIGNATURE: Signature = Signature {
    letters: b"HGNNFRDC",
    version: 1,
};

/// What the file is called in messages.
const WHAT: &str = "FRDC";

/// What stands before the arrays, behind the signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub vertices: u32,
    pub edges: u32,
    pub tiles: u32,
}

impl Header {
    const BYTES: usize = Signature::BYTES + 12;

    /// As it lies in the file.
    #[cfg(feature = "write")]
    pub fn bytes(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        let (signature, counts) = bytes.split_at_mut(Signature::BYTES);
        signature.copy_from_slice(&SIGNATURE.bytes());
        let words = [self.vertices, self.edges, self.tiles].map(u32::to_le_bytes);
        counts.copy_from_slice(words.as_flattened());
        bytes
    }

    /// Of a file that is as long as it says.
    fn read(input: &mut Input<'_>) -> Result<Self, DataProblem> {
        let bytes = input.len();
        if bytes == 0 {
            return Err(DataProblem::Empty);
        }
        let Some(held) = bytes.checked_sub(Self::BYTES as u64) else {
            let reason = format!("it is {bytes} bytes, and its header alone {}", Self::BYTES);
            return Err(DataProblem::frdc(reason));
        };
        let mut header = [0; Self::BYTES];
        input.read_exact(&mut header)?;
        let found = std::array::from_fn(|at| header[at]);
        SIGNATURE
            .check(&found)
            .map_err(|(field, reason)| DataProblem::frdc(format!("{field}: {reason}")))?;
        let [vertices, edges, tiles] = [0, 4, 8].map(|at| {
            u32::from_le_bytes(std::array::from_fn(|byte| {
                header[Signature::BYTES + at + byte]
            }))
        });
        let promised = Frdc::bytes_of(vertices as usize, tiles as usize);
        match promised == held {
            true => Ok(Self {
                vertices,
                edges,
                tiles,
            }),
            false => Err(DataProblem::Size {
                key: WHAT.into(),
                promised: promised.to_string(),
                held,
            }),
        }
    }

    fn shape(self) -> (usize, usize) {
        (self.vertices as usize, self.vertices as usize)
    }

    fn offsets(self, input: &mut Input<'_>) -> Result<Vec<u32>, DataProblem> {
        let count = self.shape().0.div_ceil(Frdc::TILE) + 1;
        words(input, WHAT, count, u32::from_le)
    }

    /// That there are as many bits as it says.
    fn check_edges(self, bits: u64) -> Result<(), DataProblem> {
        match bits == u64::from(self.edges) {
            true => Ok(()),
            false => {
                let said = self.edges;
                let reason = format!("the header says {said} edges, and {bits} bits are set");
                Err(DataProblem::frdc(reason))
            }
        }
    }
}

/// Whether a file that starts with `head` is of this format, whatever its version.
pub(crate) fn recognises(head: &[u8]) -> bool {
    head.starts_with(SIGNATURE.letters)
}

/// Reads a file. Nothing is allocated before the header is found to fit the file's length.
pub(crate) fn read(mut input: Input<'_>) -> Result<Graph, DataProblem> {
    let header = Header::read(&mut input)?;
    let offsets = header.offsets(&mut input)?;
    let count = header.tiles as usize;
    let columns = words(&mut input, WHAT, count, u32::from_le)?;
    let tiles = words(&mut input, WHAT, count, u16::from_le)?;
    let tiled = Frdc::from_arrays(header.shape(), offsets, columns, tiles).map_err(refused)?;
    header.check_edges(tiled.edges() as u64)?;
    tiled.to_csr().and_then(Graph::new).map_err(refused)
}

/// Puts every edge into a file; how many vertices there are.
#[cfg(feature = "write")]
pub(crate) fn spill(
    mut input: Input<'_>,
    into: &mut SpilledEdges<'_>,
) -> Result<usize, DataProblem> {
    let header = Header::read(&mut input)?;
    into.expect_space(u64::from(header.vertices) * OF_VERTEX)?;
    let offsets = header.offsets(&mut input)?;
    let tiles = header.tiles as usize;
    let mut walk = TileWalk::new(header.shape(), &offsets, tiles).map_err(refused)?;
    let (of_columns, mut edges) = (input.stream_position()?, 0);
    let of_bits = of_columns + 4 * tiles as u64;
    // The tiles lie in two arrays, which are read in alternation.
    for first in (0..tiles).step_by(PIECE) {
        let count = PIECE.min(tiles - first);
        input.seek(SeekFrom::Start(of_columns + 4 * first as u64))?;
        let columns = words(&mut input, WHAT, count, u32::from_le)?;
        input.seek(SeekFrom::Start(of_bits + 2 * first as u64))?;
        let bits = words(&mut input, WHAT, count, u16::from_le)?;
        for (column, bits) in columns.into_iter().zip(bits) {
            for edge in walk.edges(column, bits).map_err(refused)? {
                into.push(edge)?;
                edges += 1;
            }
        }
    }
    header.check_edges(edges)?;
    Ok(header.vertices as usize)
}

fn refused(error: GraphError) -> DataProblem {
    match error {
        GraphError::Tile { .. } => DataProblem::frdc(error.to_string()),
        error => DataProblem::graph(WHAT, error),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Cursor;

    use super::*;
    use crate::OpenGraph;
    use crate::input::Silent;
    use crate::testing::Folder;

    fn read_bytes(bytes: &[u8]) -> Result<Graph, DataProblem> {
        read(Input::new(Cursor::new(bytes), &Silent)?)
    }

    /// A file of `[vertices, edges, tiles]`, offsets, columns and tiles.
    fn bytes(counts: [u32; 3], offsets: &[u32], columns: &[u32], tiles: &[u16]) -> Vec<u8> {
        let words = [&[1], &counts[..], offsets, columns].concat();
        let words = words.into_iter().flat_map(u32::to_le_bytes);
        let tiles = tiles.iter().flat_map(|bits| bits.to_le_bytes());
        b"HGNNFRDC"
            .iter()
            .copied()
            .chain(words)
            .chain(tiles)
            .collect()
    }

    const OFFSETS: [u32; 3] = [0, 2, 3];
    const COLUMNS: [u32; 3] = [0, 1, 1];
    const TILES: [u16; 3] = [0x8002, 0x0010, 0x0001];

    /// Five vertices with edges 1 -> 0 and 4 -> 1, and self-loops of 3 and 4.
    fn whole() -> Vec<u8> {
        bytes([5, 4, 3], &OFFSETS, &COLUMNS, &TILES)
    }

    /// Files in which something is wrong, and what the message says of each.
    pub(crate) fn broken_files() -> Vec<(&'static str, Vec<u8>, String)> {
        let again = "; fetch the file again, or write it again by `halfgnn dataset convert GRAPH FILE.frdc`";
        let frdc = |what: &str| format!("as FRDC: {what}{again}");
        let with = |at: usize, byte: u8| {
            let mut bytes = whole();
            bytes[at] = byte;
            bytes
        };
        let size = |promised: u64, held: usize| {
            format!(
                "FRDC: the header promises {promised} bytes, but {held} are there; fetch or write the file again"
            )
        };
        let long = [&whole()[..], &[0]].concat();
        let counts = [5, 4, 3];
        vec![
            ("empty", vec![], "the file is empty".into()),
            (
                "header",
                whole()[..23].to_vec(),
                frdc("it is 23 bytes, and its header alone 24"),
            ),
            ("magic", with(0, b'h'), frdc("magic: it is not HGNNFRDC")),
            (
                "version",
                with(8, 2),
                frdc("version: it is 2, and this build reads 1"),
            ),
            ("cut", whole()[..53].to_vec(), size(30, 29)),
            ("long", long, size(30, 31)),
            ("tiles", with(20, 2), size(24, 30)),
            // Gigabytes that are not there.
            (
                "many tiles",
                bytes([5, 4, u32::MAX], &OFFSETS, &COLUMNS, &TILES),
                size(12 + 6 * u64::from(u32::MAX), 30),
            ),
            (
                "many vertices",
                bytes([u32::MAX, 4, 3], &OFFSETS, &COLUMNS, &TILES),
                size(4 * ((1 << 30) + 1) + 18, 30),
            ),
            (
                "edges",
                with(16, 3),
                frdc("the header says 3 edges, and 4 bits are set"),
            ),
            (
                "a bit",
                with(48, 0x0a),
                frdc("the header says 4 edges, and 5 bits are set"),
            ),
            (
                "start",
                bytes(counts, &[1, 2, 3], &COLUMNS, &TILES),
                frdc("tile_offsets[0] is 1, but offsets of rows of tiles start at 0"),
            ),
            (
                "offsets",
                bytes(counts, &[0, 4, 3], &COLUMNS, &TILES),
                frdc(
                    "tile_offsets[2] is 3, but offsets of rows of tiles never decrease (the one before is 4)",
                ),
            ),
            (
                "end",
                bytes(counts, &[0, 2, 2], &COLUMNS, &TILES),
                frdc(
                    "tile_offsets[2] is 2, but offsets of rows of tiles end at the number of tiles, 3",
                ),
            ),
            (
                "column",
                bytes(counts, &OFFSETS, &[0, 2, 1], &TILES),
                frdc("tile_columns[1] is 2, but columns of tiles are below 2, their number"),
            ),
            (
                "order",
                bytes(counts, &OFFSETS, &[1, 0, 1], &[0x0010, 0x8002, 0x0001]),
                frdc(
                    "tile_columns[1] is 0, but columns ascend within a row of tiles (the one before is 1)",
                ),
            ),
            (
                "twice",
                bytes(counts, &OFFSETS, &[1, 1, 1], &[0x0010, 0x0001, 0x0001]),
                frdc(
                    "tile_columns[1] is 1, but columns ascend within a row of tiles (the one before is 1)",
                ),
            ),
            (
                "nothing",
                bytes(counts, &OFFSETS, &COLUMNS, &[0x8002, 0, 0x0001]),
                frdc("tiles[1] is 0, but a tile has a bit at least"),
            ),
            (
                "past the last column",
                bytes(counts, &OFFSETS, &COLUMNS, &[0x8002, 0x0010, 0x0002]),
                frdc(
                    "tiles[2] is 2, but no bit of a tile lies past the last of 5 rows and 5 columns",
                ),
            ),
            (
                "past the last row",
                bytes(counts, &OFFSETS, &COLUMNS, &[0x8002, 0x0010, 0x0010]),
                frdc(
                    "tiles[2] is 16, but no bit of a tile lies past the last of 5 rows and 5 columns",
                ),
            ),
        ]
    }

    #[test]
    fn a_graph_is_read() {
        assert!(recognises(&whole()));
        let graph = read_bytes(&whole()).unwrap();
        assert_eq!(graph.offsets(), [0, 1, 2, 2, 3, 4]);
        assert_eq!(graph.cols(), [1, 4, 3, 4]);
        let none = bytes([0, 0, 0], &[0], &[], &[]);
        assert_eq!(read_bytes(&none).unwrap().vertices(), 0);
    }

    #[test]
    fn broken_files_are_refused() {
        for (name, bytes, message) in broken_files() {
            let error = read_bytes(&bytes).unwrap_err();
            assert_eq!(error.to_string(), message, "{name}");
        }
        for len in 0..whole().len() {
            assert!(read_bytes(&whole()[..len]).is_err(), "{len} bytes");
        }
        // The message about a file names it, in the same line.
        let folder = Folder::new();
        let error = Graph::open(folder.write("x.frdc", &whole()[..50])).unwrap_err();
        let error = error.to_string();
        assert!(
            error.ends_with(
                "x.frdc: FRDC: the header promises 30 bytes, but 26 are there; fetch or write the file again"
            ) && !error.contains('\n'),
            "{error}"
        );
    }
}
