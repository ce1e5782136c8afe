//! The columns of the edges: in memory, or in a file of which the system keeps as much in memory as it can.

use super::csr::Csr;
use super::error::{GraphError, check_edges, check_ids, check_vertices};
use super::sort::{fill_rows, sort_row};
use memmap2::Mmap;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Deref;
use std::path::Path;
use std::sync::Arc;

/// Columns that are collected before they are written.
const BUFFER: usize = 1 << 20;

/// Columns of rows that are made at a time, but of a row that has more.
const ROWS_AT_ONCE: usize = if cfg!(test) { 1 << 18 } else { 1 << 24 };

/// The columns of all edges, in order.
#[derive(Clone, Debug)]
pub(crate) enum Columns {
    Memory(Vec<u32>),
    /// In a file without a name, which is gone with its last clone.
    Disk(Mapped),
}

/// A file of columns as the memory that it looks like.
#[derive(Clone, Debug)]
pub(crate) struct Mapped {
    /// Goes before the handle.
    bytes: Arc<Mmap>,
    /// The one handle: a system that deletes the file with its last handle may not while it is mapped.
    _file: Arc<File>,
    /// Where its disk is.
    folder: Arc<Path>,
}

impl Deref for Columns {
    type Target = [u32];

    fn deref(&self) -> &[u32] {
        match self {
            Self::Memory(columns) => columns,
            // They were written as words, and a map begins with a page.
            Self::Disk(mapped) => bytemuck::cast_slice(&mapped.bytes),
        }
    }
}

impl From<Vec<u32>> for Columns {
    fn from(columns: Vec<u32>) -> Self {
        Self::Memory(columns)
    }
}

impl Columns {
    /// The bytes that they take of memory.
    pub fn bytes_in_memory(&self) -> u64 {
        match self {
            Self::Memory(columns) => size_of_val(&columns[..]) as u64,
            Self::Disk(_) => 0,
        }
    }

    /// The folder on whose disk they are, if they are.
    pub fn folder(&self) -> Option<&Path> {
        match self {
            Self::Memory(_) => None,
            Self::Disk(mapped) => Some(&mapped.folder),
        }
    }

    /// In memory.
    pub fn into_vec(self) -> Vec<u32> {
        match self {
            Self::Memory(columns) => columns,
            Self::Disk(_) => self.to_vec(),
        }
    }

    /// Rows of the length that `offsets` give them, as `fill` makes each: in memory, or on disk in `folder`, of which
    /// no more than some rows are in memory at a time.
    ///
    /// # Errors
    /// [`GraphError::Disk`].
    pub fn filled(
        folder: Option<&Path>,
        offsets: &[u64],
        fill: &(dyn Fn(usize, &mut [u32]) + Sync),
    ) -> Result<Self, GraphError> {
        let edges = offsets.last().map_or(0, |&edges| edges as usize);
        let Some(folder) = folder else {
            let mut columns = vec![0; edges];
            fill_rows(offsets, &mut columns, fill);
            return Ok(Self::Memory(columns));
        };
        let mut file = RawColumns::create(folder)?;
        let (rows, mut first) = (offsets.len().saturating_sub(1), 0);
        let (mut columns, mut own) = (Vec::new(), Vec::new());
        while first < rows {
            let start = offsets[first];
            let fits = |&end: &u64| end - start <= ROWS_AT_ONCE as u64;
            let count = offsets[first + 1..].partition_point(fits).max(1);
            own.clear();
            own.extend(offsets[first..=first + count].iter().map(|at| at - start));
            columns.clear();
            columns.resize(own[count] as usize, 0);
            fill_rows(&own, &mut columns, &|row, out: &mut [u32]| {
                fill(first + row, out);
            });
            file.write(&columns)?;
            first += count;
        }
        file.finish()
    }
}

/// Columns on their way to a file.
#[derive(Debug)]
struct RawColumns {
    file: File,
    folder: Arc<Path>,
    buffer: Vec<u32>,
    written: u64,
    /// Whether something could not be written, so that it is not all there.
    failed: bool,
}

impl RawColumns {
    fn create(folder: &Path) -> Result<Self, GraphError> {
        let file = tempfile::tempfile_in(folder).map_err(|error| refused(folder, &error))?;
        Ok(Self {
            file,
            folder: folder.into(),
            buffer: Vec::new(),
            written: 0,
            failed: false,
        })
    }

    fn write(&mut self, columns: &[u32]) -> Result<(), GraphError> {
        let written = self.written + columns.len() as u64;
        check_edges(written)?;
        if self.buffer.len() + columns.len() < BUFFER {
            self.buffer.extend_from_slice(columns);
        } else {
            self.flush()?;
            self.write_now(columns)?;
        }
        self.written = written;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), GraphError> {
        let buffer = std::mem::take(&mut self.buffer);
        self.write_now(&buffer)?;
        self.buffer = buffer;
        self.buffer.clear();
        Ok(())
    }

    fn write_now(&mut self, columns: &[u32]) -> Result<(), GraphError> {
        if self.failed {
            let reason = "a write before has failed, so that edges are missing; begin anew".into();
            let folder = self.folder.to_path_buf();
            return Err(GraphError::Disk { folder, reason });
        }
        let written = self.file.write_all(bytemuck::cast_slice(columns));
        written.map_err(|error| {
            self.failed = true;
            refused(&self.folder, &error)
        })
    }

    /// All that were written, as memory.
    fn finish(mut self) -> Result<Columns, GraphError> {
        self.flush()?;
        if self.written == 0 {
            // Nothing can be mapped of nothing.
            return Ok(Columns::Memory(Vec::new()));
        }
        // SAFETY: a map must not change under its reader, nor lose its end. Its file has never had a name
        // (`tempfile_in`), or has lost it at once, so no one else can open it; the one handle to it is this, by which
        // nothing is written from here on, and which is kept as long as the map. All of it was written without an
        // error, or this was not come to. A disk that cannot give a page all the same ends the process by a signal, and
        // gives no other bytes.
        let bytes = unsafe { Mmap::map(&self.file) };
        let bytes = bytes.map_err(|error| refused(&self.folder, &error))?;
        Ok(Columns::Disk(Mapped {
            bytes: Arc::new(bytes),
            _file: Arc::new(self.file),
            folder: self.folder,
        }))
    }
}

fn refused(folder: &Path, error: &io::Error) -> GraphError {
    GraphError::Disk {
        folder: folder.into(),
        reason: error.to_string(),
    }
}

/// The rows of an adjacency, written one behind the other to a file that is gone with the adjacency, whatever ends the
/// process: of a graph whose edges do not fit in memory.
///
/// ```
/// use halfgnn_graph::{Csr, RowFile};
///
/// let mut rows = RowFile::create(&std::env::temp_dir(), 3)?;
/// rows.write_row(&[1, 2])?;
/// rows.write_row(&[])?;
/// rows.write_row(&[0])?;
/// let csr = rows.finish()?;
/// assert!(csr.is_on_disk());
/// assert_eq!(csr, Csr::from_offsets(vec![0, 2, 2, 3], vec![1, 2, 0])?);
/// # Ok::<(), halfgnn_graph::GraphError>(())
/// ```
#[derive(Debug)]
pub struct RowFile {
    raw: RawColumns,
    offsets: Vec<u64>,
    columns: usize,
}

impl RowFile {
    /// For rows of `columns` columns, in a file without a name in a folder.
    ///
    /// # Errors
    /// [`GraphError::Disk`] where none can be made there, [`GraphError::TooManyVertices`].
    pub fn create(folder: &Path, columns: usize) -> Result<Self, GraphError> {
        check_vertices(columns as u64)?;
        Ok(Self {
            raw: RawColumns::create(folder)?,
            offsets: vec![0],
            columns,
        })
    }

    /// Writes the next row, whose columns may be in any order.
    ///
    /// # Errors
    /// [`GraphError::VertexOutOfRange`], [`GraphError::TooManyEdges`], [`GraphError::TooManyVertices`], and
    /// [`GraphError::Disk`], as of a disk that is full.
    pub fn write_row(&mut self, row: &[u32]) -> Result<(), GraphError> {
        check_vertices(self.offsets.len() as u64)?;
        let is_sorted = row.is_sorted();
        // The last of those that ascend is the largest; which one is wrong is looked for where one is.
        let largest = row.last().filter(|_| is_sorted);
        if largest.is_none_or(|&largest| largest as usize >= self.columns) {
            check_ids("columns", row, self.columns as u64)?;
        }
        if is_sorted {
            self.raw.write(row)?;
        } else {
            let mut row = row.to_vec();
            sort_row(&mut row);
            self.raw.write(&row)?;
        }
        self.offsets.push(self.raw.written);
        Ok(())
    }

    /// The adjacency of all rows that were written.
    ///
    /// # Errors
    /// [`GraphError::Disk`].
    pub fn finish(self) -> Result<Csr, GraphError> {
        let columns = self.raw.finish()?;
        Ok(Csr::from_sorted_of(self.columns, self.offsets, columns))
    }
}

#[cfg(test)]
mod tests {
    use super::super::Graph;
    use super::*;

    fn graph() -> Graph {
        // The rows of several vertices are longer than what is collected.
        let ends = |seed: u32| {
            (0..3_000_000_u32).map(move |k| k.wrapping_mul(seed).wrapping_add(k >> 7) % 40)
        };
        let (rows, cols): (Vec<_>, Vec<_>) = ends(2_654_435_761).zip(ends(40_503)).unzip();
        Graph::from_edges(40, &rows, &cols).unwrap()
    }

    #[test]
    fn what_is_made_of_edges_on_disk_is_what_is_made_of_them_in_memory() {
        let graph = graph();
        let folder = tempfile::tempdir().unwrap();
        let stored = graph.to_disk(folder.path()).unwrap();
        let names = || std::fs::read_dir(folder.path()).unwrap().count();
        // Windows keeps the name until the file is closed, and removes it then in any case.
        #[cfg(unix)]
        assert_eq!(names(), 0, "a file that stays if the process is killed");
        assert_eq!(
            [&graph, &stored].map(|of| of.csr().is_on_disk()),
            [false, true]
        );
        assert_eq!(stored, graph);
        let edges = 4 * graph.edges() as u64;
        assert_eq!(stored.csr().bytes() + edges, graph.csr().bytes());
        let order: Vec<u32> = (0..40).rev().collect();
        type Edit<'a> = &'a dyn Fn(&Graph) -> Result<Graph, GraphError>;
        let edits: [Edit<'_>; 4] = [
            &Graph::with_self_loops,
            &Graph::without_self_loops,
            &Graph::deduplicated,
            &|graph| graph.permuted(&order),
        ];
        for (number, edit) in edits.iter().enumerate() {
            let [made, expected] = [&stored, &graph].map(|of| edit(of).unwrap());
            assert_eq!(made, expected, "edit {number}");
            assert!(made.csr().is_on_disk(), "edit {number}");
            assert_eq!(made.is_symmetric(), expected.is_symmetric());
        }
        let (offsets, columns) = stored.csr().clone().into_offsets();
        assert_eq!(
            (&offsets[..], &columns[..]),
            (graph.offsets(), graph.cols())
        );
        // Its edges are there as long as they are referenced.
        let kept = stored.clone();
        drop(stored);
        assert_eq!(kept, graph);
        drop(kept);
        assert_eq!(names(), 0, "a file that stays");
    }

    #[test]
    fn rows_are_checked_and_sorted() {
        let folder = std::env::temp_dir();
        let mut rows = RowFile::create(&folder, 4).unwrap();
        rows.write_row(&[3, 0, 3]).unwrap();
        let told = rows.write_row(&[1, 4]).unwrap_err().to_string();
        assert_eq!(
            told,
            "columns[1] is 4, but a graph of 4 vertices has ids below 4"
        );
        rows.write_row(&[]).unwrap();
        let csr = rows.finish().unwrap();
        assert_eq!((csr.shape(), csr.row(0)), ((2, 4), &[0, 3, 3][..]));
        let none = RowFile::create(&folder, 0).unwrap().finish().unwrap();
        assert_eq!((none.shape(), none.edges()), ((0, 0), 0));
        let empty = Graph::from_offsets(vec![0; 4], Vec::new()).unwrap();
        assert_eq!(empty.to_disk(&folder).unwrap(), empty);
        assert!(matches!(
            RowFile::create(&folder, 1 << 32),
            Err(GraphError::TooManyVertices { .. })
        ));
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let folder = tempfile::tempdir().unwrap().path().join("gone");
        let told = graph().to_disk(&folder).unwrap_err().to_string();
        let named = format!("edges cannot be kept in {}: ", folder.display());
        assert!(told.starts_with(&named), "{told}");
    }

    /// `/dev/full` is a full disk.
    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_told() {
        let mut rows = RowFile::create(&std::env::temp_dir(), 9).unwrap();
        rows.raw.file = File::options().write(true).open("/dev/full").unwrap();
        rows.write_row(&[1, 2, 3]).unwrap();
        let told = rows.finish().unwrap_err().to_string();
        assert!(told.contains("No space left on device"), "{told}");
        // What comes behind it is not taken for the whole.
        let mut rows = RowFile::create(&std::env::temp_dir(), 1 << 21).unwrap();
        rows.raw.file = File::options().write(true).open("/dev/full").unwrap();
        let row: Vec<u32> = (0..1 << 21).collect();
        assert!(rows.write_row(&row).is_err());
        rows.raw.file = tempfile::tempfile().unwrap();
        rows.write_row(&[1]).unwrap();
        let told = rows.finish().unwrap_err().to_string();
        assert!(told.contains("a write before has failed"), "{told}");
    }
}
