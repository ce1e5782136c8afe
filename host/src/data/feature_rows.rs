//! Features of vertices as a backend computes on them: a matrix there, or rows that stay elsewhere until they are wanted.

use super::StoredFeatures;
use super::sharded_rows::ShardedRows;
use crate::backend::{Backend, MemoryKind};
use crate::distributed::Group;
use crate::error::Error;
use crate::ops;
use crate::tensor::{self, Array, Element, Matrix, padded};
use halfgnn_contract::sampling::NO_VERTEX;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

/// Bytes of rows that are read at a time on their way to a matrix.
const PIECE_BYTES: usize = 64 << 20;

/// A row of features for each vertex: in a matrix, or elsewhere, from where those are fetched that a batch or a piece of the graph takes.
#[derive(Debug)]
pub struct FeatureRows<B: Backend, E: Element> {
    /// Without rows where they are elsewhere.
    matrix: Matrix<B, E>,
    elsewhere: Option<Elsewhere<B, E>>,
}

/// Where rows are that are fetched.
#[derive(Debug)]
enum Elsewhere<B: Backend, E: Element> {
    Disk(Arc<StoredFeatures>),
    /// Dealt out to ranks, of which this is one.
    Ranks(Box<ShardedRows<B, E>>),
}

impl<B: Backend, E: Element> From<Matrix<B, E>> for FeatureRows<B, E> {
    fn from(matrix: Matrix<B, E>) -> Self {
        Self {
            matrix,
            elsewhere: None,
        }
    }
}

impl<B: Backend, E: Element> FeatureRows<B, E> {
    /// Rows that stay on disk; each number is rounded to the nearest element where it is read.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn stored(backend: &B, stored: Arc<StoredFeatures>) -> Result<Self, Error> {
        let columns = stored.feature_len();
        Ok(Self {
            matrix: Matrix::zeros(backend, 0, columns, MemoryKind::Features)?,
            elsewhere: Some(Elsewhere::Disk(stored)),
        })
    }

    /// Rows of so many vertices and columns that are dealt out to the ranks of `group`: each has those of every `ranks`-th vertex in a matrix, written by
    /// `write_row(vertex, values)`, and asks the others for what it wants. So all take rows equally often, those that want none as well, and
    /// at the same place among their other exchanges; what is taken are the same bits. One rank has all in a matrix.
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
        Ok(Self {
            matrix: Matrix::zeros(backend, 0, columns, kind)?,
            elsewhere: Some(Elsewhere::Ranks(Box::new(rows))),
        })
    }

    /// Number of vertices.
    pub fn rows(&self) -> usize {
        match &self.elsewhere {
            None => self.matrix.rows(),
            Some(Elsewhere::Disk(stored)) => stored.vertices(),
            Some(Elsewhere::Ranks(rows)) => rows.vertices(),
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
            Some(Elsewhere::Disk(stored)) => Some(stored),
            _ => None,
        }
    }

    /// The rows of some vertices, in memory of `kind`. Of rows that are [dealt out](FeatureRows::sharded) every rank calls it at once.
    ///
    /// # Errors
    /// [`Error::Features`] where they cannot be read, [`Error::Communication`] where another rank does not give them, [`Error::Driver`]
    /// where there is not enough memory.
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

    /// The same, in `taken`; the row of [`NO_VERTEX`] is zeros. What an exchange of rows lies in is kept for the next.
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
            return ops::take_rows(backend, &self.matrix, vertices, taken);
        };
        Error::expect("FeatureRows", "rows", vertices.len(), taken.rows())?;
        Error::expect("FeatureRows", "columns", self.columns(), taken.columns())?;
        let stored = match elsewhere {
            Elsewhere::Disk(stored) => stored,
            Elsewhere::Ranks(rows) => return rows.take_into(backend, vertices, taken),
        };
        let vertices = vertices.to_vec(backend)?;
        // Piece by piece, so that the host never has all of a large piece of the graph.
        let piece = (PIECE_BYTES / size_of::<E>() / taken.stride()).max(1);
        for (number, vertices) in vertices.chunks(piece).enumerate() {
            let rows = read::<E>(stored, vertices)?;
            taken.write_rows(backend, number * piece, &rows)?;
        }
        Ok(())
    }

    /// Takes part in an exchange of rows of which this rank wants none, where they are [dealt out](FeatureRows::sharded).
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

/// The rows of vertices, with their padding.
fn read<E: Element>(stored: &StoredFeatures, vertices: &[u32]) -> Result<Vec<E>, Error> {
    let stride = padded::<E>(stored.feature_len());
    let mut elements = vec![E::zeroed(); vertices.len() * stride];
    let rows = vertices.iter().zip(elements.chunks_exact_mut(stride));
    let rows = rows.filter(|&(&vertex, _)| vertex != NO_VERTEX);
    let rows = rows.map(|(&vertex, row)| (vertex, row)).collect();
    let round = |values: &[f32], row: &mut [E]| tensor::round(values, &mut row[..values.len()]);
    let done = stored.read_rows(rows, round);
    done.map_err(|error| Error::Features(error.to_string()))?;
    Ok(elements)
}

/// Rows on disk that are read by a thread of their own while others are computed on.
#[derive(Debug)]
pub struct ReadAhead<E> {
    vertices: Arc<[u32]>,
    reader: JoinHandle<Result<Vec<E>, Error>>,
}

impl<E: Element> ReadAhead<E> {
    /// Begins to read those of `vertices`.
    ///
    /// # Errors
    /// [`Error::Features`] where there is no thread for it.
    pub fn begin(stored: &Arc<StoredFeatures>, vertices: Vec<u32>) -> Result<Self, Error> {
        let vertices: Arc<[u32]> = vertices.into();
        let (stored, of_reader) = (stored.clone(), vertices.clone());
        let reader = thread::Builder::new()
            .name("features of the next batch".into())
            .spawn(move || read(&stored, &of_reader));
        let refuse = |error| Error::Features(format!("no thread to read features: {error}"));
        Ok(Self {
            vertices,
            reader: reader.map_err(refuse)?,
        })
    }

    /// Waits for them and has them in `taken`, whose rows are to be those of `wanted`: the same vertices in the same order, and
    /// [`NO_VERTEX`] between them. Whether they are; else nothing is written.
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
        let wanted = wanted.to_vec(backend)?;
        let vertices = wanted.iter().filter(|&&vertex| vertex != NO_VERTEX);
        if !vertices.eq(self.vertices.iter()) {
            return Ok(false);
        }
        if wanted.len() == self.vertices.len() {
            taken.write_rows(backend, 0, &rows)?;
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
}

#[cfg(all(test, feature = "readers"))]
mod tests {
    use super::*;
    use crate::backend::cpu::Cpu;
    use crate::data::parts::{Deal, FeaturePrecision};
    use crate::data::{Dataset, Features, OpenOptions, Splits};
    use crate::graph::Graph;
    use half::f16;

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
        let rows = FeatureRows::<Cpu, f16>::stored(&backend, stored.clone()).expect("no room");
        assert_eq!((rows.rows(), rows.columns()), (5, COLUMNS));
        assert_eq!(rows.matrix().shape(), (0, COLUMNS));
        let wanted = [4, NO_VERTEX, 0, 3, NO_VERTEX];
        let order = Array::from_slice(&backend, &wanted, MemoryKind::Graph).expect("room");
        let taken = rows.take(&backend, &order, MemoryKind::Features);
        let taken = taken.and_then(|taken| taken.to_padded(&backend));
        assert_eq!(taken.expect("its rows"), expected(&wanted));

        let ahead = |vertices: &[u32]| {
            let ones = [1.0; 5 * COLUMNS];
            let kind = MemoryKind::Features;
            let mut taken = Matrix::<_, f16>::from_f32(&backend, 5, COLUMNS, &ones, kind)?;
            let ahead = ReadAhead::begin(&stored, vertices.to_vec())?;
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
    }
}
