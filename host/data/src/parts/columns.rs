//! Columns of all parts, brought together on disk: they never are in memory all at once.

use super::table::VertexTable;
use crate::error::{DataError, DataProblem};
use crate::stored::{StoredFile, read_at};
use halfgnn_graph::{Csr, GraphError, RowFile};
use std::path::Path;

/// What is read ahead of all parts together.
const BUFFERS: usize = 64 << 20;

/// Of a part, at least and at most.
const BUFFER: [usize; 2] = [1 << 12, 1 << 20];

const BYTES: usize = size_of::<u32>();

/// The columns of a part, from the first on.
struct Reader<'a> {
    file: &'a StoredFile,
    /// The byte of the file where what was read ends, and the one where its columns do.
    at: u64,
    end: u64,
    /// What was read, of which the last `left` bytes were not asked for yet.
    buffer: Vec<u8>,
    left: usize,
    /// Columns that were asked for.
    given: u64,
}

impl Reader<'_> {
    /// Adds the next `count` columns to `row`, reading at most `most` bytes at a time.
    fn next(&mut self, count: usize, most: usize, row: &mut Vec<u32>) -> Result<(), DataProblem> {
        let mut wanted = count * BYTES;
        while wanted > 0 {
            if self.left == 0 {
                let bytes = (self.end - self.at).min(most as u64) as usize;
                if bytes == 0 {
                    return Err(DataProblem::part("columns", "they end before the rows do"));
                }
                self.buffer.resize(bytes, 0);
                // Not kept open: there may be more parts than a process may have files.
                read_at(&*self.file.open()?, &mut self.buffer, self.at)?;
                self.at += bytes as u64;
                self.left = bytes;
            }
            let now = wanted.min(self.left);
            let start = self.buffer.len() - self.left;
            let words = self.buffer[start..start + now].chunks_exact(BYTES);
            row.extend(words.map(|word| u32::from_le_bytes(std::array::from_fn(|at| word[at]))));
            self.left -= now;
            wanted -= now;
        }
        self.given += count as u64;
        Ok(())
    }
}

/// Writes the rows of all vertices to an unnamed file in `folder`. `files` says where the columns of each part start,
/// and `table` which part has which vertex and how long its row is.
pub(super) fn to_disk(
    files: &[(StoredFile, u64)],
    table: &VertexTable,
    folder: &Path,
) -> Result<Csr, DataError> {
    let most = BUFFERS / files.len().max(1) / BYTES * BYTES;
    let most = most.clamp(BUFFER[0], BUFFER[1]);
    let readers = files.iter().map(|(file, columns)| Reader {
        file,
        at: file.start,
        end: file.start + columns * BYTES as u64,
        buffer: Vec::new(),
        left: 0,
        given: 0,
    });
    let mut readers: Vec<_> = readers.collect();
    let refused =
        |error: GraphError| DataError::in_file(folder, DataProblem::graph("edges", error));
    let mut rows = RowFile::create(folder, table.vertices()).map_err(refused)?;
    let mut row = Vec::new();
    for (&owner, &degree) in table.owners.iter().zip(&table.in_degrees) {
        let reader = &mut readers[owner as usize];
        let first = reader.given;
        row.clear();
        let read = reader.next(degree as usize, most, &mut row);
        read.and_then(|()| check_row(&row, first, table.vertices() as u64))
            .map_err(|problem| DataError::in_file(&reader.file.path, problem))?;
        rows.write_row(&row).map_err(refused)?;
    }
    rows.finish().map_err(refused)
}

/// That the columns of a row, the first of which is number `first` of a part, are vertices and ascend.
pub(super) fn check_row(row: &[u32], first: u64, vertices: u64) -> Result<(), DataProblem> {
    let refuse = |at: usize, why: String| {
        Err(DataProblem::value(
            "columns",
            first + at as u64,
            row[at],
            why,
        ))
    };
    if let Some(at) = row.iter().position(|&column| u64::from(column) >= vertices) {
        return refuse(at, format!("but there are {vertices} vertices"));
    }
    match row.windows(2).position(|two| two[0] > two[1]) {
        Some(before) => refuse(before + 1, "but the columns of a row ascend".into()),
        None => Ok(()),
    }
}
