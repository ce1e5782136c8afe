//! Matrix Market's coordinate files, in which SuiteSparse publishes graphs (Boisvert, Pozo, Remington: "The Matrix
//! Market exchange formats", NISTIR 5935, 1996).
//!
//! ```text
//! %%MatrixMarket matrix coordinate pattern symmetric
//! % comments
//! 3 3 2          rows columns entries
//! 2 1            row column [value], from 1
//! 3 1
//! ```
//! Entry (i, j) is an edge from j to i: row i of the adjacency has column j. Values are not read: an explicit zero is
//! an edge. A symmetric or skew-symmetric matrix lists one triangle, and the other is added. Dense arrays, complex
//! matrices and matrices that are not square are refused.

use crate::WEIGHTS_LEFT_OUT;
use crate::error::DataProblem;
use crate::input::{Input, Progress};
use crate::message::shown;
use crate::text::{Cursor, LineError, Text};
use halfgnn_graph::index::MAX_VERTICES;
use halfgnn_graph::{Direction, EdgeBlocks, Graph};

use super::{EdgeStore, OF_VERTEX, brought_into_order};

/// How the first line begins, in any case of letters.
pub(crate) const BANNER: &str = "%%MatrixMarket";

/// Reads a text, packed or not.
pub(crate) fn read(
    input: Input<'_>,
    undirected: bool,
    progress: &dyn Progress,
) -> Result<Graph, DataProblem> {
    let mut edges = EdgeBlocks::default();
    let (vertices, direction) = read_into(input, undirected, &mut edges)?;
    brought_into_order(edges, vertices, direction, progress)
}

/// Reads the entries of a text; how many vertices there are, and what an entry stands for.
pub(crate) fn read_into(
    input: Input<'_>,
    undirected: bool,
    edges: &mut impl EdgeStore,
) -> Result<(usize, Direction), DataProblem> {
    let mut text = input.text()?;
    let header = header(&mut text)?;
    edges.expect_space(header.vertices * OF_VERTEX)?;
    text.for_each_block(
        |block| parse(block, &header),
        |(block, is_weighted)| {
            if is_weighted {
                edges.leave_out(WEIGHTS_LEFT_OUT);
            }
            edges.add(block)
        },
    )?;
    if edges.edges() != header.entries {
        let (wanted, found) = (header.entries, edges.edges());
        let reason = format!(
            "the sizes promise {wanted} entries, and {found} are there; fetch or write the file again"
        );
        return Err(DataProblem::line(header.line, reason));
    }
    let direction = match (undirected, header.mirrored) {
        (true, _) => Direction::BothOnce,
        (false, true) => Direction::Both,
        (false, false) => Direction::AsListed,
    };
    Ok((header.vertices as usize, direction))
}

struct Header {
    vertices: u64,
    entries: u64,
    has_values: bool,
    mirrored: bool,
    /// Where the sizes stand.
    line: u64,
}

fn header(text: &mut Text<'_>) -> Result<Header, DataProblem> {
    let banner = text.line()?.ok_or(DataProblem::Empty)?;
    let refuse = |reason: String| Err(DataProblem::line(1, reason));
    let lower = banner.to_ascii_lowercase();
    let words: Vec<&str> = lower.split_whitespace().collect();
    let ["%%matrixmarket", "matrix", layout, field, symmetry] = words[..] else {
        return refuse(format!(
            "'{}' is no header of a matrix; wanted is '{BANNER} matrix coordinate pattern general' or the like",
            shown(banner.as_bytes())
        ));
    };
    if layout != "coordinate" {
        return refuse(format!(
            "the layout is '{}', where coordinate is wanted: a graph is a sparse matrix",
            shown(layout.as_bytes())
        ));
    }
    let has_values = match field {
        "pattern" => false,
        "real" | "integer" | "double" => true,
        _ => {
            return refuse(format!(
                "the field is '{}', where pattern, real or integer is wanted; write the matrix as pattern",
                shown(field.as_bytes())
            ));
        }
    };
    let mirrored = match symmetry {
        "general" => false,
        "symmetric" | "skew-symmetric" => true,
        _ => {
            return refuse(format!(
                "the symmetry is '{}', where general, symmetric or skew-symmetric is wanted",
                shown(symmetry.as_bytes())
            ));
        }
    };
    let (line, sizes) = loop {
        let number = text.line_number();
        match text.line()? {
            None => return Err(DataProblem::line(number, "the sizes are missing")),
            Some(line) if line.trim().is_empty() || line.starts_with('%') => {}
            Some(line) => break (number, line),
        }
    };
    let numbers: Option<Vec<u64>> = sizes
        .split_whitespace()
        .map(|word| word.parse().ok())
        .collect();
    let Some(&[rows, columns, entries]) = numbers.as_deref() else {
        let found = shown(sizes.as_bytes());
        let reason = format!("'{found}' are no sizes; wanted are rows, columns and entries");
        return Err(DataProblem::line(line, reason));
    };
    if rows != columns || rows > MAX_VERTICES {
        let reason = format!(
            "the matrix is {rows} × {columns}, but an adjacency is square, of at most {MAX_VERTICES} vertices"
        );
        return Err(DataProblem::line(line, reason));
    }
    let most = text.most_vertices();
    if rows > most {
        return Err(DataProblem::TooManyPromised {
            promised: rows,
            most,
        });
    }
    Ok(Header {
        vertices: rows,
        entries,
        has_values,
        mirrored,
        line,
    })
}

/// The entries of a block, from 0, and whether one has a value other than 1.
fn parse(block: &[u8], header: &Header) -> Result<(Vec<[u32; 2]>, bool), LineError> {
    const SEPARATOR: u8 = b' ';
    let mut entries = Vec::with_capacity(block.len() / 8);
    let mut cursor = Cursor::new(block);
    let mut is_weighted = false;
    loop {
        cursor.skip_blanks(SEPARATOR);
        match cursor.peek() {
            None => return Ok((entries, is_weighted)),
            Some(b'\n' | b'%') => {
                cursor.skip_line();
                continue;
            }
            Some(_) => {}
        }
        let mut index = |what| {
            cursor.skip_blanks(SEPARATOR);
            let start = cursor.at;
            let index = cursor.whole(SEPARATOR, what)?;
            if index == 0 || index > header.vertices {
                let vertices = header.vertices;
                let reason = format!("{index} is no {what}: they go from 1 to {vertices}");
                return Err(cursor.error(start, reason));
            }
            Ok(index as u32 - 1)
        };
        entries.push([index("row")?, index("column")?]);
        cursor.skip_blanks(SEPARATOR);
        if header.has_values && cursor.at_line_end() {
            return Err(cursor.error(
                cursor.at,
                "the entry has no value, which its header promises",
            ));
        }
        if header.has_values && !is_weighted {
            let value = std::str::from_utf8(cursor.field(SEPARATOR)).ok();
            is_weighted = value.and_then(|value| value.parse().ok()) != Some(1.0_f64);
        }
        cursor.skip_line();
    }
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

    /// (row, column) of each edge.
    fn entries(graph: &Graph) -> Vec<(u32, u32)> {
        graph
            .rows()
            .iter()
            .copied()
            .zip(graph.cols().iter().copied())
            .collect()
    }

    /// As `scipy.io.mmwrite` writes matrices.
    const GENERAL: &str =
        "%%MatrixMarket matrix coordinate real general\n%\n3 3 3\n1 1 1\n1 3 2\n2 3 3\n";
    const SYMMETRIC: &str =
        "%%MatrixMarket matrix coordinate integer symmetric\n%\n3 3 3\n2 1 1\n3 1 1\n3 3 5\n";

    #[test]
    fn as_scipy_writes_them() {
        for bytes in [GENERAL.as_bytes().to_vec(), gzip(GENERAL.as_bytes())] {
            let graph = read_bytes(&bytes).unwrap();
            assert_eq!(
                (graph.vertices(), entries(&graph)),
                (3, vec![(0, 0), (0, 2), (1, 2)])
            );
        }
        let mirrored = vec![(0, 1), (0, 2), (1, 0), (2, 0), (2, 2)];
        for text in [
            SYMMETRIC.to_string(),
            SYMMETRIC.replace("integer symmetric", "real skew-symmetric"),
        ] {
            let graph = read_bytes(text.as_bytes()).unwrap();
            assert_eq!(entries(&graph), mirrored);
            assert!(Graph::new(graph.csr().clone()).unwrap().is_symmetric());
        }
    }

    #[test]
    fn patterns_have_no_values() {
        let text = "%%matrixmarket MATRIX Coordinate Pattern General\r\n%a comment\r\n\r\n 2 2  2 \r\n1  2\r\n% \r\n2\t1\r\n";
        assert_eq!(
            entries(&read_bytes(text.as_bytes()).unwrap()),
            [(0, 1), (1, 0)]
        );
        let none = "%%MatrixMarket matrix coordinate pattern general\n4 4 0";
        assert_eq!(read_bytes(none.as_bytes()).unwrap().vertices(), 4);
    }

    #[test]
    fn headers_that_are_refused() {
        let banner = |words: &str| format!("%%MatrixMarket {words}\n1 1 0\n");
        for (text, message) in [
            (String::new(), "the file is empty"),
            (
                banner("vector"),
                "line 1: '%%MatrixMarket vecto…' is no header",
            ),
            (
                banner("matrix array real general"),
                "line 1: the layout is 'array'",
            ),
            (
                banner("matrix coordinate complex general"),
                "line 1: the field is 'complex'",
            ),
            (
                banner("matrix coordinate real hermitian"),
                "line 1: the symmetry is 'hermitian'",
            ),
            (GENERAL[..48].into(), "line 3: the sizes are missing"),
            (
                GENERAL.replace("3 3 3", "3 3"),
                "line 3: '3 3' are no sizes",
            ),
            (
                GENERAL.replace("3 3 3", "-3 3 3"),
                "line 3: '-3 3 3' are no sizes",
            ),
            (
                GENERAL.replace("3 3 3", "3 4 3"),
                "line 3: the matrix is 3 × 4",
            ),
            (
                GENERAL.replace("3 3 3", "9999999999 9999999999 3"),
                "line 3: the matrix is 9999999999 ×",
            ),
            (
                GENERAL.replace("3 3 3", "4000000000 4000000000 3"),
                "the header promises 4000000000 vertices, more than",
            ),
            (
                GENERAL.replace("3 3 3", "3 3 4"),
                "line 3: the sizes promise 4 entries, and 3 are there",
            ),
            (
                GENERAL.replace("3 3 3", "3 3 18446744073709551615"),
                "line 3: the sizes promise 18446744073709551615",
            ),
        ] {
            let error = read_bytes(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{text}: {error}");
        }
    }

    #[test]
    fn entries_that_are_refused() {
        for (entry, message) in [
            ("0 1 1", "line 6: 0 is no row: they go from 1 to 3"),
            ("1 4 1", "line 6: 4 is no column: they go from 1 to 3"),
            ("1 -1 1", "line 6: '-1' is no column"),
            ("1", "line 6: '' is no column"),
            (
                "1 1",
                "line 6: the entry has no value, which its header promises",
            ),
            ("nan 1 1", "line 6: 'nan' is no row"),
        ] {
            let text = GENERAL.replace("2 3 3\n", &format!("{entry}\n"));
            let error = read_bytes(text.as_bytes()).unwrap_err().to_string();
            assert!(error.starts_with(message), "{entry}: {error}");
        }
    }

    #[test]
    fn a_file_cut_anywhere_is_refused_or_whole() {
        for text in [GENERAL, SYMMETRIC] {
            // Without the end of the last line nothing is missing; without the last value's digit something is.
            for len in 0..text.len() - 2 {
                assert!(
                    read_bytes(&text.as_bytes()[..len]).is_err(),
                    "{len} bytes of {text}"
                );
            }
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "[0-9 %\\n\\-.e]{0,60}") {
            let _ = read_bytes(format!("%%MatrixMarket matrix coordinate real symmetric\n{text}").as_bytes());
            let _ = read_bytes(format!("{GENERAL}{text}").as_bytes());
        }
    }
}
