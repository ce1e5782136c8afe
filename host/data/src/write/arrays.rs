//! Archives of arrays as numpy writes them, and raw compressed rows.

use std::io::{self, Seek, Write};

use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, ZipWriter};

use super::not_written;
use crate::read::pyg::{ARE_SIGNS, BIT_COLUMNS, EDGES, FEATURE_BITS};
use crate::read::types::BETWEEN;
use crate::row_order::InRowOrder;
use crate::{DataError, DataProblem, Dataset, Features, Format, Targets, Types, UNLABELLED};

/// A number as it lies in a file.
trait Number: Copy {
    /// The type, as numpy calls it.
    const DESCR: &'static str;
    const BYTES: usize;
    fn put(self, to: &mut Vec<u8>);
}

macro_rules! number {
    ($type:ty, $descr:literal) => {
        impl Number for $type {
            const DESCR: &'static str = $descr;
            const BYTES: usize = size_of::<$type>();
            fn put(self, to: &mut Vec<u8>) {
                to.extend_from_slice(&self.to_le_bytes());
            }
        }
    };
}
number!(i32, "<i4");
number!(i64, "<i8");
number!(f32, "<f4");

impl Number for u8 {
    const DESCR: &'static str = "|u1";
    const BYTES: usize = 1;
    fn put(self, to: &mut Vec<u8>) {
        to.push(self);
    }
}

impl Number for bool {
    const DESCR: &'static str = "|b1";
    const BYTES: usize = 1;
    fn put(self, to: &mut Vec<u8>) {
        to.push(self.into());
    }
}

/// `scipy.sparse.save_npz` of the adjacency as a `csr_matrix` of ones.
pub(super) fn scipy(to: impl Write + Seek, graph: &impl InRowOrder) -> Result<(), DataProblem> {
    let (vertices, edges) = (graph.offsets().len() - 1, graph.edge_count() as usize);
    let mut archive = Archive::new(to);
    archive.columns("indices", graph)?;
    archive.offsets("indptr", graph.offsets())?;
    archive.word("format", "csr")?;
    archive.shape("shape", vertices, vertices)?;
    let ones = std::iter::repeat_n(1.0_f32, edges);
    archive.array("data", &[edges], ones)?;
    archive.finish()
}

/// The arrays of a `Data` object of PyG's.
pub(super) fn pyg(
    to: impl Write + Seek,
    dataset: &Dataset,
    feature_bits: bool,
) -> Result<(), DataProblem> {
    let lowest = match feature_bits {
        true => Some(lowest_of_bits(&dataset.features)?),
        false => None,
    };
    let (graph, vertices) = (&dataset.graph, dataset.graph.vertices());
    let mut archive = Archive::new(to);
    // An edge goes from the vertex that is a column to that which is a row.
    let rows = graph.csr().iter().map(|(row, _)| row);
    let ends = graph.cols().iter().copied().chain(rows);
    archive.array("edge_index", &[2, graph.edges()], ends.map(i64::from))?;
    if let Some(weights) = &dataset.edge_weights {
        archive.array("edge_weight", &[weights.len()], weights.iter().copied())?;
    }
    if let Some(features) = &dataset.edge_features {
        if features.columns() == 1 && dataset.edge_weights.is_none() {
            // One column alone would be read as weights.
            let ones = std::iter::repeat_n(1.0_f32, graph.edges());
            archive.array("edge_weight", &[graph.edges()], ones)?;
        }
        let shape = [features.edges(), features.columns()];
        archive.array("edge_attr", &shape, features.values().iter().copied())?;
    }
    archive.array("num_nodes", &[], [vertices as i64].into_iter())?;
    if let Some(graphs) = &dataset.graphs {
        let starts = graphs.starts();
        let ptr = starts.iter().map(|&start| i64::from(start));
        archive.array("ptr", &[starts.len()], ptr)?;
    }
    let features = dataset.feature_len();
    let row = |vertex| {
        let mut row = vec![0.0; features];
        dataset.features.write_row(vertex, &mut row);
        row
    };
    let rows = (0..vertices).flat_map(row);
    match lowest {
        None => archive.array("x", &[vertices, features], rows)?,
        Some(lowest) => {
            // numpy.packbits(x > 0, axis=1, bitorder="little")
            let bytes = (0..vertices).flat_map(|vertex| {
                let byte = |values: &[f32]| {
                    let bits = values.iter().enumerate();
                    bits.fold(0, |byte, (at, &value)| byte | u8::from(value > 0.0) << at)
                };
                row(vertex).chunks(8).map(byte).collect::<Vec<u8>>()
            });
            archive.array(FEATURE_BITS, &[vertices, features.div_ceil(8)], bytes)?;
            archive.array(BIT_COLUMNS, &[], [features as i64].into_iter())?;
            archive.array(ARE_SIGNS, &[1], [lowest < 0.0].into_iter())?;
        }
    }
    labels(&mut archive, dataset, "")?;
    archive.finish()
}

/// Targets and splits, with `prefix` before the names of their arrays.
fn labels<W: Write + Seek>(
    archive: &mut Archive<W>,
    dataset: &Dataset,
    prefix: &str,
) -> Result<(), DataProblem> {
    let members = dataset.targets.vertices();
    let y = &format!("{prefix}y");
    let shape = [members, dataset.outputs];
    match &dataset.targets {
        Targets::Classes(_) if dataset.outputs == 0 => {}
        Targets::Classes(classes) => {
            let label = |&class: &u32| match class {
                UNLABELLED => -1,
                class => i64::from(class),
            };
            archive.array(y, &[members], classes.iter().map(label))?;
        }
        Targets::Labels(labels) => {
            // A label that is unknown is NaN, and so all are floats.
            let truths = (0..members * dataset.outputs).map(|at| {
                let (vertex, label) = (at / dataset.outputs, at % dataset.outputs);
                let truth = labels.get(vertex, label);
                truth.map_or(f32::NAN, |truth| f32::from(u8::from(truth)))
            });
            archive.array(y, &shape, truths)?;
        }
        Targets::Values(values) => archive.array(y, &shape, values.values().iter().copied())?,
    }
    let splits = [&dataset.train, &dataset.val, &dataset.test];
    for (key, list) in ["train_mask", "val_mask", "test_mask"]
        .into_iter()
        .zip(splits)
    {
        let mut mask = vec![false; members];
        list.iter().for_each(|&vertex| mask[vertex as usize] = true);
        archive.array(&format!("{prefix}{key}"), &[members], mask.into_iter())?;
    }
    Ok(())
}

/// The arrays of a `HeteroData` object of PyG's, each under the name of its type.
pub(super) fn pyg_of_types(
    to: impl Write + Seek,
    dataset: &Dataset,
    types: &Types,
) -> Result<(), DataProblem> {
    let mut archive = Archive::new(to);
    for (number, of) in types.vertices().iter().enumerate() {
        let key = |array: &str| format!("{}{BETWEEN}{array}", of.name);
        let count = [of.vertices as i64].into_iter();
        archive.array(&key("num_nodes"), &[], count)?;
        if let Some(features) = dataset.features_of_type(number) {
            let columns = features.feature_len();
            let rows = (0..of.vertices).flat_map(|vertex| {
                let mut row = vec![0.0; columns];
                features.write_row(vertex, &mut row);
                row
            });
            archive.array(&key("x"), &[of.vertices, columns], rows)?;
        }
        if number == types.labelled() {
            labels(&mut archive, dataset, &key(""))?;
        }
    }
    for of in types.edges() {
        let ends = [of.source, of.destination].map(|end| &types.vertices()[end].name);
        let key = [ends[0], &of.name, ends[1], EDGES].join(&BETWEEN.to_string());
        let rows = of.edges.iter().map(|(row, _)| row);
        let both = of.edges.cols().iter().copied().chain(rows);
        archive.array(&key, &[2, of.edges.edges()], both.map(i64::from))?;
    }
    archive.finish()
}

/// The number that a bit that is not set stands for: −1 or 0.
fn lowest_of_bits(features: &Features) -> Result<f32, DataProblem> {
    let mut row = vec![0.0; features.feature_len()];
    let mut lowest: Option<(usize, usize, f32)> = None;
    for vertex in 0..features.vertices() {
        features.write_row(vertex, &mut row);
        for (column, &value) in row.iter().enumerate() {
            let not_bits = |elsewhere| DataProblem::NotBits {
                vertex,
                column,
                value,
                elsewhere,
            };
            match lowest {
                _ if value == 1.0 => {}
                Some((.., lowest)) if value == lowest => {}
                None if value == 0.0 || value == -1.0 => lowest = Some((vertex, column, value)),
                Some((vertex, column, lowest)) if value == 0.0 || value == -1.0 => {
                    let elsewhere = format!(", and vertex {vertex}, column {column} is {lowest}");
                    return Err(not_bits(elsewhere));
                }
                _ => return Err(not_bits(String::new())),
            }
        }
    }
    Ok(lowest.map_or(0.0, |(.., lowest)| lowest))
}

/// The archive of gnn-benchmark.
pub(super) fn gnn_benchmark(to: impl Write + Seek, dataset: &Dataset) -> Result<(), DataProblem> {
    let graph = &dataset.graph;
    let mut archive = Archive::new(to);
    match &dataset.edge_weights {
        Some(weights) => archive.array("adj_data", &[weights.len()], weights.iter().copied())?,
        None => archive.array(
            "adj_data",
            &[graph.edges()],
            std::iter::repeat_n(1.0_f32, graph.edges()),
        )?,
    }
    archive.columns("adj_indices", graph)?;
    archive.offsets("adj_indptr", graph.offsets())?;
    archive.shape("adj_shape", graph.vertices(), graph.vertices())?;
    match &dataset.features {
        Features::Dense(dense) => {
            let shape = [graph.vertices(), dataset.feature_len()];
            archive.array("attr_matrix", &shape, dense.values().iter().copied())?;
        }
        Features::Bits(bits) => {
            let shape = [graph.vertices(), dataset.feature_len()];
            archive.array("attr_matrix", &shape, bits.to_dense().into_iter())?;
        }
        // Refused before.
        Features::Stored(_) => {}
        Features::Sparse(sparse) => {
            archive.array(
                "attr_data",
                &[sparse.values().len()],
                sparse.values().iter().copied(),
            )?;
            archive.indices("attr_indices", sparse.indices())?;
            archive.offsets("attr_indptr", sparse.offsets())?;
            archive.shape("attr_shape", graph.vertices(), dataset.feature_len())?;
        }
    }
    let label = |&label: &u32| {
        if label == UNLABELLED {
            -1
        } else {
            i64::from(label)
        }
    };
    let labels = dataset.class_labels().map_err(DataError::into_problem)?;
    archive.array("labels", &[labels.len()], labels.iter().map(label))?;
    let splits = [
        ("train_idx", &dataset.train),
        ("val_idx", &dataset.val),
        ("test_idx", &dataset.test),
    ];
    for (key, list) in splits {
        archive.array(
            key,
            &[list.len()],
            list.iter().map(|&vertex| i64::from(vertex)),
        )?;
    }
    archive.finish()
}

/// Raw compressed rows.
pub(super) fn raw_csr(to: &mut impl Write, graph: &impl InRowOrder) -> Result<(), DataProblem> {
    let (vertices, edges) = (graph.offsets().len() - 1, graph.edge_count());
    if i32::try_from(edges).is_err() || i32::try_from(vertices).is_err() {
        return Err(not_written(
            Format::RawCsr,
            "a graph of 2^31 edges or vertices",
        ));
    }
    let counts = [vertices as i64, edges as i64];
    put_all(to, counts.into_iter())?;
    put_all(to, graph.offsets().iter().map(|&offset| offset as i32))?;
    graph.each_piece(|piece| {
        put_all(to, piece.iter().map(|&col| col as i32)).map_err(DataProblem::from)
    })
}

struct Archive<W: Write + Seek>(ZipWriter<UntilFailure<W>>);

/// Takes everything and keeps nothing once a write has failed. A `ZipWriter` that is dropped ends its archive, and
/// would report the same failure on another line.
struct UntilFailure<W> {
    to: W,
    at: u64,
    failed: bool,
}

impl<W: Write> Write for UntilFailure<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let taken = match self.failed {
            true => bytes.len(),
            false => match self.to.write(bytes) {
                Ok(taken) => taken,
                Err(error) => {
                    self.failed = error.kind() != io::ErrorKind::Interrupted;
                    return Err(error);
                }
            },
        };
        self.at += taken as u64;
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.failed {
            true => Ok(()),
            false => self.to.flush(),
        }
    }
}

impl<W: Seek> Seek for UntilFailure<W> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        if self.failed {
            self.at = match to {
                io::SeekFrom::Start(at) => at,
                io::SeekFrom::Current(by) => self.at.saturating_add_signed(by),
                io::SeekFrom::End(_) => self.at,
            };
            return Ok(self.at);
        }
        // What is buffered is written by it.
        match self.to.seek(to) {
            Ok(at) => {
                self.at = at;
                Ok(at)
            }
            Err(error) => {
                self.failed = true;
                Err(error)
            }
        }
    }
}

impl<W: Write + Seek> Archive<W> {
    fn new(to: W) -> Self {
        Self(ZipWriter::new(UntilFailure {
            to,
            at: 0,
            failed: false,
        }))
    }

    fn indices(&mut self, key: &str, values: &[u32]) -> Result<(), DataProblem> {
        self.whole(key, values, values.iter().copied().max().map(u64::from))
    }

    /// The columns of a graph, which need not be in memory.
    fn columns(&mut self, key: &str, graph: &impl InRowOrder) -> Result<(), DataProblem> {
        let mut largest = None;
        graph.each_piece(|piece| {
            largest = largest.max(piece.iter().copied().max());
            Ok::<(), DataProblem>(())
        })?;
        let shape = [graph.edge_count() as usize];
        match fits(largest.map(u64::from)) {
            true => {
                self.start::<i32>(key, &shape)?;
                graph.each_piece(|piece| {
                    put_all(&mut self.0, piece.iter().map(|&column| column as i32))
                })?;
            }
            false => {
                self.start::<i64>(key, &shape)?;
                graph.each_piece(|piece| {
                    put_all(&mut self.0, piece.iter().map(|&column| i64::from(column)))
                })?;
            }
        }
        Ok(())
    }

    fn offsets(&mut self, key: &str, values: &[u64]) -> Result<(), DataProblem> {
        self.whole(key, values, values.last().copied())
    }

    /// Whole numbers as scipy has them: 32 bits where the largest fits.
    fn whole<T: Copy + Into<u64>>(
        &mut self,
        key: &str,
        values: &[T],
        largest: Option<u64>,
    ) -> Result<(), DataProblem> {
        let (shape, numbers) = ([values.len()], values.iter().map(|&value| value.into()));
        if fits(largest) {
            self.array(key, &shape, numbers.map(|number| number as i32))
        } else {
            self.array(key, &shape, numbers.map(|number| number as i64))
        }
    }

    fn shape(&mut self, key: &str, rows: usize, columns: usize) -> Result<(), DataProblem> {
        self.array(key, &[2], [rows as i64, columns as i64].into_iter())
    }

    /// A string, as numpy has those of Python's bytes.
    fn word(&mut self, key: &str, word: &str) -> Result<(), DataProblem> {
        self.start_of(key, &format!("|S{}", word.len()), &[], word.len())?;
        self.0.write_all(word.as_bytes())?;
        Ok(())
    }

    fn array<T: Number>(
        &mut self,
        key: &str,
        shape: &[usize],
        values: impl Iterator<Item = T>,
    ) -> Result<(), DataProblem> {
        self.start::<T>(key, shape)?;
        put_all(&mut self.0, values)?;
        Ok(())
    }

    /// Begins an array of numbers.
    fn start<T: Number>(&mut self, key: &str, shape: &[usize]) -> Result<(), DataProblem> {
        let bytes = shape.iter().product::<usize>() * T::BYTES;
        self.start_of(key, T::DESCR, shape, bytes)
    }

    /// Begins an array: the header of version 1.0, padded so that the data start at a multiple of 64 bytes.
    fn start_of(
        &mut self,
        key: &str,
        descr: &str,
        shape: &[usize],
        bytes: usize,
    ) -> Result<(), DataProblem> {
        const BEFORE: usize = 10;
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .compression_level(Some(1)) // numbers hardly shrink further
            .large_file(bytes + (1 << 20) > u32::MAX as usize);
        self.0
            .start_file(format!("{key}.npy"), options)
            .map_err(io::Error::from)?;
        let sides = match shape {
            [side] => format!("{side},"),
            sides => {
                let sides: Vec<String> = sides.iter().map(usize::to_string).collect();
                sides.join(", ")
            }
        };
        let mut header =
            format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': ({sides}), }}");
        let padded = (BEFORE + header.len() + 1).next_multiple_of(64) - BEFORE - 1;
        header.extend(std::iter::repeat_n(' ', padded - header.len()));
        header.push('\n');
        self.0.write_all(b"\x93NUMPY\x01\x00")?;
        self.0.write_all(&(header.len() as u16).to_le_bytes())?;
        self.0.write_all(header.as_bytes())?;
        Ok(())
    }

    fn finish(self) -> Result<(), DataProblem> {
        self.0.finish().map_err(io::Error::from)?;
        Ok(())
    }
}

/// Whether the largest number fits in 32 bits.
fn fits(largest: Option<u64>) -> bool {
    largest.is_none_or(|largest| largest <= i32::MAX as u64)
}

fn put_all<T: Number>(to: &mut impl Write, mut values: impl Iterator<Item = T>) -> io::Result<()> {
    const NUMBERS: usize = 1 << 14;
    let mut buffer = Vec::with_capacity(NUMBERS * T::BYTES);
    loop {
        buffer.clear();
        values
            .by_ref()
            .take(NUMBERS)
            .for_each(|value| value.put(&mut buffer));
        if buffer.is_empty() {
            return Ok(());
        }
        to.write_all(&buffer)?;
    }
}
