//! An archive of PyG's or gnn-benchmark's arrays on its way to a folder of parts, never in memory as a whole.
//!
//! ```text
//!  edge_index ─ sources ─► an unnamed file, 4 bytes each             1st: degrees, by which vertices are partitioned
//!             ─ targets ─► degrees
//!  (or adj_indptr, adj_indices)
//!  x ─ a row after the other ─► its place in its part's file         2nd
//!  edge_index ─ targets, with the sources ─► a heap for each part    3rd: each heap is sorted to rows, and removed
//! ```
//! Memory is for what there is one of a vertex, for a part's edges, and for a buffer a part.

use super::layout::Word;
use super::manifest::{FEATURES, Manifest, TargetKind};
use super::part_file;
use super::table::{LOOP, VertexTable};
use super::write::{Deal, Folder, PutNumbers, Written, flags, offsets, put_row};
use crate::error::{DataError, DataProblem};
use crate::features::divide_by_sum;
use crate::format::{Format, Place};
use crate::input::Input;
use crate::open::{OpenOptions, Parts, name_of};
use crate::read::arrays::{Arrays, expect_len};
use crate::read::gnn_benchmark;
use crate::read::npz::Npz;
use crate::read::pyg::{self, EDGES};
use crate::read::scipy::square;
use crate::row_order::RowWalk;
use crate::stream::{Spill, SpillWriter};
use crate::{Dataset, Features, Splits, Targets};
use halfgnn_graph::Graph;
use std::fs::File;
use std::io::{BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

/// Bytes that a part's buffer holds.
const BUFFER: usize = 1 << 16;

/// An archive whose vertices are known, and whose edges and features are read when it is written.
#[derive(Debug)]
pub struct StreamedArchive {
    path: PathBuf,
    options: OpenOptions,
    /// Targets and splits; no edges, and features of zeros.
    dataset: Dataset,
    edges: Edges,
    features: Rows,
    in_degrees: Vec<u32>,
    out_degrees: Vec<u32>,
    loops: Vec<bool>,
}

/// How an archive has its edges.
#[derive(Debug)]
enum Edges {
    /// `edge_index`: all sources, which are in a file of their own by now, and then all targets.
    Pairs { sources: Spill<u32>, count: u64 },
    /// `adj_indices`: the columns of each row, which start at these places.
    Rows(Vec<u64>),
}

/// The matrix of the features.
#[derive(Clone, Copy, Debug)]
struct Rows {
    /// None where every vertex has a one.
    key: Option<&'static str>,
    /// Whether each row is divided by its sum.
    normalized: bool,
}

impl StreamedArchive {
    /// Reads the per-vertex data of an archive of PyG's or gnn-benchmark's arrays. `near` is the folder of an unnamed
    /// file of the edges' sources. Returns `None` for archives that must be read whole: those of other formats, without
    /// a number of vertices, with edge features, many graphs or sparse features, in Fortran order, or whose edges
    /// `options` change.
    ///
    /// # Errors
    /// Those of [`Dataset::open_with`].
    pub fn open(
        path: &Path,
        options: &OpenOptions,
        near: &Path,
    ) -> Result<Option<Self>, DataError> {
        let read = || {
            if options.undirected || options.self_loops || !path.is_file() {
                return Ok(None);
            }
            let Place::File(format) = Place::of(path, options.format)? else {
                return Ok(None);
            };
            let known = match format {
                Format::Pyg => Self::pyg,
                Format::GnnBenchmark => Self::gnn_benchmark,
                _ => return Ok(None),
            };
            options.check_columns(format)?;
            let mut npz = Npz::open(Input::open(path, options.progress())?)?;
            let Some((parts, edges, features)) = known(&mut npz, near)? else {
                return Ok(None);
            };
            Self::of_archive(&mut npz, path, options, (parts, edges, features))
        };
        read().map_err(|problem| DataError::in_file(path, problem))
    }

    fn pyg(npz: &mut Npz<'_>, near: &Path) -> Result<Option<Known>, DataProblem> {
        let others = ["edge_weight", "edge_attr", "ptr", "batch"];
        if others.iter().any(|key| npz.has(key)) || is_fortran(npz, EDGES)? || is_fortran(npz, "x")?
        {
            return Ok(None);
        }
        let (limit, Some(vertices)) = pyg::vertices(npz)? else {
            return Ok(None);
        };
        let count = match npz.kind(EDGES)?.1[..] {
            [2, edges] => edges,
            // The other reader says what is wrong.
            _ => return Ok(None),
        };
        // A header may promise any number, which is found out where its array is read.
        if vertices as u64 > npz.most_vertices() {
            return Ok(None);
        }
        let columns = pyg::feature_columns(npz, vertices)?;
        let mut done = Vec::new();
        let targets = pyg::targets_of(npz, (vertices, "vertex"), &mut done)?;
        let parts = Parts {
            splits: pyg::splits(npz, vertices)?,
            done,
            ..empty(vertices, columns, targets)?
        };
        let mut sources = SpillWriter::create(near).map_err(DataProblem::CannotWrite)?;
        npz.each_id(EDGES, limit, "vertices", |index, id| match index < count {
            true => sources.push(id).map_err(DataProblem::CannotWrite),
            false => Ok(()),
        })?;
        let sources = sources.finish().map_err(DataProblem::CannotWrite)?;
        let features = Rows {
            key: npz.has("x").then_some("x"),
            normalized: false,
        };
        Ok(Some((parts, Edges::Pairs { sources, count }, features)))
    }

    fn gnn_benchmark(npz: &mut Npz<'_>, _: &Path) -> Result<Option<Known>, DataProblem> {
        const MATRIX: &str = "attr_matrix";
        if !npz.has(MATRIX) || npz.has("attr_data") || is_fortran(npz, MATRIX)? {
            return Ok(None);
        }
        let vertices = square(npz, "adj_shape")?;
        let offsets = npz.counts("adj_indptr")?.line("adj_indptr")?;
        let count = npz.kind("adj_indices")?.1;
        let ascend = offsets.windows(2).all(|two| two[0] <= two[1]);
        let are_offsets = offsets.len() as u64 == vertices + 1
            && ascend
            && offsets.first() == Some(&0)
            && matches!(count[..], [count] if offsets.last() == Some(&count));
        let columns = match npz.kind(MATRIX)?.1[..] {
            [rows, columns @ 1..=u64::MAX] if rows == vertices => columns as usize,
            _ => return Ok(None),
        };
        if !are_offsets {
            return Ok(None);
        }
        if npz.has("adj_data") {
            let mut are_ones = true;
            npz.each_float("adj_data", |_, weight| {
                are_ones &= weight == 1.0;
                Ok(())
            })?;
            if !are_ones {
                return Ok(None);
            }
        }
        let vertices = vertices as usize;
        let mut are_counts = true;
        npz.each_float(MATRIX, |_, value| {
            are_counts &= value >= 0.0;
            Ok(())
        })?;
        let labels = npz.labels("labels")?.line("labels")?;
        expect_len("labels", labels.len(), vertices, "a label for each vertex")?;
        let parts = Parts {
            splits: gnn_benchmark::splits(npz, vertices)?.into_iter().collect(),
            are_counts,
            ..empty(vertices, columns, labels.into())?
        };
        let features = Rows {
            key: Some(MATRIX),
            normalized: are_counts,
        };
        Ok(Some((parts, Edges::Rows(offsets), features)))
    }

    /// With the degrees of the vertices, which the edges are read for.
    fn of_archive(
        npz: &mut Npz<'_>,
        path: &Path,
        options: &OpenOptions,
        (parts, edges, features): Known,
    ) -> Result<Option<Self>, DataProblem> {
        let mut dataset = parts.into_dataset(options)?;
        dataset.name = name_of(path);
        let vertices = dataset.graph.vertices();
        let (mut out_degrees, mut in_degrees) = (vec![0_u32; vertices], vec![0_u32; vertices]);
        let mut loops = vec![false; vertices];
        edges.each(npz, vertices, |target, source| {
            let (target, source) = (target as usize, source as usize);
            loops[target] |= target == source;
            for degree in [&mut in_degrees[target], &mut out_degrees[source]] {
                *degree = degree
                    .checked_add(1)
                    .ok_or_else(|| DataProblem::NotPartitioned {
                        reason: format!("a vertex has more than {} edges", u32::MAX),
                    })?;
            }
            Ok(())
        })?;
        let normalized = options.normalize_features.unwrap_or(features.normalized);
        Ok(Some(Self {
            path: path.into(),
            options: options.clone(),
            dataset,
            edges,
            features: Rows {
                normalized,
                ..features
            },
            in_degrees,
            out_degrees,
            loops,
        }))
    }

    /// Edges that lead to each vertex, by which vertices are partitioned.
    pub fn in_degrees(&self) -> &[u32] {
        &self.in_degrees
    }

    /// What the dataset is called.
    pub fn name(&self) -> &str {
        &self.dataset.name
    }

    /// Writes the folder that [`Dataset::save_parts`] writes of the whole dataset, to the byte.
    ///
    /// # Errors
    /// Those of [`Dataset::save_parts`], and of what the archive has in its edges and features.
    pub fn save_parts(self, path: &Path, deal: &Deal<'_>) -> Result<Written, DataError> {
        let archive = self.path.clone();
        self.write(path, deal).map_err(|problem| {
            let of_folder = matches!(
                problem,
                DataProblem::CannotWrite(_)
                    | DataProblem::Exists
                    | DataProblem::NotPartitioned { .. }
            );
            DataError::in_file(if of_folder { path } else { &archive }, problem)
        })
    }

    fn write(self, path: &Path, deal: &Deal<'_>) -> Result<Written, DataProblem> {
        let Dataset {
            name,
            targets,
            train,
            val,
            test,
            features,
            ..
        } = self.dataset;
        let columns = features.feature_len();
        let mut manifest = Manifest {
            name,
            features: columns as u64,
            ..Manifest::empty(TargetKind::of(&targets))
        };
        let vertices = self.in_degrees.len();
        let mut flags = flags(vertices, &Splits { train, val, test });
        for (flags, is_loop) in flags.iter_mut().zip(&self.loops) {
            *flags |= if *is_loop { LOOP } else { 0 };
        }
        let table = VertexTable {
            owners: deal.owners.to_vec(),
            in_degrees: self.in_degrees,
            out_degrees: self.out_degrees,
            flags,
            targets,
            sums: None,
            mutual: None,
        };
        let folder = Folder::create(path, deal, &table, &mut manifest, |_| 0)?;
        let mut npz = Npz::open(Input::open(&self.path, self.options.progress())?)?;

        // Rows of features, to their places.
        let mut spool = Spool::new(folder.path(), deal.parts, part_file);
        for part in 0..deal.parts {
            spool.places[part] = folder.create_part(&manifest, part)?.place(FEATURES);
        }
        let mut magnitudes = vec![0.0; columns];
        let mut vertex = 0_u32;
        let mut put = |row: &mut [f32]| {
            // An id that is beyond the header's count: the file was changed meanwhile.
            let owner = *deal.owners.get(vertex as usize).ok_or_else(changed)?;
            if self.features.normalized {
                divide_by_sum(row);
            }
            let mut to = spool.of(owner as usize);
            put_row(&mut to, (vertex, row), deal.precision, &mut magnitudes)?;
            vertex += 1;
            spool.flush_full(owner as usize)
        };
        match self.features.key {
            Some(key) => {
                let mut row = Vec::with_capacity(columns);
                npz.each_float(key, |_, value| {
                    row.push(value);
                    if row.len() == columns {
                        put(&mut row)?;
                        row.clear();
                    }
                    Ok(())
                })?;
            }
            None => (0..vertices).try_for_each(|_| put(&mut [1.0]))?,
        }
        if vertex as usize != vertices {
            return Err(changed());
        }
        let sums = spool.finish()?;

        // Edges, to the heaps of their parts.
        let mut heaps = Spool::new(folder.path(), deal.parts, heap_file);
        self.edges.each(&mut npz, vertices, |target, source| {
            let owner = deal.owners[target as usize] as usize;
            let mut to = heaps.of(owner);
            to.put(target)?;
            to.put(source)?;
            heaps.flush_full(owner)
        })?;
        heaps.finish()?;
        for (part, sum) in sums.into_iter().enumerate() {
            let own = folder.vertices(part);
            let place = folder.path().join(heap_file(part));
            let rows = sorted(&place, own, &table.in_degrees)?;
            let mut file = folder.open_part(&manifest, part, sum)?;
            file.put_all(0, own.iter().copied())?;
            let degrees = own.iter().map(|&vertex| table.in_degrees[vertex as usize]);
            file.put_all(1, offsets(degrees.map(u64::from)))?;
            file.put_all(2, rows.into_iter())?;
            manifest.parts[part].checksum = folder.finish_part(part, file)?;
        }
        folder.finish(manifest, &table, magnitudes)
    }
}

/// What is known of an archive before its edges are counted.
type Known = (Parts, Edges, Rows);

/// Vertices without edges, and features of zeros.
fn empty(vertices: usize, columns: usize, targets: Targets) -> Result<Parts, DataProblem> {
    let graph = Graph::from_offsets(vec![0; vertices + 1], Vec::new())
        .map_err(|error| DataProblem::graph(EDGES, error))?;
    let zeros = Features::sparse(columns, vec![0; vertices + 1], Vec::new(), Vec::new())?;
    Ok(Parts::new(graph, zeros, targets))
}

fn is_fortran(npz: &mut Npz<'_>, key: &str) -> Result<bool, DataProblem> {
    match npz.has(key) {
        true => npz.is_fortran(key),
        false => Ok(false),
    }
}

impl Edges {
    /// Calls `each` with the target and the source of every edge.
    fn each(
        &self,
        npz: &mut Npz<'_>,
        vertices: usize,
        mut each: impl FnMut(u32, u32) -> Result<(), DataProblem>,
    ) -> Result<(), DataProblem> {
        let limit = vertices as u64;
        match self {
            Self::Pairs { sources, count } => {
                let mut from = sources.reader();
                npz.each_id(EDGES, limit, "vertices", |index, id| {
                    if index < *count {
                        return Ok(());
                    }
                    each(id, from.next(sources)?.ok_or_else(changed)?)
                })
            }
            Self::Rows(offsets) => {
                let mut rows = RowWalk::new(offsets);
                npz.each_id("adj_indices", limit, "vertices", |index, id| {
                    each(rows.row_of(index).map_err(|_| changed())?, id)
                })
            }
        }
    }
}

/// The columns of a part's rows, of a heap of its edges, which is removed.
fn sorted(place: &Path, own: &[u32], in_degrees: &[u32]) -> Result<Vec<u32>, DataProblem> {
    let mut starts = DataProblem::with_capacity("offsets", own.len() as u64 + 1)?;
    let degrees = own.iter().map(|&vertex| in_degrees[vertex as usize]);
    starts.extend(offsets(degrees.map(u64::from)).map(|start| start as usize));
    let count = starts.last().copied().unwrap_or(0);
    let mut columns = DataProblem::with_capacity("columns", count as u64)?;
    columns.resize(count, 0);
    let mut next = starts.clone();
    let mut read = 0;
    // A part without edges has no heap.
    if count > 0 {
        let mut heap = BufReader::with_capacity(1 << 18, File::open(place)?);
        let mut edge = [0; 8];
        while read < count {
            heap.read_exact(&mut edge).map_err(|_| changed())?;
            let (target, source) = (u32::get(&edge[..4]), u32::get(&edge[4..]));
            let row = own.binary_search(&target).map_err(|_| changed())?;
            if next[row] == starts[row + 1] {
                return Err(changed());
            }
            columns[next[row]] = source;
            next[row] += 1;
            read += 1;
        }
        drop(heap);
        std::fs::remove_file(place).map_err(DataProblem::CannotWrite)?;
    }
    for row in starts.windows(2) {
        columns[row[0]..row[1]].sort_unstable();
    }
    Ok(columns)
}

fn heap_file(part: usize) -> String {
    format!("edges-{part:05}.part")
}

fn changed() -> DataProblem {
    DataProblem::part(
        "edge_index or x",
        "it is another than when it was read first",
    )
}

/// Buffers of many files, none of which is kept open.
struct Spool<'a> {
    folder: &'a Path,
    name: fn(usize) -> String,
    buffers: Vec<Vec<u8>>,
    /// Where the next bytes go.
    places: Vec<u64>,
    sums: Vec<u32>,
}

impl<'a> Spool<'a> {
    fn new(folder: &'a Path, files: usize, name: fn(usize) -> String) -> Self {
        Self {
            folder,
            name,
            buffers: vec![Vec::new(); files],
            places: vec![0; files],
            sums: vec![0; files],
        }
    }

    fn of(&mut self, file: usize) -> Buffer<'_> {
        Buffer(&mut self.buffers[file])
    }

    fn flush_full(&mut self, file: usize) -> Result<(), DataProblem> {
        match self.buffers[file].len() < BUFFER {
            true => Ok(()),
            false => self.flush(file),
        }
    }

    fn flush(&mut self, file: usize) -> Result<(), DataProblem> {
        let buffer = &mut self.buffers[file];
        let write = || {
            let mut options = File::options();
            options.write(true).create(true).truncate(false);
            let mut to = options.open(self.folder.join((self.name)(file)))?;
            to.seek(SeekFrom::Start(self.places[file]))?;
            to.write_all(buffer)
        };
        write().map_err(DataProblem::CannotWrite)?;
        self.places[file] += buffer.len() as u64;
        self.sums[file] = crc32c::crc32c_append(self.sums[file], buffer);
        buffer.clear();
        Ok(())
    }

    /// Writes what is left; what each file's bytes add up to.
    fn finish(mut self) -> Result<Vec<u32>, DataProblem> {
        for file in 0..self.buffers.len() {
            if !self.buffers[file].is_empty() {
                self.flush(file)?;
            }
        }
        Ok(self.sums)
    }
}

/// One file's.
struct Buffer<'a>(&'a mut Vec<u8>);

impl PutNumbers for Buffer<'_> {
    fn put<T: Word>(&mut self, value: T) -> Result<(), DataProblem> {
        value.put(self.0);
        Ok(())
    }
}
