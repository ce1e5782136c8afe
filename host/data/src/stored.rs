//! Features that stay in their files, from which rows are read on demand.
#![cfg_attr(
    not(feature = "parts"),
    allow(dead_code, reason = "only folders of parts are read so")
)]

use super::error::{DataError, DataProblem};
#[cfg(feature = "parts")]
use super::parts::FeaturePrecision;
use half::f16;
use half::slice::HalfFloatSliceExt;
use halfgnn_graph::reorder::Permutation;
use halfgnn_platform::position::read_exact_at;
use std::fs::File;
use std::io::ErrorKind;
#[cfg(feature = "parts")]
use std::path::Path;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

/// Threads that read at once. A disk needs several requests in flight, and the threads wait more than they compute.
const READERS: usize = 8;

/// The fewest rows of a thread.
const LEAST_ROWS: usize = 256;

/// Lists of rows for each thread, so that one which is done finds some to read.
const LISTS_PER_READER: usize = 8;

/// Rows of each list that are sampled to find where it ends.
const SAMPLES_PER_LIST: usize = 16;

/// Rows at most this many bytes apart are read at once, with what lies between them: a page is read as a whole anyway.
const GAP_BYTES: u64 = 4096;

/// As much is read in one go at most, but for a single row.
const RUN_BYTES: u64 = 1 << 18;

/// A row of features for each vertex, on disk. The rows lie in the files of a folder of parts (see
/// [`OpenOptions::stored_features`](crate::OpenOptions::stored_features)), in a file that has nothing else
/// ([`StoredFeatures::of_file`]), or in one that `RowSpill` wrote. Memory has only the position of each row, 4 bytes a
/// vertex, and not even that where rows are in the order of the vertices.
///
/// Rows are read by position and not through a memory map, so that a file that shrinks is an error and no signal. A
/// named file is opened for each reading, and must have the same length and beginning as before.
#[derive(Clone, Debug, PartialEq)]
pub struct StoredFeatures {
    pub(crate) files: Arc<[StoredFile]>,
    pub(crate) kept: Kept,
    pub(crate) len: usize,
    /// Of each vertex, the number of its row where the rows of all files lie one behind the other.
    pub(crate) slots: Slots,
    /// The largest magnitude of each column, 1 for a column of zeros; none where not all rows were read.
    pub(crate) magnitudes: Option<Vec<f32>>,
    /// What columns are divided by, one after the other.
    pub(crate) divisors: Vec<Vec<f32>>,
}

/// Where the row of each vertex comes among those of all files.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Slots {
    /// In the order of the vertices, of which this is the count.
    InOrder(u32),
    /// In another.
    Listed(Vec<u32>),
}

impl Slots {
    fn len(&self) -> usize {
        match self {
            Self::InOrder(rows) => *rows as usize,
            Self::Listed(slots) => slots.len(),
        }
    }

    /// That of a vertex.
    ///
    /// # Panics
    /// If there is no such vertex.
    fn of(&self, vertex: u32) -> u32 {
        match self {
            Self::InOrder(rows) => {
                assert!(vertex < *rows, "vertex {vertex} of {rows}");
                vertex
            }
            Self::Listed(slots) => slots[vertex as usize],
        }
    }
}

/// What numbers are kept in, little-endian.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Half,
    Float,
}

impl Kept {
    pub(crate) const fn bytes(self) -> usize {
        match self {
            Self::Half => 2,
            Self::Float => 4,
        }
    }
}

#[cfg(feature = "parts")]
impl From<FeaturePrecision> for Kept {
    fn from(precision: FeaturePrecision) -> Self {
        match precision {
            FeaturePrecision::Half => Self::Half,
            FeaturePrecision::Float => Self::Float,
        }
    }
}

/// A file that has some of the rows.
#[derive(Debug, PartialEq)]
pub(crate) struct StoredFile {
    /// Where it is, or was made.
    pub path: PathBuf,
    /// The file itself, where it has no name any more.
    pub nameless: Option<Nameless>,
    /// What it starts with.
    pub header: Vec<u8>,
    /// Its length in bytes.
    pub length: u64,
    /// The byte where its first row starts.
    pub start: u64,
    /// Rows of the files before it.
    pub first: u32,
}

/// A file without a name, which no other process can open, and which is removed with its last handle.
#[derive(Debug)]
pub(crate) struct Nameless(pub Arc<File>);

impl PartialEq for Nameless {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl StoredFile {
    /// The file, if it is still what it was.
    pub(crate) fn open(&self) -> Result<Arc<File>, DataProblem> {
        let file = match &self.nameless {
            Some(Nameless(file)) => file.clone(),
            None => Arc::new(File::open(&self.path).map_err(DataProblem::Io)?),
        };
        let length = file.metadata().map_err(DataProblem::Io)?.len();
        if length != self.length {
            let reason = format!(
                "it is {length} bytes, and was {} when it was opened",
                self.length
            );
            return Err(DataProblem::changed("length", reason));
        }
        let mut header = vec![0; self.header.len()];
        read_at(&file, &mut header, 0)?;
        match header == self.header {
            true => Ok(file),
            false => Err(DataProblem::changed(
                "identity",
                "it is another file than when it was opened",
            )),
        }
    }
}

/// Bytes of a file from `at` on.
pub(crate) fn read_at(file: &File, bytes: &mut [u8], at: u64) -> Result<(), DataProblem> {
    read_exact_at(file, bytes, at).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => {
            DataProblem::changed("length", "it became shorter while it was read")
        }
        _ => DataProblem::Io(error),
    })
}

/// Bytes before the rows of a file that are compared whenever it is opened, at most.
#[cfg(feature = "parts")]
const HEADER_BYTES: u64 = 1 << 12;

impl StoredFeatures {
    /// The rows of a file from byte `start` on, one after the other, as in an array of NumPy's. A row is `columns`
    /// little-endian numbers, which are not checked. Up to 4 KiB before the rows are compared whenever the file is
    /// opened.
    ///
    /// # Errors
    /// A [`DataError`] that names the file: where it cannot be read, or is too short; [`DataProblem::TooLarge`] for
    /// more than 2³² − 1 rows; and for rows without numbers.
    #[cfg(feature = "parts")]
    pub fn of_file(
        path: &Path,
        start: u64,
        (vertices, columns): (usize, usize),
        precision: FeaturePrecision,
    ) -> Result<Self, DataError> {
        let wrong = |problem| DataError::in_file(path, problem);
        let kept = Kept::from(precision);
        let too_large = || {
            wrong(DataProblem::TooLarge {
                what: "features",
                rows: vertices as u64,
                columns: columns as u64,
            })
        };
        let rows = u32::try_from(vertices).map_err(|_| too_large())?;
        let bytes = (columns as u64).checked_mul(kept.bytes() as u64);
        let bytes = bytes.and_then(|row| row.checked_mul(rows.into()));
        let end = bytes.and_then(|bytes| start.checked_add(bytes));
        let end = end.ok_or_else(too_large)?;
        if columns == 0 {
            return Err(wrong(DataProblem::changed(
                "columns",
                "rows have no numbers",
            )));
        }
        let header = || {
            let file = File::open(path).map_err(DataProblem::Io)?;
            let length = file.metadata().map_err(DataProblem::Io)?.len();
            if length < end {
                let reason = format!("it is {length} bytes, and its rows end at {end}");
                return Err(DataProblem::changed("length", reason));
            }
            let mut header = vec![0; start.min(HEADER_BYTES) as usize];
            read_at(&file, &mut header, 0)?;
            Ok((header, length))
        };
        let (header, length) = header().map_err(wrong)?;
        let file = StoredFile {
            path: path.to_owned(),
            nameless: None,
            header,
            length,
            start,
            first: 0,
        };
        Ok(Self {
            files: Arc::new([file]),
            kept,
            len: columns,
            slots: Slots::InOrder(rows),
            magnitudes: None,
            divisors: Vec::new(),
        })
    }

    /// What numbers are kept in.
    #[cfg(feature = "parts")]
    pub fn precision(&self) -> FeaturePrecision {
        match self.kept {
            Kept::Half => FeaturePrecision::Half,
            Kept::Float => FeaturePrecision::Float,
        }
    }

    /// The number of features of a vertex.
    pub fn feature_len(&self) -> usize {
        self.len
    }

    /// The number of vertices.
    pub fn vertices(&self) -> usize {
        self.slots.len()
    }

    /// The bytes of all rows as they lie in the files.
    pub fn file_bytes(&self) -> u64 {
        (self.slots.len() as u64).saturating_mul(self.row_bytes() as u64)
    }

    fn row_bytes(&self) -> usize {
        self.len * self.kept.bytes()
    }

    /// Those of some vertices, in the order in which they are named.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn selected(&self, vertices: &[u32]) -> Self {
        let slots = vertices.iter().map(|&vertex| self.slots.of(vertex));
        Self {
            slots: Slots::Listed(slots.collect()),
            ..self.clone()
        }
    }

    pub(crate) fn reorder(&mut self, order: &Permutation) {
        let slots = match &self.slots {
            Slots::InOrder(rows) => &(0..*rows).collect(),
            Slots::Listed(slots) => slots,
        };
        self.slots = Slots::Listed(order.apply(slots, 1));
    }

    /// Reads the rows of vertices, in any order: calls `put` with each row and its destination, from several threads.
    ///
    /// # Errors
    /// A [`DataError`] that names the file: where it cannot be read, or is another or of another length than it was.
    ///
    /// # Panics
    /// If there is no such vertex.
    pub fn read_rows<T: Send>(
        &self,
        mut rows: Vec<(u32, &mut [T])>,
        put: impl Fn(&mut StoredRow<'_>, &mut [T]) + Sync,
    ) -> Result<(), DataError> {
        for (row, _) in &mut rows {
            *row = self.slots.of(*row);
        }
        let readers = rows.len().div_ceil(LEAST_ROWS).clamp(1, READERS);
        if readers == 1 {
            return self.read_list(&mut rows, &mut Buffers::new(self.len), &put);
        }
        let lists = Mutex::new(partitioned(rows, readers * LISTS_PER_READER).into_iter());
        let next = || {
            let mut lists = lists.lock().unwrap_or_else(PoisonError::into_inner);
            lists.next()
        };
        let read = || {
            let mut buffers = Buffers::new(self.len);
            while let Some(mut list) = next() {
                self.read_list(&mut list, &mut buffers, &put)?;
            }
            Ok(())
        };
        thread::scope(|scope| {
            let mut threads = Vec::new();
            for _ in 0..readers {
                let thread = thread::Builder::new().spawn_scoped(scope, read);
                let thread = thread
                    .map_err(|error| DataError::new("features on disk", DataProblem::Io(error)))?;
                threads.push(thread);
            }
            threads.into_iter().try_for_each(|thread| {
                let done = thread.join();
                done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            })
        })
    }

    /// Rows by their slots.
    fn read_list<T>(
        &self,
        rows: &mut [(u32, &mut [T])],
        buffers: &mut Buffers,
        put: &impl Fn(&mut StoredRow<'_>, &mut [T]),
    ) -> Result<(), DataError> {
        // The disk is then read from its beginning to its end, and rows that lie together are read at once. Sampled
        // vertices are a few ascending runs, which this sort merges.
        rows.sort_by_key(|(slot, _)| *slot);
        self.read_sorted(rows, buffers, put)
    }

    /// Rows by their slots, which ascend.
    fn read_sorted<T>(
        &self,
        mut rows: &mut [(u32, &mut [T])],
        buffers: &mut Buffers,
        put: &impl Fn(&mut StoredRow<'_>, &mut [T]),
    ) -> Result<(), DataError> {
        while let Some(&(slot, _)) = rows.first() {
            let at = self.files.partition_point(|file| file.first <= slot) - 1;
            let file = &self.files[at];
            let next = self.files.get(at + 1);
            let own = next.map_or(rows.len(), |next| {
                rows.partition_point(|(slot, _)| *slot < next.first)
            });
            let (own, others) = rows.split_at_mut(own);
            self.read_file(file, own, buffers, put)
                .map_err(|problem| DataError::in_file(&file.path, problem))?;
            rows = others;
        }
        Ok(())
    }

    fn read_file<T>(
        &self,
        file: &StoredFile,
        rows: &mut [(u32, &mut [T])],
        buffers: &mut Buffers,
        put: &impl Fn(&mut StoredRow<'_>, &mut [T]),
    ) -> Result<(), DataProblem> {
        let source = file.open()?;
        let row = self.row_bytes();
        let away = |from: u32, to: u32| u64::from(to - from) * row as u64;
        let mut rest = rows;
        while let Some(&(first, _)) = rest.first() {
            let together = |two: &[(u32, &mut [T])]| {
                away(two[0].0, two[1].0) <= GAP_BYTES + row as u64
                    && away(first, two[1].0) + row as u64 <= RUN_BYTES
            };
            let run = 1 + rest.windows(2).take_while(|two| together(two)).count();
            let (run, others) = rest.split_at_mut(run);
            let last = run.last().map_or(first, |(last, _)| *last);
            let bytes = away(first, last) as usize + row;
            if buffers.bytes.len() < bytes {
                buffers.bytes.resize(bytes, 0);
            }
            let bytes = &mut buffers.bytes[..bytes];
            read_at(&source, bytes, file.start + away(file.first, first))?;
            for (slot, to) in run {
                let from = away(first, *slot) as usize;
                let mut row = StoredRow {
                    kept: self.kept,
                    bytes: &bytes[from..from + row],
                    divisors: &self.divisors,
                    halves: &mut buffers.halves,
                    values: &mut buffers.values,
                };
                put(&mut row, to);
            }
            rest = others;
        }
        Ok(())
    }
}

/// A row that was read.
#[derive(Debug)]
pub struct StoredRow<'a> {
    kept: Kept,
    bytes: &'a [u8],
    divisors: &'a [Vec<f32>],
    halves: &'a mut [f16],
    values: &'a mut [f32],
}

impl StoredRow<'_> {
    /// Its halves as they lie in the file; none where those are floats, or columns are divided by something.
    pub fn halves(&mut self) -> Option<&[f16]> {
        match self.kept {
            Kept::Half if self.divisors.is_empty() => Some(self.kept_halves()),
            _ => None,
        }
    }

    /// In float.
    pub fn floats(&mut self) -> &[f32] {
        match self.kept {
            Kept::Half => {
                self.kept_halves();
                // Many at a time, by the processor's own instruction.
                self.halves.convert_to_f32_slice(self.values);
            }
            Kept::Float => {
                bytemuck::cast_slice_mut(self.values).copy_from_slice(self.bytes);
                let native =
                    |value: &mut f32| *value = f32::from_bits(u32::from_le(value.to_bits()));
                self.values.iter_mut().for_each(native);
            }
        }
        for divisors in self.divisors {
            let divide = |(value, divisor): (&mut f32, &f32)| *value /= divisor;
            self.values.iter_mut().zip(divisors).for_each(divide);
        }
        self.values
    }

    fn kept_halves(&mut self) -> &[f16] {
        bytemuck::cast_slice_mut(self.halves).copy_from_slice(self.bytes);
        let native = |half: &mut f16| *half = f16::from_bits(u16::from_le(half.to_bits()));
        self.halves.iter_mut().for_each(native);
        self.halves
    }
}

/// Partitions rows into `lists` lists of about equal length. The rows of a list lie before those of the next. The lists
/// are not sorted; their reader sorts them.
fn partitioned<T>(rows: Vec<(u32, T)>, lists: usize) -> Vec<Vec<(u32, T)>> {
    let apart = (rows.len() / (lists * SAMPLES_PER_LIST)).max(1);
    let mut samples: Vec<u32> = rows.iter().step_by(apart).map(|(slot, _)| *slot).collect();
    samples.sort_unstable();
    let firsts: Vec<u32> = (1..lists)
        .map(|list| samples[list * samples.len() / lists])
        .collect();
    let capacity = rows.len() / lists * 5 / 4;
    let mut partitioned: Vec<_> = (0..lists).map(|_| Vec::with_capacity(capacity)).collect();
    for (slot, row) in rows {
        let list = firsts.partition_point(|&first| first <= slot);
        partitioned[list].push((slot, row));
    }
    partitioned
}

/// What a thread reads to.
struct Buffers {
    bytes: Vec<u8>,
    /// A row as it is kept, of halves.
    halves: Vec<f16>,
    /// A row.
    values: Vec<f32>,
}

impl Buffers {
    fn new(columns: usize) -> Self {
        Self {
            bytes: Vec::new(),
            halves: vec![f16::ZERO; columns],
            values: vec![0.0; columns],
        }
    }
}

#[cfg(all(test, feature = "parts"))]
mod tests {
    use super::*;
    use crate::Features;
    use std::io::Write;

    /// Seven bytes, and four rows of three numbers, row-major from 0 on.
    fn written(number: impl Fn(f32) -> Vec<u8>) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"numbers").unwrap();
        for value in 0..12 {
            file.write_all(&number(value as f32)).unwrap();
        }
        file
    }

    fn read(rows: &StoredFeatures, vertex: u32) -> Result<Vec<f32>, DataError> {
        let mut row = vec![f32::NAN; rows.feature_len()];
        let put = |row: &mut StoredRow<'_>, to: &mut [f32]| to.copy_from_slice(row.floats());
        rows.read_rows(vec![(vertex, &mut row)], put)?;
        Ok(row)
    }

    /// The halves of a vertex, where they are to be had as they lie in the file.
    fn halves(rows: &StoredFeatures, vertex: u32) -> Option<Vec<f16>> {
        let mut found = [None];
        let put = |row: &mut StoredRow<'_>, to: &mut [Option<Vec<f16>>]| {
            to[0] = row.halves().map(<[f16]>::to_vec);
        };
        rows.read_rows(vec![(vertex, &mut found)], put).unwrap();
        found[0].take()
    }

    #[test]
    fn rows_are_dealt_by_slots_into_lists_of_about_as_many() {
        let scattered = |at: u32| at.wrapping_mul(2_654_435_761) % 50_000;
        // Sampled from everywhere; most of them consecutive; all the same.
        let slots: [Vec<u32>; 3] = [
            (0..9000).map(scattered).collect(),
            (0..9000).map(|at| at % 9 / 8 * 40_000 + at).collect(),
            vec![7; 9000],
        ];
        for (case, slots) in slots.into_iter().enumerate() {
            let rows: Vec<(u32, usize)> = slots.iter().copied().zip(0..).collect();
            let lists = partitioned(rows.clone(), 24);
            assert_eq!(lists.len(), 24);
            let mut end = 0;
            for list in lists.iter().filter(|list| !list.is_empty()) {
                let slots = list.iter().map(|&(slot, _)| slot);
                assert!(end <= slots.clone().min().unwrap(), "{case}");
                end = slots.max().unwrap();
                assert!(case == 2 || list.len() < 3 * 9000 / 24, "{case}");
            }
            let mut all = lists.concat();
            all.sort_by_key(|&(_, place)| place);
            assert_eq!(all, rows, "{case}");
        }
    }

    #[test]
    fn rows_of_a_file_are_read_from_a_byte_on() {
        let half = written(|value| f16::from_f32(value).to_le_bytes().to_vec());
        let float = written(|value| value.to_le_bytes().to_vec());
        for (file, precision) in [
            (half, FeaturePrecision::Half),
            (float, FeaturePrecision::Float),
        ] {
            let open = |start, shape| StoredFeatures::of_file(file.path(), start, shape, precision);
            let rows = open(7, (4, 3)).unwrap();
            assert_eq!((rows.vertices(), rows.feature_len()), (4, 3));
            assert_eq!(rows.precision(), precision);
            assert_eq!(read(&rows, 0).unwrap(), [0.0, 1.0, 2.0]);
            assert_eq!(read(&rows, 3).unwrap(), [9.0, 10.0, 11.0]);
            let of_file = match precision {
                FeaturePrecision::Half => Some([3.0, 4.0, 5.0].map(f16::from_f32).to_vec()),
                FeaturePrecision::Float => None,
            };
            assert_eq!(halves(&rows, 1), of_file);
            let message = |start, shape| {
                let error = open(start, shape).unwrap_err().to_string();
                let place = file.path().display().to_string();
                error.strip_prefix(&place).expect("its name").to_owned()
            };
            let (has, needs) = (7 + 12 * precision.bytes(), 7 + 15 * precision.bytes());
            assert_eq!(
                message(7, (5, 3)),
                format!(
                    ": length: it is {has} bytes, and its rows end at {needs}; leave the file alone while its rows are read, and \
                     open it again"
                )
            );
            for message in [message(u64::MAX, (1, 1)), message(7, (1 << 32, 1))] {
                assert!(message.starts_with(": features of "), "{message}");
            }
            assert!(message(7, (4, 0)).starts_with(": columns: rows have no numbers"));
            let mut of_file = Features::Stored(Arc::new(rows));
            let error = of_file.column_magnitudes().unwrap_err().to_string();
            assert!(error.contains("the largest of each column"), "{error}");
            of_file.divide_columns(&[1.0, 2.0, 4.0]);
            let rows = of_file.as_stored().unwrap();
            assert_eq!(read(rows, 3).unwrap(), [9.0, 5.0, 2.75]);
            assert_eq!(halves(rows, 3), None);

            let mut bytes = std::fs::read(file.path()).unwrap();
            bytes[6] ^= 1;
            std::fs::write(file.path(), &bytes).unwrap();
            let error = read(rows, 3).unwrap_err().to_string();
            assert!(error.contains(": identity: it is another file"), "{error}");
            bytes[6] ^= 1;
            std::fs::write(file.path(), &bytes[..bytes.len() - 1]).unwrap();
            let error = read(rows, 3).unwrap_err().to_string();
            let expected = format!(": length: it is {} bytes, and was {has}", has - 1);
            assert!(error.contains(&expected), "{error}");
        }
    }
}
