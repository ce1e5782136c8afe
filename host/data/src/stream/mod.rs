//! Graphs on their way from one file to another, never in memory as a whole.
//!
//! ```text
//!  a line, an entry, an index ─► (row, column), 8 bytes     1st file: as they are read; ids become numbers there
//!                             ─► sorted, in runs            2nd file: by row, then by column
//!                             ─► columns, 4 bytes           3rd file: what is written, and row offsets in memory
//! ```
//! Memory is bound ([`Workplace`]): per-vertex data (ids and row offsets) must fit, and edges use the rest, however
//! many there are. The files have no name, and are removed with the process.

mod sort;
mod spill;

use crate::error::{DataError, DataProblem};
use crate::format::{Format, Place};
use crate::input::Input;
use crate::open::{OpenOptions, name_of};
use crate::read::npz::Npz;
use crate::read::{EdgeStore, OF_VERTEX, edge_list, frdc, matrix_market, raw_csr, scipy};
use crate::row_order::{InRowOrder, PIECE};
use crate::write::{WriteOptions, save, write_graph};
use halfgnn_graph::index::MAX_EDGES;
use halfgnn_graph::{Direction, GraphError, parallel};
use sort::Sorter;
pub(crate) use spill::{Spill, SpillWriter};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// Bytes of the program and of buffers that are as large for any graph: chunks of columns, texts that are to be
/// written.
const OVERHEAD: u64 = 40 << 20;

/// Bytes that a thread takes while a text is read: two blocks and their parsed edges, and the blocks that come next.
const OF_THREAD: u64 = 10 << 20;

/// The share of memory that is for edges, at least: of threads that read, and then of keys that are sorted.
const OF_EDGES: u64 = 4;

/// Bytes of a key, and as much again for the buffers of the runs while they are merged.
const OF_KEY: u64 = 16;

/// A graph whose columns are in a file without a name, in order of rows.
#[derive(Debug)]
pub struct StreamedGraph {
    name: String,
    offsets: Vec<u64>,
    columns: Spill<u32>,
    symmetric: OnceLock<bool>,
    place: Workplace,
    left_out: Vec<&'static str>,
}

/// Where a graph is while it is converted: a folder, and a part of memory.
#[derive(Clone, Debug)]
pub struct Workplace {
    folder: PathBuf,
    memory: u64,
    /// Keys that are sorted at a time at most, whatever there is of memory.
    most_keys: usize,
}

impl Workplace {
    /// A folder for unnamed files, which take up to 24 bytes an edge, and the bytes of memory that may be used.
    pub fn new(folder: impl Into<PathBuf>, memory: u64) -> Self {
        Self {
            folder: folder.into(),
            memory,
            most_keys: usize::MAX,
        }
    }

    /// The bytes that remain for edges next to those of vertices.
    fn left_for_edges(&self, of_vertices: u64) -> Result<u64, DataProblem> {
        let taken = of_vertices.saturating_add(OVERHEAD);
        let left = self.memory.saturating_sub(taken);
        match left >= self.memory / OF_EDGES {
            true => Ok(left),
            false => Err(DataProblem::LittleMemory {
                wanted: taken.saturating_mul(OF_EDGES) / (OF_EDGES - 1),
                allowed: self.memory,
            }),
        }
    }

    fn sorter(&self, vertices: usize) -> Result<Sorter, DataProblem> {
        let capacity = self.left_for_edges(vertices as u64 * OF_VERTEX)? / OF_KEY;
        let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
        Ok(Sorter::new(&self.folder, capacity.min(self.most_keys)))
    }

    /// Does something that reads texts, on no more threads than memory is for.
    fn read<T: Send>(
        &self,
        read: impl FnOnce() -> Result<T, DataProblem> + Send,
    ) -> Result<T, DataProblem> {
        let threads = (self.memory / OF_EDGES / OF_THREAD).max(1);
        if threads >= rayon::current_num_threads() as u64 {
            return read();
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads as usize);
        let pool = pool.build().map_err(io::Error::other)?;
        pool.install(read)
    }
}

impl StreamedGraph {
    /// Reads a graph without features as [`Graph::open_with`](crate::OpenGraph::open_with) would: an edge list, a
    /// matrix of Matrix Market's or scipy's, raw compressed rows or tiles of bits. `None` for all other formats, which
    /// are read whole.
    ///
    /// # Errors
    /// Those of [`Graph::open_with`](crate::OpenGraph::open_with), [`DataProblem::CannotWrite`] with the folder of
    /// `place`, and [`DataProblem::LittleMemory`] where the memory is too small for the per-vertex data.
    pub fn open(
        path: &Path,
        options: &OpenOptions,
        place: &Workplace,
    ) -> Result<Option<Self>, DataError> {
        Self::read(path, options, place).map_err(|problem| match problem {
            DataProblem::CannotWrite(_) => DataError::in_file(&place.folder, problem),
            _ => DataError::in_file(path, problem),
        })
    }

    fn read(
        path: &Path,
        options: &OpenOptions,
        place: &Workplace,
    ) -> Result<Option<Self>, DataProblem> {
        let Place::File(format) = Place::of(path, options.format)? else {
            return Ok(None);
        };
        if format.is_labelled() {
            return Ok(None);
        }
        options.check_columns(format)?;
        let progress = options.progress();
        let input = Input::open(path, progress)?;
        let mut edges = SpilledEdges::create(place)?;
        let (vertices, direction) = place.read(|| match format {
            Format::MatrixMarket => matrix_market::read_into(input, options.undirected, &mut edges),
            Format::ScipySparse => Ok((
                scipy::spill(&mut Npz::open(input)?, &mut edges)?,
                Direction::AsListed,
            )),
            Format::RawCsr => Ok((raw_csr::spill(input, &mut edges)?, Direction::AsListed)),
            Format::Frdc => Ok((frdc::spill(input, &mut edges)?, Direction::AsListed)),
            // An edge list: all others have labels.
            _ => Ok((
                edge_list::read_into(input, &mut edges)?,
                edge_list::direction(options.undirected),
            )),
        })?;
        progress.begin("bringing edges into row order", 0);
        let left_out = std::mem::take(&mut edges.left_out);
        let edges = edges.finish()?;
        let mut sorter = EdgeSorter::new(place, vertices, direction)?;
        edges.each_piece(PIECE / 4, |piece| {
            let mut edges = piece.iter();
            edges.try_for_each(|&[row, column]| sorter.push(row, column))
        })?;
        drop(edges);
        let mut graph = sorter.into_graph()?;
        // What is left to do of what `OpenOptions` ask for.
        if options.undirected && !graph.is_symmetric()? {
            let mut sorter = EdgeSorter::new(place, vertices, Direction::BothOnce)?;
            graph.each_edge(|row, column| sorter.push(row, column))?;
            drop(graph);
            graph = sorter.into_graph()?;
        }
        if options.self_loops {
            graph = graph.with_self_loops()?;
        }
        graph.name = name_of(path);
        graph.left_out = left_out;
        Ok(Some(graph))
    }

    /// What it is called: the name of its file, without the extension.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The number of vertices.
    pub fn vertices(&self) -> usize {
        self.offsets.len() - 1
    }

    /// The number of edges; an undirected edge counts twice.
    pub fn edges(&self) -> u64 {
        self.columns.len()
    }

    /// What its file has of edges and a graph alone has not, in words: `edge weights`, say.
    pub fn left_out(&self) -> &[&'static str] {
        &self.left_out
    }

    /// Edges that a format has no place for: see [`SaveGraph::left_out_edges`](crate::SaveGraph::left_out_edges).
    ///
    /// # Errors
    /// A [`DataError`] with the folder where the edges are, which could not be read.
    pub fn left_out_edges(&self, format: Format) -> Result<u64, DataError> {
        if format != Format::Frdc {
            return Ok(0);
        }
        let (mut repeated, mut before) = (0, None);
        let edges = self.each_edge(|row, column| {
            repeated += u64::from(before == Some((row, column)));
            before = Some((row, column));
            Ok::<(), io::Error>(())
        });
        let place = &self.place.folder;
        edges.map_err(|error| DataError::in_file(place, DataProblem::Io(error)))?;
        Ok(repeated)
    }

    /// Writes the file that [`SaveGraph::save`](crate::SaveGraph::save) writes of the graph in memory, to the byte.
    ///
    /// # Errors
    /// Those of [`SaveGraph::save`](crate::SaveGraph::save).
    pub fn save(&self, path: impl AsRef<Path>, options: WriteOptions) -> Result<(), DataError> {
        save(path.as_ref(), |file| write_graph(file, self, options))
    }

    /// With a self-loop at every vertex that has none.
    fn with_self_loops(&self) -> Result<Self, DataProblem> {
        let mut rows = Rows::create(self.vertices(), &self.place)?;
        // The first row that does not have its self-loop yet.
        let mut next = 0;
        self.each_edge(|row, column| {
            while next < row || next == row && column >= row {
                if (next, next) != (row, column) {
                    rows.push(next, next)?;
                }
                next += 1;
            }
            rows.push(row, column)
        })?;
        (next..self.vertices() as u32).try_for_each(|vertex| rows.push(vertex, vertex))?;
        rows.finish(self.symmetric.clone())
    }
}

impl InRowOrder for StreamedGraph {
    fn offsets(&self) -> &[u64] {
        &self.offsets
    }

    fn is_symmetric(&self) -> io::Result<bool> {
        if let Some(&symmetric) = self.symmetric.get() {
            return Ok(symmetric);
        }
        let symmetric = self.equals_transpose()?;
        Ok(*self.symmetric.get_or_init(|| symmetric))
    }

    fn each_piece<E: From<io::Error>>(
        &self,
        take: impl FnMut(&[u32]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.columns.each_piece(PIECE, take)
    }
}

impl StreamedGraph {
    fn equals_transpose(&self) -> io::Result<bool> {
        // Most graphs that are not symmetric have a vertex whose in-degree and out-degree differ.
        let mut degrees = vec![0_u32; self.vertices()];
        self.each_edge(|_, column| {
            degrees[column as usize] += 1;
            Ok::<(), io::Error>(())
        })?;
        let lengths = self.offsets.windows(2).map(|two| two[1] - two[0]);
        if !lengths.eq(degrees.into_iter().map(u64::from)) {
            return Ok(false);
        }
        let reverse = self.place.sorter(self.vertices());
        let mut reverse = reverse.map_err(io::Error::other)?;
        self.each_edge(|row, column| reverse.push(key(column, row)))?;
        let mut reverse = reverse.sorted()?;
        let mut equal = true;
        self.each_edge(|row, column| {
            equal &= reverse.next()? == Some(key(row, column));
            Ok::<(), io::Error>(())
        })?;
        Ok(equal)
    }
}

/// Edges on their way to an order of rows.
struct EdgeSorter<'a> {
    direction: Direction,
    vertices: usize,
    keys: Sorter,
    place: &'a Workplace,
}

impl<'a> EdgeSorter<'a> {
    fn new(
        place: &'a Workplace,
        vertices: usize,
        direction: Direction,
    ) -> Result<Self, DataProblem> {
        Ok(Self {
            direction,
            vertices,
            keys: place.sorter(vertices)?,
            place,
        })
    }

    fn push(&mut self, row: u32, column: u32) -> Result<(), DataProblem> {
        let mut push = |key| self.keys.push(key).map_err(DataProblem::CannotWrite);
        push(key(row, column))?;
        match self.direction != Direction::AsListed && row != column {
            true => push(key(column, row)),
            false => Ok(()),
        }
    }

    fn into_graph(self) -> Result<StreamedGraph, DataProblem> {
        let mut merge = self.keys.sorted().map_err(DataProblem::CannotWrite)?;
        let mut rows = Rows::create(self.vertices, self.place)?;
        let mut before = None;
        while let Some(edge) = merge.next()? {
            if self.direction != Direction::BothOnce || before != Some(edge) {
                rows.push((edge >> 32) as u32, edge as u32)?;
            }
            before = Some(edge);
        }
        rows.finish(match self.direction {
            Direction::AsListed => OnceLock::new(),
            Direction::Both | Direction::BothOnce => OnceLock::from(true),
        })
    }
}

fn key(row: u32, column: u32) -> u64 {
    u64::from(row) << 32 | u64::from(column)
}

/// Rows that are being filled, in their order.
struct Rows {
    /// How many columns each has, behind the first.
    offsets: Vec<u64>,
    columns: SpillWriter<u32>,
    place: Workplace,
}

impl Rows {
    fn create(vertices: usize, place: &Workplace) -> Result<Self, DataProblem> {
        let mut offsets = DataProblem::with_capacity("row offsets", vertices as u64 + 1)?;
        offsets.resize(vertices + 1, 0);
        let columns = SpillWriter::create(&place.folder).map_err(DataProblem::CannotWrite)?;
        Ok(Self {
            offsets,
            columns,
            place: place.clone(),
        })
    }

    fn push(&mut self, row: u32, column: u32) -> Result<(), DataProblem> {
        self.offsets[row as usize + 1] += 1;
        self.columns.push(column).map_err(DataProblem::CannotWrite)
    }

    fn finish(mut self, symmetric: OnceLock<bool>) -> Result<StreamedGraph, DataProblem> {
        let edges = self.columns.len();
        if edges > MAX_EDGES {
            return Err(DataProblem::graph(
                "edges",
                GraphError::TooManyEdges { edges },
            ));
        }
        let mut start = 0;
        for offset in &mut self.offsets {
            start += *offset;
            *offset = start;
        }
        Ok(StreamedGraph {
            name: String::new(),
            offsets: self.offsets,
            columns: self.columns.finish().map_err(DataProblem::CannotWrite)?,
            symmetric,
            place: self.place,
            left_out: Vec::new(),
        })
    }
}

/// Edges in a file, block by block as they were read.
pub(crate) struct SpilledEdges<'a> {
    place: &'a Workplace,
    edges: SpillWriter<[u32; 2]>,
    /// Where each block ends.
    ends: Vec<u64>,
    left_out: Vec<&'static str>,
}

impl<'a> SpilledEdges<'a> {
    fn create(place: &'a Workplace) -> Result<Self, DataProblem> {
        Ok(Self {
            place,
            edges: SpillWriter::create(&place.folder).map_err(DataProblem::CannotWrite)?,
            ends: Vec::new(),
            left_out: Vec::new(),
        })
    }

    /// Where they are.
    pub fn folder(&self) -> &Path {
        &self.place.folder
    }

    /// Adds one, of no block.
    pub fn push(&mut self, edge: [u32; 2]) -> Result<(), DataProblem> {
        self.edges.push(edge).map_err(DataProblem::CannotWrite)
    }

    fn finish(self) -> Result<Spill<[u32; 2]>, DataProblem> {
        self.edges.finish().map_err(DataProblem::CannotWrite)
    }

    /// Calls `each` with the file and, of each block, its number, where it begins, and its edges.
    fn for_blocks(
        &mut self,
        mut each: impl FnMut(&Spill<[u32; 2]>, usize, u64, &mut [[u32; 2]]) -> Result<(), DataProblem>,
    ) -> Result<(), DataProblem> {
        let edges = self.edges.written().map_err(DataProblem::CannotWrite)?;
        let (mut start, mut block) = (0, Vec::new());
        for (at, &end) in self.ends.iter().enumerate() {
            block.resize((end - start) as usize, [0; 2]);
            edges.read_at(start, &mut block)?;
            each(edges, at, start, &mut block)?;
            start = end;
        }
        Ok(())
    }
}

impl EdgeStore for SpilledEdges<'_> {
    fn expect_space(&self, of_vertices: u64) -> Result<(), DataProblem> {
        self.place.left_for_edges(of_vertices).map(drop)
    }

    fn add(&mut self, block: Vec<[u32; 2]>) -> Result<(), DataProblem> {
        self.edges
            .extend(&block)
            .map_err(DataProblem::CannotWrite)?;
        self.ends.push(self.edges.len());
        Ok(())
    }

    fn leave_out(&mut self, what: &'static str) {
        if !self.left_out.contains(&what) {
            self.left_out.push(what);
        }
    }

    fn edges(&self) -> u64 {
        self.edges.len()
    }

    fn each_block(&mut self, each: impl Fn(usize, &[[u32; 2]]) + Sync) -> Result<(), DataProblem> {
        self.for_blocks(|_, at, _, block| {
            each(at, block);
            Ok(())
        })
    }

    fn rename(&mut self, number: impl Fn(usize, u32) -> u32 + Sync) -> Result<(), DataProblem> {
        self.for_blocks(|edges, at, start, block| {
            parallel::for_each(&mut *block, |_, edge: &mut [u32; 2]| {
                *edge = edge.map(|end| number(at, end));
            });
            edges
                .write_at(start, block)
                .map_err(DataProblem::CannotWrite)
        })
    }
}

#[cfg(test)]
mod tests;
