//! Folders of parts, written.

use super::layout::{Header, Kind, Layout, Word};
use super::manifest::{FEATURES, FeaturePrecision, Manifest, PartEntry, TargetKind};
use super::table::{LOOP, VertexTable, WeightSums};
use super::{MANIFEST, MOST_PARTS, VERTICES, part_file};
use crate::error::{DataError, DataProblem};
use crate::file::{self, WholeFolder};
use crate::{Dataset, Splits, Targets};
use half::f16;
use halfgnn_graph::parallel;
use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How a dataset is partitioned.
#[derive(Clone, Copy, Debug)]
pub struct Deal<'a> {
    /// The part of each vertex.
    pub owners: &'a [u32],
    /// How many parts there are.
    pub parts: usize,
    /// How that was done, in a word.
    pub by: &'a str,
    /// What features are kept in.
    pub precision: FeaturePrecision,
}

/// What was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Vertices.
    pub vertices: u64,
    /// Edges.
    pub edges: u64,
    /// Parts.
    pub parts: usize,
    /// The most edges of a part.
    pub most_edges: u64,
    /// The bytes of all files.
    pub bytes: u64,
}

impl Deal<'_> {
    /// Checks that it is a partition of `vertices` vertices.
    fn check(&self, vertices: usize) -> Result<(), DataProblem> {
        let refuse = |reason: String| Err(DataProblem::NotPartitioned { reason });
        if !(1..=MOST_PARTS).contains(&self.parts) {
            return refuse(format!(
                "into {} parts; there are 1 to {MOST_PARTS}",
                self.parts
            ));
        }
        if self.owners.len() != vertices {
            return refuse(format!(
                "the partition is of {} vertices, and there are {vertices}",
                self.owners.len()
            ));
        }
        match self
            .owners
            .iter()
            .position(|&part| part as usize >= self.parts)
        {
            None => Ok(()),
            Some(vertex) => refuse(format!(
                "vertex {vertex} is in part {}, and there are {} parts, from 0 on",
                self.owners[vertex], self.parts
            )),
        }
    }
}

impl Dataset {
    /// Writes the dataset as a folder of parts, which is there whole or not at all; see [`parts`](crate::parts).
    ///
    /// # Errors
    /// [`DataProblem::Exists`] where there is something at `path`, [`DataProblem::NotPartitioned`] for many graphs and
    /// for a partition of another graph, [`DataProblem::Value`] for a feature that is infinite in half,
    /// [`DataProblem::NotInMemory`] for features that stay in their files, [`DataProblem::CannotWrite`].
    pub fn save_parts(
        &self,
        path: impl AsRef<Path>,
        deal: &Deal<'_>,
    ) -> Result<Written, DataError> {
        let path = path.as_ref();
        self.write_parts(path, deal)
            .map_err(|problem| DataError::in_file(path, problem))
    }

    fn write_parts(&self, path: &Path, deal: &Deal<'_>) -> Result<Written, DataProblem> {
        if let Some(graphs) = &self.graphs {
            return Err(DataProblem::ManyGraphs {
                graphs: graphs.graphs(),
                what: "parts are of the vertices of one; keep it in a file",
            });
        }
        self.features.expect_in_memory("a folder of parts")?;
        let table = self.table(deal)?;
        let mut manifest = Manifest {
            name: self.name.clone(),
            features: self.feature_len() as u64,
            class_names: self.class_names.clone(),
            ids: self.ids.is_some(),
            edge_weights: self.edge_weights.is_some(),
            edge_features: self
                .edge_features
                .as_ref()
                .map_or(0, |of| of.columns() as u64),
            ..Manifest::empty(TargetKind::of(&self.targets))
        };
        let folder = Folder::create(path, deal, &table, &mut manifest, |vertex| {
            self.ids
                .as_ref()
                .map_or(0, |ids| ids.get(vertex).len() as u64)
        })?;
        // The error is that of the first part with one, whichever thread fails first. Later parts are given up.
        let wrong = AtomicUsize::new(deal.parts);
        let written = parallel::map(0..deal.parts, |_, part| {
            if wrong.load(Ordering::Relaxed) < part {
                return Ok(None);
            }
            let written = self.write_part(&folder, (&manifest, deal.precision), part);
            if written.is_err() {
                wrong.fetch_min(part, Ordering::Relaxed);
            }
            written.map(Some)
        });
        let mut magnitudes = vec![0.0_f32; self.feature_len()];
        for (part, written) in written.into_iter().enumerate() {
            let Some((checksum, of_part)) = written? else {
                continue;
            };
            manifest.parts[part].checksum = checksum;
            for (most, of_part) in magnitudes.iter_mut().zip(of_part) {
                *most = most.max(of_part);
            }
        }
        folder.finish(manifest, &table, magnitudes)
    }

    /// Writes a part's file: its checksum, and the largest magnitude in each column of its features.
    fn write_part(
        &self,
        folder: &Folder,
        (manifest, precision): (&Manifest, FeaturePrecision),
        part: usize,
    ) -> Result<(String, Vec<f32>), DataProblem> {
        let mut magnitudes = vec![0.0_f32; self.feature_len()];
        let mut row = vec![0.0; self.feature_len()];
        let mut file = folder.create_part(manifest, part)?;
        let vertices = folder.vertices(part);
        let rows = || {
            vertices
                .iter()
                .map(|&vertex| self.graph.csr().row_range(vertex as usize))
        };
        file.put_all(0, vertices.iter().copied())?;
        file.put_all(1, offsets(rows().map(|row| row.len() as u64)))?;
        file.put_all(
            2,
            rows().flat_map(|row| self.graph.cols()[row].iter().copied()),
        )?;
        if let Some(weights) = &self.edge_weights {
            file.put_all(3, rows().flat_map(|row| weights[row].iter().copied()))?;
        }
        if let Some(features) = &self.edge_features {
            let rows = rows().flatten();
            file.put_all(4, rows.flat_map(|edge| features.row(edge).iter().copied()))?;
        }
        let mut to = file.section(FEATURES)?;
        for &vertex in vertices {
            self.features.write_row(vertex as usize, &mut row);
            put_row(&mut to, (vertex, &row), precision, &mut magnitudes)?;
        }
        to.finish()?;
        if let Some(ids) = &self.ids {
            let names = || vertices.iter().map(|&vertex| ids.get(vertex as usize));
            file.put_all(6, offsets(names().map(|name| name.len() as u64)).skip(1))?;
            file.put_all(7, names().flat_map(|name| name.bytes()))?;
        }
        Ok((folder.finish_part(part, file)?, magnitudes))
    }

    /// What there is one of a vertex.
    fn table(&self, deal: &Deal<'_>) -> Result<VertexTable, DataProblem> {
        let (csr, vertices) = (self.graph.csr(), self.graph.vertices());
        deal.check(vertices)?;
        let splits = Splits {
            train: self.train.clone(),
            val: self.val.clone(),
            test: self.test.clone(),
        };
        let mut flags = flags(vertices, &splits);
        for (vertex, flags) in flags.iter_mut().enumerate() {
            if csr.row(vertex).binary_search(&(vertex as u32)).is_ok() {
                *flags |= LOOP;
            }
        }
        let sums = self.edge_weights.as_ref().map(|weights| {
            let zeros = || [(); 2].map(|()| vec![0.0_f64; vertices]);
            let mut sums = WeightSums {
                rows: zeros(),
                columns: zeros(),
            };
            for (vertex, flags) in flags.iter().enumerate() {
                let mut adds_loop = flags & LOOP == 0;
                for edge in csr.row_range(vertex) {
                    let (column, weight) = (csr.cols()[edge] as usize, f64::from(weights[edge]));
                    if adds_loop && column > vertex {
                        sums.rows[1][vertex] += 1.0;
                        sums.columns[1][vertex] += 1.0;
                        adds_loop = false;
                    }
                    for with_loop in 0..2 {
                        sums.rows[with_loop][vertex] += weight;
                        sums.columns[with_loop][column] += weight;
                    }
                }
                if adds_loop {
                    sums.rows[1][vertex] += 1.0;
                    sums.columns[1][vertex] += 1.0;
                }
            }
            sums
        });
        Ok(VertexTable {
            owners: deal.owners.to_vec(),
            in_degrees: csr.row_degrees(),
            out_degrees: self.graph.out_degrees(),
            flags,
            targets: self.targets.clone(),
            sums,
            mutual: None,
        })
    }
}

/// The splits of vertices as their bits.
pub(super) fn flags(vertices: usize, splits: &Splits) -> Vec<u8> {
    let mut flags = vec![0; vertices];
    for (split, list) in (1..).zip([&splits.train, &splits.val, &splits.test]) {
        list.iter()
            .for_each(|&vertex| flags[vertex as usize] |= split);
    }
    flags
}

/// Where each of several starts, and where the last ends.
pub(super) fn offsets(lengths: impl Iterator<Item = u64>) -> impl Iterator<Item = u64> {
    std::iter::once(0).chain(lengths.scan(0_u64, |end, length| {
        *end += length;
        Some(*end)
    }))
}

/// Writes a row of features, and takes note of its magnitudes as they are kept.
pub(super) fn put_row(
    to: &mut impl PutNumbers,
    (vertex, row): (u32, &[f32]),
    precision: FeaturePrecision,
    magnitudes: &mut [f32],
) -> Result<(), DataProblem> {
    for ((column, &value), most) in row.iter().enumerate().zip(magnitudes) {
        // Minus zero is zero, as where rows are put together from entries.
        let value = value + 0.0;
        match precision {
            FeaturePrecision::Float => {
                *most = most.max(value.abs());
                to.put(value)?;
            }
            FeaturePrecision::Half => {
                let half = f16::from_f32(value);
                if !half.is_finite() {
                    let why = format!(
                        "in row {vertex}, column {column} (from 0), which is infinite in half; keep features as they are (--feature-precision float)"
                    );
                    let index = vertex as u64 * row.len() as u64 + column as u64;
                    return Err(DataProblem::value("features", index, value, why));
                }
                *most = most.max(half.to_f32().abs());
                to.put(half)?;
            }
        }
    }
    Ok(())
}

/// Something that takes numbers.
pub(super) trait PutNumbers {
    fn put<T: Word>(&mut self, value: T) -> Result<(), DataProblem>;
}

/// A folder in the making.
pub(super) struct Folder {
    folder: WholeFolder,
    identity: u64,
    /// The vertices of the parts, one part after the other, and where each starts.
    order: Vec<u32>,
    starts: Vec<usize>,
}

impl Folder {
    /// Begins one; the manifest gets the figures of the parts. `id_bytes` is the length of a vertex' name.
    pub fn create(
        path: &Path,
        deal: &Deal<'_>,
        table: &VertexTable,
        manifest: &mut Manifest,
        id_bytes: impl Fn(usize) -> u64,
    ) -> Result<Self, DataProblem> {
        deal.check(table.vertices())?;
        let mut parts = vec![
            PartEntry {
                vertices: 0,
                edges: 0,
                id_bytes: 0,
                checksum: String::new(),
            };
            deal.parts
        ];
        for (vertex, &owner) in deal.owners.iter().enumerate() {
            let part = &mut parts[owner as usize];
            part.vertices += 1;
            part.edges += u64::from(table.in_degrees[vertex]);
            part.id_bytes += id_bytes(vertex);
        }
        let mut starts = vec![0; deal.parts + 1];
        for (number, part) in parts.iter().enumerate() {
            starts[number + 1] = starts[number] + part.vertices as usize;
        }
        let mut next = starts.clone();
        let mut order = DataProblem::with_capacity("vertices", deal.owners.len() as u64)?;
        order.resize(deal.owners.len(), 0);
        for (vertex, &owner) in deal.owners.iter().enumerate() {
            let place = &mut next[owner as usize];
            order[*place] = vertex as u32;
            *place += 1;
        }
        *manifest = Manifest {
            partition: deal.by.into(),
            vertices: deal.owners.len() as u64,
            edges: parts.iter().map(|part| part.edges).sum(),
            feature_precision: deal.precision,
            parts,
            ..manifest.clone()
        };
        let identity = identity(manifest, table);
        manifest.identity = format!("{identity:016x}");
        let folder = WholeFolder::create(path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => DataProblem::Exists,
            _ => DataProblem::CannotWrite(error),
        })?;
        Ok(Self {
            folder,
            identity,
            order,
            starts,
        })
    }

    /// The vertices of a part, ascending.
    pub fn vertices(&self, part: usize) -> &[u32] {
        &self.order[self.starts[part]..self.starts[part + 1]]
    }

    /// Where a part of it is written.
    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// A part's file, as long as it will be.
    pub fn create_part(&self, manifest: &Manifest, part: usize) -> Result<OutFile, DataProblem> {
        OutFile::create(
            &self.path().join(part_file(part)),
            layout_of(manifest, part)?,
        )
    }

    /// A part's file to go on with, whose features are there and add up to `sum`.
    pub fn open_part(
        &self,
        manifest: &Manifest,
        part: usize,
        sum: u32,
    ) -> Result<OutFile, DataProblem> {
        let file = File::options()
            .write(true)
            .open(self.path().join(part_file(part)))
            .map_err(DataProblem::CannotWrite)?;
        let layout = layout_of(manifest, part)?;
        let mut sums = vec![0; layout.sections()];
        sums[FEATURES] = sum;
        Ok(OutFile { file, layout, sums })
    }

    /// Ends a part's file: its checksum, for the manifest.
    pub fn finish_part(&self, part: usize, file: OutFile) -> Result<String, DataProblem> {
        let header = Header {
            kind: Kind::Part,
            number: part as u32,
            identity: self.identity,
        };
        file.finish(header)
    }

    /// Writes what there is one of a vertex, and the manifest.
    pub fn finish(
        self,
        mut manifest: Manifest,
        table: &VertexTable,
        magnitudes: Vec<f32>,
    ) -> Result<Written, DataProblem> {
        let layout = manifest.vertices_layout();
        let layout = layout.ok_or_else(|| DataProblem::part("vertices", "too many"))?;
        let mut bytes = layout.len();
        let mut file = OutFile::create(&self.path().join(VERTICES), layout)?;
        file.put_all(0, table.owners.iter().copied())?;
        file.put_all(1, table.in_degrees.iter().copied())?;
        file.put_all(2, table.out_degrees.iter().copied())?;
        file.put_all(3, table.flags.iter().copied())?;
        match &table.targets {
            Targets::Classes(classes) => file.put_all(4, classes.iter().copied())?,
            Targets::Labels(labels) => {
                let known = (0..table.vertices()).map(|at| table.targets.is_labelled(at).into());
                file.put_all(4, labels.words().iter().copied())?;
                match labels.known_words() {
                    Some(words) if table.targets.is_partial() => {
                        file.put_all(5, words.iter().copied())?;
                    }
                    _ => file.put_all::<u8>(5, known)?,
                }
            }
            Targets::Values(values) => file.put_all(4, values.values().iter().copied())?,
        }
        if let Some(WeightSums { rows, columns }) = &table.sums {
            for (section, sums) in (6..).zip(rows.iter().chain(columns)) {
                file.put_all(section, sums.iter().copied())?;
            }
        }
        let header = Header {
            kind: Kind::Vertices,
            number: 0,
            identity: self.identity,
        };
        manifest.vertices_checksum = file.finish(header)?;
        let magnitude = |most: f32| if most == 0.0 { 1.0 } else { most };
        manifest.column_magnitudes = magnitudes.into_iter().map(magnitude).collect();
        let text = serde_json::to_vec_pretty(&manifest)
            .map_err(|error| DataProblem::CannotWrite(error.into()))?;
        let parts = 0..manifest.parts.len();
        bytes += text.len() as u64;
        for part in parts {
            bytes += layout_of(&manifest, part)?.len();
        }
        file::write(&self.path().join(MANIFEST), &text).map_err(DataProblem::CannotWrite)?;
        self.folder.finish().map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists | io::ErrorKind::DirectoryNotEmpty => DataProblem::Exists,
            _ => DataProblem::CannotWrite(error),
        })?;
        Ok(Written {
            vertices: manifest.vertices,
            edges: manifest.edges,
            parts: manifest.parts.len(),
            most_edges: manifest
                .parts
                .iter()
                .map(|part| part.edges)
                .max()
                .unwrap_or(0),
            bytes,
        })
    }
}

fn layout_of(manifest: &Manifest, part: usize) -> Result<Layout, DataProblem> {
    let layout = manifest.part_layout(part);
    layout.ok_or_else(|| DataProblem::NotPartitioned {
        reason: format!("part {part} is longer than a file can be; take more parts"),
    })
}

/// FNV-1a of what a folder is of: another graph, partition or splits have another.
fn identity(manifest: &Manifest, table: &VertexTable) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    let mut add = |word: u64| hash = (hash ^ word).wrapping_mul(0x0100_0000_01b3);
    manifest.name.bytes().for_each(|byte| add(byte.into()));
    for word in [
        manifest.features,
        manifest.edge_features,
        manifest.feature_precision.bytes(),
        manifest.parts.len() as u64,
    ] {
        add(word);
    }
    for of in [&table.owners, &table.in_degrees, &table.out_degrees] {
        of.iter().for_each(|&word| add(word.into()));
    }
    table.flags.iter().for_each(|&flags| add(flags.into()));
    hash
}

/// A file whose sections are written in any order.
pub(super) struct OutFile {
    file: File,
    layout: Layout,
    sums: Vec<u32>,
}

impl OutFile {
    fn create(path: &Path, layout: Layout) -> Result<Self, DataProblem> {
        let create = || {
            let file = File::create_new(path)?;
            file.set_len(layout.len())?;
            Ok(file)
        };
        let file = create().map_err(DataProblem::CannotWrite)?;
        let sums = vec![0; layout.sections()];
        Ok(Self { file, layout, sums })
    }

    /// Where a section lies.
    pub fn place(&self, section: usize) -> u64 {
        self.layout.section(section).start
    }

    /// Writes all of a section.
    pub fn put_all<T: Word>(
        &mut self,
        section: usize,
        values: impl Iterator<Item = T>,
    ) -> Result<(), DataProblem> {
        let mut to = self.section(section)?;
        for value in values {
            to.put(value)?;
        }
        to.finish()
    }

    /// Begins to write a section.
    pub fn section(&mut self, section: usize) -> Result<OutSection<'_>, DataProblem> {
        let place = self.place(section);
        let seek = self.file.seek(SeekFrom::Start(place));
        seek.map_err(DataProblem::CannotWrite)?;
        self.sums[section] = 0;
        Ok(OutSection {
            file: &self.file,
            sum: &mut self.sums[section],
            buffer: Vec::with_capacity(PIECE + 8),
        })
    }

    /// Writes the header; what the file adds up to.
    fn finish(mut self, header: Header) -> Result<String, DataProblem> {
        let finish = |file: &mut File| {
            file.rewind()?;
            file.write_all(&header.bytes())?;
            file.sync_all()
        };
        finish(&mut self.file).map_err(DataProblem::CannotWrite)?;
        let sum = (0..self.sums.len()).fold(0, |sum, section| {
            let range = self.layout.section(section);
            crc32c::crc32c_combine(sum, self.sums[section], (range.end - range.start) as usize)
        });
        Ok(format!("{sum:08x}"))
    }
}

/// Bytes that are written at once.
const PIECE: usize = 1 << 18;

/// A section in the making.
pub(super) struct OutSection<'a> {
    file: &'a File,
    sum: &'a mut u32,
    buffer: Vec<u8>,
}

impl OutSection<'_> {
    fn flush(&mut self) -> Result<(), DataProblem> {
        *self.sum = crc32c::crc32c_append(*self.sum, &self.buffer);
        let written = self.file.write_all(&self.buffer);
        written.map_err(DataProblem::CannotWrite)?;
        self.buffer.clear();
        Ok(())
    }

    pub fn finish(mut self) -> Result<(), DataProblem> {
        self.flush()
    }
}

impl PutNumbers for OutSection<'_> {
    fn put<T: Word>(&mut self, value: T) -> Result<(), DataProblem> {
        value.put(&mut self.buffer);
        match self.buffer.len() < PIECE {
            true => Ok(()),
            false => self.flush(),
        }
    }
}
