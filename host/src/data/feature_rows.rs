//! Features of vertices as a backend computes on them: a matrix there, or rows that stay elsewhere until they are read.

use super::sharded_rows::ShardedRows;
use super::{StoredFeatures, StoredRow};
use crate::backend::{Backend, MemoryKind};
use crate::distributed::Group;
use crate::error::Error;
use crate::ops::{self, Activation, Dropout, RowCache};
use crate::tensor::{self, Array, Element, Matrix, Precision, padded};
use halfgnn_contract::sampling::NO_VERTEX;
use std::mem;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::{self, JoinHandle};

/// Bytes of rows that are read at a time on their way to a matrix: about as many as a batch has, because each reading
/// goes through the files from beginning to end.
const PIECE_BYTES: usize = 256 << 20;

/// A row of features for each vertex: in a matrix, or elsewhere. From elsewhere the rows of a batch or a chunk of the
/// graph are fetched.
#[derive(Debug)]
pub struct FeatureRows<B: Backend, E: Element> {
    /// Without rows where they are elsewhere.
    matrix: Matrix<B, E>,
    elsewhere: Option<Elsewhere<B, E>>,
    /// Copies of rows of a matrix in another memory.
    cache: OnceLock<RowCache<B, E>>,
}

/// Where rows are that are fetched.
#[derive(Debug)]
enum Elsewhere<B: Backend, E: Element> {
    Disk(DiskRows<E>),
    /// Sharded over ranks, of which this is one.
    Ranks(Box<ShardedRows<B, E>>),
    /// The number of rows, of which there are none: the device only counts memory.
    Counted(usize),
}

/// Rows in files, and memory of the host that they are read to.
#[derive(Clone, Debug)]
struct DiskRows<E> {
    stored: Arc<StoredFeatures>,
    /// The last buffer, kept for reuse: fresh memory costs about as much as the reading itself.
    buffer: Arc<Mutex<Vec<E>>>,
}

impl<E: Element> DiskRows<E> {
    /// The rows of vertices, with their padding.
    fn read(&self, vertices: &[u32]) -> Result<Vec<E>, Error> {
        let columns = self.stored.feature_len();
        let stride = padded::<E>(columns);
        let mut elements = self.buffer(vertices.len() * stride);
        let mut rows = Vec::with_capacity(vertices.len());
        for (&vertex, row) in vertices.iter().zip(elements.chunks_exact_mut(stride)) {
            match vertex {
                NO_VERTEX => row.fill(E::zeroed()),
                _ => rows.push((vertex, row)),
            }
        }
        // The padding is zeros from the beginning on: rows lie as far apart as those that were read before.
        let put = |stored: &mut StoredRow<'_>, row: &mut [E]| {
            let row = &mut row[..columns];
            match stored.halves() {
                Some(halves) if E::PRECISION == Precision::Half => {
                    row.copy_from_slice(bytemuck::cast_slice(halves));
                }
                _ => tensor::round(stored.floats(), row),
            }
        };
        let done = self.stored.read_rows(rows, put);
        done.map_err(|error| Error::Features(error.to_string()))?;
        Ok(elements)
    }

    /// A buffer of `len` elements: zeros, or what was read before.
    fn buffer(&self, len: usize) -> Vec<E> {
        let mut buffer = self.buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let mut elements = mem::take(&mut *buffer);
        drop(buffer);
        if elements.capacity() < len {
            drop(elements);
            // Zeroed by the system, so that the threads that write rows touch the memory first. The spare eighth is for
            // larger batches.
            elements = bytemuck::zeroed_vec(len + len / 8);
        }
        elements.resize(len, E::zeroed());
        elements
    }

    /// Keeps the buffer for the next reading.
    fn keep(&self, elements: Vec<E>) {
        *self.buffer.lock().unwrap_or_else(PoisonError::into_inner) = elements;
    }
}

impl<B: Backend, E: Element> From<Matrix<B, E>> for FeatureRows<B, E> {
    fn from(matrix: Matrix<B, E>) -> Self {
        Self::of(matrix, None)
    }
}

impl<B: Backend, E: Element> FeatureRows<B, E> {
    fn of(matrix: Matrix<B, E>, elsewhere: Option<Elsewhere<B, E>>) -> Self {
        Self {
            matrix,
            elsewhere,
            cache: OnceLock::new(),
        }
    }

    /// Rows that stay on disk; each number is rounded to the nearest element where it is read.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn stored(backend: &B, stored: Arc<StoredFeatures>) -> Result<Self, Error> {
        let columns = stored.feature_len();
        let matrix = Matrix::zeros(backend, 0, columns, MemoryKind::Features)?;
        let rows = DiskRows {
            stored,
            buffer: Arc::default(),
        };
        Ok(Self::of(matrix, Some(Elsewhere::Disk(rows))))
    }

    /// Rows of the given numbers of vertices and columns, sharded over the ranks of `group`. Each rank has the rows of
    /// every `ranks`-th vertex in a matrix, written by `write_row(vertex, values)`, and fetches others from their
    /// ranks. All ranks must therefore take rows equally often and at the same place among their exchanges, including
    /// ranks that need none. The rows have the same bits as in one matrix. A single rank has all of them in a matrix.
    ///
    /// # Errors
    /// Those of [`Matrix::from_rows`].
    pub fn sharded(
        backend: &B,
        group: &Group,
        (vertices, columns): (usize, usize),
        write_row: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<Self, Error> {
        let (shape, kind) = ((vertices, columns), MemoryKind::Features);
        if group.ranks() == 1 {
            return Matrix::from_rows(backend, shape, kind, write_row).map(Into::into);
        }
        let rows = ShardedRows::new(backend, group, shape, write_row)?;
        let matrix = Matrix::zeros(backend, 0, columns, kind)?;
        Ok(Self::of(matrix, Some(Elsewhere::Ranks(Box::new(rows)))))
    }

    /// The given numbers of rows and columns, of which nothing is fetched, for a backend that only counts memory.
    pub(crate) fn counted(backend: &B, (rows, columns): (usize, usize)) -> Result<Self, Error> {
        let matrix = Matrix::zeros(backend, 0, columns, MemoryKind::Features)?;
        Ok(Self::of(matrix, Some(Elsewhere::Counted(rows))))
    }

    /// The matrix of those that are [whole](FeatureRows::are_whole).
    pub(crate) fn into_matrix(self) -> Matrix<B, E> {
        self.matrix
    }

    /// Number of vertices.
    pub fn rows(&self) -> usize {
        match &self.elsewhere {
            None => self.matrix.rows(),
            Some(Elsewhere::Disk(rows)) => rows.stored.vertices(),
            Some(Elsewhere::Ranks(rows)) => rows.vertices(),
            Some(Elsewhere::Counted(rows)) => *rows,
        }
    }

    /// Features of a vertex.
    pub fn columns(&self) -> usize {
        self.matrix.columns()
    }

    /// Whether all of them are in a matrix, and none is fetched.
    pub fn are_whole(&self) -> bool {
        self.elsewhere.is_none()
    }

    /// All of them, or a matrix without rows where they are not [whole](FeatureRows::are_whole).
    pub fn matrix(&self) -> &Matrix<B, E> {
        &self.matrix
    }

    /// [`FeatureRows::matrix`], to be written.
    pub(crate) fn matrix_mut(&mut self) -> &mut Matrix<B, E> {
        &mut self.matrix
    }

    /// Those that are on disk, if they are.
    pub fn as_stored(&self) -> Option<&Arc<StoredFeatures>> {
        match &self.elsewhere {
            Some(Elsewhere::Disk(rows)) => Some(&rows.stored),
            _ => None,
        }
    }

    /// Caches the rows of `vertices` in the device's memory, from which they are then taken. This helps where the
    /// matrix lies in other memory ([`MemoryKind::HostFeatures`]), whose rows come over a bus.
    /// [`most_read`](super::most_read) are those that batches read most often.
    ///
    /// # Errors
    /// [`Error::Unsupported`] where rows are not [whole](FeatureRows::are_whole), are cached already, or one is of no
    /// vertex; [`Error::Driver`] where there is not enough memory.
    pub fn cache_rows(&self, backend: &B, vertices: &[u32]) -> Result<(), Error> {
        let refuse = |reason: &str| {
            Err(Error::Unsupported {
                operator: "FeatureRows::cache_rows",
                reason: reason.into(),
            })
        };
        if !self.are_whole() {
            return refuse("copies are of rows in a matrix, and these are fetched from elsewhere");
        }
        let twice = || refuse("these rows have copies already");
        if self.cached().is_some() {
            return twice();
        }
        let cache = RowCache::new(backend, &self.matrix, vertices)?;
        self.cache.set(cache).or_else(|_| twice())
    }

    /// The cached rows, if any: see [`FeatureRows::cache_rows`].
    pub fn cached(&self) -> Option<&RowCache<B, E>> {
        self.cache.get()
    }

    /// Takes rows of the matrix, or of the cache.
    fn take_of_matrix(
        &self,
        backend: &B,
        vertices: &Array<B, u32>,
        taken: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        match self.cached() {
            Some(cache) => ops::take_cached_rows(backend, (&self.matrix, cache), vertices, taken),
            None => ops::take_rows(backend, &self.matrix, vertices, taken),
        }
    }

    /// The rows of some vertices, in memory of `kind`. Where rows are [sharded](FeatureRows::sharded), all ranks call
    /// this at once.
    ///
    /// # Errors
    /// [`Error::Features`] where they cannot be read, [`Error::Communication`] where another rank does not send them,
    /// [`Error::Driver`] where there is not enough memory.
    pub fn take(
        &self,
        backend: &B,
        vertices: &Array<B, u32>,
        kind: MemoryKind,
    ) -> Result<Matrix<B, E>, Error> {
        let mut taken = Matrix::uninit(backend, vertices.len(), self.columns(), kind)?;
        match &self.elsewhere {
            Some(Elsewhere::Ranks(rows)) => rows.take_once(backend, vertices, &mut taken)?,
            _ => self.take_into(backend, vertices, &mut taken)?,
        }
        Ok(taken)
    }

    /// The same, into `taken`; the row of [`NO_VERTEX`] is zeros. The buffers of an exchange of rows are kept for the
    /// next.
    ///
    /// # Errors
    /// Those of [`FeatureRows::take`].
    pub fn take_into(
        &self,
        backend: &B,
        vertices: &Array<B, u32>,
        taken: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        let Some(elsewhere) = &self.elsewhere else {
            return self.take_of_matrix(backend, vertices, taken);
        };
        Error::expect("FeatureRows", "rows", vertices.len(), taken.rows())?;
        Error::expect("FeatureRows", "columns", self.columns(), taken.columns())?;
        let on_disk = match elsewhere {
            Elsewhere::Disk(rows) => rows,
            Elsewhere::Ranks(rows) => return rows.take_into(backend, vertices, taken),
            Elsewhere::Counted(_) => return Ok(()),
        };
        let vertices = vertices.to_vec(backend)?;
        // In chunks, so that the host never has all rows of a large chunk of the graph.
        let piece = (PIECE_BYTES / size_of::<E>() / taken.stride()).max(1);
        for (number, vertices) in vertices.chunks(piece).enumerate() {
            let rows = on_disk.read(vertices)?;
            taken.write_rows(backend, number * piece, &rows)?;
            on_disk.keep(rows);
        }
        Ok(())
    }

    /// [`FeatureRows::take_into`], then the dropout of the taken rows, if there is one, where rows are
    /// [whole](FeatureRows::are_whole). Both are one pass, unless rows are fetched over a bus: such a copy overlaps
    /// with other kernels.
    ///
    /// # Errors
    /// Those of [`FeatureRows::take_into`] and [`ops::activate_rows`].
    pub(crate) fn take_through(
        &self,
        backend: &B,
        dropout: Option<Dropout<'_, B>>,
        vertices: &Array<B, u32>,
        taken: &mut Matrix<B, E>,
    ) -> Result<(), Error> {
        if dropout.is_none() {
            return self.take_into(backend, vertices, taken);
        }
        let op = Activation {
            dropout,
            ..Activation::default()
        };
        if self.matrix.is_remote(backend) {
            self.take_of_matrix(backend, vertices, taken)?;
            return ops::activate(backend, &op, None, taken);
        }
        ops::activate_rows(backend, &op, &self.matrix, vertices, taken)
    }

    /// Begins to read the rows of vertices that will be taken next; none where they are not on disk.
    ///
    /// # Errors
    /// [`Error::Features`] where there is no thread for it.
    pub fn read_ahead(&self, vertices: Vec<u32>) -> Result<Option<ReadAhead<E>>, Error> {
        match &self.elsewhere {
            Some(Elsewhere::Disk(rows)) => ReadAhead::begin(rows, vertices).map(Some),
            _ => Ok(None),
        }
    }

    /// Takes part in an exchange of rows of which this rank needs none, where they are [sharded](FeatureRows::sharded).
    ///
    /// # Errors
    /// Those of [`FeatureRows::take`].
    pub(crate) fn take_none(&self, backend: &B) -> Result<(), Error> {
        let Some(Elsewhere::Ranks(rows)) = &self.elsewhere else {
            return Ok(());
        };
        let kind = MemoryKind::Activations;
        let none = Array::zeros(backend, 0, kind)?;
        let mut taken = Matrix::uninit(backend, 0, self.columns(), kind)?;
        rows.take_into(backend, &none, &mut taken)
    }
}

/// Rows on disk that are read by a thread of their own while others are computed on.
#[derive(Debug)]
pub struct ReadAhead<E> {
    of: DiskRows<E>,
    vertices: Arc<[u32]>,
    reader: JoinHandle<Result<Vec<E>, Error>>,
}

impl<E: Element> ReadAhead<E> {
    fn begin(of: &DiskRows<E>, vertices: Vec<u32>) -> Result<Self, Error> {
        let vertices: Arc<[u32]> = vertices.into();
        let (rows, of_reader) = (of.clone(), vertices.clone());
        let reader = thread::Builder::new()
            .name("features of the next batch".into())
            .spawn(move || rows.read(&of_reader));
        let refuse = |error| Error::Features(format!("no thread to read features: {error}"));
        Ok(Self {
            of: of.clone(),
            vertices,
            reader: reader.map_err(refuse)?,
        })
    }

    /// Waits for the rows and writes them to `taken`, if they are the rows of `wanted`: the same vertices in the same
    /// order, with [`NO_VERTEX`] in between. Returns whether they are; else nothing is written.
    ///
    /// # Errors
    /// Those of [`FeatureRows::take`].
    pub fn finish<B: Backend>(
        self,
        backend: &B,
        wanted: &Array<B, u32>,
        taken: &mut Matrix<B, E>,
    ) -> Result<bool, Error> {
        let done = self.reader.join();
        let rows = done.unwrap_or_else(|panic| std::panic::resume_unwind(panic))?;
        let done = put(backend, (&self.vertices, &rows), wanted, taken);
        self.of.keep(rows);
        done
    }
}

/// Writes the rows of `wanted` to `taken`, if they are those of these vertices: see [`ReadAhead::finish`].
fn put<B: Backend, E: Element>(
    backend: &B,
    (vertices, rows): (&[u32], &[E]),
    wanted: &Array<B, u32>,
    taken: &mut Matrix<B, E>,
) -> Result<bool, Error> {
    let wanted = wanted.to_vec(backend)?;
    let asked_for = wanted.iter().filter(|&&vertex| vertex != NO_VERTEX);
    if !asked_for.eq(vertices) {
        return Ok(false);
    }
    if wanted.len() == vertices.len() {
        taken.write_rows(backend, 0, rows)?;
        return Ok(true);
    }
    let stride = taken.stride();
    let mut spread = vec![E::zeroed(); wanted.len() * stride];
    let places = wanted.iter().zip(spread.chunks_exact_mut(stride));
    let places = places.filter(|&(&vertex, _)| vertex != NO_VERTEX);
    for ((_, to), from) in places.zip(rows.chunks_exact(stride)) {
        to.copy_from_slice(from);
    }
    taken.write_rows(backend, 0, &spread)?;
    Ok(true)
}

#[cfg(all(test, feature = "readers"))]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::data::parts::{Deal, FeaturePrecision};
    use crate::data::{Dataset, Features, OpenOptions, Splits};
    use crate::graph::Graph;
    use half::{bf16, f16};

    const COLUMNS: usize = 9;

    /// Five vertices whose features are on disk, and a folder that is removed behind them.
    fn stored() -> (tempfile::TempDir, Arc<StoredFeatures>) {
        let values = (0..5 * COLUMNS).map(|value| value as f32 + 1.0).collect();
        let features = Features::dense(COLUMNS, values).expect("whole rows");
        let graph = Graph::from_edges(5, &[], &[]).expect("a graph");
        let dataset = Dataset::new("five", graph, features, vec![0; 5], Splits::default());
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("five");
        let deal = Deal {
            owners: &[1, 0, 1, 0, 0],
            parts: 2,
            by: "hand",
            precision: FeaturePrecision::Half,
        };
        let written = dataset.expect("a dataset").save_parts(&path, &deal);
        written.expect("a folder of parts");
        let mut options = OpenOptions::default();
        options.stored_features = true;
        let dataset = Dataset::open_with(&path, &options).expect("a folder of parts");
        let rows = dataset.features.as_stored().expect("on disk").clone();
        (folder, rows)
    }

    /// The rows of some vertices, with their padding.
    fn expected(vertices: &[u32]) -> Vec<f16> {
        let mut rows = Vec::new();
        for &vertex in vertices {
            let first = (vertex as usize).wrapping_mul(COLUMNS);
            rows.extend((0..16).map(|column| match (vertex, column) {
                (NO_VERTEX, _) | (_, COLUMNS..) => f16::ZERO,
                _ => f16::from_f32((first + column) as f32 + 1.0),
            }));
        }
        rows
    }

    #[test]
    fn rows_are_read_where_they_are_wanted_and_ahead() {
        let (_folder, stored) = stored();
        let backend = Cpu::new();
        let rows =
            FeatureRows::<Cpu, f16>::stored(&backend, stored.clone()).expect("no memory is needed");
        assert_eq!((rows.rows(), rows.columns()), (5, COLUMNS));
        assert_eq!(rows.matrix().shape(), (0, COLUMNS));
        let wanted = [4, NO_VERTEX, 0, 3, NO_VERTEX];
        let order = Array::from_slice(&backend, &wanted, MemoryKind::Graph).expect("memory");
        let taken = rows.take(&backend, &order, MemoryKind::Features);
        let taken = taken.and_then(|taken| taken.to_padded(&backend));
        assert_eq!(taken.expect("its rows"), expected(&wanted));

        let ahead = |vertices: &[u32]| {
            let ones = [1.0; 5 * COLUMNS];
            let kind = MemoryKind::Features;
            let mut taken = Matrix::<_, f16>::from_f32(&backend, 5, COLUMNS, &ones, kind)?;
            let ahead = rows.read_ahead(vertices.to_vec())?.expect("on disk");
            let done = ahead.finish(&backend, &order, &mut taken)?;
            Ok::<_, Error>((done, taken.to_padded(&backend)?))
        };
        let (done, taken) = ahead(&[4, 0, 3]).expect("its rows");
        assert!(done);
        assert_eq!(taken, expected(&wanted));
        for others in [&[4, 3, 0][..], &[4, 0], &[4, 0, 3, 1]] {
            let (done, taken) = ahead(others).expect("its rows");
            assert!(
                !done && taken[..COLUMNS] == [f16::ONE; COLUMNS],
                "{others:?}"
            );
        }
        // In memory in which others were.
        let wanted = [NO_VERTEX, 1, 2, NO_VERTEX];
        let order = Array::from_slice(&backend, &wanted, MemoryKind::Graph).expect("memory");
        let taken = rows.take(&backend, &order, MemoryKind::Features);
        let taken = taken.and_then(|taken| taken.to_padded(&backend));
        assert_eq!(taken.expect("its rows"), expected(&wanted));
    }

    #[test]
    fn halves_on_disk_become_elements_of_every_format() {
        fn check<E: Element>(stored: &Arc<StoredFeatures>, divisor: f32) {
            let backend = Cpu::new();
            let rows = FeatureRows::<Cpu, E>::stored(&backend, stored.clone())
                .expect("no memory is needed");
            let order = Array::from_slice(&backend, &[2], MemoryKind::Graph).expect("memory");
            let taken = rows.take(&backend, &order, MemoryKind::Features);
            let taken = taken.and_then(|taken| taken.to_f32(&backend));
            let value = |column| E::from_f32((2 * COLUMNS + column + 1) as f32 / divisor).to_f32();
            let expected: Vec<f32> = (0..COLUMNS).map(value).collect();
            assert_eq!(taken.expect("its rows"), expected, "{}", E::PRECISION);
        }
        let (_folder, stored) = stored();
        let mut divided = Features::Stored(stored.clone());
        divided.divide_columns(&[3.0; COLUMNS]);
        let divided = divided.as_stored().expect("on disk").clone();
        for (stored, divisor) in [(&stored, 1.0), (&divided, 3.0)] {
            check::<f16>(stored, divisor);
            check::<bf16>(stored, divisor);
            check::<f32>(stored, divisor);
        }
    }
}
